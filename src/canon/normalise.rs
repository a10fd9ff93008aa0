//! What the walk treats as equal although the IR differs.
//!
//! Each rule is one small function with a filetest of its own in `filetests/normalise`, and
//! `docs/design.md` says how much it finds on real units. No rule here changes a function: the
//! representative of a class keeps its own form.
//!
//! What is *not* here was tried and never made two functions of a real unit equal: comparisons with
//! swapped operands, inverted branches, empty forwarding blocks, straight-line code split by a
//! `jump`. `docs/design.md` has the figures.

use cranelift_codegen::ir::Opcode;

/// Whether the two operands of an integer operation can change places.
///
/// Float operations are left out on purpose: which of two NaNs an addition returns depends on the
/// order of its operands, and its payload can be observed.
pub(super) fn is_commutative(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Iadd
            | Opcode::Imul
            | Opcode::Umulhi
            | Opcode::Smulhi
            | Opcode::SqmulRoundSat
            | Opcode::Band
            | Opcode::Bor
            | Opcode::Bxor
            | Opcode::Smin
            | Opcode::Umin
            | Opcode::Smax
            | Opcode::Umax
            | Opcode::AvgRound
            | Opcode::UaddSat
            | Opcode::SaddSat
            | Opcode::UaddOverflow
            | Opcode::SaddOverflow
            | Opcode::UmulOverflow
            | Opcode::SmulOverflow
            | Opcode::UaddOverflowTrap
    )
}
