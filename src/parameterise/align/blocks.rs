//! The alignment of two functions: which blocks correspond to each other, and which instructions of them.
//!
//! Blocks correspond by control flow, from the entries on: the two control-flow graphs must be one. Within two blocks,
//! instructions are aligned in their order, those that stand for both functions ([`Aligned::Both`]) and those that only
//! one of them has ([`Aligned::Gap`]). A branch always stands for both. This module does *not* look at operands, and does
//! not know what pays, apart from bounds.
//!
//! Source: R. Rocha et al., *HyFM: Function Merging for Free* (LCTES 2021), which aligns block by block; what it calls
//! linear alignment is a shortest edit script here ([`diff`]).

use super::entities::{Contents, passed, same_global_value};
use super::{cost, diff};
use alloc::vec::Vec;
use cranelift_codegen::ir::{
    Block, BlockArg, BlockCall, ExceptionTableItem, FuncRef, Function, Inst, InstructionData, Type,
    Value,
};
use cranelift_entity::{EntitySet, SecondaryMap};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// A constant in which the two functions differ: its type, and the bits in each.
pub(super) type Differing = (Type, [u64; 2]);

/// A part of two blocks.
pub(super) enum Aligned {
    /// Instructions that correspond to each other.
    Both([Inst; 2], Option<Differing>),
    /// Instructions that only one of the two has.
    Gap([Vec<Inst>; 2]),
}

/// Two blocks that correspond to each other.
pub(super) struct Blocks {
    pub blocks: [Block; 2],
    /// Ends with the branch of both.
    pub parts: Vec<Aligned>,
}

/// Two functions that can share a body.
pub(super) struct Alignment {
    /// In the order in which control flow first comes to them: dominators come before what they dominate.
    pub blocks: Vec<Blocks>,
    /// The constants that are passed, each once.
    pub constants: Vec<Differing>,
    /// How many instructions stand for both.
    pub common: usize,
    /// How many parts only one of the two has.
    pub gaps: usize,
}

/// Aligns two functions, of which the last `extra` parameters are extra arguments. `None` if their control flow differs,
/// or too much else. Linear in their sizes, for bounded differences.
pub(super) fn align(two: [&Function; 2], extra: [usize; 2]) -> Option<Alignment> {
    let [f, g] = two;
    let slots = |func: &Function| func.sized_stack_slots.values().cloned().collect::<Vec<_>>();
    let limits = match (f.stack_limit, g.stack_limit) {
        (None, None) => true,
        (Some(a), Some(b)) => same_global_value((f, a), (g, b)),
        _ => false,
    };
    let dynamic = f.dynamic_stack_slots.len() + g.dynamic_stack_slots.len();
    if f.signature != g.signature || slots(f) != slots(g) || !limits || dynamic > 0 {
        return None;
    }
    let selected = [selected(f, extra[0]), selected(g, extra[1])];
    let mut contents = Contents::default();
    let mut left = cost::MAX_DIFFERING;
    let mut bound: [SecondaryMap<Block, Option<Block>>; 2] = Default::default();
    let mut queue = alloc::vec![[f.layout.entry_block()?, g.layout.entry_block()?]];
    (bound[0][queue[0][0]], bound[1][queue[0][1]]) = (Some(queue[0][1]), Some(queue[0][0]));
    let mut blocks: Vec<Blocks> = Vec::new();
    while let Some(&pair) = queue.get(blocks.len()) {
        let [a, b] = pair;
        let types = |func: &Function, block| func.dfg.block_param_types(block).collect::<Vec<_>>();
        if types(f, a) != types(g, b) || f.layout.is_cold(a) != g.layout.is_cold(b) {
            return None;
        }
        let last = [f.layout.last_inst(a)?, g.layout.last_inst(b)?];
        for targets in targets(two, &mut contents, last)? {
            match (bound[0][targets[0]], bound[1][targets[1]]) {
                (None, None) => {
                    (bound[0][targets[0]], bound[1][targets[1]]) =
                        (Some(targets[1]), Some(targets[0]));
                    queue.push(targets);
                }
                (Some(b), Some(a)) if [a, b] == targets => {}
                _ => return None,
            }
        }
        let parts = parts(two, &mut contents, pair, last, &mut left)?;
        if [0, 1].iter().any(|&side| selected[side].contains(pair[side]))
            && parts.iter().any(|part| !matches!(part, Aligned::Both(_, None)))
        {
            return None;
        }
        blocks.push(Blocks { blocks: pair, parts });
    }
    let mut alignment = Alignment { blocks, constants: Vec::new(), common: 0, gaps: 0 };
    alignment.choose_constants();
    for Blocks { parts, blocks: _ } in &mut alignment.blocks {
        *parts = joined(core::mem::take(parts));
        for part in parts {
            match part {
                Aligned::Both(..) => alignment.common += 1,
                Aligned::Gap(_) => alignment.gaps += 1,
            }
        }
    }
    let parts = || alignment.blocks.iter().flat_map(|blocks| &blocks.parts);
    let is_used = |constant: &Differing| {
        parts().any(|part| matches!(part, Aligned::Both(_, Some(used)) if used == constant))
    };
    let used = alignment.constants.iter().copied().filter(is_used).collect();
    alignment.constants = used;
    (alignment.gaps <= cost::MAX_GAPS).then_some(alignment)
}

impl Alignment {
    /// Chooses the constants that are passed, those that are used most. Instructions with others are gaps.
    fn choose_constants(&mut self) {
        let mut uses: HashMap<Differing, usize, FxBuildHasher> = HashMap::default();
        let mut order: Vec<Differing> = Vec::new();
        for part in self.blocks.iter().flat_map(|blocks| &blocks.parts) {
            if let Aligned::Both(_, Some(differing)) = part {
                let uses = uses.entry(*differing).or_insert(0);
                if *uses == 0 {
                    order.push(*differing);
                }
                *uses += 1;
            }
        }
        order.sort_by_key(|differing| core::cmp::Reverse(uses[differing]));
        order.truncate(cost::MAX_ALIGNED_ARGUMENTS - 1);
        for part in self.blocks.iter_mut().flat_map(|blocks| &mut blocks.parts) {
            if let Aligned::Both([a, b], Some(differing)) = part
                && !order.contains(differing)
            {
                *part = Aligned::Gap([alloc::vec![*a], alloc::vec![*b]]);
            }
        }
        self.constants = order;
    }
}

/// The same parts, with neighbouring gaps as one, and without short runs between two gaps: what they save is less than
/// what branching takes.
fn joined(parts: Vec<Aligned>) -> Vec<Aligned> {
    let mut joined: Vec<Aligned> = Vec::new();
    // The instructions for both since the last gap.
    let mut run: Vec<([Inst; 2], Option<Differing>)> = Vec::new();
    for part in parts {
        match part {
            Aligned::Both(insts, differing) => run.push((insts, differing)),
            Aligned::Gap(gap) => {
                if let Some(Aligned::Gap(last)) = joined.last_mut()
                    && run.len() < cost::MIN_RUN
                {
                    for ([a, b], _) in run.drain(..) {
                        last[0].push(a);
                        last[1].push(b);
                    }
                    let [a, b] = gap;
                    last[0].extend(a);
                    last[1].extend(b);
                    continue;
                }
                joined.extend(run.drain(..).map(|(insts, it)| Aligned::Both(insts, it)));
                joined.push(Aligned::Gap(gap));
            }
        }
    }
    joined.extend(run.into_iter().map(|(insts, it)| Aligned::Both(insts, it)));
    joined
}

/// Aligns the instructions of two blocks before their branches.
fn parts(
    two: [&Function; 2],
    contents: &mut Contents,
    blocks: [Block; 2],
    last: [Inst; 2],
    left: &mut usize,
) -> Option<Vec<Aligned>> {
    let mut insts: [Vec<Inst>; 2] = Default::default();
    let mut keys: [Vec<u32>; 2] = Default::default();
    for side in 0..2 {
        let func = two[side];
        for inst in func.layout.block_insts(blocks[side]) {
            if inst != last[side] {
                insts[side].push(inst);
                keys[side].push(contents.key(func, inst)?);
            }
        }
    }
    let pairs = diff::common(&keys[0], &keys[1], *left)?;
    *left -= insts[0].len() + insts[1].len() - 2 * pairs.len();
    let mut parts: Vec<Aligned> = Vec::new();
    let mut done = [0, 0];
    let ends = core::iter::once((insts[0].len(), insts[1].len()));
    for (x, y) in pairs.into_iter().chain(ends) {
        let gap = [insts[0][done[0]..x].to_vec(), insts[1][done[1]..y].to_vec()];
        if !(gap[0].is_empty() && gap[1].is_empty()) {
            parts.push(Aligned::Gap(gap));
        }
        if let (Some(&a), Some(&b)) = (insts[0].get(x), insts[1].get(y)) {
            let constants = (passed(two[0], a), passed(two[1], b));
            let differing = match constants {
                (Some((ty, x)), Some((_, y))) if x != y => Some((ty, [x, y])),
                _ => None,
            };
            parts.push(Aligned::Both([a, b], differing));
        }
        done = [x + 1, y + 1];
    }
    parts.push(Aligned::Both(last, None));
    Some(parts)
}

/// The blocks to which a function branches by its last `extra` parameters. They stay as they are: the checker sees from them
/// where such ways join.
fn selected(func: &Function, extra: usize) -> EntitySet<Block> {
    let mut selected = EntitySet::new();
    let params = func.layout.entry_block().map_or(&[][..], |entry| func.dfg.block_params(entry));
    let extra = &params[params.len().saturating_sub(extra)..];
    if extra.is_empty() {
        return selected;
    }
    let is_extra = |value: Value| extra.contains(&func.dfg.resolve_aliases(value));
    for block in func.layout.blocks() {
        let Some(last) = func.layout.last_inst(block) else {
            continue;
        };
        if let InstructionData::Brif { opcode: _, arg, blocks } = func.dfg.insts[last] {
            let compared = func.dfg.value_def(func.dfg.resolve_aliases(arg)).inst();
            let compares = |inst: Inst| func.dfg.inst_args(inst).iter().any(|&arg| is_extra(arg));
            if is_extra(arg) || compared.is_some_and(compares) {
                for call in blocks {
                    selected.insert(call.block(&func.dfg.value_lists));
                }
            }
        }
    }
    selected
}

/// The targets of two branches, in pairs. `None` if they are different branches.
fn targets(
    two: [&Function; 2],
    contents: &mut Contents,
    [a, b]: [Inst; 2],
) -> Option<Vec<[Block; 2]>> {
    use InstructionData as I;
    let [f, g] = two;
    let (x, y) = (&f.dfg.insts[a], &g.dfg.insts[b]);
    let mut callee = |a: FuncRef, b: FuncRef| contents.callee(f, a) == contents.callee(g, b);
    let same = match (x, y) {
        (I::Jump { .. }, I::Jump { .. }) | (I::Brif { .. }, I::Brif { .. }) => true,
        (I::BranchTable { .. }, I::BranchTable { .. }) => true,
        (
            I::TryCall { opcode: _, args: _, func_ref: i, exception: x },
            I::TryCall { opcode: _, args: _, func_ref: j, exception: y },
        ) => callee(*i, *j) && same_handlers(two, [*x, *y]),
        (
            I::TryCallIndirect { opcode: _, args: _, exception: x },
            I::TryCallIndirect { opcode: _, args: _, exception: y },
        ) => same_handlers(two, [*x, *y]),
        _ if x.opcode().is_branch() || y.opcode().is_branch() => false,
        _ => contents.key(f, a)? == contents.key(g, b)?,
    };
    let operands = f.dfg.inst_args(a).len() == g.dfg.inst_args(b).len()
        && core::iter::zip(f.dfg.inst_values(a), g.dfg.inst_values(b))
            .all(|(v, w)| f.dfg.value_type(v) == g.dfg.value_type(w))
        && f.dfg.user_stack_map_entries(a).is_none()
        && g.dfg.user_stack_map_entries(b).is_none();
    let calls = |func: &Function, data: &InstructionData| -> Vec<BlockCall> {
        data.branch_destination(&func.dfg.jump_tables, &func.dfg.exception_tables).to_vec()
    };
    let (x, y) = (calls(f, x), calls(g, y));
    if !same || !operands || x.len() != y.len() {
        return None;
    }
    let (p, q) = (&f.dfg.value_lists, &g.dfg.value_lists);
    let calls = x.iter().zip(&y).map(|(x, y)| {
        let same = x.args(p).len() == y.args(q).len()
            && x.args(p).zip(y.args(q)).all(|(a, b)| match (a, b) {
                (BlockArg::Value(_), BlockArg::Value(_)) => true,
                (a, b) => a == b,
            });
        same.then(|| [x.block(p), y.block(q)])
    });
    calls.collect()
}

fn same_handlers(two: [&Function; 2], [x, y]: [cranelift_codegen::ir::ExceptionTable; 2]) -> bool {
    let [f, g] = two;
    let (x, y) = (&f.dfg.exception_tables[x], &g.dfg.exception_tables[y]);
    f.dfg.signatures[x.signature()] == g.dfg.signatures[y.signature()]
        && x.items().count() == y.items().count()
        && x.items().zip(y.items()).all(|items| match items {
            (ExceptionTableItem::Tag(a, _), ExceptionTableItem::Tag(b, _)) => a == b,
            (ExceptionTableItem::Default(_), ExceptionTableItem::Default(_))
            | (ExceptionTableItem::Context(_), ExceptionTableItem::Context(_)) => true,
            (
                ExceptionTableItem::Tag(..)
                | ExceptionTableItem::Default(_)
                | ExceptionTableItem::Context(_),
                _,
            ) => false,
        })
}
