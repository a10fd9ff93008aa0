//! Loops that call one of several functions, in each way in which a body can receive its callee:
//! what a callee costs that is not known when the loop is compiled.
//!
//! Each loop calls a callee 16 times. As many functions as there are callees run the loop with one
//! callee each, and a driver calls these: *in turn* each many times in a row, so that a processor
//! can predict every branch, or *mixed* in a random order, so that it cannot know the callee before
//! the first call of a loop. The driver itself calls through a pointer with all ways.

use crate::compiled::jit;
use crate::measure::thread_seconds;
use cranelift_codegen::Context;
use cranelift_codegen::ir::{Function, UserExternalName, UserFuncName};
use cranelift_mergefunc::cranelift_codegen;
use cranelift_mergefunc_module::cranelift_module;
use cranelift_module::{FuncId, Linkage, Module as _};
use std::fmt::Write as _;

/// How a loop knows its callee.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A loop of its own for each callee.
    Direct,
    /// The case number is compared with one case after the other.
    Chain,
    /// The case number is compared as in a binary search.
    Tree,
    /// A jump table is indexed by the case number.
    JumpTable,
    /// The address of the callee is passed.
    Address,
}

impl Way {
    /// The others are compared with the first.
    const ALL: [Way; 5] = [Way::Direct, Way::Chain, Way::Tree, Way::JumpTable, Way::Address];

    fn name(self) -> &'static str {
        match self {
            Way::Direct => "direct",
            Way::Chain => "chain",
            Way::Tree => "tree",
            Way::JumpTable => "jump table",
            Way::Address => "address",
        }
    }
}

/// How often a loop calls its callee.
const CALLS: usize = 16;
/// How many loops the driver runs in one measurement.
const LOOPS: usize = 4096;
/// How often the driver calls the same function, where they take turns.
const IN_A_ROW: usize = 64;

/// Prints a table of nanoseconds for each call, and of the bytes of the body.
pub fn all(rounds: usize) {
    let names = Way::ALL.map(|way| format!(" {} |", way.name()));
    println!("\n| callees | order |{}", names.concat());
    println!("|---|---|{}", "---|".repeat(names.len()));
    for callees in [2, 4, 8, 16, 32] {
        let compiled = Way::ALL.map(|way| Compiled::new(way, callees));
        for (name, order) in [("in turn", in_turn(callees)), ("mixed", mixed(callees))] {
            let mut best = [f64::INFINITY; Way::ALL.len()];
            let expected = compiled[0].run(&order);
            for round in 0..rounds {
                for turn in 0..Way::ALL.len() {
                    let way = (round + turn) % Way::ALL.len();
                    compiled[way].run(&order);
                    let start = thread_seconds();
                    let sum = compiled[way].run(&order);
                    best[way] = best[way].min(thread_seconds() - start);
                    assert_eq!(sum, expected, "{} computes another result", Way::ALL[way].name());
                }
            }
            let each = best.map(|seconds| {
                let calls = (CALLS * LOOPS) as f64;
                format!(" {:.2} ns, {:.2} |", 1e9 * seconds / calls, seconds / best[0])
            });
            println!("| {callees} | {name} |{}", each.concat());
        }
        let bytes = compiled.map(|code| format!(" {} |", code.bytes));
        println!("| {callees} | bytes |{}", bytes.concat());
    }
}

fn in_turn(callees: usize) -> Vec<usize> {
    (0..LOOPS).map(|at| at / IN_A_ROW % callees).collect()
}

fn mixed(callees: usize) -> Vec<usize> {
    let mut state = 1_u64;
    let draw = |_| {
        // Knuth's constants for a linear congruential generator of 64 bits, whose high bits are
        // good.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % callees
    };
    (0..LOOPS).map(draw).collect()
}

/// The code of one way.
struct Compiled {
    driver: *const u8,
    /// The functions that run the loop, one for each callee.
    loops: Vec<*const u8>,
    /// Bytes of the loops.
    bytes: usize,
}

impl Compiled {
    fn new(way: Way, callees: usize) -> Compiled {
        let mut module = jit();
        let mut bytes = 0;
        let mut define = |text: &str, bytes: &mut usize| {
            let mut func = cranelift_reader::parse_functions(text).expect("valid CLIF").remove(0);
            let number = match &func.name {
                UserFuncName::User(UserExternalName { namespace: _, index }) => *index,
                UserFuncName::Testcase(name) => panic!("{name} instead of a number"),
            };
            let id = declare(&mut module, number, &func);
            let names: Vec<_> =
                func.params.user_named_funcs().iter().map(|(at, n)| (at, n.clone())).collect();
            for (at, UserExternalName { namespace: _, index }) in names {
                let name = UserExternalName::new(0, index);
                func.params.reset_user_func_name(at, name);
            }
            let mut context = Context::for_function(func);
            module.define_function(id, &mut context).expect("can be defined");
            *bytes += context.compiled_code().expect("compiled").code_buffer().len();
            id
        };
        // The numbers of functions are those of the module, which numbers them in this order.
        let mut ignored = 0;
        for callee in 0..callees {
            define(&callee_text(callee), &mut ignored);
        }
        let loops: Vec<FuncId> = match way {
            Way::Direct => (0..callees)
                .map(|at| define(&loop_text(way, callees + at, at, callees), &mut bytes))
                .collect(),
            Way::Chain | Way::Tree | Way::JumpTable | Way::Address => {
                define(&loop_text(way, callees, 0, callees), &mut bytes);
                (0..callees).map(|at| define(&entry_text(way, callees, at), &mut ignored)).collect()
            }
        };
        let number = loops.last().expect("two or more").as_u32() as usize + 1;
        let driver = define(&driver_text(number), &mut ignored);
        module.finalize_definitions().expect("compiles");
        let address = |id| module.get_finalized_function(id);
        // A `JITModule` that is dropped leaves its code where it is.
        Compiled { driver: address(driver), loops: loops.into_iter().map(address).collect(), bytes }
    }

    /// Runs the loops in this order.
    #[expect(unsafe_code, reason = "compiled code is called")]
    fn run(&self, order: &[usize]) -> u64 {
        let functions: Vec<*const u8> = order.iter().map(|&at| self.loops[at]).collect();
        // SAFETY: the driver was declared with this signature, and its code is never freed. Its
        // second argument is the number of functions, which it calls by their signature.
        let driver = unsafe {
            std::mem::transmute::<*const u8, extern "C" fn(*const *const u8, usize) -> u64>(
                self.driver,
            )
        };
        driver(functions.as_ptr(), functions.len())
    }
}

fn declare(module: &mut impl cranelift_module::Module, number: u32, func: &Function) -> FuncId {
    let name = format!("f{number}");
    let id = module.declare_function(&name, Linkage::Local, &func.signature);
    let id = id.expect("declared once");
    assert_eq!(id.as_u32(), number, "functions are numbered as the module does");
    id
}

fn callee_text(number: usize) -> String {
    format!(
        "function u0:{number}(i64) -> i64 system_v {{
block0(v0: i64):
    v1 = iconst.i64 {}
    v2 = iadd v0, v1
    v3 = bxor v2, v0
    return v3
}}",
        2 * number + 1
    )
}

/// The loop: with callee `own`, or one of all callees.
fn loop_text(way: Way, number: usize, own: usize, callees: usize) -> String {
    let params = match way {
        Way::Direct => ["i64", "v0: i64"],
        Way::Chain | Way::Tree | Way::JumpTable => ["i64, i32", "v0: i64, v9: i32"],
        Way::Address => ["i64, i64", "v0: i64, v9: i64"],
    };
    let mut text = format!(
        "function u0:{number}({}) -> i64 system_v {{
    sig0 = (i64) -> i64 system_v
",
        params[0]
    );
    for callee in 0..callees {
        writeln!(text, "    fn{callee} = colocated u0:{callee} sig0").unwrap();
    }
    writeln!(
        text,
        "block0({}):
    v1 = iconst.i64 {CALLS}
    v8 = iconst.i64 1
    jump block1(v1, v0)
block1(v2: i64, v3: i64):",
        params[1]
    )
    .unwrap();
    let call_blocks = |text: &mut String| {
        for case in 0..callees {
            writeln!(
                text,
                "block{}:
    v{} = call fn{case}(v3)
    jump block2(v{})",
                100 + case,
                100 + case,
                100 + case
            )
            .unwrap();
        }
    };
    match way {
        Way::Direct => writeln!(text, "    v10 = call fn{own}(v3)\n    jump block2(v10)").unwrap(),
        Way::Address => {
            writeln!(text, "    v10 = call_indirect sig0, v9(v3)\n    jump block2(v10)").unwrap();
        }
        Way::JumpTable => {
            let blocks: Vec<String> =
                (0..callees).map(|case| format!("block{}", 100 + case)).collect();
            writeln!(text, "    br_table v9, block100, [{}]", blocks.join(", ")).unwrap();
            call_blocks(&mut text);
        }
        Way::Chain => {
            for case in (1..callees).rev() {
                let otherwise = if case == 1 { 100 } else { 200 + case };
                compare(&mut text, "eq", case, 100 + case, otherwise);
                if case > 1 {
                    writeln!(text, "block{otherwise}:").unwrap();
                }
            }
            call_blocks(&mut text);
        }
        Way::Tree => {
            search(&mut text, 0, callees);
            call_blocks(&mut text);
        }
    }
    text + "block2(v4: i64):
    v5 = iadd v4, v2
    v6 = isub v2, v8
    brif v6, block1(v6, v5), block3
block3:
    return v5
}"
}

/// Compares the case number with `case`, and goes on in one of two blocks.
fn compare(text: &mut String, condition: &str, case: usize, then: usize, otherwise: usize) {
    let [number, result] = [300 + case, 400 + case];
    writeln!(
        text,
        "    v{number} = iconst.i32 {case}
    v{result} = icmp {condition} v9, v{number}
    brif v{result}, block{then}, block{otherwise}"
    )
    .unwrap();
}

/// A binary search for the case among those from `start` to `end`.
fn search(text: &mut String, start: usize, end: usize) {
    let mid = start.midpoint(end);
    let block = |start: usize, end: usize| match end - start {
        1 => 100 + start,
        _ => 200 + start.midpoint(end),
    };
    compare(text, "ult", mid, block(start, mid), block(mid, end));
    for (start, end) in [(start, mid), (mid, end)] {
        if end - start > 1 {
            writeln!(text, "block{}:", block(start, end)).unwrap();
            search(text, start, end);
        }
    }
}

/// A function that runs the loop with one callee.
fn entry_text(way: Way, callees: usize, own: usize) -> String {
    let (ty, value) = match way {
        Way::Address => ("i64", "func_addr.i64 fn1".to_owned()),
        _ => ("i32", format!("iconst.i32 {own}")),
    };
    format!(
        "function u0:{}(i64) -> i64 system_v {{
    fn0 = colocated u0:{callees}(i64, {ty}) -> i64 system_v
    fn1 = colocated u0:{own}(i64) -> i64 system_v
block0(v0: i64):
    v1 = {value}
    v2 = call fn0(v0, v1)
    return v2
}}",
        callees + 1 + own
    )
}

/// A function that calls all functions of an array.
fn driver_text(number: usize) -> String {
    format!(
        "function u0:{number}(i64, i64) -> i64 system_v {{
    sig0 = (i64) -> i64 system_v
block0(v0: i64, v1: i64):
    v2 = iconst.i64 0
    v3 = iconst.i64 1
    v4 = iconst.i64 8
    jump block1(v0, v1, v2)
block1(v5: i64, v6: i64, v7: i64):
    v8 = load.i64 v5
    v9 = call_indirect sig0, v8(v7)
    v10 = iadd v5, v4
    v11 = isub v6, v3
    brif v11, block1(v10, v11, v9), block2
block2:
    return v9
}}"
    )
}
