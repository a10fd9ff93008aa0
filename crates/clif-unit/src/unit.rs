//! Units as text: from files to functions and data objects under symbols, and back.
//!
//! The texts come from `sources`. Cranelift's reader
//! parses the functions; this module finds the directives, gives every name a symbol and checks
//! what a unit must be: valid functions and data objects, each defined once, referred to as what
//! they are, functions under the signatures of their definitions.
//!
//! Names such as `%f` become symbols of a namespace that the unit does not use, numbered in the
//! order of the names, so that nothing depends on the order of functions in the text.

use crate::contain::contain;
use crate::data::{self, GivenData, Name, Parsed};
use crate::directives;
use crate::entities::fills_gap;
use crate::error::{Place, TextError, bail_at, with_lines};
use crate::extra::extra;
use crate::listings::Listings;
use crate::marks::Marks;
pub use crate::names::Names;
use crate::progress::Progress;
use crate::read;
pub use crate::scan::is_function_line;
use crate::scan::{Scanned, scan};
pub use crate::sources::Source;
use crate::verify::Verifier;
use crate::words::{Said, is_library_function};
use anyhow::{Result, bail};
use cranelift_codegen::ir;
use cranelift_codegen::ir::{
    ExternalName, FuncRef, Function, GlobalValueData, UserExternalName, UserFuncName,
};
use cranelift_codegen::isa::CallConv;
use cranelift_codegen::verifier::VerifierErrors;
use cranelift_mergefunc::explain::Encoding;
use cranelift_mergefunc::thunk::{CallThunks, call_thunk};
use cranelift_mergefunc::{Addresses, Attributes, Options, cranelift_codegen, extended_signature};
use rayon::iter::{IntoParallelIterator, ParallelIterator as _};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A function as it was written.
#[derive(Clone, Debug)]
pub struct Given {
    /// The symbol by which the unit refers to it.
    pub symbol: UserExternalName,
    /// What its directives say, defaults filled in.
    pub attributes: Attributes,
    /// Whether it is a thunk or an alias in the text, and its target.
    pub became: Option<(Became, UserExternalName)>,
    /// Its `function` line.
    pub place: Place,
}

/// The disposition that a function already had when the text was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    /// A jump.
    Thunk,
    /// Another name for an address.
    Alias,
}

impl Became {
    /// The name of the directive.
    pub fn name(self) -> &'static str {
        match self {
            Became::Thunk => "thunk",
            Became::Alias => "alias",
        }
    }
}

/// The defaults where no directive applies.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// For functions.
    pub functions: Attributes,
    /// For data objects, whose other defaults are always the same.
    pub data_addresses: Addresses,
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults { functions: Attributes::default(), data_addresses: Addresses::Significant }
    }
}

/// The functions and data objects of a unit, in the order of the text. `functions` and `given` have
/// the same order.
#[derive(Clone, Debug, Default)]
pub struct Unit {
    /// The bodies, under user names only.
    pub functions: Vec<Function>,
    /// What the text says about each.
    pub given: Vec<Given>,
    /// The data objects.
    pub data: Vec<GivenData>,
    /// The names behind the symbols.
    pub names: Names,
}

/// A function that the reader has read.
struct Read {
    func: Function,
    place: Place,
    directives: Said,
    source_name: Option<String>,
}

/// Reads a function of a text. `call_conv` is for one that does not say its own.
fn parse(source: &Source, scanned: Scanned<'_>, call_conv: CallConv) -> Result<Read> {
    let Scanned { line, text, directives, source_name } = scanned;
    let func = read::function(&source.name, line, text, call_conv)?;
    let place = Place::line(&source.name, line);
    Ok(Read { func, place, directives, source_name: source_name.map(str::to_owned) })
}

/// Does `work` on all items, in parallel or not, and returns its results in their order.
///
/// # Errors
///
/// That of the first item that has one.
fn each<T: Send, R: Send>(
    items: impl IntoParallelIterator<Item = T> + IntoIterator<Item = T>,
    parallel: bool,
    work: impl Fn(T) -> Result<R> + Send + Sync,
) -> Result<Vec<R>> {
    match parallel {
        // Which error is met first depends on the threads.
        true => items.into_par_iter().map(work).collect::<Vec<_>>().into_iter().collect(),
        false => items.into_iter().map(work).collect(),
    }
}

/// How the texts of a unit are read.
pub struct Reading<'a> {
    /// The defaults where neither a directive nor a mark applies.
    pub defaults: Defaults,
    /// The marks of functions by their names.
    pub marks: Marks,
    /// The calling convention of functions that do not say theirs.
    pub call_conv: CallConv,
    /// Decides which functions are valid.
    pub verifier: &'a Verifier,
    /// Whether the threads of the current pool of `rayon` read. The result is the same.
    pub parallel: bool,
}

impl<'a> Reading<'a> {
    /// As the program reads without options.
    pub fn plain(verifier: &'a Verifier) -> Reading<'a> {
        Reading {
            defaults: Defaults::default(),
            marks: Marks::default(),
            call_conv: CallConv::Fast,
            verifier,
            parallel: false,
        }
    }
}

/// Shows the progress of several threads.
type Shown<'a> = Mutex<&'a mut dyn Progress>;

fn lock<'a, 'b>(progress: &'a Shown<'b>) -> MutexGuard<'a, &'b mut dyn Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a unit from its texts.
///
/// # Errors
///
/// Everything that a unit must not be, with file and line, and marks of functions that are not there.
pub fn parse_unit(sources: &[Source], reading: Reading<'_>) -> Result<Unit> {
    parse_unit_with(sources, reading, &mut ())
}

/// Like [`parse_unit`], and shows its progress.
///
/// # Errors
///
/// Those of [`parse_unit`].
pub fn parse_unit_with(
    sources: &[Source],
    reading: Reading<'_>,
    progress: &mut dyn Progress,
) -> Result<Unit> {
    parse_texts(sources, reading, &Mutex::new(progress)).map_err(|error| with_lines(error, sources))
}

fn parse_texts(sources: &[Source], reading: Reading<'_>, progress: &Shown<'_>) -> Result<Unit> {
    let Reading { defaults, mut marks, call_conv, verifier, parallel } = reading;
    let mut functions = Vec::new();
    let mut data = Vec::new();
    for (source, scan) in sources.iter().zip(each(sources, parallel, scan)?) {
        functions.extend(scan.functions.into_iter().map(|function| (source, function)));
        data.extend(scan.data.into_iter().map(|object| (source.name.as_str(), object)));
    }
    lock(progress).begin("reading", functions.len());
    let parsed = each(functions, parallel, |(source, function)| {
        let read = parse(source, function, call_conv)?;
        lock(progress).step();
        Ok(read)
    })?;
    if parsed.is_empty() && data.is_empty() {
        let names: Vec<_> = sources.iter().map(|source| source.name.as_str()).collect();
        let in_comments = sources.iter().any(|source| {
            let mut comments = source.text.lines().filter(|line| line.starts_with(';'));
            comments.any(|line| is_function_line(line.trim_start_matches([';', ' '])))
        });
        let hint = if in_comments { "; those in comments are not read" } else { "" };
        bail!("{}: no functions{hint}", names.join(", "));
    }
    let names = collect_names(
        parsed.iter().map(|read| (&read.func, &read.directives)),
        data.iter().map(|(_, data)| data),
    );
    let data = data::resolve(data, &names, defaults.data_addresses)?;
    let mut unit = Unit { data, names, ..Unit::default() };
    for Read { mut func, place, directives, source_name } in parsed {
        let symbol = to_symbols(&mut func, &unit.names);
        if let Some(source_name) = source_name {
            unit.names.learn(&symbol, &source_name);
        }
        let became = match (&directives.thunk, &directives.alias) {
            (None, None) => None,
            (Some(name), None) => Some((Became::Thunk, unit.names.symbol_of(name))),
            (None, Some(name)) => Some((Became::Alias, unit.names.symbol_of(name))),
            (Some(_), Some(_)) => bail_at!(place, "a function is either a thunk or an alias"),
        };
        let named = marks.defaults_for(|| unit.names.all(&symbol), defaults.functions);
        let attributes = directives::attributes(&directives, named);
        unit.given.push(Given { symbol, attributes, became, place });
        unit.functions.push(func);
    }
    let symbols = unit.given.iter().map(|given| &given.symbol);
    unit.names.relate(&symbols.zip(&unit.functions).collect::<Vec<_>>());
    lock(progress).begin("verifying", unit.functions.len());
    check(&unit, sources, verifier, parallel, progress)?;
    marks.check_all_matched()?;
    Ok(unit)
}

/// Finds a free namespace, and all names in the order of their text.
fn collect_names<'a>(
    functions: impl Iterator<Item = (&'a Function, &'a Said)>,
    data: impl Iterator<Item = &'a Parsed>,
) -> Names {
    let mut texts = BTreeSet::new();
    let mut namespaces = BTreeSet::new();
    let mut referred = Vec::new();
    for (func, directives) in functions {
        match &func.name {
            UserFuncName::Testcase(name) => {
                texts.insert(String::from_utf8_lossy(name.raw()).into_owned());
            }
            UserFuncName::User(symbol) => {
                namespaces.insert(symbol.namespace);
            }
        }
        for name in external_names(func) {
            if let ExternalName::TestCase(name) = name {
                texts.insert(String::from_utf8_lossy(name.raw()).into_owned());
            }
        }
        for symbol in func.params.user_named_funcs().values() {
            namespaces.insert(symbol.namespace);
        }
        referred.extend([&directives.thunk, &directives.alias].into_iter().flatten());
    }
    for data in data {
        referred.extend(data.pointers.iter().map(|pointer| &pointer.target));
        referred.extend(data.said.alias.iter().chain([&data.name]));
    }
    for name in referred {
        match name {
            Name::Text(text) => texts.insert(text.clone()),
            Name::User(symbol) => namespaces.insert(symbol.namespace),
        };
    }
    let namespace =
        (0..=u32::MAX).find(|n| !namespaces.contains(n)).expect("fewer functions than namespaces");
    let mut names = Names::new(namespace);
    for text in texts {
        names.add(text);
    }
    names
}

/// The names of all functions and data objects that `func` refers to.
pub fn external_names(func: &Function) -> impl Iterator<Item = &ExternalName> {
    let callees = func.dfg.ext_funcs.values().map(|callee| &callee.name);
    let symbols = func.global_values.values().filter_map(|gv| match gv {
        GlobalValueData::Symbol { name, .. } => Some(name),
        _ => None,
    });
    callees.chain(symbols).filter(|name| !fills_gap(name))
}

/// Replaces every name of `func` by a symbol; its own symbol.
fn to_symbols(func: &mut Function, names: &Names) -> UserExternalName {
    for index in 0..func.dfg.ext_funcs.len() {
        let func_ref = FuncRef::from_u32(index as u32);
        if let Some(text) = testcase_text(&func.dfg.ext_funcs[func_ref].name) {
            let name_ref = func.params.ensure_user_func_name(names.symbol(&text));
            func.dfg.ext_funcs[func_ref].name = ExternalName::User(name_ref);
        }
    }
    for index in 0..func.global_values.len() {
        let gv = ir::GlobalValue::from_u32(index as u32);
        let GlobalValueData::Symbol { name, .. } = &func.global_values[gv] else {
            continue;
        };
        if let Some(text) = testcase_text(name) {
            let name_ref = func.params.ensure_user_func_name(names.symbol(&text));
            if let GlobalValueData::Symbol { name, .. } = &mut func.global_values[gv] {
                *name = ExternalName::User(name_ref);
            }
        }
    }
    let symbol = match &func.name {
        UserFuncName::User(symbol) => symbol.clone(),
        UserFuncName::Testcase(name) => names.symbol(&String::from_utf8_lossy(name.raw())),
    };
    func.name = UserFuncName::User(symbol.clone());
    symbol
}

fn testcase_text(name: &ExternalName) -> Option<String> {
    match name {
        _ if fills_gap(name) => None,
        ExternalName::TestCase(name) => Some(String::from_utf8_lossy(name.raw()).into_owned()),
        ExternalName::User(_) | ExternalName::LibCall(_) | ExternalName::KnownSymbol(_) => None,
    }
}

/// The properties that the pass relies on.
fn check(
    unit: &Unit,
    sources: &[Source],
    verifier: &Verifier,
    parallel: bool,
    progress: &Shown<'_>,
) -> Result<()> {
    let mut defined: Defined<usize> = HashMap::new();
    for (index, given) in unit.given.iter().enumerate() {
        let name = unit.names.display(&given.symbol);
        if let Some(first) = defined.insert(given.symbol.clone(), index) {
            let first = &unit.given[first].place;
            let hint = match stages(&given.place.file, &first.file) {
                true => {
                    "; these texts are two stages of its compilation: give those of one stage only"
                }
                false => "",
            };
            let error = given.place.error(format!("function {name} is defined twice{hint}"));
            return Err(error.and(first, "the other definition").into());
        }
        // The text of a call of it would be read as a call of the library function.
        if is_library_function(&name[1..]) {
            bail_at!(given.place, "{name} is the name of a library function of Cranelift",);
        }
    }
    let mut data: Defined<&GivenData> = HashMap::new();
    for given in &unit.data {
        let function = defined.get(&given.symbol).map(|&index| &unit.given[index].place);
        let data = data.insert(given.symbol.clone(), given).map(|data| &data.place);
        if let Some(first) = function.or(data) {
            let name = unit.names.display(&given.symbol);
            let error = given.place.error(format!("{name} is defined twice"));
            return Err(error.and(first, "the other definition").into());
        }
    }
    each(0..unit.functions.len(), parallel, |index| {
        check_function(unit, sources, index, &defined, verifier)?;
        check_data_uses(unit, index, &data)?;
        lock(progress).step();
        Ok(())
    })?;
    check_cycles(unit, &defined)
}

/// Whether two files are dumps of one function, such as those that rustc_codegen_cranelift writes before and after
/// optimisation.
fn stages(one: &str, other: &str) -> bool {
    let stem = |file: &str| {
        let stem = file.strip_suffix(".clif").and_then(|file| file.rsplit_once('.'));
        stem.filter(|(_, stage)| stage.ends_with("opt")).map(|(stem, _)| stem.to_owned())
    };
    one != other && stem(one).is_some() && stem(one) == stem(other)
}

/// What a symbol is.
type Defined<T> = HashMap<UserExternalName, T>;

/// A function refers to data objects as data objects, and to thread-local ones as such.
fn check_data_uses(unit: &Unit, index: usize, defined: &Defined<&GivenData>) -> Result<()> {
    let (func, given) = (&unit.functions[index], &unit.given[index]);
    let data = |name: &ExternalName| match name {
        ExternalName::User(name_ref) => defined.get(&func.params.user_named_funcs()[*name_ref]),
        _ => None,
    };
    let refuse = |data: &GivenData, how: &str, what: &str| {
        let [name, data_name] = [&given.symbol, &data.symbol].map(|name| unit.names.display(name));
        let message = format!("function {name} refers to {data_name} as {how}, but it is {what}");
        Err(given.place.error(message).and(&data.place, "the definition").into())
    };
    for callee in func.dfg.ext_funcs.values() {
        if let Some(data) = data(&callee.name) {
            return refuse(data, "a function", "a data object");
        }
    }
    for gv in func.global_values.values() {
        if let GlobalValueData::Symbol { name, offset: _, colocated: _, tls } = gv
            && let Some(data) = data(name)
            && data.attributes.tls != *tls
        {
            let [how, what] = [*tls, data.attributes.tls].map(|tls| match tls {
                true => "thread-local",
                false => "one for all threads",
            });
            return refuse(data, how, what);
        }
    }
    Ok(())
}

/// What the verifier says of a function, where the function is written.
fn invalid(unit: &Unit, sources: &[Source], given: &Given, errors: VerifierErrors) -> TextError {
    let name = unit.names.display(&given.symbol);
    let listings = Listings::of(sources);
    let mut all = errors.0.into_iter().map(|error| {
        let place = listings.place_of(&given.place, error.location);
        (place.unwrap_or_else(|| given.place.clone()), error.message)
    });
    let (place, message) = all.next().unwrap_or_default();
    let first = place.error(format!("function {name} is not valid: {message}"));
    all.fold(first, |error, (place, message)| error.and(&place, message))
}

fn check_function(
    unit: &Unit,
    sources: &[Source],
    index: usize,
    defined: &Defined<usize>,
    verifier: &Verifier,
) -> Result<()> {
    let (func, given) = (&unit.functions[index], &unit.given[index]);
    let name = || unit.names.display(&given.symbol);
    if func.layout.entry_block().is_none() {
        bail_at!(given.place, "function {} has no blocks", name());
    }
    match contain(|| verifier.verify(func)) {
        Ok(Ok(())) => {}
        Ok(Err(errors)) => {
            return Err(invalid(unit, sources, given, errors).into());
        }
        Err(panic) => bail_at!(
            given.place,
            "function {} is not valid: Cranelift's verifier panicked: {panic}",
            name(),
        ),
    }
    for callee in func.dfg.ext_funcs.values() {
        let ExternalName::User(name_ref) = &callee.name else {
            continue;
        };
        let symbol = &func.params.user_named_funcs()[*name_ref];
        if let Some(&target) = defined.get(symbol)
            && func.dfg.signatures[callee.signature] != unit.functions[target].signature
        {
            let message = format!(
                "function {} refers to {} as {}, but it is defined as {}",
                name(),
                unit.names.display(symbol),
                func.dfg.signatures[callee.signature],
                unit.functions[target].signature,
            );
            let definition = &unit.given[target].place;
            return Err(given.place.error(message).and(definition, "the definition").into());
        }
    }
    if let Some((kind, target)) = &given.became {
        match defined.get(target) {
            Some(&index)
                if unit.functions[index].signature
                    == extended_signature(&func.signature, &extra(func)) =>
            {
                if !only_calls(func, target) {
                    bail_at!(
                        given.place,
                        "function {} says '{}={}', but its body is not a call of {2} with \
                         its own parameters and constants",
                        name(),
                        kind.name(),
                        unit.names.display(target),
                    );
                }
            }
            Some(_) => bail_at!(
                given.place,
                "function {} has another signature than its {} target {}",
                name(),
                kind.name(),
                unit.names.display(target),
            ),
            None => bail_at!(
                given.place,
                "'{}={}' names no function of the unit",
                kind.name(),
                unit.names.display(target),
            ),
        }
    }
    Ok(())
}

/// Whether a function does nothing but call `target` with its own parameters and constants, and return
/// the results: all that may be dropped for a jump or another name.
fn only_calls(func: &Function, target: &UserExternalName) -> bool {
    let options = Options::default();
    let extra = extra(func);
    let encoding = Encoding::of(func, &options);
    [false, true].iter().any(|&tail_calls| {
        let name = func.name.clone();
        let thunk = call_thunk(
            name,
            &func.signature,
            &extra,
            target,
            &CallThunks { tail_calls, colocated: true },
        );
        encoding.is_some() && encoding == Encoding::of(&thunk, &options)
    })
}

/// A thunk or an alias leads to a body in the end.
fn check_cycles(unit: &Unit, defined: &Defined<usize>) -> Result<()> {
    /// The number of the walk in which a function was met.
    const NEVER: usize = usize::MAX;
    let mut met = vec![NEVER; unit.given.len()];
    for start in 0..unit.given.len() {
        let mut at = start;
        while met[at] == NEVER {
            met[at] = start;
            let Some((_, target)) = &unit.given[at].became else {
                break;
            };
            at = defined[target];
            if met[at] == start {
                let given = &unit.given[at];
                let name = unit.names.display(&given.symbol);
                bail_at!(given.place, "function {name} is a thunk or an alias of itself",);
            }
        }
    }
    Ok(())
}
