//! Functions that differ from another one in few instructions, so that one body for both pays.
//!
//! `variant` makes a few *edits*, at every kind of position of a block and of a function (`Where`):
//! an instruction has another opcode, condition, type, width, flag or operand (`changes`, and
//! `narrow`), is missing, is exchanged with its neighbour, or others come before it, whose results
//! are used later in the block, in other blocks, or as arguments of blocks (`insert`). Control
//! flow, the signature and stack slots stay, or no body could be shared.
//!
//! A variant keeps to the conventions, so it runs. Whether it does the same as the function is
//! *not* known: an edit may be undone by another one, or exchange equal things.

use crate::generate::changes::{self, Change, Kind};
use crate::generate::conventions::{READONLY_OFFSET, memory_symbol, out_of_fuel};
use crate::generate::draw::Draw;
use crate::generate::function::{self, Access, Builder, Callees, Known, Profile, Seed};
use crate::generate::near_miss::is_compiled;
use arbitrary::Unstructured;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::dominator_tree::DominatorTree;
use cranelift_codegen::flowgraph::ControlFlowGraph;
use cranelift_codegen::ir::{
    Block, ExternalName, Function, GlobalValueData, Inst, InstBuilder, InstructionData,
    MemFlagsData, Opcode, Value, types,
};
use std::collections::BTreeSet;

/// A function that differs from another one in few instructions.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The edits, in the order in which they were made.
    pub what: Vec<String>,
    /// The function.
    pub seed: Seed,
}

/// The seed of the functions of a group.
#[derive(Clone, Copy)]
pub(super) struct Group<'a> {
    pub profile: &'a Profile,
    pub callees: &'a Callees,
    pub number: u32,
}

/// Where an edit is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    /// At the first instruction of a block.
    First,
    /// At the last one before the branch.
    Last,
    /// In the entry block.
    Entry,
    /// In the header of a loop.
    Header,
    /// In a block of a loop.
    Loop,
    /// In a block that ends with a branch to several.
    BeforeBranch,
    /// Anywhere.
    Any,
}

impl Where {
    const ALL: [Where; 7] = [
        Where::Any,
        Where::First,
        Where::Last,
        Where::Entry,
        Where::Header,
        Where::Loop,
        Where::BeforeBranch,
    ];
}

/// The kind of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    Change,
    Narrow,
    Remove,
    Exchange,
    Insert,
}

/// Kinds of changes after which control flow, signature and stack slots are as they were.
const CHANGES: [Kind; 22] = [
    Kind::Opcode,
    Kind::IntCondition,
    Kind::Signedness,
    Kind::OperandOrder,
    Kind::Operand,
    Kind::AccessOffset,
    Kind::ResultType,
    Kind::Callee,
    Kind::TrapCode,
    Kind::AccessTrapCode,
    Kind::FloatCondition,
    Kind::Integer,
    Kind::Float,
    Kind::Pool,
    Kind::ShuffleMask,
    Kind::AtomicOperator,
    Kind::SlotOffset,
    Kind::SlotIndex,
    Kind::Lane,
    Kind::SymbolOffset,
    Kind::BranchArguments,
    Kind::Removal,
];

/// Draws a variant of a function. Takes two bytes: which edits are made need not be visible to a
/// fuzzer.
pub(super) fn variant(draw: &mut Draw<'_, '_>, group: Group<'_>, seed: &Seed) -> Variant {
    let bytes = draw.rng().bytes(4096);
    let mut bytes = Unstructured::new(&bytes);
    let draw = &mut Draw::new(&mut bytes);
    let mut variant = Variant { what: Vec::new(), seed: seed.clone() };
    let most = (sites(&seed.func).len() / 10).clamp(1, 6);
    for _ in 0..1 + draw.below(most) {
        let (at, count) = (draw.choose(&Where::ALL), if draw.one_in(4) { 3 } else { 1 });
        let mut sites = Sites::of(&variant.seed.func).at(at);
        if sites.is_empty() {
            continue;
        }
        let first = draw.below(sites.len());
        sites.rotate_left(first);
        // Several in a row; an edit may have removed the next instruction.
        for (block, inst) in sites.into_iter().take(count) {
            if variant.seed.func.layout.inst_block(inst) == Some(block) {
                edit(draw, group, &mut variant, block, inst);
            }
        }
    }
    variant
}

/// Two variants of a function with a pointer that only for the second one points into the memory.
/// It alone reads through the pointer, in a loop, and states that the load may be moved to
/// anywhere. `None` if there is no memory or no loop.
pub(super) fn with_pointer(draw: &mut Draw<'_, '_>, seed: &Seed) -> Option<[Variant; 2]> {
    let entry = seed.func.layout.entry_block()?;
    let last = seed.func.layout.last_inst(entry)?;
    let memory = memory(&seed.func, entry, last)?;
    let made = seed.func.dfg.value_def(memory).inst()?;
    let [mut without, mut with] = [seed.clone(), seed.clone()];
    let inside = i64::from(READONLY_OFFSET) + 8 * draw.below(8) as i64;
    let [_, pointer] = [(&mut without, OUTSIDE), (&mut with, inside)].map(|(seed, offset)| {
        let mut cursor = FuncCursor::new(&mut seed.func).after_inst(made);
        let offset = cursor.ins().iconst(types::I64, offset);
        let pointer = cursor.ins().iadd(memory, offset);
        seed.properties.addresses.extend([offset, pointer]);
        pointer
    });
    let loops = Sites::of(&with.func);
    let mut sites = loops.at(Where::Loop);
    sites.retain(|&(block, _)| loops.loops.contains(&block) && block != entry);
    let (block, inst) = (!sites.is_empty()).then(|| draw.choose(&sites))?;
    let flags = MemFlagsData::new().with_notrap().with_aligned().with_readonly().with_can_move();
    let mut cursor = FuncCursor::new(&mut with.func).at_inst(inst);
    let value = cursor.ins().load(types::I64, flags, pointer, 0);
    let load = with.func.dfg.value_def(value).unwrap_inst();
    with.properties.accesses.push(Access { inst: load, bytes: 8, slot: None, null: false });
    for _ in 0..2 {
        let read = Known { value, ty: types::I64, constant: false };
        use_behind(draw, &mut with, block, inst, read);
    }
    let variant = |seed, what: &str| Variant { what: vec![what.into()], seed };
    Some([variant(without, "a pointer to nowhere"), variant(with, "a load that may be moved")])
}

/// How far behind the memory there is nothing.
const OUTSIDE: i64 = 1 << 40;

/// Makes one edit at an instruction, if any is possible there.
fn edit(
    draw: &mut Draw<'_, '_>,
    group: Group<'_>,
    variant: &mut Variant,
    block: Block,
    inst: Inst,
) {
    let mut edits =
        [Edit::Change, Edit::Change, Edit::Narrow, Edit::Remove, Edit::Exchange, Edit::Insert];
    draw.rng().shuffle(&mut edits);
    for edit in edits {
        let mut seed = variant.seed.clone();
        let what = match edit {
            Edit::Change => change(draw, &mut seed, block, inst),
            Edit::Narrow => narrow(draw, &mut seed, inst),
            Edit::Remove => remove(draw, &mut seed, block, inst),
            Edit::Exchange => exchange(&mut seed, inst),
            Edit::Insert => insert(draw, group, &mut seed, block, inst),
        };
        let Some(what) = what else { continue };
        if is_compiled(&seed.func, inst, group.profile.machine) {
            let of = variant.seed.func.dfg.display_inst(inst);
            variant.what.push(format!("{what} at `{of}`"));
            variant.seed = seed;
            return;
        }
    }
}

/// A change of one field.
fn change(draw: &mut Draw<'_, '_>, seed: &mut Seed, block: Block, inst: Inst) -> Option<String> {
    let ends = seed.func.dfg.insts[inst].opcode().is_terminator();
    let first = draw.below(CHANGES.len());
    let kinds = CHANGES[first..].iter().chain(&CHANGES[..first]);
    // The ends of a block must agree in both functions, but for values.
    let kinds = kinds.filter(|kind| !ends || matches!(kind, Kind::Operand | Kind::BranchArguments));
    for &kind in kinds {
        if let Some(Change { what, func, .. }) = changes::change(draw, seed, kind, block, inst) {
            seed.func = func;
            return Some(format!("another {what}"));
        }
    }
    None
}

/// An access to fewer bytes, of a value of the same type.
fn narrow(draw: &mut Draw<'_, '_>, seed: &mut Seed, inst: Inst) -> Option<String> {
    use Opcode::*;
    const LOADS: [(Opcode, u32); 6] =
        [(Uload8, 1), (Sload8, 1), (Uload16, 2), (Sload16, 2), (Uload32, 4), (Sload32, 4)];
    const STORES: [(Opcode, u32); 3] = [(Istore8, 1), (Istore16, 2), (Istore32, 4)];
    let access = seed.properties.accesses.iter_mut().find(|access| access.inst == inst)?;
    let func = &mut seed.func;
    let (others, value) = match func.dfg.insts[inst] {
        InstructionData::Load { opcode: Load, .. } => (&LOADS[..], func.dfg.first_result(inst)),
        InstructionData::Store { opcode: Store, args, .. } => (&STORES[..], args[0]),
        _ => return None,
    };
    let ty = func.dfg.value_type(value);
    let mut others = others.to_vec();
    others.retain(|&(_, bytes)| ty.is_int() && bytes < ty.bytes() && ty.bytes() <= 8);
    let (other, bytes) = (!others.is_empty()).then(|| draw.choose(&others))?;
    access.bytes = bytes;
    match &mut func.dfg.insts[inst] {
        InstructionData::Load { opcode, .. } | InstructionData::Store { opcode, .. } => {
            *opcode = other;
        }
        _ => unreachable!("it is a load or a store"),
    }
    Some("another width".into())
}

/// A copy of the function without an instruction: users of its results use other values.
fn remove(draw: &mut Draw<'_, '_>, seed: &mut Seed, block: Block, inst: Inst) -> Option<String> {
    let data = seed.func.dfg.insts[inst];
    let is_free = match data {
        InstructionData::CondTrap { code, .. } => code != out_of_fuel(),
        InstructionData::Store { .. } | InstructionData::StoreNoOffset { .. } => {
            seed.properties.accesses.iter().any(|access| access.inst == inst)
        }
        InstructionData::Call { opcode: Opcode::Call, .. }
        | InstructionData::CallIndirect { opcode: Opcode::CallIndirect, .. } => true,
        _ => seed.properties.free.contains(&inst),
    };
    if !is_free || data.opcode().is_terminator() {
        return None;
    }
    let results = seed.func.dfg.inst_results(inst).to_vec();
    let addresses = addresses(seed);
    if results.iter().any(|result| addresses.contains(result)) {
        return None;
    }
    let known = known(seed, block, inst);
    let mut others = Vec::new();
    for &result in &results {
        let ty = seed.func.dfg.value_type(result);
        let same: Vec<Value> =
            known.iter().filter(|known| known.ty == ty).map(|known| known.value).collect();
        others.push((!same.is_empty()).then(|| draw.choose(&same))?);
    }
    seed.func.dfg.detach_inst_results(inst);
    for (result, other) in results.into_iter().zip(others) {
        seed.func.dfg.change_to_alias(result, other);
    }
    seed.func.layout.remove_inst(inst);
    Some("removal".into())
}

/// The next instruction comes first.
fn exchange(seed: &mut Seed, inst: Inst) -> Option<String> {
    let func = &mut seed.func;
    let next = func.layout.next_inst(inst)?;
    let plain = |inst: Inst| {
        let opcode = func.dfg.insts[inst].opcode();
        seed.properties.free.contains(&inst) && !opcode.can_trap() && !opcode.other_side_effects()
    };
    let results = func.dfg.inst_results(inst);
    let uses = func.dfg.inst_values(next).any(|value| {
        let value = func.dfg.resolve_aliases(value);
        results.iter().any(|&result| func.dfg.resolve_aliases(result) == value)
    });
    if !plain(inst) || !plain(next) || uses {
        return None;
    }
    func.layout.remove_inst(next);
    func.layout.insert_inst(next, inst);
    Some("another order".into())
}

/// Further instructions before one, some of whose results are used behind them.
fn insert(
    draw: &mut Draw<'_, '_>,
    group: Group<'_>,
    seed: &mut Seed,
    block: Block,
    inst: Inst,
) -> Option<String> {
    let known = known(seed, block, inst);
    let memory = memory(&seed.func, block, inst);
    let behind: Vec<Inst> =
        seed.func.layout.block_insts(block).skip_while(|&other| other != inst).collect();
    // Stack slots are written at entry, by stores that nothing else is known of.
    let fills = |&inst: &Inst| {
        let is_store = seed.func.dfg.insts[inst].opcode().can_store();
        is_store && seed.properties.accesses.iter().all(|access| access.inst != inst)
    };
    let at_entry = seed.func.layout.entry_block() == Some(block);
    let filled = !(at_entry && behind.iter().any(fills));
    for &inst in &behind {
        seed.func.layout.remove_inst(inst);
    }
    let kind = draw.below(8);
    let Group { profile, callees, number } = group;
    let made = function::grow(
        seed,
        block,
        (known.clone(), memory),
        (profile, callees, number),
        draw,
        |builder| {
            let before = builder.known.len();
            if !filled {
                builder.properties.slots.clear();
            }
            grow(builder, kind);
            builder.known.split_off(before)
        },
    );
    for inst in behind {
        seed.func.layout.append_inst(inst, block);
    }
    for _ in 0..1 + draw.below(2) {
        if let Some(made) = (!made.is_empty()).then(|| draw.choose(&made)) {
            use_behind(draw, seed, block, inst, made);
        }
    }
    Some("insertion".into())
}

/// One to four instructions at the end of a block, with what they need.
fn grow(builder: &mut Builder<'_, '_, '_>, kind: usize) {
    match kind {
        4 | 5 if builder.memory.is_some() => builder.access(),
        6 if builder.profile.traps => builder.trap_on_condition(),
        7 => builder.straight_call(),
        _ => {
            for _ in 0..1 + builder.draw.below(4) {
                builder.value_operation();
            }
        }
    }
    // Unused values are seen in the memory.
    if builder.memory.is_some()
        && builder.draw.one_in(2)
        && let Some(last) = builder.known.last()
    {
        builder.store(last.value);
    }
}

/// Replaces an operand behind an instruction by a value that was made before it.
fn use_behind(draw: &mut Draw<'_, '_>, seed: &mut Seed, block: Block, inst: Inst, made: Known) {
    let addresses = addresses(seed);
    let func = &seed.func;
    let cfg = ControlFlowGraph::with_function(func);
    let tree = DominatorTree::with_function(func, &cfg);
    // In the same block, in other blocks, as an argument of a block.
    let mut uses: [Vec<(Inst, usize)>; 3] = Default::default();
    for other in func.layout.blocks() {
        if other != block && !tree.block_dominates(block, other) {
            continue;
        }
        let all = func.layout.block_insts(other);
        let behind = all.skip_while(|&other_inst| other == block && other_inst != inst);
        for user in behind {
            let data = func.dfg.insts[user];
            let plain = func.dfg.inst_args(user).len();
            let any = seed.properties.free.contains(&user)
                || data.opcode().is_call()
                || data.opcode() == Opcode::Return
                || matches!(data, InstructionData::Store { .. })
                    && seed.properties.accesses.iter().any(|access| access.inst == user);
            for (at, value) in func.dfg.inst_values(user).enumerate() {
                let value = func.dfg.resolve_aliases(value);
                if func.dfg.value_type(value) != made.ty || addresses.contains(&value) {
                    continue;
                }
                if at >= plain {
                    uses[2].push((user, at));
                } else if any {
                    uses[usize::from(other != block)].push((user, at));
                }
            }
        }
    }
    let first = draw.below(3);
    uses.rotate_left(first);
    let Some(uses) = uses.iter().find(|uses| !uses.is_empty()) else {
        return;
    };
    let (user, at) = draw.choose(uses);
    let mut values: Vec<Value> = seed.func.dfg.inst_values(user).collect();
    values[at] = made.value;
    seed.func.dfg.overwrite_inst_values(user, values.into_iter());
}

/// The values that are no addresses and can be used before an instruction.
fn known(seed: &Seed, block: Block, inst: Inst) -> Vec<Known> {
    let func = &seed.func;
    let cfg = ControlFlowGraph::with_function(func);
    let tree = DominatorTree::with_function(func, &cfg);
    let mut blocks = vec![block];
    while let Some(above) = tree.idom(blocks[blocks.len() - 1]) {
        blocks.push(above);
    }
    let mut values: Vec<Value> = Vec::new();
    for &above in blocks.iter().rev() {
        values.extend(func.dfg.block_params(above));
        let insts = func.layout.block_insts(above);
        for before in insts.take_while(|&other| above != block || other != inst) {
            values.extend(func.dfg.inst_results(before));
        }
    }
    let addresses = addresses(seed);
    values.retain(|value| !addresses.contains(value));
    let known = values.into_iter().map(|value| {
        // Nothing is asked about values that follow from it.
        Known { value, ty: func.dfg.value_type(value), constant: false }
    });
    known.collect()
}

/// The address of the memory, if it is known before an instruction.
fn memory(func: &Function, block: Block, inst: Inst) -> Option<Value> {
    let entry = func.layout.entry_block()?;
    let insts = func.layout.block_insts(entry);
    let mut before = insts.take_while(|&other| block != entry || other != inst);
    before.find_map(|inst| {
        let InstructionData::UnaryGlobalValue { opcode: Opcode::SymbolValue, global_value } =
            func.dfg.insts[inst]
        else {
            return None;
        };
        match &func.global_values[global_value] {
            GlobalValueData::Symbol { name: ExternalName::User(name), offset, .. } => {
                let is_memory = func.params.user_named_funcs()[*name] == memory_symbol();
                (is_memory && offset.bits() == 0).then(|| func.dfg.first_result(inst))
            }
            _ => None,
        }
    })
}

/// The values that are addresses, without aliases.
fn addresses(seed: &Seed) -> BTreeSet<Value> {
    let dfg = &seed.func.dfg;
    seed.properties.addresses.iter().map(|&address| dfg.resolve_aliases(address)).collect()
}

/// The instructions at which an edit can be made.
fn sites(func: &Function) -> Vec<(Block, Inst)> {
    let in_block = |block| func.layout.block_insts(block).map(move |inst| (block, inst));
    func.layout.blocks().flat_map(in_block).collect()
}

/// The instructions that may differ, by place.
struct Sites<'a> {
    func: &'a Function,
    headers: BTreeSet<Block>,
    loops: BTreeSet<Block>,
}

impl Sites<'_> {
    fn of(func: &Function) -> Sites<'_> {
        let cfg = ControlFlowGraph::with_function(func);
        let tree = DominatorTree::with_function(func, &cfg);
        let (mut headers, mut loops) = (BTreeSet::new(), BTreeSet::new());
        for header in func.layout.blocks() {
            let back = cfg.pred_iter(header).map(|pred| pred.block);
            let mut left: Vec<Block> =
                back.filter(|&back| tree.block_dominates(header, back)).collect();
            if !left.is_empty() {
                headers.insert(header);
                loops.insert(header);
            }
            while let Some(block) = left.pop() {
                if loops.insert(block) {
                    left.extend(cfg.pred_iter(block).map(|pred| pred.block));
                }
            }
        }
        Sites { func, headers, loops }
    }

    /// The instructions of a place, or all if there are none.
    fn at(&self, at: Where) -> Vec<(Block, Inst)> {
        let layout = &self.func.layout;
        let is_there = |block: Block, inst: Inst| match at {
            Where::Any => true,
            Where::First => layout.first_inst(block) == Some(inst),
            Where::Last => {
                layout.next_inst(inst).is_some_and(|next| layout.last_inst(block) == Some(next))
            }
            Where::Entry => layout.entry_block() == Some(block),
            Where::Header => self.headers.contains(&block),
            Where::Loop => self.loops.contains(&block),
            Where::BeforeBranch => layout.last_inst(block).is_some_and(|last| {
                matches!(self.func.dfg.insts[last].opcode(), Opcode::Brif | Opcode::BrTable)
            }),
        };
        let all = sites(self.func);
        let there: Vec<_> =
            all.iter().copied().filter(|&(block, inst)| is_there(block, inst)).collect();
        if there.is_empty() { all } else { there }
    }
}
