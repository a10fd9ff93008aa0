//! Functions and data objects that two modules have, and what the modules say of them.

use super::shapes::{Contents, Shape};
use cranelift_codegen::CodegenError;
use cranelift_module::{DataId, FuncId, ModuleError, ModuleResult};

/// A function of both modules.
pub struct FunctionHandle {
    /// In the plain module and in the one that merges.
    pub ids: [FuncId; 2],
    /// Whether it returns more than any back end can, so that no body of it compiles.
    pub wide: bool,
    /// Its shape, once it is defined.
    pub shape: Option<Shape>,
    /// Whether its address is significant.
    pub significant: bool,
    /// Whether the host compares its address.
    pub address_taken: bool,
    /// Pinned, or not to be merged.
    pub stays: bool,
    pub alignment: u32,
    pub flushed: bool,
    /// Whether it could be seen from outside when it was flushed.
    pub seen: bool,
    /// Code runs that resolved it to something outside.
    pub outside: bool,
}

impl FunctionHandle {
    pub fn is_ir(&self) -> bool {
        self.shape.as_ref().is_some_and(|shape| !matches!(shape, Shape::Bytes { .. }))
    }

    /// The alignment of its code. Functions defined by bytes have theirs in the definition.
    pub fn alignment(&self) -> u32 {
        if self.is_ir() { self.alignment } else { 1 }
    }
}

/// A data object of both modules.
pub struct DataHandle {
    pub ids: [DataId; 2],
    pub tls: bool,
    pub contents: Contents,
    pub defined: bool,
    pub significant: bool,
    pub pinned: bool,
    pub outside: bool,
}

/// The names of functions and data objects in both modules.
pub struct Names {
    pub functions: Vec<[String; 2]>,
    pub data: Vec<[String; 2]>,
}

/// The calls that were made, which are printed if one of them panics.
pub struct Calls(pub Vec<String>);

impl Calls {
    pub fn add(&mut self, call: String) {
        // Where code runs, a failure need not be a panic.
        if std::env::var_os("FUZZ_TRACE").is_some() {
            eprintln!("{call}");
        }
        self.0.push(call);
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0.join("\n"));
        }
    }
}

/// The results of a call on both modules, if they are any.
pub fn same<T>(what: &str, bare: ModuleResult<T>, merging: ModuleResult<T>) -> Option<[T; 2]> {
    match (bare, merging) {
        (Ok(bare), Ok(merging)) => Some([bare, merging]),
        (Err(bare), Err(merging)) => {
            assert_eq!(kind(&bare), kind(&merging), "{what}");
            None
        }
        (Err(bare), Ok(_)) => panic!("{what}: {bare}, but merging accepts it"),
        (Ok(_), Err(merging)) => panic!("{what}: merging says {merging}"),
    }
}

/// The kind of an error, without the parts that differ between two modules that got the same calls.
pub fn kind(error: &ModuleError) -> String {
    // Errors about anonymous functions and objects contain their number.
    let known = |name: &str| if name.starts_with('.') { String::new() } else { name.to_owned() };
    match error {
        ModuleError::Undeclared(name) => format!("undeclared {}", known(name)),
        ModuleError::IncompatibleDeclaration(name) => format!("other declaration {}", known(name)),
        ModuleError::IncompatibleSignature(name, ..) => format!("other signature {}", known(name)),
        ModuleError::DuplicateDefinition(name) => format!("duplicate {}", known(name)),
        ModuleError::InvalidImportDefinition(name) => format!("import {}", known(name)),
        ModuleError::Compilation(CodegenError::Verifier(_)) => "compilation: verifier".to_owned(),
        ModuleError::Compilation(_) => "compilation: other".to_owned(),
        ModuleError::Allocation { .. } => "allocation".to_owned(),
        ModuleError::Backend(_) => "back end".to_owned(),
        ModuleError::Flag(_) => "flag".to_owned(),
    }
}
