//! An engine of the smallest kind: it translates functions on all threads, compiles each as soon as
//! it can, links the code in memory, and runs it. It keeps little IR: a function that comes to
//! share a body with a later one is translated again, and the code that was made for it is dropped.
//!
//! ```text
//! cargo run --example engine
//! ```

#[path = "engine/back_end.rs"]
mod back_end;
#[path = "engine/front_end.rs"]
mod front_end;

use back_end::{Code, compile, run};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_mergefunc::cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_mergefunc::streaming::{Known, Reader, StreamingMerger};
use cranelift_mergefunc::{Bodies, Emit, FunctionIndex, Options, Plan};
use cranelift_module::{FuncId, Linkage, Module, ModuleReloc, ModuleRelocTarget};
use rayon::prelude::*;
use std::{collections::HashMap, error::Error};

/// The IR that is held, and what is translated again when the plan asks for it.
struct Held {
    functions: Vec<Option<u64>>,
    held: HashMap<FunctionIndex, Function>,
    new_bodies: u32,
}

impl Bodies for Held {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        let index = function.as_u32() as usize;
        let again = || front_end::translate(index, self.functions[index]);
        self.held.entry(function).or_insert_with(again)
    }

    fn fresh_symbol(&mut self, _: &[FunctionIndex]) -> Option<UserExternalName> {
        self.new_bodies += 1;
        Some(UserExternalName::new(1, self.new_bodies))
    }
}

/// Makes a relocation refer to what the plan has in place of its symbol. All references of the
/// program are calls.
fn redirect(plan: &Plan, reloc: &mut ModuleReloc, ids: &HashMap<UserExternalName, FuncId>) {
    let ModuleRelocTarget::User { namespace, index } = reloc.name else { return };
    let symbol = UserExternalName::new(namespace, index);
    reloc.name = ids[plan.call_symbol(&symbol)].into();
}

fn main() -> Result<(), Box<dyn Error>> {
    // With frame pointers, as in most engines, a thunk can be a tail call.
    let names = cranelift_module::default_libcall_names();
    let builder = JITBuilder::with_flags(&[("preserve_frame_pointers", "true")], names)?;
    let mut module = JITModule::new(builder);
    let functions = front_end::functions();
    let options = Options { aliases: true, ..Options::for_ir(module.isa()) };
    // On all threads: translating, and reading for the merger.
    let read = |(index, &function): (usize, &Option<u64>)| {
        let func = front_end::translate(index, function);
        let reading = Reader::new(options).read(&func, front_end::attributes(function));
        (front_end::symbol(index), func, reading)
    };
    let read: Vec<_> = functions.par_iter().enumerate().map(read).collect();

    // In their order, a lookup for each. One that has to wait is held; most can be compiled, here
    // or on another thread.
    let mut merger = StreamingMerger::replacing(options, 64 << 20);
    let (mut held, mut compiled) =
        (Held { functions, held: HashMap::new(), new_bodies: 0 }, HashMap::new());
    for (symbol, func, reading) in read {
        let added = merger.add_reading(symbol, reading)?;
        match added.known {
            Known::Equal(_) => {}
            Known::Hold => drop(held.held.insert(added.function, func)),
            Known::Compile => drop(compiled.insert(added.function, compile(func, module.isa()))),
        }
    }
    println!(
        "{} functions: {} compiled at once, {} held",
        held.functions.len(),
        compiled.len(),
        held.held.len()
    );
    let plan = merger.plan(&mut held);

    // Compiled code is code of the plan, unless the function shares a body by now. All else is
    // finished and compiled.
    let mut code: Vec<(UserExternalName, Code)> = Vec::new();
    for output in plan.outputs() {
        let before = compiled.get(&output.code).filter(|_| matches!(output.emit, Emit::Body));
        let after = || {
            let mut func = held.held.get(&output.code).cloned().unwrap_or_else(Function::new);
            plan.finish(output.function, &mut func).then(|| compile(func, module.isa()))
        };
        code.extend(before.cloned().or_else(after).map(|code| (output.symbol.clone(), code)));
    }
    println!(
        "{} have code, {} bytes",
        code.len(),
        code.iter().map(|(_, code)| code.bytes.len()).sum::<usize>()
    );

    // Linking: each symbol that has code is declared, and relocations go where the plan says.
    let mut ids = HashMap::new();
    for (symbol, _) in &code {
        let signature = module.make_signature();
        ids.insert(
            symbol.clone(),
            module.declare_function(&symbol.to_string(), Linkage::Local, &signature)?,
        );
    }
    for (symbol, Code { bytes, alignment, mut relocs }) in code {
        relocs.iter_mut().for_each(|reloc| redirect(&plan, reloc, &ids));
        module.define_function_bytes(ids[&symbol], alignment, &bytes, &relocs)?;
    }
    module.finalize_definitions()?;
    let entry = module.get_finalized_function(ids[&front_end::symbol(held.functions.len() - 1)]);
    let (result, expected) = (run(entry, 7), front_end::expected(7));
    println!("returned {result}, {} functions share a body", plan.stats().similar.merged);
    assert_eq!(result, expected);
    Ok(())
}
