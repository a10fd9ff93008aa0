//! `clif-merge completions` and `clif-merge man`: what an installation has besides the program.
//!
//! Both are generated from the argument parser, so they say what the program says. Nothing is
//! installed.

use crate::exit::Exit;
use crate::output::Output;
use anyhow::{Context as _, Result};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = COMPLETIONS)]
pub struct Completions {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

const COMPLETIONS: &str = "\
Examples:
  clif-merge completions bash >~/.local/share/bash-completion/completions/clif-merge
  clif-merge completions zsh >~/.zfunc/_clif-merge
  clif-merge completions fish >~/.config/fish/completions/clif-merge.fish";

/// Write manual pages: one of the program, and one of each subcommand
#[derive(Debug, clap::Args)]
#[command(after_help = MAN)]
pub struct ManPages {
    /// The directory, which is made if it is not there
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

const MAN: &str = "\
Examples:
  clif-merge man ~/.local/share/man/man1";

/// Prints completions of `program`.
///
/// # Errors
///
/// A closed standard output.
pub fn completions(opts: &Completions, mut program: Command) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(opts.shell, &mut program, "clif-merge", &mut text);
    Output::check(Path::new("-"))?.write(&text)?;
    Ok(Exit::Done.into())
}

/// Writes the manual pages of `program`.
///
/// # Errors
///
/// A directory or file that cannot be written.
pub fn man(opts: &ManPages, mut program: Command) -> Result<ExitCode> {
    let directory = &opts.directory;
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    program.build();
    page(directory, "clif-merge", &program)?;
    for subcommand in program.get_subcommands().filter(|command| command.get_name() != "help") {
        let name = format!("clif-merge-{}", subcommand.get_name());
        let subcommand = subcommand.clone().display_name(name.clone());
        page(directory, &name, &subcommand)?;
    }
    Ok(Exit::Done.into())
}

fn page(directory: &Path, name: &str, command: &Command) -> Result<()> {
    let mut text = Vec::new();
    // Without a date, so that the same program gives the same bytes.
    Man::new(command.clone()).render(&mut text)?;
    Output::check(&directory.join(format!("{name}.1")))?.write(&text)
}
