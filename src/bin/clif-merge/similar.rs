//! What a report tells of functions that differ only in constants and in what they refer to.
//!
//! They are not merged: this says how much code they are.

use crate::measure::Sizes;
use crate::table::{Align, percent, render, thousands};
use crate::unit::Unit;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::{FunctionIndex, Group, Options, ParameterKind, Plan, similar_groups};
use serde::Serialize;
use std::collections::BTreeMap;

/// Groups of similar functions among those that are kept.
#[derive(Debug, Default, Serialize)]
pub struct Similar {
    /// Groups of two or more.
    groups: usize,
    /// Functions in them.
    functions: usize,
    /// Bytes of their code, on the host's architecture.
    bytes: u64,
    /// The same by the number of parameters that one function for all of a group would need, the
    /// smallest first.
    by_parameters: Vec<ByParameters>,
}

#[derive(Debug, Default, Serialize)]
struct ByParameters {
    parameters: usize,
    groups: usize,
    functions: usize,
    bytes: u64,
    /// Bytes of functions of which at least one parameter is a function to be called.
    bytes_with_callees: u64,
}

impl Similar {
    /// Finds the groups, and sums up the code of their functions after merging.
    pub fn of(unit: &Unit, plan: &Plan, options: &Options<'_>, sizes: &Sizes) -> Similar {
        let mut all = Similar::default();
        let mut by_parameters: BTreeMap<usize, ByParameters> = BTreeMap::new();
        for group in similar_groups(plan, &mut &*unit.functions, options) {
            let size = |member: &FunctionIndex| u64::from(sizes.after[member.index()]);
            let bytes = group.members().iter().map(size).sum();
            let parameters = group.parameters().len();
            let row = by_parameters.entry(parameters).or_default();
            row.parameters = parameters;
            for (groups, functions, sum) in [
                (&mut all.groups, &mut all.functions, &mut all.bytes),
                (&mut row.groups, &mut row.functions, &mut row.bytes),
            ] {
                *groups += 1;
                *functions += group.members().len();
                *sum += bytes;
            }
            row.bytes_with_callees += if has_callees(&group) { bytes } else { 0 };
        }
        all.by_parameters = by_parameters.into_values().collect();
        all
    }

    /// For a person, who knows how much code there is in all; nothing if there are no groups.
    pub fn text(&self, code: u64) -> String {
        let Similar { groups, functions, bytes, by_parameters } = self;
        if *groups == 0 {
            return String::new();
        }
        let row = |name: String, groups: usize, functions: usize, bytes: u64, callees: u64| {
            let [groups, functions] = [groups, functions].map(|count| thousands(count as u64));
            let [bytes_of, callees_of] =
                [bytes, callees].map(|part| format!("{:.2}%", percent(part as f64, code as f64)));
            vec![name, groups, functions, thousands(bytes), bytes_of, callees_of]
        };
        let heading =
            ["similar functions", "groups", "functions", "bytes", "of the code", "with callees"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        let few = by_parameters.partition_point(|row| row.parameters < MANY);
        for one in &by_parameters[..few] {
            let plural = if one.parameters == 1 { "" } else { "s" };
            let name = format!("{} parameter{plural}", one.parameters);
            rows.push(row(name, one.groups, one.functions, one.bytes, one.bytes_with_callees));
        }
        let many = &by_parameters[few..];
        if !many.is_empty() {
            rows.push(row(
                format!("{MANY} and more"),
                many.iter().map(|row| row.groups).sum(),
                many.iter().map(|row| row.functions).sum(),
                many.iter().map(|row| row.bytes).sum(),
                many.iter().map(|row| row.bytes_with_callees).sum(),
            ));
        }
        let callees = by_parameters.iter().map(|row| row.bytes_with_callees).sum();
        rows.push(row("all".to_owned(), *groups, *functions, *bytes, callees));
        let right = [Align::Right; 5];
        let [a, b, c, d, e] = right;
        format!("\n{}", render(&[Align::Left, a, b, c, d, e], &rows))
    }
}

/// From so many parameters on, groups are told together.
const MANY: usize = 5;

fn has_callees(group: &Group) -> bool {
    group.parameters().iter().any(|parameter| parameter.kind() == ParameterKind::Callee)
}
