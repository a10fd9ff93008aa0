//! Every constant of the policy, with where it comes from: the encodings of the two targets, or an
//! assumption. Weights that predict sizes were fitted on units, and are
//! elsewhere (`cranelift-size-model`).
//!
//! Sizes of bodies, thunks and calls are predicted (`probe`) wherever a merge depends on them.
//! These constants only choose among tries, or bound them. An error costs bytes or time,
//! never correctness.

use crate::options::Policy;

/// Bytes that one more case of a callee dispatch takes in the body. From the encodings of x86-64: a
/// comparison of 3–4 bytes, a branch of 6, a call of 5 and a jump of 5; on aarch64 four
/// instructions of 4 bytes.
pub(super) const CASE: i64 = 20;

/// Bytes that a call site takes to pass the address of a callee. From the encodings:
/// `lea reg, [rip + callee]` on x86-64; `adrp` and `add`, 8 bytes, on aarch64.
pub(super) const ADDRESS: i64 = 7;

/// Bytes that a call site takes to pass a case number. From the encodings: `mov reg, imm32` on
/// x86-64; `movz`, 4 bytes, on aarch64.
pub(super) const CASE_NUMBER: i64 = 5;

/// Bytes of the thunk that a callee needs if its address is passed, and of its calls so far only
/// those pass its extra arguments. From the encodings: one argument of 5 bytes and a jump of 5; on
/// aarch64 two instructions of 4.
pub(super) const THUNK: i64 = 10;

/// Bytes that a callee that is passed takes in the body. An assumption: the address needs a
/// register that lives until the call, and moves to and from it take 3 bytes each on x86-64.
pub(super) const CALLEE_PARAMETER: i64 = 6;

/// Bytes that any other parameter takes in the body: an assumption.
pub(super) const PARAMETER: i64 = 2;

/// The part of the bytes of its functions that a parameterised body must save: one in this many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share(i64);

impl Share {
    /// An eighth, and for size a 32nd: with any part from none to a 16th, the units of
    /// `docs/units.md` save the same within a tenth of a point, and the greater it is, the fewer
    /// small units become larger.
    pub fn of(policy: Policy) -> Share {
        match policy {
            Policy::Size => Share(32),
            Policy::Off | Policy::Balanced => Share(8),
        }
    }

    /// Whether it is enough to save `saved` of `before` bytes. A value that cannot be passed saves
    /// less than nothing, by far.
    pub fn is_reached(self, saved: i64, before: i64) -> bool {
        saved.saturating_mul(self.0) > before
    }
}

/// The most cases of one callee dispatch: four comparisons, one after the other, before each call.
/// An assumption, checked by `cargo bench --bench similar`, which compares calls by a binary
/// search, a chain, a jump table and an address that is passed.
pub(super) const MAX_DISPATCH_CASES: usize = 16;

/// No body gets more parameters than this, its own included. Cranelift takes time that grows with
/// their square, and on x86-64 no function for tail calls can take 64 KB of them off the stack.
pub(super) const MAX_PARAMETERS: usize = 1000;

/// Up to how many arguments the cost of passing them is counted; that of more goes on as that of
/// the last one. An assumption: the registers are full by then on all targets.
pub(super) const MAX_COUNTED_ARGUMENTS: usize = 10;

/// How many parameters are compared as divisors of a set, in order to choose one.
pub(super) const MAX_DIVISORS: usize = 6;

/// How many parameters are tried until that many are found that divide a set.
pub(super) const MAX_TRIED_COLUMNS: usize = 64;

/// Functions with fewer instructions are not aligned with others: an assumption; passing a selector
/// takes as much.
pub(super) const MIN_ALIGNED: usize = 8;

/// How much is done to find pairs of functions to align.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    /// With how many functions of each band of its sketch a function is compared, on both sides of
    /// it.
    pub near: usize,
    /// Of the hashes of two sketches, one in this number must agree.
    pub hashes: usize,
    /// To how many functions a function is aligned by outlines, at most, in each round.
    pub partners: usize,
    /// Pairs are no longer compared when fewer than one in this number, out of 1,024, may save
    /// enough; never with 0.
    pub promising: usize,
    /// With how many of them a body is made, at most, in each round.
    pub attempts: u32,
    /// A body is made if its estimated saving falls short by no more than one byte in this number,
    /// of both functions.
    pub error: i64,
    /// A round ends when fewer than one body in this number pays, of those that were made together;
    /// never with 0.
    pub paying: usize,
    /// How often functions are aligned, bodies of aligned ones among them.
    pub rounds: usize,
}

/// Whether `found / of < 1 / one_in`. Always false for `one_in == 0`.
pub(super) fn is_few(found: usize, of: usize, one_in: usize) -> bool {
    one_in > 0 && found * one_in < of
}

/// With `Size`: the omitted tries would save less than 3% more.
pub(super) const THOROUGH: Effort = Effort {
    near: 64,
    hashes: 3,
    partners: 8,
    promising: 0,
    attempts: 8,
    error: 16,
    paying: 0,
    rounds: 4,
};

/// How many bodies must be made together at least in order to say how many pay.
pub(super) const MIN_BATCH: usize = 32;

/// With `Balanced`: at most two thirds of the bodies are made that `THOROUGH` makes, and 95% of
/// what they save is found. Measured on the units of `docs/units.md`, on both targets.
pub(super) const QUICK: Effort = Effort {
    near: 4,
    hashes: 3,
    partners: 4,
    promising: 8,
    attempts: 2,
    error: 32,
    paying: 4,
    rounds: 2,
};

/// Bytes that an instruction of IR takes in a large function, at least.
pub(super) const LEAST_INSTRUCTION: i64 = 2;

/// The estimated saving of a body of aligned functions before it is made: of the common part of the
/// two functions, in bytes of one of them, a number of 16ths; of the smaller function, up to a
/// number of bytes, for its frame, a number of 16ths; less a number of bytes for each gap, across
/// which values live. By least squares from the 28,331 pairs of these units that were tried when
/// every pair was.
pub(super) const ALIGNED_COMMON: i64 = 10;
pub(super) const ALIGNED_FRAME: i64 = 5;
pub(super) const MAX_ALIGNED_FRAME: i64 = 400;
pub(super) const ALIGNED_GAP: i64 = 24;

/// In how many instructions aligned functions differ, at most.
pub(super) const MAX_DIFFERING: usize = 500;

/// In how many places aligned functions differ, at most.
pub(super) const MAX_GAPS: usize = 60;

/// How many instructions of a loop there must be for each arm in it, with `Balanced`: to branch and
/// join again takes two instructions, so this is one in fifty.
pub(super) const MIN_PER_ARM: usize = 100;

/// With `Balanced`, a call that goes through a thunk may execute one instruction more for this many
/// that it executes without merging.
pub(super) const MIN_PER_PASSED: i64 = 8;

/// Instructions that a call takes at least, to enter a function and to leave it. From what
/// Cranelift emits.
pub(super) const CALL: i64 = 5;

/// Instructions to compare a number and branch.
pub(super) const BRANCH: i64 = 2;

/// Instructions to branch to an arm and to join again.
pub(super) const ARM: i64 = 3;

/// The instruction of a thunk in raw bytes, besides those that pass arguments.
pub(super) const JUMP_THUNK: i64 = 1;

/// Instructions of a thunk that is a function, which has a frame, besides those that pass
/// arguments.
pub(super) const CALL_THUNK: i64 = 5;

/// Instructions that a call of another function executes: an assumption.
pub(super) const CALLEE: i64 = 10;

/// How often a loop runs: an assumption.
pub(super) const LOOP: i64 = 8;

/// A loop that is nested deeper runs as often as one that is nested to this depth.
pub(super) const MAX_LOOP_DEPTH: usize = 3;

/// How many extra arguments a body of aligned functions takes, at most.
pub(super) const MAX_ALIGNED_ARGUMENTS: usize = 6;

/// Fewer common instructions between two differences are made part of them. From the encodings: to
/// join and branch again takes 11 to 16 bytes on x86-64.
pub(super) const MIN_RUN: usize = 8;
