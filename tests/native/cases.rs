//! The table: pairs of equal functions, and their properties.

use crate::shapes::{BY_VALUE, CONVENTIONS, Calls, SELF_CALLING, SIMPLE, Shape};
use cranelift_mergefunc::Addresses;
use cranelift_module::Linkage;

pub const LINKAGES: [Linkage; 4] =
    [Linkage::Export, Linkage::Hidden, Linkage::Local, Linkage::Preemptible];

/// Two functions that are equal.
#[derive(Clone, Copy)]
pub struct Case {
    pub number: usize,
    pub shape: &'static Shape,
    pub convention: &'static str,
    pub linkages: [Linkage; 2],
    pub addresses: Addresses,
    /// Whether the unit takes the addresses, in code and in data.
    pub taken: bool,
    /// Which of the two C defines as well: a preemptible one everywhere, another one only in the
    /// program that uses the unit as a shared library.
    pub also_in_c: Option<usize>,
    /// Whether the callers of the two may be merged as well.
    pub callers_merge: bool,
}

impl Case {
    /// The name of one of the two.
    pub fn name(&self, which: usize) -> String {
        format!("c{}_{}", self.number, ["f", "g"][which])
    }

    pub fn has(&self, linkage: Linkage) -> bool {
        self.linkages.contains(&linkage)
    }

    /// Whether C can name one of the two, from the outside of a shared library or not.
    pub fn is_visible(&self, which: usize, outside: bool) -> bool {
        match self.linkages[which] {
            Linkage::Export | Linkage::Preemptible => true,
            Linkage::Hidden => !outside,
            Linkage::Local | Linkage::Import => false,
        }
    }

    /// Whether one of the two is defined in C, too, when the unit is, or is not, a shared library.
    pub fn is_in_c(&self, which: usize, shared: bool) -> bool {
        let everywhere = self.linkages[which] == Linkage::Preemptible;
        self.also_in_c == Some(which) && (everywhere || shared)
    }

    /// Whether C has functions of this signature that the table can call.
    pub fn is_like_c(&self) -> bool {
        self.shape.signature == ["i64", "i64"] && self.convention == "system_v"
    }

    /// Whether both have one address where the back end has aliases.
    pub fn shares_its_address(&self) -> bool {
        let preemptible = self.has(Linkage::Preemptible);
        let calls_itself = self.shape.calls == Calls::Itself;
        self.addresses == Addresses::Insignificant
            && self.taken
            // A preemptible function that calls itself calls the definition that preempts it. And
            // of two preemptible ones each is a jump to a third, whatever their addresses are.
            && !(preemptible && calls_itself)
            && self.linkages != [Linkage::Preemptible; 2]
    }

    pub fn describe(&self) -> String {
        let Case { shape, convention, linkages: [f, g], addresses, taken, .. } = self;
        let addresses = addresses.name();
        format!("{} {convention}, {f:?} and {g:?}, {addresses}, taken: {taken}", shape.name)
    }
}

/// The table for a target.
pub fn cases(x86_64: bool) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut add = |case: Case| cases.push(Case { number: cases.len(), ..case });
    let modes = [
        (Addresses::Significant, true),
        (Addresses::Significant, false),
        (Addresses::Insignificant, true),
    ];
    let pairs = || LINKAGES.iter().flat_map(|&f| LINKAGES.map(|g| [f, g]));
    for convention in CONVENTIONS.iter().filter(|c| x86_64 || !c.only_x86_64) {
        for (mode, (addresses, taken)) in modes.into_iter().enumerate() {
            for (pair, linkages) in pairs().enumerate() {
                add(Case {
                    number: 0,
                    // Every shape meets every mode and, over the conventions, every pair.
                    shape: convention.shapes[(pair + mode) % convention.shapes.len()],
                    convention: convention.name,
                    linkages,
                    addresses,
                    taken,
                    also_in_c: None,
                    callers_merge: true,
                });
            }
        }
    }
    let plain = Case {
        number: 0,
        shape: SIMPLE,
        convention: "system_v",
        linkages: [Linkage::Export; 2],
        addresses: Addresses::Significant,
        taken: true,
        also_in_c: None,
        callers_merge: true,
    };
    for addresses in Addresses::ALL {
        for linkages in pairs() {
            if x86_64 {
                add(Case { shape: BY_VALUE, linkages, addresses, ..plain });
            }
            for which in 0..2 {
                let also_in_c = Some(which);
                let case = Case { linkages, addresses, also_in_c, callers_merge: false, ..plain };
                match linkages[which] {
                    Linkage::Preemptible => add(Case { callers_merge: true, ..case }),
                    Linkage::Export => {
                        add(case);
                        add(Case { callers_merge: true, ..case });
                        add(Case { shape: SELF_CALLING, ..case });
                    }
                    Linkage::Hidden | Linkage::Local | Linkage::Import => {}
                }
            }
        }
    }
    cases
}

/// The result of a function that C defines again.
pub fn in_c(x: i64) -> i64 {
    1_000_000 + x
}
