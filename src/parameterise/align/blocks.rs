//! The alignment of two functions: which instructions of which blocks correspond to each other.
//!
//! Blocks correspond by control flow, from the entries on: the two control-flow graphs must be one. Within two blocks,
//! instructions are aligned in their order, those that stand for both functions ([`Aligned::Both`]) and those that only
//! one of them has ([`Aligned::Gap`]). A branch always stands for both. [`align`] compares outlines, which are hashes;
//! [`corresponds`] compares what they are hashes of. This module does *not* look at operands, and does not know what pays, apart
//! from bounds.
//!
//! Source: R. Rocha et al., *HyFM: Function Merging for Free* (LCTES 2021), which aligns block by block; what it calls
//! linear alignment is a shortest edit script here ([`diff`]).

use super::entities::{Comparison, same_global_value};
use super::outline::Outline;
use super::{cost, diff};
use alloc::vec::Vec;
use core::ops::Range;
use cranelift_codegen::ir::{
    Block, BlockArg, BlockCall, ExceptionTableItem, Function, Inst, InstructionData, Type, Value,
};
use cranelift_entity::{EntitySet, SecondaryMap};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// A constant in which the two functions differ: its type, and the bits in each.
pub(super) type Differing = (Type, [u64; 2]);

/// A part of two blocks, by positions in the outlines.
#[derive(Clone)]
pub(super) enum Aligned {
    /// Instructions that correspond to each other.
    Both([u32; 2], Option<Differing>),
    /// Instructions that only one of the two has.
    Gap([Range<u32>; 2]),
}

/// Two functions that can share a body.
pub(super) struct Alignment {
    /// The parts of each two blocks, in the order of the outlines. They end with the branch of both.
    pub blocks: Vec<Vec<Aligned>>,
    /// The constants that are passed, each once.
    pub constants: Vec<Differing>,
    /// How many instructions stand for both.
    pub common: usize,
    /// How many parts only one of the two has.
    pub gaps: usize,
}

/// Aligns two functions by their outlines. `None` if they differ in too much, or have another number of blocks. Linear in
/// their sizes, for bounded differences.
pub(super) fn align(two: [&Outline; 2]) -> Option<Alignment> {
    let [f, g] = two;
    if f.blocks() != g.blocks() {
        return None;
    }
    let mut left = cost::MAX_DIFFERING;
    let blocks = (0..f.blocks()).map(|number| parts(two, number, &mut left));
    let blocks: Option<Vec<Vec<Aligned>>> = blocks.collect();
    let mut alignment = Alignment { blocks: blocks?, constants: Vec::new(), common: 0, gaps: 0 };
    alignment.choose_constants();
    for parts in &mut alignment.blocks {
        if parts.iter().any(|part| matches!(part, Aligned::Gap(_))) {
            *parts = joined(core::mem::take(parts));
        }
        for part in parts {
            match part {
                Aligned::Both(..) => alignment.common += 1,
                Aligned::Gap(_) => alignment.gaps += 1,
            }
        }
    }
    let parts = || alignment.blocks.iter().flatten();
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
        for part in self.blocks.iter().flatten() {
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
        for part in self.blocks.iter_mut().flatten() {
            if let Aligned::Both([a, b], Some(differing)) = part
                && !order.contains(differing)
            {
                *part = Aligned::Gap([*a..*a + 1, *b..*b + 1]);
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
    let mut run = 0;
    for part in parts {
        match part {
            Aligned::Both(..) => {
                run += 1;
                joined.push(part);
            }
            Aligned::Gap([a, b]) => {
                let before = joined.len() - run;
                if run < cost::MIN_RUN
                    && let Some(Aligned::Gap([x, y])) = joined[..before].last_mut()
                {
                    (x.end, y.end) = (a.end, b.end);
                    joined.truncate(before);
                } else {
                    joined.push(Aligned::Gap([a, b]));
                }
                run = 0;
            }
        }
    }
    joined
}

/// Aligns the instructions of the blocks of this number. `left` is how many more of them may be in gaps.
fn parts(two: [&Outline; 2], number: usize, left: &mut usize) -> Option<Vec<Aligned>> {
    let [f, g] = two;
    let [(_, a), (_, b)] = two.map(|outline| outline.block(number));
    let keys = two.map(|outline| outline.keys(number));
    let pairs = diff::common(keys[0], keys[1], *left)?;
    *left -= keys[0].len() + keys[1].len() - 2 * pairs.len();
    // The branches at the ends are aligned in any case.
    let ends = [a.end - 1, b.end - 1];
    let mut parts: Vec<Aligned> = Vec::with_capacity(pairs.len() + 1);
    let mut constants = (f.constants(a.start), g.constants(b.start));
    let mut done = [a.start, b.start];
    let pairs = pairs.into_iter().map(|(x, y)| [a.start + x as u32, b.start + y as u32]);
    for [x, y] in pairs.chain([ends]) {
        if done != [x, y] {
            parts.push(Aligned::Gap([done[0]..x, done[1]..y]));
        }
        if [x, y] != ends {
            let differing = match (constants.0.at(x), constants.1.at(y)) {
                (Some((ty, p)), Some((_, q))) if p != q => Some((ty, [p, q])),
                _ => None,
            };
            parts.push(Aligned::Both([x, y], differing));
        }
        done = [x + 1, y + 1];
    }
    parts.push(Aligned::Both(ends, None));
    Some(parts)
}

/// Whether two functions, of which the last `extra` parameters are extra arguments, can share a body by this alignment of their
/// outlines: whether control flow and contents of instructions are in truth what hashes say. Linear in their sizes.
pub(super) fn corresponds(
    two: [&Function; 2],
    outlines: [&Outline; 2],
    extra: [usize; 2],
    alignment: &Alignment,
) -> bool {
    let [f, g] = two;
    let slots = |func: &Function| func.sized_stack_slots.values().cloned().collect::<Vec<_>>();
    let limits = match (f.stack_limit, g.stack_limit) {
        (None, None) => true,
        (Some(a), Some(b)) => same_global_value((f, a), (g, b)),
        _ => false,
    };
    let dynamic = f.dynamic_stack_slots.len() + g.dynamic_stack_slots.len();
    if f.signature != g.signature || slots(f) != slots(g) || !limits || dynamic > 0 {
        return false;
    }
    let selected = [selected(f, extra[0]), selected(g, extra[1])];
    let mut bound: [SecondaryMap<Block, Option<usize>>; 2] = Default::default();
    for number in 0..alignment.blocks.len() {
        for side in 0..2 {
            bound[side][outlines[side].block(number).0] = Some(number);
        }
    }
    let mut comparison = Comparison::new(two);
    for (number, parts) in alignment.blocks.iter().enumerate() {
        let [a, b] = outlines.map(|outline| outline.block(number).0);
        let types = |func: &Function, block| func.dfg.block_param_types(block).collect::<Vec<_>>();
        if types(f, a) != types(g, b) || f.layout.is_cold(a) != g.layout.is_cold(b) {
            return false;
        }
        let is_selected = selected[0].contains(a) || selected[1].contains(b);
        for (at, part) in parts.iter().enumerate() {
            let same = match part {
                Aligned::Gap(_) => !is_selected,
                Aligned::Both([x, y], differing) => {
                    let insts = [outlines[0].insts[*x as usize], outlines[1].insts[*y as usize]];
                    if at + 1 == parts.len() {
                        let targets = targets(&mut comparison, insts);
                        targets.is_some_and(|targets| {
                            let is_bound = |[a, b]: &[Block; 2]| {
                                bound[0][*a].is_some() && bound[0][*a] == bound[1][*b]
                            };
                            targets.iter().all(is_bound)
                        })
                    } else {
                        !(is_selected && differing.is_some()) && comparison.is_same(insts)
                    }
                }
            };
            if !same {
                return false;
            }
        }
    }
    true
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
fn targets(comparison: &mut Comparison<'_>, [a, b]: [Inst; 2]) -> Option<Vec<[Block; 2]>> {
    use InstructionData as I;
    let two = comparison.two;
    let [f, g] = two;
    let (x, y) = (&f.dfg.insts[a], &g.dfg.insts[b]);
    let same = match (x, y) {
        (I::Jump { .. }, I::Jump { .. }) | (I::Brif { .. }, I::Brif { .. }) => true,
        (I::BranchTable { .. }, I::BranchTable { .. }) => true,
        (
            I::TryCall { opcode: _, args: _, func_ref: i, exception: x },
            I::TryCall { opcode: _, args: _, func_ref: j, exception: y },
        ) => comparison.is_same_callee(*i, *j) && same_handlers(two, [*x, *y]),
        (
            I::TryCallIndirect { opcode: _, args: _, exception: x },
            I::TryCallIndirect { opcode: _, args: _, exception: y },
        ) => same_handlers(two, [*x, *y]),
        _ if x.opcode().is_branch() || y.opcode().is_branch() => false,
        _ => comparison.is_same([a, b]),
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
