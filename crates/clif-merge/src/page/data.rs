//! The data of a page, for its script: columns of the table of decisions, classes, near misses, families, listings.
//!
//! Columns instead of rows, so that no name of a field is repeated for each of many functions. Only pages read it:
//! its form may change with each version.

use super::groups::Group;
use super::listings::Stream;
use crate::decisions::{Decision, Item, Outcome, Resembled, by_name};
use crate::families::Family;
use crate::report::Report;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::Reason;
use cranelift_mergefunc::explain::Rule;
use serde::Serialize;
use std::collections::HashMap;

/// Where listings come from.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Source<'a> {
    /// The command that explains two functions in a terminal, without their names.
    pub why: &'a str,
    /// Whether the server of the page has them.
    pub served: bool,
    /// Whether they have native code.
    pub native: bool,
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct Data<'a> {
    #[serde(flatten)]
    source: Source<'a>,
    /// What rules mean, by their ids: reasons and first differences.
    rules: Vec<[&'static str; 2]>,
    files: Vec<&'a str>,
    functions: Functions<'a>,
    classes: Classes,
    misses: Misses,
    families: &'a [Family],
    listings: &'a [Stream],
}

/// Functions and new bodies: element by element, what a `Decision` has. Names of others are indices.
#[derive(Debug, Default, Serialize)]
struct Functions<'a> {
    name: Vec<&'a str>,
    source: Vec<Option<&'a str>>,
    is_new: Vec<u8>,
    file: Vec<Option<usize>>,
    line: Vec<Option<usize>>,
    class: Vec<u32>,
    #[serde(flatten)]
    outcomes: Outcomes<'a>,
    before: Vec<u64>,
    after: Vec<u64>,
    resembles: Vec<Option<Resembles<'a>>>,
}

/// What became of functions, and why: element by element, what an `Outcome` has.
#[derive(Debug, Default, Serialize)]
struct Outcomes<'a> {
    disposition: Vec<&'a str>,
    rule: Vec<&'a str>,
    replaced_by: Vec<Option<usize>>,
    arguments: Vec<Option<&'a str>>,
}

#[derive(Debug, Serialize)]
struct Resembles<'a> {
    function: usize,
    parameters: Option<usize>,
    rule: Option<&'a str>,
    line: Option<usize>,
    other_line: Option<usize>,
}

/// Classes in their order: those that save most first.
#[derive(Debug, Default, Serialize)]
struct Classes {
    number: Vec<u32>,
    representative: Vec<usize>,
    merged: Vec<usize>,
    before: Vec<u64>,
    after: Vec<u64>,
}

/// Sets of similar functions that share no body.
#[derive(Debug, Default, Serialize)]
struct Misses {
    members: Vec<Vec<usize>>,
    difference: Vec<String>,
    bytes: Vec<u64>,
    would_save: Vec<i64>,
}

impl<'a> Data<'a> {
    /// Of a report.
    pub fn of(
        report: &'a Report,
        groups: &[Group],
        listings: &'a [Stream],
        source: Source<'a>,
    ) -> Data<'a> {
        let decisions = &report.decisions;
        let reasons = Reason::ALL.map(|reason| [reason.id(), reason.explanation()]);
        let rules = Rule::ALL.map(|rule| [rule.id(), rule.explanation()]);
        let mut misses = Misses::default();
        for miss in &report.near_misses {
            misses.members.push(miss.members.iter().map(|member| member.index()).collect());
            misses.difference.push(miss.difference());
            misses.bytes.push(miss.bytes);
            misses.would_save.push(miss.would_save);
        }
        let mut classes = Classes::default();
        for group in groups {
            classes.number.push(group.class);
            classes.representative.push(group.representative);
            classes.merged.push(group.merged);
            classes.before.push(group.before);
            classes.after.push(group.after);
        }
        let (functions, files) = functions(decisions);
        Data {
            source,
            rules: [&reasons[..], &rules[..]].concat(),
            files,
            functions,
            classes,
            misses,
            families: &report.families,
            listings,
        }
    }
}

/// The columns, and the files that they refer to.
fn functions(decisions: &[Decision]) -> (Functions<'_>, Vec<&str>) {
    let indices = by_name(decisions);
    let mut files: Vec<&str> = Vec::new();
    let mut file_indices: HashMap<&str, usize> = HashMap::new();
    let mut columns = Functions::default();
    for decision in decisions.iter().filter(|decision| decision.item != Item::Data) {
        let resembles = decision.resembles.as_ref().and_then(|resembled| {
            let Resembled { name, parameters, common: _, rule, line, other_line } = resembled;
            Some(Resembles {
                function: *indices.get(&**name)?,
                parameters: *parameters,
                rule: rule.as_deref(),
                line: *line,
                other_line: *other_line,
            })
        });
        let file = decision.file.as_deref().map(|file| {
            *file_indices.entry(file).or_insert_with(|| {
                files.push(file);
                files.len() - 1
            })
        });
        let Outcome { disposition, rule, replaced_by, extra_arguments } = &decision.outcome;
        let replaced_by = replaced_by.as_deref().and_then(|name| indices.get(name).copied());
        columns.name.push(&decision.name);
        columns.source.push(decision.label());
        columns.is_new.push(u8::from(decision.item == Item::NewBody));
        columns.file.push(file);
        columns.line.push(decision.line);
        columns.class.push(decision.class);
        columns.outcomes.disposition.push(disposition);
        columns.outcomes.rule.push(rule);
        columns.outcomes.replaced_by.push(replaced_by);
        columns.outcomes.arguments.push(extra_arguments.as_deref());
        columns.before.push(decision.bytes_before);
        columns.after.push(decision.bytes_after);
        columns.resembles.push(resembles);
    }
    (columns, files)
}
