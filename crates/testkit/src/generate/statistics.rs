//! How often what occurred in generated units, to see whether a run tests what it is meant to test.

use crate::generate::expected::Relation;
use crate::generate::unit::{GeneratedUnit, Origin};
use cranelift_mergefunc::{Disposition, Plan, Reason};
use std::collections::BTreeMap;
use std::fmt;

/// Counts over units and their plans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Units.
    pub units: usize,
    /// Functions.
    pub functions: usize,
    /// Functions that can be run.
    pub runnable: usize,
    /// Functions with one change of meaning.
    pub near_misses: usize,
    /// Data objects.
    pub data_objects: usize,
    /// Pairs of functions that are known to be equal, to differ, and of which nothing is known.
    pub relations: [usize; 3],
    /// Instructions of functions that can be run, by opcode.
    pub opcodes: BTreeMap<String, usize>,
    /// Results of instructions of functions that can be run, by type.
    pub types: BTreeMap<String, usize>,
    /// Functions by calling convention.
    pub call_convs: BTreeMap<String, usize>,
    /// Functions and data objects by disposition.
    pub dispositions: BTreeMap<&'static str, usize>,
    /// Functions and data objects by reason.
    pub reasons: BTreeMap<Reason, usize>,
    /// Classes of functions by size.
    pub class_sizes: BTreeMap<usize, usize>,
}

impl Statistics {
    /// Counts a unit, and a plan for it.
    pub fn count(&mut self, generated: &GeneratedUnit, plan: &Plan) {
        let GeneratedUnit { unit, about, expected, profile: _ } = generated;
        self.units += 1;
        self.functions += unit.functions.len();
        self.data_objects += unit.data.len();
        for (at, (member, about)) in unit.functions.iter().zip(about).enumerate() {
            let call_conv = member.body.signature.call_conv.to_string();
            *self.call_convs.entry(call_conv).or_default() += 1;
            self.near_misses += usize::from(matches!(about.origin, Origin::NearMiss { .. }));
            for other in 0..at {
                self.relations[match expected.relation(at, other) {
                    Relation::Equal => 0,
                    Relation::Different => 1,
                    Relation::Unknown => 2,
                }] += 1;
            }
            if !about.runnable {
                continue;
            }
            self.runnable += 1;
            let func = &member.body;
            for inst in func.layout.blocks().flat_map(|block| func.layout.block_insts(block)) {
                let opcode = func.dfg.insts[inst].opcode().to_string();
                *self.opcodes.entry(opcode).or_default() += 1;
                for &result in func.dfg.inst_results(inst) {
                    let ty = func.dfg.value_type(result).to_string();
                    *self.types.entry(ty).or_default() += 1;
                }
            }
        }
        let mut classes: BTreeMap<u32, usize> = BTreeMap::new();
        for (_, entry) in plan.entries() {
            self.decision(entry.disposition(), entry.reason());
            *classes.entry(entry.class()).or_default() += 1;
        }
        for (_, entry) in plan.data_entries() {
            self.decision(entry.disposition(), entry.reason());
        }
        for size in classes.into_values() {
            *self.class_sizes.entry(size).or_default() += 1;
        }
    }

    fn decision<I>(&mut self, disposition: Disposition<I>, reason: Reason) {
        *self.dispositions.entry(disposition.name()).or_default() += 1;
        *self.reasons.entry(reason).or_default() += 1;
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Statistics {
            units,
            functions,
            runnable,
            near_misses,
            data_objects,
            relations: [equal, different, unknown],
            opcodes,
            types,
            call_convs,
            dispositions,
            reasons,
            class_sizes,
        } = self;
        writeln!(f, "{units} units, {functions} functions, {data_objects} data objects")?;
        writeln!(f, "{runnable} functions can be run, {near_misses} are near misses")?;
        writeln!(f, "pairs: {equal} equal, {different} different, {unknown} unknown")?;
        line(f, "dispositions", dispositions)?;
        line(f, "reasons", reasons)?;
        line(f, "class sizes", class_sizes)?;
        line(f, "calling conventions", call_convs)?;
        line(f, "types", types)?;
        line(f, "opcodes", opcodes)
    }
}

fn line<K: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    counts: &BTreeMap<K, usize>,
) -> fmt::Result {
    write!(f, "{what}:")?;
    for (key, count) in counts {
        write!(f, " {key} {count}")?;
    }
    writeln!(f)
}
