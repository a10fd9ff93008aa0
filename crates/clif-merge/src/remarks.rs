//! `clif-merge remarks`: every decision about a unit, a line or a record each.
//!
//! It renders the table of decisions: for a person, as JSON lines, and as LLVM's optimisation
//! remarks in YAML, which `opt-viewer` and other tools read. It decides nothing.

use crate::args::{Common, Input};
use crate::decisions::decide::{Decided, decide};
use crate::decisions::filter::Filter;
use crate::decisions::{Decision, Item, Kind, Resembled, by_name};
use crate::exit::Exit;
use crate::jobs::JobsArg;
use crate::output::Output;
use crate::table::thousands;
use anyhow::Result;
use cranelift_mergefunc::Reason;
use cranelift_mergefunc::explain::Rule;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print what was decided about each function and data object, and why
///
/// A decision is 'passed' if a body was given up, 'missed' if something was kept that equals or
/// resembles another one, and 'analysis' otherwise. Each has its rule, and what was missed the
/// first difference from another function.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = long_help())]
pub struct Opts {
    #[command(flatten)]
    input: Input,

    /// The format of the remarks
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    format: Format,

    /// Where to write them
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    output: PathBuf,

    /// Never give two symbols one address: use thunks instead
    #[arg(long, help_heading = "Merging")]
    no_alias: bool,

    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    jobs: JobsArg,
    #[command(flatten)]
    common: Common,
}

const EXAMPLES: &str = "\
Examples:
  clif-merge remarks unit.clif
  clif-merge remarks --kind missed --min-bytes 200 app.wasm
  clif-merge remarks --rule constant unit.clif     what differs in a constant first
  clif-merge remarks --function '*::drop' unit.clif
  clif-merge remarks --format json unit.clif | jq .rule
  clif-merge remarks --format yaml -o unit.opt.yaml unit.clif";

/// The examples, every rule, and the exit codes.
fn long_help() -> String {
    let line = |(id, explanation): (&str, &str)| format!("  {id:<22} {explanation}\n");
    let reasons = Reason::ALL.map(|reason| line((reason.id(), reason.explanation()))).concat();
    let rules = Rule::ALL.map(|rule| line((rule.id(), rule.explanation()))).concat();
    let exit = crate::exit::HELP;
    format!("{EXAMPLES}\n\nReasons:\n{reasons}\nFirst differences:\n{rules}\n{exit}")
}

/// The values of `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A line for each decision
    Text,
    /// A JSON object in a line for each, as in the report's 'decisions'
    Json,
    /// Optimisation remarks of LLVM, for opt-viewer and similar tools
    Yaml,
}

/// Reads, merges and writes.
///
/// # Errors
///
/// Files that cannot be read or written.
pub fn run(opts: Opts) -> Result<ExitCode> {
    let Opts { input, format, output, no_alias, filter, jobs, common } = opts;
    let output = Output::check(&output)?;
    let Decided { target: _, decisions } = decide(&input, &common, !no_alias, jobs)?;
    let known = Known::of(&decisions);
    let decisions = filter.apply(&decisions);
    let text = match format {
        Format::Text => decisions.iter().map(|&decision| text(decision, &known)).collect(),
        Format::Json => json_lines(&decisions)?,
        Format::Yaml => decisions.iter().map(|&decision| yaml(decision, &known)).collect(),
    };
    output.write(text.as_bytes())?;
    Ok(Exit::Done.into())
}

/// A decision for a person: place, what became of it, why, and what it saves.
fn text(decision: &Decision, known: &Known<'_>) -> String {
    let place = match (&decision.file, decision.line) {
        (Some(file), Some(line)) => format!("{file}:{line}: "),
        _ => String::new(),
    };
    let described = |(part, text): (Part, String)| match part {
        Part::Name(_) => known.described(&text),
        Part::Words | Part::Number(_) | Part::Id(_) => text,
    };
    let message: String = message(decision).into_iter().map(described).collect();
    format!("{place}{}: {}: {message}\n", name_of(decision.kind), decision.described())
}

fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Passed => "passed",
        Kind::Missed => "missed",
        Kind::Analysis => "analysis",
    }
}

/// The kind of a part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Words,
    /// The name of a function or an object.
    Name(&'static str),
    Number(&'static str),
    Id(&'static str),
}

/// The message about a decision behind its name, in parts.
fn message(decision: &Decision) -> Vec<(Part, String)> {
    let words = |text: &str| (Part::Words, text.to_owned());
    let outcome = &decision.outcome;
    let mut parts = Vec::new();
    match (&*outcome.disposition, decision.item, &outcome.replaced_by) {
        ("redirect", _, Some(to)) => {
            parts.extend([words("redirected to "), (Part::Name("Representative"), to.clone())]);
        }
        ("alias", _, Some(to)) => {
            parts.extend([words("alias of "), (Part::Name("Representative"), to.clone())]);
        }
        ("thunk", _, Some(to)) => {
            parts.extend([words("thunk to "), (Part::Name("Representative"), to.clone())]);
        }
        (_, Item::NewBody, _) => parts.push(words("new")),
        _ => parts.push(words("kept")),
    }
    if let Some(arguments) = &outcome.extra_arguments {
        parts.extend([words(" with "), (Part::Words, arguments.clone())]);
    }
    parts.push(words(", "));
    let bytes = [decision.bytes_before, decision.bytes_after];
    let number = |name, bytes: u64| (Part::Number(name), thousands(bytes));
    match (decision.item, bytes) {
        (Item::NewBody, [_, after]) => parts.push(number("BytesAfter", after)),
        (_, [before, after]) if before == after => parts.push(number("BytesBefore", before)),
        (_, [before, after]) => {
            parts.extend([
                number("BytesBefore", before),
                words(" -> "),
                number("BytesAfter", after),
            ]);
        }
    }
    parts.push(words(" bytes ["));
    parts.extend([(Part::Id("Reason"), outcome.rule.clone()), words("]")]);
    if let Some(reason) = decision.reason() {
        parts.push(words(&format!(": {}", reason.explanation())));
    }
    if let Some(resembled) = &decision.resembles {
        let Resembled { name, parameters, common, rule, line, other_line: _ } = resembled;
        match rule {
            None => {
                parts.extend([words("; equals "), (Part::Name("Other"), name.clone())]);
            }
            Some(id) => {
                parts.extend([words("; resembles "), (Part::Name("Other"), name.clone())]);
                if let Some(parameters) = parameters {
                    let places = if *parameters == 1 { "place" } else { "places" };
                    parts.push(words(", from which it differs in "));
                    parts.push((Part::Number("Parameters"), parameters.to_string()));
                    parts.push(words(&format!(" {places}")));
                }
                if let Some(common) = common {
                    parts.push(words(" in the first "));
                    parts.push((Part::Number("Common"), common.to_string()));
                    parts.push(words("% of the opcodes"));
                }
                parts.extend([words("; first difference ["), (Part::Id("Difference"), id.clone())]);
                parts.push(words("]"));
                if let Some(line) = line {
                    parts.push(words(" in line "));
                    parts.push((Part::Number("Line"), line.to_string()));
                }
                let rule = resembled.difference();
                parts.extend(rule.map(|rule| words(&format!(": {}", rule.explanation()))));
            }
        }
    }
    parts
}

/// The parts of a message, with words that follow each other joined to one part.
fn joined(parts: Vec<(Part, String)>) -> Vec<(Part, String)> {
    let mut joined: Vec<(Part, String)> = Vec::with_capacity(parts.len());
    for (part, text) in parts {
        match joined.last_mut() {
            Some((Part::Words, last)) if part == Part::Words => last.push_str(&text),
            _ => joined.push((part, text)),
        }
    }
    joined
}

fn json_lines(decisions: &[&Decision]) -> Result<String> {
    let mut text = String::new();
    for decision in decisions {
        writeln!(text, "{}", serde_json::to_string(decision)?).expect("writing to a string");
    }
    Ok(text)
}

/// The rows by the names of functions and objects.
struct Known<'a> {
    decisions: &'a [Decision],
    indices: HashMap<&'a str, usize>,
}

impl<'a> Known<'a> {
    fn of(decisions: &'a [Decision]) -> Known<'a> {
        Known { decisions, indices: by_name(decisions) }
    }

    fn get(&self, name: &str) -> Option<&'a Decision> {
        self.indices.get(name).map(|&at| &self.decisions[at])
    }

    /// The name for a person.
    fn described(&self, name: &str) -> String {
        self.get(name).map_or_else(|| name.to_owned(), Decision::described)
    }

    /// The `DebugLoc`, if the unit has it.
    fn location(&self, name: &str) -> Option<String> {
        let decision = self.get(name)?;
        Some(location(decision.file.as_ref()?, decision.line?))
    }
}

/// A `DebugLoc`. Columns are not known.
fn location(file: &str, line: usize) -> String {
    format!("{{ File: {}, Line: {line}, Column: 0 }}", scalar(file))
}

/// A scalar in single quotes, as LLVM writes them, or in double quotes with the escapes of JSON,
/// which YAML has too.
fn scalar(text: &str) -> String {
    match text.contains(char::is_control) {
        true => serde_json::Value::from(text).to_string(),
        false => format!("'{}'", text.replace('\'', "''")),
    }
}

/// A decision as LLVM's remarks have it (`llvm::yaml`, "YAML remarks", version 0): a document of
/// its own.
fn yaml(decision: &Decision, known: &Known<'_>) -> String {
    let tag = match decision.kind {
        Kind::Passed => "Passed",
        Kind::Missed => "Missed",
        Kind::Analysis => "Analysis",
    };
    let mut text = format!("--- !{tag}\n");
    let mut field = |key: &str, value: String| {
        writeln!(text, "{:<16} {value}", format!("{key}:")).expect("writing to a string");
    };
    field("Pass", "cranelift-mergefunc".to_owned());
    field("Name", decision.outcome.rule.clone());
    if let (Some(file), Some(line)) = (&decision.file, decision.line) {
        field("DebugLoc", location(file, line));
    }
    field("Function", scalar(decision.source_name.as_ref().unwrap_or(&decision.name)));
    text += "Args:\n";
    let mut argument = |key: &str, value: &str, place: Option<String>| {
        writeln!(text, "  - {:<12} {}", format!("{key}:"), scalar(value)).expect("is a string");
        if let Some(place) = place {
            writeln!(text, "    DebugLoc:    {place}").expect("writing to a string");
        }
    };
    argument("Name", &decision.described(), None);
    let message = [(Part::Words, ": ".to_owned())].into_iter().chain(message(decision));
    for (part, value) in joined(message.collect()) {
        match part {
            Part::Words => argument("String", &value, None),
            Part::Name(key) => argument(key, &known.described(&value), known.location(&value)),
            Part::Number(key) | Part::Id(key) => argument(key, &value, None),
        }
    }
    text + "...\n"
}
