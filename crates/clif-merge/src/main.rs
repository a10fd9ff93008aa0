//! `clif-merge`: function merging for Cranelift IR on the command line.
//!
//! One file for each subcommand; this one reads the command line, sets up how the program ends,
//! and starts the subcommand. It does no work of its own.
#![deny(unsafe_code)]

mod args;
mod bisect;
mod canonical;
mod check;
mod codegen;
mod combine;
mod compile;
mod decisions;
mod diff;
mod emit_object;
mod exit;
mod explore;
mod families;
mod filetest;
mod input;
mod install;
mod jit;
mod jobs;
mod linked;
mod locate;
mod measure;
mod memory;
mod merge;
mod neighbours;
mod output;
mod page;
mod progress;
mod remarks;
mod report;
mod report_text;
mod sharing;
mod similar;
mod snippet;
mod stack;
mod summarize;
mod table;
mod test;
mod unfinished;
mod why;
mod why_data;

use clap::{CommandFactory as _, Parser, Subcommand};
use exit::Exit;
use std::ffi::OsString;
use std::process::ExitCode;

/// Merge functions of Cranelift IR that do the same thing.
///
/// All files of one call are a unit. Its functions are compared; of each class of
/// equal functions one body is kept, and the others become redirected calls,
/// aliases or jumps. Attributes that CLIF cannot express are directives, comment
/// lines right above the function. Data objects are directives of their own:
///
///   ;@ data %table linkage=local align=8 = "abc\00" u32 7 %f
///
///   ;@ linkage=local addresses=insignificant
///   function %f(i32) -> i32 {
///
/// Results go to standard output, everything else to standard error.
#[derive(Debug, Parser)]
#[command(
    name = "clif-merge",
    version,
    verbatim_doc_comment,
    after_help = EXAMPLES,
    after_long_help = format!("{EXAMPLES}\n\n{}", exit::HELP),
)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// When to use colours; 'auto' heeds NO_COLOR and whether the output is a terminal
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = Color::Auto)]
    color: Color,
}

const EXAMPLES: &str = "\
Examples:
  clif-merge merge unit.clif                     print the merged unit
  clif-merge compile unit.clif -o unit.o         make an object file of it
  clif-merge report unit.clif                    what merging saves and costs
  clif-merge report app.wasm                     the same of WebAssembly
  clif-merge why unit.clif %f %g                 why two functions did not merge
  clif-merge remarks unit.clif                   what was decided, and why
  clif-merge diff before.clif after.clif         which merges a change loses
  clif-merge explore app.wasm                    all of it in a browser
  clif-merge bisect unit.clif -- ./check.sh {}   which merge makes it fail
  clif-merge help report                         all about one subcommand";

#[derive(Debug, Subcommand)]
enum Command {
    Merge(merge::Opts),
    Compile(compile::Opts),
    Summarize(summarize::Opts),
    Combine(combine::Opts),
    Locate(locate::Opts),
    Report(report::Opts),
    Why(why::Opts),
    Explore(explore::Opts),
    Remarks(remarks::Opts),
    Diff(diff::Opts),
    Bisect(bisect::Opts),
    Test(test::Opts),
    Completions(install::Completions),
    Man(install::ManPages),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Color {
    /// Where the output is a terminal
    Auto,
    /// Never
    Never,
    /// Even where the output is a file
    Always,
}

/// Some functions of Cranelift's are recursive over what they compile, and a thread's stack is
/// backed by memory only where it is used.
const STACK_BYTES: usize = 256 << 20;

fn main() -> ExitCode {
    exit::install_panic_hook();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // Clap colours its own messages before it knows what the command line says about that.
    set_color(asked_color(&arguments));
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // A closed pipe is the only way for this to go wrong.
            let _ = error.print();
            return match error.use_stderr() {
                true => Exit::Usage.into(),
                false => Exit::Done.into(),
            };
        }
    };
    set_color(cli.color);
    let work = std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || run(cli.command).unwrap_or_else(|error| exit::report(&error).into()));
    match work.map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // The panic hook has printed the message.
        Ok(Err(_panic)) => Exit::Internal.into(),
        Err(error) => {
            exit::report(&anyhow::Error::new(error).context("cannot start a thread")).into()
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Merge(opts) => merge::run(opts),
        Command::Compile(opts) => compile::run(opts),
        Command::Summarize(opts) => summarize::run(opts),
        Command::Combine(opts) => combine::run(opts),
        Command::Locate(opts) => locate::run(opts),
        Command::Report(opts) => report::run(opts),
        Command::Why(opts) => why::run(opts),
        Command::Explore(opts) => explore::run(opts),
        Command::Remarks(opts) => remarks::run(opts),
        Command::Diff(opts) => diff::run(opts),
        Command::Bisect(opts) => bisect::run(opts),
        Command::Test(opts) => test::run(opts),
        Command::Completions(opts) => install::completions(&opts, Cli::command()),
        Command::Man(opts) => install::man(&opts, Cli::command()),
    }
}

fn asked_color(arguments: &[OsString]) -> Color {
    let asks = |color: &str| {
        let joined = format!("--color={color}");
        arguments.iter().any(|argument| *argument == *joined)
            || arguments.windows(2).any(|pair| pair[0] == "--color" && pair[1] == *color)
    };
    match (asks("never"), asks("always")) {
        (true, _) => Color::Never,
        (false, true) => Color::Always,
        (false, false) => Color::Auto,
    }
}

fn set_color(color: Color) {
    match color {
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Never => anstream::ColorChoice::Never,
        Color::Always => anstream::ColorChoice::Always,
    }
    .write_global();
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn verify_cli() {
        Cli::command().debug_assert();
    }
}
