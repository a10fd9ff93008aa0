//! `clif-merge report`: what merging a unit saves and costs.
//!
//! Counts functions and data objects by disposition, compiles the unit before and after merging for
//! each target, and takes the time of each step. The structs that are written as JSON are only
//! that: fields are added to them, and neither removed nor given another meaning, while `schema` is
//! 1.

use crate::args::{General, Input, Pass, Targets};
use crate::check::check;
use crate::codegen::{Compiler, Refused, missing_settings};
use crate::decisions::{Decision, Planned, decisions};
use crate::exit::{Exit, condition};
use crate::families::{Family, NearMiss, families, near_misses};
use crate::jobs::{Jobs, JobsArg};
use crate::measure::{self, Sizes, total};
use crate::output::Output;
use crate::page::{self, Page};
use crate::report_text::text;
use crate::similar::{self, Similar};
use crate::table::percent;
use anyhow::Result;
use clif_unit::isa;
use clif_unit::listings::Listings;
use clif_unit::pass;
use clif_unit::unit::{Source, Unit};
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::{Disposition, FunctionIndex, NewBody, Plan, Reason, cranelift_codegen};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use target_lexicon::Triple;

/// Report what merging saves and what it costs
///
/// Counts the bytes of code before and after merging, for each --target. Functions that cannot be
/// compiled are counted apart. Dispositions and times are those for this machine's architecture, or
/// else for the first target.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", crate::exit::HELP))]
pub struct Opts {
    /// The format of the report
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    format: Format,

    /// Where to write it
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    output: PathBuf,

    /// How many of the families, classes and near misses are listed
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    rows: usize,

    /// How often the short steps (the visit and the pass) are timed; the fastest counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,

    /// End with exit code 3 if less than PERCENT of the code is saved, for the target to which the
    /// times belong
    #[arg(long, value_name = "PERCENT", value_parser = percentage)]
    min_saved: Option<f64>,

    /// How many bytes of a page the listings of functions may take
    #[arg(long, value_name = "BYTES", default_value_t = page::MAX_LISTINGS)]
    max_listings: usize,

    #[command(flatten)]
    input: Input,

    /// Never give two symbols one address: use thunks instead
    #[arg(long, help_heading = "Merging")]
    no_alias: bool,

    #[command(flatten)]
    pass: Pass,
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    jobs: JobsArg,
    #[command(flatten)]
    general: General,
}

const EXAMPLES: &str = "\
Examples:
  clif-merge report unit.clif
  clif-merge report app.wasm
  clif-merge report --format json unit.clif > report.json
  clif-merge report --format html -o report.html app.wasm
  clif-merge report --linkage local --addresses insignificant wasm.clif
  clif-merge report --linkage local --export-file exports.txt wasm.clif
  clif-merge report --target x86_64 --set has_sse41 simd.clif
  clif-merge report --min-saved 5 unit.clif      for scripts: exit code 3 if less";

/// Reads the value of `--min-saved`. It refuses NaN, with which no number compares as less.
fn percentage(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(format!("'{text}' is not a number of percent")),
    }
}

/// The values of `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Tables for a person
    Text,
    /// One JSON object
    Json,
    /// One page for a browser, with listings side by side; the same bytes for the same unit
    Html,
}

/// The report. This is the JSON object, field by field.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The version of this format.
    pub schema: u32,
    /// How many functions there are, for the target `host`.
    #[serde(flatten)]
    pub counts: Counts,
    /// Bytes of native code for each target that was measured, by its name.
    #[serde(serialize_with = "by_target")]
    pub native: Vec<Native>,
    /// The target that the plan and the times are for: the first one of this machine's
    /// architecture, or the first of all.
    pub host: String,
    /// How many functions were compiled at a time.
    pub jobs: usize,
    /// Wall-clock times.
    pub seconds: Seconds,
    /// The classes that save most, on the host's architecture.
    pub largest: Vec<Class>,
    /// The families of functions that save most, on the host's architecture, if the source names
    /// functions.
    pub families: Vec<Family>,
    /// Functions that share no body although they differ in little, those whose body would save
    /// most first, on the host's architecture.
    pub near_misses: Vec<NearMiss>,
    /// Functions that differ only in constants and references, on the host's architecture.
    pub similar: Similar,
    /// Data objects.
    pub data: Data,
    /// The decision about each function and data object, for the target `host`.
    pub decisions: Vec<Decision>,
}

/// Functions, counted.
#[derive(Debug, Serialize)]
pub struct Counts {
    /// Functions of the unit.
    pub functions: usize,
    /// Classes of two or more equal functions.
    pub classes: usize,
    /// Functions in them.
    pub members: usize,
    /// Functions whose bodies are not needed any more.
    pub merged: usize,
    /// New functions: private copies and parameterised bodies.
    pub new_bodies: usize,
    /// Functions of the unit by disposition.
    #[serde(serialize_with = "in_order")]
    pub by_disposition: Vec<(&'static str, usize)>,
    /// Functions of the unit by the reason for that.
    #[serde(serialize_with = "in_order")]
    pub by_reason: Vec<(&'static str, usize)>,
}

impl Counts {
    fn of(unit: &Unit, plan: &Plan) -> Counts {
        let functions = unit.functions.len();
        let entries = || plan.entries().take(functions).map(|(_, entry)| entry);
        Counts {
            functions,
            classes: shared_classes(plan, functions),
            members: plan.stats().plan_members,
            merged: plan.stats().merged.functions,
            new_bodies: plan.new_bodies().len(),
            by_disposition: by_disposition(entries().map(|entry| entry.disposition())),
            by_reason: by_reason(entries().map(|entry| entry.reason())),
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Data {
    /// Data objects of the unit.
    pub objects: usize,
    /// Those that are not needed any more.
    pub merged: usize,
    /// Sums of their sizes, zeros that take no room in a file included, padding not.
    pub bytes: Bytes,
    /// Data objects by disposition, on the host's architecture.
    #[serde(serialize_with = "in_order")]
    pub by_disposition: Vec<(&'static str, usize)>,
    /// Data objects by the reason for that.
    #[serde(serialize_with = "in_order")]
    pub by_reason: Vec<(&'static str, usize)>,
}

impl Data {
    fn of(plan: &Plan) -> Data {
        let entries = || plan.data_entries().map(|(_, entry)| entry);
        let before = entries().map(|entry| entry.size()).sum();
        let merged = plan.stats().merged.data_objects;
        Data {
            objects: entries().len(),
            merged,
            bytes: Bytes {
                before,
                after: before - plan.stats().merged.data_bytes,
                saved_by_similar: None,
            },
            by_disposition: by_disposition(entries().map(|entry| entry.disposition())),
            by_reason: by_reason(entries().map(|entry| entry.reason())),
        }
    }
}

/// The measurements for one target.
#[derive(Debug, Serialize)]
pub struct Native {
    #[serde(skip)]
    pub target: String,
    #[serde(flatten)]
    pub bytes: Bytes,
    /// Functions of the unit that cannot be compiled, whose bytes are not counted.
    pub not_compiled: usize,
    /// The first of them, where it is and why, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    /// Settings of the target that have to be switched on for some of them.
    pub missing_settings: Vec<&'static str>,
    /// How many of them can be compiled with these settings.
    pub compiled_with_settings: usize,
}

/// Functions that no setting helps, after which no other settings are tried for further functions.
const HOPELESS: usize = 16;

impl Native {
    fn of(unit: &Unit, plan: &Plan, sizes: &Sizes, isa: &dyn TargetIsa) -> Native {
        let refused = &sizes.refused;
        let mut settings: Vec<&'static str> = Vec::new();
        let mut helped = 0;
        let mut hopeless = 0;
        for Refused { function, error: _ } in refused {
            let Some(isa) = isa::with(isa, &settings) else {
                break;
            };
            let missing = match hopeless < HOPELESS {
                true => missing_settings(unit, *function, &*isa),
                false => compiles(unit, *function, &*isa).then(Vec::new),
            };
            match missing {
                Some(mut missing) => {
                    settings.append(&mut missing);
                    helped += 1;
                }
                None => hopeless += 1,
            }
        }
        let first_error = refused.first().map(|Refused { function, error }| {
            let given = &unit.given[*function];
            format!("{}: {}: {error}", given.place, unit.names.describe(&given.symbol))
        });
        Native {
            target: isa::title_of(isa),
            bytes: Bytes::of(sizes, plan),
            not_compiled: refused.len(),
            first_error,
            missing_settings: settings,
            compiled_with_settings: helped,
        }
    }

    /// The name of the target for a person.
    pub fn title(&self) -> &str {
        target_title(&self.target)
    }
}

/// The name of a target of a report for a person.
pub fn target_title(target: &str) -> &str {
    match target {
        "x86_64" => "x86-64",
        target => target,
    }
}

fn compiles(unit: &Unit, function: usize, isa: &dyn TargetIsa) -> bool {
    Compiler::new(isa).size(&unit.functions[function]).is_some()
}

fn by_target<S: Serializer>(natives: &[Native], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(natives.iter().map(|native| (&native.target, native)))
}

/// Sums of bytes before and after merging. Of code, thunks are included, padding is not.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Bytes {
    pub before: u64,
    pub after: u64,
    /// How many bytes of what is saved come from functions that are only similar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_by_similar: Option<i64>,
}

impl Bytes {
    fn of(sizes: &Sizes, plan: &Plan) -> Bytes {
        let (before, after) = (total(&sizes.before), total(&sizes.after));
        Bytes { before, after, saved_by_similar: Some(similar::saved(plan, sizes)) }
    }

    /// How much is saved, in percent.
    pub fn saved(self) -> f64 {
        percent(self.before as f64 - self.after as f64, self.before as f64)
    }
}

#[derive(Debug, Serialize)]
pub struct Seconds {
    /// From files to verified functions.
    pub read: f64,
    /// A bare visit of every instruction and operand.
    pub walk: f64,
    /// From functions in memory to the applied plan, on one thread.
    pub pass: f64,
    /// Code generation of all functions, `jobs` at a time.
    pub compile_before: f64,
    /// Code generation of the bodies that are left, `jobs` at a time.
    pub compile_after: f64,
}

/// A class of equal functions, or a set of similar ones, of which some were merged.
#[derive(Debug, Default, Serialize)]
pub struct Class {
    /// The name of the function whose body is kept. If that is new, of the first for which it was
    /// made.
    pub representative: String,
    /// The name of that function alone.
    #[serde(skip)]
    pub function: String,
    /// How many functions gave up their bodies.
    pub merged: usize,
    /// Bytes of code that this saves. Negative only if the kept body lost a fact that mattered.
    pub saved: i64,
}

fn in_order<S: Serializer>(pairs: &[(&str, usize)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().copied())
}

/// Reads, merges, compiles and writes the report.
///
/// # Errors
///
/// Units that cannot be read or compiled, with `--verify` errors in the result, and with
/// `--min-saved` that too little is saved.
pub fn run(opts: Opts) -> Result<ExitCode> {
    let Opts { format, output, rows, repeat, min_saved, max_listings, .. } = opts;
    let Opts { input, no_alias, pass, targets, jobs, general, .. } = opts;
    let output = Output::check(&output)?;
    let isas = |sources: &[Source]| targets.isas(sources);
    let (input, pass) = (&input, &pass);
    let task = Task {
        input,
        pass,
        isas: &isas,
        rows,
        repeat,
        aliases: !no_alias,
        jobs,
        general: &general,
    };
    let task = if format == Format::Html { task.of_page() } else { task };
    let (report, text) = measure(&task, |measured| {
        let text = match format {
            Format::Text => text(&measured.report, general.verbose),
            Format::Json => serde_json::to_string_pretty(&measured.report)? + "\n",
            Format::Html => Page::of(&measured, input, max_listings).render(),
        };
        Ok((measured.report, text))
    })?;
    output.write_text(&text)?;
    if let Some(least) = min_saved {
        let native = report.host();
        let saved = native.bytes.saved();
        if saved < least {
            return Err(condition(format!(
                "{saved:.2}% of the code is saved on {}, and {least}% was asked for",
                native.title(),
            )));
        }
    }
    Ok(Exit::Done.into())
}

/// A measurement to be made.
pub struct Task<'a> {
    /// The unit.
    pub input: &'a Input,
    /// How it is merged.
    pub pass: &'a Pass,
    /// The targets, of the command line and of the texts.
    pub isas: &'a dyn Fn(&[Source]) -> Result<Vec<OwnedTargetIsa>>,
    /// How many families, classes and near misses are listed.
    pub rows: usize,
    /// How often the short steps are timed.
    pub repeat: u32,
    /// Whether symbols may share an address.
    pub aliases: bool,
    /// The threads.
    pub jobs: JobsArg,
    /// The options for progress and messages.
    pub general: &'a General,
}

impl Task<'_> {
    /// This task for a page, on which there are no times, and in which a person can search.
    pub fn of_page(self) -> Self {
        Task { rows: page::MAX_ROWS, repeat: 1, ..self }
    }
}

/// A report, and what it is about.
pub struct Measured<'a> {
    /// The report.
    pub report: Report,
    /// The unit as it was planned.
    pub planned: &'a Planned<'a>,
    /// The target of the plan.
    pub isa: &'a dyn TargetIsa,
    /// The threads.
    pub jobs: &'a Jobs,
}

/// Reads, merges and compiles a unit, and hands over what was measured.
///
/// # Errors
///
/// Units that cannot be read or compiled, with `--verify` errors in the result, and errors of
/// `finish`.
pub fn measure<R>(task: &Task<'_>, finish: impl FnOnce(Measured<'_>) -> Result<R>) -> Result<R> {
    let Task { input, pass, isas, rows, repeat, aliases, jobs, general } = *task;
    let jobs = jobs.start()?;
    let mut start = Instant::now();
    let files = input.open()?;
    let mut read = start.elapsed();
    let isas = isas(files.texts())?;
    let own = |isa: &OwnedTargetIsa| isa.triple().architecture == Triple::host().architecture;
    let at_host = isas.iter().position(own).unwrap_or(0);
    let host = &*isas[at_host];
    start = Instant::now();
    let sources = files.translate(host, &jobs, general)?;
    let mut unit = input.read(&sources, host, &jobs, general)?;
    pass.prepare(&mut unit, host);
    read += start.elapsed();

    let options = pass.options(host, aliases);
    let walk = (0..repeat).map(|_| measure::walk(&unit.functions)).min().expect("repeated");
    let (mut applied, mut pass_time) = measure::pass(&unit, &options, &jobs)?;
    for _ in 1..repeat {
        let (again, time) = measure::pass(&unit, &options, &jobs)?;
        pass_time = pass_time.min(time);
        applied = again;
    }
    let (plan, names) = (applied.plan.clone(), std::mem::take(&mut applied.names));
    if pass.verify {
        let merged = pass::merge(&unit, &options)?;
        check(&unit, &merged, &options, host, general)?;
    }
    let compiled = measure::compile(&unit, applied, host, &jobs, general.quiet);

    let mut native = Vec::new();
    for (at, isa) in isas.iter().enumerate() {
        native.push(if at == at_host {
            Native::of(&unit, &plan, &compiled.sizes, host)
        } else {
            let options = pass.options(&**isa, aliases);
            let merged = pass::merge(&unit, &options)?;
            let sizes = measure::sizes(&unit, &merged, &**isa, &jobs, general.quiet);
            Native::of(&unit, &merged.plan, &sizes, &**isa)
        });
    }
    // Then there is nothing to report.
    if native.iter().all(|native| native.not_compiled == unit.functions.len())
        && let Some(first) = compiled.sizes.refused.first()
    {
        return Err(first.clone().into_error(&unit, &sources.texts, host));
    }
    let planned = Planned {
        unit: &unit,
        listings: &Listings::of(&sources.texts),
        plan: &plan,
        names: &names,
        options: &options,
        sizes: &compiled.sizes,
    };
    let decisions = decisions(&planned, &jobs);
    let seconds = |time: Duration| time.as_secs_f64();
    let report = Report {
        schema: 1,
        counts: Counts::of(&unit, &plan),
        native,
        host: isa::title_of(host),
        jobs: jobs.count(),
        seconds: Seconds {
            read: seconds(read),
            walk: seconds(walk),
            pass: seconds(pass_time),
            compile_before: seconds(compiled.before),
            compile_after: seconds(compiled.after),
        },
        largest: largest(&unit, &plan, &compiled.sizes, rows),
        families: families(&unit, &plan, &compiled.sizes, rows),
        near_misses: near_misses(&plan, &decisions, rows),
        similar: Similar::of(&plan),
        data: Data::of(&plan),
        decisions,
    };
    finish(Measured { report, planned: &planned, isa: host, jobs: &jobs })
}

/// The number of classes that have two or more of the first `functions` functions.
fn shared_classes(plan: &Plan, functions: usize) -> usize {
    let mut members: BTreeMap<u32, usize> = BTreeMap::new();
    for (_, entry) in plan.entries().take(functions) {
        *members.entry(entry.class()).or_default() += 1;
    }
    members.values().filter(|&&members| members > 1).count()
}

/// The first function for which a new body was made, if it is one.
pub fn new_body_for(plan: &Plan, body: FunctionIndex) -> Option<FunctionIndex> {
    let set = plan.similar_sets().iter().find(|set| set.body == Some(body));
    let copied = plan.new_body(body).and_then(NewBody::copy_of);
    let for_similar = set.filter(|_| body.index() >= plan.added()).map(|set| set.members[0]);
    for_similar.or(copied)
}

fn by_disposition<I>(
    dispositions: impl Iterator<Item = Disposition<I>>,
) -> Vec<(&'static str, usize)> {
    let mut counts = ["keep", "redirect", "alias", "thunk"].map(|name| (name, 0));
    for disposition in dispositions {
        let at = match disposition {
            Disposition::Keep => 0,
            Disposition::Redirect { to: _ } => 1,
            Disposition::Alias { to: _ } => 2,
            Disposition::Thunk { to: _ } => 3,
        };
        debug_assert_eq!(counts[at].0, disposition.name());
        counts[at].1 += 1;
    }
    counts.to_vec()
}

fn by_reason(reasons: impl Iterator<Item = Reason>) -> Vec<(&'static str, usize)> {
    let mut counts: BTreeMap<Reason, usize> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let count = |reason: Reason| counts.get(&reason).copied().unwrap_or(0);
    Reason::ALL.into_iter().map(|reason| (reason.id(), count(reason))).collect()
}

/// The classes and sets that save most, the largest first; of equal ones the first by number.
fn largest(unit: &Unit, plan: &Plan, sizes: &Sizes, rows: usize) -> Vec<Class> {
    let mut classes: BTreeMap<u32, (Option<FunctionIndex>, Class)> = BTreeMap::new();
    for (function, entry) in plan.entries() {
        // Functions with extra arguments are counted with their parameterised body, whatever class
        // they were of.
        let extra = !entry.extra_arguments().is_empty();
        let to = entry.disposition().representative().filter(|_| extra);
        let group = to.map_or(entry.class(), |to| plan.entry(to).class());
        let (representative, class) =
            classes.entry(group).or_insert_with(|| (None, Class::default()));
        if let Some(to) = entry.disposition().representative() {
            *representative = Some(to);
            class.merged += 1;
        }
        class.saved += sizes.saved(function);
    }
    let mut classes: Vec<Class> = classes
        .into_values()
        .filter_map(|(representative, class)| {
            let representative = representative?;
            let symbol = plan.entry(representative).symbol();
            let (function, representative) = match new_body_for(plan, representative) {
                None => (unit.names.describe(symbol), unit.names.describe(symbol)),
                Some(first) => {
                    let first = unit.names.describe(plan.entry(first).symbol());
                    let new = format!("(new, for {first})");
                    (first, new)
                }
            };
            Some(Class { representative, function, ..class })
        })
        .collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.saved));
    classes.truncate(rows);
    classes
}

impl Report {
    /// The measurements for the target that the plan is for.
    pub fn host(&self) -> &Native {
        let host = self.native.iter().find(|native| native.target == self.host);
        host.expect("it is measured")
    }
}
