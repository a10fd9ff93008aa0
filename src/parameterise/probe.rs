//! Sizes in bytes, as the model of the target predicts them (`size`): of bodies, of passing
//! arguments, of thunks.
//!
//! Bodies are measured as they would be emitted. The cost of passing extra arguments at a call is
//! the difference between a function that calls with them and one that calls without. It depends on
//! the signature, and for each argument on the cost of computing it, so few such functions have to
//! be made. This module decides nothing.

use super::cost;
use crate::apply::call_thunk;
use crate::extra_argument::ExtraArgument;
use crate::options::Options;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, Signature, Type, UserExternalName, UserFuncName};
use cranelift_codegen::isa::CallConv;
use cranelift_size_model::{self as size, SizeModel};
use hashbrown::{Equivalent, HashMap};
use rustc_hash::FxBuildHasher;

/// The function that probes call, and the symbol of bodies until they have their own. A function
/// that names it shares no body (`walk_redirected`).
pub(super) static CALLEE: UserExternalName =
    UserExternalName { namespace: u32::MAX, index: u32::MAX };

/// A function that only calls, and whose size says what that costs: probes are never emitted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Probe {
    /// The signature of the function itself.
    signature: Signature,
    /// The arguments that it passes besides its own.
    arguments: Vec<ExtraArgument>,
    /// Whether it is a thunk as it would be emitted. If not, it has no tail call: it measures an
    /// ordinary call.
    is_thunk: bool,
}

/// A [`Probe`], borrowed.
#[derive(Hash)]
struct ProbeRef<'a> {
    signature: &'a Signature,
    arguments: &'a [ExtraArgument],
    is_thunk: bool,
}

impl Equivalent<Probe> for ProbeRef<'_> {
    fn equivalent(&self, probe: &Probe) -> bool {
        let Probe { signature, arguments, is_thunk } = probe;
        (self.signature, self.arguments, self.is_thunk) == (signature, arguments, *is_thunk)
    }
}

impl Probe {
    /// The function itself.
    fn function(&self, options: &Options<'_>) -> Function {
        let Probe { signature, arguments, is_thunk } = self;
        let how = options.target.call_thunks.filter(|_| *is_thunk).unwrap_or_default();
        call_thunk(UserFuncName::default(), signature, arguments, &CALLEE, &how)
    }
}

/// The sizes of probes.
#[derive(Default)]
pub(super) struct Probed(HashMap<Probe, Option<u32>, FxBuildHasher>);

impl Probed {
    /// Adds the sizes of `other`, and leaves it empty.
    pub fn append(&mut self, other: &mut Probed) {
        self.0.extend(other.0.drain());
    }
}

/// The memory of a thread between pieces of work.
#[derive(Default)]
pub(super) struct OwnSizes {
    /// Probes whose sizes were predicted since all threads know the same ones.
    pub probed: Probed,
    /// See [`Problem::thunks`](super::split::Problem), by how many arguments are counted, and
    /// signature.
    pub thunks: HashMap<(usize, Signature), Vec<Option<i64>>, FxBuildHasher>,
    scratch: size::Scratch,
}

/// Predicts the sizes for one set of functions.
pub(super) struct Sizes<'a> {
    pub options: &'a Options<'a>,
    pub model: SizeModel,
    /// Sizes that all threads know.
    pub known: &'a Probed,
    pub own: &'a mut OwnSizes,
}

/// An argument that takes equal bytes to compute on every target: it depends on which half-words of
/// a constant are zero or all ones, and its sign.
fn with_equal_cost(argument: &ExtraArgument) -> ExtraArgument {
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
                symbol: CALLEE.clone(),
                offset: 0,
                colocated: *colocated,
            }
        }
        ExtraArgument::Address { ty, symbol: _, offset, colocated } => ExtraArgument::Address {
            ty: *ty,
            symbol: CALLEE.clone(),
            offset: if *offset == 0 { 0 } else { 8 },
            colocated: *colocated,
        },
    }
}

impl Sizes<'_> {
    /// The bytes of a function.
    pub fn of(&mut self, func: &Function) -> Option<i64> {
        self.model.predict_with(func, &mut self.own.scratch).map(i64::from)
    }

    fn probe(
        &mut self,
        signature: &Signature,
        arguments: &[ExtraArgument],
        is_thunk: bool,
    ) -> Option<u32> {
        let probe = ProbeRef { signature, arguments, is_thunk };
        if let Some(&size) = self.known.0.get(&probe).or_else(|| self.own.probed.0.get(&probe)) {
            return size;
        }
        let probe = Probe { signature: signature.clone(), arguments: arguments.to_vec(), is_thunk };
        let func = probe.function(self.options);
        let size = self.model.predict_with(&func, &mut self.own.scratch);
        self.own.probed.0.insert(probe, size);
        size
    }

    /// The bytes of a function that only calls another one of this signature with these extra
    /// arguments.
    pub fn call(&mut self, signature: &Signature, arguments: &[ExtraArgument]) -> Option<u32> {
        self.probe(signature, arguments, false)
    }

    /// The bytes of a thunk of raw bytes. `None` if there is none.
    fn raw_thunk(&self, signature: &Signature, arguments: &[ExtraArgument]) -> Option<u32> {
        let Options { target, similar, .. } = self.options;
        let optimize = similar.policy.optimize_for();
        let code = target.thunk_code(signature, arguments, &CALLEE, optimize)?;
        Some(code.size())
    }

    /// Whether a thunk that passes these arguments is raw bytes.
    pub fn is_raw_thunk(&self, signature: &Signature, arguments: &[ExtraArgument]) -> bool {
        self.raw_thunk(signature, arguments).is_some()
    }

    /// Whether a function of this signature can be a thunk that passes these arguments.
    pub fn has_thunk(
        &self,
        signature: &Signature,
        arguments: &[ExtraArgument],
        observes_its_frame: bool,
    ) -> bool {
        self.raw_thunk(signature, arguments).is_some()
            || !observes_its_frame && self.options.target.has_call_thunk(signature)
    }

    /// Bytes of a function that passes one argument, which costs as much to compute as this one.
    fn computing(&mut self, argument: &ExtraArgument) -> Option<u32> {
        let argument = with_equal_cost(argument);
        // A convention that every back end has.
        let signature = Signature::new(CallConv::Fast);
        self.probe(&signature, core::slice::from_ref(&argument), false)
    }

    /// The bytes for computing an argument, beyond those for a zero of its type.
    fn argument(&mut self, argument: &ExtraArgument) -> Option<i64> {
        let zero = ExtraArgument::Constant { ty: argument.ty(), bits: 0 };
        Some(i64::from(self.computing(argument)?) - i64::from(self.computing(&zero)?))
    }

    /// The bytes by which a call with zeros of these types as extra arguments is larger than one
    /// without. `None` if such a call cannot be predicted.
    pub fn passing_zeros(
        &mut self,
        signature: &Signature,
        types: impl Iterator<Item = Type>,
    ) -> Option<u32> {
        let zeros: Vec<ExtraArgument> =
            types.map(|ty| ExtraArgument::Constant { ty, bits: 0 }).collect();
        self.more_than_a_call(signature, &zeros)
    }

    /// The bytes by which a call with these extra arguments is larger than one without. `None` if
    /// such a call cannot be predicted.
    fn more_than_a_call(
        &mut self,
        signature: &Signature,
        arguments: &[ExtraArgument],
    ) -> Option<u32> {
        Some(self.call(signature, arguments)?.saturating_sub(self.call(signature, &[])?))
    }

    /// The bytes that it takes to pass these arguments at a call of this signature, `zeros` more
    /// than a call without takes if they were all zero. `None` if such a call cannot be predicted.
    pub fn passing(
        &mut self,
        signature: &Signature,
        zeros: u32,
        arguments: &[ExtraArgument],
    ) -> Option<u32> {
        // Addresses that a call passes are all in registers at once: many take more than the sum of
        // each alone.
        if arguments.len() > cost::MAX_COUNTED_ARGUMENTS {
            let arguments = arguments.iter().map(with_equal_cost);
            let arguments: Vec<ExtraArgument> = arguments.collect();
            return self.more_than_a_call(signature, &arguments);
        }
        let mut size = i64::from(zeros);
        for argument in arguments {
            size += self.argument(argument)?;
        }
        Some(u32::try_from(size).unwrap_or(0))
    }

    /// The size of a thunk that passes these arguments, in bytes. `None` if there is none.
    pub fn thunk(
        &mut self,
        signature: &Signature,
        arguments: &[ExtraArgument],
        observes_its_frame: bool,
    ) -> Option<u32> {
        if let Some(size) = self.raw_thunk(signature, arguments) {
            return Some(size);
        }
        if observes_its_frame || !self.options.target.has_call_thunk(signature) {
            return None;
        }
        // As it is emitted: whether it needs a frame, which arguments go on the stack and which are
        // equal depends on all of them.
        self.probe(signature, arguments, true)
    }
}
