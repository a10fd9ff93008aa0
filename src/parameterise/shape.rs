//! The functions of one shape, and the tries with them.
//!
//! They are compared as the plan redirects their calls and, where callees went into different
//! bodies, with those calls as they are written (`as_written`); of the two, what saves more is
//! accepted, and the remaining rows are compared in the other way. This module judges nothing
//! itself, and knows no order among shapes (`levels`).

use super::judge::Judged;
use super::table::{Parameter, Set, Table};
use super::value::Symbols;
use super::{Memory, Search, Workbench, as_written, order, walk_redirected};
use crate::apply::KeptCalls;
use crate::plan::Disposition;
use crate::threads::for_each;
use crate::unit::{Bodies, FunctionIndex};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::ir::UserExternalName;

/// Functions that had one shape before their callees were merged, and what a walk finds.
struct Shape<'s> {
    /// Its position in the batch.
    number: usize,
    functions: &'s [FunctionIndex],
    /// The calls that are compared as they are written.
    written: Arc<KeptCalls>,
    /// Whether more of them could have one shape if some calls were as they are written.
    may_differ: bool,
    /// Those that have one shape now.
    tables: Vec<Table>,
    /// The sets of each table: rows, and what they differ in.
    sets: Vec<Vec<(Vec<u32>, Vec<Parameter>)>>,
    /// How many functions were walked.
    walks: usize,
    /// Functions of this shape that others of it refer to where they differ.
    addressed: Vec<UserExternalName>,
}

/// The ways to compare the functions of a shape: all calls as the plan redirects them, or some as
/// they are written.
const WAYS: usize = 2;

impl Search<'_, '_> {
    /// Merges functions of some shapes that do not refer to each other.
    pub(super) fn merge_shapes(&mut self, shapes: &[&[FunctionIndex]]) {
        let new = |(number, &functions)| Shape::new(number, functions, Arc::default());
        let mut redirected: Vec<Shape<'_>> = shapes.iter().enumerate().map(new).collect();
        self.find(&mut redirected);
        let passing = redirected.iter().filter(|shape| shape.may_differ);
        let passing = passing.map(|shape| new((shape.number, &shapes[shape.number])));
        let mut written = self.as_written(passing.collect());
        self.find(&mut written);
        let with_both: Vec<usize> = written.iter().map(|shape| shape.number).collect();
        let mut saved = alloc::vec![[0; WAYS]; shapes.len()];
        let mut judged: Vec<Judged<'_>> = Vec::new();
        let mut of: Vec<(usize, usize)> = Vec::new();
        for (way, shapes) in [&mut redirected, &mut written].into_iter().enumerate() {
            for shape in shapes {
                let number = shape.number;
                judged.extend(shape.judged());
                of.resize(judged.len(), (number, way));
            }
        }
        self.judge(&mut judged);
        for (&(shape, way), judged) in of.iter().zip(&judged) {
            saved[shape][way] += judged.saved();
        }
        let best = |shape: usize| usize::from(saved[shape][1] > saved[shape][0]);
        // The sets are accepted only now: some may call others, and the places of constants were
        // found in the functions as they were.
        for ((shape, way), judged) in of.into_iter().zip(judged) {
            if way == best(shape) {
                self.accept(judged);
            }
        }
        let left = with_both.into_iter().map(|shape| new((shape, &shapes[shape])));
        let (redirected, written): (Vec<_>, Vec<_>) =
            left.partition(|shape| best(shape.number) == 1);
        let mut left = self.as_written(written);
        left.extend(redirected);
        left.sort_unstable_by_key(|shape| shape.number);
        self.find(&mut left);
        let mut judged: Vec<Judged<'_>> =
            left.iter_mut().flat_map(|shape| shape.judged()).collect();
        self.judge(&mut judged);
        for judged in judged {
            self.accept(judged);
        }
    }

    /// Those of which calls have to stay as they are written for more functions to have one shape.
    fn as_written<'s>(&mut self, mut shapes: Vec<Shape<'s>>) -> Vec<Shape<'s>> {
        shapes.retain(|shape| {
            let kept = shape.functions.iter().filter(|&&function| self.is_kept(function));
            kept.count() > 1
        });
        let Search { workbench, earlier, pool, .. } = self;
        let Workbench { plan, bodies, options, merged, merged_into, .. } = &mut **workbench;
        let symbols = Symbols { plan, earlier: *earlier, options, written: merged };
        for_each(*bodies, pool, &mut shapes, |bodies, memory, shape| {
            let tables = shape.walk(&symbols, bodies, memory, &mut |_| {});
            let mut written = KeptCalls::default();
            for table in &tables {
                as_written::differing(table, plan, merged, merged_into, &mut written);
            }
            shape.written = Arc::new(written);
        });
        shapes.retain(|shape| !shape.written.is_empty());
        shapes
    }

    /// Walks the functions of some shapes, and finds the sets.
    fn find(&mut self, shapes: &mut [Shape<'_>]) {
        let Search { workbench, earlier, pool, .. } = self;
        let Workbench { plan, bodies, options, .. } = &mut **workbench;
        for_each(*bodies, pool, shapes, |bodies, memory, shape| {
            let written = shape.written.clone();
            let symbols = Symbols { plan, earlier: *earlier, options, written: &written };
            shape.find(&symbols, bodies, memory);
        });
        for shape in shapes {
            self.workbench.plan.stats_mut().similar.walks += shape.walks;
            // Arguments may name functions of this shape whose disposition is still open, so mark
            // their addresses taken.
            for symbol in shape.addressed.drain(..) {
                self.workbench.uses.add_address(self.workbench.plan, &symbol);
            }
        }
    }
}

impl<'s> Shape<'s> {
    fn new(number: usize, functions: &'s [FunctionIndex], written: Arc<KeptCalls>) -> Shape<'s> {
        let (may_differ, tables, sets, walks, addressed) = Default::default();
        Shape { number, functions, written, may_differ, tables, sets, walks, addressed }
    }

    /// Walks the functions, and finds the sets of those that differ only where parameters can
    /// stand.
    fn find(&mut self, symbols: &Symbols<'_>, bodies: &mut dyn Bodies, memory: &mut Memory) {
        let plan = symbols.plan;
        let (mut passes, mut walks) = (false, 0);
        self.tables = self.walk(symbols, bodies, memory, &mut |walked| {
            passes |= !walked.scratch.arguments.is_empty();
            walks += 1;
        });
        self.may_differ = passes && as_written::may_differ(&self.tables);
        self.walks = walks;
        for table in &self.tables {
            let sets: Vec<Set<'_>> = Set::of(table).collect();
            let named = sets.iter().flat_map(Set::symbols).filter(|symbol| {
                let key = (symbol.namespace, symbol.index);
                let own = |&function: &FunctionIndex| order(plan, function);
                self.functions.binary_search_by_key(&key, own).is_ok()
            });
            self.addressed.extend(named.cloned());
            let set = |Set { table: _, rows, parameters }| (rows, parameters);
            self.sets.push(sets.into_iter().map(set).collect());
        }
    }

    /// Walks the functions that are kept. Returns tables of those that have one shape, and calls
    /// `walked` after each walk.
    fn walk(
        &self,
        symbols: &Symbols<'_>,
        bodies: &mut dyn Bodies,
        memory: &mut Memory,
        walked: &mut dyn FnMut(&Memory),
    ) -> Vec<Table> {
        let plan = symbols.plan;
        let mut tables: Vec<Table> = Vec::new();
        let mut number: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for &function in self.functions {
            if plan.entry(function).disposition() != Disposition::Keep {
                continue;
            }
            let Memory { scratch, encoding, sizes: _ } = &mut *memory;
            let Some(body) = walk_redirected(symbols, bodies, function, scratch, encoding) else {
                continue;
            };
            let table = match number.get(&encoding.shape) {
                Some(&table) => &mut tables[table],
                None => {
                    number.insert(encoding.shape.clone(), tables.len());
                    tables.push(Table::new(&self.written));
                    tables.last_mut().expect("just pushed")
                }
            };
            table.push(function, body, scratch, encoding, symbols);
            walked(memory);
        }
        tables
    }

    /// The sets that were found, to be judged.
    fn judged(&mut self) -> impl Iterator<Item = Judged<'_>> {
        let sets = self.tables.iter().zip(core::mem::take(&mut self.sets));
        sets.flat_map(|(table, sets)| {
            let set = |(rows, parameters)| Judged::new(Set { table, rows, parameters });
            sets.into_iter().map(set)
        })
    }
}
