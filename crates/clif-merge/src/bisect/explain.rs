//! The explanation of the merge that `bisect` found: the functions and data objects that it
//! concerns, and why the pass merged them, as `why` explains it.

use super::make::Maker;
use crate::why::Explainer;
use anyhow::Result;
use clif_unit::pass::{Emit, Merged};
use clif_unit::sources::Source;
use clif_unit::text;
use clif_unit::unit::Unit;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::data::DataIndex;
use cranelift_mergefunc::{Disposition, FunctionIndex, Plan};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// How many of the functions that changed are explained.
const EXPLAINED: usize = 3;

/// The last merge of a plan.
#[derive(Debug, Default)]
pub struct Difference {
    /// Functions that are merged with it and not without it, or into another body.
    functions: Vec<FunctionIndex>,
    /// The data objects of the merge.
    data: Vec<DataIndex>,
}

impl Difference {
    /// Compares the unit without the merge and with it.
    pub fn of(without: &Merged, with: &Merged) -> Difference {
        // New bodies are other ones in each plan: what they are called says which they are.
        let named = |merged: &Merged, function: FunctionIndex| {
            let disposition = merged.plan.entry(function).disposition();
            let to = disposition.representative();
            let to = to.map(|to| merged.names.display(merged.plan.entry(to).symbol()));
            (disposition.name(), to)
        };
        let is_merged = |plan: &Plan, function| {
            !matches!(plan.entry(function).disposition(), Disposition::Keep)
        };
        let functions = (0..with.plan.added()).map(FunctionIndex::new);
        let changed = functions
            .filter(|&function| is_merged(&with.plan, function))
            .filter(|&function| named(without, function) != named(with, function));
        let mut functions: Vec<FunctionIndex> = changed.collect();
        // Those that were not merged before say most.
        functions.sort_by_key(|&function| is_merged(&without.plan, function));
        let data = with.plan.data_entries().zip(without.plan.data_entries());
        let data = data
            .filter(|((_, with), (_, without))| with.disposition() != without.disposition())
            .filter(|((_, with), _)| !matches!(with.disposition(), Disposition::Keep))
            .map(|((data, _), _)| data);
        Difference { functions, data: data.collect() }
    }

    /// The functions of the unit that have to do with it: merged ones, their representatives, and
    /// the other members of their sets.
    pub fn involved(&self, plan: &Plan) -> BTreeSet<usize> {
        let mut involved = BTreeSet::new();
        for &function in &self.functions {
            involved.insert(function.index());
            involved.extend(partners(plan, function).into_iter().map(|function| function.index()));
        }
        involved.retain(|&function| function < plan.added());
        involved
    }

    /// The explanation.
    ///
    /// # Errors
    ///
    /// Those of `why`.
    pub fn explain(
        &self,
        maker: &Maker<'_>,
        unit: &Unit,
        sources: &[Source],
        merged: &Merged,
        limit: u32,
    ) -> Result<String> {
        let options = maker.options(Some(limit));
        let explainer = Explainer::new(unit, sources, &merged.plan, &merged.names, &options);
        let mut out = String::new();
        let mut bodies = BTreeSet::new();
        for &function in self.functions.iter().take(EXPLAINED) {
            let to = merged.plan.entry(function).disposition().representative();
            let is_new = to.is_some_and(|to| to.index() >= unit.functions.len());
            let partners = partners(&merged.plan, function);
            let partner = partners.iter().find(|partner| partner.index() < unit.functions.len());
            out.push('\n');
            if is_new && !bodies.insert(to) || partner.is_none() {
                // The body and the difference are there already.
                writeln!(out, "{}", explainer.disposition(function)).expect("a string");
                continue;
            }
            if let Some(&partner) = partner {
                out += &explainer.two(function, partner)?;
            }
            out += &explainer.similar(function);
            if let Some(to) = to.filter(|_| is_new) {
                out += &new_body(merged, to);
            }
        }
        for &data in self.data.iter().take(EXPLAINED) {
            let to = merged.plan.data_entry(data).disposition().representative();
            out.push('\n');
            out += &explainer.two_objects(data, to.unwrap_or(data));
        }
        let more = self.functions.len().saturating_sub(EXPLAINED)
            + self.data.len().saturating_sub(EXPLAINED);
        if more > 0 {
            writeln!(out, "\n{more} more changed with this merge").expect("a string");
        }
        Ok(out)
    }
}

/// The representative of a function, then the other functions with the same one, and those of its
/// set.
fn partners(plan: &Plan, function: FunctionIndex) -> Vec<FunctionIndex> {
    let to = plan.entry(function).disposition().representative();
    let mut partners: Vec<FunctionIndex> = to.into_iter().collect();
    let same = plan.entries().filter(|(_, entry)| entry.disposition().representative() == to);
    partners
        .extend(same.map(|(other, _)| other).filter(|&other| to.is_some() && other != function));
    let sets = plan.similar_sets().iter().filter(|set| set.members.contains(&function));
    partners.extend(sets.flat_map(|set| &set.members).filter(|&&other| other != function));
    partners
}

/// The text of a new body.
fn new_body(merged: &Merged, body: FunctionIndex) -> String {
    match &merged.emit[body.index()] {
        Emit::Body(body) => format!("\n{}", text::of(&merged.names.restore(body))),
        Emit::Thunk(..) | Emit::Alias(_) | Emit::Nothing => String::new(),
    }
}
