//! A unit, compiled in one variant.

use cranelift_codegen::Context;
use cranelift_codegen::ir::{Function, UserExternalName, UserFuncName};
use cranelift_codegen::settings::{self, Configurable as _};
use cranelift_jit::{ArenaMemoryProvider, JITBuilder, JITModule};
use cranelift_mergefunc::{Addresses, Callees, Instructions, Policy, Similar, cranelift_codegen};
use cranelift_mergefunc_module::{MergingModule, ModuleOptions, ModuleStats, cranelift_module};
use cranelift_module::{FuncId, Linkage, Module as _};
use std::collections::{BTreeMap, HashMap};
use testkit::programs::{self, Image, Program};

/// How a unit is merged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Not at all.
    Unmerged,
    /// Identical functions are merged, and similar ones with this policy, these callees and these
    /// instructions.
    Merged(Policy, Callees, Instructions),
}

impl Variant {
    /// The others are compared with the first.
    pub const ALL: [Variant; 6] = [
        Variant::Unmerged,
        Variant::Merged(Policy::Off, Callees::None, Instructions::None),
        Variant::Merged(Policy::Balanced, Callees::Indirect, Instructions::None),
        Variant::Merged(Policy::Balanced, Callees::Indirect, Instructions::Select),
        Variant::Merged(Policy::Size, Callees::Indirect, Instructions::Select),
        Variant::Merged(Policy::Size, Callees::None, Instructions::Select),
    ];

    pub fn name(self) -> &'static str {
        match self {
            Variant::Unmerged => "unmerged",
            Variant::Merged(Policy::Size, Callees::None, _) => "size, same callees",
            Variant::Merged(Policy::Balanced, _, Instructions::None) => {
                "balanced, same instructions"
            }
            Variant::Merged(policy, ..) => policy.name(),
        }
    }

    fn options(self) -> ModuleOptions {
        let insignificant = ModuleOptions {
            function_addresses: Addresses::Insignificant,
            remember: false,
            ..ModuleOptions::default()
        };
        match self {
            Variant::Unmerged => ModuleOptions { merge_limit: Some(0), ..insignificant },
            Variant::Merged(policy, callees, instructions) => {
                let similar = Similar { policy, callees, instructions, ..Similar::default() };
                ModuleOptions { similar, ..insignificant }
            }
        }
    }
}

/// Native code of a unit.
pub struct Compiled {
    /// Where each program begins, in the order of the image.
    pub entries: Vec<*const u8>,
    /// The addresses of the functions in the table.
    pub addresses: BTreeMap<u32, u64>,
    pub stats: ModuleStats,
}

/// Room for the code of one variant. All of its code can reach all of it by a near call.
const ARENA_BYTES: usize = 64 << 20;

/// The namespace of the functions of a WebAssembly module. Wasmtime's own have others.
const FUNCTIONS: u32 = 0;

impl Compiled {
    /// Compiles the unit, and makes it ready to run for as long as the process lives.
    pub fn new(variant: Variant, functions: &[Function], image: &Image) -> Compiled {
        let mut module = MergingModule::with_options(jit(), variant.options());
        let ids = declare(&mut module, functions);
        for element in &image.elements {
            // The address is in the table of the host.
            module.attributes(ids[&(FUNCTIONS, element.function)]).address_taken = true;
        }
        for func in functions {
            let mut func = func.clone();
            refer_to_ids(&mut func, &ids);
            define(&mut module, ids[&symbol(&func)], func);
        }
        let entries: Vec<FuncId> = image
            .programs
            .iter()
            .map(|Program { name, function, .. }| {
                enter(&mut module, name, ids[&(FUNCTIONS, *function)])
            })
            .collect();
        module.finalize_definitions().expect("compiles");
        let address = |id| module.get_finalized_function(id);
        let functions = image.elements.iter().map(|element| element.function);
        let addresses = functions
            .map(|function| (function, address(ids[&(FUNCTIONS, function)]) as u64))
            .collect();
        let entries = entries.into_iter().map(address).collect();
        let stats = *module.stats();
        // A `JITModule` that is dropped leaves its code where it is.
        Compiled { entries, addresses, stats }
    }
}

/// A module for native code of this machine, with settings as Wasmtime's.
pub fn jit() -> JITModule {
    let mut flags = settings::builder();
    // Wasmtime's settings, as far as they matter here.
    for (name, value) in [
        ("opt_level", "speed"),
        ("enable_verifier", "false"),
        ("preserve_frame_pointers", "true"),
        ("use_colocated_libcalls", "false"),
        ("is_pic", "false"),
    ] {
        flags.set(name, value).expect("a setting");
    }
    let isa = cranelift_native::builder().expect("this machine");
    let isa = isa.finish(settings::Flags::new(flags)).expect("settings that fit");
    let mut builder = JITBuilder::with_isa(isa, cranelift_module::default_libcall_names());
    let arena = ArenaMemoryProvider::new_with_size(ARENA_BYTES).expect("address space");
    builder.memory_provider(Box::new(arena));
    JITModule::new(builder)
}

type Ids = HashMap<(u32, u32), FuncId>;

fn symbol(func: &Function) -> (u32, u32) {
    match &func.name {
        UserFuncName::User(UserExternalName { namespace, index }) => (*namespace, *index),
        UserFuncName::Testcase(name) => panic!("{name} instead of a number"),
    }
}

fn declare(module: &mut MergingModule<JITModule>, functions: &[Function]) -> Ids {
    let mut ids = Ids::new();
    for func in functions {
        let (namespace, index) = symbol(func);
        let name = format!("u{namespace}:{index}");
        let id = module.declare_function(&name, Linkage::Local, &func.signature);
        ids.insert((namespace, index), id.expect("declared once"));
    }
    ids
}

/// Replaces the numbers in the unit by the identifiers of the module.
fn refer_to_ids(func: &mut Function, ids: &Ids) {
    let names: Vec<_> =
        func.params.user_named_funcs().iter().map(|(at, n)| (at, n.clone())).collect();
    // First to unused numbers: the old name of one function can be the new name of another.
    for (at, _) in &names {
        let aside = UserExternalName::new(u32::MAX, at.as_u32());
        func.params.reset_user_func_name(*at, aside);
    }
    for (at, UserExternalName { namespace, index }) in names {
        let id = ids.get(&(namespace, index)).unwrap_or_else(|| panic!("no u{namespace}:{index}"));
        func.params.reset_user_func_name(at, UserExternalName::new(0, id.as_u32()));
    }
}

fn define(module: &mut MergingModule<JITModule>, id: FuncId, func: Function) {
    module.define_function(id, &mut Context::for_function(func)).expect("can be defined");
}

/// The function that the host calls to run a program.
fn enter(module: &mut MergingModule<JITModule>, name: &str, program: FuncId) -> FuncId {
    let text = programs::entry("u0:0", &format!("u0:{}", program.as_u32()));
    let func = cranelift_reader::parse_functions(&text).expect("valid CLIF").remove(0);
    let id =
        module.declare_function(name, Linkage::Export, &func.signature).expect("declared once");
    define(module, id, func);
    id
}
