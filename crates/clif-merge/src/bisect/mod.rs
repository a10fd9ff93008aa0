//! `clif-merge bisect`: the one merge that makes a command fail.
//!
//! The merges of a unit have an order that is always the same, and `--merge-limit` performs the first of them. A binary
//! search over their number, with a run of the command for each step, finds the first one with which the command
//! fails. `explain` says what it is, `reduce` makes a small unit that still fails.
//!
//! It assumes that the command fails with every merge behind the one that is found, as well. If it does not, what is
//! found is still a merge without which the command succeeds and with which it fails, but not the only one.

mod command;
mod explain;
mod make;
mod reduce;

use crate::args::{Common, Defaults, Input, ReadUnit};
use crate::exit::{Exit, condition};
use crate::jobs::JobsArg;
use crate::output::Output;
use crate::table::thousands;
use anyhow::Result;
use clap::ValueEnum;
use clif_unit::pass::Merged;
use clif_unit::unit::Unit;
use command::{Command, MERGE_LIMIT_VARIABLE, Outcome};
use cranelift_mergefunc::Disposition;
use explain::Difference;
use make::Maker;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Find the merge that makes a command fail
///
/// CMD is run on the unit with the first N of its merges, for different N: '{}' in its arguments is replaced by
/// the path of the merged unit, which is the last argument if there is no '{}'. It has to succeed without
/// merges and to fail with all of them. The result is the first merge with which it fails: which
/// functions it concerns, and why they were merged. CMD has no time limit; put 'timeout 60' in front of it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", crate::exit::HELP))]
#[command(override_usage = "clif-merge bisect [OPTIONS] <IN>... -- <CMD> [ARG]...\n       \
                            clif-merge bisect --env [OPTIONS] -- <CMD> [ARG]...")]
// Every step would prove the same merges.
#[command(mut_arg("verify", |arg| arg.hide(true)))]
pub struct Opts {
    /// CLIF files, directories of .clif files, or '-' for standard input; together they are one
    /// unit
    #[arg(value_name = "IN", required_unless_present = "env", conflicts_with = "env")]
    paths: Vec<PathBuf>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,

    /// What CMD gets: the merged unit as CLIF, as 'merge' writes it, or an object file that is made of that
    #[arg(long, value_enum, value_name = "KIND", default_value_t = EmitKind::Clif)]
    emit: EmitKind,

    /// Turn exported functions with insignificant addresses into aliases instead of thunks, and
    /// exported data objects into aliases instead of keeping them
    #[arg(long, help_heading = "Merging")]
    aliases: bool,

    /// The exit code of CMD that counts as failure; without this option, all but 0, and signals
    ///
    /// A signal is 128 and its number. Any other code but 0 ends 'bisect' with an error.
    #[arg(long, value_name = "CODE")]
    fails_with: Option<i32>,

    /// Make no files: CMD merges by itself, at most as often as the environment variable CRANELIFT_MERGEFUNC_MERGE_LIMIT says
    ///
    /// For a program that embeds the library and takes 'merge_limit' from there. Only the number of the merge
    /// is found.
    #[arg(long, conflicts_with_all = ["reduce", "emit", "aliases"])]
    env: bool,

    /// Write a unit that is as small as possible, with which CMD still succeeds without merges and fails with all
    ///
    /// Functions, data objects, blocks, instructions and directives are removed as long as that holds. CMD should test
    /// for the failure as narrowly as it can.
    #[arg(long, value_name = "OUT.clif")]
    reduce: Option<PathBuf>,

    /// Run CMD at most N times for --reduce, and then write what there is
    #[arg(long, value_name = "N", default_value_t = 2000)]
    max_runs: usize,

    #[command(flatten)]
    defaults: Defaults,
    #[command(flatten)]
    jobs: JobsArg,
    #[command(flatten)]
    common: Common,
}

const EXAMPLES: &str = "\
Examples:
  clif-merge bisect unit.clif -- ./check.sh {}
  clif-merge bisect --emit object unit.clif -- ./link-and-run.sh {}
  clif-merge bisect --reduce small.clif unit.clif -- timeout 10 ./check.sh {}
  clif-merge bisect --env -- ./my-compiler test.src";

/// The values of `--emit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EmitKind {
    /// CLIF
    Clif,
    /// A native object file
    Object,
}

/// Searches, explains and reduces.
///
/// # Errors
///
/// What cannot be read or written, a command that cannot be run, and one that does not fail as it has to.
pub fn run(opts: Opts) -> Result<ExitCode> {
    let Opts {
        paths,
        command,
        emit,
        aliases,
        fails_with,
        env,
        reduce,
        max_runs,
        defaults,
        jobs,
        common,
    } = opts;
    let general = common.general;
    let mut command = Command::new(command, fails_with, general.verbose);
    if env {
        return search_environment(&mut command, &common);
    }
    let reduced = reduce.as_deref().map(Output::check).transpose()?;
    let input = Input { paths, defaults };
    let jobs = jobs.start()?;
    let ReadUnit { isa, texts: sources, unit } = common.read(&input, &jobs)?;
    let maker = Maker::new(&isa, &common.pass, (emit, aliases), jobs, &sources)?;

    let (all, everything) = all_merges(&maker, &unit, common.pass.merge_limit)?;
    if all == 0 {
        return Err(condition("nothing is merged in this unit"));
    }
    let mut known: HashMap<String, Outcome> = HashMap::new();
    let mut try_limit = |limit: u32, again: bool| -> Result<Outcome> {
        let merged = maker.merged(&unit, Some(limit))?;
        let text = maker.text(&unit, &merged);
        if let Some(&outcome) = known.get(&text).filter(|_| !again) {
            return Ok(outcome);
        }
        let outcome = command.on_file(&maker.write(&maker.contents(&text)?)?)?;
        if general.verbose {
            general.say(&step(Some(limit), outcome));
        }
        known.insert(text, outcome);
        Ok(outcome)
    };
    let found = search(all, &mut try_limit)?;
    let runs = command.runs();
    let [without, with] = [found - 1, found].map(|limit| maker.merged(&unit, Some(limit)));
    let (without, with) = (without?, with?);
    let difference = Difference::of(&without, &with);
    let title = format!("{} of {} makes the command fail\n", merge(found), thousands(all.into()));
    let explanation = difference.explain(&maker, &unit, &sources, &with, found)?;
    Output::check("-".as_ref())?.write((title + &explanation).as_bytes())?;
    if general.verbose {
        general.say(&format!("ran the command {}", times(runs)));
    }
    if let Some(output) = reduced {
        let involved = difference.involved(&everything.plan);
        let mut reducer = reduce::Reducer::new(&maker, &mut command, max_runs, general);
        let text = reducer.reduce(&unit, &involved)?;
        output.write(text.as_bytes())?;
    }
    Ok(Exit::Done.into())
}

/// How many merges there are up to `most`, if only as many are wanted, and the unit with all of them.
fn all_merges(maker: &Maker<'_>, unit: &Unit, most: Option<u32>) -> Result<(u32, Merged)> {
    let merged = maker.merged(unit, most)?;
    let functions = merged.plan.entries().map(|(_, entry)| entry.disposition().name());
    let data = merged.plan.data_entries().map(|(_, entry)| entry.disposition().name());
    let keep = Disposition::<()>::Keep.name();
    let count = functions.chain(data).filter(|&name| name != keep).count();
    let mut all = u32::try_from(count).unwrap_or(u32::MAX);
    let text = maker.text(unit, &merged);
    // Functions that are merged twice, as similar ones and then as identical ones, may take more of the limit.
    while all > 0
        && most.is_none_or(|most| all < most)
        && maker.text(unit, &maker.merged(unit, Some(all))?) != text
    {
        all = all.saturating_mul(2);
        if all == u32::MAX {
            break;
        }
    }
    Ok((most.map_or(all, |most| all.min(most)), merged))
}

/// The number of the first merge with which the command fails, of at most `all`. `run` runs it with a limit, also if the
/// result is known already if that is wanted.
fn search(all: u32, run: &mut dyn FnMut(u32, bool) -> Result<Outcome>) -> Result<u32> {
    require(run(0, false)?, Outcome::Passes, &with_merges(Some(0)))?;
    require(run(all, false)?, Outcome::Fails, &format!("with all {}", count(all)))?;
    let (mut passes, mut fails) = (0, all);
    while fails - passes > 1 {
        let limit = passes + (fails - passes) / 2;
        match run(limit, false)? {
            Outcome::Passes => passes = limit,
            Outcome::Fails => fails = limit,
            Outcome::Other(code) => return Err(says_nothing(code, &with_merges(Some(limit)))),
        }
    }
    // A command that fails now and then leads to any merge.
    for (limit, expected) in [(passes, Outcome::Passes), (fails, Outcome::Fails)] {
        if run(limit, true)? != expected {
            return Err(condition(format!(
                "the command does not end in the same way each time {}",
                with_merges(Some(limit))
            )));
        }
    }
    Ok(fails)
}

/// An outcome that there has to be before a search makes sense.
fn require(outcome: Outcome, expected: Outcome, with: &str) -> Result<()> {
    match outcome {
        Outcome::Other(code) => Err(says_nothing(code, with)),
        outcome if outcome == expected => Ok(()),
        Outcome::Fails => Err(condition(format!("the command fails {with}, too"))),
        Outcome::Passes => Err(condition(format!("the command does not fail {with}"))),
    }
}

fn says_nothing(code: i32, with: &str) -> anyhow::Error {
    condition(format!(
        "{with}, the command ends with {code}, neither 0 nor the code of --fails-with"
    ))
}

/// `--env`: the same search, with the limit in the environment of the command.
fn search_environment(command: &mut Command, common: &Common) -> Result<ExitCode> {
    let general = common.general;
    let mut try_limit = |limit: Option<u32>| -> Result<Outcome> {
        let outcome = command.with_limit(limit)?;
        if general.verbose {
            general.say(&step(limit, outcome));
        }
        Ok(outcome)
    };
    require(try_limit(Some(0))?, Outcome::Passes, &with_merges(Some(0)))?;
    let most = common.pass.merge_limit;
    require(try_limit(most)?, Outcome::Fails, &with_merges(most))?;
    // Only the command knows how many merges there are.
    let mut all = 1;
    let most = most.unwrap_or(u32::MAX);
    while all < most {
        match try_limit(Some(all))? {
            Outcome::Passes => all = all.saturating_mul(2).min(most),
            Outcome::Fails => break,
            Outcome::Other(code) => return Err(says_nothing(code, &with_merges(Some(all)))),
        }
    }
    let found = search(all, &mut |limit, _| try_limit(Some(limit)))?;
    let title =
        format!("{} makes the command fail: {MERGE_LIMIT_VARIABLE}={found}\n", merge(found));
    Output::check("-".as_ref())?.write(title.as_bytes())?;
    if general.verbose {
        general.say(&format!("ran the command {}", times(command.runs())));
    }
    Ok(Exit::Done.into())
}

fn merge(number: u32) -> String {
    format!("merge {}", thousands(number.into()))
}

fn times(runs: usize) -> String {
    match runs {
        1 => "once".to_owned(),
        _ => format!("{} times", thousands(runs as u64)),
    }
}

fn with_merges(limit: Option<u32>) -> String {
    match limit {
        None => "with all merges".to_owned(),
        Some(0) => "without merges".to_owned(),
        Some(limit) => format!("with {}", count(limit)),
    }
}

fn count(merges: u32) -> String {
    match merges {
        1 => "1 merge".to_owned(),
        _ => format!("{} merges", thousands(merges.into())),
    }
}

/// What is said of a run.
fn step(limit: Option<u32>, outcome: Outcome) -> String {
    let ended = match outcome {
        Outcome::Passes => "succeeds".to_owned(),
        Outcome::Fails => "fails".to_owned(),
        Outcome::Other(code) => format!("ends with {code}"),
    };
    format!("{}: the command {ended}", with_merges(limit))
}

#[cfg(test)]
mod tests {
    use super::{Outcome, search};

    #[test]
    fn every_merge_is_found() {
        for all in 1..40 {
            for bad in 1..=all {
                let mut runs = 0;
                let found = search(all, &mut |limit, _| {
                    runs += 1;
                    Ok(if limit < bad { Outcome::Passes } else { Outcome::Fails })
                });
                assert_eq!(found.unwrap(), bad);
                assert!(runs <= 4 + all.ilog2() + 1, "{runs} runs for {all}");
            }
        }
    }

    #[test]
    fn what_is_not_so_is_an_error() {
        let always = |outcome| search(9, &mut |_, _| Ok(outcome)).unwrap_err().to_string();
        assert_eq!(always(Outcome::Fails), "the command fails without merges, too");
        assert_eq!(always(Outcome::Passes), "the command does not fail with all 9 merges");
        assert!(always(Outcome::Other(7)).starts_with("without merges, the command ends with 7,"));
        let mut runs = 0;
        let unsteady = search(2, &mut |limit, again| {
            runs += 1;
            Ok(if limit == 0 || again { Outcome::Passes } else { Outcome::Fails })
        });
        assert!(unsteady.unwrap_err().to_string().contains("each time with 1 merge"));
        assert_eq!(runs, 5);
    }
}
