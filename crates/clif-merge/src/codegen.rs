//! Compiling one function after another.
//!
//! Wraps Cranelift's `Context`: what Cranelift
//! refuses or panics about becomes an error that names the function, and the settings of the target
//! that would help. Emits nothing.

use anyhow::{Result, anyhow};
use clif_unit::contain::contain;
use clif_unit::error::with_lines;
use clif_unit::isa;
use clif_unit::listings::Listings;
use clif_unit::unit::{Given, Source, Unit};
use clif_unit::verify::depends_on_settings;
use cranelift_codegen::ir::{Function, Inst};
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::verifier::VerifierErrors;
use cranelift_codegen::{CodegenError, CompiledCode, Context, verify_function};
use cranelift_mergefunc::cranelift_codegen;
use std::fmt;

/// A context that is used for many functions.
pub struct Compiler<'a> {
    isa: &'a dyn TargetIsa,
    context: Context,
}

impl<'a> Compiler<'a> {
    /// Compiles for `isa`.
    pub fn new(isa: &'a dyn TargetIsa) -> Compiler<'a> {
        Compiler { isa, context: Context::new() }
    }

    /// Compiles a function.
    ///
    /// # Errors
    ///
    /// Errors of Cranelift.
    pub fn compile(&mut self, func: Function) -> Result<&CompiledCode, String> {
        let Compiler { isa, context } = self;
        check_settings(&func, *isa)?;
        context.func = func;
        let compiled = contain(|| {
            context.compile(*isa, &mut Default::default()).map(drop).map_err(|error| error.inner)
        });
        let error = match compiled {
            Ok(Ok(())) => {
                return Ok(self.context.compiled_code().expect("compiled"));
            }
            Ok(Err(CodegenError::Verifier(errors))) => message(&errors),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("Cranelift panicked: {panic}"),
        };
        // A panic can leave anything behind.
        self.context = Context::new();
        Err(error)
    }

    /// The native code of a function, as Cranelift writes it down.
    ///
    /// # Errors
    ///
    /// Errors of Cranelift.
    pub fn listing(&mut self, func: Function) -> Result<String, String> {
        self.context.set_disasm(true);
        let listing = self.compile(func).map(|code| code.vcode.clone().unwrap_or_default());
        self.context.set_disasm(false);
        listing
    }

    /// Compiles a function of a unit, or its merged form.
    ///
    /// # Errors
    ///
    /// Errors of Cranelift, with the function of the unit.
    pub fn compile_of(
        &mut self,
        function: usize,
        func: Function,
    ) -> Result<&CompiledCode, Refused> {
        self.compile(func).map_err(|error| Refused { function, error })
    }

    /// The size of the code of a function, if it can be compiled.
    pub fn size(&mut self, func: &Function) -> Option<u32> {
        self.compile(func.clone()).ok().map(size)
    }
}

/// Cranelift cannot compile a function for a target.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The index of the function in its unit.
    pub function: usize,
    /// Why not.
    pub error: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// The error of a program that cannot go on: at the instruction that Cranelift names, or else
    /// at the function.
    pub fn into_error(self, unit: &Unit, sources: &[Source], isa: &dyn TargetIsa) -> anyhow::Error {
        let Refused { function, error } = &self;
        let given = &unit.given[*function];
        let name = unit.names.describe(&given.symbol);
        let target = isa::name_of(isa);
        let hint = match missing_settings(unit, *function, isa) {
            Some(settings) if !settings.is_empty() => {
                format!("; it can be compiled with {}", Switches(&settings))
            }
            Some(_) | None => String::new(),
        };
        let message = format!("cannot compile function {name} for {target}: {error}{hint}");
        let place = quoted(&unit.functions[*function], error)
            .and_then(|inst| Listings::of(sources).place_of(&given.place, inst.into()));
        let place = place.unwrap_or_else(|| given.place.clone());
        with_lines(place.error(message).into(), sources)
    }
}

/// Cranelift cannot compile a body for several functions, each of which it can compile.
#[derive(Clone, Debug)]
pub struct RefusedBody {
    /// The indices of the functions in their unit.
    pub members: Vec<usize>,
    /// Why not.
    pub error: String,
}

impl fmt::Display for RefusedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl std::error::Error for RefusedBody {}

impl RefusedBody {
    /// The error of a program that cannot go on: at the functions that share the body.
    pub fn into_error(self, unit: &Unit, sources: &[Source], isa: &dyn TargetIsa) -> anyhow::Error {
        let RefusedBody { members, error } = self;
        let target = isa::name_of(isa);
        let mut members = members.iter().map(|&member| &unit.given[member]);
        let Some(first) = members.next() else {
            return anyhow!(
                "cannot compile a body that functions of the unit share for {target}: {error}"
            );
        };
        let name = |given: &Given| unit.names.describe(&given.symbol);
        let message = format!(
            "cannot compile the body that function {} and others share for {target}, although it can compile each \
             function: {error}; keep them apart with ';@ identical-only' above each, or with '--similar off'",
            name(first),
        );
        let error = members.take(MAX_NAMED).fold(first.place.error(message), |error, given| {
            error.and(&given.place, format!("{} shares the body", name(given)))
        });
        with_lines(error.into(), sources)
    }
}

/// How many of the other functions an error names that share a body.
const MAX_NAMED: usize = 3;

/// The error for a body of these functions that cannot be compiled: the one of the first function
/// that cannot be compiled either, as [`Refused`], or else a [`RefusedBody`].
pub fn refused_body(
    unit: &Unit,
    isa: &dyn TargetIsa,
    members: Vec<usize>,
    error: String,
) -> anyhow::Error {
    let mut compiler = Compiler::new(isa);
    let mut compile = |&member: &usize| {
        compiler.compile_of(member, unit.functions[member].clone()).map(drop).err()
    };
    match members.iter().find_map(&mut compile) {
        Some(refused) => refused.into(),
        None => RefusedBody { members, error }.into(),
    }
}

/// The instruction of a function that a message of Cranelift quotes: `inst3 (v1 = ...)` or, in back
/// quotes, its text alone. The numbers of a function that was changed since it was read are not its
/// own; then the text differs, too.
fn quoted(func: &Function, message: &str) -> Option<Inst> {
    let insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
    let is_quoted = |inst: &Inst| {
        let text = func.dfg.display_inst(*inst).to_string();
        message.contains(&format!("{inst} ({text})")) || message.contains(&format!("`{text}`"))
    };
    let mut all = insts.filter(is_quoted);
    // Instructions without results may have one text.
    all.next().filter(|_| all.next().is_none())
}

/// The settings that `isa` lacks for a function of a unit; `None` if none helps.
pub fn missing_settings(
    unit: &Unit,
    function: usize,
    isa: &dyn TargetIsa,
) -> Option<Vec<&'static str>> {
    let func = &unit.functions[function];
    isa::missing(isa, &mut |isa| Compiler::new(isa).compile(func.clone()).is_ok())
}

/// Settings as the command line switches them on.
pub struct Switches<'a>(pub &'a [&'static str]);

impl fmt::Display for Switches<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.0.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}--set {name}")?;
        }
        Ok(())
    }
}

/// Whether code can be generated for a valid function under the settings of `isa`, as far as only
/// Cranelift's verifier asks for that: it does not run before code generation.
///
/// # Errors
///
/// The setting that does not fit.
pub fn check_settings(func: &Function, isa: &dyn TargetIsa) -> Result<(), String> {
    if !depends_on_settings(func) {
        return Ok(());
    }
    match contain(|| verify_function(func, isa)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(errors)) => Err(message(&errors)),
        Err(panic) => Err(format!("Cranelift's verifier panicked: {panic}")),
    }
}

/// The first error of the verifier, in one line.
fn message(errors: &VerifierErrors) -> String {
    errors.0.first().map_or(String::new(), |error| error.to_string())
}

/// The size of compiled code in bytes, constants included.
pub fn size(code: &CompiledCode) -> u32 {
    code.code_info().total_size
}

#[cfg(test)]
mod tests {
    use super::refused_body;
    use crate::codegen::RefusedBody;
    use clif_unit::isa;
    use clif_unit::unit::{Reading, Source, parse_unit};
    use clif_unit::verify::Verifier;

    /// A new body that cannot be compiled was an error without a function, a place and anything to
    /// do about it.
    #[test]
    fn a_body_that_cannot_be_compiled_names_its_functions() {
        let text =
            "function %a() {\nblock0:\n    return\n}\nfunction %b() {\nblock0:\n    return\n}\n";
        let sources = [Source { name: "t".to_owned(), text: text.to_owned() }];
        let verifier = Verifier::without_target();
        let unit = parse_unit(&sources, Reading::plain(&verifier)).unwrap();
        let [isa] = isa::build([isa::short("x86_64")], &[]).unwrap();
        let error = refused_body(&unit, &*isa, vec![0, 1], "no registers".to_owned());
        let error = error.downcast::<RefusedBody>().unwrap().into_error(&unit, &sources, &*isa);
        assert_eq!(
            error.to_string(),
            "t:1: cannot compile the body that function %a and others share for x86_64, although it can compile each \
             function: no registers; keep them apart with ';@ identical-only' above each, or with '--similar off'\n\
             t:5: %b shares the body"
        );
    }
}
