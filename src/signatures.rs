//! Which functions are referred to by a mismatched signature.
//!
//! Cranelift's verifier does not see whether a function is called by its own signature. A
//! mismatched call has an effect anyway, and must keep it. This module finds the functions; it does
//! *not* decide what follows for them.

use crate::interner::Interner;
use crate::unit::FunctionIndex;
use alloc::vec::Vec;
use cranelift_codegen::ir::Signature;
use cranelift_entity::SecondaryMap;

/// The signatures that functions have, and those by which others refer to them.
#[derive(Default)]
pub(crate) struct References {
    numbers: Interner<Signature>,
    own: Vec<(FunctionIndex, u32)>,
    /// One entry for each reference.
    referred: Vec<(FunctionIndex, u32)>,
}

impl References {
    /// A function has this signature.
    pub fn define(&mut self, function: FunctionIndex, signature: &Signature) {
        self.own.push((function, self.numbers.number(signature, Signature::clone)));
    }

    /// Records a reference to a function by this signature.
    pub fn refer(&mut self, function: FunctionIndex, signature: &Signature) {
        self.referred.push((function, self.numbers.number(signature, Signature::clone)));
    }

    /// Adds what `other` knows.
    pub fn append(&mut self, other: References) {
        let References { numbers, own, referred } = other;
        let number: Vec<u32> = (0..numbers.len() as u32)
            .map(|number| self.numbers.number(numbers.value(number), Signature::clone))
            .collect();
        let renumbered = |(function, own): (FunctionIndex, u32)| (function, number[own as usize]);
        self.own.extend(own.into_iter().map(renumbered));
        self.referred.extend(referred.into_iter().map(renumbered));
    }

    /// The functions that are referred to by another signature than their own. Linear in the number
    /// of references.
    pub fn mismatched(self) -> impl Iterator<Item = FunctionIndex> {
        let References { numbers: _, own: defined, referred } = self;
        let mut own: SecondaryMap<FunctionIndex, Option<u32>> = SecondaryMap::new();
        for (function, number) in defined {
            own[function] = Some(number);
        }
        let mismatched = move |&(function, number): &(FunctionIndex, u32)| {
            own[function].is_some_and(|own| own != number)
        };
        referred.into_iter().filter(mismatched).map(|(function, _)| function)
    }
}
