//! A report as one page of HTML that needs nothing else: no network, and for what comes first no
//! script either.
//!
//! The answer, a treemap of the code by class, tables, and for each class its members and their
//! listings side by side. The bytes of a page depend on the unit, the options and the version only:
//! no time is on it, and no number of jobs. It renders what was measured and decided, and measures
//! and decides nothing.

mod data;
mod function;
mod groups;
mod listings;
mod map;
mod markup;
mod treemap;

use crate::args::Input;
use crate::decisions::{Decision, Item, Planned, by_name};
use crate::families::{Family, NearMiss};
use crate::jobs::Jobs;
use crate::report::{Measured, Native, Report};
use crate::report_text::answer;
use crate::table::{signed, thousands};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cranelift_codegen::isa::TargetIsa;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::{FunctionIndex, cranelift_codegen};
use data::{Data, Source};
use function::listing;
use groups::{Group, Part, groups};
pub use listings::Listing;
use listings::embed;
use markup::{escape, fill, json};
use sha2::{Digest as _, Sha256};
use std::cmp::Reverse;
use std::fmt::Write as _;
use std::path::PathBuf;

/// The page with holes.
const PAGE: &str = include_str!("assets/page.html");
const STYLE: &str = include_str!("assets/page.css");
const SCRIPT: &str = concat!(include_str!("assets/diff.js"), include_str!("assets/page.js"));

/// How many bytes of a page listings take at most, as they are embedded.
pub const MAX_LISTINGS: usize = 8 << 20;

/// How many families and near misses a page has at most.
pub const MAX_ROWS: usize = 500;

/// How many rows of a table there are without a script.
const STATIC_ROWS: usize = 100;

/// The data of a page.
pub struct Page<'a> {
    /// The measured report.
    pub report: &'a Report,
    /// The unit as it was planned.
    pub planned: &'a Planned<'a>,
    /// The files of the unit, as the user named them.
    pub paths: &'a [PathBuf],
    /// How many bytes of the page listings may take.
    pub max_listings: usize,
    /// The threads that compress listings.
    pub jobs: &'a Jobs,
    /// The target whose native code is shown, if that is.
    pub native: Option<&'a dyn TargetIsa>,
    /// Whether a server has the listings, so that none is embedded.
    pub served: bool,
}

impl<'a> Page<'a> {
    /// The page of a report, with the CLIF of functions embedded.
    pub fn of(measured: &'a Measured<'a>, input: &'a Input, max_listings: usize) -> Page<'a> {
        let Measured { report, planned, isa: _, jobs } = measured;
        let paths = &input.paths;
        Page { report, planned, paths, max_listings, jobs, native: None, served: false }
    }

    /// The page.
    pub fn render(&self) -> String {
        let Page { report, paths, max_listings, jobs, served, .. } = self;
        let decisions = &report.decisions;
        let groups = groups(decisions);
        let sets = if *served { Vec::new() } else { sets(report, &groups) };
        let listings = embed(sets, *max_listings, jobs, &|at| self.listing(at));
        let native = report.host();
        let names: Vec<String> = paths.iter().map(|path| quoted(&path.to_string_lossy())).collect();
        let why = format!("clif-merge why {}", names.join(" "));
        let source = Source { why: &why, served: *served, native: self.native.is_some() };
        let data = Data::of(report, &groups, &listings, source);
        let map_label = format!("Native code by class on {}", native.title());
        let functions = thousands(report.counts.functions as u64);
        let values = [
            ("policy", self.policy()),
            ("title", escape(&format!("Merging {}", names.join(" "))).into_owned()),
            ("style", STYLE.to_owned()),
            ("script", SCRIPT.to_owned()),
            ("answer", escape(&answer(native)).into_owned()),
            ("input", escape(&names.join(" ")).into_owned()),
            ("functions", functions),
            ("merged", thousands(report.counts.merged as u64)),
            ("new_bodies", thousands(report.counts.new_bodies as u64)),
            ("targets", report.native.iter().map(target_row).collect()),
            ("data_objects", data_row(report)),
            ("target", escape(native.title()).into_owned()),
            ("legend", Part::ALL.map(|part| legend(part, &groups)).concat()),
            ("treemap", map::svg(&groups, decisions, &map_label)),
            ("families", family_rows(&report.families)),
            ("misses", miss_rows(&report.near_misses)),
            ("classes", class_rows(&groups, decisions)),
            ("class_count", thousands(groups.len() as u64)),
            ("why", escape(&why).into_owned()),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("data", json(&data)),
        ];
        fill(PAGE, &values)
    }

    /// The texts of a function or a new body, by its index in the table.
    pub fn listing(&self, at: usize) -> Listing {
        listing(self.planned, self.native, FunctionIndex::new(at))
    }

    /// How many functions and new bodies have listings.
    pub fn listings(&self) -> usize {
        self.planned.plan.entries().len()
    }

    /// The permissions of the page in a browser.
    pub fn policy(&self) -> String {
        policy(self.served)
    }
}

/// Only what is in the page: this script and this style. No request, or requests to the server of
/// the page.
fn policy(served: bool) -> String {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    let connect = if served { " connect-src 'self';" } else { "" };
    format!(
        "default-src 'none'; script-src {}; style-src {}; img-src data:;{connect} \
         base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(STYLE)
    )
}

/// A path as a word of a command line.
fn quoted(path: &str) -> String {
    let is_plain = |character: char| {
        character.is_ascii_alphanumeric() || matches!(character, '/' | '.' | '_' | '-' | '+' | ',')
    };
    match !path.is_empty() && path.chars().all(is_plain) {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// The functions whose listings are wanted together, those with most bytes at stake first: near
/// misses, classes, and functions with what they resemble.
fn sets(report: &Report, groups: &[Group]) -> Vec<Vec<usize>> {
    let decisions = &report.decisions;
    let indices = by_name(decisions);
    let mut sets: Vec<(u64, Vec<usize>)> = Vec::new();
    for miss in &report.near_misses {
        sets.push((miss.bytes, miss.members.iter().map(|member| member.index()).collect()));
    }
    for group in groups {
        let first = group.representative;
        let mut members = vec![first];
        members.extend(group.members.iter().copied().filter(|&at| at != first));
        let rows = || group.members.iter().map(|&at| &decisions[at]);
        let largest = rows().map(|row| row.bytes_before).max().unwrap_or(0);
        let stake = (group.before - largest).max(group.missed);
        let others = rows().filter_map(|row| indices.get(&*row.resembles.as_ref()?.name));
        // Of many members, each may resemble another function.
        members.extend(others.take(1).copied().filter(|at| !group.members.contains(at)));
        sets.push((stake, members));
    }
    // Of equal ones, near misses come first, and then classes in their order.
    sets.sort_by_key(|&(stake, _)| Reverse(stake));
    sets.into_iter().map(|(_, members)| members).collect()
}

fn target_row(native: &Native) -> String {
    let Native { bytes, not_compiled, .. } = native;
    let cells = [thousands(bytes.before), thousands(bytes.after), format!("{:.2}%", bytes.saved())];
    let not_compiled = match not_compiled {
        0 => String::new(),
        count => format!(" ({} functions cannot be compiled)", thousands(*count as u64)),
    };
    row(None, &format!("{}{not_compiled}", escape(native.title())), &cells)
}

/// The row of data objects; empty if there are none.
fn data_row(report: &Report) -> String {
    let bytes = report.data.bytes;
    let cells = [thousands(bytes.before), thousands(bytes.after), format!("{:.2}%", bytes.saved())];
    let count = thousands(report.data.objects as u64);
    match report.data.objects {
        0 => String::new(),
        _ => row(None, &format!("data, {count} objects"), &cells),
    }
}

/// The bytes of each part of all classes. Those that grew count as well, so that the sum is that of
/// before merging, and the bytes saved are the difference to those after it.
fn legend(part: Part, groups: &[Group]) -> String {
    let sum = |of: fn(&Group) -> u64| groups.iter().map(of).sum::<u64>() as i64;
    let (after, missed) = (sum(|group| group.after), sum(|group| group.missed));
    let bytes = match part {
        Part::Saved => sum(|group| group.before) - after,
        Part::Kept => after - missed,
        Part::CouldMerge => missed,
    };
    let (swatch, title) = (map::swatch(part), part.title());
    format!("<li>{swatch} {title}: {} bytes</li>\n", signed(bytes))
}

/// A row of a table: a name, as it is to be written, and numbers.
fn row(id: Option<String>, name: &str, cells: &[String]) -> String {
    let id = id.map_or(String::new(), |id| format!(" id=\"{id}\""));
    let mut text = format!("<tr{id}><th scope=\"row\">{name}</th>");
    for cell in cells {
        write!(text, "<td>{}</td>", escape(cell)).expect("writing to a string");
    }
    text + "</tr>\n"
}

fn family_rows(families: &[Family]) -> String {
    let families = families.iter().take(STATIC_ROWS).map(|family| {
        let Family { name, functions, merged, before, saved } = family;
        let counts = [*functions as u64, *merged as u64, *before].map(thousands);
        row(None, &escape(name), &[&counts[..], &[signed(*saved)]].concat())
    });
    families.collect()
}

fn miss_rows(misses: &[NearMiss]) -> String {
    let misses = misses.iter().take(STATIC_ROWS).enumerate().map(|(at, miss)| {
        let NearMiss { function, functions, bytes, would_save, .. } = miss;
        let name = named(function, miss.label.as_deref());
        let cells = [
            thousands(*functions as u64),
            miss.difference(),
            thousands(*bytes),
            signed(*would_save),
        ];
        row(Some(format!("similar-{at}")), &name, &cells)
    });
    misses.collect()
}

/// The classes that save most, and those to which the treemap links.
fn class_rows(groups: &[Group], decisions: &[Decision]) -> String {
    let mut is_shown: Vec<bool> = (0..groups.len()).map(|at| at < STATIC_ROWS).collect();
    map::drawn(groups).into_iter().for_each(|at| is_shown[at] = true);
    let shown = groups.iter().zip(is_shown).filter(|(_, shown)| *shown);
    let rows = shown.map(|(group, _)| {
        let Group { class, members, representative, merged, before, after, missed: _ } = group;
        let decision = &decisions[*representative];
        let mut name = named(&decision.name, decision.label());
        if decision.item == Item::NewBody {
            name += " (new)";
        }
        let counts = [*merged as u64, *before, *after].map(thousands);
        let mut cells = vec![class.to_string(), thousands(members.len() as u64)];
        cells.extend(counts);
        cells.push(signed(group.saved()));
        row(Some(format!("class-{class}")), &name, &cells)
    });
    rows.collect()
}

/// A function's name, and what the source calls it.
fn named(name: &str, source: Option<&str>) -> String {
    let source = source.map_or(String::new(), |source| {
        format!(" <span class=\"source\">{}</span>", escape(source))
    });
    format!("<span class=\"name\">{}</span>{source}", escape(name))
}
