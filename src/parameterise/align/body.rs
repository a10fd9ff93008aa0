//! The body of two aligned functions.
//!
//! It is made from the body of the first. Where only one of the two has instructions, it branches
//! on a *selector*, runs the instructions of one of them in a block of their own (an *arm*), and
//! joins again; values that an arm computes and that are used behind it become parameters of the
//! block where the arms join. Where an instruction stands for both and their operands differ,
//! either such a parameter holds the one or the other, or a `select` does. A constant in which they
//! differ, and which is passed, takes the place of the selector if it is zero in one of them.
//!
//! Source: R. Rocha et al., *Function Merging by Sequence Alignment* (CGO 2019) and *Effective
//! Function Merging in the SSA Form* (PLDI 2020); there operands are merged by `select` and phi
//! nodes, too, and phi nodes share what comes from one side only with what comes from the other.

use super::super::body::{add_parameter, as_integer, as_passed, put};
use super::blocks::{Aligned, Alignment, Differing};
use super::copying::Copying;
use super::guards::{guarded, is_guard};
use super::outline::Outline;
use crate::extra_argument::ExtraArgument;
use crate::options::Options;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::{
    Block, BlockArg, ConstantData, Function, Inst, InstBuilder, InstructionData, MemFlagsData,
    Type, Value, types,
};
use cranelift_entity::{EntitySet, SecondaryMap};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// A body for two functions, and what each passes to it.
pub(super) struct Merged {
    pub body: Function,
    pub arguments: [Arc<[ExtraArgument]>; 2],
}

/// Makes the body of two aligned functions. `None` if it would have to choose between values that
/// cannot be chosen from, or to branch around a guard against speculation. Linear in their sizes.
pub(super) fn merged(
    two: [&Function; 2],
    outlines: [&Outline; 2],
    alignment: &Alignment,
    options: &Options<'_>,
) -> Option<Merged> {
    let mut builder = Builder::new(two, outlines, &alignment.constants, options);
    builder.remove_unreachable();
    for (number, parts) in alignment.blocks.iter().enumerate() {
        builder.block(number, parts)?;
    }
    builder.pass_to_joins();
    Some(builder.finish())
}

/// Where the body has a value of one of the functions.
#[derive(Clone, Copy)]
enum Home {
    /// In code of both: how many definitions and gaps come before it.
    Common { value: Value, order: u32 },
    /// In an arm of a gap.
    Arm { gap: u32, value: Value },
}

/// A place where only one of the functions has instructions.
struct Gap {
    order: u32,
    /// The block where the arms join.
    join: Block,
    /// The jump at the end of each arm.
    jumps: [Inst; 2],
    params: Vec<Param>,
}

/// A parameter of a block where arms join.
struct Param {
    param: Value,
    ty: Type,
    /// The value from each arm; `None` if no used value comes from it.
    from: [Option<Value>; 2],
    /// The values of the functions that it holds.
    holds: [Option<Value>; 2],
}

struct Builder<'a> {
    two: [&'a Function; 2],
    outlines: [&'a Outline; 2],
    options: &'a Options<'a>,
    body: Function,
    homes: [SecondaryMap<Value, Option<Home>>; 2],
    /// The values of the functions that come from guards against speculation.
    guarded: [EntitySet<Value>; 2],
    gaps: Vec<Gap>,
    /// Values chosen in a block, by what they are chosen from.
    chosen: HashMap<(u32, Value, Value), Value, FxBuildHasher>,
    constants: Vec<(Differing, Value)>,
    /// Not zero for the function of this number, zero for the other one; none was needed so far if
    /// `None`.
    selector: Option<(Value, usize)>,
    /// Whether the selector is an extra argument of its own.
    own_selector: bool,
    order: u32,
}

/// The type of a selector that is passed.
const SELECTOR: Type = types::I32;

impl<'a> Builder<'a> {
    fn new(
        two: [&'a Function; 2],
        outlines: [&'a Outline; 2],
        constants: &[Differing],
        options: &'a Options<'a>,
    ) -> Builder<'a> {
        let mut builder = Builder {
            two,
            outlines,
            options,
            body: two[0].clone(),
            homes: Default::default(),
            guarded: [0, 1].map(|side| guarded(two[side], outlines[side])),
            gaps: Vec::new(),
            chosen: HashMap::default(),
            constants: Vec::new(),
            selector: None,
            own_selector: false,
            order: 0,
        };
        for &(ty, bits) in constants {
            let param = builder.parameter(ty);
            builder.constants.push(((ty, bits), param));
            match bits {
                [0, _] => builder.selector = builder.selector.or(Some((param, 1))),
                [_, 0] => builder.selector = builder.selector.or(Some((param, 0))),
                _ => {}
            }
        }
        builder
    }

    /// Adds a further parameter to the body, and returns it as an integer of this type.
    fn parameter(&mut self, ty: Type) -> Value {
        let passed_as = self.options.passed_as(&self.body.signature, [ty])[0];
        let param = add_parameter(&mut self.body, passed_as);
        as_integer(&mut self.body, param, ty)
    }

    /// The value to branch on, and the function for which it is not zero.
    fn selector(&mut self) -> (Value, usize) {
        match self.selector {
            Some(selector) => selector,
            None => {
                let selector = (self.parameter(SELECTOR), 1);
                (self.selector, self.own_selector) = (Some(selector), true);
                selector
            }
        }
    }

    /// Blocks that no control flow reaches may use values that move into arms.
    fn remove_unreachable(&mut self) {
        let mut reached: EntitySet<Block> = EntitySet::new();
        let outline = self.outlines[0];
        for number in 0..outline.blocks() {
            reached.insert(outline.block(number).0);
        }
        let all: Vec<Block> = self.body.layout.blocks().collect();
        for block in all.into_iter().filter(|&block| !reached.contains(block)) {
            while let Some(inst) = self.body.layout.first_inst(block) {
                self.body.layout.remove_inst(inst);
            }
            self.body.layout.remove_block(block);
        }
    }

    fn next_order(&mut self) -> u32 {
        self.order += 1;
        self.order
    }

    fn original(&self, side: usize, value: Value) -> Value {
        self.two[side].dfg.resolve_aliases(value)
    }

    fn home(&self, side: usize, value: Value) -> Option<Home> {
        self.homes[side][self.original(side, value)]
    }

    fn define_both(&mut self, values: [Value; 2], value: Value) {
        let home = Home::Common { value, order: self.next_order() };
        for (homes, value) in self.homes.iter_mut().zip(values) {
            homes[value] = Some(home);
        }
    }

    /// The instructions of a function at these positions.
    fn insts(&self, side: usize, positions: &Range<u32>) -> &'a [Inst] {
        &self.outlines[side].insts[positions.start as usize..positions.end as usize]
    }

    fn block(&mut self, number: usize, parts: &[Aligned]) -> Option<()> {
        let [first, second] = self.outlines.map(|outline| outline.block(number).0);
        let [f, g] = self.two;
        for (&a, &b) in f.dfg.block_params(first).iter().zip(g.dfg.block_params(second)) {
            self.define_both([a, b], a);
        }
        let insts = |this: &Self, [a, b]: [u32; 2]| {
            [this.outlines[0].insts[a as usize], this.outlines[1].insts[b as usize]]
        };
        let mut current = first;
        for (at, part) in parts.iter().enumerate() {
            match part {
                Aligned::Both(positions, differing) => {
                    self.both(number as u32, insts(self, *positions), *differing)?;
                }
                Aligned::Gap([a, b]) => {
                    let Some(Aligned::Both(next, _)) = parts.get(at + 1) else {
                        unreachable!("a branch of both ends the block, and gaps are joined");
                    };
                    let [next, _] = insts(self, *next);
                    current = self.gap(current, [self.insts(0, a), self.insts(1, b)], next)?;
                }
            }
        }
        Some(())
    }

    /// An instruction for both.
    fn both(&mut self, at: u32, [a, b]: [Inst; 2], differing: Option<Differing>) -> Option<()> {
        let [f, g] = self.two;
        let mut operands: Vec<Value> = Vec::new();
        for (v, w) in f.dfg.inst_values(a).zip(g.dfg.inst_values(b)) {
            operands.push(self.operand(at, a, v, w)?);
        }
        self.body.dfg.overwrite_inst_values(a, operands.into_iter());
        let passed = differing.map(|differing| {
            let known = self.constants.iter().find(|(known, _)| *known == differing);
            known.expect("the others are in gaps").1
        });
        let results = (f.dfg.inst_results(a), g.dfg.inst_results(b));
        for (&v, &w) in results.0.iter().zip(results.1) {
            let is_passed = matches!(f.dfg.insts[a], InstructionData::UnaryImm { .. });
            let value = passed.filter(|_| is_passed).unwrap_or(v);
            self.define_both([v, w], value);
        }
        if let Some(param) = passed {
            put(&mut self.body, a, &[param]);
        }
        Some(())
    }

    /// Instructions that only one of the functions has. They come before `next`, behind which the
    /// block is divided.
    fn gap(&mut self, block: Block, insts: [&[Inst]; 2], next: Inst) -> Option<Block> {
        let [f, g] = self.two;
        let mut guards = (0..2).flat_map(|side| insts[side].iter().map(move |&it| (side, it)));
        if guards.any(|(side, inst)| is_guard(self.two[side], inst)) {
            return None;
        }
        let (selector, nonzero) = self.selector();
        let gap = self.gaps.len() as u32;
        let order = self.next_order();
        let body = &mut self.body;
        let [first, second, join] = [(); 3].map(|()| body.dfg.make_block());
        body.layout.split_block(join, next);
        body.layout.insert_block_after(first, block);
        body.layout.insert_block_after(second, first);
        if body.layout.is_cold(block) {
            [first, second, join].iter().for_each(|&new| body.layout.set_cold(new));
        }
        for &inst in insts[0] {
            body.layout.remove_inst(inst);
            body.layout.append_inst(inst, first);
        }
        let location = body.srcloc(next);
        let mut cursor = FuncCursor::new(body).at_bottom(block).with_srcloc(location);
        let (then, otherwise) = if nonzero == 0 { (first, second) } else { (second, first) };
        cursor.ins().brif(selector, then, &[], otherwise, &[]);
        let jumps = [first, second].map(|arm| {
            let mut cursor = FuncCursor::new(body).at_bottom(arm).with_srcloc(location);
            cursor.ins().jump(join, &[])
        });
        self.gaps.push(Gap { order, join, jumps, params: Vec::new() });
        for &inst in insts[0] {
            let values: Vec<Value> = f.dfg.inst_values(inst).collect();
            let values: Option<Vec<Value>> =
                values.into_iter().map(|value| self.in_arm(0, gap, value)).collect();
            self.body.dfg.overwrite_inst_values(inst, values?.into_iter());
            hold(&mut self.body, inst)?;
            for &result in f.dfg.inst_results(inst) {
                self.homes[0][result] = Some(Home::Arm { gap, value: result });
            }
        }
        for &inst in insts[1] {
            let mut operands: HashMap<Value, Value, FxBuildHasher> = HashMap::default();
            for value in g.dfg.inst_values(inst) {
                operands.insert(value, self.in_arm(1, gap, value)?);
            }
            let mut copying = Copying { from: g, into: &mut self.body };
            let copy = copying.copy(inst, &mut |value| operands[&value])?;
            hold(&mut self.body, copy)?;
            self.body.layout.insert_inst(copy, jumps[1]);
            self.body.set_srcloc(copy, g.srcloc(inst));
            let results = g.dfg.inst_results(inst).iter().zip(self.body.dfg.inst_results(copy));
            for (&result, &value) in results {
                self.homes[1][result] = Some(Home::Arm { gap, value });
            }
        }
        Some(join)
    }

    /// A value of one function, in its arm of a gap.
    fn in_arm(&mut self, side: usize, gap: u32, value: Value) -> Option<Value> {
        match self.home(side, value)? {
            Home::Common { value, .. } => Some(value),
            Home::Arm { gap: own, value } if own == gap => Some(value),
            Home::Arm { gap: own, .. } => self.behind(own, side, value),
        }
    }

    /// A value of one function that was computed in an arm, behind the place where the arms join.
    fn behind(&mut self, gap: u32, side: usize, value: Value) -> Option<Value> {
        let value = self.original(side, value);
        let Some(Home::Arm { value: own, .. }) = self.homes[side][value] else {
            return None;
        };
        if self.guarded[side].contains(value) {
            return None;
        }
        let ty = self.body.dfg.value_type(own);
        let other = 1 - side;
        let Gap { params, join, .. } = &mut self.gaps[gap as usize];
        if let Some(known) = params.iter().find(|param| param.holds[side] == Some(value)) {
            return Some(known.param);
        }
        // A value of the other arm that is used alone shares its parameter.
        let shared = params.iter_mut().find(|param| {
            param.ty == ty && param.from[side].is_none() && param.from[other].is_some()
        });
        if let Some(shared) = shared {
            (shared.from[side], shared.holds[side]) = (Some(own), Some(value));
            return Some(shared.param);
        }
        can_be_chosen(ty).then_some(())?;
        let param = self.body.dfg.append_block_param(*join, ty);
        let (mut from, mut holds) = ([None; 2], [None; 2]);
        (from[side], holds[side]) = (Some(own), Some(value));
        params.push(Param { param, ty, from, holds });
        Some(param)
    }

    /// The operand of an instruction for both where the functions use these values.
    fn operand(&mut self, at: u32, user: Inst, a: Value, b: Value) -> Option<Value> {
        let [a, b] = [self.original(0, a), self.original(1, b)];
        let homes = [self.homes[0][a]?, self.homes[1][b]?];
        if let [Home::Common { value: x, .. }, Home::Common { value: y, .. }] = homes
            && x == y
        {
            return Some(x);
        }
        if let Some(&chosen) = self.chosen.get(&(at, a, b)) {
            return Some(chosen);
        }
        let order = |home: Home| match home {
            Home::Common { order, .. } => order,
            Home::Arm { gap, .. } => self.gaps[gap as usize].order,
        };
        let later = usize::from(order(homes[1]) > order(homes[0]));
        if let Home::Arm { gap, .. } = homes[later] {
            return self.joined(gap, [a, b]);
        }
        let mut values = [a; 2];
        for (side, value) in [a, b].into_iter().enumerate() {
            values[side] = match homes[side] {
                Home::Common { value, .. } => value,
                Home::Arm { gap, .. } => self.behind(gap, side, value)?,
            };
        }
        let [x, y] = values;
        let ty = self.body.dfg.value_type(x);
        can_be_chosen(ty).then_some(())?;
        let (selector, nonzero) = self.selector();
        let (then, otherwise) = if nonzero == 0 { (x, y) } else { (y, x) };
        let location = self.body.srcloc(user);
        let mut cursor = FuncCursor::new(&mut self.body).at_inst(user).with_srcloc(location);
        let chosen = cursor.ins().select(selector, then, otherwise);
        self.chosen.insert((at, a, b), chosen);
        Some(chosen)
    }

    /// A parameter, behind a gap, that holds the one value or the other. Both are known there, one
    /// of them in an arm.
    fn joined(&mut self, gap: u32, values: [Value; 2]) -> Option<Value> {
        let known = &self.gaps[gap as usize].params;
        if let Some(known) = known.iter().find(|param| param.holds == values.map(Some)) {
            return Some(known.param);
        }
        let [a, b] = values;
        if self.guarded[0].contains(a) || self.guarded[1].contains(b) {
            return None;
        }
        let from = [self.in_arm(0, gap, a)?, self.in_arm(1, gap, b)?];
        let ty = self.body.dfg.value_type(from[0]);
        let Gap { params, join, .. } = &mut self.gaps[gap as usize];
        // A parameter for one of the two alone gets the other as well.
        let alone = params.iter_mut().find(|param| {
            param.ty == ty
                && matches!(param.holds, [Some(x), None] if x == a)
                    | matches!(param.holds, [None, Some(x)] if x == b)
        });
        if let Some(alone) = alone {
            (alone.from, alone.holds) = (from.map(Some), values.map(Some));
            return Some(alone.param);
        }
        let param = self.body.dfg.append_block_param(*join, ty);
        params.push(Param { param, ty, from: from.map(Some), holds: values.map(Some) });
        Some(param)
    }

    /// Makes the arms pass what the blocks where they join take.
    fn pass_to_joins(&mut self) {
        for Gap { jumps, params, .. } in core::mem::take(&mut self.gaps) {
            for (side, jump) in jumps.into_iter().enumerate() {
                for Param { ty, from, .. } in &params {
                    let value = match from[side] {
                        Some(value) => value,
                        None => zero(&mut self.body, jump, *ty),
                    };
                    let dfg = &mut self.body.dfg;
                    if let InstructionData::Jump { opcode: _, destination } = &mut dfg.insts[jump] {
                        destination.append_argument(BlockArg::Value(value), &mut dfg.value_lists);
                    }
                }
            }
        }
    }

    fn finish(self) -> Merged {
        let Builder { two, options, body, constants, own_selector, .. } = self;
        let arguments = [0, 1].map(|side| {
            let constants = constants.iter().map(|((ty, bits), _)| (*ty, bits[side]));
            let selector = own_selector.then_some((SELECTOR, side as u64));
            let all = constants.chain(selector);
            let all = all.map(|(ty, bits)| ExtraArgument::Constant { ty, bits }).collect();
            as_passed(all, &two[0].signature, options).into()
        });
        Merged { body, arguments }
    }
}

/// Holds an access in its arm. `can_move` says that the access may run wherever its operands are
/// known, which the one function states and not the other: Cranelift moves such a load out of a
/// loop, in front of the branch on the selector. `None` if the table of memory flags is full.
fn hold(body: &mut Function, inst: Inst) -> Option<()> {
    let Some(flags) = body.dfg.insts[inst].memflags() else {
        return Some(());
    };
    let held = without_can_move(body.dfg.mem_flags[flags]);
    let held = body.dfg.mem_flags.insert(held).ok()?;
    *body.dfg.insts[inst].memflags_mut().expect("has flags") = held;
    Some(())
}

/// `data` without `can_move`.
fn without_can_move(data: MemFlagsData) -> MemFlagsData {
    let mut new =
        MemFlagsData::new().with_trap_code(data.trap_code()).with_alias_region(data.alias_region());
    if let Some(endianness) = data.explicit_endianness() {
        new.set_endianness(endianness);
    }
    if data.aligned() {
        new.set_aligned();
    }
    if data.readonly() {
        new.set_readonly();
    }
    new
}

/// Whether `select` can have this type on every target, and a constant of it exists, for arms that
/// have no value.
fn can_be_chosen(ty: Type) -> bool {
    matches!(ty, types::I8 | types::I16 | types::I32 | types::I64 | types::F32 | types::F64)
        || ty.is_vector() && ty.bits() == 128
}

/// A value of this type, computed before an instruction, that is not used.
fn zero(func: &mut Function, before: Inst, ty: Type) -> Value {
    let location = func.srcloc(before);
    let mut cursor = FuncCursor::new(func).at_inst(before).with_srcloc(location);
    match ty {
        types::F32 => cursor.ins().f32const(0.0),
        types::F64 => cursor.ins().f64const(0.0),
        _ if ty.is_vector() => {
            let zeros = ConstantData::from(&[0; 16][..]);
            let zeros = cursor.func.dfg.constants.insert(zeros);
            cursor.ins().vconst(ty, zeros)
        }
        _ => cursor.ins().iconst(ty, 0),
    }
}
