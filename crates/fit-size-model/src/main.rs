//! Fits the weights by which the library predicts sizes of native code:
//! `crates/size-model/src/fitted.rs`.
//!
//! Compiles every function of some units, and call thunks of many signatures, for both targets;
//! finds the weights of their features; prints the errors of the predictions, on the units that the
//! weights were fitted on and, leaving one out at a time, on units that they were not; and writes
//! the weights. To be run anew for a new version of Cranelift.

mod calls;
mod errors;
mod fit;
mod sample;
mod thunks;
mod write;

use anyhow::{Context as _, Result};
use clap::Parser;
use clif_unit::contain::intercepted;
use clif_unit::isa;
use cranelift_size_model::Registers;
use errors::{Errors, errors};
use sample::Group;
use std::path::PathBuf;
use std::process::ExitCode;

/// Fits the weights by which cranelift-mergefunc predicts sizes of native code.
#[derive(Parser)]
struct Args {
    /// Units of CLIF to fit on, a file each; a directory stands for all files below it.
    #[arg(required = true)]
    units: Vec<PathBuf>,
    /// Write the weights to this file; without, only errors are printed.
    #[arg(short, long)]
    output: Option<PathBuf>,
}

/// A target as the library names it.
pub struct Target {
    constant: &'static str,
    name: &'static str,
    registers: (&'static str, Registers),
    smallest: u32,
}

const TARGETS: [Target; 2] = [
    Target {
        constant: "X86_64",
        name: "x86_64",
        registers: ("Registers::X86_64", Registers::X86_64),
        smallest: 9,
    },
    Target {
        constant: "AARCH64",
        name: "aarch64",
        registers: ("Registers::AARCH64", Registers::AARCH64),
        smallest: 4,
    },
];

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    // Cranelift panics about some functions of the filetests, which are left out.
    std::panic::set_hook(Box::new(|info| {
        let message = info.to_string();
        if !intercepted(&message) {
            eprintln!("{message}");
        }
    }));
    let mut fitted = Vec::new();
    println!("errors in percent: median, 95th percentile and bias of the sum");
    println!(
        "{:<8} {:<20} {:>9}  {:<22} {:<22}",
        "target", "unit", "functions", "fitted", "left out"
    );
    for target in &TARGETS {
        let [isa] = isa::build([isa::short(target.name)], &[])?;
        let mut groups = Vec::new();
        for path in &args.units {
            groups.push(sample::unit(path, &*isa, &target.registers.1)?);
        }
        let thunks = thunks::group(&*isa, &target.registers.1);
        let calls = calls::group(&*isa, &target.registers.1);
        let generated = sample::generated(&*isa, &target.registers.1);
        let made = [&generated, &calls, &thunks];
        let all = groups.iter().chain(made);
        let weights = fit::fit(all);
        for (at, group) in groups.iter().enumerate() {
            let others = groups.iter().enumerate().filter(|(other, _)| *other != at);
            let others = others.map(|(_, group)| group).chain(made);
            let left_out = fit::fit(others);
            print(target, group, errors(&weights, group), Some(errors(&left_out, group)));
        }
        for group in made {
            print(target, group, errors(&weights, group), None);
        }
        fitted.push((target, weights));
    }
    if let Some(output) = &args.output {
        let names = args.units.iter().filter_map(|path| path.file_stem());
        let names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        std::fs::write(output, write::text(&fitted, &names))
            .with_context(|| output.display().to_string())?;
    }
    Ok(())
}

fn print(target: &Target, group: &Group, fitted: Errors, left_out: Option<Errors>) {
    let left_out = left_out.map(|errors| errors.to_string()).unwrap_or_default();
    let (name, count) = (&group.name, group.samples.len());
    println!("{:<8} {name:<20} {count:>9}  {fitted:<22} {left_out:<22}", target.name);
}
