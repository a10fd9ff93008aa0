//! The order in which shapes are processed: from callees to callers.
//!
//! Where callees were merged, their callers differ in a constant where they differed in a callee.
//! Shapes are on levels: those of one level do not refer to each other, unless they are in one
//! cycle of the call graph, so they can be processed at the same time. Those of a cycle are
//! processed one after the other, as far as they refer to each other, and again when one that they
//! refer to, or that refers to them, has changed. It knows functions and shapes by number only.

use super::uses::Uses;
use crate::congruence::components;
use crate::lists::Lists;
use crate::unit::FunctionIndex;
use alloc::vec::Vec;
use cranelift_entity::SecondaryMap;

/// Direct calls among functions.
pub(super) struct Calls {
    functions: Vec<FunctionIndex>,
    /// The callees of each function, by number.
    callees: Lists<u32>,
}

/// The direct calls among the functions of all shapes, by numbers of functions in the order of the
/// shapes.
pub(super) fn calls(uses: &Uses, shapes: &[Vec<FunctionIndex>]) -> Calls {
    let functions: Vec<FunctionIndex> = shapes.iter().flatten().copied().collect();
    let mut number: SecondaryMap<FunctionIndex, Option<u32>> = SecondaryMap::new();
    for (at, &function) in (0..).zip(&functions) {
        number[function] = Some(at);
    }
    let callees = Lists::of_pairs(functions.len(), || {
        let among = |&(caller, callee): &(FunctionIndex, FunctionIndex)| {
            Some((number[caller]? as usize, number[callee]?))
        };
        uses.references().iter().filter_map(among)
    });
    let callees = distinct(&callees, |callee| functions[callee as usize].as_u32());
    Calls { functions, callees }
}

/// These lists, each in the order of the keys, which does not depend on the tables of functions,
/// and without what comes twice.
fn distinct(lists: &Lists<u32>, key: impl Fn(u32) -> u32) -> Lists<u32> {
    let mut result = Lists::new();
    let mut list: Vec<u32> = Vec::new();
    for own in lists.iter() {
        list.clear();
        list.extend_from_slice(own);
        list.sort_unstable_by_key(|&item| key(item));
        list.dedup();
        result.push(list.iter().copied());
    }
    result
}

/// The number of the cycle of the call graph that each function is in, if it is in one.
pub(super) fn cycles(calls: &Calls) -> SecondaryMap<FunctionIndex, Option<u32>> {
    let Calls { functions, callees } = calls;
    let mut cycles = SecondaryMap::new();
    let components = components(functions.len(), |at| callees.of(at).iter().copied());
    for (cycle, component) in (0..).zip(components.iter()) {
        if component.len() > 1 {
            for &at in component {
                cycles[functions[at as usize]] = Some(cycle);
            }
        }
    }
    cycles
}

/// Shapes that refer only to shapes of levels before, by number.
#[derive(Default)]
pub(super) struct Level {
    /// Shapes that refer to no other shape of this level.
    pub shapes: Vec<u32>,
    /// Shapes that refer to each other, directly or not.
    pub cycles: Vec<Cycle>,
}

/// Shapes that refer to each other, directly or not, and which of them are to be processed.
pub(super) struct Cycle {
    /// By number, ascending.
    shapes: Vec<u32>,
    /// For each, which of them it refers to, or refer to it, as indices into `shapes`.
    neighbours: Lists<u32>,
    /// Whether each is to be processed.
    open: Vec<bool>,
}

impl Cycle {
    fn new(mut shapes: Vec<u32>, edges: &Lists<u32>) -> Cycle {
        shapes.sort_unstable();
        let among = |from: usize| {
            let targets = edges.of(shapes[from] as usize).iter();
            let targets = targets.filter_map(|to| Some(shapes.binary_search(to).ok()? as u32));
            targets.flat_map(move |to| [(from, to), (to as usize, from as u32)])
        };
        let neighbours = Lists::of_pairs(shapes.len(), || (0..shapes.len()).flat_map(among));
        Cycle { open: alloc::vec![true; shapes.len()], shapes, neighbours }
    }

    /// The shapes that are to be processed, in steps: the result is that of one shape after the
    /// other in the order of their numbers, but those of one step do not refer to each other. Each
    /// shape is in one step at most.
    pub fn steps(&self) -> Vec<Vec<u32>> {
        let mut steps: Vec<Vec<u32>> = Vec::new();
        let mut step_of: Vec<Option<usize>> = alloc::vec![None; self.shapes.len()];
        for (at, &shape) in self.shapes.iter().enumerate() {
            if !self.open[at] {
                continue;
            }
            // Those behind it have none yet.
            let before = self.neighbours.of(at).iter().filter_map(|&other| step_of[other as usize]);
            let step = before.max().map_or(0, |step| step + 1);
            step_of[at] = Some(step);
            if steps.len() <= step {
                steps.resize_with(step + 1, Vec::new);
            }
            steps[step].push(shape);
        }
        steps
    }

    /// Notes that the shapes of a step are being processed.
    pub fn begin(&mut self, step: &[u32]) {
        for &shape in step {
            let at = self.index(shape);
            self.open[at] = false;
        }
    }

    /// Notes that functions of a shape were merged: the shapes that it refers to, or that refer to
    /// it, are to be processed again.
    pub fn changed(&mut self, shape: u32) {
        for &other in self.neighbours.of(self.index(shape)) {
            self.open[other as usize] = true;
        }
    }

    fn index(&self, shape: u32) -> usize {
        self.shapes.binary_search(&shape).expect("a shape of the cycle")
    }
}

/// The levels of all shapes, by the strongly connected components of the call graph, callees first.
pub(super) fn levels(shapes: &[Vec<FunctionIndex>], calls: &Calls) -> Vec<Level> {
    let numbers = (0..).zip(shapes);
    let shape_of: Vec<u32> =
        numbers.flat_map(|(number, shape)| core::iter::repeat_n(number, shape.len())).collect();
    let edges = Lists::of_pairs(shapes.len(), || {
        let callers = shape_of.iter().zip(calls.callees.iter());
        callers.flat_map(|(&shape, callees)| {
            let shape_of = &shape_of;
            callees.iter().map(move |&callee| (shape as usize, shape_of[callee as usize]))
        })
    });
    let edges = distinct(&edges, |shape| shape);
    let mut levels: Vec<Level> = Vec::new();
    let mut level_of: Vec<Option<usize>> = alloc::vec![None; shapes.len()];
    for component in components(shapes.len(), |shape| edges.of(shape).iter().copied()).iter() {
        // Those of the component itself have none yet.
        let callees = component.iter().flat_map(|&shape| edges.of(shape as usize));
        let levels_of_callees = callees.filter_map(|&callee| level_of[callee as usize]);
        let level = levels_of_callees.max().map_or(0, |level| level + 1);
        for &shape in component {
            level_of[shape as usize] = Some(level);
        }
        if levels.len() <= level {
            levels.resize_with(level + 1, Level::default);
        }
        match component {
            [shape] => levels[level].shapes.push(*shape),
            _ => levels[level].cycles.push(Cycle::new(component.to_vec(), &edges)),
        }
    }
    for Level { shapes, cycles } in &mut levels {
        shapes.sort_unstable();
        cycles.sort_unstable_by_key(|cycle| cycle.shapes[0]);
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cycle of a few shapes with any references among them.
    fn cycle(u: &mut arbtest::arbitrary::Unstructured<'_>) -> arbtest::arbitrary::Result<Cycle> {
        let count = u.int_in_range(2..=8)?;
        let mut edges = Lists::new();
        for _ in 0..2 * count {
            let targets: Vec<u32> = (0..u.int_in_range(0..=3)?)
                .map(|_| u.int_in_range(0..=2 * count - 1))
                .collect::<Result<_, _>>()?;
            edges.push(targets);
        }
        Ok(Cycle::new((0..2 * count).step_by(2).collect(), &edges))
    }

    fn are_related(cycle: &Cycle, a: u32, b: u32) -> bool {
        cycle.neighbours.of(cycle.index(a)).contains(&(cycle.index(b) as u32))
    }

    /// Without that, two shapes that refer to each other would be processed at the same time, or a
    /// caller before the callee that comes before it.
    #[test]
    fn steps_keep_the_order_of_related_shapes() {
        arbtest::arbtest(|u| {
            let mut cycle = cycle(u)?;
            let closed: Vec<u32> = cycle.shapes.clone().into_iter().step_by(3).collect();
            cycle.begin(&closed);
            let steps = cycle.steps();
            let mut all: Vec<u32> = steps.iter().flatten().copied().collect();
            all.sort_unstable();
            let open = cycle.shapes.iter().filter(|shape| !closed.contains(shape));
            assert!(all.iter().eq(open), "each open shape once");
            let numbered = steps.iter().enumerate();
            let numbered =
                numbered.flat_map(|(at, step)| step.iter().map(move |&shape| (shape, at)));
            let step_of: Vec<(u32, usize)> = numbered.collect();
            for &(a, step) in &step_of {
                for &(b, other) in step_of.iter().filter(|&&(b, _)| a < b) {
                    assert!(!are_related(&cycle, a, b) || step < other, "{a} before {b}");
                }
            }
            Ok(())
        });
    }

    /// Without that, a shape whose callees were merged would not be compared again; or all would
    /// be, without end.
    #[test]
    fn shapes_that_are_related_to_a_change_are_processed_again() {
        arbtest::arbtest(|u| {
            let mut cycle = cycle(u)?;
            let shapes = cycle.shapes.clone();
            cycle.begin(&shapes);
            assert!(cycle.steps().is_empty());
            let changed = *u.choose(&shapes)?;
            cycle.changed(changed);
            let mut again = cycle.steps().concat();
            again.sort_unstable();
            let related = shapes.iter().filter(|&&shape| are_related(&cycle, changed, shape));
            assert!(again.iter().eq(related));
            Ok(())
        });
    }
}
