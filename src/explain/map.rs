//! The merge map: which original functions share which code.
//!
//! After merging, one address may be the address of several functions, and a frame of one function
//! may belong to another. A backtrace, a profile or a breakpoint needs to know. [`MergeMap`]
//! answers in both directions: from a symbol, a name or an address to all functions whose body is
//! there, and from a function to its body. It is a copy: later merges do not show in it.
//!
//! It knows the merges. To which of the functions a frame belongs, its callers say: `frames`.

use super::sites::{Key, Recorded, key};
use crate::extra_argument::ExtraArgument;
use crate::plan::{Disposition, Plan, Reached, reached};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use cranelift_codegen::ir::UserExternalName;
use cranelift_entity::EntityRef;

/// A function as it was before merging.
///
/// See the [example](crate::explain).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Original {
    /// Its symbol.
    pub symbol: UserExternalName,
    /// Its name.
    pub name: String,
    /// Whether others than its unit can see its symbol.
    pub is_visible: bool,
    /// Its disposition.
    pub disposition: Disposition<UserExternalName>,
    /// The extra arguments that the body receives: none, unless it is a parameterised body.
    pub arguments: Vec<ExtraArgument>,
}

impl Original {
    /// Whether the code under its symbol is a thunk.
    pub(super) fn is_thunk(&self) -> bool {
        matches!(self.disposition, Disposition::Thunk { to: _ })
    }
}

/// Code whose address is known.
///
/// See the [example](crate::explain).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The first byte.
    pub start: u64,
    /// The size in bytes.
    pub size: u64,
    /// The symbol of the body or of the thunk.
    pub symbol: UserExternalName,
}

/// Which original functions share which code.
///
/// See the [example](crate::explain).
#[derive(Clone, Debug, Default)]
pub struct MergeMap {
    originals: Vec<Original>,
    by_symbol: BTreeMap<Key, usize>,
    by_name: BTreeMap<String, usize>,
    /// The originals that were merged into each symbol, and itself if it keeps its body, in the
    /// order in which they were added.
    merged_into: BTreeMap<Key, Vec<usize>>,
    code: BTreeMap<u64, Code>,
    recorded: Recorded,
}

impl MergeMap {
    /// An empty map.
    pub fn new() -> Self {
        MergeMap::default()
    }

    /// The map of one plan. `name` returns the name of a function.
    pub fn of(plan: &Plan, mut name: impl FnMut(&UserExternalName) -> String) -> Self {
        let mut map = MergeMap::new();
        for (function, entry) in plan.entries() {
            if function.index() >= plan.added() && plan.is_cached(function) {
                continue;
            }
            let symbol = entry.symbol().clone();
            let name = name(&symbol);
            let disposition = entry.disposition().map(|to| plan.entry(to).symbol().clone());
            let arguments = plan.thunk_arguments(function);
            let is_visible = entry.attributes().linkage.is_visible_outside();
            map.add(Original { symbol, name, is_visible, disposition, arguments });
        }
        map
    }

    /// Adds a function. One that was added before under the same symbol is replaced.
    pub fn add(&mut self, original: Original) {
        let into = |original: &Original| {
            let to = original.disposition.clone().representative();
            key(to.as_ref().unwrap_or(&original.symbol))
        };
        let index = self.originals.len();
        if let Some(before) = self.by_symbol.insert(key(&original.symbol), index) {
            let before = &self.originals[before];
            self.by_name.remove(&before.name);
            if let Some(merged) = self.merged_into.get_mut(&into(before)) {
                merged.retain(|&other| self.originals[other].symbol != original.symbol);
            }
        }
        self.by_name.insert(original.name.clone(), index);
        self.merged_into.entry(into(&original)).or_default().push(index);
        self.originals.push(original);
    }

    /// Sets the address and size of the code of a body or a thunk.
    pub fn place(&mut self, symbol: UserExternalName, start: u64, size: u64) {
        self.code.insert(start, Code { start, size, symbol });
    }

    pub(super) fn recorded(&self) -> &Recorded {
        &self.recorded
    }

    /// Sets the records of functions and their code, for [`MergeMap::frames`].
    pub fn set_recorded(&mut self, recorded: Recorded) {
        self.recorded = recorded;
    }

    /// The function of a symbol.
    pub fn original(&self, symbol: &UserExternalName) -> Option<&Original> {
        self.by_symbol.get(&key(symbol)).map(|&index| &self.originals[index])
    }

    /// The function of a name.
    pub fn by_name(&self, name: &str) -> Option<&Original> {
        self.by_name.get(name).map(|&index| &self.originals[index])
    }

    /// The target of references to a symbol.
    fn reached(&self, symbol: &UserExternalName) -> Reached<'_, Key> {
        reached(key(symbol), |symbol| match self.by_symbol.get(&symbol) {
            Some(&index) => {
                let Original { disposition, arguments, .. } = &self.originals[index];
                (disposition.clone().map(|to| key(&to)), arguments)
            }
            // Of another unit, or emitted earlier.
            None => (Disposition::Keep, &[]),
        })
    }

    /// The symbol of the body that runs when the function of a symbol is called: its own, unless it
    /// was merged.
    pub fn body_of(&self, symbol: &UserExternalName) -> UserExternalName {
        let (namespace, index) = self.reached(symbol).body;
        UserExternalName { namespace, index }
    }

    /// All functions whose body is that of `symbol`: itself first, if it keeps its body, and the
    /// functions that were merged into it, or into a thunk that passes extra arguments to it.
    pub fn behind(&self, symbol: &UserExternalName) -> impl Iterator<Item = &Original> + use<'_> {
        let body = key(symbol);
        let first: Vec<&Original> = self.merged_into(symbol).collect();
        let through = first.iter().filter(|first| first.symbol != *symbol);
        let second: Vec<&Original> =
            through.flat_map(|first| self.merged_into(&first.symbol)).collect();
        let all = first.into_iter().chain(second);
        all.filter(move |original| self.reached(&original.symbol).body == body)
    }

    /// All functions that were merged into the function of a symbol. It is first, if it keeps its
    /// body.
    fn merged_into(&self, symbol: &UserExternalName) -> impl Iterator<Item = &Original> + use<'_> {
        let merged = self.merged_into.get(&key(symbol)).map_or(&[][..], |merged| merged);
        let itself = self.by_symbol.get(&key(symbol)).copied();
        let own = itself.filter(|index| merged.contains(index));
        let others = merged.iter().copied().filter(move |&index| Some(index) != own);
        own.into_iter().chain(others).map(|index| &self.originals[index])
    }

    /// All code whose place is known, by its addresses.
    pub fn code(&self) -> impl Iterator<Item = &Code> {
        self.code.values()
    }

    /// The code at an address.
    pub fn at(&self, address: u64) -> Option<&Code> {
        let (_, code) = self.code.range(..=address).next_back()?;
        (address - code.start < code.size.max(1)).then_some(code)
    }

    /// All functions of which the code at an address may be: those that share a body, or the one
    /// whose thunk it is.
    pub fn originals_at(&self, address: u64) -> impl Iterator<Item = &Original> + use<'_> {
        let symbol = self.at(address).map(|code| &code.symbol);
        symbol.into_iter().flat_map(|symbol| self.originals_of(symbol))
    }

    /// All functions of which the code under a symbol may be.
    pub(super) fn originals_of(
        &self,
        symbol: &UserExternalName,
    ) -> impl Iterator<Item = &Original> + use<'_> {
        let thunk = self.original(symbol).filter(|original| original.is_thunk());
        // Functions that were merged into a thunk are there as well.
        let others = thunk.map(|thunk| self.merged_into(&thunk.symbol)).into_iter().flatten();
        let behind = thunk.is_none().then(|| self.behind(symbol)).into_iter().flatten();
        thunk.into_iter().chain(others).chain(behind)
    }

    /// All functions, in the order in which they were added.
    pub fn originals(&self) -> impl Iterator<Item = &Original> {
        self.originals.iter().filter(|original| {
            self.original(&original.symbol).is_some_and(|current| core::ptr::eq(current, *original))
        })
    }

    /// The map in the format of `perf`'s JIT support: `/tmp/perf-PID.map`, one line for each piece
    /// of code whose place is known, with its start and size in hexadecimal and the names of all
    /// functions that are there.
    pub fn perf_map(&self) -> PerfMap<'_> {
        PerfMap(self)
    }
}

/// Prints a [`MergeMap`] as `perf` reads it.
///
/// See the [example](crate::explain).
#[derive(Debug)]
pub struct PerfMap<'a>(&'a MergeMap);

impl fmt::Display for PerfMap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Code { start, size, symbol } in self.0.code.values() {
            let mut originals = self.0.originals_at(*start);
            let first = originals.next();
            write!(f, "{start:x} {size:x} ")?;
            match first {
                Some(Original { name, disposition: Disposition::Thunk { .. }, .. }) => {
                    write!(f, "{name} [thunk]")?;
                }
                Some(Original { name, .. }) => f.write_str(name)?,
                None => write!(f, "{symbol}")?,
            }
            for (index, other) in originals.enumerate() {
                write!(f, "{}{}", if index == 0 { " [merged: " } else { ", " }, other.name)?;
            }
            if self.0.originals_at(*start).nth(1).is_some() {
                f.write_str("]")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn symbol(index: u32) -> UserExternalName {
        UserExternalName::new(0, index)
    }

    fn original(index: u32, name: &str, disposition: Disposition<UserExternalName>) -> Original {
        let (name, arguments) = (name.into(), Vec::new());
        Original { symbol: symbol(index), name, is_visible: false, disposition, arguments }
    }

    fn map() -> MergeMap {
        let mut map = MergeMap::new();
        let to = symbol(0);
        for (index, name, disposition) in [
            (1, "alias", Disposition::Alias { to: to.clone() }),
            (0, "body", Disposition::Keep),
            (2, "thunk", Disposition::Thunk { to: to.clone() }),
            (3, "redirected", Disposition::Redirect { to }),
            (4, "alone", Disposition::Keep),
        ] {
            map.add(original(index, name, disposition));
        }
        map.place(symbol(0), 0x1000, 0x20);
        map.place(symbol(2), 0x1020, 5);
        map.place(symbol(4), 0x1030, 8);
        map
    }

    fn names<'a>(originals: impl Iterator<Item = &'a Original>) -> Vec<&'a str> {
        originals.map(|original| &*original.name).collect()
    }

    #[test]
    fn an_address_has_all_functions_with_the_body_at_it() {
        let map = map();
        assert_eq!(names(map.originals_at(0x101f)), ["body", "alias", "thunk", "redirected"]);
        assert_eq!(names(map.originals_at(0x1020)), ["thunk"]);
        assert_eq!(names(map.originals_at(0x1025)), [""; 0]);
        assert_eq!(names(map.originals_at(0xfff)), [""; 0]);
    }

    #[test]
    fn a_function_has_the_body_of_its_representative() {
        let map = map();
        for name in ["body", "alias", "thunk", "redirected"] {
            assert_eq!(map.body_of(&map.by_name(name).unwrap().symbol), symbol(0));
        }
        assert_eq!(map.body_of(&symbol(4)), symbol(4));
        assert!(map.by_name("unknown").is_none());
    }

    #[test]
    fn a_second_entry_for_a_symbol_replaces_the_first() {
        let mut map = map();
        let disposition = Disposition::Keep;
        map.add(original(3, "back", disposition));
        assert_eq!(names(map.behind(&symbol(0))), ["body", "alias", "thunk"]);
        assert_eq!(names(map.behind(&symbol(3))), ["back"]);
        assert!(map.by_name("redirected").is_none());
        assert_eq!(map.originals().count(), 5);
    }

    #[test]
    fn functions_merged_into_a_passing_thunk_share_its_address_and_the_body() {
        let mut map = map();
        let mut passes = original(5, "passes", Disposition::Thunk { to: symbol(0) });
        let ty = cranelift_codegen::ir::types::I32;
        passes.arguments.push(ExtraArgument::Constant { ty, bits: 1 });
        map.add(passes);
        map.add(original(6, "equal", Disposition::Redirect { to: symbol(5) }));
        map.place(symbol(5), 0x1040, 10);
        assert_eq!(names(map.originals_at(0x1040)), ["passes", "equal"]);
        assert_eq!(map.body_of(&symbol(6)), symbol(0));
        let all = ["body", "alias", "thunk", "redirected", "passes", "equal"];
        assert_eq!(names(map.behind(&symbol(0))), all);
    }

    #[test]
    fn the_perf_map_names_everything_at_an_address() {
        assert_eq!(
            map().perf_map().to_string(),
            "1000 20 body [merged: alias, thunk, redirected]\n1020 5 thunk [thunk]\n1030 8 alone\n"
        );
    }
}
