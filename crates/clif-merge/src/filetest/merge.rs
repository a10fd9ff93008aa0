//! `test merge`: the disposition of every function, the text of those that are kept, and laws that
//! hold for every unit.
//!
//! The expectation of a function says its disposition and its reason, and for a kept function
//! the whole text afterwards. That of the last one goes on with the data objects. The laws need no
//! expectation: the order of the functions does not matter, kept functions are valid and refer to
//! no eliminated symbol, every class holds when it is compared again, and merging a merged unit
//! changes nothing. Nothing is compiled here, except for sizes of functions that the plan asks for.

use super::header::Command;
use crate::canonical::canonicalize;
use anyhow::{Result, anyhow, bail, ensure};
use clif_unit::check;
use clif_unit::data;
use clif_unit::directives::{PREFIX, parse_addresses, parse_linkage};
use clif_unit::emit_text::emit;
use clif_unit::extra;
use clif_unit::pass::{self, Emit, Merged};
use clif_unit::text;
use clif_unit::unit::{self, Defaults, Names, Reading, Source, Unit};
use clif_unit::verify::Verifier;
use cranelift_codegen::ir::{ExternalName, Function, UserExternalName};
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::print_errors::pretty_verifier_error;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::data::DataEntry;
use cranelift_mergefunc::thunk::CallThunks;
use cranelift_mergefunc::{
    Addresses, Callees, Compare, Disposition, Entry, FunctionIndex, Instructions, Linkage, NewBody,
    Options, Plan, Policy, Similar, SizeModel, Target, cranelift_codegen, extended_signature,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// The options of a `test merge` line.
#[derive(Clone, Copy, Debug)]
pub struct MergeOptions {
    /// For functions and data objects without directives.
    pub defaults: Defaults,
    aliases: bool,
    walk_all: bool,
    optimize: bool,
    compare_debug_info: bool,
    merge_limit: Option<u32>,
    similar: Similar,
    /// Whether every instruction counts as equally many bytes: then what is merged does not depend
    /// on how sizes are fitted.
    uniform_sizes: bool,
}

impl Default for MergeOptions {
    fn default() -> Self {
        MergeOptions {
            defaults: Defaults::default(),
            aliases: false,
            walk_all: false,
            optimize: false,
            compare_debug_info: false,
            merge_limit: None,
            // A test says what it is about.
            similar: Similar::OFF,
            uniform_sizes: false,
        }
    }
}

impl MergeOptions {
    /// The defaults that merge most: functions are local, with insignificant addresses.
    pub fn everything_local() -> MergeOptions {
        let mut options = MergeOptions::default();
        options.defaults.functions.linkage = Linkage::Local;
        options.defaults.functions.addresses = Addresses::Insignificant;
        options
    }

    /// Reads the options of a `test merge` line.
    ///
    /// # Errors
    ///
    /// Unknown, repeated and malformed options.
    pub fn parse(command: &Command) -> Result<MergeOptions> {
        let mut options = MergeOptions::default();
        let mut seen = HashSet::new();
        for word in &command.options {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word.as_str(), None),
            };
            ensure!(seen.insert(name), "option '{name}' of 'test merge' is repeated");
            match (name, value) {
                ("linkage", Some(value)) => {
                    options.defaults.functions.linkage = parse_linkage(value)?;
                }
                ("addresses", Some(value)) => {
                    options.defaults.functions.addresses = parse_addresses(value)?;
                }
                ("data-addresses", Some(value)) => {
                    options.defaults.data_addresses = parse_addresses(value)?;
                }
                ("aliases", None) => options.aliases = true,
                ("walk-all", None) => options.walk_all = true,
                ("canonicalize", Some("optimize")) => options.optimize = true,
                ("compare-debug-info", None) => options.compare_debug_info = true,
                ("similar", Some(value)) => {
                    options.similar.policy = by_name(&Policy::ALL, Policy::name, name, value)?;
                }
                ("callees", Some(value)) => {
                    options.similar.callees = by_name(&Callees::ALL, Callees::name, name, value)?;
                }
                ("instructions", Some(value)) => {
                    options.similar.instructions =
                        by_name(&Instructions::ALL, Instructions::name, name, value)?;
                }
                ("sizes", Some("uniform")) => options.uniform_sizes = true,
                ("merge-limit", Some(value)) => match value.parse() {
                    Ok(limit) => options.merge_limit = Some(limit),
                    Err(_) => bail!("'{value}' is not a number of merges"),
                },
                _ => bail!(
                    "unknown option '{word}' of 'test merge'; there are linkage=, addresses=, \
                     data-addresses=, aliases, walk-all, canonicalize=optimize, \
                     compare-debug-info, merge-limit=, similar=, callees=, instructions=, sizes=uniform"
                ),
            }
        }
        Ok(options)
    }

    /// The options of the pass for a target, or for none.
    pub fn for_isa<'a>(&self, isa: Option<&'a dyn TargetIsa>) -> Options<'a> {
        let mut options = Options {
            target: Target { call_thunks: isa.map(CallThunks::of), ..pass::target_of(isa) },
            aliases: self.aliases,
            compare: Compare {
                debug_info: self.compare_debug_info,
                every_function: self.walk_all || self.optimize,
            },
            merge_limit: self.merge_limit,
            similar: self.similar,
            ..Options::default()
        };
        if self.uniform_sizes {
            options.target.size_model = Some(SizeModel::UNIFORM);
        }
        options
    }

    /// The unit that is merged: `unit`, or with `canonicalize=optimize` one of its canonical
    /// bodies.
    ///
    /// # Errors
    ///
    /// If a target is needed.
    pub fn unit<'a>(&self, unit: &'a Unit, isa: Option<&dyn TargetIsa>) -> Result<Cow<'a, Unit>> {
        match (self.optimize, isa) {
            (false, _) => Ok(Cow::Borrowed(unit)),
            (true, Some(isa)) => {
                let mut unit = unit.clone();
                canonicalize(&mut unit, isa);
                Ok(Cow::Owned(unit))
            }
            (true, None) => bail!("'canonicalize=optimize' needs a 'target'"),
        }
    }
}

/// The one that has this name.
fn by_name<T: Copy>(all: &[T], name: fn(T) -> &'static str, option: &str, text: &str) -> Result<T> {
    match all.iter().find(|&&one| name(one) == text) {
        Some(&one) => Ok(one),
        None => bail!(
            "unknown word '{text}' after '{option}='; there are {}",
            all.iter().map(|&one| name(one)).collect::<Vec<_>>().join(", "),
        ),
    }
}

/// Merges a unit and holds the result against the laws.
///
/// # Errors
///
/// The law that is broken.
pub fn merge(unit: &Unit, options: &Options<'_>, isa: Option<&dyn TargetIsa>) -> Result<Merged> {
    let merged = pass::merge(unit, options)?;
    check::proof(unit, &merged, options).map_err(crate::exit::bug)?;
    check_valid(&merged, isa)?;
    check_references(unit, &merged)?;
    check_order(unit, &merged, options)?;
    // With a limit, the second run performs merges that the limit prevented in the first. And
    // whether a set pays depends on the other functions of the unit.
    if options.merge_limit.is_none() && options.similar.policy == Policy::Off {
        check_idempotence(unit, &merged, options, isa)?;
    }
    Ok(merged)
}

/// How many functions were merged away.
pub fn merged_away(unit: &Unit, merged: &Merged) -> usize {
    let entries = merged.plan.entries().take(unit.functions.len());
    entries.filter(|(_, entry)| entry.disposition() != Disposition::Keep).count()
}

fn symbol(merged: &Merged, function: FunctionIndex) -> String {
    merged.names.display(merged.plan.entry(function).symbol())
}

/// The expectation of each function of a unit, in lines.
pub fn expectations(unit: &Unit, merged: &Merged) -> Vec<Vec<String>> {
    let mut expectations = Vec::new();
    for (at, given) in unit.given.iter().enumerate() {
        let function = FunctionIndex::new(at);
        let entry = merged.plan.entry(function);
        let mut first = match entry.disposition() {
            Disposition::Keep => "keep".to_owned(),
            Disposition::Redirect { to } => format!("redirect to {}", symbol(merged, to)),
            Disposition::Thunk { to } => format!("thunk to {}", symbol(merged, to)),
            Disposition::Alias { to } => format!("alias of {}", symbol(merged, to)),
        };
        let extra = extra::text(&merged.plan.thunk_arguments(function), &merged.names);
        let extra = if extra.is_empty() { extra } else { format!(" with {extra}") };
        first = format!("; {first}{extra}: {}", entry.reason());
        if entry.disposition() == Disposition::Keep {
            match &merged.emit[at] {
                Emit::Thunk(to, _) => {
                    first += &format!(", a thunk to {}", merged.names.display(to))
                }
                Emit::Alias(to) => first += &format!(", an alias of {}", merged.names.display(to)),
                Emit::Body(_) | Emit::Nothing => {}
            }
            if entry.alignment() != given.attributes.alignment {
                first += &format!(", align={}", entry.alignment());
            }
        }
        let mut lines = vec![first];
        push_body(&mut lines, merged, at);
        expectations.push(lines);
    }
    if let Some(lines) = expectations.last_mut() {
        for function in merged.plan.new_bodies().iter().map(NewBody::function) {
            let alignment = match merged.plan.entry(function).alignment() {
                1 => String::new(),
                bytes => format!(", align={bytes}"),
            };
            lines.push(";".to_owned());
            lines.push(format!("; new: {}{alignment}", symbol(merged, function)));
            push_body(lines, merged, function.index());
        }
        if !unit.data.is_empty() {
            lines.push(";".to_owned());
            push_data(lines, unit, merged);
        }
    }
    expectations
}

/// The disposition of each data object, and its directive if it is kept and changed.
fn push_data(lines: &mut Vec<String>, unit: &Unit, merged: &Merged) {
    let name = |symbol: &UserExternalName| merged.names.display(symbol);
    for ((before, after), (_, entry)) in
        unit.data.iter().zip(&merged.data).zip(merged.plan.data_entries())
    {
        let disposition = entry.disposition().map(|to| merged.plan.data_entry(to).symbol());
        let what = match (disposition, after.as_ref().and_then(|after| after.alias.as_ref())) {
            (Disposition::Keep, Some(target)) => format!("an alias of {}", name(target)),
            (Disposition::Redirect { to }, _) => {
                format!("redirect to {}: {}", name(to), entry.reason())
            }
            (Disposition::Alias { to }, _) => format!("alias of {}: {}", name(to), entry.reason()),
            (disposition, _) => format!("{}: {}", disposition.name(), entry.reason()),
        };
        lines.push(format!("; data {}: {what}", name(&before.symbol)));
        if let (Disposition::Keep, Some(after)) = (entry.disposition(), after)
            && before != after
        {
            let text = data::print(after, &name);
            lines.extend(text.lines().map(|line| line.replacen(PREFIX, ";", 1)));
        }
    }
}

fn push_body(lines: &mut Vec<String>, merged: &Merged, at: usize) {
    if let Emit::Body(func) = &merged.emit[at] {
        let text = text::of(&merged.names.restore(func));
        lines.extend(text.lines().map(|line| format!("; {line}").trim_end().to_owned()));
    }
}

/// Kept functions pass the verifier.
fn check_valid(merged: &Merged, isa: Option<&dyn TargetIsa>) -> Result<()> {
    let verifier = isa.map_or_else(Verifier::without_target, Verifier::new);
    for func in bodies(merged) {
        let verified = match isa {
            Some(_) => verifier.verify_for_target(func),
            None => verifier.verify(func),
        };
        if let Err(errors) = verified {
            let func = merged.names.restore(func);
            let drawn = pretty_verifier_error(&func, None, errors);
            bail!("after merging, {} is not valid:\n{}", func.name, drawn.trim_end());
        }
    }
    Ok(())
}

fn bodies(merged: &Merged) -> impl Iterator<Item = &Function> {
    merged.emit.iter().filter_map(|emit| match emit {
        Emit::Body(func) => Some(&**func),
        Emit::Thunk(..) | Emit::Alias(_) | Emit::Nothing => None,
    })
}

/// Nothing refers to an eliminated symbol, and a function that replaces another has its signature.
fn check_references(unit: &Unit, merged: &Merged) -> Result<()> {
    let is_eliminated = |symbol: &UserExternalName| {
        let function = merged.plan.function(symbol).map(|at| &merged.emit[at.index()]);
        let data = merged.plan.data(symbol).map(|at| &merged.data[at.index()]);
        matches!(function, Some(Emit::Nothing)) || matches!(data, Some(None))
    };
    for func in bodies(merged) {
        for symbol in references(func) {
            ensure!(
                !is_eliminated(symbol),
                "after merging, {} refers to {}, which is eliminated",
                merged.names.restore(func).name,
                merged.names.display(symbol),
            );
        }
    }
    for data in merged.data.iter().flatten() {
        let pointers = data.object.relocations.iter().map(|reloc| &reloc.target);
        for target in pointers.chain(&data.alias) {
            ensure!(
                !is_eliminated(target),
                "after merging, {} points to {}, which is eliminated",
                merged.names.display(&data.symbol),
                merged.names.display(target),
            );
        }
    }
    for (function, entry) in merged.plan.entries() {
        let Some(to) = entry.disposition().representative() else {
            continue;
        };
        if let Emit::Thunk(..) = &merged.emit[to.index()]
            && !merged.plan.entry(to).extra_arguments().is_empty()
        {
            // A thunk that passes extra arguments has an address of its own, and may be the
            // representative.
            continue;
        }
        let Emit::Body(body) = &merged.emit[to.index()] else {
            bail!("{} leads to {}, which has no body", symbol(merged, function), symbol(merged, to))
        };
        let own = &unit.functions[function.index()].signature;
        let signature = extended_signature(own, entry.extra_arguments());
        ensure!(
            body.signature == signature,
            "{} leads to {}, which has another signature",
            symbol(merged, function),
            symbol(merged, to),
        );
    }
    Ok(())
}

/// All symbols that a function refers to.
pub fn references(func: &Function) -> impl Iterator<Item = &UserExternalName> {
    unit::external_names(func).filter_map(|name| match name {
        ExternalName::User(name_ref) => Some(&func.params.user_named_funcs()[*name_ref]),
        ExternalName::TestCase(_) | ExternalName::LibCall(_) | ExternalName::KnownSymbol(_) => None,
    })
}

/// The order of the functions does not matter.
fn check_order(unit: &Unit, merged: &Merged, options: &Options<'_>) -> Result<()> {
    let mut reversed = unit.clone();
    reversed.functions.reverse();
    reversed.given.reverse();
    reversed.data.reverse();
    let (plan, names) = pass::plan(&reversed, options)?;
    let symbol_in = |plan: &Plan, function: Option<FunctionIndex>| {
        function.map(|function| plan.entry(function).symbol().clone())
    };
    for (at, (_, entry)) in merged.plan.entries().enumerate() {
        let name = merged.names.display(entry.symbol());
        let other = plan
            .function(entry.symbol())
            .ok_or_else(|| anyhow!("with the functions in reverse order there is no {name}"))?;
        let other = plan.entry(other);
        let outcome = |plan: &Plan, names: &Names, entry: Entry<'_>| {
            let to = symbol_in(plan, entry.disposition().representative());
            let to = to.map(|to| format!(" to {}", names.display(&to))).unwrap_or_default();
            let class = entry.class();
            let to = format!("{to} with {}", extra::text(entry.extra_arguments(), names));
            format!("{}{to}: {}, class {class}", entry.disposition().name(), entry.reason())
        };
        let here = outcome(&merged.plan, &merged.names, entry);
        let there = outcome(&plan, &names, other);
        ensure!(
            here == there,
            "with the functions in reverse order, {name} (function {at}) is '{there}' instead of \
             '{here}'"
        );
    }
    ensure!(
        merged.plan.entries().len() == plan.entries().len(),
        "with the functions in reverse order there are more of them"
    );
    let outcomes = |plan: &Plan| -> BTreeMap<String, String> {
        let outcome = |entry: &DataEntry| {
            let to = entry.disposition().representative().map(|to| plan.data_entry(to).symbol());
            let to = to.map(|to| format!(" to {}", names.display(to))).unwrap_or_default();
            let (word, reason) = (entry.disposition().name(), entry.reason());
            format!("{word}{to}: {reason}, class {}, align={}", entry.class(), entry.alignment())
        };
        let entries = plan.data_entries();
        entries.map(|(_, entry)| (names.display(entry.symbol()), outcome(entry))).collect()
    };
    for ((name, here), (_, there)) in outcomes(&merged.plan).iter().zip(outcomes(&plan)) {
        ensure!(
            *here == there,
            "with the data objects in reverse order, {name} is '{there}' instead of '{here}'"
        );
    }
    Ok(())
}

/// Merging the merged unit, printed and read back, changes nothing.
fn check_idempotence(
    unit: &Unit,
    merged: &Merged,
    options: &Options<'_>,
    isa: Option<&dyn TargetIsa>,
) -> Result<()> {
    let first = emit(unit, merged);
    let source = Source { name: "<the merged unit>".to_owned(), text: first.clone() };
    let verifier = isa.map_or_else(Verifier::without_target, Verifier::new);
    let unit = unit::parse_unit(&[source], Reading::plain(&verifier))?;
    let merged = pass::merge(&unit, options)?;
    for (_, entry) in merged.plan.entries() {
        ensure!(
            entry.disposition() == Disposition::Keep,
            "when the merged unit is merged once more, {} becomes '{}: {}'",
            merged.names.display(entry.symbol()),
            entry.disposition().name(),
            entry.reason(),
        );
    }
    for (_, entry) in merged.plan.data_entries() {
        ensure!(
            entry.disposition() == Disposition::Keep,
            "when the merged unit is merged once more, {} becomes '{}: {}'",
            merged.names.display(entry.symbol()),
            entry.disposition().name(),
            entry.reason(),
        );
    }
    let second = emit(&unit, &merged);
    ensure!(
        first == second,
        "the merged unit changes when it is merged once more:\n{}",
        super::diff(&first, &second, "once", "twice"),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clif_unit::error::Place;

    fn parse(options: &[&str]) -> Result<MergeOptions, String> {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let command = Command { place: Place::default(), name: "merge".to_owned(), options };
        MergeOptions::parse(&command).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read() {
        let options = parse(&["data-addresses=insignificant"]).unwrap();
        assert_eq!(options.defaults.data_addresses, Addresses::Insignificant);
        assert_eq!(options.defaults.functions.addresses, Addresses::Significant);
        let options = parse(&["linkage=local", "aliases", "compare-debug-info"]).unwrap();
        assert_eq!(options.defaults.functions.linkage, Linkage::Local);
        assert!(options.aliases && !options.walk_all);
        assert!(options.compare_debug_info);
    }

    #[test]
    fn mistakes_in_options_are_errors() {
        assert!(parse(&["aliasses"]).unwrap_err().contains("unknown option 'aliasses'"));
        assert!(parse(&["aliases", "aliases"]).unwrap_err().contains("repeated"));
        assert!(parse(&["similar=names"]).unwrap_err().contains("unknown word 'names'"));
        assert!(parse(&["canonicalize=more"]).unwrap_err().contains("unknown option"));
        assert!(parse(&["merge-limit=-1"]).unwrap_err().contains("not a number"));
    }
}
