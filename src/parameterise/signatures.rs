//! Which functions are referred to by a mismatched signature.
//!
//! Cranelift's verifier does not see whether a function is called by its own signature. A mismatched call has an
//! effect all the same, and must keep it. This module finds the functions; it does *not* decide what follows for
//! them.

use crate::interner::Interner;
use crate::unit::FunctionIndex;
use alloc::vec::Vec;
use cranelift_codegen::ir::Signature;
use cranelift_entity::SecondaryMap;

/// The signatures that functions have, and those by which others refer to them.
#[derive(Default)]
pub(super) struct References {
    numbers: Interner<Signature>,
    own: SecondaryMap<FunctionIndex, Option<u32>>,
    /// One entry for each reference.
    referred: Vec<(FunctionIndex, u32)>,
}

impl References {
    /// A function has this signature.
    pub fn define(&mut self, function: FunctionIndex, signature: &Signature) {
        self.own[function] = Some(self.numbers.number(signature, Signature::clone));
    }

    /// Records a reference to a function by this signature.
    pub fn refer(&mut self, function: FunctionIndex, signature: &Signature) {
        self.referred.push((function, self.numbers.number(signature, Signature::clone)));
    }

    /// The functions that are referred to by another signature than their own. Linear in the number of references.
    pub fn mismatched(self) -> impl Iterator<Item = FunctionIndex> {
        let References { numbers: _, own, referred } = self;
        let mismatched = move |&(function, number): &(FunctionIndex, u32)| {
            own[function].is_some_and(|own| own != number)
        };
        referred.into_iter().filter(mismatched).map(|(function, _)| function)
    }
}
