//! Which functions the second identical pass can merge.
//!
//! Merging with parameters changes the functions that call a parameterised body now, and makes these bodies. Only they
//! can have become equal to another function, and two others whose encodings were equal but for what they refer to. Of
//! these, as few as possible are walked: many were walked when their callees were merged already; no other function has
//! the signature and as many blocks as some; and functions of different shapes that call parameterised bodies can only
//! be equal if one of these bodies equals something. Then the ones remain that share a hash of their shapes and
//! constants with another function.
//!
//! It decides nothing: an error of this module costs a merge, never correctness.

use super::{Found, context};
use crate::apply::{Redirecting, Written, not_redirected};
use crate::canon::{self, Encoding, Scratch};
use crate::congruence::Encodings;
use crate::options::{Options, Prebucket};
use crate::plan::{Disposition, Plan};
use crate::threads::{Pool, for_each};
use crate::unit::{Bodies, FunctionIndex, NoUnit};
use alloc::vec::Vec;
use cranelift_entity::SecondaryMap;
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
    walked: HashMap<FunctionIndex, (Content, u32), FxBuildHasher>,
}

impl Contents {
    /// Records what a walk found.
    pub fn insert(&mut self, function: FunctionIndex, content: Content, plan: &Plan) {
        self.walked.insert(function, (content, plan.entries().len() as u32));
    }

    /// The content of a function, if it has not changed since. `last` is the last parameterised body that it calls.
    fn get(&self, function: FunctionIndex, last: FunctionIndex) -> Option<Content> {
        let (content, len) = *self.walked.get(&function)?;
        (last.as_u32() < len).then_some(content)
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
    let last = last_bodies(plan, found);
    // A private copy is emitted as it is: under its symbol there is no thunk.
    let is_private_copy =
        |function| plan.new_body(function).is_some_and(|new| new.copy_of().is_some());
    let kept = plan.entries().filter(|&(function, entry)| {
        let is_kept = entry.disposition() == Disposition::Keep && !plan.is_cached(function);
        is_kept && !is_private_copy(function)
    });
    let kept: Vec<FunctionIndex> = kept.map(|(function, _)| function).collect();
    let mut walk = Walk { plan, options, pool: Pool::default(), hashes: SecondaryMap::new() };

    let parameterised: Vec<FunctionIndex> =
        kept.iter().copied().filter(|&function| is_body(function)).collect();
    let of_bodies = walk.contents(&parameterised, bodies);
    let outlines = walk.outlines(&kept, &of_bodies, bodies);
    let of_bodies = Outlines::of(&of_bodies, &outlines);
    let mut unknown: Vec<FunctionIndex> = Vec::new();
    for &function in kept.iter().filter(|&&function| !is_body(function)) {
        let own = plan.body_of(function).unwrap_or(function);
        let known = match last.get(&function) {
            Some(&last) => found.contents.get(function, last).map(|content| content.hash),
            None => encodings.hashes(own).map(|hashes| hashes.content),
        };
        walk.hashes[function] = known;
        if known.is_none()
            && (walks_all || of_bodies.has(outlines[function], last.contains_key(&function)))
        {
            unknown.push(function);
        }
    }
    walk.contents(&unknown, bodies);
    // Functions that call parameterised bodies and had different shapes can only be equal if a body equals something.
    let shared = walk.shared(&kept);
    let is_shared = |hash: Option<u32>| hash.is_some_and(|hash| shared.contains(&hash));
    if kept.iter().any(|&function| is_body(function) && is_shared(walk.hashes[function])) {
        let mut count: HashMap<u32, u32, FxBuildHasher> = HashMap::default();
        for &function in &kept {
            *count.entry(outlines[function].digest).or_default() += 1;
        }
        let mut of_changed: Vec<(FunctionIndex, Content)> = Vec::new();
        let mut unknown: Vec<FunctionIndex> = Vec::new();
        for &function in kept.iter().filter(|&&function| !is_body(function)) {
            let Some(&last) = last.get(&function) else {
                continue;
            };
            let alone = count[&outlines[function].digest] == 1;
            match found.contents.get(function, last) {
                Some(content) => of_changed.push((function, content)),
                None if alone || walk.hashes[function].is_some() => {}
                None => unknown.push(function),
            }
        }
        of_changed.extend(walk.contents(&unknown, bodies));
        let of_changed = Outlines::of(&of_changed, &outlines);
        let others = kept.iter().copied().filter(|function| !last.contains_key(function));
        let unknown: Vec<FunctionIndex> = others
            .filter(|&function| {
                walk.hashes[function].is_none() && of_changed.has(outlines[function], false)
            })
            .collect();
        walk.contents(&unknown, bodies);
    }
    let is_changed = |function| is_body(function) || last.contains_key(&function);
    let changed = kept.iter().copied().filter(|&function| is_changed(function));
    let changed: HashSet<u32, FxBuildHasher> =
        changed.filter_map(|function| walk.hashes[function]).collect();
    let shared = walk.shared(&kept);
    let result = kept.iter().filter_map(|&function| {
        let hash = walk.hashes[function].filter(|hash| shared.contains(hash))?;
        let own = plan.body_of(function).unwrap_or(function);
        let possible = changed.contains(&hash) || encodings.has_equal(own) || walks_all;
        possible.then_some((function, hash))
    });
    result.collect()
}

type LastBodies = HashMap<FunctionIndex, FunctionIndex, FxBuildHasher>;

/// The last parameterised body that each function calls, if it calls any.
fn last_bodies(plan: &Plan, found: &Found) -> LastBodies {
    let mut last = LastBodies::default();
    for &(function, callee) in found.uses.references() {
        let to = plan.entry(callee).disposition().representative();
        if let Some(to) = to.filter(|&to| plan.parameterised_body(to).is_some()) {
            let last = last.entry(function).or_insert(to);
            *last = to.max(*last);
        }
    }
    last
}

/// What is known of a function without a walk: see [`canon::outline`]. Also, how many instructions it has if it is not
/// changed.
#[derive(Clone, Copy, Debug, Default)]
struct Outline {
    digest: u32,
    instructions: u32,
}

/// The outlines of functions that were walked.
#[derive(Default)]
struct Outlines {
    digests: HashSet<u32, FxBuildHasher>,
    sizes: HashSet<(u32, u32), FxBuildHasher>,
}

impl Outlines {
    fn of(
        walked: &[(FunctionIndex, Content)],
        outlines: &SecondaryMap<FunctionIndex, Outline>,
    ) -> Outlines {
        let mut of = Outlines::default();
        for &(function, content) in walked {
            let digest = outlines[function].digest;
            of.digests.insert(digest);
            of.sizes.insert((digest, content.instructions));
        }
        of
    }

    /// Whether one of them could be equal to a function with this outline, which calls a parameterised body or not.
    fn has(&self, outline: Outline, calls_a_body: bool) -> bool {
        match calls_a_body {
            true => self.digests.contains(&outline.digest),
            false => self.sizes.contains(&(outline.digest, outline.instructions)),
        }
    }
}

/// How many functions are read together.
const FUNCTIONS: usize = 64;

/// Functions that were walked, and their contents.
type Walked = Vec<(FunctionIndex, Content)>;

struct Walk<'a> {
    plan: &'a Plan,
    options: &'a Options<'a>,
    pool: Pool<(Scratch, Encoding)>,
    /// The hashes of shape and constants that are known.
    hashes: SecondaryMap<FunctionIndex, Option<u32>>,
}

impl Walk<'_> {
    /// The outlines of functions, some of which were walked.
    fn outlines(
        &mut self,
        functions: &[FunctionIndex],
        walked: &[(FunctionIndex, Content)],
        bodies: &mut dyn Bodies,
    ) -> SecondaryMap<FunctionIndex, Outline> {
        let mut blocks: SecondaryMap<FunctionIndex, Option<u32>> = SecondaryMap::new();
        for (function, content) in walked {
            blocks[*function] = Some(content.blocks);
        }
        let Walk { plan, pool, .. } = self;
        let mut chunks: Vec<(&[FunctionIndex], Vec<Outline>)> =
            functions.chunks(FUNCTIONS).map(|chunk| (chunk, Vec::new())).collect();
        for_each(bodies, pool, &mut chunks, |bodies, _, (functions, outlines)| {
            let outline = |&function: &FunctionIndex| {
                let body = match plan.new_body(function) {
                    Some(new) => new.body(),
                    None => bodies.body(function),
                };
                let own = body.dfg.num_blocks();
                let blocks = blocks[function].map_or(own, |blocks| blocks as usize);
                let key = plan.entry(function).attributes().key;
                let instructions = u32::try_from(body.dfg.num_insts()).unwrap_or(u32::MAX);
                Outline { digest: canon::outline(body, key, blocks) as u32, instructions }
            };
            *outlines = functions.iter().map(outline).collect();
        });
        let mut all = SecondaryMap::new();
        for (functions, outlines) in chunks {
            for (&function, outline) in functions.iter().zip(outlines) {
                all[function] = outline;
            }
        }
        all
    }

    /// Walks functions as the plan leaves them, and returns the contents of those that can be walked.
    fn contents(
        &mut self,
        functions: &[FunctionIndex],
        bodies: &mut dyn Bodies,
    ) -> Vec<(FunctionIndex, Content)> {
        let Walk { plan, options, pool, hashes } = self;
        let mut chunks: Vec<(&[FunctionIndex], Walked)> =
            functions.chunks(FUNCTIONS).map(|chunk| (chunk, Vec::new())).collect();
        let work = |bodies: &mut dyn Bodies, memory: &mut (Scratch, Encoding), chunk: &mut _| {
            let (scratch, encoding) = memory;
            let (functions, contents): &mut (&[FunctionIndex], Walked) = chunk;
            for &function in *functions {
                let body = not_redirected(plan, bodies, function, options);
                let symbols = Redirecting { plan, written: Written::none(), symbols: &NoUnit };
                let context = context(plan, function, &symbols, options);
                if canon::encode(&body, &context, scratch, encoding).is_ok() {
                    contents.push((function, Content::of(scratch, encoding)));
                }
            }
        };
        for_each(bodies, pool, &mut chunks, work);
        let contents: Vec<_> = chunks.into_iter().flat_map(|(_, contents)| contents).collect();
        for &(function, content) in &contents {
            hashes[function] = Some(content.hash);
        }
        contents
    }

    /// The hashes that two or more of these functions have.
    fn shared(&self, functions: &[FunctionIndex]) -> HashSet<u32, FxBuildHasher> {
        let mut seen: HashSet<u32, FxBuildHasher> = HashSet::default();
        let hashes = functions.iter().filter_map(|&function| self.hashes[function]);
        hashes.filter(|&hash| !seen.insert(hash)).collect()
    }
}
