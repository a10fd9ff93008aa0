//! Sharing maps in memory: for embedders that compile all units of a program in one process.

use super::{Cell, FunctionSummary, SharedSet, SharedSets, UnitSummary, cell_hash, fixed_hash};
use crate::options::Policy;
use crate::parameterise::{Decision, GroupRow, decide};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The sets of functions that share bodies, by shape.
#[derive(Clone, Debug, Default)]
pub struct KnownSets(BTreeMap<[u8; 16], Vec<SharedSet>>);

impl KnownSets {
    /// What the functions of these units share by a policy. The result does not depend on the order of units.
    /// O(n log n) in the number of functions.
    pub fn of(summaries: &[UnitSummary], policy: Policy) -> KnownSets {
        let mut by_shape: BTreeMap<[u8; 16], Vec<(&FunctionSummary, &UnitSummary)>> = BTreeMap::new();
        for summary in summaries {
            for function in &summary.functions {
                by_shape.entry(function.shape).or_default().push((function, summary));
            }
        }
        let mut sets = BTreeMap::new();
        for (shape, mut functions) in by_shape {
            if functions.len() < 2 {
                continue;
            }
            functions.sort_by(|(f, a), (g, b)| (&a.unit, &f.symbol).cmp(&(&b.unit, &g.symbol)));
            let cells: Vec<Vec<(u64, Cell)>> = functions
                .iter()
                .map(|(function, summary)| {
                    let identity = |symbol: u32| &summary.symbols[symbol as usize];
                    function.cells.iter().map(|cell| (cell_hash(cell, &identity), *cell)).collect()
                })
                .collect();
            let rows: Vec<GroupRow<'_>> = functions
                .iter()
                .zip(&cells)
                .map(|((function, _), cells)| GroupRow {
                    bytes: function.bytes[0],
                    hot: function.hot,
                    cells,
                })
                .collect();
            let decided: Vec<SharedSet> = decide(&rows, policy)
                .into_iter()
                .map(|Decision { rows: members, parameters, saved }| {
                    let hashes: Vec<u64> =
                        cells[members[0] as usize].iter().map(|(hash, _)| *hash).collect();
                    let fixed = fixed_hash(&hashes, &parameters);
                    SharedSet { parameters, fixed, members: members.len() as u32, saved }
                })
                .collect();
            if !decided.is_empty() {
                sets.insert(shape, decided);
            }
        }
        KnownSets(sets)
    }
}

impl SharedSets for KnownSets {
    fn sets(&self, shape: &[u8; 16]) -> Vec<SharedSet> {
        self.0.get(shape).cloned().unwrap_or_default()
    }
}
