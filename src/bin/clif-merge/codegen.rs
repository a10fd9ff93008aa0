//! Compiling one function after another.
//!
//! Wraps Cranelift's `Context`: the time is taken around the compilation alone, and what Cranelift
//! refuses or panics about becomes an error that names the function. Emits nothing.

use crate::exit::contain;
use crate::isa;
use crate::unit::Unit;
use anyhow::{Result, anyhow};
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::{CodegenError, CompiledCode, Context};
use cranelift_mergefunc::cranelift_codegen;
use std::time::{Duration, Instant};

/// A context that is used for many functions.
pub struct Compiler<'a> {
    isa: &'a dyn TargetIsa,
    context: Context,
    /// The time spent in Cranelift so far.
    pub time: Duration,
}

impl<'a> Compiler<'a> {
    /// Compiles for `isa`.
    pub fn new(isa: &'a dyn TargetIsa) -> Compiler<'a> {
        Compiler { isa, context: Context::new(), time: Duration::ZERO }
    }

    /// Compiles a function.
    ///
    /// # Errors
    ///
    /// What Cranelift says.
    pub fn compile(&mut self, func: Function) -> Result<&CompiledCode, String> {
        let Compiler { isa, context, time } = self;
        context.func = func;
        let start = Instant::now();
        let compiled = contain(|| {
            context.compile(*isa, &mut Default::default()).map(drop).map_err(|error| error.inner)
        });
        *time += start.elapsed();
        let error = match compiled {
            Ok(Ok(())) => {
                return Ok(self.context.compiled_code().expect("compiled"));
            }
            Ok(Err(CodegenError::Verifier(errors))) => errors.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("Cranelift panicked: {panic}"),
        };
        // A panic can leave anything behind.
        self.context = Context::new();
        Err(error)
    }

    /// Compiles a function of a unit, or its merged form.
    ///
    /// # Errors
    ///
    /// What Cranelift says, with the name and the place of the function.
    pub fn compile_of(
        &mut self,
        unit: &Unit,
        function: usize,
        func: Function,
    ) -> Result<&CompiledCode> {
        let isa = self.isa;
        self.compile(func).map_err(|error| {
            let given = &unit.given[function];
            let name = unit.names.display(&given.symbol);
            let target = isa::name_of(isa);
            anyhow!("{}: cannot compile function {name} for {target}: {error}", given.place)
        })
    }

    /// The size of the code of a function, if it can be compiled.
    pub fn size(&mut self, func: &Function) -> Option<u32> {
        self.compile(func.clone()).ok().map(size)
    }
}

/// The size of compiled code in bytes, constants included.
pub fn size(code: &CompiledCode) -> u32 {
    code.code_info().total_size
}
