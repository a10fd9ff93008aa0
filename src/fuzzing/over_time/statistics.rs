//! What occurred in programs that were run.

use super::define::Ids;
use super::program::{Part, Program};
use crate::{Disposition, MergingModule, Reason};
use cranelift_module::{FuncId, Module};
use std::collections::BTreeMap;
use std::fmt;

/// How often each thing occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics(BTreeMap<&'static str, u64>);

impl Statistics {
    /// Counts something.
    pub fn add(&mut self, what: &'static str, count: usize) {
        *self.0.entry(what).or_default() += count as u64;
    }

    /// How often something occurred.
    pub fn get(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }

    /// Counts what became of a program in a module.
    pub fn add_module<M: Module>(
        &mut self,
        program: &Program,
        module: &MergingModule<M>,
        ids: &Ids,
    ) {
        self.add("programs", 1);
        self.add("flushes", program.flushes.len());
        self.add("functions", program.functions.len());
        self.add("calls", program.calls.len());
        let stats = module.stats();
        self.add("parameterised or private bodies", stats.shared_bodies);
        self.add("merged data objects", stats.merged_data_objects);
        self.add("plans that were refuted", stats.refuted);
        let map = module.merge_map();
        for function in 0..program.functions.len() {
            let part = Part::Function(function);
            let flush = program.flush_of(part);
            let known = program.flushes[..=flush].iter().any(|flush| flush.defined.contains(&part));
            let outcome = known.then(|| module.outcome(ids.function(function))).flatten();
            let Some((disposition, reason)) = outcome else {
                continue;
            };
            let over_flushes = disposition.representative().is_some_and(|to| {
                let own = |other: &usize| ids.function(*other) == to;
                let mut others = 0..program.functions.len();
                others.find(own).is_some_and(|to| program.flush_of(Part::Function(to)) < flush)
            });
            let passes = map.originals().any(|original| {
                original.symbol.index == ids.function(function).as_u32()
                    && !original.arguments.is_empty()
            });
            self.add(word(&disposition), 1);
            match (over_flushes, passes) {
                (true, true) => self.add("merged into an earlier flush, with extra arguments", 1),
                (true, false) => self.add("merged into an earlier flush", 1),
                (false, true) => self.add("merged with extra arguments", 1),
                (false, false) => {}
            }
            match reason {
                Reason::AddressTaken => self.add("kept or a thunk because its address is taken", 1),
                Reason::Preemptible => self.add("a thunk because it is preemptible", 1),
                Reason::SymbolUsed => self.add("a thunk because it is externally called", 1),
                _ => {}
            }
        }
    }
}

fn word(disposition: &Disposition<FuncId>) -> &'static str {
    match disposition {
        Disposition::Keep => "kept",
        Disposition::Redirect { .. } => "redirected",
        Disposition::Alias { .. } => "aliases",
        Disposition::Thunk { .. } => "thunks",
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in &self.0 {
            writeln!(f, "{count:>9} {what}")?;
        }
        Ok(())
    }
}
