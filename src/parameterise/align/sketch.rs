//! Which functions are worth aligning: those with like blocks and many equal pairs of opcodes.
//!
//! Of each function a digest of its signature and of its blocks, in any order, is made, and a
//! MinHash sketch of its opcodes, two at a time: the part of the hashes that two sketches share is
//! an estimate of the part of such pairs that the functions share (Jaccard). Only functions with
//! equal digests are paired, and of many only those that share a band of the sketch. An error costs
//! bytes or time, never correctness.
//!
//! Sources: A. Broder, *On the resemblance and containment of documents* (1997); P. Li, A. Owen, C.
//! Zhang, *One Permutation Hashing* (NIPS 2012), and A. Shrivastava, P. Li, *Densifying One
//! Permutation Hashing* (ICML 2014), for one hash of each pair of opcodes; R. Rocha et al., *HyFM:
//! Function Merging for Free* (LCTES 2021) and S. Stirling et al., *F3M: Fast Focused Function
//! Merging* (CGO 2022) for functions.

use super::cost::Effort;
use crate::canon::Counts;
use crate::lists::Lists;
use alloc::vec::Vec;
use core::cmp::Reverse;
use cranelift_codegen::ir::{Function, InstructionData, types};

/// The hashes of a sketch.
const HASHES: usize = 32;

/// How many hashes make a band.
const BAND: usize = 4;

/// The sketch of a function, by which functions that resemble it are found.
#[derive(Clone, Debug)]
pub(crate) struct Sketch {
    /// A digest of the parts outside of blocks, and of the kinds of blocks.
    graph: u64,
    hashes: [u32; HASHES],
    instructions: u32,
}

impl Sketch {
    /// The sketch of a function with these counts, whether the verifier accepts it or not. `None`
    /// if it is not aligned. Linear in its size.
    pub fn of(func: &Function, counts: Counts) -> Option<Sketch> {
        if !func.dynamic_stack_slots.is_empty() {
            return None;
        }
        let graph = u64::from(counts.digest);
        let mut sketch = Sketch { graph, hashes: [u32::MAX; HASHES], instructions: 0 };
        for block in func.layout.blocks() {
            let (mut before, mut ways) = (0, 0);
            for inst in func.layout.block_insts(block) {
                let data = &func.dfg.insts[inst];
                if let InstructionData::BranchTable { opcode: _, arg: _, table } = *data {
                    let table = func.dfg.jump_tables.get(table);
                    ways = table.map_or(0, |table| table.all_branches().len());
                }
                let result = func.dfg.inst_results(inst).first();
                let ty = result.map_or(types::INVALID, |&result| func.dfg.value_type(result));
                let own = (data.opcode() as u32) << 16 | u32::from(ty.index() as u16);
                sketch.add(before, own);
                before = own;
                sketch.instructions += 1;
            }
            // Blocks in any order: how they follow each other is known of outlines.
            let params = func.dfg.block_params(block).len();
            let form = (ways as u64) << 48 | (params as u64) << 32 | u64::from(before);
            sketch.graph = sketch.graph.wrapping_add(mixed(form));
        }
        sketch.fill();
        Some(sketch)
    }

    /// Gives each bin that nothing fell into the hash of the next one that has one, made different
    /// by the distance.
    fn fill(&mut self) {
        let own = self.hashes;
        for (at, hash) in self.hashes.iter_mut().enumerate() {
            let mut next =
                (0..HASHES).map(|distance| (distance as u32, own[(at + distance) % HASHES]));
            let filled = next.find(|&(_, hash)| hash != u32::MAX);
            if let Some((distance, other)) = filled {
                *hash = other.wrapping_add(distance.wrapping_mul(0x85eb_ca6b));
            }
        }
    }

    /// Adds an instruction behind another one, by opcode and type.
    fn add(&mut self, before: u32, own: u32) {
        let mixed = mixed(u64::from(before) << 32 | u64::from(own));
        let bin = &mut self.hashes[(mixed >> 59) as usize];
        *bin = (mixed as u32).min(*bin);
    }

    /// Hashes of the bands, each with that of the graph.
    fn bands(&self) -> impl Iterator<Item = u64> {
        let (bands, _) = self.hashes.as_chunks::<BAND>();
        (0..).zip(bands).map(|(band, hashes)| {
            hashes.iter().fold(self.graph ^ band, |all, &hash| {
                let mixed = (all ^ u64::from(hash)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                mixed ^ mixed >> 32
            })
        })
    }

    /// A digest in which functions agree that may resemble each other.
    pub fn graph(&self) -> u64 {
        self.graph
    }

    /// Whether functions that are kept apart are compared with each other by what follows
    /// ([`pairs`]), if few others resemble them more.
    pub(in crate::parameterise) fn resembles(&self, other: &Sketch, effort: Effort) -> bool {
        effort.hashes * self.shared(other) >= HASHES
    }

    /// How many of the hashes agree.
    fn shared(&self, other: &Sketch) -> usize {
        if self.graph != other.graph {
            return 0;
        }
        self.hashes.iter().zip(&other.hashes).filter(|(a, b)| a == b).count()
    }
}

/// Enough to spread pairs of opcodes evenly (D. Knuth's multiplicative hashing, with the bits
/// folded).
fn mixed(value: u64) -> u64 {
    let mixed = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Two functions, by number, and how many hashes of their sketches agree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub functions: [u32; 2],
    pub shared: usize,
}

/// Pairs of functions that are worth aligning, those first that have most instructions in common,
/// by their sketches. For each function the few that are most similar to it are considered.
pub(super) fn pairs(sketches: &[Option<&Sketch>], effort: Effort) -> Vec<Pair> {
    let sketch = |at: u32| sketches[at as usize].expect("has a band");
    let mut bands: Vec<(u64, u32)> = Vec::new();
    for (at, of) in (0..).zip(sketches) {
        bands.extend(of.iter().flat_map(|sketch| sketch.bands()).map(|band| (band, at)));
    }
    bands.sort_unstable();
    let places = Lists::of_pairs(sketches.len(), || {
        bands.iter().zip(0u32..).map(|(&(_, function), place)| (function as usize, place))
    });
    let mut pairs: Vec<Pair> = Vec::new();
    // The last function that each was compared with.
    let mut compared: Vec<u32> = alloc::vec![u32::MAX; sketches.len()];
    let mut partners: Vec<Pair> = Vec::new();
    for at in 0..sketches.len() as u32 {
        partners.clear();
        for &place in places.of(at as usize) {
            let place = place as usize;
            let band = bands[place].0;
            let before = bands[..place].iter().rev().take(effort.near);
            let behind = bands[place + 1..].iter().take(effort.near);
            let near = before
                .take_while(|&&(other, _)| other == band)
                .chain(behind.take_while(|&&(other, _)| other == band));
            for &(_, other) in near {
                if core::mem::replace(&mut compared[other as usize], at) == at {
                    continue;
                }
                let shared = sketch(at).shared(sketch(other));
                if sketch(at).resembles(sketch(other), effort) {
                    partners.push(Pair { functions: [at.min(other), at.max(other)], shared });
                }
            }
        }
        partners.sort_unstable_by_key(|pair| (Reverse(pair.shared), pair.functions));
        pairs.extend(partners.iter().take(effort.partners));
    }
    let common = |pair: &Pair| {
        let smaller = pair.functions.map(|at| sketch(at).instructions).into_iter().min();
        pair.shared as u64 * u64::from(smaller.unwrap_or(0))
    };
    pairs.sort_unstable_by_key(|pair| (Reverse(common(pair)), pair.functions));
    pairs.dedup();
    pairs
}
