//! Two object files of the same program: is everything in the merged one that is in the plain one?
//!
//! Symbols are compared by name: their visibility, and whether they are defined. Their definitions
//! are compared by content, in step: the bytes must be equal, and where the one refers to a symbol,
//! the other must refer to the same symbol, or to a definition that is equal in turn. Any function
//! may be replaced by a jump. So this finds out whether a merge was right without knowing what was
//! merged.

use super::handles::{DataHandle, FunctionHandle, Names};
use super::shapes::Shape;
use crate::modules::Item;
use cranelift_object::object::elf::FileHeader64;
use cranelift_object::object::endian::LittleEndian;
use cranelift_object::object::read::elf::ElfFile;
use cranelift_object::object::{
    Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionFlags,
    SectionIndex, SectionKind, SymbolIndex, SymbolKind, elf,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

type File<'a> = ElfFile<'a, FileHeader64<LittleEndian>>;

/// The number of a symbol of a file.
type Symbol = usize;

/// A place in a file: the number of a section, and an offset in bytes from its beginning.
type Place = (usize, u64);

/// A reference from one place to a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reference {
    to: Symbol,
    addend: i64,
    kind: u32,
}

/// An object file, with tables for frequent lookups.
struct Image<'a> {
    file: File<'a>,
    by_name: HashMap<String, Symbol>,
    references: BTreeMap<Place, Reference>,
}

impl<'a> Image<'a> {
    /// Reads a file, and checks that it is sane.
    fn new(bytes: &'a [u8]) -> Image<'a> {
        let file = File::parse(bytes).expect("an object file");
        let mut by_name = HashMap::new();
        for symbol in file.symbols() {
            let name = symbol.name().expect("a name").to_owned();
            if !name.is_empty() && symbol.kind() != SymbolKind::File {
                let before = by_name.insert(name.clone(), symbol.index().0);
                assert_eq!(before, None, "two symbols {name}");
            }
            if let Some(section) = symbol.section_index() {
                let section = file.section_by_index(section).expect("a section");
                let end = symbol.address() + symbol.size();
                assert!(end <= section.size(), "{name} ends behind its section");
            }
        }
        let mut references = BTreeMap::new();
        for section in file.sections() {
            for (offset, relocation) in section.relocations() {
                let RelocationTarget::Symbol(to @ SymbolIndex(number)) = relocation.target() else {
                    panic!("a relocation to nothing at {offset:#x}");
                };
                assert!(offset + 4 <= section.size(), "a relocation behind its section");
                let symbol = file.symbol_by_index(to).expect("a symbol");
                let found = symbol.is_undefined() || symbol.section_index().is_some();
                assert!(found, "a relocation to what is nowhere");
                let RelocationFlags::Elf { r_type: kind } = relocation.flags() else {
                    panic!("a relocation of another format");
                };
                let reference = Reference { to: number, addend: relocation.addend(), kind };
                let before = references.insert((section.index().0, offset), reference);
                assert_eq!(before, None, "two relocations at {offset:#x}");
            }
        }
        Image { file, by_name, references }
    }

    fn place(&self, symbol: Symbol) -> Option<Place> {
        let symbol = self.file.symbol_by_index(SymbolIndex(symbol)).expect("a symbol");
        Some((symbol.section_index()?.0, symbol.address()))
    }

    fn size(&self, symbol: Symbol) -> u64 {
        self.file.symbol_by_index(SymbolIndex(symbol)).expect("a symbol").size()
    }

    fn name(&self, symbol: Symbol) -> &str {
        let symbol = self.file.symbol_by_index(SymbolIndex(symbol)).expect("a symbol");
        symbol.name().expect("a name")
    }

    /// The bytes behind a symbol. All of them are zeros where the file has none.
    fn bytes(&self, (section, at): Place, size: u64) -> Vec<u8> {
        let section = self.file.section_by_index(SectionIndex(section)).expect("a section");
        let data = section.data().expect("a section of the file");
        match data.is_empty() {
            true => vec![0; size as usize],
            false => data[at as usize..(at + size) as usize].to_vec(),
        }
    }

    /// The references in `size` bytes, by offset into them.
    fn references(&self, (section, at): Place, size: u64) -> Vec<(u64, Reference)> {
        let range = self.references.range((section, at)..(section, at + size));
        range.map(|((_, offset), reference)| (offset - at, *reference)).collect()
    }

    fn section_kind(&self, (section, _): Place) -> (SectionKind, bool) {
        let section = self.file.section_by_index(SectionIndex(section)).expect("a section");
        let writable = match section.flags() {
            SectionFlags::Elf { sh_flags } => sh_flags & u64::from(elf::SHF_WRITE) != 0,
            _ => false,
        };
        (section.kind(), writable)
    }
}

/// Panics unless the second file is the first one with equal functions and data objects merged.
pub fn compare(
    files: &[Vec<u8>; 2],
    functions: &[FunctionHandle],
    data: &[DataHandle],
    names: &Names,
) {
    let [bare, merged] = files.each_ref().map(|bytes| Image::new(bytes));
    let mut comparison = Comparison {
        counterpart: BTreeMap::new(),
        distinct: BTreeSet::new(),
        met: BTreeSet::new(),
        left: Vec::new(),
        bare,
        merged,
    };
    comparison.symbols(names);
    comparison.distinct_places(functions, data, names);
    comparison.contents(functions, data, names);
    comparison.alignments(functions, data, names);
}

struct Comparison<'a> {
    bare: Image<'a>,
    merged: Image<'a>,
    /// The symbol of the second file that is that of the first.
    counterpart: BTreeMap<Symbol, Symbol>,
    /// Symbols of the first file whose addresses are significant.
    distinct: BTreeSet<Symbol>,
    /// Pairs that were compared, or will be.
    met: BTreeSet<(Symbol, Symbol)>,
    left: Vec<(Symbol, Symbol)>,
}

impl Comparison<'_> {
    /// Checks that every symbol is present, with the same visibility.
    fn symbols(&mut self, names: &Names) {
        let Comparison { bare, merged, counterpart, .. } = self;
        for [name, other] in names.functions.iter().chain(&names.data) {
            let one = bare.by_name.get(name).unwrap_or_else(|| panic!("no {name}"));
            let other = merged.by_name.get(other).unwrap_or_else(|| panic!("{name} is lost"));
            counterpart.insert(*one, *other);
            let one = bare.file.symbol_by_index(SymbolIndex(*one)).expect("a symbol");
            let other = merged.file.symbol_by_index(SymbolIndex(*other)).expect("a symbol");
            assert_eq!(one.is_undefined(), other.is_undefined(), "{name} is defined");
            assert_eq!(one.scope(), other.scope(), "visibility of {name}");
            assert_eq!(one.is_weak(), other.is_weak(), "{name} is weak");
            assert_eq!(one.kind(), other.kind(), "what {name} is");
        }
        // No new symbol is visible from outside or imported.
        for (name, symbol) in &merged.by_name {
            let symbol = merged.file.symbol_by_index(SymbolIndex(*symbol)).expect("a symbol");
            if symbol.is_global() || symbol.is_undefined() {
                assert!(bare.by_name.contains_key(name), "{name} is new");
            }
        }
    }

    /// Checks that symbols that need an address of their own have one.
    fn distinct_places(
        &mut self,
        functions: &[FunctionHandle],
        data: &[DataHandle],
        names: &Names,
    ) {
        let mut taken: BTreeSet<usize> =
            functions.iter().filter_map(|f| f.shape.as_ref()).flat_map(Shape::takes).collect();
        let defined = data.iter().filter(|handle| handle.defined);
        taken.extend(defined.flat_map(|handle| &handle.contents.items).filter_map(Item::function));
        let mut places: BTreeMap<Place, &str> = BTreeMap::new();
        let functions = functions.iter().enumerate().map(|(at, handle)| {
            let matters = handle.significant && (handle.address_taken || taken.contains(&at));
            let visible = handle.significant;
            (&names.functions[at][0], matters, visible)
        });
        let data = data.iter().zip(&names.data).map(|(handle, names)| {
            (&names[0], handle.significant || handle.tls || handle.pinned, false)
        });
        for (name, matters, if_visible) in functions.chain(data) {
            let one = self.bare.by_name[name];
            let symbol = self.bare.file.symbol_by_index(SymbolIndex(one)).expect("a symbol");
            if !(matters || (if_visible && symbol.is_global())) || symbol.size() == 0 {
                continue;
            }
            self.distinct.insert(one);
            let place = self.merged.place(self.counterpart[&one]).expect("is defined");
            if let Some(other) = places.insert(place, name) {
                panic!("{name} and {other} have one address");
            }
        }
    }

    fn contents(&mut self, functions: &[FunctionHandle], data: &[DataHandle], names: &Names) {
        let pairs: Vec<_> = self.counterpart.iter().map(|(one, other)| (*one, *other)).collect();
        for (one, other) in pairs {
            self.meet(one, other);
        }
        // Pointers of data objects, and functions that refer to functions only by taking addresses.
        let takes = functions
            .iter()
            .zip(&names.functions)
            .filter(|(handle, _)| handle.shape.as_ref().is_some_and(Shape::takes_addresses));
        let takes = takes.map(|(_, names)| names);
        let holds = data.iter().zip(&names.data).filter(|(handle, _)| handle.defined);
        let holds = holds.map(|(_, names)| names);
        let addresses: BTreeSet<Symbol> =
            takes.chain(holds).map(|names| self.bare.by_name[&names[0]]).collect();
        while let Some((one, other)) = self.left.pop() {
            self.step(one, other, addresses.contains(&one));
        }
    }

    fn meet(&mut self, one: Symbol, other: Symbol) {
        if self.met.insert((one, other)) {
            self.left.push((one, other));
        }
    }

    /// Compares the definitions of two symbols. `addresses`: all references are addresses.
    fn step(&mut self, one: Symbol, other: Symbol, addresses: bool) {
        let (name, other_name) = (self.bare.name(one), self.merged.name(other));
        let (Some(place), Some(other_place)) = (self.bare.place(one), self.merged.place(other))
        else {
            assert_eq!(name, other_name, "outside");
            return;
        };
        let (size, other_size) = (self.bare.size(one), self.merged.size(other));
        let references = self.bare.references(place, size);
        let others = self.merged.references(other_place, other_size);
        let equal = size == other_size
            && self.bare.bytes(place, size) == self.merged.bytes(other_place, size)
            && references.len() == others.len()
            && references.iter().zip(&others).all(|((at, one), (other_at, other))| {
                (at, one.addend, one.kind) == (other_at, other.addend, other.kind)
            });
        if !equal {
            let jump = self.jump(other_place, other_size);
            let Some(to) = jump else {
                panic!("{name} is {other_name}, which behaves differently");
            };
            return self.meet(one, to);
        }
        let kinds = [self.bare.section_kind(place), self.merged.section_kind(other_place)];
        let text = kinds.map(|(kind, _)| kind == SectionKind::Text);
        assert_eq!(text[0], text[1], "{name} is code");
        assert!(!kinds[0].1 || kinds[1].1, "{name} can be written");
        for ((_, to), (_, other_to)) in references.into_iter().zip(others) {
            self.refers(one, to, other_to, addresses);
        }
    }

    /// Compares two references in `from`.
    fn refers(&mut self, from: Symbol, to: Reference, other: Reference, address: bool) {
        let symbol = self.bare.file.symbol_by_index(SymbolIndex(to.to)).expect("a symbol");
        let (from, name) = (self.bare.name(from), self.bare.name(to.to));
        let Some(&counterpart) = self.counterpart.get(&to.to) else {
            // A label inside a function, which must be at the same offset as before.
            let place = self.bare.place(to.to).expect("a label");
            let holder = self.counterpart.iter().find(|(function, _)| {
                let start = self.bare.place(**function);
                start.is_some_and(|(section, start)| {
                    let inside = place.1.wrapping_sub(start) < self.bare.size(**function);
                    section == place.0 && inside
                })
            });
            let (function, counterpart) = holder.expect("a label is inside of something");
            let [start, other_start] =
                [self.bare.place(*function), self.merged.place(*counterpart)]
                    .map(|place| place.expect("is defined"));
            let other_place = self.merged.place(other.to).expect("a label");
            let distance = place.1 - start.1;
            let wanted = (other_start.0, other_start.1 + distance);
            assert_eq!(other_place, wanted, "{from} points into {name}");
            return;
        };
        let other_name = self.merged.name(other.to);
        if symbol.is_undefined() || symbol.is_weak() {
            // Another image may define it.
            assert_eq!(counterpart, other.to, "{from} refers to {other_name}, not to {name}");
        } else if address && self.distinct.contains(&to.to) {
            let places = [counterpart, other.to].map(|symbol| self.merged.place(symbol));
            assert_eq!(places[0], places[1], "{from} has the address of {other_name}, not {name}");
        }
        self.meet(to.to, other.to);
    }

    /// The target of code that consists of a jump.
    fn jump(&self, place: Place, size: u64) -> Option<Symbol> {
        let bytes = self.merged.bytes(place, size);
        let is_jump = match cfg!(target_arch = "aarch64") {
            true => bytes == [0, 0, 0, 0x14],
            false => bytes == [0xe9, 0, 0, 0, 0],
        };
        match self.merged.references(place, size)[..] {
            [(_, reference)] if is_jump => Some(reference.to),
            _ => None,
        }
    }

    /// Checks that the requested alignments hold for the addresses of the symbols.
    fn alignments(&self, functions: &[FunctionHandle], data: &[DataHandle], names: &Names) {
        let functions = functions.iter().zip(&names.functions);
        let functions = functions.map(|(handle, names)| (names, u64::from(handle.alignment())));
        let data = data.iter().zip(&names.data);
        let data = data.map(|(handle, names)| (names, handle.contents.align.unwrap_or(1)));
        for (names, alignment) in functions.chain(data) {
            let symbol = self.merged.by_name[&names[1]];
            if let Some((section, at)) = self.merged.place(symbol) {
                let section =
                    self.merged.file.section_by_index(SectionIndex(section)).expect("a section");
                let aligned = at % alignment == 0 && section.align() % alignment == 0;
                // An empty definition has no place.
                assert!(
                    aligned || self.merged.size(symbol) == 0,
                    "{} at {at:#x} in a section aligned to {} is not aligned to {alignment}",
                    names[0],
                    section.align(),
                );
            }
        }
    }
}
