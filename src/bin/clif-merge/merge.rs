//! `clif-merge merge`: the merged unit as CLIF.
//!
//! Reads a unit, merges, writes text. Here is also what other subcommands say of a merged unit: one
//! line, and the table of what became of each function.

use crate::args::{Common, Input};
use crate::check::check;
use crate::codegen::Compiler;
use crate::emit_text::emit;
use crate::exit::Exit;
use crate::output::Output;
use crate::pass::{self, Merged};
use crate::table::{Align, render};
use anyhow::Result;
use cranelift_mergefunc::Disposition;
use std::path::PathBuf;
use std::process::ExitCode;

/// Merge functions and print what is left as CLIF
///
/// The functions are in the order of the input. A function whose callers now call another one is
/// gone. One whose symbol must survive becomes a function that calls the other one, below a
/// directive 'thunk=%f': in native code it is a single jump. The output can be merged again, which
/// changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", crate::exit::HELP))]
pub struct Opts {
    #[command(flatten)]
    input: Input,

    /// Where to write the merged unit; '-' is standard output
    #[arg(short, long, value_name = "OUT.clif", default_value = "-")]
    output: PathBuf,

    /// Print a table on standard error: what became of each function, and why
    #[arg(short = 'D', long)]
    dispositions: bool,

    /// Turn exported functions with insignificant addresses into aliases instead of thunks
    ///
    /// CLIF has no aliases: they are written like thunks, below a directive 'alias=%f', which
    /// 'compile' understands.
    #[arg(long, help_heading = "Merging")]
    aliases: bool,

    #[command(flatten)]
    common: Common,
}

const EXAMPLES: &str = "\
Examples:
  clif-merge merge unit.clif
  clif-merge merge a.clif b.clif -o merged.clif
  clif-merge merge --linkage local --addresses insignificant -D wasm.clif -o /dev/null
  producer | clif-merge merge --verify - | consumer";

/// Merges and writes.
///
/// # Errors
///
/// What cannot be read or written, and with `--verify` what is wrong with the result.
pub fn run(opts: Opts) -> Result<ExitCode> {
    let Opts { input, output, dispositions, aliases, common } = opts;
    let output = Output::check(&output)?;
    let isa = common.isa()?;
    let unit = input.read(&common.general)?;
    let options = common.pass.options(&*isa, aliases);
    let mut compiler = Compiler::new(&*isa);
    let merged = pass::merge(&unit, &options, &mut |func| compiler.size(func))?;
    if common.pass.verify {
        check(&unit, &merged, &options, &*isa)?;
    }
    output.write(emit(&unit, &merged).as_bytes())?;
    if dispositions {
        eprint_table(&merged);
    }
    common.general.say(&summary(&merged));
    if common.general.verbose {
        common.general.say(&details(&merged));
    }
    Ok(Exit::Done.into())
}

/// One line for a person: how many functions became what.
pub fn summary(merged: &Merged) -> String {
    let [mut redirected, mut aliases, mut thunks] = [0; 3];
    for (_, entry) in merged.plan.entries() {
        match entry.disposition() {
            Disposition::Keep => {}
            Disposition::Redirect { .. } => redirected += 1,
            Disposition::Alias { .. } => aliases += 1,
            Disposition::Thunk { .. } => thunks += 1,
        }
    }
    let shared = merged.plan.shared_bodies().len();
    let total = merged.plan.entries().len() - shared;
    let count = |number: usize, one: &str, many: &str| match number {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{number} {many}")),
    };
    let parts: Vec<String> = [
        count(redirected, "redirected", "redirected"),
        count(aliases, "alias", "aliases"),
        count(thunks, "thunk", "thunks"),
        count(shared, "new shared body", "new shared bodies"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let functions = if total == 1 { "function" } else { "functions" };
    let all = redirected + aliases + thunks;
    match parts.is_empty() {
        true => format!("merged {all} of {total} {functions}"),
        false => format!("merged {all} of {total} {functions}: {}", parts.join(", ")),
    }
}

/// What the pass did, for `--verbose`.
pub fn details(merged: &Merged) -> String {
    let stats = merged.plan.stats();
    format!(
        "walked {} functions with {} instructions; {} classes, {} functions share theirs; \
         {} representatives lost promises",
        stats.walk_functions,
        stats.walk_instructions,
        stats.refine_classes_after,
        stats.plan_members,
        stats.plan_weakened,
    )
}

/// Prints what became of each function.
pub fn eprint_table(merged: &Merged) {
    let name = |function| merged.names.display(merged.plan.entry(function).symbol());
    let heading = ["function", "disposition", "representative", "reason"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for (function, entry) in merged.plan.entries() {
        let representative = entry.disposition().representative().map_or("-".to_owned(), name);
        let disposition = entry.disposition().name().to_owned();
        rows.push(vec![name(function), disposition, representative, entry.reason().to_string()]);
    }
    use std::io::Write as _;
    // A closed standard error is no reason to fail: the result is written.
    let _ = write!(anstream::stderr(), "{}", render(&[Align::Left; 4], &rows));
}
