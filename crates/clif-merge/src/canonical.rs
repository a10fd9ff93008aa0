//! Canonical bodies in place of the functions of a unit, for `--canonicalize optimize`.
//!
//! It compares and merges nothing.

use clif_unit::unit::Unit;
use cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::cranelift_codegen;
use cranelift_mergefunc_canonical::canonical_body;

/// Gives each function its canonical body. One that has none stays as it is, and so does a thunk or
/// alias of the text.
pub fn canonicalize(unit: &mut Unit, isa: &dyn TargetIsa) {
    for (func, given) in unit.functions.iter_mut().zip(&unit.given) {
        if given.became.is_none()
            && let Some(body) = canonical_body(func, isa)
        {
            *func = body;
        }
    }
}
