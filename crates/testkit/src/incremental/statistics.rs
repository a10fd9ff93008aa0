//! The events of programs that were run.

use super::define::Ids;
use super::program::{Address, Callee, End, Part, Program, Statement};
use cranelift_mergefunc::{Disposition, Reason};
use cranelift_mergefunc_module::MergingModule;
use cranelift_module::Module;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The bodies of functions that differ in few statements.
pub const ALIGNED: &str = "bodies of functions that differ in few instructions";

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

    /// Counts what a program consists of.
    pub fn add_program(&mut self, program: &Program) {
        self.add("programs", 1);
        self.add("flushes", program.flushes.len());
        self.add("functions", program.functions.len());
        self.add("data objects", program.data.len());
        self.add("calls from outside", program.calls.len());
        for flush in &program.flushes {
            self.add("declared again with a wider linkage", flush.widened.len());
        }
        for function in &program.functions {
            let facts = &function.facts;
            let regions = facts.regions[0] != facts.regions[1];
            self.add("functions with two alias regions", usize::from(regions));
            self.add("functions for tail calls", usize::from(function.shape.tail));
            let on_the_stack = function.shape.extras.len() > 2;
            self.add("functions with parameters on the stack", usize::from(on_the_stack));
            for statement in &function.statements {
                match statement {
                    Statement::Call { call, entries, .. } => {
                        self.add("calls with stack maps", usize::from(*entries > 0));
                        self.add(
                            match call {
                                Callee::Direct(_) => "direct calls",
                                Callee::Handled(_) => "calls with handlers",
                                Callee::Indirect(_) | Callee::Symbol(_) => "calls by address",
                                Callee::Slot(_) => "calls through tables",
                            },
                            1,
                        );
                    }
                    Statement::Compare(addresses) => {
                        let is_data = |address: &Address| matches!(address, Address::Data(_));
                        self.add(
                            match addresses.iter().any(is_data) {
                                true => "comparisons of addresses of data",
                                false => "comparisons of addresses",
                            },
                            1,
                        );
                    }
                    Statement::Misaligned(_) => self.add("alignments that are observed", 1),
                    Statement::Number { place, .. } | Statement::Through(place) => {
                        self.add("uses of data objects", 1);
                        self.add("references into data objects", usize::from(place.base > 0));
                    }
                    Statement::Reload { .. }
                    | Statement::Vector { .. }
                    | Statement::Guarded { .. } => self.add("uses of memory", 1),
                    Statement::Constant(..)
                    | Statement::Float(_)
                    | Statement::Mix { .. }
                    | Statement::Extra(_)
                    | Statement::Slot { .. }
                    | Statement::Switch(_) => {}
                }
            }
            self.add("tail calls", usize::from(matches!(function.end, End::Tail(..))));
            self.add("functions defined by bytes", usize::from(function.bytes));
        }
        self.add("modules of an unknown kind", usize::from(program.any_back_end));
        let forgets = program.flushes.len() > 1 && !program.options.remember;
        self.add("several flushes without a merge cache", usize::from(forgets));
        self.add("last flushes at the end", usize::from(program.finishes));
        self.add("references to functions of earlier flushes", program.later);
        for part in &program.interposed {
            self.add(
                match part {
                    Part::Function(_) => "interposed functions",
                    Part::Data(_) => "interposed data objects",
                },
                1,
            );
        }
        let aliasing = program.calls.iter().filter(|call| match call.pointers {
            [Some(a), Some(b)] => (a - b).abs() < 16,
            _ => false,
        });
        self.add("calls from outside with pointers that alias", aliasing.count());
    }

    /// Panics unless each of these occurred.
    pub fn assert_occurred(&self, what: &[&str]) {
        for what in what {
            assert!(self.get(what) > 0, "never: {what}\n{self}");
        }
    }

    /// Counts the dispositions of a program in a module.
    pub fn add_module<M: Module>(
        &mut self,
        program: &Program,
        module: &MergingModule<M>,
        ids: &Ids,
    ) {
        self.add_program(program);
        let stats = module.stats();
        self.add("parameterised or private bodies", stats.new_bodies);
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
        // The statements, but for constants and references, of the functions that each body takes
        // the place of.
        let mut outlines: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
        for (function, known) in flush_of.iter().enumerate() {
            let Some((id, flush)) = *known else {
                continue;
            };
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
            self.add(word(disposition.name()), 1);
            self.add("merged into an earlier flush", usize::from(over_flushes));
            let is_thunk = matches!(disposition, Disposition::Thunk { .. });
            self.add("thunks to an earlier flush", usize::from(over_flushes && is_thunk));
            self.add("merged with extra arguments", usize::from(passes));
            if let Some(to) = disposition.representative().filter(|_| passes) {
                let outline = program.functions[function].outline();
                outlines.entry(to.as_u32()).or_default().insert(outline);
            }
            match reason {
                Reason::AddressTaken => self.add("kept or a thunk because its address is taken", 1),
                Reason::Preemptible => self.add("a thunk because it is preemptible", 1),
                Reason::ExternallyCalled => self.add("a thunk because it is externally called", 1),
                _ => {}
            }
        }
        let aligned = outlines.values().filter(|outlines| outlines.len() > 1);
        self.add(ALIGNED, aligned.count());
    }
}

/// The plural of the name of a disposition.
pub fn word(disposition: &str) -> &'static str {
    match disposition {
        "redirect" => "redirected",
        "alias" => "aliases",
        "thunk" => "thunks",
        _ => "kept",
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
