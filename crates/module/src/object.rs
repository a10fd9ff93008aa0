//! The additions for `cranelift-object`: symbols can be placed at the address of another one.

use crate::{BackEnd, FunctionState, MergingModule, ObjectFixups};
use cranelift_entity::SecondaryMap;
use cranelift_mergefunc::explain::MergeMap;
use cranelift_module::{FuncId, ModuleResult};
use cranelift_object::object::write::{Comdat, Symbol, SymbolId, SymbolSection};
use cranelift_object::object::{BinaryFormat, ComdatKind, SectionFlags, SymbolFlags, elf};
use cranelift_object::{ObjectModule, ObjectProduct};

impl ObjectFixups {
    /// Gives each symbol the address of its target. To be called once, on the product of the module
    /// that was wrapped.
    ///
    /// The symbols keep their names and visibility. An alias has no unwind information of its own:
    /// it is found by address. Unwind information that the product lacks because the functions were
    /// compiled on other threads is written as well. Sections of content-addressed functions become
    /// COMDAT groups (ELF, COFF), and their symbols weak (ELF, Mach-O).
    ///
    /// # Panics
    ///
    /// If `product` is of another module, or if there are content-addressed functions and functions
    /// have no sections of their own (`ObjectBuilder::per_function_section`).
    pub fn place(&self, product: &mut ObjectProduct) {
        for &(alias, target) in &self.functions {
            let (alias, target) = (product.function_symbol(alias), product.function_symbol(target));
            ObjectFixups::place_symbol(product, alias, target);
        }
        for &(alias, target) in &self.data {
            let (alias, target) = (product.data_symbol(alias), product.data_symbol(target));
            ObjectFixups::place_symbol(product, alias, target);
        }
        for &content in &self.contents {
            share(product, content);
        }
        #[cfg(feature = "parallel")]
        if let Some(unwind) = &self.unwind {
            unwind.write(product);
        }
    }

    /// Gives the symbol `alias` the address and the size of the symbol `target`, for aliases that
    /// the module does not know of. The symbol keeps its name and visibility.
    ///
    /// # Panics
    ///
    /// If one of them is not of `product`.
    pub fn place_symbol(product: &mut ObjectProduct, alias: SymbolId, target: SymbolId) {
        let target = product.object.symbol(target);
        let (section, value, size) = (target.section, target.value, target.size);
        let symbol = product.object.symbol_mut(alias);
        (symbol.section, symbol.value, symbol.size) = (section, value, size);
    }
}

/// Makes a definition one of which a linker keeps any.
fn share(product: &mut ObjectProduct, function: FuncId) {
    let id = product.function_symbol(function);
    let object = &mut product.object;
    let format = object.format();
    if format == BinaryFormat::MachO {
        // Each symbol begins a piece of the section of its own.
        object.symbol_mut(id).weak = true;
        return;
    }
    let symbol = object.symbol(id);
    let section = symbol.section.id().expect("content-addressed functions are defined");
    assert!(
        symbol.value == 0 && object.section(section).data().len() as u64 == symbol.size,
        "content-addressed functions need ObjectBuilder::per_function_section"
    );
    let symbol = if format == BinaryFormat::Elf {
        object.symbol_mut(id).weak = true;
        // The writer leaves it to us to say in the section that it is in a group.
        let sh_flags = elf::SHF_ALLOC | elf::SHF_EXECINSTR | elf::SHF_GROUP;
        object.section_mut(section).flags = SectionFlags::Elf { sh_flags: sh_flags.into() };
        id
    } else {
        // In COFF, the first symbol of a COMDAT section is its own, and the second that of the
        // group. References to the symbol that there was find the group by its name.
        let Symbol { name, value, size, kind, scope, weak, section: own, flags: _ } = symbol;
        let defined = Symbol {
            name: name.clone(),
            value: *value,
            size: *size,
            kind: *kind,
            scope: *scope,
            weak: *weak,
            section: *own,
            flags: SymbolFlags::None,
        };
        object.section_symbol(section);
        let defined = object.add_symbol(defined);
        let before = object.symbol_mut(id);
        (before.section, before.size) = (SymbolSection::Undefined, 0);
        defined
    };
    let sections = std::vec![section];
    object.add_comdat(Comdat { kind: ComdatKind::Any, symbol, sections });
}

impl MergingModule<ObjectModule> {
    /// Flushes with [`BackEnd::Object`] if nothing was flushed yet, finishes the object and places
    /// the aliases.
    ///
    /// # Errors
    ///
    /// See [`MergingModule::flush`].
    pub fn finish(self) -> ModuleResult<ObjectProduct> {
        Ok(self.finish_object(false)?.0)
    }

    /// Finishes the object, and returns it with the merge map. The map places code by offset into
    /// its section, unless every function has a section of its own.
    ///
    /// # Errors
    ///
    /// See [`MergingModule::flush`].
    pub fn finish_with_map(self) -> ModuleResult<(ObjectProduct, MergeMap)> {
        let (product, map) = self.finish_object(true)?;
        Ok((product, map.expect("asked for")))
    }

    fn finish_object(mut self, with_map: bool) -> ModuleResult<(ObjectProduct, Option<MergeMap>)> {
        self.flush_to(BackEnd::Object, true)?;
        self.define_eliminated()?;
        let map = with_map.then(|| self.merge_map());
        let MergingModule { inner, aliases, symbols, .. } = self;
        let mut product = inner.finish();
        let map = map.map(|map| with_places(map, &symbols.functions, &product));
        aliases.place(&mut product);
        Ok((product, map))
    }
}

/// The map with the places of functions in the one section, if there is one.
fn with_places(
    mut map: MergeMap,
    functions: &SecondaryMap<FuncId, FunctionState>,
    product: &ObjectProduct,
) -> MergeMap {
    let mut sections = None;
    let mut places = std::vec::Vec::new();
    for (function, state) in functions.iter().filter(|(_, state)| state.size > 0) {
        let id = product.function_symbol(function);
        let symbol = product.object.symbol(id);
        let one = *sections.get_or_insert(symbol.section) == symbol.section;
        if !one {
            places.clear();
            break;
        }
        places.push((crate::symbol(function), symbol.value, u64::from(state.size)));
    }
    for (symbol, start, size) in places {
        map.place(symbol, start, size);
    }
    map
}
