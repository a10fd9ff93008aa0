//! `clif-merge locate`: which functions, of which units, the code of a linked image belongs to.
//!
//! Reads the symbols of the image, and what `compile --merge-map` wrote of each unit. It does not
//! read code or debug information. `stack` says to which functions the frames of a stack belong.

use crate::args::General;
use crate::linked::{LinkedFunction, LinkedMap};
use crate::output::Output;
use crate::stack::{self, UnitFrames, WrittenFrames};
use anyhow::{Context as _, Result, anyhow};
use cranelift_mergefunc::Disposition;
use object::{BinaryFormat, Object as _, ObjectSymbol as _, SymbolKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Say which functions of which units the code of a linked image belongs to
///
/// Functions that were merged, within a unit or across units, share code: an address can be that of
/// several. Without --at, everything is printed as 'perf' reads it: start, size, symbol, and the
/// functions that are there.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", crate::exit::HELP))]
pub struct Opts {
    /// The linked program or library, with its symbols
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The merge map of each unit, written by 'compile --merge-map'
    #[arg(required = true, value_name = "UNIT.json")]
    units: Vec<PathBuf>,

    /// An address of the image, in hexadecimal; may be given several times
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    at: Vec<u64>,

    /// The addresses of the frames of a stack, innermost first: that of the instruction that
    /// trapped, then return addresses
    ///
    /// Says to which function each frame belongs: the one that its caller called. Behind a call
    /// through a pointer, several functions that share code can remain. Frames of thunks are left
    /// out, and must be given.
    #[arg(
        long,
        value_name = "ADDRESS",
        value_parser = address,
        value_delimiter = ',',
        conflicts_with = "at"
    )]
    stack: Vec<u64>,

    #[command(flatten)]
    general: General,
}

const EXAMPLES: &str = "\
Examples:
  clif-merge compile --map maps/a.map a.clif -o a.o --merge-map a.json
  clif-merge locate program a.json b.json
  clif-merge locate program a.json b.json --at 0x4011d0
  clif-merge locate program a.json b.json --stack 0x4011d0,0x401200,0x40117c";

/// The merge map of a unit, as `compile --merge-map` writes it.
#[derive(Debug, Serialize, Deserialize)]
pub struct UnitMap {
    /// The name of the unit, which is that of the file symbol in its object.
    unit: String,
    /// Its functions, and those that the pass added.
    functions: Vec<Function>,
    /// The functions that its code runs and calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    frames: Option<WrittenFrames>,
}

/// A function of a [`UnitMap`].
#[derive(Debug, Serialize, Deserialize)]
struct Function {
    /// Its symbol.
    name: String,
    /// Whether other units can see it.
    visible: bool,
    /// `keep`, `redirect`, `alias` or `thunk`.
    disposition: String,
    /// The symbol of the code that replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    /// The symbol of the body that runs in the end, if that code is a thunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<String>,
}

impl UnitMap {
    /// The merge map of a unit.
    pub fn new(
        unit: String,
        functions: Vec<LinkedFunction>,
        frames: Option<WrittenFrames>,
    ) -> UnitMap {
        UnitMap { unit, functions: functions.into_iter().map(Function::from).collect(), frames }
    }

    /// The map as JSON, with a line for each field.
    ///
    /// # Errors
    ///
    /// None that are known.
    pub fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

impl From<LinkedFunction> for Function {
    fn from(function: LinkedFunction) -> Function {
        let LinkedFunction { name, is_visible, disposition, body } = function;
        let word = disposition.name().to_owned();
        let to = disposition.representative();
        let body = Some(body).filter(|body| body != to.as_ref().unwrap_or(&name));
        Function { name, visible: is_visible, disposition: word, to, body }
    }
}

impl Function {
    fn linked(self) -> Result<LinkedFunction> {
        let Function { name, visible, disposition, to, body } = self;
        let body = body.or_else(|| to.clone()).unwrap_or_else(|| name.clone());
        let disposition = match (&*disposition, to) {
            ("keep", None) => Disposition::Keep,
            ("redirect", Some(to)) => Disposition::Redirect { to },
            ("alias", Some(to)) => Disposition::Alias { to },
            ("thunk", Some(to)) => Disposition::Thunk { to },
            (word, to) => {
                let with = if to.is_some() { "with" } else { "without" };
                return Err(anyhow!(
                    "{name} has the disposition `{word}` {with} code that replaces it"
                ));
            }
        };
        Ok(LinkedFunction { name, is_visible: visible, disposition, body })
    }
}

fn address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|error| error.to_string())
}

/// Reads and prints.
///
/// # Errors
///
/// Files that cannot be read; an image without symbols.
pub fn run(opts: Opts) -> Result<ExitCode> {
    let Opts { image, units, at, stack, general } = opts;
    let mut map = LinkedMap::new();
    let mut frames: Vec<Option<UnitFrames>> = Vec::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for path in &units {
        let bytes =
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let unit: UnitMap = serde_json::from_slice(&bytes).map_err(|error| {
            anyhow!("{}: not what 'compile --merge-map' writes: {error}", path.display())
        })?;
        let functions: Result<Vec<LinkedFunction>> =
            unit.functions.into_iter().map(Function::linked).collect();
        if !names.insert(unit.unit.clone()) {
            return Err(anyhow!("{}: there is another unit `{}`", path.display(), unit.unit));
        }
        map.add_unit(&unit.unit, functions.with_context(|| path.display().to_string())?);
        let read = unit.frames.map(WrittenFrames::read).transpose();
        frames.push(read.with_context(|| path.display().to_string())?);
    }
    let bytes =
        std::fs::read(&image).with_context(|| format!("cannot read {}", image.display()))?;
    let file = object::File::parse(&*bytes)
        .map_err(|error| anyhow!("{}: not a linked image: {error}", image.display()))?;
    let placed = place(&mut map, &file);
    if placed == 0 {
        return Err(anyhow!("{}: no symbol of a function of these units", image.display()));
    }
    let text = match (stack.is_empty(), at.is_empty()) {
        (false, _) => frames_of(&stack::frames(&map, &frames, &stack)?),
        (true, true) => map.perf_map().to_string(),
        (true, false) => at.iter().map(|&address| at_address(&map, address)).collect(),
    };
    Output::check(Path::new("-"))?.write(text.as_bytes())?;
    if general.verbose {
        let functions = map.len();
        general.say(&format!("{placed} symbols of {functions} functions in {} units", units.len()));
    }
    Ok(crate::exit::Exit::Done.into())
}

/// Sets the places of all functions whose symbols the image has. Returns how many symbols those
/// are.
fn place(map: &mut LinkedMap, file: &object::File<'_>) -> usize {
    let mut symbols: Vec<(u64, u64, Option<&str>, &str)> = Vec::new();
    let mut unit = None;
    for symbol in file.symbols() {
        let Ok(name) = symbol.name() else { continue };
        if symbol.kind() == SymbolKind::File {
            unit = Some(name);
        } else if symbol.is_definition() && symbol.kind() != SymbolKind::Section {
            let name = match file.format() {
                BinaryFormat::MachO => name.strip_prefix('_').unwrap_or(name),
                _ => name,
            };
            let local = unit.filter(|_| symbol.is_local());
            symbols.push((symbol.address(), symbol.size(), local, name));
        }
    }
    // Of one place in the order of the file. Only ELF says how large the code under a symbol is.
    symbols.sort_by_key(|&(start, ..)| start);
    let starts: Vec<u64> = symbols.iter().map(|&(start, ..)| start).collect();
    let mut placed = 0;
    for (start, size, unit, name) in symbols {
        let size = match size {
            0 => {
                let next = starts.get(starts.partition_point(|&other| other <= start));
                next.map_or(0, |next| next - start)
            }
            size => size,
        };
        placed += usize::from(map.place(unit, name, start, size));
    }
    placed
}

/// A line for each frame, with the functions to which it can belong.
fn frames_of(frames: &[stack::Frame<'_>]) -> String {
    let mut text = String::new();
    for (number, (address, candidates)) in frames.iter().enumerate() {
        let _ = write!(text, "#{number} {address:x}");
        for (at, stack::Candidate { unit, function, location }) in candidates.iter().enumerate() {
            let or = if at > 0 { " or" } else { "" };
            let _ = write!(text, "{or} {unit}:{}", function.name);
            if let Some(location) = location {
                let _ = write!(text, " @{location:04x}");
            }
        }
        if candidates.is_empty() {
            text += " no function of these units";
        }
        text += "\n";
    }
    text
}

/// The functions at an address, a line for each.
fn at_address(map: &LinkedMap, address: u64) -> String {
    let mut text = String::new();
    for (unit, function) in map.originals_at(address) {
        let LinkedFunction { name, disposition, .. } = function;
        let _ = writeln!(text, "{address:x} {unit}:{name} {}", disposition.name());
    }
    if text.is_empty() {
        let _ = writeln!(text, "{address:x} no function of these units");
    }
    text
}
