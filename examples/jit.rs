//! A runtime that compiles functions as they arrive, and merges equal ones into functions that are
//! compiled already, even if those were compiled long before.
//!
//! ```text
//! cargo run --example jit -- --demo      # a session to look at
//! cargo run --example jit -- FILE        # lines of FILE
//! cargo run --example jit                # lines of standard input, or a prompt
//! ```
//!
//! Each line is functions or expressions of the language in `lang/mod.rs`, or `:map`, which prints
//! the code and the functions that it implements, in the format that `perf` reads. `stack(x)` is
//! `x`, and prints which functions called it, and where: those that the source names, although they
//! share code.
//!
//! The change that merging needs is the type of [`Session::module`]. The rest is what any user of
//! `JITModule` writes. A function that never returns overflows the stack, as native code does.

mod lang;
#[path = "jit/stack.rs"]
mod stack;

use cranelift_jit::{JITBuilder, JITModule};
use cranelift_mergefunc::explain::{Candidate, Frame, MergeMap};
use cranelift_mergefunc_module::cranelift_module::{
    FuncId, Linkage, ModuleError, default_libcall_names,
};
use cranelift_mergefunc_module::{MergingModule, ModuleOptions, ModuleStats};
use lang::{Compiler, Error, Place};
use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;

/// Later duplicates are merged into functions that were compiled before: functions that call
/// themselves or each other, too, and expressions that were evaluated before.
const DEMO: &str = "\
fn square(x) = x * x
fn area(side) = side * side
area(7) - square(2)
fn fib(n) = if n < 2 then n else fib(n - 1) + fib(n - 2)
fn rabbits(months) = if months < 2 then months else rabbits(months - 1) + rabbits(months - 2)
rabbits(20)
fib(20)
fn even(n) = if n == 0 then 1 else odd(n - 1)  fn odd(n) = if n == 0 then 0 else even(n - 1)
fn whole(n) = if n == 0 then 1 else half(n - 1)  fn half(n) = if n == 0 then 0 else whole(n - 1)
even(10); half(10)
fn seen(x) = 1 + stack(x)
fn looked(at) = 1 + stack(at)
seen(2) + looked(3)
fn cube(x) = x * square(x)
fn volume(edge) = edge * area(edge)
volume(-3)
:map
";

struct Session {
    module: MergingModule<JITModule>,
    compiler: Compiler,
    /// Whether there was an error.
    failed: bool,
}

impl Session {
    fn new() -> Result<Self, ModuleError> {
        let flags = [("opt_level", "speed"), ("preserve_frame_pointers", "true")];
        let mut builder = JITBuilder::with_flags(&flags, default_libcall_names())?;
        builder.symbol("stack", stack::stack as *const u8);
        let options = ModuleOptions { backtraces: true, ..ModuleOptions::default() };
        let mut module = MergingModule::with_options(JITModule::new(builder), options);
        // Expressions are local, so that a second evaluation only adds a name.
        let mut compiler = Compiler::new(Linkage::Local);
        compiler.import(&mut module, "stack")?;
        Ok(Session { module, compiler, failed: false })
    }

    /// Runs all lines, each as it comes.
    fn run(&mut self, lines: impl BufRead, prompt: &str, echo: bool) -> std::io::Result<()> {
        let mut lines = lines.lines();
        for number in 1.. {
            print!("{prompt}");
            std::io::stdout().flush()?;
            let Some(line) = lines.next().transpose()? else {
                break;
            };
            if echo {
                println!("{line}");
            }
            if line.trim() == ":map" {
                print!("{}", self.module.finalized_map().perf_map());
            } else if let Err(error) = self.line(&line, number) {
                println!("error: {error}");
                self.failed = true;
            }
        }
        // The next output begins on a line of its own.
        if !prompt.is_empty() {
            println!();
        }
        Ok(())
    }

    fn line(&mut self, line: &str, number: usize) -> Result<(), Error> {
        let functions = lang::parse(line, number)?;
        let ids = self.compiler.define(&mut self.module, &functions)?;
        // The definitions of the line are merged and compiled here.
        self.module.finalize_definitions().map_err(|error| {
            Error::new(Place { line: number, column: 1 }, format!("cannot be compiled: {error}"))
        })?;
        for (function, id) in functions.iter().zip(ids) {
            if function.is_expression {
                let map = self.module.finalized_map();
                let value = stack::within(&map, || self.evaluate(id));
                for frames in stack::take() {
                    println!("{}", called(&map, &frames));
                }
                println!("{value}");
            }
        }
        Ok(())
    }

    /// Calls the function of an expression.
    #[expect(unsafe_code, reason = "there is no other way to call compiled code")]
    fn evaluate(&self, expression: FuncId) -> i64 {
        // It has an address even if it was merged away: that of the code that replaces it.
        let address = self.module.get_finalized_function(expression);
        // SAFETY: the function was declared with no parameters, one 64-bit integer as its result
        // and the calling convention of the host, and so was the function that it was merged into.
        // Its code was finalized by now and is never freed.
        let function = unsafe { std::mem::transmute::<*const u8, extern "C" fn() -> i64>(address) };
        function()
    }

    fn report(&self) {
        let stats = self.module.stats();
        let &ModuleStats { functions, compiled, code_bytes, saved_code_bytes, .. } = stats;
        println!("{functions} functions defined, {compiled} compiled, {} merged", stats.merged());
        println!("{code_bytes} bytes of code, {saved_code_bytes} bytes saved");
        println!("{} bytes to remember them by", self.module.remembered_bytes());
    }
}

/// The functions of a stack, innermost first, each with the place of its call.
fn called(map: &MergeMap, returns: &[u64]) -> String {
    let frame = |frame: &Frame<'_>| {
        let one = |candidate: &Candidate<'_>| {
            let place = candidate.location.map(Place::of);
            let at = place.map_or(String::new(), |at| format!(" {}:{}", at.line, at.column));
            candidate.function.name.clone() + &at
        };
        frame.candidates.iter().map(one).collect::<Vec<_>>().join(" or ")
    };
    map.frames(None, returns).iter().map(frame).collect::<Vec<_>>().join(" < ")
}

fn run() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut session = Session::new()?;
    let stdin = std::io::stdin();
    match std::env::args().nth(1).as_deref() {
        Some("--demo") => session.run(DEMO.as_bytes(), "> ", true)?,
        Some(path) => {
            let file = std::fs::File::open(path).map_err(|error| format!("{path}: {error}"))?;
            session.run(std::io::BufReader::new(file), "", false)?;
        }
        None if stdin.is_terminal() => {
            session.run(DEMO.as_bytes(), "> ", true)?;
            session.run(stdin.lock(), "> ", false)?;
        }
        None => session.run(stdin.lock(), "", false)?,
    }
    session.report();
    Ok(if session.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}
