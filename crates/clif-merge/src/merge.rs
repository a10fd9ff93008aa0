//! `clif-merge merge`: the merged unit as CLIF.
//!
//! Reads a unit, merges, writes text. This module also has the messages of other subcommands about a merged
//! unit: one line, and the table of the dispositions.

use crate::args::{Common, Input, ReadUnit};
use crate::check::check;
use crate::exit::Exit;
use crate::jobs::JobsArg;
use crate::output::Output;
use crate::table::{Align, render};
use anyhow::Result;
use clif_unit::emit_text::emit;
use clif_unit::pass::{self, Merged};
use clif_unit::unit::Unit;
use cranelift_codegen::ir::UserExternalName;
use cranelift_mergefunc::{Disposition, Reason, Stats, cranelift_codegen};
use std::path::PathBuf;
use std::process::ExitCode;

/// Merge functions and print what is left as CLIF
///
/// The functions are in the order of the input. A function whose callers now call another one is
/// not written. One that must keep its symbol becomes a function that calls the other one, below a
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

    /// Print a table on standard error: the disposition of each function, and the reason
    #[arg(short = 'D', long)]
    dispositions: bool,

    /// Turn exported functions with insignificant addresses into aliases instead of thunks, and
    /// exported data objects into aliases instead of keeping them
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
    let ReadUnit { isa, texts: _, unit } = common.read(&input, &JobsArg::default().start()?)?;
    let options = common.pass.options(&*isa, aliases);
    let merged = pass::merge(&unit, &options)?;
    if common.pass.verify {
        check(&unit, &merged, &options, &*isa, &common.general)?;
    }
    output.write(emit(&unit, &merged).as_bytes())?;
    if dispositions {
        eprint_table(&rows(&unit, &merged));
    }
    common.general.say(&summary(&Counts::of(&merged)));
    if common.general.verbose {
        common.general.say(&details(merged.plan.stats()));
    }
    Ok(Exit::Done.into())
}

/// The number of functions and data objects by disposition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// All functions of the unit.
    pub functions: usize,
    /// Functions of the unit by disposition.
    pub redirected: usize,
    pub aliases: usize,
    pub thunks: usize,
    /// New bodies: private copies and parameterised bodies.
    pub new_bodies: usize,
    /// All data objects of the unit.
    pub data_objects: usize,
    /// Those that were merged away.
    pub merged_data_objects: usize,
}

impl Counts {
    fn of(merged: &Merged) -> Counts {
        let plan = &merged.plan;
        let mut counts = Counts {
            functions: plan.added(),
            new_bodies: plan.new_bodies().len(),
            data_objects: plan.data_entries().len(),
            merged_data_objects: plan.stats().merged.data_objects,
            ..Counts::default()
        };
        for (_, entry) in plan.entries() {
            match entry.disposition() {
                Disposition::Keep => {}
                Disposition::Redirect { .. } => counts.redirected += 1,
                Disposition::Alias { .. } => counts.aliases += 1,
                Disposition::Thunk { .. } => counts.thunks += 1,
            }
        }
        counts
    }
}

/// One line for a person: the number of functions by disposition.
pub fn summary(counts: &Counts) -> String {
    let Counts {
        functions: total,
        redirected,
        aliases,
        thunks,
        new_bodies,
        data_objects,
        merged_data_objects,
    } = *counts;
    let count = |number: usize, one: &str, many: &str| match number {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{number} {many}")),
    };
    let parts: Vec<String> = [
        count(redirected, "redirected", "redirected"),
        count(aliases, "alias", "aliases"),
        count(thunks, "thunk", "thunks"),
        count(new_bodies, "new body", "new bodies"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let functions = if total == 1 { "function" } else { "functions" };
    let all = redirected + aliases + thunks;
    let mut line = match parts.is_empty() {
        true => format!("merged {all} of {total} {functions}"),
        false => format!("merged {all} of {total} {functions}: {}", parts.join(", ")),
    };
    if merged_data_objects > 0 {
        let objects = if data_objects == 1 { "data object" } else { "data objects" };
        line.push_str(&format!("; {merged_data_objects} of {data_objects} {objects}"));
    }
    line
}

/// What the pass did, for `--verbose`.
pub fn details(stats: &Stats) -> String {
    let mut text = format!(
        "walked {} functions with {} instructions; {} classes, {} functions share theirs",
        stats.walks.functions,
        stats.walks.instructions,
        stats.refine_classes_after,
        stats.plan_members,
    );
    if stats.similar.walks > 0 {
        text += &format!(
            "\nwalked {} similar functions; made {} parameterised bodies, of which {} replace {} functions",
            stats.similar.walks, stats.similar.tried, stats.similar.bodies, stats.similar.merged,
        );
    }
    if stats.content_bodies > 0 {
        text += &format!("\n{} bodies under digests of their contents", stats.content_bodies);
    }
    if stats.shared_functions + stats.shared_ignored > 0 {
        text += &format!(
            "\n{} functions share bodies as the map says; {} entries of the map were ignored",
            stats.shared_functions, stats.shared_ignored,
        );
    }
    text
}

/// The disposition of each function and data object, and the reason.
fn rows(unit: &Unit, merged: &Merged) -> Vec<[String; 5]> {
    let plan = &merged.plan;
    let row = |symbol, disposition: Disposition<&UserExternalName>, reason: Reason| {
        let name = |symbol| merged.names.display(symbol);
        let representative = disposition.representative().map_or("-".to_owned(), name);
        let source = merged.names.of_source(symbol).unwrap_or_default();
        [name(symbol), disposition.name().to_owned(), representative, reason.to_string(), source]
    };
    let functions = plan.entries().map(|(_, entry)| {
        let disposition = entry.disposition().map(|to| plan.entry(to).symbol());
        row(entry.symbol(), disposition, entry.reason())
    });
    let data = plan.data_entries().zip(&unit.data).map(|((_, entry), given)| match &given.alias {
        // An alias of the text stays one.
        Some(target) => row(entry.symbol(), Disposition::Alias { to: target }, Reason::NoMerge),
        None => {
            let disposition = entry.disposition().map(|to| plan.data_entry(to).symbol());
            row(entry.symbol(), disposition, entry.reason())
        }
    });
    functions.chain(data).collect()
}

/// Prints the disposition of each function and data object: its name, the disposition, the representative, the reason, and
/// what the source calls it, if that is known of any.
pub fn eprint_table(lines: &[[String; 5]]) {
    let heading = ["function", "disposition", "representative", "reason", "in the source"];
    let known = lines.iter().any(|[.., source]| !source.is_empty());
    let columns = if known { heading.len() } else { heading.len() - 1 };
    let lines = lines.iter().map(|line| line[..columns].to_vec());
    let heading = heading[..columns].iter().map(|&word| word.to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(heading).chain(lines).collect();
    use std::io::Write as _;
    // A closed standard error is no reason to fail: the result is written.
    let _ = write!(anstream::stderr(), "{}", render(&[Align::Left; 5][..columns], &rows));
}
