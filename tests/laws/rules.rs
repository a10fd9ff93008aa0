//! The rules that choose one form where Cranelift's optimiser leaves equal integer operations in
//! two.
//!
//! A wrong rule merges functions that are not equal, and no other oracle would notice: the checker
//! treats canonical bodies as the functions themselves. So whatever the rules rewrite is
//! interpreted before and after: for all operands of 8 bits, and for operands of wider types at
//! which something changes.

use cranelift_codegen::data_value::DataValue;
use cranelift_codegen::ir::{AbiParam, Function, Type, types};
use cranelift_interpreter::environment::{FuncIndex, FunctionStore};
use cranelift_interpreter::interpreter::{Interpreter, InterpreterState};
use cranelift_interpreter::step::ControlFlow;
use cranelift_mergefunc::explain::Encoding;
use cranelift_mergefunc::{Options, cranelift_codegen};
use testkit::support::{any_isa, apply_rules, canonical_body, parse_one};

const CONDITIONS: [&str; 10] = ["eq", "ne", "slt", "sge", "sgt", "sle", "ult", "uge", "ugt", "ule"];
const WIDTHS: [Type; 4] = [types::I8, types::I16, types::I32, types::I64];

/// Interprets a function of two integers, any number of times.
struct Interpreted<'a> {
    func: &'a Function,
    interpreter: Interpreter<'a>,
}

impl<'a> Interpreted<'a> {
    fn new(func: &'a Function) -> Self {
        let mut store = FunctionStore::default();
        store.add(func.name.to_string(), func);
        let state = InterpreterState::default().with_function_store(store);
        Interpreted { func, interpreter: Interpreter::new(state) }
    }

    fn call(&mut self, arguments: [i128; 2]) -> DataValue {
        let Interpreted { func, interpreter } = self;
        let params = func.signature.params.iter().zip(arguments);
        let argument = |(param, argument): (&AbiParam, i128)| {
            DataValue::from_integer(argument, param.value_type).expect("an integer")
        };
        let arguments: Vec<DataValue> = params.map(argument).collect();
        match interpreter.call_by_index(FuncIndex::from_u32(0), &arguments) {
            Ok(ControlFlow::Return(results)) => results[0].clone(),
            other => panic!("{other:?} of\n{func}"),
        }
    }
}

/// A function of two integers of type `ty` that returns the last of `lines`, `%r` of type `result`.
/// `T` in a line is replaced by the type.
fn function(ty: Type, result: Type, lines: &[String]) -> Function {
    let names = ["%x", "%y", "%a", "%b", "%c", "%d", "%r"];
    let mut text = lines.join("\n    ").replace(".T", &format!(".{ty}"));
    for (number, name) in names.iter().enumerate() {
        text = text.replace(name, &format!("v{number}"));
    }
    parse_one(&format!(
        "function %f({ty}, {ty}) -> {result} fast {{\nblock0(v0: {ty}, v1: {ty}):\n    {text}\n    return v6\n}}"
    ))
}

/// Constants at which something can change.
fn special(ty: Type) -> Vec<i128> {
    let bits = ty.bits();
    let mut numbers: Vec<i128> = vec![0, 1, 2, 3, 5, 7, 8];
    for at in [7, 8, 15, 16, 31, 32, 63, 64] {
        if at <= bits {
            numbers.extend([(1 << at) - 1, 1 << at]);
        }
    }
    let mask = (1_i128 << bits) - 1;
    let negative: Vec<i128> = numbers.iter().map(|number| -number & mask).collect();
    numbers.extend(negative);
    for number in &mut numbers {
        *number &= mask;
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn constants(ty: Type) -> Vec<i128> {
    if ty == types::I8 { (0..256).collect() } else { special(ty) }
}

/// Returns whether the rules change a function. Checks that the result returns the same for all of
/// these operands.
#[track_caller]
fn changes(func: &Function, xs: &[i128], ys: &[i128]) -> bool {
    let mut after = func.clone();
    if !apply_rules(&mut after) {
        return false;
    }
    cranelift_codegen::verify_function(&after, any_isa()).expect("valid");
    let mut again = after.clone();
    assert!(!apply_rules(&mut again), "not at once:\n{func}\n{after}\n{again}");
    let [mut interpreted, mut changed] = [func, &after].map(Interpreted::new);
    for &x in xs {
        for &y in ys {
            let results = [&mut interpreted, &mut changed].map(|func| func.call([x, y]));
            assert_eq!(results[0], results[1], "of {x} and {y}\n{func}\n{after}");
        }
    }
    true
}

fn lines<const N: usize>(lines: [&str; N]) -> Vec<String> {
    lines.map(str::to_owned).to_vec()
}

#[test]
fn operations_with_a_constant() {
    let mut changed = 0;
    let operations = [
        "iadd", "isub", "imul", "band", "bor", "bxor", "ishl", "ushr", "sshr", "rotl", "rotr",
        "icmp",
    ];
    for ty in WIDTHS {
        for operation in operations {
            let conditions = if operation == "icmp" { &CONDITIONS[..] } else { &[""] };
            for condition in conditions {
                let result = if operation == "icmp" { types::I8 } else { ty };
                for k in constants(ty) {
                    let k = format!("%a = iconst.T {k}");
                    let (first, second) = match *condition {
                        "" => (format!("%r = {operation} %x, %a"), None),
                        _ => (
                            format!("%r = {operation} {condition} %x, %a"),
                            Some(format!("%r = {operation} {condition} %a, %x")),
                        ),
                    };
                    for last in std::iter::once(first).chain(second) {
                        let func = function(ty, result, &[k.clone(), last]);
                        changed += usize::from(changes(&func, &constants(ty), &[0]));
                    }
                }
            }
        }
    }
    assert!(changed > 3000, "{changed} replaced");
}

/// Pairs of operands: swapped, subtracted and compared with zero, chosen by.
#[test]
fn operations_of_two_operands() {
    for ty in WIDTHS {
        let (mut count, all) = (0, constants(ty));
        let mut comparisons = Vec::new();
        let mut opposite = Vec::new();
        let mut selections = Vec::new();
        for condition in CONDITIONS {
            for operands in ["%x, %y", "%y, %x"] {
                comparisons.push(vec![format!("%r = icmp {condition} {operands}")]);
                let by = format!("%a = icmp {condition} {operands}");
                selections.push(vec![by, "%r = select %a, %x, %y".to_owned()]);
            }
            opposite.push(vec![
                format!("%a = icmp {condition} %x, %y"),
                "%b = iconst.i8 1".to_owned(),
                "%r = bxor %a, %b".to_owned(),
            ]);
        }
        for operation in ["isub", "bxor"] {
            let by = format!("%a = {operation} %x, %y");
            selections.push(vec![by, "%r = select %a, %x, %y".to_owned()]);
        }
        for condition in ["eq", "ne"] {
            for operation in ["isub", "bxor"] {
                comparisons.push(vec![
                    format!("%a = {operation} %x, %y"),
                    "%b = iconst.T 0".to_owned(),
                    format!("%r = icmp {condition} %a, %b"),
                ]);
            }
        }
        for lines in &comparisons {
            count += usize::from(changes(&function(ty, types::I8, lines), &all, &all));
        }
        for (result, functions) in [(types::I8, &opposite), (ty, &selections)] {
            for lines in functions {
                count += usize::from(changes(&function(ty, result, lines), &all, &special(ty)));
            }
        }
        assert!(count >= 30, "{count} replaced");
    }
}

/// Comparisons of computed values with a constant.
#[test]
fn comparisons_with_a_constant() {
    for ty in WIDTHS {
        let mut count = 0;
        for condition in CONDITIONS {
            for k in special(ty) {
                let last = [format!("%b = iconst.T {k}"), format!("%r = icmp {condition} %a, %b")];
                let mut computed = vec![lines(["%a = bnot %x"]), lines(["%a = ineg %x"])];
                for first in ["%a = bnot %x", &format!("%b = iconst.T {k}\n%a = iadd %x, %b")] {
                    let choose = lines([first, "%r = select %a, %x, %y"]);
                    count += usize::from(changes(&function(ty, ty, &choose), &constants(ty), &[9]));
                }
                for other in special(ty) {
                    for operation in ["bxor", "band", "iadd"] {
                        if !["eq", "ne"].contains(&condition) {
                            continue;
                        }
                        computed.push(vec![
                            format!("%c = iconst.T {other}"),
                            format!("%a = {operation} %x, %c"),
                        ]);
                    }
                }
                for first in computed {
                    let all = [&first[..], &last].concat();
                    let xs = if ty == types::I8 { special(ty) } else { constants(ty) };
                    count += usize::from(changes(&function(ty, types::I8, &all), &xs, &[0]));
                }
                let by = format!("%b = icmp {condition} %x, %a");
                let choose = [format!("%a = iconst.T {k}"), by, "%r = select %b, %x, %y".into()];
                count += usize::from(changes(&function(ty, ty, &choose), &constants(ty), &[1, 9]));
            }
        }
        assert!(count > 1000, "{count} replaced");
    }
}

/// Comparisons of extended values, and extended comparisons with zero.
#[test]
fn extensions() {
    for ty in [types::I8, types::I16, types::I32] {
        for wide in WIDTHS.into_iter().filter(|wide| wide.bits() > ty.bits()) {
            let mut count = 0;
            for (condition, extend) in CONDITIONS
                .into_iter()
                .flat_map(|condition| ["uextend", "sextend"].map(|extend| (condition, extend)))
            {
                let extended = [
                    format!("%a = {extend}.{wide} %x"),
                    format!("%b = {extend}.{wide} %y"),
                    format!("%r = icmp {condition} %a, %b"),
                ];
                // All operands of 8 bits in one of the types.
                let operands = if wide == types::I16 { constants(ty) } else { special(ty) };
                let func = function(ty, types::I8, &extended);
                count += usize::from(changes(&func, &operands, &operands));
                for k in special(wide) {
                    let compared = [
                        format!("%a = {extend}.{wide} %x"),
                        format!("%b = iconst.{wide} {k}"),
                        format!("%r = icmp {condition} %a, %b"),
                    ];
                    let func = function(ty, types::I8, &compared);
                    count += usize::from(changes(&func, &constants(ty), &[0]));
                }
            }
            assert!(count > 200, "{count} replaced");
        }
    }
    for ty in WIDTHS {
        let negative = lines(["%a = iconst.T 0", "%b = icmp slt %x, %a"]);
        let extensions: &[&str] = match ty {
            types::I8 => &["%r = ineg %b"],
            _ => &["%r = uextend.T %b", "%r = bmask.T %b"],
        };
        for extension in extensions {
            let all = [&negative[..], &lines([extension])].concat();
            assert!(changes(&function(ty, ty, &all), &constants(ty), &[0]), "{extension}");
        }
    }
}

/// Pairs of forms, for every type: with the optimiser they have one encoding.
#[test]
fn equal_operations_have_one_form() {
    let pairs: [[&[&str]; 2]; 19] = [
        [&["%a = iconst.T 2", "%r = imul %x, %a"], &["%a = iconst.T 1", "%r = ishl %x, %a"]],
        [&["%r = iadd %x, %x"], &["%a = iconst.i32 1", "%r = ishl %x, %a"]],
        [&["%a = iconst.T 5", "%r = isub %x, %a"], &["%b = iconst.T -5", "%r = iadd %b, %x"]],
        [&["%a = iconst.T MIN", "%r = isub %x, %a"], &["%b = iconst.T MIN", "%r = bxor %b, %x"]],
        [&["%a = iconst.T 3", "%r = rotl %x, %a"], &["%a = iconst.T -3", "%r = rotr %x, %a"]],
        [&["%a = iconst.i64 3", "%r = ushr %x, %a"], &["%a = iconst.i8 3", "%r = ushr %x, %a"]],
        [
            &["%a = icmp slt %x, %y", "%b = imul %x, %y", "%r = select %a, %b, %x"],
            &["%a = icmp sle %y, %x", "%b = imul %x, %y", "%r = select %a, %x, %b"],
        ],
        [
            &["%a = icmp ult %x, %y", "%b = imul %x, %y", "%r = select %a, %b, %x"],
            &["%a = icmp ugt %y, %x", "%b = imul %x, %y", "%r = select %a, %b, %x"],
        ],
        [
            &["%a = icmp eq %x, %y", "%b = imul %x, %y", "%r = select %a, %b, %x"],
            &["%a = icmp ne %y, %x", "%b = imul %x, %y", "%r = select %a, %x, %b"],
        ],
        [
            &["%a = icmp eq %x, %y", "%b = imul %x, %y", "%r = select %a, %b, %x"],
            &["%c = isub %x, %y", "%b = imul %x, %y", "%r = select %c, %x, %b"],
        ],
        [
            &["%a = icmp eq %x, %y", "%b = imul %x, %y", "%r = select %a, %b, %x"],
            &["%c = bxor %x, %y", "%b = imul %x, %y", "%r = select %c, %x, %b"],
        ],
        [
            &["%a = iconst.T 9", "%b = icmp ult %x, %a", "%r = select %b, %x, %y"],
            &["%a = iconst.T 8", "%b = icmp ugt %x, %a", "%r = select %b, %y, %x"],
        ],
        [
            &["%a = iconst.T 9", "%b = icmp slt %x, %a", "%r = select %b, %x, %y"],
            &["%a = iconst.T 8", "%b = icmp sle %x, %a", "%r = select %b, %x, %y"],
        ],
        [
            &["%a = iconst.T 8", "%b = icmp uge %x, %a", "%r = select %b, %x, %y"],
            &["%a = iconst.T 7", "%b = icmp ugt %x, %a", "%r = select %b, %x, %y"],
        ],
        [
            &["%a = iconst.T 8", "%b = icmp sge %x, %a", "%r = select %b, %x, %y"],
            &["%a = iconst.T 7", "%b = icmp sgt %x, %a", "%r = select %b, %x, %y"],
        ],
        [
            &["%a = iconst.T -1", "%b = icmp eq %x, %a", "%r = select %b, %x, %y"],
            &["%a = bnot %x", "%r = select %a, %y, %x"],
        ],
        [
            &["%a = iconst.T -7", "%b = icmp eq %x, %a", "%r = select %b, %x, %y"],
            &["%a = ineg %x", "%c = iconst.T 7", "%b = icmp eq %a, %c", "%r = select %b, %x, %y"],
        ],
        [
            &["%a = iconst.T 4", "%b = band %x, %a", "%r = select %b, %x, %y"],
            &[
                "%a = iconst.T 4",
                "%b = band %x, %a",
                "%c = icmp eq %b, %a",
                "%r = select %c, %x, %y",
            ],
        ],
        [
            &[
                "%a = icmp slt %x, %y",
                "%c = iconst.i8 1",
                "%b = bxor %a, %c",
                "%d = imul %x, %y",
                "%r = select %b, %d, %x",
            ],
            &["%a = icmp sge %x, %y", "%d = imul %x, %y", "%r = select %a, %d, %x"],
        ],
    ];
    for ty in WIDTHS {
        let smallest = 1_u64 << (ty.bits() - 1);
        for pair in &pairs {
            let encodings = pair.map(|lines| {
                let line = |line: &&str| line.replace("MIN", &smallest.to_string());
                let func = function(ty, ty, &lines.iter().map(line).collect::<Vec<_>>());
                let body = canonical_body(&func, any_isa());
                let again = canonical_body(&body, any_isa());
                assert_eq!(body.to_string(), again.to_string(), "not at once:\n{func}");
                (Encoding::of(&body, &Options::default()).expect("valid"), body)
            });
            let [(a, first), (b, second)] = &encodings;
            assert_eq!(a, b, "{first}\n{second}");
        }
    }
}
