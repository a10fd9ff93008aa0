//! Cuts one unit into many, so that merging across units can be measured on the units that there
//! are.
//!
//! Every function goes to one unit, with its text from `function` to the closing brace as it is.
//! Comments between functions are left out; the lines `target` and `set` before the first function
//! begin every unit. Directives say what the cut makes of a function, so that the units need no
//! options: one that another unit refers to is hidden, any other is local, and addresses are
//! insignificant. An attribute that the text of the whole unit gives a function holds if that makes
//! it more visible or its address significant.
//!
//! It changes no function and merges nothing. Units with data objects, thunks or aliases are
//! refused: these would have to stay with what they refer to.

use anyhow::{Result, ensure};
use clif_unit::directives::{PREFIX, line_below};
use clif_unit::error::{TextError, with_lines};
use clif_unit::header::Headers;
use clif_unit::isa;
use clif_unit::sources::Source;
use clif_unit::unit::{Defaults, Reading, Unit, external_names, is_function_line, parse_unit};
use clif_unit::verify::Verifier;
use cranelift_codegen::ir::ExternalName;
use cranelift_mergefunc::{Addresses, Attributes, Linkage, cranelift_codegen};
use std::collections::HashMap;

/// Which functions of a unit stay together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// Consecutive functions, in units of about equal numbers of functions.
    Neighbouring,
    /// Functions go to the units in turn: function i to unit i modulo the number of units.
    Turn,
}

impl By {
    /// The unit of function `function` among `functions`.
    fn unit_of(self, function: usize, functions: usize, units: usize) -> usize {
        match self {
            By::Neighbouring => function * units / functions,
            By::Turn => function % units,
        }
    }
}

/// Cuts a unit into `units` texts, or, if it has fewer functions, into one for each function.
///
/// # Errors
///
/// All that is wrong with the unit, with file and line, and a unit with data objects, thunks or
/// aliases.
pub fn cut(source: Source, units: usize, by: By) -> Result<Vec<String>> {
    ensure!(units > 0, "a unit cannot be cut into 0 units");
    let sources = [source];
    cut_text(&sources, units, by).map_err(|error| with_lines(error, &sources))
}

fn cut_text(sources: &[Source; 1], units: usize, by: By) -> Result<Vec<String>> {
    let [source] = sources;
    let whole = read(sources)?;
    check(&whole)?;
    let count = whole.functions.len();
    let units = units.min(count);
    let unit_of = |function| by.unit_of(function, count, units);
    let used_elsewhere = used_elsewhere(&whole, unit_of);

    let texts = function_texts(source, &whole);
    let defaults = defaults();
    let begin = beginning(source);
    let mut cut = vec![begin; units];
    for (function, text) in texts.into_iter().enumerate() {
        let given = whole.given[function].attributes;
        let needed = match used_elsewhere[function] {
            true => Linkage::Hidden,
            false => Linkage::Local,
        };
        let linkage = match visibility(given.linkage) >= visibility(needed) {
            true => given.linkage,
            false => needed,
        };
        let unit = &mut cut[unit_of(function)];
        unit.push('\n');
        unit.push_str(&line_below(defaults, Attributes { linkage, ..given }, None));
        unit.push_str(text);
        unit.push('\n');
    }
    Ok(cut)
}

/// The attributes of functions without directives, in the whole unit and in those that it is cut
/// into.
fn defaults() -> Attributes {
    Attributes {
        linkage: Linkage::Local,
        addresses: Addresses::Insignificant,
        ..Attributes::default()
    }
}

fn visibility(linkage: Linkage) -> u8 {
    match linkage {
        Linkage::Local => 0,
        Linkage::Hidden => 1,
        Linkage::Export => 2,
        Linkage::Preemptible => 3,
    }
}

fn read(sources: &[Source]) -> Result<Unit> {
    let headers = Headers::of(sources)?;
    let targets = [headers.target(None)?];
    let isas = isa::build_all(&targets, &headers.settings(&targets, &[])?)?;
    let verifier = Verifier::new(&*isas[0]);
    let defaults = Defaults { functions: defaults(), ..Defaults::default() };
    parse_unit(sources, Reading { defaults, ..Reading::plain(&verifier) })
}

/// Refuses what cannot be cut.
fn check(unit: &Unit) -> Result<(), TextError> {
    if let Some(data) = unit.data.first() {
        let name = unit.names.display(&data.symbol);
        return Err(data.place.error(format!("{name}: a unit with data objects cannot be cut")));
    }
    for given in &unit.given {
        if let Some((became, _)) = &given.became {
            let (name, kind) = (unit.names.display(&given.symbol), became.name());
            let message = format!("{name} has '{kind}=': a merged unit cannot be cut");
            return Err(given.place.error(message));
        }
    }
    Ok(())
}

/// For each function, whether a function of another unit refers to it.
fn used_elsewhere(unit: &Unit, unit_of: impl Fn(usize) -> usize) -> Vec<bool> {
    let defined: HashMap<_, _> =
        unit.given.iter().enumerate().map(|(at, given)| (&given.symbol, at)).collect();
    let mut used = vec![false; unit.functions.len()];
    for (user, func) in unit.functions.iter().enumerate() {
        for name in external_names(func) {
            if let ExternalName::User(name) = name
                && let Some(&target) = defined.get(&func.params.user_named_funcs()[*name])
            {
                used[target] |= unit_of(user) != unit_of(target);
            }
        }
    }
    used
}

/// The text of each function, from `function` to the closing brace.
fn function_texts<'a>(source: &'a Source, unit: &Unit) -> Vec<&'a str> {
    let mut functions = unit.given.iter().map(|given| given.place.line).peekable();
    let mut texts = Vec::with_capacity(unit.given.len());
    // Of the current function: its first line, and its last line that is no comment.
    let mut open: Option<(usize, usize)> = None;
    let mut at = 0;
    for (index, line) in source.text.split_inclusive('\n').enumerate() {
        if functions.next_if_eq(&(index + 1)).is_some() {
            texts.extend(open.map(|(start, end)| &source.text[start..end]));
            open = Some((at, at));
        }
        let code = line.trim();
        if let Some((_, end)) = &mut open
            && !code.is_empty()
            && !code.starts_with(';')
        {
            *end = at + line.trim_end().len();
        }
        at += line.len();
    }
    texts.extend(open.map(|(start, end)| &source.text[start..end]));
    texts
}

/// How every unit begins: with the defaults of the cut, and the target and the settings of the
/// whole unit.
fn beginning(source: &Source) -> String {
    let Attributes { linkage, addresses, .. } = defaults();
    let (linkage, addresses) = (linkage.name(), addresses.name());
    let mut text = format!("{PREFIX} defaults linkage={linkage} addresses={addresses}\n");
    let lines = source.text.lines().map(str::trim);
    for line in lines.take_while(|line| !is_function_line(line)) {
        if !line.is_empty() && !line.starts_with(';') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}
