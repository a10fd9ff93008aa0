//! What the embedder hands out: bodies, data objects, sizes of native code, fresh symbols.

use super::{DataIndex, DataObject, FunctionIndex};
use alloc::string::String;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::{EntityRef, entity_impl};

/// Hands out the bodies of a unit's functions.
///
/// The caller owns the functions; the pass requests those it needs, in an order of its own, some
/// of them twice.
///
/// An implementor must ensure that
/// * a body is the same whenever it is requested, and the one given to [`Merger::add`](crate::Merger::add);
/// * it passes Cranelift's verifier.
///
/// Failure to uphold these may result in functions that are not merged, in panics, or, if bodies
/// change in between, in wrong merges.
pub trait Bodies {
    /// The body of `function`.
    fn body(&mut self, function: FunctionIndex) -> &Function;

    /// The contents of `data`. Requested only if data objects were added. An object whose contents are not available
    /// is not merged. Default: none are.
    fn data(&mut self, data: DataIndex) -> Option<&DataObject> {
        let _ = data;
        None
    }

    /// The sizes of native code. Requested only where a decision depends on one, and not where sizes are predicted
    /// ([`Target::size_model`](crate::Target::size_model)). Default: not known, and then a merge
    /// that pays only if a body is large enough is not made, nor are similar functions merged, if sizes are not predicted.
    fn code_sizes(&mut self) -> Option<&mut dyn CodeSizes> {
        None
    }

    /// A symbol that nothing uses yet, for a private copy or a parameterised body that replaces `members`, ascending;
    /// a different one at each call. More functions may be merged into the body later, and with
    /// [`Policy::Size`](crate::Policy::Size) the body may be given up again: see
    /// [`NewBody::members`](crate::NewBody::members). Default: there are none, and functions that would need one are
    /// not merged.
    fn fresh_symbol(&mut self, members: &[FunctionIndex]) -> Option<UserExternalName> {
        let _ = members;
        None
    }

    /// The name by which linkers know a symbol that means the same function or data object in all units: not one that only
    /// this unit can see. A content-addressed body ([`Options::content_addressing`](crate::Options::content_addressing)) refers
    /// to nothing else but other such bodies. Two symbols must not have one name. Default: none has any.
    fn link_name(&mut self, symbol: &UserExternalName) -> Option<String> {
        let _ = symbol;
        None
    }

    /// The same functions, for several threads at a time. With the feature `parallel`, the pass then works on all
    /// threads of the current `rayon` pool, with the same result. Default: none, and the pass works on one thread.
    fn shared(&self) -> Option<&dyn SharedBodies> {
        None
    }

    /// The symbol of the function that probes call: candidates that are never emitted, and whose size says what a call
    /// costs. It is also the name of candidates. No function of the unit may have it. Default:
    /// `u4294967295:4294967295`.
    fn probe_callee(&mut self) -> UserExternalName {
        UserExternalName::new(u32::MAX, u32::MAX)
    }
}

/// Hands out the bodies of a unit's functions to several threads at a time, with the obligations of [`Bodies`].
pub trait SharedBodies: Sync {
    /// The body of `function`.
    fn body(&self, function: FunctionIndex) -> &Function;

    /// The contents of `data`: see [`Bodies::data`].
    fn data(&self, data: DataIndex) -> Option<&DataObject> {
        let _ = data;
        None
    }
}

/// A function whose size is asked for: a body that may be emitted, or a probe.
///
/// An embedder that names new bodies for the functions that they replace, keeps the code of candidates, and does not compile
/// them again:
///
/// ```
/// # use cranelift_mergefunc::cranelift_codegen::control::ControlPlane;
/// # use cranelift_mergefunc::cranelift_codegen::ir::{Function, UserExternalName};
/// # use cranelift_mergefunc::cranelift_codegen::isa::{self, TargetIsa};
/// # use cranelift_mergefunc::cranelift_codegen::{CompiledCode, Context, settings};
/// # use cranelift_mergefunc::{
/// #     Attributes, Bodies, Candidate, CandidateToken, CodeSizes, FunctionIndex, Linkage, Merger, Options, Policy, Similar,
/// #     Target, cranelift_codegen,
/// # };
/// # use std::collections::HashMap;
/// struct Unit<'a> {
///     functions: Vec<Function>,
///     isa: &'a dyn TargetIsa,
///     compiled: HashMap<CandidateToken, CompiledCode>,
///     /// The functions that each new body was made for, by the index of its symbol.
///     replaced: Vec<Vec<FunctionIndex>>,
/// }
///
/// impl Unit<'_> {
///     fn compile(&self, func: &Function) -> Option<CompiledCode> {
///         let mut context = Context::for_function(func.clone());
///         context.compile(self.isa, &mut ControlPlane::default()).ok()?;
///         context.take_compiled_code()
///     }
/// }
///
/// impl Bodies for Unit<'_> {
///     fn body(&mut self, function: FunctionIndex) -> &Function {
///         &self.functions[function.as_u32() as usize]
///     }
///
///     fn code_sizes(&mut self) -> Option<&mut dyn CodeSizes> {
///         Some(self)
///     }
///
///     fn fresh_symbol(&mut self, members: &[FunctionIndex]) -> Option<UserExternalName> {
///         self.replaced.push(members.to_vec());
///         Some(UserExternalName::new(1, self.replaced.len() as u32 - 1))
///     }
/// }
///
/// impl CodeSizes for Unit<'_> {
///     fn of_candidate(&mut self, candidate: &Candidate) -> Option<u32> {
///         let code = self.compile(&candidate.func)?;
///         let size = code.code_info().total_size;
///         if let Some(token) = candidate.token {
///             self.compiled.insert(token, code);
///         }
///         Some(size)
///     }
///
///     fn keeps_candidates(&self) -> bool {
///         true
///     }
///     # fn of_function(&mut self, function: FunctionIndex) -> Option<u32> {
///     #     Some(self.compile(&self.functions[function.as_u32() as usize])?.code_info().total_size)
///     # }
///     # fn of_thunk(&mut self, _: FunctionIndex, thunk: &Function) -> Option<u32> {
///     #     Some(self.compile(thunk)?.code_info().total_size)
///     # }
/// }
///
/// # let isa = isa::lookup_by_name("x86_64").unwrap();
/// # let isa = isa.finish(settings::Flags::new(settings::builder())).unwrap();
/// # let mut text = String::new();
/// # for number in 0..4 {
/// #     text += &format!("function u0:{number}(i64) -> i64 {{ block0(v0: i64): v1 = load.i64 v0+0 ");
/// #     for step in 2..12 {
/// #         text += &format!("v{step}0 = imul v{0}, v{0} v{step} = bxor v{step}0, v0 ", step - 1);
/// #     }
/// #     text += &format!("v99 = iconst.i64 {number} v98 = iadd v11, v99 return v98 }}\n");
/// # }
/// # let functions = cranelift_reader::parse_functions(&text).unwrap();
/// let options = Options {
///     target: Target::of(&*isa),
///     similar: Similar { policy: Policy::Size, ..Similar::default() },
///     ..Options::default()
/// };
/// let mut merger = Merger::new(options);
/// for func in &functions {
///     let symbol = func.name.get_user().unwrap().clone();
///     let attributes = Attributes { linkage: Linkage::Local, ..Attributes::default() };
///     merger.add(symbol, func, attributes).unwrap();
/// }
/// let (compiled, replaced) = Default::default();
/// let mut unit = Unit { functions, isa: &*isa, compiled, replaced };
/// let plan = merger.plan(&mut unit);
/// let mut reused = 0;
/// for new in plan.new_bodies() {
///     let symbol = new.body().name.get_user().unwrap();
///     println!("{symbol} replaces {:?}", unit.replaced[symbol.index as usize]);
///     let code = new.candidate().and_then(|token| unit.compiled.remove(&token));
///     reused += usize::from(code.is_some());
///     // Applies the plan to the body and compiles it where that is not so.
///     let code = code.or_else(|| {
///         let mut body = new.body().clone();
///         plan.apply(new.function(), &mut body, &options);
///         unit.compile(&body)
///     });
///     assert!(code.is_some());
/// }
/// assert_eq!(reused, 1);
/// ```
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The function, named by [`Bodies::probe_callee`]. It does not refer to its own name if it has a token.
    pub func: Function,
    /// If the function may be emitted as it is, under a symbol of its own: by what the plan says that it is
    /// ([`NewBody::candidate`](crate::NewBody::candidate)). An implementor that keeps the code with the token need not
    /// compile that body.
    pub token: Option<CandidateToken>,
}

/// Identifies a candidate that may be emitted, within a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CandidateToken(u32);
entity_impl!(CandidateToken, "candidate");

/// Determines how many bytes of native code functions take. `None` where that is not known, or where the function
/// cannot be compiled.
pub trait CodeSizes {
    /// The size of the native code of a function of the unit, as it was added, in bytes.
    fn of_function(&mut self, function: FunctionIndex) -> Option<u32>;

    /// The size in bytes of the native code of `thunk`, a function that only calls another one
    /// ([`call_thunk`](crate::call_thunk)) and could replace `function`. Requested only with
    /// [`Options::call_thunks`](crate::Options::call_thunks).
    fn of_thunk(&mut self, function: FunctionIndex, thunk: &Function) -> Option<u32>;

    /// The size in bytes of the native code of a candidate. Requested only with
    /// [`Options::similar`](crate::Options::similar). With [`Policy::Size`](crate::Policy::Size) the sum over the
    /// unit never grows, as long as all sizes are known and those of the code that is emitted.
    fn of_candidate(&mut self, candidate: &Candidate) -> Option<u32>;

    /// The sizes of several candidates, one for each, in their order; those that are missing at the end count as not
    /// known. They do not depend on each other, so they can be compiled on the embedder's own threads. Default: one after
    /// the other.
    fn of_candidates(&mut self, candidates: &[Candidate]) -> Vec<Option<u32>> {
        candidates.iter().map(|candidate| self.of_candidate(candidate)).collect()
    }

    /// Whether the code of candidates that may be emitted is kept, so that they need not be compiled a second time.
    /// Then all bodies that similar functions could share are compiled in order to decide; otherwise only the
    /// bodies for which it is in doubt whether they save bytes, and less is known of the others
    /// ([`SimilarSet::saved`](crate::SimilarSet::saved)). Default: no.
    fn keeps_candidates(&self) -> bool {
        false
    }
}

/// Functions in the order in which they were added.
impl SharedBodies for Vec<Function> {
    fn body(&self, function: FunctionIndex) -> &Function {
        &self[function.index()]
    }
}

/// Functions in the order in which they were added.
impl SharedBodies for &[Function] {
    fn body(&self, function: FunctionIndex) -> &Function {
        &self[function.index()]
    }
}

/// Functions in the order in which they were added.
impl Bodies for Vec<Function> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self[function.index()]
    }

    fn shared(&self) -> Option<&dyn SharedBodies> {
        Some(self)
    }
}

/// Functions in the order in which they were added.
impl Bodies for &[Function] {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self[function.index()]
    }

    fn shared(&self) -> Option<&dyn SharedBodies> {
        Some(self)
    }
}
