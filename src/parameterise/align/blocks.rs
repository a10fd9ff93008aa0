//! The alignment of two functions: which instructions of which blocks correspond to each other.
//!
//! Blocks correspond by control flow, from the entries on: the two control-flow graphs must be one.
//! Within two blocks, instructions are aligned in their order, those that stand for both functions
//! ([`Aligned::Both`]) and those that only one of them has ([`Aligned::Gap`]). A branch always
//! stands for both. [`align`] compares outlines, which are hashes; [`corresponds`] compares what
//! they are hashes of. This module does *not* look at operands, and does not know what pays, apart
//! from bounds.
//!
//! Source: R. Rocha et al., *HyFM: Function Merging for Free* (LCTES 2021), which aligns block by
//! block; what it calls linear alignment is a shortest edit script here ([`diff`]).

use super::outline::Outline;
use super::{cost, diff};
use alloc::vec::Vec;
use core::ops::Range;
use cranelift_codegen::ir::{Block, Function, Inst, InstructionData, Type, Value};
use cranelift_entity::EntitySet;
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
    /// The parts of each two blocks, in the order of the outlines. They end with the branch of
    /// both.
    pub blocks: Vec<Vec<Aligned>>,
    /// The constants that are passed, each once.
    pub constants: Vec<Differing>,
    /// How many instructions stand for both.
    pub common: usize,
    /// How many parts only one of the two has.
    pub gaps: usize,
}

/// Aligns two functions by their outlines. `None` if they differ in more than `most` instructions,
/// or in too many places, or have another number of blocks. Linear in their sizes, for bounded
/// differences.
pub(super) fn align(two: [&Outline; 2], most: usize) -> Option<Alignment> {
    let [f, g] = two;
    if f.blocks() != g.blocks() {
        return None;
    }
    let mut left = most;
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
    /// Chooses the constants that are passed, those that are used most. Instructions with others
    /// are gaps.
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

/// These parts, with neighbouring gaps as one, and without short runs between two gaps: such runs
/// save less than what branching takes.
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

/// Aligns the instructions of the blocks of this number. `left` is how many more of them may be in
/// gaps.
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

/// Whether two functions, of which the last `extra` parameters are extra arguments, can share a
/// body by this alignment of their outlines: whether control flow and contents of instructions are
/// in truth what hashes say. Linear in their sizes.
pub(super) fn corresponds(
    two: [&Function; 2],
    outlines: [&Outline; 2],
    extra: [usize; 2],
    alignment: &Alignment,
) -> bool {
    let [a, b] = outlines;
    if a.header() != b.header() {
        return false;
    }
    let selected = [selected(two[0], extra[0]), selected(two[1], extra[1])];
    alignment.blocks.iter().enumerate().all(|(number, parts)| {
        let is_selected =
            (0..2).any(|side| selected[side].contains(outlines[side].block(number).0));
        a.head(number) == b.head(number)
            && parts.iter().all(|part| match part {
                Aligned::Gap(_) => !is_selected,
                Aligned::Both([x, y], differing) => {
                    !(is_selected && differing.is_some())
                        && a.content(number, *x) == b.content(number, *y)
                }
            })
    })
}

/// The blocks to which a function branches by its last `extra` parameters. They stay as they are:
/// the checker sees from them where such ways join.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canon::{Context, Encoding, Scratch};
    use crate::target::Target;
    use crate::unit::NoUnit;
    use alloc::format;
    use alloc::string::String;

    fn outline(func: &Function) -> Outline {
        let (target, symbols) = (Target::generic(), &NoUnit);
        let context = Context { debug_info: false, target, key: 0, symbols };
        let outline =
            Outline::of(func, &context, &mut Scratch::contents(), &mut Encoding::default());
        outline.expect("is valid")
    }

    /// Whether the functions of a text, which have one entry in each place, can share a body if
    /// their hashes are equal.
    fn corresponds_by_chance(text: &str) -> bool {
        let functions = cranelift_reader::parse_functions(text).expect("parses");
        let two = [&functions[0], &functions[1]];
        let outlines = two.map(outline);
        let outlines = outlines.map(Outline::with_equal_hashes);
        let outlines = outlines.each_ref();
        let alignment = align(outlines, 0).expect("all hashes are equal");
        assert_eq!(alignment.gaps, 0);
        corresponds(two, outlines, [0, 0], &alignment)
    }

    /// Two functions around an instruction each.
    fn around(instructions: [&str; 2]) -> String {
        let function = |number: usize| {
            format!(
                "function u0:{number}(i64, i32, f64) -> i64 {{\n sig0 = (i64) -> i64\n sig1 = (i64) -> i64 tail\n \
                 gv0 = symbol colocated u2:0\n gv1 = symbol u2:0\n gv2 = symbol colocated u2:0+8\n \
                 gv3 = symbol colocated u2:1\n fn0 = colocated u1:0 sig0\n fn1 = colocated u1:1 sig0\n fn2 = u1:0 sig0\n \
                 ss0 = explicit_slot 16\n block0(v0: i64, v1: i32, v2: f64):\n {}\n return v9\n}}\n",
                instructions[number]
            )
        };
        function(0) + &function(1)
    }

    /// Without that, a collision of two hashes would be a wrong merge.
    #[test]
    fn hashes_that_are_equal_by_chance_merge_nothing() {
        let equal = "v9 = iadd v0, v0";
        assert!(corresponds_by_chance(&around([equal, equal])));
        let different = [
            [equal, "v9 = isub v0, v0"],
            ["v9 = uextend.i64 v1", "v9 = sextend.i64 v1"],
            ["v9 = call fn0(v0)", "v9 = call fn1(v0)"],
            ["v9 = call_indirect sig0, v0(v0)", "v9 = call_indirect sig1, v0(v0)"],
            ["v9 = load.i64 v0", "v9 = load.i64 notrap v0"],
            ["v9 = load.i64 v0", "v9 = load.i64 little v0"],
            ["v9 = uload8.i64 v0", "v9 = uload16.i64 v0"],
            ["v9 = symbol_value.i64 gv0", "v9 = symbol_value.i64 gv2"],
            ["v9 = symbol_value.i64 gv0", "v9 = symbol_value.i64 gv3"],
            ["v9 = stack_addr.i64 ss0", "v9 = stack_addr.i64 ss0+8"],
            ["v9 = udiv v0, v0", "v9 = urem v0, v0"],
            ["v9 = atomic_rmw.i64 add v0, v0", "v9 = atomic_rmw.i64 sub v0, v0"],
            [
                "v8 = icmp eq v0, v0\n v9 = uextend.i64 v8",
                "v8 = icmp ne v0, v0\n v9 = uextend.i64 v8",
            ],
            [
                "v8 = fcmp lt v2, v2\n v9 = uextend.i64 v8",
                "v8 = fcmp le v2, v2\n v9 = uextend.i64 v8",
            ],
            ["v8 = splat.i8x16 v1\n v9 = iadd v0, v0", "v8 = splat.i32x4 v1\n v9 = iadd v0, v0"],
            ["trapz v0, user1\n v9 = iadd v0, v0", "trapz v0, user2\n v9 = iadd v0, v0"],
            ["v8 = f64const 0x1.0\n v9 = iadd v0, v0", "v8 = f64const 0x2.0\n v9 = iadd v0, v0"],
        ];
        for instructions in different {
            assert!(!corresponds_by_chance(&around(instructions)), "{instructions:?}");
        }
    }

    /// If calls of different functions or accesses with other flags had one hash, all that is
    /// aligned would be in vain.
    #[test]
    fn hashes_differ_where_contents_do() {
        let keys = |text: &str| {
            let functions = cranelift_reader::parse_functions(text).expect("parses");
            let key = |func: &Function| outline(func).keys(0).to_vec();
            [key(&functions[0]), key(&functions[1])]
        };
        for instructions in [
            ["v9 = iadd v0, v0", "v9 = isub v0, v0"],
            ["v9 = call fn0(v0)", "v9 = call fn1(v0)"],
            ["v9 = load.i64 v0", "v9 = load.i64 notrap v0"],
            ["v9 = symbol_value.i64 gv0", "v9 = symbol_value.i64 gv3"],
        ] {
            let [a, b] = keys(&around(instructions));
            assert_ne!(a, b, "{instructions:?}");
        }
        // Passable constants, and operands, are no part of it, nor is whether a symbol is near: a
        // fact about the symbol.
        for instructions in [
            ["v9 = call fn0(v0)", "v9 = call fn2(v0)"],
            ["v9 = symbol_value.i64 gv0", "v9 = symbol_value.i64 gv1"],
            ["v9 = iconst.i64 1", "v9 = iconst.i64 2"],
            ["v9 = load.i64 v0+8", "v9 = load.i64 v0+16"],
            ["v8 = iconst.i64 1\n v9 = iadd v0, v8", "v8 = iconst.i64 1\n v9 = iadd v8, v0"],
        ] {
            let [a, b] = keys(&around(instructions));
            assert_eq!(a, b, "{instructions:?}");
        }
    }
}
