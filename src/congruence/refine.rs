//! Partition refinement: the coarsest partition in which equal functions refer to equal functions.
//!
//! Start from the optimistic partition, in which everything with equal encodings is equal, and
//! split a class whenever the i-th references of two of its members lie in different classes, until
//! nothing splits. The result is the *greatest* fixpoint: every set of merges that is consistent
//! with itself is inside it, so self recursion, mutual recursion and call chains of any depth need
//! no special case and no second run.
//!
//! This is minimisation of a finite automaton whose states are functions and whose i-th transition
//! is the i-th reference. The algorithm is Hopcroft's ("An n log n algorithm for minimizing states
//! in a finite automaton", 1971) with all letters of a splitter handled together: take a class,
//! collect the references that point into it, and split every class by the places from which it
//! refers there. When a class splits, only the smaller half need be examined a second time (unless
//! the class itself still waits), so each reference is examined O(log n) times: O(m log n) for m
//! references of functions that share their class with others.
//!
//! This module knows no IR. It decides nothing about merges, only about equality.

use crate::lists::Lists;
use crate::unit::Node;
use alloc::vec::Vec;
use cranelift_entity::EntityRef;

/// The references of some nodes, in their order.
pub(crate) type References = Lists<Node>;

/// A partition of `0..n`.
#[derive(Debug)]
pub(crate) struct Partition {
    /// The elements, each class in one piece.
    elements: Vec<u32>,
    /// Where each element is in `elements`.
    position: Vec<u32>,
    class_of: Vec<u32>,
    /// The range of each class in `elements`.
    ranges: Vec<(u32, u32)>,
}

impl Partition {
    /// The partition that groups elements with equal numbers in `class_of`. The numbers must be
    /// `0..classes`, each used.
    pub fn new(class_of: Vec<u32>, classes: usize) -> Self {
        let mut starts = alloc::vec![0u32; classes + 1];
        for &class in &class_of {
            starts[class as usize + 1] += 1;
        }
        for class in 0..classes {
            starts[class + 1] += starts[class];
        }
        let ranges: Vec<_> = starts.windows(2).map(|range| (range[0], range[1])).collect();
        let mut next = starts;
        let mut elements = alloc::vec![0; class_of.len()];
        let mut position = alloc::vec![0; class_of.len()];
        for (element, &class) in class_of.iter().enumerate() {
            let at = &mut next[class as usize];
            elements[*at as usize] = element as u32;
            position[element] = *at;
            *at += 1;
        }
        Partition { elements, position, class_of, ranges }
    }

    /// Adds this many elements, each alone in its class.
    pub fn push_singletons(&mut self, count: usize) {
        for _ in 0..count {
            let (element, class) = (self.class_of.len() as u32, self.ranges.len() as u32);
            self.elements.push(element);
            self.position.push(element);
            self.class_of.push(class);
            self.ranges.push((element, element + 1));
        }
    }

    /// The number of classes.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The elements of a class, in no particular order.
    pub fn members(&self, class: usize) -> &[u32] {
        let (start, end) = self.ranges[class];
        &self.elements[start as usize..end as usize]
    }

    /// The class of an element.
    pub fn class_of(&self, element: usize) -> usize {
        self.class_of[element] as usize
    }

    /// Moves `marked`, which are distinct members of `class` but not all of them, to a new class.
    fn split(&mut self, class: u32, marked: &[u32]) -> u32 {
        let (start, end) = self.ranges[class as usize];
        debug_assert!(!marked.is_empty() && marked.len() < (end - start) as usize);
        let mut boundary = end;
        for &element in marked {
            boundary -= 1;
            let at = self.position[element as usize];
            let other = self.elements[boundary as usize];
            self.elements.swap(at as usize, boundary as usize);
            self.position[other as usize] = at;
            self.position[element as usize] = boundary;
        }
        let new = self.ranges.len() as u32;
        self.ranges[class as usize] = (start, boundary);
        self.ranges.push((boundary, end));
        for &element in marked {
            self.class_of[element as usize] = new;
        }
        new
    }
}

/// Refines `partition` to the coarsest partition inside it in which all members of a class refer,
/// place by place, to the same classes.
///
/// `nodes` are the functions with references, in the order of the rows of `references`; they are
/// elements of `partition`. Elements that are not in `nodes` have no references and must be alone
/// in their classes, or equal to the other elements of their classes.
///
/// Members of one class of `partition` must have equally many references.
pub(crate) fn refine(partition: &mut Partition, nodes: &[Node], references: &References) {
    let incoming = incoming(partition, nodes, references);
    // A class to which nothing refers splits nothing.
    let mut is_waiting = alloc::vec![false; partition.len()];
    for (element, &class) in partition.class_of.iter().enumerate() {
        is_waiting[class as usize] |= !incoming.of(element).is_empty();
    }
    let all = 0..partition.len() as u32;
    let mut waiting: Vec<u32> = all.filter(|&class| is_waiting[class as usize]).collect();
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut marked: Vec<u32> = Vec::new();

    while let Some(splitter) = waiting.pop() {
        is_waiting[splitter as usize] = false;
        edges.clear();
        for &element in partition.members(splitter as usize) {
            edges.extend_from_slice(incoming.of(element as usize));
        }
        // All references into the splitter from the same place, and among them those of one class.
        edges.sort_unstable();
        let mut rest = &edges[..];
        while let Some(&(place, _)) = rest.first() {
            let (same_place, after) =
                rest.split_at(rest.partition_point(|&(other, _)| other == place));
            rest = after;
            let mut sources: Vec<(u32, u32)> = same_place
                .iter()
                .map(|&(_, source)| (partition.class_of[source as usize], source))
                .collect();
            sources.sort_unstable();
            let mut sources = &sources[..];
            while let Some(&(class, _)) = sources.first() {
                let (same_class, after) =
                    sources.split_at(sources.partition_point(|&(other, _)| other == class));
                sources = after;
                if same_class.len() == partition.members(class as usize).len() {
                    continue;
                }
                marked.clear();
                marked.extend(same_class.iter().map(|&(_, source)| source));
                let new = partition.split(class, &marked);
                // If the class still waits, both halves must; else the smaller one is enough.
                let old_len = partition.members(class as usize).len();
                let wait =
                    if is_waiting[class as usize] || marked.len() <= old_len { new } else { class };
                is_waiting.push(false);
                is_waiting[wait as usize] = true;
                waiting.push(wait);
            }
        }
    }
}

/// Incoming references of each element: (place, source). Only those from classes of two or more,
/// which can be split.
fn incoming(partition: &Partition, nodes: &[Node], references: &References) -> Lists<(u32, u32)> {
    let shared = |node: Node| partition.members(partition.class_of(node.index())).len() > 1;
    Lists::of_pairs(partition.class_of.len(), || {
        let rows = nodes.iter().zip(references.iter()).filter(|&(&node, _)| shared(node));
        rows.flat_map(|(&node, targets)| {
            let places = (0..).zip(targets);
            places.map(move |(place, target)| (target.index(), (place, node.as_u32())))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The greatest fixpoint by definition: drop pairs until nothing changes.
    fn naive(class_of: &[u32], references: &References) -> Vec<Vec<bool>> {
        let n = class_of.len();
        let mut equal: Vec<Vec<bool>> =
            (0..n).map(|a| (0..n).map(|b| class_of[a] == class_of[b]).collect()).collect();
        loop {
            let mut changed = false;
            for a in 0..n {
                for b in 0..n {
                    if equal[a][b] {
                        let still = references
                            .of(a)
                            .iter()
                            .zip(references.of(b))
                            .all(|(x, y)| equal[x.index()][y.index()]);
                        if !still {
                            equal[a][b] = false;
                            changed = true;
                        }
                    }
                }
            }
            if !changed {
                return equal;
            }
        }
    }

    #[test]
    fn classes_equal_the_naive_greatest_fixpoint() {
        arbtest::arbtest(|u| {
            // Enough that a class is split while it waits, into a large part and a small one.
            let n = u.int_in_range(1..=24usize)?;
            let arity: Vec<usize> =
                (0..5).map(|_| u.int_in_range(0..=2)).collect::<Result<_, _>>()?;
            let mut class_of: Vec<u32> =
                (0..n).map(|_| u.int_in_range(0..=4)).collect::<Result<_, _>>()?;
            let mut references = References::new();
            for &class in &class_of {
                let targets: Vec<_> = (0..arity[class as usize])
                    .map(|_| Ok(Node::from_u32(u.int_in_range(0..=n - 1)? as u32)))
                    .collect::<Result<_, arbitrary::Error>>()?;
                references.push(targets);
            }
            let expected = naive(&class_of, &references);
            // Dense numbers.
            let mut used: Vec<u32> = class_of.clone();
            used.sort_unstable();
            used.dedup();
            for class in &mut class_of {
                *class = used.binary_search(class).unwrap() as u32;
            }
            let mut partition = Partition::new(class_of, used.len());
            let nodes: Vec<_> = (0..n).map(|i| Node::from_u32(i as u32)).collect();
            refine(&mut partition, &nodes, &references);
            for (a, row) in expected.iter().enumerate() {
                for (b, &equal) in row.iter().enumerate() {
                    assert_eq!(equal, partition.class_of(a) == partition.class_of(b));
                }
            }
            Ok(())
        });
    }

    /// If a class is split while it waits, its larger part must still be processed: otherwise
    /// functions that refer to the larger parts of two classes would be considered equal.
    #[test]
    fn both_parts_of_a_class_that_waits_are_splitters() {
        // Leaves 0 and 1; two kinds of functions of which three call one leaf and one the other;
        // and two callers, one for each of these kinds.
        let kind_of = [0, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4];
        let target_of = [None, None, Some(0), Some(0), Some(0), Some(1)].into_iter().chain([
            Some(0),
            Some(0),
            Some(0),
            Some(1),
            Some(2),
            Some(6),
        ]);
        let mut references = References::new();
        target_of.for_each(|target| references.push(target.map(Node::from_u32)));
        for first in 0..5 {
            for step in 1..5 {
                let class_of = kind_of.map(|kind| (first + step * kind) % 5).to_vec();
                let mut partition = Partition::new(class_of, 5);
                let nodes: Vec<_> = (0..12).map(Node::from_u32).collect();
                refine(&mut partition, &nodes, &references);
                assert_ne!(partition.class_of(10), partition.class_of(11), "{first} {step}");
                assert_eq!(partition.class_of(2), partition.class_of(4), "{first} {step}");
                assert_ne!(partition.class_of(2), partition.class_of(5), "{first} {step}");
            }
        }
    }
}
