//! An ahead-of-time compiler, with and without merging: it compiles the same program twice, links
//! both with a C `main`, runs both, and compares what they print and how large they are.
//!
//! ```text
//! cargo run --example aot             # a program made of generic functions
//! cargo run --example aot -- FILE     # a program in the language of lang/mod.rs
//! ```
//!
//! The change that merging needs is in `with_merging`: another module, and nothing else. The
//! example needs a C compiler called `cc`, and works in a temporary directory.

mod lang;

use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_mergefunc::Addresses;
use cranelift_mergefunc::cranelift_codegen;
use cranelift_mergefunc_module::cranelift_module::{Linkage, default_libcall_names};
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions, ModuleStats};
use cranelift_object::object::write::StandardSection;
use cranelift_object::{ObjectBuilder, ObjectModule, ObjectProduct};
use lang::{Compiler, Function};
use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Functions that are generic over a type `T` of numbers, as a compiler of generics instantiates
/// them. They differ only where the addition of the type does.
const GENERIC: &str = "
fn multiple_T(x, n) = if n == 0 then 0 else add_T(multiple_T(x, n - 1), x)
fn scale_T(x, n) = x * n
fn power_T(x, n) = if n == 0 then 1 else scale_T(power_T(x, n - 1), x)
fn clamp_T(x, low, high) = if x < low then low else if x > high then high else x
fn sum_T(n) = if n == 0 then 0 else add_T(sum_T(n - 1), n)
fn is_even_T(n) = if n == 0 then 1 else is_odd_T(n - 1)
fn is_odd_T(n) = if n == 0 then 0 else is_even_T(n - 1)
multiple_T(5, 7); power_T(2, 10); clamp_T(99, 3, 40); sum_T(100); is_even_T(30);
";

/// The types, and their additions.
const TYPES: [(&str, &str); 6] = [
    ("Metres", "a + b"),
    ("Seconds", "b + a"),
    ("Grams", "a + b"),
    ("Euros", "a + b"),
    ("Hours", "(a + b) % 12"),
    ("Months", "(a + b) % 12"),
];

fn instances() -> String {
    let mut source = String::new();
    for (name, addition) in TYPES {
        source += &format!("fn add_{name}(a, b) = {addition}\n");
        source += &GENERIC.replace("_T", &format!("_{name}"));
    }
    source
}

fn object_module() -> Result<ObjectModule, Box<dyn Error>> {
    let mut flags = settings::builder();
    flags.set("is_pic", "true")?;
    flags.set("opt_level", "speed")?;
    let isa: OwnedTargetIsa = cranelift_native::builder()?.finish(settings::Flags::new(flags))?;
    Ok(ObjectModule::new(ObjectBuilder::new(isa, "program", default_libcall_names())?))
}

fn without_merging(functions: &[Function]) -> Result<ObjectProduct, Box<dyn Error>> {
    let mut module = object_module()?;
    Compiler::new(Linkage::Export).define(&mut module, functions)?;
    Ok(module.finish())
}

fn with_merging(functions: &[Function]) -> Result<(ObjectProduct, ModuleStats), Box<dyn Error>> {
    let options = ModuleOptions {
        // This program compares no addresses of functions, so two symbols may have the same one.
        function_addresses: Addresses::Insignificant,
        // For `flush`; `finish` sets the back end itself.
        back_end: BackEnd::Object,
        ..ModuleOptions::default()
    };
    let mut module = MergingModule::with_options(object_module()?, options);
    Compiler::new(Linkage::Export).define(&mut module, functions)?;
    module.flush()?;
    let stats = *module.stats();
    Ok((module.finish()?, stats))
}

/// A `main` that prints what the expressions of the program come to.
fn c_main(functions: &[Function]) -> String {
    let mut source = "#include <inttypes.h>\n#include <stdio.h>\n".to_owned();
    let expressions = || functions.iter().filter(|function| function.is_expression);
    for Function { name, .. } in expressions() {
        source += &format!("int64_t {}(void);\n", name.text);
    }
    source += "int main(void) {\n";
    for Function { name, .. } in expressions() {
        source += &format!("    printf(\"%\" PRId64 \"\\n\", {}());\n", name.text);
    }
    source + "    return 0;\n}\n"
}

/// A program that was compiled, linked and run.
struct Built {
    code_bytes: u64,
    object_bytes: usize,
    printed: String,
}

fn build(
    directory: &Path,
    name: &str,
    mut product: ObjectProduct,
) -> Result<Built, Box<dyn Error>> {
    let text = product.object.section_id(StandardSection::Text);
    let code_bytes = product.object.section(text).data().len() as u64;
    let object = product.emit()?;
    let object_file = format!("{name}.o");
    std::fs::write(directory.join(&object_file), &object)?;
    let linked = Command::new("cc")
        .args(["main.c", &object_file, "-o", name])
        .current_dir(directory)
        .output()
        .map_err(|error| format!("cc: {error}"))?;
    if !linked.status.success() {
        return Err(format!("cc: {}", String::from_utf8_lossy(&linked.stderr)).into());
    }
    let ran = Command::new(directory.join(name)).output()?;
    if !ran.status.success() {
        return Err(format!("the program {name}: {}", ran.status).into());
    }
    Ok(Built { code_bytes, object_bytes: object.len(), printed: String::from_utf8(ran.stdout)? })
}

fn run() -> Result<(), Box<dyn Error>> {
    let source = match std::env::args().nth(1) {
        None => instances(),
        Some(path) => std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?,
    };
    let functions = lang::parse(&source, 1)?;
    let (merged, stats) = with_merging(&functions)?;

    let directory = tempfile::tempdir()?;
    std::fs::write(directory.path().join("main.c"), c_main(&functions))?;
    let plain = build(directory.path(), "plain", without_merging(&functions)?)?;
    let merged = build(directory.path(), "merged", merged)?;

    let ModuleStats { functions, compiled, redirects, aliases, thunks, .. } = stats;
    println!("{functions} functions: {compiled} compiled,");
    println!("  {redirects} eliminated, {aliases} aliases, {thunks} thunks");
    println!("                without   with merging");
    println!("code bytes    {:9} {:14}", plain.code_bytes, merged.code_bytes);
    println!("object bytes  {:9} {:14}", plain.object_bytes, merged.object_bytes);
    if plain.printed != merged.printed {
        return Err("the programs print different results".into());
    }
    println!("both print the same {} results", plain.printed.lines().count());
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
