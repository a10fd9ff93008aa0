//! Which functions the second identical pass can merge.
//!
//! Merging with parameters changes the functions that call a parameterised body now, and makes these bodies. Only they
//! can have become equal to another function, and two others whose encodings were equal but for what they refer to. Of
//! these, as few as possible are walked: most were walked when their callees were merged already, and others cannot be
//! equal to any because no other function has their signature and as many blocks. Then the ones remain that share a
//! hash of their shapes and constants with another function.
//!
//! It decides nothing: an error of this module costs a merge, never correctness.

use super::{Found, context};
use crate::apply::{Redirecting, not_redirected};
use crate::canon::{self, Encoding, Scratch};
use crate::congruence::Encodings;
use crate::options::{Options, Prebucket};
use crate::plan::{Disposition, Plan};
use crate::unit::{Bodies, FunctionIndex, NoUnit};
use alloc::vec::Vec;
use cranelift_codegen::ir::Function;
use cranelift_entity::{EntityRef, SecondaryMap};
use hashbrown::{HashMap, HashSet};
use rustc_hash::FxBuildHasher;

/// What a walk tells of a function as a plan leaves it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content {
    /// Of its shape and its constants.
    hash: u32,
    instructions: u32,
    blocks: u32,
}

impl Content {
    /// The content of a function that was just walked.
    pub fn of(scratch: &Scratch, encoding: &Encoding) -> Content {
        let hash = canon::hashes(encoding).0.content;
        Content { hash, instructions: encoding.instructions(), blocks: scratch.blocks() }
    }
}

/// Functions that were walked during a search, as they were then.
#[derive(Default)]
pub(super) struct Contents {
    /// Also, how many functions and bodies the plan had.
    walked: SecondaryMap<FunctionIndex, Option<(Content, usize)>>,
}

impl Contents {
    /// Records what a walk found.
    pub fn insert(&mut self, function: FunctionIndex, content: Content, plan: &Plan) {
        self.walked[function] = Some((content, plan.entries().len()));
    }

    /// The content of a function, if it has not changed since. `last` is the last parameterised body that it calls.
    fn get(&self, function: FunctionIndex, last: FunctionIndex) -> Option<Content> {
        let (content, len) = self.walked.get(function).copied().flatten()?;
        (last.index() < len).then_some(content)
    }
}

/// The input of [`candidates`] besides the plan.
pub(super) struct Input<'a> {
    pub options: &'a Options<'a>,
    pub found: &'a Found,
    /// The encodings of the functions before similar ones were merged.
    pub encodings: &'a Encodings,
}

/// The functions that may have become equal to another one, each with a hash that equal functions share, in the order
/// of the plan. Linear in the number of functions and references, and in the sizes of the functions that are walked.
pub(super) fn candidates(
    input: &Input<'_>,
    plan: &Plan,
    bodies: &mut dyn Bodies,
) -> Vec<(FunctionIndex, u32)> {
    let Input { options, found, encodings } = input;
    let walks_all = options.walks() == Prebucket::WalkAll;
    let is_body = |function| plan.parameterised_body(function).is_some();
    // The last parameterised body that a function calls.
    let mut last: SecondaryMap<FunctionIndex, Option<FunctionIndex>> = SecondaryMap::new();
    for &(function, callee) in found.uses.references() {
        let to = plan.entry(callee).disposition().representative();
        if let Some(to) = to.filter(|&to| is_body(to)) {
            last[function] = last[function].max(Some(to));
        }
    }
    let kept = plan.entries().filter(|&(function, entry)| {
        entry.disposition() == Disposition::Keep && !plan.is_cached(function)
    });
    let kept: Vec<FunctionIndex> = kept.map(|(function, _)| function).collect();
    let mut walk =
        Walk { plan, options, scratch: Scratch::default(), encoding: Encoding::default() };

    let mut content: SecondaryMap<FunctionIndex, Option<Content>> = SecondaryMap::new();
    let mut outlines: SecondaryMap<FunctionIndex, u64> = SecondaryMap::new();
    let mut count: HashMap<u64, usize, FxBuildHasher> = HashMap::default();
    for &function in &kept {
        if is_body(function) {
            content[function] = walk.content(function, bodies);
        }
        let (body, key) = (walk.body(function, bodies), plan.entry(function).attributes().key);
        let blocks = content[function].map_or(body.dfg.num_blocks(), |known| known.blocks as usize);
        outlines[function] = canon::outline(body, key, blocks);
        *count.entry(outlines[function]).or_default() += 1;
    }
    for &function in &kept {
        if let Some(last) = last[function].filter(|_| !is_body(function)) {
            let possible = walks_all || count[&outlines[function]] > 1;
            content[function] = found
                .contents
                .get(function, last)
                .or_else(|| possible.then(|| walk.content(function, bodies)).flatten());
        }
    }
    let mut hashes: HashSet<u32, FxBuildHasher> = HashSet::default();
    let mut sizes: HashSet<(u64, u32), FxBuildHasher> = HashSet::default();
    for (function, content) in content.iter() {
        if let Some(Content { hash, instructions, blocks: _ }) = content {
            hashes.insert(*hash);
            sizes.insert((outlines[function], *instructions));
        }
    }
    let mut result: Vec<(FunctionIndex, u32)> = Vec::new();
    for &function in &kept {
        let changed = is_body(function) || last[function].is_some();
        let own = plan.body_of(function).unwrap_or(function);
        let hash = match encodings.hashes(own) {
            _ if changed => content[function].map(|content| content.hash),
            Some(known) => {
                let compared = walks_all || encodings.has_equal(own);
                (compared || hashes.contains(&known.content)).then_some(known.content)
            }
            None => {
                let instructions = walk.body(function, bodies).dfg.num_insts() as u32;
                let possible = walks_all || sizes.contains(&(outlines[function], instructions));
                let walked = possible.then(|| walk.content(function, bodies)).flatten();
                walked.map(|content| content.hash)
            }
        };
        result.extend(hash.map(|hash| (function, hash)));
    }
    let mut count: HashMap<u32, usize, FxBuildHasher> = HashMap::default();
    for (_, hash) in &result {
        *count.entry(*hash).or_default() += 1;
    }
    result.retain(|(_, hash)| count[hash] > 1);
    result
}

struct Walk<'a> {
    plan: &'a Plan,
    options: &'a Options<'a>,
    scratch: Scratch,
    encoding: Encoding,
}

impl Walk<'_> {
    /// The body of a function, neither canonicalised nor rewritten.
    fn body<'b>(&'b self, function: FunctionIndex, bodies: &'b mut dyn Bodies) -> &'b Function {
        match self.plan.new_body(function) {
            Some(new) => new.body(),
            None => bodies.body(function),
        }
    }

    /// Walks a function as the plan leaves it.
    fn content(&mut self, function: FunctionIndex, bodies: &mut dyn Bodies) -> Option<Content> {
        let Walk { plan, options, scratch, encoding } = self;
        let body = not_redirected(plan, bodies, function, options);
        let symbols = Redirecting { plan, symbols: &NoUnit };
        let context = context(plan, function, &symbols, options);
        canon::encode(&body, &context, scratch, encoding).ok()?;
        Some(Content::of(scratch, encoding))
    }
}
