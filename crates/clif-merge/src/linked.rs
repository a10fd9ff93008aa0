//! The merge map of a linked image: which functions, of which units, share which code.
//!
//! Units that were merged with each other have content-addressed bodies in common, of which a
//! linker keeps one. No unit knows
//! its address, or which functions of all units share it. [`LinkedMap`] is assembled from the merge
//! maps of the units and from the symbols of the image, which the caller reads.
//!
//! It does *not* read object files, and it knows code by the names of symbols only: an image
//! without symbols says nothing.

use cranelift_codegen::ir::UserExternalName;
use cranelift_mergefunc::across::ContentDigest;
use cranelift_mergefunc::explain::MergeMap;
use cranelift_mergefunc::{Disposition, cranelift_codegen};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A function as it was before merging, as linkers know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedFunction {
    /// Its name in the object of its unit.
    pub name: String,
    /// Whether other units can see it.
    pub is_visible: bool,
    /// Its disposition, with the name of the code that replaces it.
    pub disposition: Disposition<String>,
    /// The name of the body that runs when it is called.
    pub body: String,
}

impl LinkedFunction {
    /// The functions of the merge map of a unit, in the order in which they were added.
    pub fn all(map: &MergeMap) -> Vec<LinkedFunction> {
        let name = |symbol: &UserExternalName| match map.original(symbol) {
            Some(original) => original.name.clone(),
            // Of another unit, or emitted earlier.
            None => symbol.to_string(),
        };
        let originals = map.originals().map(|original| LinkedFunction {
            name: original.name.clone(),
            is_visible: original.is_visible,
            disposition: original.disposition.clone().map(|to| name(&to)),
            body: name(&map.body_of(&original.symbol)),
        });
        originals.collect()
    }
}

/// The name of code: within a unit, or in all units.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// `None` for a content-addressed body.
    unit: Option<usize>,
    name: String,
}

/// Code of which a symbol of the image says where it is.
#[derive(Clone, Debug)]
struct Placed {
    size: u64,
    place: Place,
}

/// Which functions of all units share which code of an image.
#[derive(Clone, Debug, Default)]
pub struct LinkedMap {
    units: Vec<String>,
    /// The number of each unit: the first of a name.
    numbers: BTreeMap<String, usize>,
    /// With the number of its unit.
    functions: Vec<(usize, LinkedFunction)>,
    /// Each function by its own name.
    own: BTreeMap<Place, usize>,
    /// The unit that defines each visible symbol.
    visible: BTreeMap<String, usize>,
    /// The functions whose body is at a place, in the order in which they were added.
    behind: BTreeMap<Place, Vec<usize>>,
    /// The functions that were merged into the code at a place, in the order in which they were
    /// added.
    merged_into: BTreeMap<Place, Vec<usize>>,
    code: BTreeMap<u64, Vec<Placed>>,
}

impl LinkedMap {
    /// An empty map.
    pub fn new() -> Self {
        LinkedMap::default()
    }

    /// Adds the functions of a unit, which has this name. O(n log m) for n functions, m in all.
    pub fn add_unit(&mut self, unit: &str, functions: impl IntoIterator<Item = LinkedFunction>) {
        let number = self.units.len();
        self.units.push(unit.into());
        self.numbers.entry(unit.into()).or_insert(number);
        for function in functions {
            // A body that the units share was no function.
            if ContentDigest::is_name(&function.name) {
                continue;
            }
            let index = self.functions.len();
            let name = function.name.clone();
            if function.is_visible {
                self.visible.insert(name.clone(), number);
            }
            self.behind.entry(place_in(number, &function.body)).or_default().push(index);
            if let Some(to) = function.disposition.clone().representative() {
                self.merged_into.entry(place_in(number, &to)).or_default().push(index);
            }
            self.own.insert(Place { unit: Some(number), name }, index);
            self.functions.push((number, function));
        }
    }

    /// Sets the address and size, in bytes, of the code under a symbol of the image. `unit` is the
    /// unit whose object defines it, if the symbol is local and the image says so (ELF has a symbol
    /// for each file). Returns whether the symbol is one of a function or body of the units.
    pub fn place(&mut self, unit: Option<&str>, name: &str, start: u64, size: u64) -> bool {
        let place = if ContentDigest::is_name(name) {
            let place = Place { unit: None, name: name.into() };
            Some(place).filter(|place| self.behind.contains_key(place))
        } else {
            let of_unit = |unit: usize| Place { unit: Some(unit), name: name.into() };
            let known = unit.and_then(|unit| self.numbers.get(unit).copied());
            let local = known.map(of_unit).filter(|place| self.is_there(place, false));
            let visible = self.visible.get(name).copied().map(of_unit);
            local.or(visible.filter(|place| self.is_there(place, true)))
        };
        let Some(place) = place else {
            return false;
        };
        self.code.entry(start).or_default().push(Placed { size, place });
        true
    }

    /// Whether a place is that of a function, of this visibility, that has code. The symbol of a
    /// redirected function can be in the image, but it is nowhere.
    fn is_there(&self, place: &Place, is_visible: bool) -> bool {
        let function = self.own.get(place).map(|&index| &self.functions[index].1);
        function.is_some_and(|function| {
            let is_redirected = matches!(function.disposition, Disposition::Redirect { to: _ });
            function.is_visible == is_visible && !is_redirected
        })
    }

    /// All functions of which the code at an address may be, each with its unit: those that share a
    /// body, or the one whose thunk it is. In the order in which they were added, but for the
    /// function whose symbol is there, which is first.
    pub fn originals_at(&self, address: u64) -> Vec<(&str, &LinkedFunction)> {
        let Some((start, placed)) = self.code.range(..=address).next_back() else {
            return Vec::new();
        };
        let mut seen: BTreeSet<usize> = BTreeSet::new();
        let mut found: Vec<usize> = Vec::new();
        for Placed { size, place } in placed {
            if address - start < (*size).max(1) {
                let here = self.functions_at(place);
                found.extend(here.into_iter().filter(|&index| seen.insert(index)));
            }
        }
        found.into_iter().map(|index| self.function(index)).collect()
    }

    /// The function whose symbol is at a place, and those whose body is there, or, if the code
    /// there is a thunk, those that were merged into it.
    fn functions_at(&self, place: &Place) -> Vec<usize> {
        let own = self.own.get(place).copied();
        let is_thunk = own.is_some_and(|own| {
            matches!(self.functions[own].1.disposition, Disposition::Thunk { to: _ })
        });
        let others = if is_thunk { &self.merged_into } else { &self.behind };
        let others = others.get(place).into_iter().flatten().copied();
        own.into_iter().chain(others.filter(|&index| Some(index) != own)).collect()
    }

    /// The code at an address: where it begins, the unit whose code it is, unless units share it,
    /// and its symbol.
    pub fn code_at(&self, address: u64) -> Vec<(u64, Option<usize>, &str)> {
        let Some((&start, placed)) = self.code.range(..=address).next_back() else {
            return Vec::new();
        };
        let placed = placed.iter().filter(|placed| address - start < placed.size.max(1));
        placed.map(|Placed { size: _, place }| (start, place.unit, &*place.name)).collect()
    }

    /// The number of the function that a unit means by a name, if a unit of the map defines it.
    pub fn named(&self, unit: usize, name: &str) -> Option<usize> {
        let of =
            |unit: usize| self.own.get(&Place { unit: Some(unit), name: name.into() }).copied();
        of(unit).or_else(|| of(*self.visible.get(name)?))
    }

    /// The function of a number, with its unit.
    pub fn function(&self, number: usize) -> (&str, &LinkedFunction) {
        let (unit, function) = &self.functions[number];
        (&*self.units[*unit], function)
    }

    /// Whether the function of a number is one of this unit.
    pub fn is_of(&self, number: usize, unit: usize) -> bool {
        self.functions[number].0 == unit
    }

    /// How many functions there are.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// The map in the format of `perf`'s JIT support: one line for each piece of code whose place
    /// is known, with its start and size in hexadecimal, the name of its symbol, and all functions
    /// that are there, each as `unit:name`.
    pub fn perf_map(&self) -> LinkedPerfMap<'_> {
        LinkedPerfMap(self)
    }
}

/// A name that a unit refers to as the place of code.
fn place_in(unit: usize, name: &str) -> Place {
    let unit = Some(unit).filter(|_| !ContentDigest::is_name(name));
    Place { unit, name: name.into() }
}

/// Prints a [`LinkedMap`] as `perf` reads it.
#[derive(Debug)]
pub struct LinkedPerfMap<'a>(&'a LinkedMap);

impl fmt::Display for LinkedPerfMap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LinkedPerfMap(map) = self;
        for (start, placed) in &map.code {
            let size = placed.iter().map(|placed| placed.size).max().unwrap_or(0);
            let Some(Placed { place, .. }) = placed.first() else {
                continue;
            };
            let own = map.own.get(place).map(|&index| &map.functions[index]);
            write!(f, "{start:x} {size:x} {}", place.name)?;
            if own.is_some_and(|(_, own)| matches!(own.disposition, Disposition::Thunk { .. })) {
                f.write_str(" [thunk]")?;
            }
            let mut before = " [";
            for (unit, function) in map.originals_at(*start) {
                write!(f, "{before}{unit}:{}", function.name)?;
                before = ", ";
            }
            f.write_str("]\n")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "content.00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn function(name: &str, is_visible: bool, disposition: Disposition<&str>) -> LinkedFunction {
        let disposition = disposition.map(ToString::to_string);
        let body = disposition.clone().representative().unwrap_or_else(|| name.into());
        LinkedFunction { name: name.into(), is_visible, disposition, body }
    }

    /// Two units: each has a local `f`, a thunk and a redirected function of the shared body.
    fn map() -> LinkedMap {
        let mut map = LinkedMap::new();
        for unit in ["a", "b"] {
            let thunk = format!("{unit}_thunk");
            let through = function("h", false, Disposition::Redirect { to: &thunk });
            map.add_unit(
                unit,
                [
                    function("f", false, Disposition::Keep),
                    function("g", false, Disposition::Redirect { to: BODY }),
                    function(&thunk, true, Disposition::Thunk { to: BODY }),
                    LinkedFunction { body: BODY.into(), ..through },
                    function(BODY, true, Disposition::Keep),
                ],
            );
        }
        assert!(map.place(None, BODY, 0x1000, 0x20));
        assert!(map.place(Some("a"), "f", 0x1020, 8));
        assert!(map.place(Some("b"), "f", 0x1030, 8));
        assert!(map.place(Some("b"), "a_thunk", 0x1040, 10));
        map
    }

    fn names(map: &LinkedMap, address: u64) -> Vec<String> {
        let originals = map.originals_at(address).into_iter();
        originals.map(|(unit, function)| format!("{unit}:{}", function.name)).collect()
    }

    #[test]
    fn a_shared_body_has_the_functions_of_all_units() {
        let all = ["a:g", "a:a_thunk", "a:h", "b:g", "b:b_thunk", "b:h"];
        assert_eq!(names(&map(), 0x101f), all);
        assert_eq!(map().len(), 8);
    }

    #[test]
    fn local_functions_of_one_name_are_distinguished() {
        assert_eq!(names(&map(), 0x1020), ["a:f"]);
        assert_eq!(names(&map(), 0x1030), ["b:f"]);
        assert!(names(&map(), 0x1038).is_empty());
    }

    #[test]
    fn what_was_merged_into_a_thunk_is_at_the_thunk() {
        assert_eq!(names(&map(), 0x1040), ["a:a_thunk", "a:h"]);
    }

    #[test]
    fn symbols_of_no_unit_and_of_no_code_have_no_place() {
        let mut map = map();
        assert!(!map.place(None, "f", 0x2000, 8));
        assert!(!map.place(Some("c"), "f", 0x2000, 8));
        assert!(!map.place(None, "main", 0x2000, 8));
        // Redirected: there is no code of its own.
        assert!(!map.place(Some("a"), "g", 0x2000, 8));
        assert!(!map.place(None, &BODY.replace("00", "77"), 0x2000, 8));
        assert!(names(&map, 0x2000).is_empty());
    }

    #[test]
    fn the_perf_map_names_units() {
        let text = map().perf_map().to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "1020 8 f [a:f]");
        assert_eq!(lines[3], "1040 a a_thunk [thunk] [a:a_thunk, a:h]");
    }
}
