//! The unit: all cases as one module, merged or not, for a target.

use crate::cases::Case;
use crate::shapes::Calls;
use cranelift_codegen::Context;
use cranelift_codegen::ir::Signature;
use cranelift_codegen::isa::{self, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable, Flags};
use cranelift_mergefunc::{Addresses, BackEnd, MergingModule, Mode, ModuleOptions, ModuleStats};
use cranelift_module::{DataDescription, DataId, FuncId, Linkage, Module};
use cranelift_object::{ObjectBuilder, ObjectModule};

/// How an object is made.
#[derive(Clone, Copy)]
pub struct Build {
    pub triple: &'static str,
    pub pic: bool,
    pub unwind_info: bool,
    pub per_function_section: bool,
}

pub fn isa_of(triple: &str, pic: bool) -> OwnedTargetIsa {
    let mut flags = settings::builder();
    flags.set("is_pic", if pic { "true" } else { "false" }).unwrap();
    let triple = triple.parse().expect("a target triple");
    isa::lookup(triple).unwrap().finish(Flags::new(flags)).unwrap()
}

fn empty(build: Build) -> ObjectModule {
    let names = cranelift_module::default_libcall_names();
    let isa = isa_of(build.triple, build.pic);
    let mut builder = ObjectBuilder::new(isa, "unit", names).unwrap();
    builder.unwind_info(build.unwind_info);
    builder.per_function_section(build.per_function_section);
    ObjectModule::new(builder)
}

/// The object without merging.
pub fn bare(cases: &[Case], build: Build) -> Vec<u8> {
    let mut module = empty(build);
    define(&mut module, cases, &mut |_, _, _| {});
    module.finish().emit().unwrap()
}

/// The object with merging.
pub fn merged(cases: &[Case], build: Build, mode: Mode) -> (Vec<u8>, ModuleStats) {
    let options = ModuleOptions { mode, back_end: BackEnd::Object, ..ModuleOptions::default() };
    let mut module = MergingModule::with_options(empty(build), options);
    define(&mut module, cases, &mut say);
    let (product, map) = module.finish_with_map().unwrap();
    let mut stats = ModuleStats::default();
    for original in map.originals() {
        match original.disposition.name() {
            "redirect" => stats.redirects += 1,
            "alias" => stats.aliases += 1,
            "thunk" => stats.thunks += 1,
            _ => stats.functions += 1,
        }
    }
    (product.emit().unwrap(), stats)
}

/// Called for everything that is about to be defined.
pub type Hear<'a, M> = dyn FnMut(&mut M, &Case, Thing) + 'a;

/// What is defined for a case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Thing {
    /// One of the two.
    Equal(FuncId),
    /// Calls one of them for C, or says its address.
    Caller(FuncId),
    /// Holds the address of one of them, and cannot be written.
    Table(DataId),
}

/// Passes the attributes in the table of cases for a thing to a merging module.
pub fn say<M: Module>(module: &mut MergingModule<M>, case: &Case, thing: Thing) {
    match thing {
        Thing::Equal(function) => module.attributes(function).addresses = case.addresses,
        Thing::Caller(function) => {
            let attributes = module.attributes(function);
            attributes.addresses = Addresses::Significant;
            attributes.no_merge = !case.callers_merge;
        }
        Thing::Table(data) => {
            module.data_attributes(data).addresses = Addresses::Insignificant;
        }
    }
}

fn parse(text: &str) -> cranelift_codegen::ir::Function {
    match cranelift_reader::parse_functions(text) {
        Ok(mut functions) => functions.remove(0),
        Err(error) => panic!("{error} in\n{text}"),
    }
}

fn signature(text: &str) -> Signature {
    parse(&format!("function u0:0{text} {{\nblock0:\n trap user1\n}}")).signature.clone()
}

/// How a function refers to another one, as `declare_func_in_func` does it.
fn reference(function: FuncId, linkage: Linkage, signature: &str) -> String {
    let colocated = if linkage.is_final() { "colocated " } else { "" };
    format!("{colocated}u0:{}{signature}", function.as_u32())
}

const C: &str = "(i64) -> i64 system_v";

/// Declares and defines everything, of which `say` hears.
pub fn define<M: Module>(module: &mut M, cases: &[Case], say: &mut Hear<'_, M>) {
    let callback = module.declare_function("callback", Linkage::Import, &signature(C)).unwrap();
    let callback = reference(callback, Linkage::Import, C);
    let mut ctx = Context::new();
    let mut emit = |module: &mut M, function: FuncId, text: &str| {
        ctx.clear();
        ctx.func = parse(text);
        module
            .define_function(function, &mut ctx)
            .unwrap_or_else(|error| panic!("{error:?} for\n{text}"));
    };
    for case in cases {
        let Case { shape, convention, linkages, .. } = case;
        let sig = shape.signature(convention);
        let functions = [0, 1].map(|which| {
            let linkage = linkages[which];
            let function = module.declare_function(&case.name(which), linkage, &signature(&sig));
            function.unwrap()
        });
        for which in 0..2 {
            let (function, linkage) = (functions[which], linkages[which]);
            let symbol = |function: FuncId| format!("u0:{}", function.as_u32());
            let own = reference(function, linkage, &sig);
            let callee = match shape.calls {
                Calls::Nothing | Calls::Itself => &own,
                Calls::Callback => &callback,
            };
            let k = 1001 + 2 * case.number as i64;
            say(module, case, Thing::Equal(function));
            emit(module, function, &shape.function(&symbol(function), convention, callee, k));

            let name = format!("call_{}", case.name(which));
            let call = module.declare_function(&name, Linkage::Export, &signature(C)).unwrap();
            say(module, case, Thing::Caller(call));
            emit(module, call, &shape.caller(&symbol(call), &own));
            if !case.taken {
                continue;
            }

            let name = format!("addr_{}", case.name(which));
            let address = module.declare_function(&name, Linkage::Export, &signature("() -> i64"));
            let address = address.unwrap();
            // Not colocated: a shared library must ask the loader for addresses of visible symbols.
            let any = reference(function, Linkage::Import, &sig);
            let text = format!(
                "function {}() -> i64 system_v {{\n    fn0 = {any}\nblock0:\n    \
                 v0 = func_addr.i64 fn0\n    return v0\n}}\n",
                symbol(address)
            );
            say(module, case, Thing::Caller(address));
            emit(module, address, &text);

            let name = format!("ptr_{}", case.name(which));
            let pointer = module.declare_data(&name, Linkage::Export, true, false).unwrap();
            define_pointer(module, pointer, function);
            if !case.is_like_c() {
                continue;
            }

            let name = format!("table_{}", case.name(which));
            let table = module.declare_data(&name, Linkage::Local, false, false).unwrap();
            say(module, case, Thing::Table(table));
            define_pointer(module, table, function);
            let name = format!("via_{}", case.name(which));
            let via = module.declare_function(&name, Linkage::Export, &signature(C)).unwrap();
            let text = format!(
                "function {}(i64) -> i64 system_v {{\n    gv0 = symbol colocated u1:{}\n    \
                 sig0 = {C}\nblock0(v0: i64):\n    v1 = symbol_value.i64 gv0\n    \
                 v2 = load.i64 v1\n    v3 = call_indirect sig0, v2(v0)\n    return v3\n}}\n",
                symbol(via),
                table.as_u32()
            );
            say(module, case, Thing::Caller(via));
            emit(module, via, &text);
        }
    }
}

/// Defines a data object that is a pointer to a function.
fn define_pointer(module: &mut impl Module, data: DataId, function: FuncId) {
    let mut description = DataDescription::new();
    description.define(Box::new([0; 8]));
    description.set_align(8);
    let target = module.declare_func_in_data(function, &mut description);
    description.write_function_addr(0, target);
    module.define_data(data, &description).unwrap();
}

/// An object of one function that returns its argument.
pub fn one_function(build: Build, name: &str) -> Vec<u8> {
    let mut module = empty(build);
    let function = module.declare_function(name, Linkage::Export, &signature(C)).unwrap();
    let text = format!(
        "function u0:{}(i64) -> i64 system_v {{\nblock0(v0: i64):\n    return v0\n}}\n",
        function.as_u32()
    );
    module.define_function(function, &mut Context::for_function(parse(&text))).unwrap();
    module.finish().emit().unwrap()
}
