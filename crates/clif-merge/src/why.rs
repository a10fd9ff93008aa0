//! `clif-merge why`: why two functions or two data objects merged, or did not; for one, which others
//! resemble it.
//!
//! Two functions: the first difference, with carets under it in both listings, and the rule that
//! makes it matter. Where they differ only in references, it says which pair to ask about
//! next. Data objects are for `why_data`. It explains a plan; it does not change one.

use crate::args::{Common, Defaults, Input, ReadUnit};
use crate::combine;
use crate::exit::{Exit, usage};
use crate::jobs::JobsArg;
use crate::neighbours::nearest;
use crate::output::Output;
use crate::sharing::{self, is_summary};
use crate::snippet::{Excerpt, draw_excerpts};
use anyhow::{Result, anyhow, bail};
use clif_unit::error::Place;
use clif_unit::extra;
use clif_unit::listings::Listings;
use clif_unit::pass;
use clif_unit::unit::{Names, Source, Unit};
use cranelift_codegen::ir::{
    ExternalName, Function, GlobalValue, GlobalValueData, InstructionData, UserExternalName,
};
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::data::DataIndex;
use cranelift_mergefunc::explain::{Difference, Rule, Site, first_difference};
use cranelift_mergefunc::{
    Disposition, FunctionIndex, Options, Plan, SimilarSet, cranelift_codegen,
};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Explain why two functions or data objects merged or did not, or which others resemble one
///
/// The last one or two arguments are names of functions, or of data objects, such as %f or u0:1;
/// what stands before them is the unit. Of summaries, they are functions of different units, such as f or
/// UNIT:f: why they share a body or do not.
// The two options that all subcommands accept, and that make no difference to this one.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", crate::exit::HELP))]
#[command(mut_arg("verify", |arg| arg.hide(true)), mut_arg("verbose", |arg| arg.hide(true)))]
pub struct Opts {
    /// The unit (files, directories, or '-'), then one or two names of functions or data objects
    #[arg(required = true, value_name = "WORD")]
    words: Vec<PathBuf>,

    /// For one function or data object: how many of those that resemble it are shown
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5)]
    neighbours: usize,

    #[command(flatten)]
    defaults: Defaults,
    #[command(flatten)]
    common: Common,
}

const EXAMPLES: &str = "\
Examples:
  clif-merge why unit.clif %f %g
  clif-merge why unit.clif u0:17
  clif-merge why app.wasm u0:17 u0:18
  clif-merge why unit.clif %table %other_table
  clif-merge why a.summary b.summary f b:g
  clif-merge why --linkage local --addresses insignificant dir/ u0:3 u0:4";

/// Lines of a listing shown around a difference.
const CONTEXT: usize = 4;

/// Explains.
///
/// # Errors
///
/// What cannot be read, and names that the unit does not have.
pub fn run(opts: Opts) -> Result<ExitCode> {
    let Opts { words, neighbours, defaults, common } = opts;
    if words.first().is_some_and(is_summary) {
        let (paths, names) = split_summaries(words)?;
        let files = combine::open(&paths)?;
        let text = sharing::why(&names, &combine::summaries(&files, &paths)?, common.pass.similar)?;
        Output::check(Path::new("-"))?.write(text.as_bytes())?;
        return Ok(Exit::Done.into());
    }
    let (paths, names) = split(words)?;
    let input = Input { paths, defaults };
    let ReadUnit { isa, texts, unit } = common.read(&input, &JobsArg::default().start()?)?;
    let options = common.pass.options(&*isa, false);
    let (plan, plan_names) = pass::plan(&unit, &options)?;
    let explainer = Explainer::new(&unit, &texts, &plan, &plan_names, &options);
    let text = match &names[..] {
        [one] => match explainer.find(one)? {
            Item::Function(function) => explainer.one(function, neighbours),
            Item::Data(data) => explainer.one_object(data, neighbours),
        },
        [a, b] => match (explainer.find(a)?, explainer.find(b)?) {
            (Item::Function(a), Item::Function(b)) => explainer.two(a, b)?,
            (Item::Data(a), Item::Data(b)) => explainer.two_objects(a, b),
            (Item::Function(_), Item::Data(_)) | (Item::Data(_), Item::Function(_)) => {
                bail!("of {a} and {b}, one is a function and the other a data object")
            }
        },
        _ => unreachable!("one or two names"),
    };
    Output::check(Path::new("-"))?.write(text.as_bytes())?;
    Ok(Exit::Done.into())
}

/// The paths of summaries, and the one or two names behind them.
fn split_summaries(words: Vec<PathBuf>) -> Result<(Vec<PathBuf>, Vec<String>)> {
    let mut paths = words;
    let names = paths.split_off(paths.iter().take_while(|&word| is_summary(word)).count());
    if names.is_empty() || names.len() > 2 {
        return Err(usage(
            "'why' needs summaries and, at the end, one or two names of functions such as f or UNIT:f",
        ));
    }
    Ok((paths, names.iter().map(|name| name.display().to_string()).collect()))
}

/// The unit's paths and the one or two names behind them.
fn split(words: Vec<PathBuf>) -> Result<(Vec<PathBuf>, Vec<String>)> {
    let is_name = |word: &PathBuf| {
        word.to_str().is_some_and(|word| {
            let numbers = word.strip_prefix('u').and_then(|rest| rest.split_once(':'));
            let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            word.starts_with('%') || numbers.is_some_and(|(a, b)| digits(a) && digits(b))
        })
    };
    // What the source calls a function can look like anything; a file that is there is no name.
    let is_source_name = |word: &PathBuf| word.as_os_str() != "-" && !word.exists();
    let syntactic = words.iter().rev().take_while(|word| is_name(word)).count();
    // Names are one or two, and the unit stands before them.
    let last = words.iter().rev().take(words.len().saturating_sub(1).min(2));
    let count = last.take_while(|word| is_name(word) || is_source_name(word)).count();
    let count = count.max(syntactic);
    let mut paths = words;
    let names = paths.split_off(paths.len() - count);
    if names.is_empty() || names.len() > 2 || paths.is_empty() {
        return Err(usage(
            "'why' needs a unit and, at the end, one or two names of functions or data objects \
             such as %f or u0:1",
        ));
    }
    Ok((paths, names.iter().map(|name| name.display().to_string()).collect()))
}

/// Explains a plan.
pub struct Explainer<'a> {
    pub unit: &'a Unit,
    sources: &'a [Source],
    listings: Listings<'a>,
    pub plan: &'a Plan,
    pub names: &'a Names,
    options: &'a Options<'a>,
}

/// How many of the functions that are similar to one are named.
const NAMED: usize = 5;

/// The item that has a name.
enum Item {
    Function(FunctionIndex),
    Data(DataIndex),
}

impl<'a> Explainer<'a> {
    /// Explains `plan`, which was made of `unit` under `options`. `names` has the names of new bodies, too.
    pub fn new(
        unit: &'a Unit,
        sources: &'a [Source],
        plan: &'a Plan,
        names: &'a Names,
        options: &'a Options<'a>,
    ) -> Explainer<'a> {
        Explainer { unit, sources, listings: Listings::of(sources), plan, names, options }
    }

    fn find(&self, name: &str) -> Result<Item> {
        let item = |symbol: &UserExternalName| {
            let function = self.plan.function(symbol);
            let function = function.filter(|at| at.index() < self.unit.functions.len());
            function.map(Item::Function).or(self.plan.data(symbol).map(Item::Data))
        };
        let symbols = self.names.find(name);
        let mut found: Vec<(&UserExternalName, Item)> =
            symbols.iter().filter_map(|symbol| Some((symbol, item(symbol)?))).collect();
        match found.len() {
            0 => bail!("the unit has no function or data object {name}"),
            1 => Ok(found.swap_remove(0).1),
            count => {
                let named = found.iter().take(NAMED).map(|(symbol, _)| self.names.describe(symbol));
                let named: Vec<String> = named.collect();
                let more = if count > NAMED {
                    format!("\nand {} more", count - NAMED)
                } else {
                    String::new()
                };
                bail!("{name} means {count} functions:\n{}{more}", named.join("\n"))
            }
        }
    }

    /// The name of a function in the text, and what the source calls it.
    fn described(&self, function: FunctionIndex) -> String {
        self.names.describe(self.plan.entry(function).symbol())
    }

    fn name(&self, function: FunctionIndex) -> String {
        self.names.display(self.plan.entry(function).symbol())
    }

    fn body(&self, function: FunctionIndex) -> &Function {
        &self.unit.functions[function.index()]
    }

    /// The disposition of a function, in one line.
    pub fn disposition(&self, function: FunctionIndex) -> String {
        let entry = self.plan.entry(function);
        let what = match entry.disposition() {
            Disposition::Keep => "kept".to_owned(),
            Disposition::Redirect { to } => format!("redirected to {}", self.described(to)),
            Disposition::Alias { to } => format!("alias of {}", self.described(to)),
            Disposition::Thunk { to } => format!("thunk to {}", self.described(to)),
        };
        let extra = extra::text(&self.plan.thunk_arguments(function), self.names);
        let extra = if extra.is_empty() { extra } else { format!(" with {extra}") };
        let reason = entry.reason();
        let (id, explanation) = (reason.id(), reason.explanation());
        format!("{}: {what}{extra} [{id}]: {explanation}", self.described(function))
    }

    /// The functions that a function shares or could share a parameterised body with, and the bytes that this
    /// saves. Empty if there are none.
    pub fn similar(&self, function: FunctionIndex) -> String {
        let sets = self.plan.similar_sets().iter().rev();
        let Some(set) = sets.into_iter().find(|set| set.members.contains(&function)) else {
            return String::new();
        };
        let SimilarSet { members, parameters, selects, body, saved } = set;
        let others = members.iter().filter(|&&member| member != function);
        let others: Vec<String> = others.take(NAMED).map(|&other| self.described(other)).collect();
        let more = match members.len() - 1 - others.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let outcome = match (body, saved) {
            (Some(body), Some(saved)) => format!(
                "the parameterised body {} replaces all of them: that saves {saved} bytes, as predicted",
                self.name(*body)
            ),
            (None, Some(saved)) if *saved > 0 => {
                format!("one body for all of them would save {saved} bytes")
            }
            (None, Some(saved)) => {
                format!(
                    "one body for all of them would take {} bytes more, or not pay enough",
                    -saved
                )
            }
            (_, None) => "there is no body for all of them".to_owned(),
        };
        let differs = match selects {
            true => "few instructions, where the body branches".to_owned(),
            false => {
                let plural = plural(*parameters);
                format!("{parameters} constant{plural} or callee{plural} only")
            }
        };
        format!("\nIt differs from {}{more} in {differs}: {outcome}.\n", others.join(", "))
    }

    /// One function: its disposition and its nearest neighbours.
    fn one(&self, function: FunctionIndex, limit: usize) -> String {
        let mut text = format!("{}\n", self.disposition(function));
        text += &draw_excerpts(&[self.header(function)]);
        text += &self.similar(function);
        let neighbours = nearest(self.plan, function, &self.unit.functions, self.options, limit);
        if neighbours.is_empty() {
            text.push_str("\nNo other function has its signature.\n");
            return text;
        }
        text.push_str("\nFunctions with its signature that resemble it most:\n");
        for neighbour in neighbours {
            let relation = match self.difference(function, neighbour.function) {
                Ok(None) => "equal".to_owned(),
                Ok(Some(difference)) => format!("first differs in: {}", difference.rule.id()),
                Err(error) => error.to_string(),
            };
            let percent = 100.0 * neighbour.equal as f64 / neighbour.places.max(1) as f64;
            let name = self.name(neighbour.function);
            let symbol = self.plan.entry(neighbour.function).symbol();
            let source = self.names.of_source(symbol).map(|name| format!(": {name}"));
            writeln!(
                text,
                "  {name:<16} {percent:5.1}% ({} of {} places), {relation}{}",
                neighbour.equal,
                neighbour.places,
                source.unwrap_or_default(),
            )
            .expect("writing to a string");
        }
        text
    }

    fn difference(&self, a: FunctionIndex, b: FunctionIndex) -> Result<Option<Difference>> {
        let with_body = |function| (function, self.body(function));
        first_difference(self.plan, with_body(a), with_body(b), self.options)
            .map_err(|function| anyhow!("{} cannot be walked", self.name(function)))
    }

    /// Two functions: merged, equal but not merged, or the first difference.
    ///
    /// # Errors
    ///
    /// If one of them cannot be compared.
    pub fn two(&self, a: FunctionIndex, b: FunctionIndex) -> Result<String> {
        let mut text = format!("{}\n{}\n\n", self.disposition(a), self.disposition(b));
        let Some(difference) = self.difference(a, b)? else {
            text.push_str(self.equal(a, b));
            let both = [a, b].map(|function| self.header(function));
            return Ok(text + &draw_excerpts(if a == b { &both[..1] } else { &both }));
        };
        let Difference { rule, first, second, references } = difference;
        writeln!(text, "Not equal: {} [{}].", rule.explanation(), rule.id())
            .expect("writing to a string");
        let references = references.map(|(x, y)| (self.name(x), self.name(y)));
        let used = [(a, first), (b, second)].map(|(function, site)| self.data_at(function, site?));
        let objects = match used {
            [Some(x), Some(y)] if rule == Rule::Reference && x != y => Some((x, y)),
            _ => None,
        };
        if let Some((x, y)) = &references {
            writeln!(text, "They refer to {x} and {y}, which are not equal; ask why {x} {y} next.")
                .expect("writing to a string");
        } else if let Some((x, y)) = objects {
            let not = "which may not replace each other";
            writeln!(text, "They refer to {x} and {y}, {not}; ask why {x} {y} next.")
                .expect("writing to a string");
        }
        let excerpts = [(a, first), (b, second)].map(|(f, site)| self.excerpt(f, site, rule));
        let excerpts: Option<Vec<_>> = excerpts.into_iter().collect();
        text += &draw_excerpts(&excerpts.expect("the text that was read"));
        Ok(text)
    }

    /// The name of the data object that a function uses at a place, if it does.
    fn data_at(&self, function: FunctionIndex, site: Site) -> Option<String> {
        let func = self.body(function);
        let Site::Inst(inst) = site else {
            return None;
        };
        // It may be an instruction of the optimised function, which is not at hand.
        if inst.index() >= func.dfg.num_insts() {
            return None;
        }
        let InstructionData::UnaryGlobalValue { opcode: _, global_value } = func.dfg.insts[inst]
        else {
            return None;
        };
        let symbol = symbol_of(func, global_value)?;
        self.plan.data(symbol).map(|_| self.names.display(symbol))
    }

    fn equal(&self, a: FunctionIndex, b: FunctionIndex) -> &'static str {
        if a == b {
            return "This is one function.\n";
        }
        if self.plan.entry(a).class() != self.plan.entry(b).class() {
            return "Equal, but prefiltered before they were compared, because the sizes of their \
                    tables differ. They merge with --walk-all.\n";
        }
        let [a, b] = [a, b].map(|f| self.plan.entry(f).disposition().representative().unwrap_or(f));
        match a == b {
            true => "Equal, and merged.\n",
            false => "Equal, but not merged, for the reasons above.\n",
        }
    }

    /// The lines of a text from one, which is numbered from 1, to the end.
    pub fn lines_from(&self, file: &str, line: usize) -> impl Iterator<Item = &str> {
        let source = self.sources.iter().find(|source| source.name == file);
        source.expect("a text that was read").text.lines().skip(line - 1)
    }

    /// The first line of a function.
    fn header(&self, function: FunctionIndex) -> Excerpt<'_> {
        let Place { file, line, column } = &self.unit.given[function.index()].place;
        Excerpt {
            path: file,
            first: *line,
            lines: self.lines_from(file, *line).take(1).collect(),
            marked: 0,
            column: *column,
            label: String::new(),
        }
    }

    /// The lines of a function around a place.
    fn excerpt(
        &self,
        function: FunctionIndex,
        site: Option<Site>,
        rule: Rule,
    ) -> Option<Excerpt<'_>> {
        let given = &self.unit.given[function.index()];
        let lines: Vec<&str> = self.listings.text(&given.place)?.lines().collect();
        let at = match site {
            Some(site) => {
                self.listings.line_of(&given.place, site).map(|line| line - given.place.line)
            }
            // What is not written at all is missed at the end of the one that goes on.
            None => Some(lines.len() - 1),
        };
        let at = at.unwrap_or(0).min(lines.len() - 1);
        let (from, to) = (at.saturating_sub(CONTEXT), (at + CONTEXT + 1).min(lines.len()));
        let name = self.name(function);
        let label = match rule {
            Rule::Key => format!("in {name}, key {}", given.attributes.key),
            _ => format!("in {name}"),
        };
        Some(Excerpt {
            path: &given.place.file,
            first: given.place.line + from,
            lines: lines[from..to].join("\n"),
            marked: at - from,
            column: None,
            label,
        })
    }
}

/// The symbol at the base of a global value.
fn symbol_of(func: &Function, mut gv: GlobalValue) -> Option<&UserExternalName> {
    loop {
        gv = match &func.global_values[gv] {
            GlobalValueData::Load { base, .. } | GlobalValueData::IAddImm { base, .. } => *base,
            GlobalValueData::Symbol { name: ExternalName::User(name), .. } => {
                return func.params.user_named_funcs().get(*name);
            }
            GlobalValueData::Symbol { .. }
            | GlobalValueData::VMContext
            | GlobalValueData::DynScaleTargetConst { .. } => return None,
        };
    }
}
