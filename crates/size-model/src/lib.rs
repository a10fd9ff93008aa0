//! How many bytes functions of Cranelift IR will take as native code, predicted and not compiled.
//!
//! The size of a function is the sum of what its features take on a target: a linear model over
//! instructions, constants, arguments, calls, the frame, and how many values live at once. Call
//! thunks have features of their own. The weights are data (`fitted`), which the program
//! `fit-size-model` fits on real units for one version of Cranelift.
//!
//! A prediction is for deciding what pays: an error costs bytes. The crate makes no decision
//! itself, and owns no IR.
//!
//! # Example
//!
//! ```
//! use cranelift_size_model::SizeModel;
//!
//! let text = "function u0:0(i64) -> i64 { block0(v0: i64): v1 = imul v0, v0 return v1 }";
//! let func = cranelift_reader::parse_functions(text).unwrap().remove(0);
//! let bytes = SizeModel::X86_64.predict(&func).unwrap();
//! assert!((4..40).contains(&bytes), "{bytes}");
//! ```

#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

mod copies;
mod features;
mod fitted;
mod quantity;
mod registers;
mod simplify;
mod thunk;
mod uses;

pub use features::features;
use features::is_known;
pub use quantity::{Class, ConstantKind, ConstantUse, Feature, Quantity};
pub use registers::Registers;
pub use uses::Scratch;

use core::fmt;
use cranelift_codegen::ir::{Function, Opcode};

/// Predicts the sizes of native code on one target.
///
/// Fitted for code with `opt_level=speed` and the default settings of the target.
/// `docs/performance.md` has the errors.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SizeModel(&'static Weights);

impl fmt::Debug for SizeModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SizeModel").field(&self.0.target).finish()
    }
}

impl SizeModel {
    /// For x86-64.
    pub const X86_64: SizeModel = SizeModel(&fitted::X86_64);
    /// For aarch64.
    pub const AARCH64: SizeModel = SizeModel(&fitted::AARCH64);
    /// Not of a target: every instruction and constant takes 9 bytes, so that whatever has equal
    /// instructions pays. For tests.
    pub const UNIFORM: SizeModel = SizeModel(&UNIFORM);

    /// The predicted bytes of the native code of a function; `None` if it has values of types that
    /// the back ends support only in part: whether they can compile a function with such types
    /// cannot be predicted. Linear in its size.
    pub fn predict(self, func: &Function) -> Option<u32> {
        self.predict_with(func, &mut Scratch::default())
    }

    /// Predicts the size of a function, with memory that is used for many functions.
    pub fn predict_with(self, func: &Function, scratch: &mut Scratch) -> Option<u32> {
        let weights = self.0;
        let is_known = |value| weights.all_types || is_known(func.dfg.value_type(value));
        if !func.dfg.values().all(is_known) {
            return None;
        }
        let mut size = 0i64;
        features(func, &weights.registers, scratch, &mut |feature, times| {
            size += i64::from(weights.of(feature)) * i64::from(times);
        });
        let bytes = (size + i64::from(Weights::PER_BYTE) / 2) / i64::from(Weights::PER_BYTE);
        Some(u32::try_from(bytes.max(weights.smallest.into())).unwrap_or(u32::MAX))
    }

    /// The bytes that the native code of a function takes at least, in all likelihood.
    pub fn at_least(self, func: &Function, scratch: &mut Scratch) -> Option<u32> {
        let bytes = self.predict_with(func, scratch)? / MAX_ERROR;
        Some(bytes.max(self.0.smallest))
    }
}

/// Fewer than 1% of functions are smaller than half of their prediction.
const MAX_ERROR: u32 = 2;

static UNIFORM: Weights = Weights {
    target: "uniform",
    registers: Registers::X86_64,
    smallest: 0,
    all_types: true,
    instructions: instructions(9 * Weights::PER_BYTE, &[]),
    constants: [[9 * Weights::PER_BYTE; KINDS]; ConstantUse::ALL.len()],
    // Thunks have no other features: a call and a return, and what computes each extra argument.
    quantities: quantities(&[
        (Quantity::Thunk, 18 * Weights::PER_BYTE),
        (Quantity::TailThunk, 9 * Weights::PER_BYTE),
        (Quantity::ThunkUnsigned, 9 * Weights::PER_BYTE),
        (Quantity::ThunkSigned, 9 * Weights::PER_BYTE),
        (Quantity::ThunkWide, 9 * Weights::PER_BYTE),
        (Quantity::ThunkNear, 9 * Weights::PER_BYTE),
        (Quantity::ThunkFar, 9 * Weights::PER_BYTE),
        (Quantity::ThunkZero, 9 * Weights::PER_BYTE),
        (Quantity::ThunkRepeated, 9 * Weights::PER_BYTE),
        (Quantity::ThunkStackUnsigned, 9 * Weights::PER_BYTE),
        (Quantity::ThunkStackSigned, 9 * Weights::PER_BYTE),
        (Quantity::ThunkStackWide, 9 * Weights::PER_BYTE),
        (Quantity::ThunkStackNear, 9 * Weights::PER_BYTE),
        (Quantity::ThunkStackFar, 9 * Weights::PER_BYTE),
        (Quantity::ThunkStackZero, 9 * Weights::PER_BYTE),
        (Quantity::ThunkStackRepeated, 9 * Weights::PER_BYTE),
    ]),
};

const OPCODES: usize = 192;
const CLASSES: usize = Class::ALL.len();
const KINDS: usize = ConstantKind::ALL.len();

/// The weight of each feature on a target, in parts of a byte.
#[derive(PartialEq, Eq)]
struct Weights {
    target: &'static str,
    registers: Registers,
    /// No function takes fewer bytes.
    smallest: u32,
    /// Whether values of types that the back ends support only in part count as well.
    all_types: bool,
    instructions: [[i32; CLASSES]; OPCODES],
    constants: [[i32; KINDS]; ConstantUse::ALL.len()],
    quantities: [i32; Quantity::ALL.len()],
}

impl Weights {
    /// The parts of a byte that weights are given in.
    pub const PER_BYTE: i32 = 64;

    fn of(&self, feature: Feature) -> i32 {
        match feature {
            Feature::Instruction(opcode, class) => {
                self.instructions[opcode as usize][class as usize]
            }
            Feature::Constant(of, kind) => self.constants[of as usize][kind as usize],
            Feature::Quantity(quantity) => self.quantities[quantity as usize],
        }
    }
}

/// The weights of instructions by opcode. An opcode that is not listed takes the bytes of an
/// average instruction. average.
const fn instructions(
    others: i32,
    listed: &[(Opcode, [i32; CLASSES])],
) -> [[i32; CLASSES]; OPCODES] {
    let mut all = [[others; CLASSES]; OPCODES];
    let mut at = 0;
    while at < listed.len() {
        all[listed[at].0 as usize] = listed[at].1;
        at += 1;
    }
    all
}

/// The weights of quantities.
const fn quantities(listed: &[(Quantity, i32)]) -> [i32; Quantity::ALL.len()] {
    let mut all = [0; Quantity::ALL.len()];
    let mut at = 0;
    while at < listed.len() {
        all[listed[at].0 as usize] = listed[at].1;
        at += 1;
    }
    all
}
