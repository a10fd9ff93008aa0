//! `clif-merge diff`: what a change of a compiler, of the sources or of options does to merging.
//!
//! Compares the tables of decisions of two units, or of two reports as JSON, and can fail under
//! conditions, for continuous integration. `compare` decides which functions correspond. It does
//! not compare code.

mod compare;

use crate::args::{Common, Defaults, Input};
use crate::decisions::decide::{Decided, decide};
use crate::decisions::{Decision, Kind};
use crate::exit::{Exit, condition, usage};
use crate::jobs::JobsArg;
use crate::output::Output;
use crate::report::target_title;
use crate::table::{Align, change, percent, render, thousands};
use anyhow::{Context as _, Result, bail};
use compare::{Change, Changes, Pair, Totals};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compare what merging does to two units, such as before and after a change of a compiler
///
/// A and B are units (a file, a directory, WebAssembly), or what 'report --format json' has written
/// of them. Lists which merges appeared and disappeared, by the names of functions, and what that
/// costs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", crate::exit::HELP))]
pub struct Opts {
    /// The unit before the change, or its report as JSON
    #[arg(value_name = "A")]
    before: PathBuf,

    /// The unit after the change, or its report as JSON
    #[arg(value_name = "B")]
    after: PathBuf,

    /// End with exit code 3 if this is so: 'lost-merges' (what was merged is kept),
    /// 'growth=PERCENT' (the code after merging grew by more), 'less-saved=POINTS' (merging saves
    /// that many percentage points less)
    #[arg(long, value_name = "CONDITION", value_parser = parse_condition)]
    deny: Vec<Condition>,

    /// The format of the comparison
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    format: Format,

    /// How many functions are listed of each kind
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    rows: usize,

    /// Where to write it
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    output: PathBuf,

    #[command(flatten)]
    defaults: Defaults,

    /// Never give two symbols one address: use thunks instead
    #[arg(long, help_heading = "Merging")]
    no_alias: bool,

    #[command(flatten)]
    jobs: JobsArg,
    #[command(flatten)]
    common: Common,
}

const EXAMPLES: &str = "\
Examples:
  clif-merge diff before.clif after.clif
  clif-merge diff old.wasm new.wasm
  clif-merge diff before.json after.json           what 'report --format json' has written
  clif-merge diff --deny lost-merges --deny growth=0.5 before.json unit.clif";

/// The values of `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Tables for a person
    Text,
    /// One JSON object
    Json,
}

/// A condition that must not hold.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Condition {
    /// A function that was merged is kept.
    LostMerges,
    /// There is more code after merging, by more than this, in percent.
    Growth(f64),
    /// Merging saves less, by more than this, in percentage points.
    LessSaved(f64),
}

fn parse_condition(text: &str) -> Result<Condition, String> {
    let number = |text: &str| match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(format!("'{text}' is not a number")),
    };
    match text.split_once('=') {
        None if text == "lost-merges" => Ok(Condition::LostMerges),
        Some(("growth", percent)) => number(percent).map(Condition::Growth),
        Some(("less-saved", points)) => number(points).map(Condition::LessSaved),
        _ => Err("a condition is lost-merges, growth=PERCENT or less-saved=POINTS".to_owned()),
    }
}

/// Compares and writes.
///
/// # Errors
///
/// Files that cannot be read or written, reports of different targets, and a condition that is
/// denied.
pub fn run(opts: Opts) -> Result<ExitCode> {
    let Opts { before, after, deny, format, rows, output, defaults, no_alias, jobs, common } = opts;
    if [&before, &after].iter().all(|path| path.as_os_str() == "-") {
        return Err(usage("standard input can be read only once"));
    }
    let output = Output::check(&output)?;
    let mut input = Input { paths: Vec::new(), defaults };
    let mut read = |path: &Path| -> Result<Decided> {
        if let Some(decided) = read_report(path)? {
            return Ok(decided);
        }
        input.paths = vec![path.to_owned()];
        decide(&input, &common, !no_alias, jobs)
    };
    let sides = [read(&before)?, read(&after)?];
    let [Decided { target, decisions: old }, Decided { target: other, decisions: new }] = &sides;
    if target != other {
        bail!(
            "{} is for {target}, and {} is for {other}: only the same target can be compared",
            before.display(),
            after.display(),
        );
    }
    let changes = Changes::between(old, new);
    let text = match format {
        Format::Text => text(target, &changes, rows),
        Format::Json => {
            serde_json::to_string_pretty(&Json { schema: 1, target, changes: &changes })? + "\n"
        }
    };
    output.write(text.as_bytes())?;
    match deny.iter().find_map(|&denied| violation(denied, &changes)) {
        Some(message) => Err(condition(message)),
        None => Ok(Exit::Done.into()),
    }
}

/// The comparison as JSON.
#[derive(Serialize)]
struct Json<'a> {
    schema: u32,
    target: &'a str,
    #[serde(flatten)]
    changes: &'a Changes<'a>,
}

/// The part of a report that is compared.
#[derive(Deserialize)]
struct ReadReport {
    schema: u32,
    host: String,
    decisions: Option<Vec<Decision>>,
}

/// The table of a report as JSON, if the file is one.
fn read_report(path: &Path) -> Result<Option<Decided>> {
    if path.extension().is_none_or(|extension| extension != "json") {
        return Ok(None);
    }
    let name = path.display();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    let report = serde_json::from_slice(&bytes)
        .with_context(|| format!("{name}: this is not what 'report --format json' writes"))?;
    let ReadReport { schema, host, decisions } = report;
    if schema != 1 {
        bail!("{name}: the report has schema {schema}, and this clif-merge reads schema 1");
    }
    match decisions {
        Some(decisions) => Ok(Some(Decided { target: host, decisions })),
        None => bail!("{name}: the report has no decisions: an older clif-merge has written it"),
    }
}

/// Why a denied condition holds, if it does.
fn violation(denied: Condition, changes: &Changes<'_>) -> Option<String> {
    let Change { before, after } = changes.functions;
    match denied {
        Condition::LostMerges => {
            let pair = changes.disappeared.first()?;
            let others = match changes.disappeared.len() - 1 {
                0 => String::new(),
                others => format!(" and {} more", thousands(others as u64)),
            };
            Some(format!(
                "lost-merges: {}{others} merged before, and not now",
                pair.after.described()
            ))
        }
        Condition::Growth(most) => {
            let growth = growth(before.bytes_after, after.bytes_after);
            (growth > most)
                .then(|| format!("growth={most}: the code after merging grew by {growth:.2}%"))
        }
        Condition::LessSaved(most) => {
            let less = before.saved() - after.saved();
            (less > most).then(|| {
                format!("less-saved={most}: merging saves {less:.2} percentage points less")
            })
        }
    }
}

/// How much more the second is than the first, in percent.
fn growth(before: u64, after: u64) -> f64 {
    percent(after as f64 - before as f64, before as f64)
}

/// The comparison for a person: the answer first, then each function.
fn text(target: &str, changes: &Changes<'_>, rows: usize) -> String {
    let Change { before, after } = changes.functions;
    let mut text = format!(
        "{:.2}% of {} code saved, {:.2}% before; {} bytes after merging ({:+.2}%)\n",
        after.saved(),
        target_title(target),
        before.saved(),
        change(after.bytes_after as i64 - before.bytes_after as i64),
        growth(before.bytes_after, after.bytes_after),
    );
    text += &totals(changes);
    let Changes { functions: _, data: _, disappeared, appeared, added, removed } = changes;
    text += &pairs("merges that disappeared", disappeared, rows);
    text += &pairs("merges that appeared", appeared, rows);
    text += &singles("not there before", added, rows);
    text += &singles("not there any more", removed, rows);
    text
}

fn totals(changes: &Changes<'_>) -> String {
    let mut rows = vec![["", "before", "now", "change"].map(str::to_owned).to_vec()];
    for (what, Change { before, after }) in
        [("functions", changes.functions), ("data objects", changes.data)]
    {
        if before.count + after.count == 0 {
            continue;
        }
        let mut row = |name: String, value: fn(&Totals) -> u64| {
            let (before, after) = (value(&before), value(&after));
            let change = change(after as i64 - before as i64);
            rows.push(vec![name, thousands(before), thousands(after), change]);
        };
        row(what.to_owned(), |totals| totals.count as u64);
        row(format!("{what} merged"), |totals| totals.merged as u64);
        row("bytes before merging".to_owned(), |totals| totals.bytes_before);
        row("bytes after merging".to_owned(), |totals| totals.bytes_after);
    }
    format!("\n{}", render(&[Align::Left, Align::Right, Align::Right, Align::Right], &rows))
}

fn pairs(heading: &str, pairs: &[Pair<'_>], most: usize) -> String {
    if pairs.is_empty() {
        return String::new();
    }
    let mut rows = vec![[heading, "bytes", "before", "now", ""].map(str::to_owned).to_vec()];
    for pair in pairs.iter().take(most) {
        let Pair { before, after } = pair;
        let [old, new] = [before, after].map(|row| row.outcome.described());
        let why = after.resembles.as_ref().map_or(String::new(), |resembled| {
            let rule = resembled.rule.as_ref().map_or(String::new(), |rule| format!(" [{rule}]"));
            format!("resembles {}{rule}", resembled.name)
        });
        rows.push(vec![after.described(), change(pair.growth()), old, new, why]);
    }
    let align = [Align::Left, Align::Right, Align::Left, Align::Left, Align::Left];
    format!("\n{}{}", render(&align, &rows), more(pairs.len(), most))
}

fn singles(heading: &str, decisions: &[&Decision], most: usize) -> String {
    if decisions.is_empty() {
        return String::new();
    }
    let merged = decisions.iter().filter(|decision| decision.kind == Kind::Passed).count();
    let bytes: u64 = decisions.iter().map(|decision| decision.bytes_after).sum();
    let mut rows = vec![[heading, "bytes", ""].map(str::to_owned).to_vec()];
    for decision in decisions.iter().take(most) {
        let what = decision.outcome.described();
        rows.push(vec![decision.described(), thousands(decision.bytes_after), what]);
    }
    format!(
        "\n{}{}{} in all, {} of them merged, {} bytes\n",
        render(&[Align::Left, Align::Right, Align::Left], &rows),
        more(decisions.len(), most),
        thousands(decisions.len() as u64),
        thousands(merged as u64),
        thousands(bytes),
    )
}

/// A line about rows that are not shown.
fn more(count: usize, shown: usize) -> String {
    match count.saturating_sub(shown) {
        0 => String::new(),
        more => format!("and {} more; -n lists more\n", thousands(more as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Condition, parse_condition};

    #[test]
    fn conditions_are_read() {
        assert_eq!(parse_condition("lost-merges"), Ok(Condition::LostMerges));
        assert_eq!(parse_condition("growth=0.5"), Ok(Condition::Growth(0.5)));
        assert_eq!(parse_condition("less-saved=-1"), Ok(Condition::LessSaved(-1.0)));
        for wrong in ["", "growth", "growth=", "growth=NaN", "lost-merges=1", "shrink=2"] {
            assert!(parse_condition(wrong).is_err(), "{wrong}");
        }
    }
}
