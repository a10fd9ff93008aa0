//! Cranelift's verifier, with a target for what cannot be verified without one.
//!
//! Most functions are verified without a target, so that a unit is read under every `--target`.
//! Some instructions are refused unless there is one: those that read the frame pointer, the return
//! address or the pinned register. A function that is refused is verified once more for the target,
//! with the settings switched on that the verifier asks for. That code can be generated under the
//! settings of the command line is not asked here, but by `codegen`.

use crate::isa;
use cranelift_codegen::ir::{Function, Opcode};
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Flags, FlagsOrIsa};
use cranelift_codegen::verifier::VerifierErrors;
use cranelift_codegen::verify_function;
use cranelift_mergefunc::cranelift_codegen;

/// The shared settings without which the verifier refuses instructions.
const ASKED_FOR: [&str; 2] = ["enable_pinned_reg", "preserve_frame_pointers"];

/// Verifies functions of one unit.
pub struct Verifier {
    flags: Flags,
    isa: OwnedTargetIsa,
}

impl Verifier {
    /// For functions that are to be compiled for `isa`.
    pub fn new(isa: &dyn TargetIsa) -> Verifier {
        let isa = isa::with(isa, &ASKED_FOR).expect("every target has the shared settings");
        Verifier { flags: Flags::new(settings::builder()), isa }
    }

    /// For functions of which no target is known: that of the program's default.
    pub fn without_target() -> Verifier {
        let [isa] = isa::build([isa::short("x86_64")], &[]).expect("is built in");
        Verifier::new(&*isa)
    }

    /// Verifies a function. Cranelift's verifier panics at some of what it should refuse.
    ///
    /// # Errors
    ///
    /// Errors of the verifier.
    pub fn verify(&self, func: &Function) -> Result<(), VerifierErrors> {
        match verify_function(func, FlagsOrIsa { flags: &self.flags, isa: None }) {
            Ok(()) => Ok(()),
            // With a target it refuses no less, but for what it refuses without one.
            Err(_) => self.verify_for_target(func),
        }
    }

    /// Verifies a function for the target, which also compares types with that of an address there.
    ///
    /// # Errors
    ///
    /// Errors of the verifier.
    pub fn verify_for_target(&self, func: &Function) -> Result<(), VerifierErrors> {
        verify_function(func, &*self.isa)
    }
}

/// Whether it depends on the settings of the target if the verifier accepts `func`. Nothing else of
/// Cranelift's looks at these settings before it generates code.
pub fn depends_on_settings(func: &Function) -> bool {
    let blocks = func.layout.blocks();
    blocks.flat_map(|block| func.layout.block_insts(block)).any(|inst| {
        matches!(
            func.dfg.insts[inst].opcode(),
            Opcode::GetPinnedReg
                | Opcode::SetPinnedReg
                | Opcode::GetFramePointer
                | Opcode::GetReturnAddress
        )
    })
}
