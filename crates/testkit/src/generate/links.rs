//! Which members the references to groups mean, when a unit is put together.
//!
//! Functions are drawn with references to groups. Here each reference gets a member of its group,
//! by one of a few styles, so that much is equal and much is not. It does *not* decide which groups
//! there are.

use crate::generate::conventions::{DATA, FUNCTIONS};
use crate::generate::expected::Reference;
use crate::mutate::{Field, fields};
use crate::support::Rng;
use cranelift_codegen::ir::{ExternalName, Function, GlobalValueData, UserExternalName};
use std::collections::BTreeMap;

/// The members that references to groups can mean.
pub(super) struct Links {
    pub functions: BTreeMap<u32, Members>,
    pub tables: BTreeMap<u32, Members>,
    /// The references of the last function of each group.
    last: BTreeMap<u32, References>,
    pub style: usize,
    /// Whether any function can be called instead of any other one.
    uniform: bool,
    pub rng: Rng,
}

/// For each place of a function, the group that it was drawn with, as a symbol, and the member of
/// it.
type References = BTreeMap<Place, (UserExternalName, u32)>;

/// The members of a group.
#[derive(Default)]
pub(super) struct Members {
    /// Those with the body of the group.
    pub clones: Vec<u32>,
    /// Other functions that can be used instead of them.
    pub others: Vec<u32>,
}

impl Links {
    /// Of functions: the group of each, and of those without the body of their group whether they
    /// run.
    pub fn of(
        members: impl Iterator<Item = (u32, Option<bool>)>,
        style: usize,
        uniform: bool,
        rng: Rng,
    ) -> Links {
        let mut functions: BTreeMap<u32, Members> = BTreeMap::new();
        for (index, (group, other)) in (0..).zip(members) {
            let members = functions.entry(group).or_default();
            match other {
                None => members.clones.push(index),
                Some(true) => members.others.push(index),
                Some(false) => {}
            }
        }
        let (tables, last) = (BTreeMap::new(), BTreeMap::new());
        Links { functions, tables, last, style, uniform, rng }
    }

    /// A member of a group of functions.
    fn function(&mut self, group: u32) -> u32 {
        let group = match self.uniform && self.rng.one_in(10) {
            true => self.rng.below(self.functions.len()) as u32,
            false => group,
        };
        choose(&self.functions[&group], self.style, &mut self.rng)
    }

    /// A member of a group of tables.
    fn table(&mut self, group: u32) -> u32 {
        choose(&self.tables[&group], self.style, &mut self.rng)
    }
}

pub(super) fn choose(members: &Members, style: usize, rng: &mut Rng) -> u32 {
    let Members { clones, others } = members;
    match style {
        // All conditions are equal: equality depends on no other function.
        0 => clones[0],
        _ if !others.is_empty() && rng.one_in(5) => rng.choose(others),
        _ => rng.choose(clones),
    }
}

/// Points the references of a function to members of the groups, and returns what they are.
pub(super) fn retarget(
    func: &mut Function,
    links: &mut Links,
    own: u32,
    group: u32,
) -> Vec<Reference> {
    let mut uses: BTreeMap<Place, (bool, bool)> = BTreeMap::new();
    for block in func.layout.blocks() {
        for inst in func.layout.block_insts(block) {
            let mut data = func.dfg.insts[inst];
            let is_call = data.opcode().is_call();
            for field in fields(&mut data) {
                let place = match field {
                    Field::Callee(callee) => Place::Import(*callee),
                    Field::Global(global) => Place::Global(*global),
                    _ => continue,
                };
                let (called, address) = uses.entry(place).or_default();
                *(if is_call { called } else { address }) = true;
            }
        }
    }
    let mut references = Vec::new();
    // Some refer to what other members of the group refer to, or hardly any would be equal.
    let last = links.last.remove(&group).unwrap_or_default();
    let mut follows = links.rng.but_one_in(4);
    let mut chosen = References::new();
    for (place, (called, address)) in uses {
        let Some(symbol) = place.symbol(func) else { continue };
        let (namespace, patchable) = (symbol.namespace, place.patchable(func));
        if links.uniform {
            follows = links.rng.but_one_in(3);
        }
        // Another body of the group may have a callee of another group at this place, and of
        // another signature.
        let followed = last.get(&place).filter(|(of, _)| follows && *of == symbol);
        let followed = followed.map(|(_, index)| *index);
        let index = match namespace {
            FUNCTIONS | DATA if let Some(index) = followed => index,
            FUNCTIONS if symbol.index == group && links.rng.one_in(3) => own,
            // A change can have led to symbols that the unit does not have.
            FUNCTIONS if links.functions.contains_key(&symbol.index) => {
                links.function(symbol.index)
            }
            DATA if links.tables.contains_key(&symbol.index) => links.table(symbol.index),
            _ => continue,
        };
        chosen.insert(place, (symbol, index));
        place.set(func, UserExternalName::new(namespace, index));
        let (data, inside) = (namespace == DATA, namespace == FUNCTIONS && place.offset(func) != 0);
        references.push(Reference { data, index, called, address, patchable, inside });
    }
    links.last.insert(group, chosen);
    references
}

/// Where a function names a symbol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Import(cranelift_codegen::ir::FuncRef),
    Global(cranelift_codegen::ir::GlobalValue),
}

impl Place {
    fn symbol(self, func: &Function) -> Option<UserExternalName> {
        let name = match self {
            Place::Import(func_ref) => &func.dfg.ext_funcs[func_ref].name,
            Place::Global(global) => match &func.global_values[global] {
                GlobalValueData::Symbol { name, .. } => name,
                _ => return None,
            },
        };
        match name {
            ExternalName::User(name) => Some(func.params.user_named_funcs()[*name].clone()),
            _ => None,
        }
    }

    /// How far behind the symbol.
    fn offset(self, func: &Function) -> i64 {
        match self {
            Place::Import(_) => 0,
            Place::Global(global) => match &func.global_values[global] {
                GlobalValueData::Symbol { offset, .. } => offset.bits(),
                _ => 0,
            },
        }
    }

    fn patchable(self, func: &Function) -> bool {
        match self {
            Place::Import(func_ref) => func.dfg.ext_funcs[func_ref].patchable,
            Place::Global(_) => false,
        }
    }

    fn set(self, func: &mut Function, symbol: UserExternalName) {
        let symbol = ExternalName::User(func.params.ensure_user_func_name(symbol));
        match self {
            Place::Import(func_ref) => func.dfg.ext_funcs[func_ref].name = symbol,
            Place::Global(global) => match &mut func.global_values[global] {
                GlobalValueData::Symbol { name, .. } => *name = symbol,
                _ => unreachable!("names a symbol"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::function::Profile;
    use crate::generate::opcodes::Machine;
    use crate::generate::unit::GeneratedUnit;
    use arbitrary::Unstructured;
    use cranelift_codegen::ir::InstructionData;
    use std::collections::HashMap;

    /// If a function that is to be run made such a call, it would have no defined behaviour, and
    /// merging could change what it does.
    #[test]
    fn no_variant_calls_a_function_by_the_signature_of_another_group() {
        let profile = Profile::runnable(Machine::host()).differing();
        // In these, variants of a group have callees of different groups at one place.
        let chosen = [(150, 487), (300, 464), (300, 912), (300, 1050), (600, 938), (600, 2118)];
        let mut calls = 0;
        for (len, seed) in chosen.into_iter().chain((0..20).map(|seed| (600, seed))) {
            let bytes = Rng::new(seed).bytes(len);
            let unit = GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile).unit;
            let signatures: HashMap<_, _> = unit
                .functions
                .iter()
                .map(|member| (member.symbol(), &member.body.signature))
                .collect();
            for member in &unit.functions {
                let func = &member.body;
                let insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
                for inst in insts {
                    let InstructionData::Call { func_ref, .. } = func.dfg.insts[inst] else {
                        continue;
                    };
                    let callee = &func.dfg.ext_funcs[func_ref];
                    let symbol = Place::Import(func_ref).symbol(func).expect("has a symbol");
                    if let Some(signature) = signatures.get(&symbol) {
                        let called = &func.dfg.signatures[callee.signature];
                        assert_eq!(called, *signature, "{symbol} of {seed}, in\n{func}");
                        calls += 1;
                    }
                }
            }
        }
        assert!(calls > 30, "{calls}");
    }
}
