//! Modules made of text.
//!
//! A program is CLIF in which functions and data objects have names, and every function says its
//! linkage before the word `function`. Names are those of the module, so a program can refer to
//! what an earlier one declared.
//!
//! Nothing is drawn here: each of the functions below has the one shape that a law is about.

use crate::isa;
use crate::jit::{self, Run};
use cranelift_codegen::Context;
use cranelift_codegen::ir::{Function, Signature};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_jit::JITModule;
use cranelift_mergefunc::{Addresses, Policy, Similar};
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::{
    DataDescription, DataId, FuncId, FuncOrDataId, Linkage, Module, ModuleResult,
};
use cranelift_object::{ObjectBuilder, ObjectModule, ObjectProduct};

pub fn host_isa(pic: bool) -> OwnedTargetIsa {
    host_isa_with(pic, "none")
}

/// The target of this machine, with a level of optimisation.
pub fn host_isa_with(pic: bool, opt_level: &str) -> OwnedTargetIsa {
    isa::of(isa::HOST, &[("is_pic", isa::switch(pic)), ("opt_level", opt_level)])
}

pub fn jit() -> JITModule {
    jit::module(host_isa(false), |_| {})
}

pub fn object() -> ObjectModule {
    object_with(host_isa(true), |_| {})
}

/// An empty object for an ISA. `configure` can change how it is made.
pub fn object_with(
    isa: OwnedTargetIsa,
    configure: impl FnOnce(&mut ObjectBuilder),
) -> ObjectModule {
    let mut builder = object_builder(isa);
    configure(&mut builder);
    ObjectModule::new(builder)
}

pub fn object_builder(isa: OwnedTargetIsa) -> ObjectBuilder {
    let names = cranelift_module::default_libcall_names();
    ObjectBuilder::new(isa, "unit", names).expect("an object")
}

/// A JIT that merges what is identical, where addresses that are not taken do not matter.
pub fn merging_jit() -> MergingModule<JITModule> {
    let options = ModuleOptions { similar: Similar::OFF, ..ModuleOptions::default() };
    MergingModule::with_options(jit(), options)
}

/// Options under which no address matters. Only what is identical is merged.
pub fn insignificant() -> ModuleOptions {
    ModuleOptions {
        similar: Similar::OFF,
        function_addresses: Addresses::Insignificant,
        data_addresses: Addresses::Insignificant,
        ..ModuleOptions::default()
    }
}

/// Options under which no address matters, and what differs is merged as well if that saves bytes.
pub fn for_size(back_end: BackEnd) -> ModuleOptions {
    let similar = Similar { policy: Policy::Size, ..Similar::default() };
    ModuleOptions { back_end, similar, ..insignificant() }
}

/// These options without merging.
pub fn unmerged(options: ModuleOptions) -> ModuleOptions {
    ModuleOptions { merge_limit: Some(0), ..options }
}

fn linkage(word: &str) -> Option<Linkage> {
    Some(match word {
        "import" => Linkage::Import,
        "local" => Linkage::Local,
        "preemptible" => Linkage::Preemptible,
        "hidden" => Linkage::Hidden,
        "export" => Linkage::Export,
        _ => return None,
    })
}

/// Puts the identifiers of `module` in place of names.
fn resolve(module: &dyn Module, text: &str) -> String {
    let mut pieces = text.split('%');
    let mut resolved = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(piece.len());
        let (name, rest) = piece.split_at(end);
        resolved += &match module.get_name(name) {
            Some(FuncOrDataId::Func(id)) => format!("u0:{}", id.as_u32()),
            Some(FuncOrDataId::Data(id)) => format!("u1:{}", id.as_u32()),
            None => panic!("%{name} is not declared"),
        };
        resolved += rest;
    }
    resolved
}

/// The function of a CLIF text with names, whatever its linkage.
#[track_caller]
pub fn function(module: &dyn Module, text: &str) -> Function {
    let text = match text.split_once(' ') {
        Some((word, rest)) if linkage(word).is_some() => rest,
        _ => text,
    };
    let text = resolve(module, text);
    match cranelift_reader::parse_functions(&text) {
        Ok(mut functions) => functions.remove(0),
        Err(error) => panic!("{error} in\n{text}"),
    }
}

/// The signature in `(i64) -> i64 system_v`.
#[track_caller]
pub fn signature(text: &str) -> Signature {
    let text = format!("function %f{text} {{\nblock0:\n trap user1\n}}");
    cranelift_reader::parse_functions(&text).unwrap().remove(0).signature.clone()
}

/// The signature of most functions of these tests.
pub const I64: &str = "(i64) -> i64 system_v";

#[track_caller]
pub fn declare(module: &mut dyn Module, name: &str, linkage: Linkage, sig: &str) -> FuncId {
    module.declare_function(name, linkage, &signature(sig)).unwrap()
}

/// One function of a program: its linkage, its name, its signature, and its text.
struct Part<'a> {
    linkage: Linkage,
    name: &'a str,
    signature: &'a str,
    text: &'a str,
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let starts = |line: &&str| linkage(line.split(' ').next().unwrap_or_default()).is_some();
    let offset = |line: &str| line.as_ptr() as usize - text.as_ptr() as usize;
    let mut begins: Vec<usize> = text.lines().filter(starts).map(offset).collect();
    begins.push(text.len());
    let mut parts = Vec::new();
    for pair in begins.windows(2) {
        let (word, text) = text[pair[0]..pair[1]].split_once(' ').unwrap();
        let header = text.lines().next().unwrap().trim_end_matches([' ', '{']);
        let header = header.strip_prefix("function %").expect("a linkage, then a function");
        let (name, signature) = header.split_at(header.find('(').unwrap());
        parts.push(Part { linkage: linkage(word).unwrap(), name, signature, text });
    }
    parts
}

/// Declares all functions of a program.
#[track_caller]
pub fn declare_all(module: &mut dyn Module, program: &str) {
    for Part { linkage, name, signature, .. } in parts(program) {
        declare(module, name, linkage, signature);
    }
}

/// Declares all functions of a program and defines those that have a body, in order.
#[track_caller]
pub fn define_all(module: &mut dyn Module, program: &str) {
    declare_all(module, program);
    for part in parts(program) {
        if part.linkage != Linkage::Import {
            define(module, part.text).unwrap();
        }
    }
}

/// Defines a function that is declared.
#[track_caller]
pub fn define(module: &mut dyn Module, text: &str) -> ModuleResult<Context> {
    let mut ctx = module.make_context();
    ctx.func = function(module, text);
    let id = FuncId::from_u32(ctx.func.name.get_user().expect("a function with a name").index);
    module.define_function(id, &mut ctx)?;
    Ok(ctx)
}

/// The identifier of a function.
#[track_caller]
pub fn id(module: &dyn Module, name: &str) -> FuncId {
    match module.get_name(name) {
        Some(FuncOrDataId::Func(id)) => id,
        other => panic!("{name} is {other:?}"),
    }
}

/// The identifier of a data object.
#[track_caller]
pub fn data_id(module: &dyn Module, name: &str) -> DataId {
    match module.get_name(name) {
        Some(FuncOrDataId::Data(id)) => id,
        other => panic!("{name} is {other:?}"),
    }
}

/// The contents of a data object of these bytes, with pointers to functions and data objects: the
/// offset in bytes, the target, and the addend.
pub fn bytes(
    module: &mut dyn Module,
    bytes: &[u8],
    pointers: &[(u32, &str, i64)],
) -> DataDescription {
    let mut description = DataDescription::new();
    description.define(bytes.into());
    for &(offset, target, addend) in pointers {
        match module.get_name(target) {
            Some(FuncOrDataId::Func(id)) => {
                let target = module.declare_func_in_data(id, &mut description);
                description.write_function_addr(offset, target);
            }
            Some(FuncOrDataId::Data(id)) => {
                let target = module.declare_data_in_data(id, &mut description);
                description.write_data_addr(offset, target, addend);
            }
            None => panic!("{target} is not declared"),
        }
    }
    description
}

/// Eight bytes of a data object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A number.
    Number(i64),
    /// The address of a function, by number.
    Function(usize),
    /// The address of an item of a data object, both by number.
    Data { data: usize, slot: usize },
}

impl Item {
    /// The function to which it points.
    pub fn function(&self) -> Option<usize> {
        match self {
            Item::Function(function) => Some(*function),
            Item::Number(_) | Item::Data { .. } => None,
        }
    }

    /// The bytes of the data object where the linker writes no address.
    pub fn bytes(&self) -> [u8; 8] {
        match self {
            Item::Number(number) => number.to_le_bytes(),
            Item::Function(_) | Item::Data { .. } => [0; 8],
        }
    }
}

/// The contents of a data object of these items, where numbers are those of these identifiers.
/// `zeros`: all are zero, and take no room in a file.
pub fn items_description(
    module: &mut dyn Module,
    (items, zeros): (&[Item], bool),
    functions: &dyn Fn(usize) -> FuncId,
    data: &dyn Fn(usize) -> DataId,
) -> DataDescription {
    let mut description = DataDescription::new();
    match zeros {
        true => description.define_zeroinit(8 * items.len()),
        false => description.define(items.iter().flat_map(Item::bytes).collect()),
    }
    for (item, offset) in items.iter().zip((0..).step_by(8)) {
        match *item {
            Item::Number(_) => {}
            Item::Function(function) => {
                let target = module.declare_func_in_data(functions(function), &mut description);
                description.write_function_addr(offset, target);
            }
            Item::Data { data: at, slot } => {
                let target = module.declare_data_in_data(data(at), &mut description);
                description.write_data_addr(offset, target, 8 * slot as i64);
            }
        }
    }
    description
}

/// Declares and defines a local read-only table of pointers.
#[track_caller]
pub fn table(module: &mut dyn Module, name: &str, entries: &[&str]) -> DataId {
    let id = module.declare_data(name, Linkage::Local, false, false).unwrap();
    let pointers: Vec<(u32, &str, i64)> =
        entries.iter().zip(0..).map(|(target, at)| (at * 8, *target, 0)).collect();
    let description = bytes(module, &vec![0; entries.len() * 8], &pointers);
    module.define_data(id, &description).unwrap();
    id
}

/// A function that adds `k` to its argument.
pub fn plus(linkage: &str, name: &str, k: i64) -> String {
    format!(
        "{linkage} function %{name}(i64) -> i64 system_v {{
block0(v0: i64):
    v1 = iconst.i64 {k}
    v2 = iadd v0, v1
    v3 = imul v2, v2
    return v3
}}
"
    )
}

/// A function that adds 1 to what `callee` makes of its argument.
pub fn calls(linkage: &str, name: &str, callee: &str) -> String {
    format!(
        "{linkage} function %{name}(i64) -> i64 system_v {{
    fn0 = %{callee}(i64) -> i64 system_v
block0(v0: i64):
    v1 = call fn0(v0)
    v2 = iconst.i64 1
    v3 = iadd v1, v2
    return v3
}}
"
    )
}

/// A function that calls `callee` by its address.
pub fn calls_address(linkage: &str, name: &str, callee: &str) -> String {
    format!(
        "{linkage} function %{name}(i64) -> i64 system_v {{
    sig0 = (i64) -> i64 system_v
    fn0 = %{callee} sig0
block0(v0: i64):
    v1 = func_addr.i64 fn0
    v2 = call_indirect sig0, v1(v0)
    return v2
}}
"
    )
}

/// Code for the values of these numbers, each made of the two before: enough of it is larger than
/// any thunk.
pub fn filling(first: usize, last: usize) -> String {
    let line = |v: usize| {
        let operation = ["imul", "bxor"][v % 2];
        format!("    v{v} = {operation} v{}, v{}\n", v - 1, v - 2)
    };
    (first..=last).map(line).collect()
}

/// A function that mixes its argument with a constant.
pub fn mixes(linkage: &str, name: &str, k: i64) -> String {
    format!(
        "{linkage} function %{name}(i64) -> i64 system_v {{
block0(v0: i64):
    v1 = iconst.i64 {k}
    v2 = iadd v0, v1
{}    return v19
}}
",
        filling(3, 19)
    )
}

/// A function that mixes its argument with what another one makes of it.
pub fn mixes_call(linkage: &str, name: &str, callee: &str) -> String {
    format!(
        "{linkage} function %{name}(i64) -> i64 system_v {{
    fn0 = %{callee}(i64) -> i64 system_v
block0(v0: i64):
    v1 = call fn0(v0)
    v2 = iadd v0, v1
{}    return v19
}}
",
        filling(3, 19)
    )
}

/// A function that counts down by calls to `callee`, and returns `k` in the end.
pub fn counts_down(linkage: &str, name: &str, callee: &str, k: i64) -> String {
    format!(
        "{linkage} function %{name}(i64) -> i64 system_v {{
    fn0 = %{callee}(i64) -> i64 system_v
block0(v0: i64):
    brif v0, block1, block2
block1:
    v1 = iconst.i64 -1
    v2 = iadd v0, v1
    v3 = call fn0(v2)
    return v3
block2:
    v4 = iconst.i64 {k}
    return v4
}}
"
    )
}

/// A function that returns the address of `of`.
pub fn address(linkage: &str, name: &str, of: &str) -> String {
    format!(
        "{linkage} function %{name}() -> i64 system_v {{
    fn0 = %{of}(i64) -> i64 system_v
block0:
    v0 = func_addr.i64 fn0
    return v0
}}
"
    )
}

/// An exported function that returns the address of a symbol, of code or data.
pub fn address_of_symbol(name: &str, of: &str) -> String {
    format!(
        "export function %{name}(i64) -> i64 system_v {{
    gv0 = symbol %{of}
block0(v0: i64):
    v1 = symbol_value.i64 gv0
    return v1
}}
"
    )
}

/// An exported function that returns what is found at a symbol.
pub fn reads_symbol(name: &str, of: &str) -> String {
    address_of_symbol(name, of).replace("return v1", "v2 = load.i64 v1\n    return v2")
}

/// A function that calls the entry of `table` whose number is its argument, with that number.
pub fn through(linkage: &str, name: &str, table: &str) -> String {
    format!(
        "{linkage} function %{name}(i64) -> i64 system_v {{
    gv0 = symbol %{table}
    sig0 = (i64) -> i64 system_v
block0(v0: i64):
    v1 = symbol_value.i64 gv0
    v2 = iconst.i64 3
    v3 = ishl v0, v2
    v4 = iadd v1, v3
    v5 = load.i64 v4
    v6 = call_indirect sig0, v5(v0)
    return v6
}}
"
    )
}

/// A function that reads through a pointer, with these facts of the load.
pub fn reads(linkage: &str, name: &str, flags: &str) -> String {
    format!(
        "{linkage} function %{name}(i64) -> i64 system_v {{
block0(v0: i64):
    v1 = load.i64 {flags} v0
    v2 = load.i64 {flags} v0+8
    v3 = iadd v1, v2
    return v3
}}
"
    )
}

/// Calls a function of the JIT.
#[track_caller]
pub fn call(module: &MergingModule<JITModule>, name: &str, argument: i64) -> i64 {
    call_at(module.get_finalized_function(id(module, name)), argument)
}

/// Calls a function of one number at an address.
#[track_caller]
pub fn call_at(code: *const u8, argument: i64) -> i64 {
    jit::run(&[Run::with(code, argument)]).first().expect("a call that returns").result
}

/// A symbol of an object file: the name of its section and its place in it.
#[track_caller]
pub fn place(product: &ObjectProduct, name: &str) -> (String, u64) {
    let symbol = product.object.symbol_id(name.as_bytes()).expect("a symbol");
    let symbol = product.object.symbol(symbol);
    let section = symbol.section.id().unwrap_or_else(|| panic!("{name} is defined"));
    let section = product.object.section(section);
    (section.name().unwrap_or_default().to_owned(), symbol.value)
}
