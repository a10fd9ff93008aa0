//! Similar functions: those that differ only in constants and in what they refer to.
//!
//! [`similar_groups`] finds them among the functions that a plan keeps, by the shape streams of the one
//! canonical walk: functions of one shape, where they differ ([`columns`]), and which of these places always
//! go together and so are one parameter. Source: Swift's LLVMMergeFunctions and LLVM's
//! GlobalMergeFunctions, where places with the same values share a parameter as well.
//!
//! What it does *not* do: it merges nothing, and does not say whether merging would pay.

mod columns;

use crate::canon::{self, Context, Place, ResolveSymbol, Scratch};
use crate::encoding::{Encoding, Reference, USER_SYMBOL};
use crate::options::Options;
use crate::plan::{Disposition, Plan};
use crate::unit::{Bodies, FunctionIndex, canonicalized};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use columns::{Columns, Table};
use cranelift_codegen::ir::{
    ExternalName, FuncRef, Function, GlobalValueData, Inst, InstructionData, Opcode, Type,
    UserExternalName,
};
use xxhash_rust::xxh3::xxh3_128;

/// Functions that differ only in constants and in what they refer to.
#[derive(Clone, Debug)]
pub struct Group {
    members: Vec<FunctionIndex>,
    parameters: Vec<Parameter>,
}

impl Group {
    /// The functions, two or more, in the order of their symbols.
    pub fn members(&self) -> &[FunctionIndex] {
        &self.members
    }

    /// What a function that does for all of them must be told, in the order of the first places. None if
    /// the functions are of one class and were left alone nevertheless.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }
}

/// Places that have one value in each member of a group, but not the same in all of them.
#[derive(Clone, Debug)]
pub struct Parameter {
    kind: ParameterKind,
    places: Vec<Inst>,
    same_as: Box<[u32]>,
    arguments: Vec<Argument>,
}

impl Parameter {
    /// What stands at these places.
    pub fn kind(&self) -> ParameterKind {
        self.kind
    }

    /// The instructions that use it, in the body of the group's first member, in the order of the walk.
    pub fn places(&self) -> &[Inst] {
        &self.places
    }

    /// For each member the first one that has the same value.
    pub fn same_as(&self) -> &[u32] {
        &self.same_as
    }

    /// The value in each member.
    pub fn arguments(&self) -> &[Argument] {
        &self.arguments
    }

    /// How many values there are, two or more.
    pub fn values(&self) -> usize {
        (0..).zip(&self.same_as).filter(|&(at, &first): &(u32, &u32)| at == first).count()
    }
}

/// What can differ between similar functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A constant of a type: `iconst`, `f32const`, `vconst` and the like.
    Constant(Type),
    /// The offset in bytes of a memory access, or in a stack slot.
    Offset,
    /// The function that is called.
    Callee,
    /// The address of a function, or one in a data object.
    Address,
}

/// What a parameter is in one member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The bits of a constant, as many as its type has; the others are 0.
    Constant(u128),
    /// In bytes.
    Offset(i32),
    /// The function that is called.
    Callee(UserExternalName),
    /// The member calls itself, or another one of its class.
    Itself,
    /// So many bytes behind the address of a symbol.
    Address(UserExternalName, i64),
}

/// The groups of similar functions among those that `plan` keeps, in the order of their first symbols.
///
/// `bodies` and `options` are those of the run. Functions that are pinned or must not be merged are in no
/// group, nor are those that the verifier refuses. Walks every kept function: linear in the size of the
/// unit, up to a logarithm.
pub fn similar_groups(plan: &Plan, bodies: &mut dyn Bodies, options: &Options<'_>) -> Vec<Group> {
    let mut search = Search {
        plan,
        bodies,
        options,
        scratch: Scratch::recording(),
        encoding: Encoding::default(),
    };
    let mut shapes: BTreeMap<u128, Vec<FunctionIndex>> = BTreeMap::new();
    for function in search.candidates() {
        if search.walk(function) {
            let shape = xxh3_128(&search.encoding.shape);
            shapes.entry(shape).or_default().push(function);
        }
    }
    let shapes = shapes.into_values().filter(|members| members.len() > 1);
    let mut groups: Vec<Group> = shapes.flat_map(|members| search.groups(members)).collect();
    groups.sort_unstable_by_key(|group| search.order(group.members[0]));
    groups
}

struct Search<'a> {
    plan: &'a Plan,
    bodies: &'a mut dyn Bodies,
    options: &'a Options<'a>,
    scratch: Scratch,
    encoding: Encoding,
}

impl Search<'_> {
    /// Functions that could share a body with another one.
    fn candidates(&self) -> Vec<FunctionIndex> {
        let can = |function: &FunctionIndex| {
            let entry = self.plan.entry(*function);
            let left_alone = entry.attributes.pinned || entry.attributes.no_merge;
            entry.disposition() == Disposition::Keep && !left_alone
        };
        let added = self.plan.entries().take(self.plan.added());
        added.map(|(function, _)| function).filter(can).collect()
    }

    fn order(&self, function: FunctionIndex) -> (u32, u32) {
        let symbol = self.plan.entry(function).symbol();
        (symbol.namespace, symbol.index)
    }

    /// Walks a function; whether that went well.
    fn walk(&mut self, function: FunctionIndex) -> bool {
        let context = Context {
            policy: self.options.compare,
            target: self.options.target,
            key: self.plan.entry(function).attributes.key,
            symbols: self.plan,
        };
        let body = canonicalized(self.bodies.body(function), self.options.canonicalize);
        canon::encode(&body, &context, &mut self.scratch, &mut self.encoding).is_ok()
    }

    /// Groups of functions whose shapes have one hash.
    fn groups(&mut self, mut members: Vec<FunctionIndex>) -> Vec<Group> {
        members.sort_unstable_by_key(|&member| self.order(member));
        let mut groups = Vec::new();
        while let Some(&first) = members.first() {
            self.walk(first);
            let shape = self.encoding.shape.clone();
            let body = canonicalized(self.bodies.body(first), self.options.canonicalize);
            let marks = &self.scratch.marks;
            let mut table = Table::new(&self.encoding, marks, |place| kind(&body, place));
            let (mut same, mut others) = (Vec::new(), Vec::new());
            for member in members {
                self.walk(member);
                if self.encoding.shape != shape {
                    // Another shape with the same hash.
                    others.push(member);
                    continue;
                }
                let own = self.plan.entry(member).class();
                table.push(&self.encoding, |kind, reference, bytes| {
                    self.value(own, kind, reference, bytes)
                });
                same.push(member);
            }
            for set in table.sets().iter().filter(|set| set.len() > 1) {
                let members: Vec<FunctionIndex> =
                    set.iter().map(|&row| same[row as usize]).collect();
                let columns = table.columns(set);
                groups.push(self.group(members, columns));
            }
            members = others;
        }
        groups
    }

    /// Writes what a reference is compared by; whether another one could take its place.
    fn value(
        &self,
        own: u32,
        kind: ParameterKind,
        reference: Reference<'_>,
        bytes: &mut Vec<u8>,
    ) -> bool {
        let Reference::Node(node) = reference else {
            reference.write(bytes);
            return matches!(reference, Reference::Name([USER_SYMBOL, ..]));
        };
        match self.plan.class_of(node) {
            // Each calls itself.
            Some(class) if class == own && kind == ParameterKind::Callee => bytes.push(0),
            Some(class) => {
                bytes.push(1);
                bytes.extend_from_slice(&class.to_le_bytes());
            }
            None => {
                bytes.push(2);
                bytes.extend_from_slice(&node.as_u32().to_le_bytes());
            }
        }
        true
    }

    /// A group of functions that differ in these columns.
    fn group(
        &mut self,
        members: Vec<FunctionIndex>,
        columns: Vec<Columns<ParameterKind>>,
    ) -> Group {
        let mut parameters: Vec<Parameter> = Vec::with_capacity(columns.len());
        for (at, &member) in members.iter().enumerate() {
            self.walk(member);
            let table = Table::new(&self.encoding, &self.scratch.marks, |_| None::<ParameterKind>);
            let places: Vec<Place> = table.places().collect();
            let inst = |number: usize| match places[number] {
                Place::Inst(inst) => inst,
                place => unreachable!("nothing else has a kind: {place:?}"),
            };
            if at == 0 {
                parameters.extend(columns.iter().map(|Columns { numbers, kind, same_as }| {
                    Parameter {
                        kind: *kind,
                        places: numbers.iter().map(|&number| inst(number)).collect(),
                        same_as: same_as.clone(),
                        arguments: Vec::with_capacity(members.len()),
                    }
                }));
            }
            let own = self.plan.entry(member).class();
            let body = canonicalized(self.bodies.body(member), self.options.canonicalize);
            for (parameter, columns) in parameters.iter_mut().zip(&columns) {
                let argument = argument(&body, inst(columns.numbers[0]));
                let itself =
                    parameter.kind == ParameterKind::Callee && is_itself(self.plan, own, &argument);
                parameter.arguments.push(if itself { Argument::Itself } else { argument });
            }
        }
        Group { members, parameters }
    }
}

/// Whether a function of the class `own` that calls this calls itself.
fn is_itself(plan: &Plan, own: u32, callee: &Argument) -> bool {
    let Argument::Callee(symbol) = callee else {
        return false;
    };
    let node = plan.resolve(symbol).and_then(|resolved| resolved.call);
    node.and_then(|node| plan.class_of(node)) == Some(own)
}

/// What a parameter could stand for at a place of a function that has a constant or a reference, if
/// anything.
fn kind(func: &Function, place: Place) -> Option<ParameterKind> {
    use InstructionData as I;
    let Place::Inst(inst) = place else {
        return None;
    };
    let is_known_by_symbol = |name: &ExternalName| matches!(name, ExternalName::User(_));
    let callee = |callee: FuncRef, kind: ParameterKind| {
        let callee = &func.dfg.ext_funcs[callee];
        // Whoever patches a call means this one, and what Cranelift provides has no address.
        (is_known_by_symbol(&callee.name) && !callee.patchable).then_some(kind)
    };
    match &func.dfg.insts[inst] {
        I::UnaryImm { .. }
        | I::UnaryIeee16 { .. }
        | I::UnaryIeee32 { .. }
        | I::UnaryIeee64 { .. }
        | I::UnaryConst { .. } => {
            let ty = func.dfg.value_type(func.dfg.first_result(inst));
            (ty.bits() <= 128).then_some(ParameterKind::Constant(ty))
        }
        I::Load { .. } | I::Store { .. } | I::StackAddr { .. } => Some(ParameterKind::Offset),
        I::Call { opcode: _, args: _, func_ref }
        | I::TryCall { opcode: _, args: _, func_ref, exception: _ } => {
            callee(*func_ref, ParameterKind::Callee)
        }
        I::FuncAddr { opcode: _, func_ref } => callee(*func_ref, ParameterKind::Address),
        I::UnaryGlobalValue { opcode, global_value } => {
            match (opcode, &func.global_values[*global_value]) {
                (Opcode::SymbolValue, GlobalValueData::Symbol { name, tls: false, .. }) => {
                    is_known_by_symbol(name).then_some(ParameterKind::Address)
                }
                _ => None,
            }
        }
        // These have neither constants nor references.
        I::AtomicCas { .. }
        | I::AtomicRmw { .. }
        | I::Binary { .. }
        | I::BinaryImm8 { .. }
        | I::BranchTable { .. }
        | I::Brif { .. }
        | I::CallIndirect { .. }
        | I::CondTrap { .. }
        | I::DynamicStackAddr { .. }
        | I::ExceptionHandlerAddress { .. }
        | I::FloatCompare { .. }
        | I::IntAddTrap { .. }
        | I::IntCompare { .. }
        | I::Jump { .. }
        | I::LoadNoOffset { .. }
        | I::MultiAry { .. }
        | I::NullAry { .. }
        | I::Shuffle { .. }
        | I::StoreNoOffset { .. }
        | I::Ternary { .. }
        | I::TernaryImm8 { .. }
        | I::Trap { .. }
        | I::TryCallIndirect { .. }
        | I::Unary { .. } => None,
    }
}

/// What stands at a place that has a kind.
fn argument(func: &Function, inst: Inst) -> Argument {
    use InstructionData as I;
    let symbol = |name: &ExternalName| match name {
        ExternalName::User(name) => func.params.user_named_funcs()[*name].clone(),
        _ => unreachable!("other names are no values of a parameter"),
    };
    match &func.dfg.insts[inst] {
        I::UnaryImm { opcode: _, imm } => {
            let ty = func.dfg.value_type(func.dfg.first_result(inst));
            let bits = imm.bits() as u64 as u128;
            Argument::Constant(bits & (u128::MAX >> (128 - ty.bits())))
        }
        I::UnaryIeee16 { opcode: _, imm } => Argument::Constant(imm.bits().into()),
        I::UnaryIeee32 { opcode: _, imm } => Argument::Constant(imm.bits().into()),
        I::UnaryIeee64 { opcode: _, imm } => Argument::Constant(imm.bits().into()),
        I::UnaryConst { opcode: _, constant_handle } => {
            let mut bits = [0; 16];
            let data = func.dfg.constants.get(*constant_handle).as_slice();
            bits[..data.len()].copy_from_slice(data);
            Argument::Constant(u128::from_le_bytes(bits))
        }
        I::Load { opcode: _, arg: _, flags: _, offset }
        | I::Store { opcode: _, args: _, flags: _, offset }
        | I::StackAddr { opcode: _, stack_slot: _, offset } => Argument::Offset((*offset).into()),
        I::Call { opcode: _, args: _, func_ref }
        | I::TryCall { opcode: _, args: _, func_ref, exception: _ } => {
            Argument::Callee(symbol(&func.dfg.ext_funcs[*func_ref].name))
        }
        I::FuncAddr { opcode: _, func_ref } => {
            Argument::Address(symbol(&func.dfg.ext_funcs[*func_ref].name), 0)
        }
        I::UnaryGlobalValue { opcode: _, global_value } => match &func.global_values[*global_value]
        {
            GlobalValueData::Symbol { name, offset, .. } => {
                Argument::Address(symbol(name), offset.bits())
            }
            _ => unreachable!("other global values have no kind"),
        },
        _ => unreachable!("other instructions have no kind"),
    }
}
