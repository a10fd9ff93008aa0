//! Shortest paths, with several types of lengths, and connected components, with several edge
//! filters.

use crate::random::{Rng, mix};
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

trait Length: Copy + Ord {
    const FAR: Self;
    const ZERO: Self;
    fn of(n: u32) -> Self;
    fn plus(self, other: Self) -> Self;
    fn digest(self) -> u64;
}

macro_rules! lengths {
    ($($ty:ty),*) => {$(
        impl Length for $ty {
            const FAR: $ty = <$ty>::MAX;
            const ZERO: $ty = 0;
            fn of(n: u32) -> $ty {
                n as $ty
            }
            fn plus(self, other: $ty) -> $ty {
                self.saturating_add(other)
            }
            fn digest(self) -> u64 {
                self as u64
            }
        }
    )*};
}

lengths!(u16, u32, i64);

struct Graph<L> {
    edges: Vec<Vec<(u32, L)>>,
}

impl<L: Length> Graph<L> {
    fn random(nodes: u32, rng: &mut Rng) -> Self {
        let mut edges: Vec<Vec<(u32, L)>> = vec![Vec::new(); nodes as usize];
        for from in &mut edges {
            for _ in 0..4 {
                from.push((rng.below(nodes), L::of(1 + rng.below(90))));
            }
        }
        Graph { edges }
    }

    fn shortest(&self, start: u32) -> Vec<L> {
        let mut best = vec![L::FAR; self.edges.len()];
        let mut next = BinaryHeap::new();
        best[start as usize] = L::ZERO;
        next.push(Reverse((L::ZERO, start)));
        while let Some(Reverse((length, node))) = next.pop() {
            if length > best[node as usize] {
                continue;
            }
            for &(to, edge) in &self.edges[node as usize] {
                let through = length.plus(edge);
                if through < best[to as usize] {
                    best[to as usize] = through;
                    next.push(Reverse((through, to)));
                }
            }
        }
        best
    }

    /// The number of nodes that are reached on edges that `take` accepts.
    fn reach(&self, start: u32, take: impl Fn(L) -> bool) -> u32 {
        let mut seen = vec![false; self.edges.len()];
        let mut queue = VecDeque::from([start]);
        let mut count = 0;
        while let Some(node) = queue.pop_front() {
            if core::mem::replace(&mut seen[node as usize], true) {
                continue;
            }
            count += 1;
            let edges = self.edges[node as usize].iter();
            queue.extend(edges.filter(|(_, edge)| take(*edge)).map(|(to, _)| *to));
        }
        count
    }
}

fn exercise<L: Length>(nodes: u32, seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let graph = Graph::<L>::random(nodes, &mut rng);
    let lengths = graph.shortest(rng.below(nodes));
    let mut sum = lengths.iter().fold(0, |sum, length| mix(sum, length.digest()));
    sum = mix(sum, u64::from(graph.reach(0, |edge| edge > L::of(20))));
    sum = mix(sum, u64::from(graph.reach(0, |edge| edge > L::of(60))));
    mix(sum, u64::from(graph.reach(0, |edge| edge < L::of(35))))
}

pub fn run(n: u32) -> u64 {
    let mut sum = 0;
    for round in 0..n {
        let seed = u64::from(round);
        sum = mix(sum, exercise::<u16>(200, seed));
        sum = mix(sum, exercise::<u32>(200, seed));
        sum = mix(sum, exercise::<i64>(200, seed));
    }
    sum
}
