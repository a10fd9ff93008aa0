//! Sizes in bytes: of bodies, of passing arguments, of thunks, each as the back end compiles it, or as a model predicts
//! it (`size`).
//!
//! Bodies are measured as they would be emitted. The cost of passing extra arguments at a call is the difference
//! between a function that calls with them and one that calls without. It depends on the signature, and for each
//! argument on the cost of computing it, so little has to be compiled. A size that has to be asked for is not there at
//! once ([`Needs`]): sizes are asked for in batches, so that the embedder can compile them on its own threads. This
//! module decides nothing.

use super::cost;
use crate::apply::call_thunk;
use crate::extra_argument::ExtraArgument;
use crate::options::Options;
use crate::size::{self, SizeModel};
use crate::target::CallThunks;
use crate::unit::{Bodies, CandidateToken, FunctionIndex};
use alloc::boxed::Box;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, Signature, Type, UserExternalName, UserFuncName};
use cranelift_codegen::isa::CallConv;
use hashbrown::{Equivalent, HashMap};
use rustc_hash::FxBuildHasher;

/// A function that only calls, and whose size says what that costs: probes are never emitted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Probe {
    /// The signature of the function itself.
    signature: Signature,
    /// What it passes besides its own arguments.
    arguments: Vec<ExtraArgument>,
    /// Whether it is a thunk as it would be emitted. If not, it has no tail call: it measures an ordinary call.
    is_thunk: bool,
}

/// The same, borrowed.
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
    /// The function itself, which calls `callee`.
    pub fn function(&self, callee: &UserExternalName, options: &Options<'_>) -> Function {
        let Probe { signature, arguments, is_thunk } = self;
        let ordinary = CallThunks { tail_calls: false, colocated: true };
        let how = options.call_thunks.filter(|_| *is_thunk).unwrap_or(ordinary);
        call_thunk(UserFuncName::default(), signature, arguments, callee, &how)
    }
}

/// The sizes of probes.
#[derive(Default)]
pub(super) struct Probed(HashMap<Probe, Option<u32>, FxBuildHasher>);

impl Probed {
    pub fn insert(&mut self, probe: Probe, size: Option<u32>) {
        self.0.insert(probe, size);
    }

    /// Adds the sizes of `other`, and leaves it empty.
    pub fn append(&mut self, other: &mut Probed) {
        self.0.extend(other.0.drain());
    }

    /// How many probes there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// Where sizes come from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Predicted(SizeModel),
    /// The embedder is asked.
    Asked,
    /// They are not known.
    Unknown,
}

impl Source {
    /// Where sizes come from with these options.
    pub fn of(options: &Options<'_>, bodies: &mut dyn Bodies) -> Source {
        match options.predicts() {
            Some(model) => Source::Predicted(model),
            None if bodies.code_sizes().is_some() => Source::Asked,
            None => Source::Unknown,
        }
    }
}

/// A size that is to be asked for.
pub(super) enum Request {
    Probe(Probe),
    /// Of a function as the plan leaves it so far.
    Function(FunctionIndex, Box<Function>),
    /// Of a parameterised body, and whether it may be emitted as it is.
    Body(Box<Function>, bool),
}

/// A size is not known yet: [`Sizes::request`] says which. What asked for it is to be done once more when it is.
pub(super) struct Needs;

/// The size of a body, if it can be compiled, and the token under which its code may be kept.
#[derive(Clone, Copy, Default)]
pub(super) struct Answer {
    pub size: Option<u32>,
    pub token: Option<CandidateToken>,
}

/// What a thread keeps between pieces of work.
#[derive(Default)]
pub(super) struct OwnSizes {
    /// Probes whose sizes were predicted since all threads know the same ones.
    pub probed: Probed,
    scratch: size::Scratch,
}

/// The sizes for one set of functions.
pub(super) struct Sizes<'a> {
    pub options: &'a Options<'a>,
    /// The function that probes call.
    pub callee: &'a UserExternalName,
    pub source: Source,
    /// Sizes that all threads know.
    pub known: &'a Probed,
    pub own: &'a mut OwnSizes,
    /// The sizes of the bodies that the part in hand asks for, in this order, as far as they are known.
    pub answers: Vec<Answer>,
    /// How many of them were used.
    pub used: usize,
    pub request: Option<Request>,
    /// Bytes and instructions of what was predicted, and how many functions that were.
    pub predicted: [i64; 2],
    pub count: usize,
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

impl<'a> Sizes<'a> {
    /// Without answers to what was asked for.
    pub fn new(
        options: &'a Options<'a>,
        callee: &'a UserExternalName,
        source: Source,
        known: &'a Probed,
        own: &'a mut OwnSizes,
    ) -> Sizes<'a> {
        let (answers, used, request, predicted, count) = Default::default();
        Sizes { options, callee, source, known, own, answers, used, request, predicted, count }
    }

    fn probe(
        &mut self,
        signature: &Signature,
        arguments: &[ExtraArgument],
        is_thunk: bool,
    ) -> Result<Option<u32>, Needs> {
        let probe = ProbeRef { signature, arguments, is_thunk };
        if let Some(&size) = self.known.0.get(&probe).or_else(|| self.own.probed.0.get(&probe)) {
            return Ok(size);
        }
        let probe = Probe { signature: signature.clone(), arguments: arguments.to_vec(), is_thunk };
        match self.source {
            Source::Predicted(model) => {
                let func = probe.function(self.callee, self.options);
                let size = model.predict_with(&func, &mut self.own.scratch);
                self.own.probed.insert(probe, size);
                Ok(size)
            }
            Source::Asked => {
                self.request = Some(Request::Probe(probe));
                Err(Needs)
            }
            Source::Unknown => Ok(None),
        }
    }

    /// The bytes of a thunk or of a function that calls, predicted where they can be: for deciding what to examine more
    /// closely. `None` if there is no such function.
    pub fn roughly(
        &mut self,
        signature: &Signature,
        arguments: &[ExtraArgument],
        is_thunk: bool,
    ) -> Result<Option<i64>, Needs> {
        if is_thunk {
            if let Some(size) = self.raw_thunk(signature, arguments) {
                return Ok(Some(size.into()));
            }
            if !self.has_call_thunk(signature) {
                return Ok(None);
            }
        }
        let size = match (self.source, self.options.target.size_model) {
            (Source::Asked, Some(model)) => {
                let arguments = arguments.to_vec();
                let probe = Probe { signature: signature.clone(), arguments, is_thunk };
                self.guess(model, &probe.function(self.callee, self.options))
            }
            _ => self.probe(signature, arguments, is_thunk)?,
        };
        Ok(size.map(i64::from))
    }

    /// The bytes of a thunk that needs no compiling. `None` if there is none.
    fn raw_thunk(&self, signature: &Signature, arguments: &[ExtraArgument]) -> Option<u32> {
        let Options { target, similar, .. } = self.options;
        let optimize = similar.policy.optimize_for();
        let code = target.thunk_code(signature, arguments, self.callee, optimize)?;
        Some(code.size())
    }

    /// Whether a function of this signature can be a call thunk, if it does not observe its frame.
    fn has_call_thunk(&self, signature: &Signature) -> bool {
        let grows = |how: CallThunks| signature.call_conv == CallConv::Tail && !how.tail_calls;
        self.options.call_thunks.is_some_and(|how| !grows(how))
    }

    /// Whether a function of this signature can be a thunk that passes these arguments.
    pub fn has_thunk(
        &self,
        signature: &Signature,
        arguments: &[ExtraArgument],
        observes_its_frame: bool,
    ) -> bool {
        self.raw_thunk(signature, arguments).is_some()
            || !observes_its_frame && self.has_call_thunk(signature)
    }

    /// The predicted bytes of a function, as a guess: it does not count as measured.
    pub fn guess(&mut self, model: SizeModel, func: &Function) -> Option<u32> {
        model.predict_with(func, &mut self.own.scratch)
    }

    /// Bytes of a function that passes one argument, which costs as much to compute as this one.
    fn computing(&mut self, argument: &ExtraArgument) -> Result<Option<u32>, Needs> {
        let argument = with_equal_cost(argument, self.callee);
        // A convention that every back end has.
        let signature = Signature::new(CallConv::Fast);
        self.probe(&signature, core::slice::from_ref(&argument), false)
    }

    /// What it takes to compute an argument beyond a zero of its type.
    fn argument(&mut self, argument: &ExtraArgument) -> Result<Option<i64>, Needs> {
        let zero = ExtraArgument::Constant { ty: argument.ty(), bits: 0 };
        let own = self.computing(argument)?;
        let zero = self.computing(&zero)?;
        Ok(own.zip(zero).map(|(own, zero)| i64::from(own) - i64::from(zero)))
    }

    /// The bytes by which a call with zeros of these types as extra arguments is larger than one without. `None` if such
    /// a call cannot be compiled.
    pub fn passing_zeros(
        &mut self,
        signature: &Signature,
        types: impl Iterator<Item = Type>,
    ) -> Result<Option<u32>, Needs> {
        let zeros: Vec<ExtraArgument> =
            types.map(|ty| ExtraArgument::Constant { ty, bits: 0 }).collect();
        self.more_than_a_call(signature, &zeros)
    }

    /// The bytes by which a call with these extra arguments is larger than one without. `None` if such a call cannot be
    /// compiled.
    fn more_than_a_call(
        &mut self,
        signature: &Signature,
        arguments: &[ExtraArgument],
    ) -> Result<Option<u32>, Needs> {
        let with = self.probe(signature, arguments, false)?;
        let without = self.probe(signature, &[], false)?;
        Ok(with.zip(without).map(|(with, without)| with.saturating_sub(without)))
    }

    /// The bytes that it takes to pass these arguments at a call of this signature, `zeros` more than a call without takes
    /// if they were all zero. `None` if such a call cannot be compiled.
    pub fn passing(
        &mut self,
        signature: &Signature,
        zeros: u32,
        arguments: &[ExtraArgument],
    ) -> Result<Option<u32>, Needs> {
        // Addresses that a call passes are all in registers at once: many take more than the sum of each alone.
        if let Source::Predicted(_) = self.source
            && arguments.len() > cost::MAX_COUNTED_ARGUMENTS
        {
            let arguments = arguments.iter().map(|it| with_equal_cost(it, self.callee));
            let arguments: Vec<ExtraArgument> = arguments.collect();
            return self.more_than_a_call(signature, &arguments);
        }
        let mut size = i64::from(zeros);
        for argument in arguments {
            let Some(own) = self.argument(argument)? else {
                return Ok(None);
            };
            size += own;
        }
        Ok(Some(u32::try_from(size).unwrap_or(0)))
    }

    /// The size of a thunk that passes these arguments, in bytes. `None` if there is none.
    pub fn thunk(
        &mut self,
        signature: &Signature,
        arguments: &[ExtraArgument],
        observes_its_frame: bool,
    ) -> Result<Option<u32>, Needs> {
        if let Some(size) = self.raw_thunk(signature, arguments) {
            return Ok(Some(size));
        }
        if observes_its_frame || !self.has_call_thunk(signature) {
            return Ok(None);
        }
        // As it is emitted: whether it needs a frame, which arguments go on the stack and which are equal depends on all
        // of them.
        self.probe(signature, arguments, true)
    }

    /// Bytes of a function as the plan leaves it so far, `func`.
    pub fn of_function(
        &mut self,
        function: FunctionIndex,
        func: &Function,
    ) -> Result<Option<u32>, Needs> {
        match self.source {
            Source::Predicted(model) => Ok(self.predict(model, func)),
            Source::Asked => {
                self.request = Some(Request::Function(function, Box::new(func.clone())));
                Err(Needs)
            }
            Source::Unknown => Ok(None),
        }
    }

    /// Bytes of a parameterised body, which may be emitted as it is unless it calls itself: it has no symbol yet.
    pub fn of_body(&mut self, body: &Function, calls_itself: bool) -> Result<Answer, Needs> {
        match self.source {
            Source::Predicted(model) => Ok(Answer { size: self.predict(model, body), token: None }),
            Source::Asked => match self.answers.get(self.used) {
                Some(&answer) => {
                    self.used += 1;
                    Ok(answer)
                }
                None => {
                    self.request = Some(Request::Body(Box::new(body.clone()), !calls_itself));
                    Err(Needs)
                }
            },
            Source::Unknown => Ok(Answer::default()),
        }
    }

    fn predict(&mut self, model: SizeModel, func: &Function) -> Option<u32> {
        let size = self.guess(model, func)?;
        self.predicted[0] += i64::from(size);
        self.predicted[1] += func.dfg.num_insts() as i64;
        self.count += 1;
        Some(size)
    }
}
