//! How the program ends: its exit codes, and how errors and panics become them.
//!
//! Every end of the program is one of the values of [`Exit`]; no other number leaves it. This
//! module prints errors and decides nothing about what is one.

use crate::snippet::draw_error;
use anstyle::{AnsiColor, Style};
use clif_unit::contain::intercepted;
pub use clif_unit::error::usage;
use clif_unit::error::{TextError, UsageError};
use cranelift_mergefunc_canonical::panic_is_contained;
use cranelift_mergefunc_module::panic_is_passed_on;
use std::any::Any;
use std::fmt;
use std::io::Write as _;
use std::panic::PanicHookInfo;
use std::process::ExitCode;

/// The exit codes of `clif-merge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything that was requested is done.
    Done,
    /// The input cannot be used: an unreadable or unwritable path, malformed CLIF or WebAssembly, a
    /// function that the back end cannot compile, a pattern of names that matches no function, a
    /// unit for which there is not enough memory, a failed filetest.
    Input,
    /// The command line cannot be understood. Clap ends with the same code.
    Usage,
    /// A condition of the command line does not hold.
    Condition,
    /// The output of this program is wrong. A bug of this program.
    Bug,
    /// A panic. A bug of this program, too.
    Internal,
}

/// The text of `--help` on exit codes; the numbers are those of [`Exit::code`].
pub const HELP: &str = "\
Exit codes:
  0   done
  1   input error: a path that cannot be read or written, malformed CLIF or
      WebAssembly, a function that cannot be compiled, a pattern of names that
      matches no function of the unit, too little memory, a failed filetest
  2   usage: an unknown option or a bad value of one
  3   a requested condition does not hold (report --min-saved; diff --deny; a
      command of bisect that fails without merges, or does not fail with all)
  4   verification of the result failed: a bug in clif-merge
  70  internal error: a bug in clif-merge";

impl Exit {
    /// The number that the caller of the program sees.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Input => 1,
            Exit::Usage => 2,
            Exit::Condition => 3,
            Exit::Bug => 4,
            Exit::Internal => 70,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// An error that ends the program with another code than [`Exit::Input`].
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// A condition of the command line does not hold.
pub fn condition(message: impl Into<String>) -> anyhow::Error {
    Failure { exit: Exit::Condition, message: message.into() }.into()
}

/// Wrong output of this program.
pub fn bug(message: impl fmt::Display) -> anyhow::Error {
    let message = format!("{message}\n{REPORT}");
    Failure { exit: Exit::Bug, message }.into()
}

/// How to report a bug of this program.
const REPORT: &str = "this is a bug in clif-merge: please report it with the input";

/// Prints an error with its causes, and returns the exit code of the program.
pub fn report(error: &anyhow::Error) -> Exit {
    if is_broken_pipe(error) {
        // The reader of the output has closed the pipe.
        return Exit::Done;
    }
    // Nothing is left to be done if standard error is closed.
    if let Some(error) = error.downcast_ref::<TextError>() {
        let _ = writeln!(anstream::stderr(), "{}", draw_error(error));
        return Exit::Input;
    }
    let style = style();
    let _ = writeln!(anstream::stderr(), "{style}error{style:#}: {error}");
    for cause in error.chain().skip(1) {
        let _ = writeln!(anstream::stderr(), "  caused by: {cause}");
    }
    match error.downcast_ref::<Failure>() {
        Some(failure) => failure.exit,
        None if error.is::<UsageError>() => Exit::Usage,
        None => Exit::Input,
    }
}

/// Whether writing failed because the reader has closed the pipe.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn style() -> Style {
    Style::new().bold().fg_color(Some(AnsiColor::Red.into()))
}

/// Makes panics print one line. A backtrace follows only where `RUST_BACKTRACE` asks for one.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        let message = one_line(info);
        if intercepted(&message) {
            return;
        }
        if panic_is_contained() || panic_is_passed_on() {
            // The function is left as it is, or the thread that flushes panics.
            return;
        }
        let style = style();
        let mut stderr = anstream::stderr();
        let _ = writeln!(stderr, "{style}internal error{style:#}: {message}; {REPORT}");
        let wanted = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
        if wanted {
            let _ = writeln!(stderr, "{}", std::backtrace::Backtrace::force_capture());
        }
    }));
}

fn one_line(info: &PanicHookInfo<'_>) -> String {
    let payload: &dyn Any = info.payload();
    let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "a panic without a message",
    };
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match info.location() {
        Some(location) => format!("{text} ({}:{})", short_path(location.file()), location.line()),
        None => text,
    }
}

/// A source path from the name of its crate on, where it is one of a crate from the registry.
fn short_path(path: &str) -> &str {
    let crate_directory = path.rfind("/src/").map_or(path, |source| &path[..source]);
    match crate_directory.rfind('/') {
        Some(slash) if path.starts_with('/') => &path[slash + 1..],
        Some(_) | None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::{Exit, HELP, bug, report, short_path, usage};

    #[test]
    fn every_code_is_documented() {
        for exit in
            [Exit::Done, Exit::Input, Exit::Usage, Exit::Condition, Exit::Bug, Exit::Internal]
        {
            assert!(HELP.contains(&format!("\n  {:<4}", exit.code())), "{exit:?}");
        }
    }

    #[test]
    fn context_keeps_the_exit_code() {
        assert_eq!(report(&usage("a").context("b")), Exit::Usage);
        assert_eq!(report(&bug("a")), Exit::Bug);
        assert_eq!(report(&anyhow::anyhow!("a")), Exit::Input);
    }

    #[test]
    fn paths_are_short() {
        for (path, short) in [
            ("/r/src/index/krate-1.2/src/a/b.rs", "krate-1.2/src/a/b.rs"),
            ("src/a.rs", "src/a.rs"),
        ] {
            assert_eq!(short_path(path), short);
        }
    }
}
