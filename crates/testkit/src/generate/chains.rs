//! Units whose sizes are hard to predict: functions that are chains of operations, and differ here
//! and there.
//!
//! Cranelift's optimiser folds away a good part of such functions, and computes what no memory
//! access or call needs where its result is used, so that bodies with arms compute it several
//! times; operands live for long, so that registers are full. Sizes of programs' functions say
//! little about that. The functions are compiled, never run.

use crate::support::{Rng, parse_one};
use crate::unit::Member;
use cranelift_mergefunc::{Addresses, Attributes, Linkage};
use std::fmt::Write as _;

/// Operations of two integers.
const OPERATIONS: [&str; 11] =
    ["imul", "iadd", "bxor", "isub", "band", "bor", "rotl", "ishl", "ushr", "smax", "umin"];

const CONSTANTS: [i64; 8] = [0, 1, 2, 7, -1, 1000, 77_777, 123_456_789];

/// One step of a function. Operands are counted back from the value that was computed last.
#[derive(Clone, Copy)]
enum Step {
    Operation(&'static str, usize, usize),
    WithConstant(&'static str, usize, i64),
    Load(usize, usize),
    Store(usize, usize, usize),
    Call(usize, usize, usize),
}

/// How the functions of a unit are drawn.
struct Style {
    operations: Vec<&'static str>,
    /// How far operands are counted back at most.
    back: usize,
    /// In percent of the steps: loads, stores, calls, operations with constants.
    shares: [usize; 4],
    callees: usize,
    is_near: bool,
    /// Whether each step uses the result of the one before.
    is_chain: bool,
    /// After how many steps something is stored conditionally.
    block: usize,
    params: usize,
}

fn choose<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len())]
}

impl Style {
    fn draw(rng: &mut Rng, steps: usize) -> Style {
        let operations = (0..2 + rng.below(7)).map(|_| choose(rng, &OPERATIONS)).collect();
        Style {
            operations,
            back: choose(rng, &[2, 5, 20, 1000]),
            shares: [
                choose(rng, &[0, 0, 10, 30]),
                choose(rng, &[0, 0, 10]),
                choose(rng, &[0, 0, 0, 2, 10, 90]),
                choose(rng, &[0, 10, 30]),
            ],
            callees: choose(rng, &[2, 5, 20]),
            is_near: rng.below(2) == 0,
            is_chain: rng.below(2) == 0,
            block: steps / choose(rng, &[1, 1, 2, 4, 10]) + 1,
            params: choose(rng, &[1, 2, 2, 4, 8]),
        }
    }

    fn operand(&self, rng: &mut Rng) -> usize {
        1 + rng.below(self.back)
    }

    fn step(&self, rng: &mut Rng) -> Step {
        let [loads, stores, calls, constants] = self.shares;
        let (x, y) = (self.operand(rng), self.operand(rng));
        let operation = self.operations[rng.below(self.operations.len())];
        let offset = 8 * rng.below(40);
        match rng.below(100) {
            draw if draw < loads => Step::Load(x, offset),
            draw if draw < loads + stores => Step::Store(x, y, offset),
            draw if draw < loads + stores + calls => Step::Call(rng.below(self.callees), x, y),
            draw if draw < loads + stores + calls + constants => {
                Step::WithConstant(operation, x, choose(rng, &CONSTANTS))
            }
            _ => Step::Operation(operation, x, y),
        }
    }

    /// A step in place of another one: with another constant, callee, operand or operation.
    fn changed(&self, rng: &mut Rng, step: Step) -> Step {
        match step {
            Step::WithConstant(operation, x, _) => {
                Step::WithConstant(operation, x, choose(rng, &CONSTANTS))
            }
            Step::Call(_, x, y) => Step::Call(rng.below(self.callees), x, y),
            Step::Operation(operation, _, y) if rng.below(3) == 0 => {
                Step::Operation(operation, self.operand(rng), y)
            }
            Step::Operation(_, x, y) => Step::Operation(choose(rng, &OPERATIONS), x, y),
            Step::Load(..) | Step::Store(..) => step,
        }
    }

    fn signature(&self) -> String {
        format!("({}) -> i64 tail", vec!["i64"; self.params].join(", "))
    }

    fn entry(&self) -> String {
        let params: Vec<String> = (0..self.params).map(|at| format!("v{at}: i64")).collect();
        format!("block0({}):\n", params.join(", "))
    }

    /// The text of function `own`.
    fn function(&self, own: usize, steps: &[Step]) -> String {
        let mut text = format!("function u0:{own}{} {{\n", self.signature());
        let colocated = if self.is_near { "colocated " } else { "" };
        for callee in 0..self.callees {
            writeln!(text, "    fn{callee} = {colocated}u2:{callee}(i64, i64) -> i64 tail")
                .unwrap();
        }
        text += &self.entry();
        let mut values: Vec<usize> = (0..self.params).collect();
        let (mut next, mut block) = (self.params, 0);
        for (at, step) in steps.iter().enumerate() {
            let last = values[values.len() - 1];
            if at > 0 && at % self.block == 0 {
                let (then, after) = (block + 1, block + 2);
                writeln!(
                    text,
                    "    brif v{last}, block{then}, block{after}\nblock{then}:\n    v{next} = iadd v{last}, v0\n    \
                     store v{next}, v0\n    jump block{after}\nblock{after}:"
                )
                .unwrap();
                (next, block) = (next + 1, after);
            }
            let value = |back: usize| values[values.len() - 1 - (back - 1) % values.len()];
            let first = |back| if self.is_chain { last } else { value(back) };
            let line = match *step {
                Step::Operation(name, x, y) => {
                    format!("v{next} = {name} v{}, v{}", first(x), value(y))
                }
                Step::WithConstant(name, x, constant) => {
                    next += 1;
                    format!(
                        "v{} = iconst.i64 {constant}\n    v{next} = {name} v{}, v{}",
                        next - 1,
                        value(x),
                        next - 1
                    )
                }
                Step::Load(x, offset) => {
                    format!("v{next} = load.i64 notrap v{}+{offset}", value(x))
                }
                Step::Call(callee, x, y) => {
                    format!("v{next} = call fn{callee}(v{}, v{})", value(x), value(y))
                }
                Step::Store(x, y, offset) => {
                    writeln!(text, "    store notrap v{}, v{}+{offset}", value(x), value(y))
                        .unwrap();
                    continue;
                }
            };
            writeln!(text, "    {line}").unwrap();
            values.push(next);
            next += 1;
        }
        text + &format!("    return v{}\n}}\n", values[values.len() - 1])
    }

    /// A function that calls all others once.
    fn caller(&self, count: usize) -> String {
        let mut text = format!("function u1:0{} {{\n", self.signature());
        for own in 0..count {
            writeln!(text, "    fn{own} = colocated u0:{own}{}", self.signature()).unwrap();
        }
        text += &self.entry();
        let mut last = self.params - 1;
        for own in 0..count {
            let mut arguments: Vec<String> =
                (0..self.params - 1).map(|at| format!("v{at}")).collect();
            arguments.push(format!("v{last}"));
            last = self.params + own;
            writeln!(text, "    v{last} = call fn{own}({})", arguments.join(", ")).unwrap();
        }
        text + &format!("    return v{last}\n}}\n")
    }
}

/// Two to ten functions that differ in few steps, which only the last function calls.
pub fn chains(seed: u64) -> Vec<Member> {
    let rng = &mut Rng::new(seed);
    let count = choose(rng, &[2, 2, 2, 3, 4, 6, 10]);
    let length = choose(rng, &[20, 40, 60, 100, 200, 400]);
    let style = Style::draw(rng, length);
    let common: Vec<Step> = (0..length).map(|_| style.step(rng)).collect();
    let differing = choose(rng, &[1, 2, length / 40 + 1, length / 10 + 1, length / 5 + 1]);
    let inserts = rng.below(4) == 0;
    let mut members = Vec::new();
    for own in 0..count {
        let mut steps = common.clone();
        for _ in 0..differing {
            let at = rng.below(steps.len());
            match inserts {
                true => steps.insert(at, style.step(rng)),
                false => steps[at] = style.changed(rng, steps[at]),
            }
        }
        let attributes = Attributes {
            linkage: Linkage::Local,
            addresses: Addresses::Insignificant,
            ..Attributes::default()
        };
        members.push(Member { attributes, body: parse_one(&style.function(own, &steps)) });
    }
    let attributes = Attributes { linkage: Linkage::Export, ..Attributes::default() };
    members.push(Member { attributes, body: parse_one(&style.caller(count)) });
    members
}
