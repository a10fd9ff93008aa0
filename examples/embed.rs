//! An embedder that owns `ir::Function`s under symbols of its own and uses no `cranelift-module`.
//!
//! Two functions do the same; the third calls both. After merging, one of them is eliminated and
//! the third calls the other one twice.

use cranelift_mergefunc::cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_mergefunc::{Attributes, Disposition, Linkage, Merger, Options};

const UNIT: &str = "
function u7:1(i32) -> i32 { block0(v0: i32): v1 = iconst.i32 7  v2 = imul v0, v1  return v2 }
function u7:2(i32) -> i32 { block0(v1: i32): v0 = iconst.i32 7  v2 = imul v0, v1  return v2 }
function u7:3(i32) -> i32 {
    fn0 = u7:1(i32) -> i32
    fn1 = u7:2(i32) -> i32
block0(v0: i32): v1 = call fn0(v0)  v2 = call fn1(v1)  return v2
}";

fn main() {
    let mut functions: Vec<Function> = cranelift_reader::parse_functions(UNIT).expect("valid CLIF");
    let symbol = |func: &Function| -> UserExternalName {
        func.name.get_user().expect("a symbol of the embedder's").clone()
    };

    let options = Options::default();
    let mut merger = Merger::new(options);
    merger.reserve(functions.len());
    for func in &functions {
        // Here only the third function is visible from outside.
        let visible = symbol(func).index == 3;
        let linkage = if visible { Linkage::Export } else { Linkage::Local };
        let attributes = Attributes { linkage, ..Attributes::default() };
        merger.add(symbol(func), func, attributes).expect("symbols are distinct");
    }
    let plan = merger.plan(&mut functions);

    for (function, entry) in plan.entries() {
        let func = &mut functions[function.as_u32() as usize];
        match entry.disposition() {
            Disposition::Keep => {
                plan.apply(function, func);
                println!("{func}");
            }
            eliminated => {
                println!(
                    "; {} is eliminated: {}, {}\n",
                    func.name,
                    eliminated.name(),
                    entry.reason()
                )
            }
        }
    }
    assert_eq!(plan.stats().merged.functions, 1);
}
