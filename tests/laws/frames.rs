//! Laws of backtraces of functions whose IR is not kept: what code, its relocations and a table say
//! of frames.

use crate::support::{free, parse};
use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{Function, SourceLoc, UserExternalName, UserFuncName};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_mergefunc::explain::{FrameTable, Recorded};
use cranelift_mergefunc::streaming::{Caller, Reader, StreamingMerger};
use cranelift_mergefunc::{Emit, Options, Policy, Similar};
use cranelift_mergefunc_frames::{Place, SymbolTable};
use std::collections::BTreeMap;
use testkit::generate::opcodes::Machine;
use testkit::unit::Held;

/// The raw parts of a symbol.
type Raw = (u32, u32);

/// Three functions that differ in a constant and divide, and two equal ones; and functions that are
/// not added: callers of the second and the third one and of both equal ones, and one that
/// tail-calls the first, with a caller.
fn program() -> [Vec<Function>; 2] {
    let steps = "v3 = imul v2, v0 v4 = bxor v3, v2 v5 = imul v4, v3 v6 = ushr v5, v4 v7 = imul v6, v5 v8 = bxor v7, v6
                 v9 = imul v8, v7 v10 = ushr v9, v8 v11 = imul v10, v9";
    let body = |index: u32| {
        let start = 0x100 * (index + 1);
        format!(
            "function u0:{index}(i64) -> i64 tail {{ block0(v0: i64): v1 = iconst.i64 {} v2 = iadd v0, v1 {steps}
             @{start:04x} v12 = udiv v11, v0 return v12 }}",
            1000 + index
        )
    };
    let caller = |index: u32, callee: u32| {
        format!(
            "function u0:{index}(i64) -> i64 tail {{ sig0 = (i64) -> i64 tail fn0 = colocated u0:{callee} sig0
             block0(v0: i64): v1 = call fn0(v0) v2 = iadd v0, v1 return v2 }}"
        )
    };
    let tail = "function u0:5(i64) -> i64 tail { sig0 = (i64) -> i64 tail fn0 = colocated u0:0 sig0
                block0(v0: i64): return_call fn0(v0) }";
    let equal = |index: u32| {
        let at = 0x100 * (index + 1);
        format!(
            "function u0:{index}(i64) -> i64 tail {{ block0(v0: i64): v1 = bnot v0 @{at:04x} v2 = urem v0, v1 return v2 }}"
        )
    };
    let added: String = (0..3).map(body).chain([7, 8].map(equal)).collect();
    let callers = [(3, 1), (4, 5), (6, 2), (9, 7), (10, 8)].map(|(index, of)| caller(index, of));
    [parse(&added), parse(&format!("{}{tail}", callers.concat()))]
}

fn symbol(func: &Function) -> UserExternalName {
    let UserFuncName::User(symbol) = &func.name else { unreachable!("parsed so") };
    symbol.clone()
}

/// The places of traps and calls of compiled code, after it was recorded.
fn compile(
    func: Function,
    isa: &OwnedTargetIsa,
    mut record: impl FnMut(&Context),
) -> (Vec<u32>, Vec<u32>) {
    let mut context = Context::for_function(func);
    context.compile(&**isa, &mut ControlPlane::default()).expect("compiles");
    record(&context);
    let buffer = &context.compiled_code().expect("compiled").buffer;
    let traps = buffer.traps().iter().map(|trap| trap.offset).collect();
    (traps, buffer.call_sites().map(|site| site.ret_addr).collect())
}

/// A frame of a shared body is that of the function that the caller names by its relocation, or,
/// where that is rewritten, named before, or that a tail call leads to from there, at its own
/// source location. Behind a caller that is not known, all remain.
#[test]
fn callers_say_which_function_runs() {
    let machines = [Machine::X86_64V3, Machine::Aarch64];
    let callers = [Caller::Stays, Caller::IsRewritten];
    for (machine, caller) in machines.into_iter().flat_map(|it| callers.map(|caller| (it, caller)))
    {
        let isa = machine.isa("speed");
        let similar = Similar { policy: Policy::Size, ..Similar::default() };
        let options = Options { similar, aliases: true, ..Options::for_ir(&*isa) };
        let [added, others] = program();
        let mut merger = StreamingMerger::before_code(options);
        let mut reader = Reader::new(options).recording(true);
        for func in &added {
            let reading = reader.read(func, free());
            merger.add_reading(symbol(func), reading).expect("is added");
        }
        let leads = |index: u32| UserExternalName::new(0, index);
        for func in &others {
            let calls = func.params.user_named_funcs().values();
            calls.for_each(|callee| merger.add_call(callee, caller));
            let is_tail = func.to_string().contains("return_call");
            let tail_calls = if is_tail { vec![leads(0)] } else { vec![] };
            merger.add_tail_calls(&symbol(func), Some(&tail_calls));
        }
        let (plan, mut recorded): (_, Recorded) = merger.plan_recording(&mut Held::new(&added));
        let mut places: BTreeMap<Raw, (Vec<u32>, Vec<u32>)> = BTreeMap::new();
        let mut body = None;
        for output in plan.outputs() {
            if let Emit::Body | Emit::NewBody(_) | Emit::Thunk { .. } = output.emit {
                let mut func = added[output.code.as_u32() as usize % added.len()].clone();
                let sites = recorded.finish(&plan, output.symbol, &mut func);
                if let Emit::NewBody(_) = output.emit {
                    let lines = sites.as_ref().expect("functions share it");
                    assert!(func.layout.blocks().next().is_some());
                    assert_eq!(lines.location(SourceLoc::default()), SourceLoc::default());
                    body = Some((output.symbol.namespace, output.symbol.index));
                }
                let own = (output.symbol.namespace, output.symbol.index);
                let found = compile(func, &isa, |context| {
                    let buffer = &context.compiled_code().expect("compiled").buffer;
                    let names = context.func.params.user_named_funcs();
                    recorded.add_code(output.symbol, sites.as_ref(), buffer, names);
                });
                places.insert(own, found);
            }
        }
        for mut func in others {
            let own = symbol(&func);
            let sites = match caller {
                Caller::Stays => None,
                Caller::IsRewritten => recorded.finish(&plan, &own, &mut func),
            };
            let passes = [3, 5, 6].contains(&own.index);
            assert_eq!(sites.is_some(), caller == Caller::IsRewritten && passes);
            let found = compile(func, &isa, |context| {
                let buffer = &context.compiled_code().expect("compiled").buffer;
                let names = context.func.params.user_named_funcs();
                recorded.add_code(&own, sites.as_ref(), buffer, names);
            });
            places.insert((own.namespace, own.index), found);
        }
        let table = SymbolTable::parse(&FrameTable::of(&plan, recorded).bytes()).expect("a table");
        let body = body.expect("functions share a body");
        let frames = |body: Raw, at: u32, caller: Option<u32>| {
            let caller = caller.map(|index| {
                let offset = places[&(0, index)].1[0];
                ((0, index), Place { offset, is_return: true })
            });
            let trap = (body, Place { offset: at, is_return: false });
            let frames = table.frames(&[Some(trap), caller]).expect("a table");
            assert_eq!(frames[1], []);
            frames[0].clone()
        };
        let of = |index: u32| ((0, index), Some(0x100 * (index + 1)));
        for &at in &places[&body].0 {
            assert_eq!(frames(body, at, Some(3)), [of(1)]);
            assert_eq!(frames(body, at, Some(4)), [of(0)]);
            assert_eq!(frames(body, at, Some(6)), [of(2)]);
            assert_eq!(frames(body, at, None), [of(0), of(1), of(2)]);
        }
        for &at in &places[&(0, 7)].0 {
            assert_eq!(frames((0, 7), at, Some(9)), [of(7)]);
            assert_eq!(frames((0, 7), at, Some(10)), [of(8)]);
            assert_eq!(frames((0, 7), at, None), [of(7), of(8)]);
        }
        assert!(!places[&body].0.is_empty() && !places[&(0, 7)].0.is_empty());
    }
}
