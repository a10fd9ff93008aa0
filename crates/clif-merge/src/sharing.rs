//! The explanation of a sharing map: which functions of which units share bodies, and why two
//! functions of different units do or do not.
//!
//! It knows what summaries say. It does *not* read code: for functions of different shapes, the
//! rest of the answer is `clif-merge why` of the units as text.

use crate::args::SimilarPolicy;
use crate::table::thousands;
use anyhow::{Result, anyhow, bail};
use cranelift_mergefunc::across::decide_sharing;
use cranelift_mergefunc::units::{
    Cell, Combined, FormatError, FunctionSummary, Group, Identity, Outputs, SetDecision, Summaries,
    UnitSummary, combine,
};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::rc::Rc;

/// Functions that share a body.
#[derive(Debug, Serialize)]
struct Set {
    /// The bytes that sharing saves, about.
    saved: i64,
    /// How many parameters the body has for what differs.
    parameters: usize,
    members: Vec<Member>,
}

#[derive(Debug, Serialize)]
struct Member {
    unit: String,
    symbol: String,
    /// Predicted bytes of code on x86-64 and on aarch64, without merging.
    bytes: [u32; 2],
}

/// All sets, as they are decided.
#[derive(Debug, Default)]
pub struct Sets {
    sets: Vec<Set>,
    failed: Option<FormatError>,
}

/// The report in JSON, field by field.
#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    units: u64,
    functions: u64,
    sharing: u64,
    saved: i64,
    sets: &'a [Set],
}

impl Sets {
    /// Records what was decided about a group.
    pub fn add(&mut self, group: &Group<'_>, decisions: &[SetDecision]) {
        for SetDecision { parameters, fixed: _, rows, saved } in decisions {
            let member = |&row: &u32| {
                let row = &group.rows[row as usize];
                let unit = group.unit(row).to_owned();
                Ok(Member { unit, symbol: group.symbol(row)?, bytes: row.bytes })
            };
            match rows.iter().map(member).collect() {
                Ok(members) => {
                    self.sets.push(Set { saved: *saved, parameters: parameters.len(), members });
                }
                Err(error) => self.failed = Some(error),
            }
        }
    }

    /// All sets, those that save most first.
    fn sorted(mut self) -> Result<Vec<Set>> {
        if let Some(error) = self.failed {
            bail!("{error}");
        }
        // Shapes with equal savings stay in their order.
        self.sets.sort_by_key(|set| -set.saved);
        Ok(self.sets)
    }

    /// The report as JSON.
    ///
    /// # Errors
    ///
    /// A summary that is damaged where symbols are.
    pub fn json(self, combined: &Combined) -> Result<String> {
        let Combined { units, functions, members, saved, .. } = *combined;
        let sets = self.sorted()?;
        let report = Report { schema: 1, units, functions, sharing: members, saved, sets: &sets };
        Ok(serde_json::to_string_pretty(&report)? + "\n")
    }

    /// The report as text.
    ///
    /// # Errors
    ///
    /// A summary that is damaged where symbols are.
    pub fn text(self) -> Result<String> {
        let mut text = String::new();
        for Set { saved, parameters, members } in self.sorted()? {
            let mut units: Vec<&str> = members.iter().map(|member| &*member.unit).collect();
            units.sort_unstable();
            units.dedup();
            let body = match parameters {
                0 => "equal".to_owned(),
                1 => "1 parameter".to_owned(),
                _ => format!("{parameters} parameters"),
            };
            writeln!(
                text,
                "about {} bytes saved: {} functions of {} units, {body}",
                thousands(saved.max(0) as u64),
                members.len(),
                units.len(),
            )?;
            for Member { unit, symbol, bytes: [x86_64, _] } in members {
                writeln!(text, "    {unit}:{symbol} ({x86_64} bytes)")?;
            }
        }
        Ok(text)
    }
}

/// Whether a file has summaries, and not text.
pub fn is_summary(path: &PathBuf) -> bool {
    use std::io::Read as _;
    let mut head = [0; 8];
    let file = std::fs::File::open(path);
    file.is_ok_and(|mut file| file.read_exact(&mut head).is_ok()) && head == *b"CLIFSUMS"
}

/// The function that a name means: `SYMBOL` or `UNIT:SYMBOL`, where a `%` may be left out. A symbol
/// of which several units have a function needs the unit.
fn find(name: &str, summaries: &[Summaries<'_>]) -> Result<UnitSummary> {
    let mut found: Vec<UnitSummary> = Vec::new();
    for summaries in summaries {
        let of_symbol = |symbol: &str| -> Result<Vec<UnitSummary>> {
            let with = format!("%{symbol}");
            let found = [symbol, &with].map(|symbol| summaries.find(symbol));
            let [plain, with] = found.map(|found| found.map_err(|error| anyhow!("{error}")));
            Ok([plain?, with?].concat())
        };
        found.extend(of_symbol(name)?);
        for (at, _) in name.match_indices(':') {
            let (unit, symbol) = (&name[..at], &name[at + 1..]);
            if summaries.units().iter().any(|known| known.name == unit) {
                found.extend(of_symbol(symbol)?.into_iter().filter(|found| found.unit == unit));
            }
        }
    }
    match found.len() {
        0 => bail!(
            "no summary has a function {name}; what was merged within its unit is in none ('why' with the text of the \
             unit says more), nor are pinned, preemptible and `no_merge` functions and what refers to local data"
        ),
        1 => Ok(found.swap_remove(0)),
        _ => {
            let units: Vec<&str> = found.iter().map(|found| &*found.unit).collect();
            bail!("{name} is in the units {}: say which, as UNIT:SYMBOL", units.join(", "))
        }
    }
}

/// Functions of one shape, and what was decided about them.
struct Shape {
    /// The unit and symbol of each.
    names: Vec<(String, String)>,
    sets: Vec<SetDecision>,
    /// The decision about the two functions in question if there were no others.
    alone: Option<SetDecision>,
}

impl Shape {
    fn number(&self, of: &UnitSummary) -> Option<u32> {
        let symbol = &of.functions[0].symbol;
        let at = self.names.iter().position(|(unit, name)| *unit == of.unit && name == symbol);
        at.map(|at| at as u32)
    }

    fn set_of(&self, of: &UnitSummary) -> Option<&SetDecision> {
        let row = self.number(of)?;
        self.sets.iter().find(|set| set.rows.contains(&row))
    }
}

/// The decisions about the functions of the shapes of two functions, each of which has its shape;
/// `None` for one whose shape no other function has. Combines all summaries once.
fn shapes_of(
    two: [&UnitSummary; 2],
    summaries: &[Summaries<'_>],
    policy: SimilarPolicy,
) -> Result<[Option<Rc<Shape>>; 2]> {
    let mut shapes = [const { None }; 2];
    let mut failed = None;
    let policy = policy.policy();
    let decide = &mut |group: &Group<'_>| {
        let is_of = two.map(|of| of.functions[0].shape == group.shape);
        if is_of == [false; 2] {
            return Vec::new();
        }
        let name = |row| Ok((group.unit(row).to_owned(), group.symbol(row)?));
        match group.rows.iter().map(name).collect::<Result<Vec<_>, FormatError>>() {
            Ok(names) => {
                let mut found = Shape { names, sets: decide_sharing(group, policy), alone: None };
                if let [Some(a), Some(b)] = two.map(|of| found.number(of)) {
                    found.alone = decide_sharing(&group.only(&[a, b]), policy).pop();
                }
                let found = Rc::new(found);
                for (shape, _) in shapes.iter_mut().zip(is_of).filter(|(_, is_of)| *is_of) {
                    *shape = Some(found.clone());
                }
            }
            Err(error) => failed = Some(error),
        }
        Vec::new()
    };
    combine(summaries, decide, &mut Outputs::default()).map_err(|error| anyhow!("{error}"))?;
    match failed {
        Some(error) => bail!("{error}"),
        None => Ok(shapes),
    }
}

/// The value of a function at a place, in words.
fn cell(of: &UnitSummary, cell: &Cell) -> String {
    let symbol = |symbol: u32| match &of.symbols[symbol as usize] {
        Identity::Name(name) => name.clone(),
        Identity::Content(digest) => {
            let digits: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
            format!("a function that only its unit can see, with the contents {digits}...")
        }
    };
    match *cell {
        Cell::Itself => "a call of itself".to_owned(),
        Cell::Fixed(_) => "what cannot be passed".to_owned(),
        Cell::Constant { ty: _, bits } => format!("constant {bits:#x}"),
        Cell::Offset { ty: _, bytes } => format!("offset {bytes}"),
        Cell::Callee { symbol: at, direct: true } => {
            format!("a call that stays direct, of {}", symbol(at))
        }
        Cell::Callee { symbol: at, direct: false } => format!("a call of {}", symbol(at)),
        Cell::Function { symbol: at } => format!("the address of {}", symbol(at)),
        Cell::Address { symbol: at, offset: 0 } => format!("the address of {}", symbol(at)),
        Cell::Address { symbol: at, offset } => {
            format!("the address {offset} bytes behind {}", symbol(at))
        }
    }
}

/// Whether two functions have one value at a place, in whatever units they are.
fn is_same(a: &UnitSummary, x: &Cell, b: &UnitSummary, y: &Cell) -> bool {
    let of = |unit: &UnitSummary, cell: &Cell| {
        cranelift_mergefunc::units::cell_hash(cell, |symbol| {
            cranelift_mergefunc::units::identity_hash(&unit.symbols[symbol as usize])
        })
    };
    of(a, x) == of(b, y)
}

/// How many differences of two functions, or functions of a shape, are shown.
const SHOWN: usize = 12;

/// Why two functions of the units share a body or do not; for one, what it shares.
///
/// # Errors
///
/// Names that mean no function or several; summaries that are damaged or do not belong together.
pub fn why(names: &[String], summaries: &[Summaries<'_>], policy: SimilarPolicy) -> Result<String> {
    let first = find(&names[0], summaries)?;
    let second = names.get(1).map(|name| find(name, summaries)).transpose()?;
    let [shape, other] = shapes_of([&first, second.as_ref().unwrap_or(&first)], summaries, policy)?;
    let mut text = headline(&first, shape.as_deref());
    let Some(second) = second else {
        text += &resembling(&first, shape.as_deref());
        return Ok(text);
    };
    text += &headline(&second, other.as_deref());
    if first.functions[0].shape != second.functions[0].shape {
        writeln!(
            text,
            "\nThey have different shapes: they differ in more than constants, offsets and callees. 'clif-merge \
             why' with the text of both units shows the first difference."
        )?;
        return Ok(text);
    }
    text += &compare(&first, &second)?;
    let Some(shape) = shape else {
        return Ok(text);
    };
    let sets = [shape.set_of(&first), shape.set_of(&second)];
    text += match (sets, &shape.alone) {
        ([Some(a), Some(b)], _) if a == b => "They share a body.\n",
        ([Some(_), Some(_)], _) => {
            "They share bodies with others: that saves more than a body for both.\n"
        }
        (_, Some(_)) => {
            "A body for both alone would pay; with the other functions of their shape, other bodies save more.\n"
        }
        ([_, _], None) if first.unit == second.unit => {
            "They are in one unit, which decides about them by itself.\n"
        }
        ([_, _], None) => {
            "A body for both would not save enough: thunks and what they pass take nearly the saved bytes, or a call \
             in a loop would go through a pointer.\n"
        }
    };
    Ok(text)
}

/// A function, and what it shares, in one line.
fn headline(of: &UnitSummary, shape: Option<&Shape>) -> String {
    let FunctionSummary { symbol, bytes: [x86_64, aarch64], .. } = &of.functions[0];
    let sharing = match shape.and_then(|shape| Some((shape, shape.set_of(of)?))) {
        None => "shares no body with other units".to_owned(),
        Some((shape, set)) => {
            let mut units: Vec<&str> =
                set.rows.iter().map(|&row| &*shape.names[row as usize].0).collect();
            units.sort_unstable();
            units.dedup();
            format!(
                "one of {} functions of {} units that share a body with {} parameters",
                set.rows.len(),
                units.len(),
                set.parameters.len(),
            )
        }
    };
    format!("{}:{symbol}: {x86_64} bytes on x86-64, {aarch64} on aarch64; {sharing}\n", of.unit)
}

/// The other functions of a shape.
fn resembling(of: &UnitSummary, shape: Option<&Shape>) -> String {
    let Some(shape) = shape else {
        return "\nNo other function has its shape.\n".to_owned();
    };
    let own = shape.number(of);
    let set = shape.set_of(of);
    let mut text = format!("\nFunctions of its shape: {}\n", shape.names.len() - 1);
    let others = (0..).zip(&shape.names).filter(|&(row, _)| Some(row) != own);
    for (row, (unit, symbol)) in others.take(SHOWN) {
        let shares = set.is_some_and(|set| set.rows.contains(&row));
        let note = if shares { ", which shares its body" } else { "" };
        let _ = writeln!(text, "  {unit}:{symbol}{note}");
    }
    if shape.names.len() - 1 > SHOWN {
        text.push_str("  ...\n");
    }
    text
}

/// The places at which two functions of one shape differ.
fn compare(a: &UnitSummary, b: &UnitSummary) -> Result<String> {
    let cells = [a, b].map(|of| &of.functions[0].cells);
    let pairs = cells[0].iter().zip(cells[1]);
    let differing: Vec<_> = pairs.filter(|&(x, y)| !is_same(a, x, b, y)).collect();
    let mut text = String::new();
    if differing.is_empty() {
        writeln!(text, "\nThey are equal.")?;
        return Ok(text);
    }
    writeln!(
        text,
        "\nThey have one shape and differ at {} of {} places:",
        differing.len(),
        cells[0].len()
    )?;
    // One value often stands at several places.
    let mut lines: Vec<(String, usize)> = Vec::new();
    for (x, y) in differing {
        let line = format!("{} / {}", cell(a, x), cell(b, y));
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, count)) => *count += 1,
            None => lines.push((line, 1)),
        }
    }
    for (line, count) in lines.iter().take(SHOWN) {
        match count {
            1 => writeln!(text, "  {line}")?,
            _ => writeln!(text, "  {line}, at {count} places")?,
        }
    }
    if lines.len() > SHOWN {
        writeln!(text, "  ...")?;
    }
    Ok(text)
}
