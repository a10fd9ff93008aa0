//! The report for a person: the answer first, then what saved most, what could still, what it
//! costs.
//!
//! It renders what `report` has measured, and measures nothing.

use crate::codegen::Switches;
use crate::compile::plural;
use crate::families::{Family, NearMiss};
use crate::report::{Bytes, Class, Counts, Data, Native, Report, Seconds};
use crate::table::{Align, percent, render, signed, thousands};

/// How much of a name is shown in a table, in characters.
const NAME: usize = 72;

/// A name that fits a table.
fn shortened(name: &str) -> String {
    match name.chars().count() > NAME {
        true => name.chars().take(NAME - 1).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

impl Native {
    /// The message about functions that cannot be compiled; empty if all can.
    fn not_compiled_text(&self) -> String {
        let Native { not_compiled, first_error, missing_settings, compiled_with_settings, .. } =
            self;
        let Some(error) = first_error else {
            return String::new();
        };
        let (what, are) = match not_compiled {
            1 => ("1 function".to_owned(), "is"),
            _ => (format!("{} functions", thousands(*not_compiled as u64)), "are"),
        };
        let target = self.title();
        let mut text = format!(
            "\n{what} cannot be compiled for {target} and {are} not counted; the first error:\n  \
             {error}\n"
        );
        if !missing_settings.is_empty() {
            let switches = Switches(missing_settings);
            let some = match compiled_with_settings == not_compiled {
                true => "all".to_owned(),
                false => thousands(*compiled_with_settings as u64),
            };
            text += &format!("  {some} of them can be compiled with {switches}\n");
        }
        text
    }
}

fn share(part: f64, whole: f64) -> String {
    format!("{:.2}%", percent(part, whole))
}

fn number(number: usize) -> String {
    thousands(number as u64)
}

/// Bytes as a person says them: three digits, and the unit of a thousand or a million bytes.
fn bytes_in_words(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{} bytes", thousands(bytes)),
        10_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// The report: with `verbose`, all counters.
pub fn text(report: &Report, verbose: bool) -> String {
    let mut text = headline(report);
    text += &families(&report.families);
    text += &largest(&report.largest);
    text += &near_misses(&report.near_misses);
    let similar = report.similar.text();
    text += &native(report, !similar.is_empty());
    text += &data(&report.data, verbose);
    if verbose {
        text += &counters(&report.counts);
        text += &similar;
    }
    text + &times(report)
}

/// The saving, in words.
pub fn answer(native: &Native) -> String {
    let bytes = native.bytes;
    let before = bytes_in_words(bytes.before);
    format!("{:.2}% of {before} of {} code saved", bytes.saved(), native.title())
}

/// The answer, in one sentence.
fn headline(report: &Report) -> String {
    let (native, Seconds { pass, compile_before, compile_after, .. }) =
        (report.host(), &report.seconds);
    let mut text = format!(
        "{}; compiling takes {:.2} x the time",
        answer(native),
        (pass + compile_after) / compile_before.max(f64::MIN_POSITIVE),
    );
    let family = report.families.first().map(|family| (&family.name, family.saved));
    let class = report.largest.first().map(|class| (&class.function, class.saved));
    // A class can be a part of the family, and functions that the source does not name have none.
    let most = match (family, class) {
        (Some(family), Some(class)) => Some(if family.1 >= class.1 { family } else { class }),
        (family, class) => family.or(class),
    };
    if let Some((name, saved)) = most.filter(|&(_, saved)| saved > 0) {
        text += &format!("; the largest part at {}: {} bytes", shortened(name), signed(saved));
    }
    text + "\n"
}

/// The families that saved most; nothing if the source names no functions.
fn families(families: &[Family]) -> String {
    if families.is_empty() {
        return String::new();
    }
    let heading = ["functions of one family", "functions", "merged", "bytes", "saved"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for Family { name, functions, merged, before, saved } in families {
        let counts = [number(*functions), number(*merged), thousands(*before), signed(*saved)];
        rows.push([&[shortened(name)], &counts[..]].concat());
    }
    let align = [Align::Left, Align::Right, Align::Right, Align::Right, Align::Right];
    format!("\n{}", render(&align, &rows))
}

/// The classes that save most.
fn largest(classes: &[Class]) -> String {
    if classes.is_empty() {
        return String::new();
    }
    let heading = ["representative", "merged", "bytes saved"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for Class { representative, function: _, merged, saved } in classes {
        rows.push(vec![shortened(representative), number(*merged), signed(*saved)]);
    }
    format!("\n{}", render(&[Align::Left, Align::Right, Align::Right], &rows))
}

/// The pairs that could still be merged.
fn near_misses(misses: &[NearMiss]) -> String {
    if misses.is_empty() {
        return String::new();
    }
    let heading =
        ["similar, but not merged", "functions", "differ in", "bytes", "one body would save"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for miss in misses {
        let NearMiss { function, functions, bytes, would_save, .. } = miss;
        let name = match &miss.label {
            Some(label) => shortened(&format!("{function} ({label})")),
            None => function.clone(),
        };
        rows.push(vec![
            name,
            number(*functions),
            miss.difference(),
            thousands(*bytes),
            signed(*would_save),
        ]);
    }
    let right = Align::Right;
    let align = [Align::Left, right, Align::Left, right, right];
    format!("\n{}'clif-merge why IN FUNCTION' says more of one\n", render(&align, &rows))
}

/// Bytes of all targets, and how much similar functions save if there are any.
fn native(report: &Report, has_similar: bool) -> String {
    let heading = ["native bytes", "before", "after", "saved", "by similar functions"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for native in &report.native {
        let (name, bytes) = (native.title(), native.bytes);
        let Bytes { before, after, saved_by_similar } = bytes;
        let saved = format!("{:.2}%", bytes.saved());
        let similar = share(saved_by_similar.unwrap_or(0) as f64, before as f64);
        rows.push(vec![name.to_owned(), thousands(before), thousands(after), saved, similar]);
    }
    if !has_similar {
        rows.iter_mut().for_each(|row| row.truncate(4));
    }
    let right = [Align::Left, Align::Right, Align::Right, Align::Right, Align::Right];
    let mut text = format!("\n{}", render(&right[..rows[0].len()], &rows));
    for native in &report.native {
        text += &native.not_compiled_text();
    }
    text
}

/// Functions by what became of them.
fn counters(counts: &Counts) -> String {
    let Counts { functions, classes, members, merged, new_bodies, by_disposition, by_reason } =
        counts;
    let all = *functions as f64;
    let align = [Align::Left, Align::Right, Align::Right];
    let rows = [
        vec!["functions".to_owned(), number(*functions)],
        vec!["classes of two or more".to_owned(), number(*classes)],
        vec!["functions in them".to_owned(), number(*members), share(*members as f64, all)],
        vec!["merged".to_owned(), number(*merged), share(*merged as f64, all)],
    ];
    let mut text = format!("\n{}", render(&align, &rows));
    if *new_bodies > 0 {
        text += &format!("new bodies: {new_bodies}\n");
    }
    for (heading, counts) in [("disposition", by_disposition), ("reason", by_reason)] {
        let mut rows = vec![vec![heading.to_owned(), "functions".to_owned()]];
        for &(name, count) in counts.iter().filter(|(_, count)| *count > 0) {
            rows.push(vec![name.to_owned(), number(count), share(count as f64, all)]);
        }
        text += &format!("\n{}", render(&align, &rows));
    }
    text
}

/// The times.
fn times(report: &Report) -> String {
    let Seconds { read, walk, pass, compile_before, compile_after } = report.seconds;
    let mut rows =
        vec![vec!["seconds".to_owned(), plural(report.jobs, "job"), "of compiling".to_owned()]];
    for (name, time) in [
        ("reading", read),
        ("visiting every instruction", walk),
        ("the pass", pass),
        ("compiling before", compile_before),
        ("compiling after", compile_after),
    ] {
        rows.push(vec![name.to_owned(), format!("{time:.4}"), share(time, compile_before)]);
    }
    let mut text = format!("\n{}", render(&[Align::Left, Align::Right, Align::Right], &rows));
    if cfg!(debug_assertions) {
        text += "(by a development build of clif-merge: with --release, times are shorter)\n";
    }
    text
}

/// The part about data objects; empty if there are none.
fn data(data: &Data, verbose: bool) -> String {
    let Data { objects, merged, bytes, by_disposition: _, by_reason } = data;
    if *objects == 0 {
        return String::new();
    }
    let of_all = |part: usize| format!("{:.2}%", percent(part as f64, *objects as f64));
    let mut rows = vec![vec!["reason".to_owned(), "data objects".to_owned()]];
    for &(name, count) in by_reason.iter().filter(|(_, count)| *count > 0) {
        rows.push(vec![name.to_owned(), number(count), of_all(count)]);
    }
    let right = [Align::Left, Align::Right, Align::Right, Align::Right];
    let mut text = match verbose {
        true => format!("\n{}", render(&right, &rows)),
        false => String::new(),
    };
    let heading = ["data", "before", "after", "saved"].map(str::to_owned).to_vec();
    let left = objects - merged;
    let saved = format!("{:.2}%", bytes.saved());
    let rows = [
        heading,
        vec!["data objects".to_owned(), number(*objects), number(left), of_all(*merged)],
        vec!["bytes".to_owned(), thousands(bytes.before), thousands(bytes.after), saved],
    ];
    text += &format!("\n{}", render(&right, &rows));
    text
}
