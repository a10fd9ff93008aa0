//! The properties of a function that the IR does not show.

use alloc::sync::Arc;
use cranelift_mergefunc_units::Linkage;
use hashbrown::HashSet;
use rustc_hash::FxBuildHasher;

/// The properties of a function that the IR does not show.
///
/// The default keeps everything that can be observed: exported, with a significant address.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// The visibility of the symbol.
    pub linkage: Linkage,
    /// Whether code may compare the function's address with another function's.
    pub addresses: Addresses,
    /// Whether something outside the functions of the unit holds the address: a data object, a
    /// table that the embedder builds. References in the IR are found in any case.
    pub address_taken: bool,
    /// Functions with different keys never merge: section, per-function settings, CFI type, loading
    /// unit, anything that the IR does not show. 0 where there is nothing of that kind.
    pub key: u64,
    /// Alignment of the function's first instruction in bytes, a power of two. The representative
    /// of a class gets the largest of the class. 1 where the back end's own minimum is enough.
    pub alignment: u32,
    /// Whether code that the pass does not see calls the function by its symbol: code that was
    /// emitted before, assembly. For holders of its address there is `address_taken`.
    pub externally_called: bool,
    /// The function neither replaces another function nor is replaced. It still counts as equal
    /// where functions that call it are compared, and its own references are redirected.
    pub pinned: bool,
    /// The function must stay distinguishable: it is not merged, and a call to it equals only
    /// another call to it.
    pub no_merge: bool,
    /// The function takes much of the time. With [`Policy::Balanced`](crate::Policy::Balanced) it
    /// is merged only with identical functions.
    pub hot: bool,
    /// The function is merged only with identical functions, whatever the policy.
    pub identical_only: bool,
}

impl Default for Attributes {
    fn default() -> Self {
        Attributes {
            linkage: Linkage::Export,
            addresses: Addresses::Significant,
            address_taken: false,
            externally_called: false,
            key: 0,
            alignment: 1,
            pinned: false,
            no_merge: false,
            hot: false,
            identical_only: false,
        }
    }
}

/// Attributes, each kept once: most functions of a unit have the same.
#[derive(Default)]
pub(crate) struct Interned {
    known: HashSet<Arc<Attributes>, FxBuildHasher>,
    /// Those of the function before.
    last: Option<Arc<Attributes>>,
}

impl Interned {
    pub fn intern(&mut self, attributes: Attributes) -> Arc<Attributes> {
        if let Some(last) = self.last.as_ref().filter(|last| ***last == attributes) {
            return last.clone();
        }
        let interned = match self.known.get(&attributes) {
            Some(known) => known.clone(),
            None => {
                let new = Arc::new(attributes);
                self.known.insert(new.clone());
                new
            }
        };
        self.last = Some(interned.clone());
        interned
    }
}

/// Whether two functions may end up at one address.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Addresses {
    /// The address of this function must differ from every other function's.
    Significant,
    /// No code compares the address.
    Insignificant,
}

impl Addresses {
    /// Both, significant first.
    pub const ALL: [Addresses; 2] = [Addresses::Significant, Addresses::Insignificant];

    /// The name used in directives, options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Addresses::Significant => "significant",
            Addresses::Insignificant => "insignificant",
        }
    }
}
