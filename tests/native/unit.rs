//! The unit: all cases as one module, merged or not, for a target.

use crate::cases::Case;
use crate::shapes::Calls;
use cranelift_mergefunc::{Addresses, Policy, Similar};
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions, ModuleStats};
use cranelift_module::{DataId, FuncId, Linkage, Module};
use cranelift_object::ObjectModule;
use testkit::isa;
use testkit::modules::{self, I64, declare, object_with};

/// How an object is made.
#[derive(Clone, Copy)]
pub struct Build {
    pub triple: &'static str,
    pub pic: bool,
    pub unwind_info: bool,
    pub per_function_section: bool,
}

fn empty(build: Build) -> ObjectModule {
    let isa = isa::of(build.triple, &[("is_pic", isa::switch(build.pic))]);
    object_with(isa, |builder| {
        builder.unwind_info(build.unwind_info).per_function_section(build.per_function_section);
    })
}

/// The object without merging.
pub fn bare(cases: &[Case], build: Build) -> Vec<u8> {
    let mut module = empty(build);
    define(&mut module, cases, &mut |_, _, _| {});
    module.finish().emit().unwrap()
}

/// The object with merging.
pub fn merged(cases: &[Case], build: Build) -> (Vec<u8>, ModuleStats) {
    let options = ModuleOptions { back_end: BackEnd::Object, ..ModuleOptions::default() };
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

/// The definitions for a case.
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

/// How a function refers to another one, as `declare_func_in_func` does it.
fn reference(name: &str, linkage: Linkage, signature: &str) -> String {
    let colocated = if linkage.is_final() { "colocated " } else { "" };
    format!("{colocated}%{name}{signature}")
}

/// The object with content addressing that has one function of each case, and what calls it.
pub fn content_addressed(cases: &[Case], build: Build, which: usize) -> Vec<u8> {
    let options = ModuleOptions {
        back_end: BackEnd::Object,
        content_addressed: true,
        similar: Similar { policy: Policy::Size, ..Similar::default() },
        ..ModuleOptions::default()
    };
    let build = Build { per_function_section: true, ..build };
    let mut module = MergingModule::with_options(empty(build), options);
    define_some(&mut module, cases, &[which], &mut say);
    module.finish().unwrap().emit().unwrap()
}

/// Declares and defines everything, of which `say` hears.
pub fn define<M: Module>(module: &mut M, cases: &[Case], say: &mut Hear<'_, M>) {
    define_some(module, cases, &[0, 1], say);
}

/// Defines some of the two functions of each case.
fn define_some<M: Module>(module: &mut M, cases: &[Case], some: &[usize], say: &mut Hear<'_, M>) {
    declare(module, "callback", Linkage::Import, I64);
    let callback = reference("callback", Linkage::Import, I64);
    for case in cases {
        let Case { shape, convention, linkages, .. } = case;
        let sig = shape.signature(convention);
        let functions: Vec<FuncId> = some
            .iter()
            .map(|&which| declare(module, &case.name(which), linkages[which], &sig))
            .collect();
        for (&which, &function) in some.iter().zip(&functions) {
            let name = case.name(which);
            let own = reference(&name, linkages[which], &sig);
            let callee = match shape.calls {
                Calls::Nothing | Calls::Itself => &own,
                Calls::Callback => &callback,
            };
            let k = 1001 + 2 * case.number as i64;
            say(module, case, Thing::Equal(function));
            let text = shape.function(&format!("%{name}"), convention, callee, k);
            modules::define(module, &text).unwrap();

            let call = format!("call_{name}");
            let text = shape.caller(&format!("%{call}"), &own);
            caller((module, say), case, (&call, I64), &text);
            if !case.taken {
                continue;
            }
            let address = format!("addr_{name}");
            // Not colocated: a shared library must ask the loader for addresses of visible symbols.
            let text = modules::address("export", &address, &name).replace(I64, &sig);
            caller((module, say), case, (&address, "() -> i64 system_v"), &text);
            let pointer = module.declare_data(&format!("ptr_{name}"), Linkage::Export, true, false);
            define_pointer(module, pointer.unwrap(), &name);
            if !case.is_like_c() {
                continue;
            }
            let (table, via) = (format!("table_{name}"), format!("via_{name}"));
            let data = module.declare_data(&table, Linkage::Local, false, false).unwrap();
            say(module, case, Thing::Table(data));
            define_pointer(module, data, &name);
            let text = format!(
                "function %{via}(i64) -> i64 system_v {{
    gv0 = symbol colocated %{table}
    sig0 = {I64}
block0(v0: i64):
    v1 = symbol_value.i64 gv0
    v2 = load.i64 v1
    v3 = call_indirect sig0, v2(v0)
    return v3
}}
"
            );
            caller((module, say), case, (&via, I64), &text);
        }
    }
}

/// Declares and defines a function that calls one of the two, or says its address.
fn caller<M: Module>(
    (module, say): (&mut M, &mut Hear<'_, M>),
    case: &Case,
    (name, signature): (&str, &str),
    text: &str,
) {
    let id = declare(module, name, Linkage::Export, signature);
    say(module, case, Thing::Caller(id));
    modules::define(module, text).unwrap();
}

/// Defines a data object that is a pointer to a function.
fn define_pointer(module: &mut impl Module, data: DataId, function: &str) {
    let mut description = modules::bytes(module, &[0; 8], &[(0, function, 0)]);
    description.set_align(8);
    module.define_data(data, &description).unwrap();
}

/// An object of one function that returns its argument.
pub fn one_function(build: Build, name: &str) -> Vec<u8> {
    let mut module = empty(build);
    let text = format!(
        "export function %{name}(i64) -> i64 system_v {{\nblock0(v0: i64):\n    return v0\n}}\n"
    );
    modules::define_all(&mut module, &text);
    module.finish().emit().unwrap()
}
