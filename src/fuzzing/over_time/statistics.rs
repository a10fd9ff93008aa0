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
        // By number: in which flush it is defined, if a definition came.
        let mut flush_of = vec![None; program.functions.len()];
        for (number, flush) in program.flushes.iter().enumerate() {
            for part in &flush.defined {
                if let Part::Function(function) = *part {
                    flush_of[function] = ids.known(function).map(|id| (id, number));
                }
            }
        }
        for &(id, flush) in flush_of.iter().flatten() {
            let Some((disposition, reason)) = module.outcome(id) else {
                continue;
            };
            let over_flushes = disposition.representative().is_some_and(|to| {
                let mut others = flush_of.iter().flatten();
                others.any(|&(other, earlier)| other == to && earlier < flush)
            });
            let passes = map.originals().any(|original| {
                original.symbol.index == id.as_u32() && !original.arguments.is_empty()
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
