//! Sizes in bytes: of bodies, of passing arguments, of thunks, each as the back end compiles it, or as a model predicts
//! it (`size`).
//!
//! Bodies are measured as they would be emitted. The cost of passing extra arguments at a call is the difference
//! between a function that calls with them and one that calls without. It depends on the signature, and for each
//! argument on the cost of computing it, so little has to be compiled. This module decides nothing.

use crate::apply::call_thunk;
use crate::extra_argument::ExtraArgument;
use crate::options::Options;
use crate::target::CallThunks;
use crate::unit::Bodies;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Signature, Type, UserExternalName, UserFuncName};
use cranelift_codegen::isa::CallConv;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The sizes that were compiled so far.
pub(super) struct Costs<'a> {
    options: &'a Options<'a>,
    /// The bytes by which a call with zeros as extra arguments is larger than one without: by the signature of the
    /// function, and the types of the zeros.
    calls: HashMap<(Signature, Vec<Type>), Option<u32>, FxBuildHasher>,
    /// The size of a function that passes an argument.
    arguments: HashMap<ExtraArgument, Option<u32>, FxBuildHasher>,
    /// The size of a function that calls a function of this signature and passes on its own arguments.
    plain: HashMap<Signature, Option<u32>, FxBuildHasher>,
    /// The size of a thunk that calls, as it is emitted.
    thunks: HashMap<(Signature, Vec<ExtraArgument>), Option<u32>, FxBuildHasher>,
    /// The function that probes call. Probes are never emitted.
    callee: UserExternalName,
    /// How many probes were compiled.
    pub probes: usize,
}

/// An argument that takes as many bytes to compute on every target: what counts is which half-words of a constant
/// are zero or all ones, and its sign.
fn with_equal_cost(argument: &ExtraArgument, callee: &UserExternalName) -> ExtraArgument {
    match argument {
        ExtraArgument::Constant { ty, bits } => {
            let half = |at: u32| match bits >> at & 0xffff {
                plain @ (0 | 0xffff) => plain << at,
                other => (other & 0x8000 | 0x1235) << at,
            };
            let representative = half(0) | half(16) | half(32) | half(48);
            ExtraArgument::Constant {
                ty: *ty,
                bits: representative & (u64::MAX >> (64 - ty.bits())),
            }
        }
        ExtraArgument::Function { ty, symbol: _, signature: _, colocated } => {
            ExtraArgument::Address {
                ty: *ty,
                symbol: callee.clone(),
                offset: 0,
                colocated: *colocated,
            }
        }
        ExtraArgument::Address { ty, symbol: _, offset, colocated } => ExtraArgument::Address {
            ty: *ty,
            symbol: callee.clone(),
            offset: if *offset == 0 { 0 } else { 8 },
            colocated: *colocated,
        },
    }
}

impl<'a> Costs<'a> {
    pub fn new(options: &'a Options<'a>, bodies: &mut dyn Bodies) -> Costs<'a> {
        Costs {
            options,
            callee: bodies.probe_callee(),
            calls: HashMap::default(),
            arguments: HashMap::default(),
            plain: HashMap::default(),
            thunks: HashMap::default(),
            probes: 0,
        }
    }

    /// Bytes of a function that passes its own arguments, and these extra arguments, to another.
    fn probe(
        &self,
        bodies: &mut dyn Bodies,
        signature: &Signature,
        arguments: &[ExtraArgument],
    ) -> Option<u32> {
        // No tail call: the probe measures an ordinary call.
        let options = CallThunks { tail_calls: false, colocated: true };
        let name = UserFuncName::default();
        bodies
            .code_sizes()?
            .of_candidate(&call_thunk(name, signature, arguments, &self.callee, &options), false)
    }

    fn plain(&mut self, bodies: &mut dyn Bodies, signature: &Signature) -> Option<u32> {
        if let Some(&known) = self.plain.get(signature) {
            return known;
        }
        self.probes += 1;
        let size = self.probe(bodies, signature, &[]);
        self.plain.insert(signature.clone(), size);
        size
    }

    /// Bytes of a function that passes one argument, which costs as much to compute as this one.
    fn computing(&mut self, bodies: &mut dyn Bodies, argument: &ExtraArgument) -> Option<u32> {
        let argument = with_equal_cost(argument, &self.callee);
        if let Some(&known) = self.arguments.get(&argument) {
            return known;
        }
        // A convention that every back end has.
        let signature = Signature::new(CallConv::Fast);
        self.probes += 1;
        let size = self.probe(bodies, &signature, core::slice::from_ref(&argument));
        self.arguments.insert(argument, size);
        size
    }

    /// What it takes to compute an argument beyond a zero of its type.
    fn argument(&mut self, bodies: &mut dyn Bodies, argument: &ExtraArgument) -> Option<i32> {
        let zero = ExtraArgument::Constant { ty: argument.ty(), bits: 0 };
        let (own, zero) = (self.computing(bodies, argument)?, self.computing(bodies, &zero)?);
        Some(own as i32 - zero as i32)
    }

    fn zeros(
        &mut self,
        bodies: &mut dyn Bodies,
        signature: &Signature,
        arguments: &[ExtraArgument],
    ) -> Option<u32> {
        let types: Vec<Type> = arguments.iter().map(ExtraArgument::ty).collect();
        let key = (signature.clone(), types);
        if let Some(&known) = self.calls.get(&key) {
            return known;
        }
        let zeros: Vec<ExtraArgument> =
            key.1.iter().map(|&ty| ExtraArgument::Constant { ty, bits: 0 }).collect();
        self.probes += 1;
        let with = self.probe(bodies, signature, &zeros);
        let without = self.plain(bodies, signature);
        let size = with.zip(without).map(|(with, without)| with.saturating_sub(without));
        self.calls.insert(key, size);
        size
    }

    /// The bytes that it takes to pass these arguments at a call of a function of this signature. `None` if such a
    /// call cannot be compiled.
    pub fn passing(
        &mut self,
        bodies: &mut dyn Bodies,
        signature: &Signature,
        arguments: &[ExtraArgument],
    ) -> Option<u32> {
        let mut size = i64::from(self.zeros(bodies, signature, arguments)?);
        for argument in arguments {
            size += i64::from(self.argument(bodies, argument)?);
        }
        Some(u32::try_from(size).unwrap_or(0))
    }

    /// The size of a thunk that passes these arguments, in bytes. `None` if there is none.
    pub fn thunk(
        &mut self,
        bodies: &mut dyn Bodies,
        signature: &Signature,
        arguments: &[ExtraArgument],
        observes_its_frame: bool,
    ) -> Option<u32> {
        let raw = self.options.target.thunk_code(signature, arguments, &self.callee);
        if let Some(code) = raw {
            return Some(code.size());
        }
        let call_thunks = self.options.call_thunks?;
        let grows = signature.call_conv == CallConv::Tail && !call_thunks.tail_calls;
        if observes_its_frame || grows {
            return None;
        }
        // Compiled as it is emitted: whether it needs a frame, which arguments go on the stack and which are equal
        // depends on all of them.
        let key = (signature.clone(), arguments.to_vec());
        if let Some(&known) = self.thunks.get(&key) {
            return known;
        }
        self.probes += 1;
        let name = UserFuncName::default();
        let thunk = call_thunk(name, signature, &key.1, &self.callee, &call_thunks);
        let size = bodies.code_sizes()?.of_candidate(&thunk, false);
        self.thunks.insert(key, size);
        size
    }
}
