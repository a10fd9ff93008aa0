//! The part of a report about functions that differ only in constants and references.

use crate::measure::{Sizes, total};
use crate::table::{Align, render, thousands};
use cranelift_mergefunc::{Disposition, FunctionIndex, NewBody, Plan, SimilarSet};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Sets of similar functions that were considered.
#[derive(Debug, Default, Serialize)]
pub struct Similar {
    #[serde(flatten)]
    all: Sums,
    /// The sums by the number of extra arguments of a body for the whole set, the smallest first.
    by_parameters: Vec<ByParameters>,
}

#[derive(Debug, Serialize)]
struct ByParameters {
    parameters: usize,
    #[serde(flatten)]
    sums: Sums,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Sums {
    /// Sets that share a parameterised body, which is the number of these bodies.
    bodies: usize,
    /// Functions in them.
    functions: usize,
    /// Bytes that this saves, as far as the pass knows, on the architecture that the plan is for.
    saved: u64,
    /// Functions in sets that do not pay.
    left: usize,
}

impl Sums {
    fn add(&mut self, set: &SimilarSet) {
        match set.body {
            Some(_) => {
                self.bodies += 1;
                self.functions += set.members.len();
                self.saved += u64::try_from(set.saved.unwrap_or(0)).unwrap_or(0);
            }
            None => self.left += set.members.len(),
        }
    }
}

/// Bytes of code that merging similar functions saves, on the architecture of these sizes: all
/// bytes saved, except those of functions that are equal to another one. The cost of passing extra
/// arguments is subtracted.
pub fn saved(plan: &Plan, sizes: &Sizes) -> i64 {
    let sets = plan.similar_sets().iter().filter(|set| set.body.is_some());
    let similar: BTreeSet<FunctionIndex> =
        sets.flat_map(|set| set.members.iter().copied()).collect();
    if similar.is_empty() {
        return 0;
    }
    let equal = plan.entries().filter(|(function, entry)| {
        entry.disposition() != Disposition::Keep && !similar.contains(function)
    });
    let equal = equal.map(|(function, _)| function);
    let copies = plan.new_bodies().iter().filter(|new| new.copy_of().is_some());
    let copies = copies.map(NewBody::function);
    let by_equal: i64 = equal.chain(copies).map(|function| sizes.saved(function)).sum();
    total(&sizes.before) as i64 - total(&sizes.after) as i64 - by_equal
}

impl Similar {
    /// Sums up the sets of a plan.
    pub fn of(plan: &Plan) -> Similar {
        let mut all = Sums::default();
        let mut by_parameters: BTreeMap<usize, Sums> = BTreeMap::new();
        for set in plan.similar_sets() {
            all.add(set);
            by_parameters.entry(set.parameters).or_default().add(set);
        }
        let by_parameters = by_parameters.into_iter();
        let by_parameters =
            by_parameters.map(|(parameters, sums)| ByParameters { parameters, sums }).collect();
        Similar { all, by_parameters }
    }

    /// For a person; nothing if there are no such functions.
    pub fn text(&self) -> String {
        let Similar { all, by_parameters } = self;
        if all.functions + all.left == 0 {
            return String::new();
        }
        let row = |name: String, sums: Sums| {
            let Sums { bodies, functions, saved, left } = sums;
            let count = |count: usize| thousands(count as u64);
            vec![name, count(bodies), count(functions), thousands(saved), count(left)]
        };
        let heading = ["similar functions", "bodies", "functions", "saved about", "do not pay"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        let few = by_parameters.partition_point(|row| row.parameters < MANY);
        for ByParameters { parameters, sums } in &by_parameters[..few] {
            let plural = if *parameters == 1 { "" } else { "s" };
            rows.push(row(format!("{parameters} parameter{plural}"), *sums));
        }
        let many = &by_parameters[few..];
        if !many.is_empty() {
            let mut together = Sums::default();
            for ByParameters { sums: Sums { bodies, functions, saved, left }, .. } in many {
                together.bodies += bodies;
                together.functions += functions;
                together.saved += saved;
                together.left += left;
            }
            rows.push(row(format!("{MANY} and more"), together));
        }
        rows.push(row("all".to_owned(), *all));
        let align = [Align::Left, Align::Right, Align::Right, Align::Right, Align::Right];
        format!("\n{}", render(&align, &rows))
    }
}

/// Sets with at least this many parameters are summed up in one row.
const MANY: usize = 5;
