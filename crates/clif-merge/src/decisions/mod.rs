//! The decisions about all functions and data objects of a unit, as data: the one table behind
//! reports, remarks, pages and comparisons.
//!
//! A row says what became of one function or object and why, how many bytes of native code that
//! saves, and, for a function that was kept, which other one resembles it and where the two differ
//! first. The table is complete and in the order of the unit; renderings choose and sort. It
//! decides nothing, and prints nothing.

pub mod decide;
pub mod filter;
mod resembling;

use crate::jobs::{Jobs, Tools};
use crate::measure::Sizes;
use clif_unit::extra;
use clif_unit::listings::Listings;
use clif_unit::names::Names;
use clif_unit::unit::Unit;
use cranelift_codegen::ir::Function;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::data::DataIndex;
use cranelift_mergefunc::explain::{Difference, Rule, Site, first_difference};
use cranelift_mergefunc::{Disposition, FunctionIndex, Options, Plan, Reason, cranelift_codegen};
use resembling::Resembling;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The decision about one function or data object.
///
/// This is a row of the JSON, field by field: fields are added to it, and neither removed nor given
/// another meaning, while the `schema` of reports is 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Whether something was merged, could have been, or neither.
    pub kind: Kind,
    /// The function or data object.
    pub item: Item,
    /// The name in the text.
    pub name: String,
    /// Its name in the source, demangled, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_name: Option<String>,
    /// Of a function that only has a number: `calls NAME`, or `called by NAME`, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relation: Option<String>,
    /// The file that has it; of a new body, none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in that file, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The number of the class: of equal functions or objects, or of all whose bodies one
    /// parameterised body replaces.
    pub class: u32,
    /// Its disposition, and why.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Bytes before merging: of native code, or of the object.
    pub bytes_before: u64,
    /// Bytes after merging.
    pub bytes_after: u64,
    /// The function that a kept one resembles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resembles: Option<Resembled>,
}

/// The disposition of a function or data object, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its disposition: `keep`, `redirect`, `alias` or `thunk`.
    pub disposition: String,
    /// The stable id of the reason.
    pub rule: String,
    /// The name of the function or object that replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<String>,
    /// The extra arguments that the function which replaces it receives for it, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_arguments: Option<String>,
}

/// As LLVM divides optimisation remarks.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It gave up its body.
    Passed,
    /// It was kept although another one equals or resembles it.
    Missed,
    /// It was kept because it replaces others, is new, or resembles no other.
    Analysis,
}

/// The kind of item that a decision is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Item {
    /// A function of the unit.
    Function,
    /// A function that merging made: a private copy or a parameterised body.
    NewBody,
    /// A data object.
    Data,
}

/// Another function, and where the two differ first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resembled {
    /// Its name in the text.
    pub name: String,
    /// In how many constants or callees the functions of a set differ that differ in nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<usize>,
    /// Of two functions of which no more is known than that they begin with the same opcodes: how
    /// many of those of the longer one, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common: Option<usize>,
    /// The stable id of the rule that makes the first difference matter; none if the two are equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The line of the first difference in the file of the function, if it is at one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The line in the file of the other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_line: Option<usize>,
}

impl Decision {
    /// The name for a person: that in the text, and what the source calls it, if that is known.
    pub fn described(&self) -> String {
        match self.label() {
            Some(label) => format!("{} ({label})", self.name),
            None => self.name.clone(),
        }
    }

    /// The text beside the name.
    pub fn label(&self) -> Option<&str> {
        self.source_name.as_deref().or(self.relation.as_deref())
    }

    /// The reason by its id. A table that was read from a file can have others.
    pub fn reason(&self) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.id() == self.outcome.rule)
    }
}

impl Outcome {
    /// The disposition, with the rule.
    pub fn described(&self) -> String {
        format!("{} [{}]", self.disposition, self.rule)
    }
}

impl Resembled {
    /// The rule by its id. A table that was read from a file can have others.
    pub fn difference(&self) -> Option<Rule> {
        let id = self.rule.as_deref()?;
        Rule::ALL.into_iter().find(|rule| rule.id() == id)
    }
}

/// A planned unit, and what is known of it.
pub struct Planned<'a> {
    /// The unit.
    pub unit: &'a Unit,
    /// The texts that it was read from.
    pub listings: &'a Listings<'a>,
    /// The plan.
    pub plan: &'a Plan,
    /// The names of the unit, and of new bodies.
    pub names: &'a Names,
    /// The options of the run.
    pub options: &'a Options<'a>,
    /// Bytes of native code.
    pub sizes: &'a Sizes,
}

/// The table: functions of the unit in its order, new bodies, data objects. Walks each function
/// that was kept, and the one that it resembles.
pub fn decisions(planned: &Planned<'_>, jobs: &Jobs) -> Vec<Decision> {
    let Planned { plan, .. } = planned;
    let resembling = Resembling::of(planned);
    let functions: Vec<FunctionIndex> = plan.entries().map(|(function, _)| function).collect();
    let weight = |function: &FunctionIndex| resembling.get(*function).map_or(0, |pair| pair.weight);
    let mut all = jobs.map(functions, weight, &Tools::new(&|| ()), |(), function| {
        planned.function(function, &resembling)
    });
    all.extend(plan.data_entries().map(|(data, _)| planned.data(data)));
    all
}

impl Planned<'_> {
    fn name(&self, function: FunctionIndex) -> String {
        self.names.display(self.plan.entry(function).symbol())
    }

    fn function(&self, function: FunctionIndex, resembling: &Resembling) -> Decision {
        let Planned { unit, plan, names, sizes, .. } = self;
        let entry = plan.entry(function);
        let symbol = entry.symbol();
        let given = unit.given.get(function.index());
        let disposition = entry.disposition();
        let to = disposition.representative();
        let extra_arguments = extra::text(&plan.thunk_arguments(function), names);
        let resembles = resembling.get(function).map(|pair| self.resembled(function, pair));
        let size = |sizes: &[u32]| sizes.get(function.index()).map_or(0, |&size| u64::from(size));
        Decision {
            kind: kind(disposition, entry.reason(), resembles.is_some()),
            item: if given.is_some() { Item::Function } else { Item::NewBody },
            name: names.display(symbol),
            source_name: names.of_source(symbol),
            relation: names.relation(symbol),
            file: given.map(|given| given.place.file.clone()),
            line: given.map(|given| given.place.line),
            class: plan.entry(replaced_by_extra(plan, function).unwrap_or(function)).class(),
            outcome: Outcome {
                disposition: disposition.name().to_owned(),
                rule: entry.reason().id().to_owned(),
                replaced_by: to.map(|to| self.name(to)),
                extra_arguments: (!extra_arguments.is_empty()).then_some(extra_arguments),
            },
            bytes_before: size(&sizes.before),
            bytes_after: size(&sizes.after),
            resembles,
        }
    }

    fn data(&self, data: DataIndex) -> Decision {
        let Planned { unit, plan, names, .. } = self;
        let entry = plan.data_entry(data);
        let symbol = entry.symbol();
        let place = &unit.data[data.index()].place;
        let disposition = entry.disposition();
        let to = disposition.representative();
        let kept = disposition == Disposition::Keep;
        Decision {
            kind: kind(disposition, entry.reason(), false),
            item: Item::Data,
            name: names.display(symbol),
            source_name: names.of_source(symbol),
            relation: None,
            file: Some(place.file.clone()),
            line: Some(place.line),
            class: entry.class(),
            outcome: Outcome {
                disposition: disposition.name().to_owned(),
                rule: entry.reason().id().to_owned(),
                replaced_by: to.map(|to| names.display(plan.data_entry(to).symbol())),
                extra_arguments: None,
            },
            bytes_before: entry.size(),
            bytes_after: if kept { entry.size() } else { 0 },
            resembles: None,
        }
    }

    /// The other one of a pair, with the first difference.
    fn resembled(&self, function: FunctionIndex, pair: resembling::Pair) -> Resembled {
        let resembling::Pair { other, parameters, common, weight: _ } = pair;
        let with_body = |function: FunctionIndex| -> (FunctionIndex, &Function) {
            (function, &self.unit.functions[function.index()])
        };
        let (one, two) = (with_body(function), with_body(other));
        let difference = first_difference(self.plan, one, two, self.options).ok().flatten();
        let line = |function: FunctionIndex, site: fn(&Difference) -> Option<Site>| {
            let site = site(difference.as_ref()?)?;
            let given = &self.unit.given[function.index()];
            self.listings.line_of(&given.place, site)
        };
        Resembled {
            name: self.name(other),
            parameters,
            common,
            rule: difference.as_ref().map(|difference| difference.rule.id().to_owned()),
            line: line(function, |difference| difference.first),
            other_line: line(other, |difference| difference.second),
        }
    }
}

/// The parameterised body that replaces a function, if it receives extra arguments for it.
pub fn replaced_by_extra(plan: &Plan, function: FunctionIndex) -> Option<FunctionIndex> {
    let entry = plan.entry(function);
    let extra = !entry.extra_arguments().is_empty();
    entry.disposition().representative().filter(|_| extra)
}

/// The kind of remark that LLVM would make of a decision.
fn kind<I>(disposition: Disposition<I>, reason: Reason, resembles: bool) -> Kind {
    match disposition {
        Disposition::Keep => {}
        Disposition::Redirect { to: _ }
        | Disposition::Alias { to: _ }
        | Disposition::Thunk { to: _ } => {
            return Kind::Passed;
        }
    }
    match reason {
        Reason::Representative
        | Reason::ParameterisedBody
        | Reason::ContentAddressed
        | Reason::Malformed
        | Reason::Writable
        | Reason::ThreadLocal => Kind::Analysis,
        Reason::Prefiltered | Reason::Different if !resembles => Kind::Analysis,
        Reason::Prefiltered
        | Reason::Different
        | Reason::ReferencesDiffer
        | Reason::Pinned
        | Reason::NoMerge
        | Reason::EqualsNotMerged
        | Reason::ThunkNotSmaller
        | Reason::NoThunk
        | Reason::AllPreemptible
        | Reason::MergeLimit
        | Reason::NotProved
        | Reason::SimilarNotSmaller
        | Reason::SimilarSlower
        | Reason::AddressSignificant
        | Reason::NoAlias
        // Not of what is kept.
        | Reason::OnlyCalled
        | Reason::AddressInsignificant
        | Reason::VisibleOutside
        | Reason::AddressTaken
        | Reason::PatchableCalls
        | Reason::Preemptible
        | Reason::ExternallyCalled
        | Reason::Similar
        | Reason::ThunkCheaper => Kind::Missed,
    }
}

/// The indices of the rows by their names, each of which is that of one function or data object.
pub fn by_name(decisions: &[Decision]) -> HashMap<&str, usize> {
    decisions.iter().enumerate().map(|(at, decision)| (&*decision.name, at)).collect()
}

/// Sums of bytes over decisions: before, after.
pub fn bytes<'a>(decisions: impl IntoIterator<Item = &'a Decision>) -> (u64, u64) {
    decisions.into_iter().fold((0, 0), |(before, after), decision| {
        (before + decision.bytes_before, after + decision.bytes_after)
    })
}
