//! The deferred definitions, as the pass asks for them.
//!
//! Sizes of candidates are those of code compiled here. In a module that takes compiled functions (`parallel`), they are
//! compiled on several threads, and the code of candidates that may be emitted is kept until they are. It redirects and
//! defines nothing.

use super::flush::{ADDED, Unit};
use super::{Definition, Pending};
use crate::threads::Pool;
use crate::unit::{
    Bodies, Candidate, CandidateToken, CodeSizes, DataIndex, DataObject, FunctionIndex,
    SharedBodies,
};
use alloc::string::String;
#[cfg(feature = "parallel")]
use alloc::vec::Vec;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::{CompiledCode, Context};
use cranelift_entity::EntityRef;
use cranelift_module::{DataId, FuncId, ModuleDeclarations};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

impl Pending {
    pub(super) fn func(&self, unit: &Unit, function: FunctionIndex) -> &Function {
        match &self.functions[unit.place[function.index()]].1 {
            Definition::Body { func, .. } => func,
            Definition::Bytes { .. } => unreachable!("only functions with IR are in the unit"),
        }
    }
}

/// The deferred functions and data objects.
#[derive(Clone, Copy)]
pub(super) struct Deferred<'a> {
    pub pending: &'a Pending,
    pub unit: &'a Unit,
}

impl<'a> Deferred<'a> {
    pub fn function(self, function: FunctionIndex) -> &'a Function {
        self.pending.func(self.unit, function)
    }
}

impl SharedBodies for Deferred<'_> {
    fn body(&self, function: FunctionIndex) -> &Function {
        self.function(function)
    }

    fn data(&self, data: DataIndex) -> Option<&DataObject> {
        Some(&self.unit.data[data.index()].2)
    }
}

/// Candidates that may be emitted: the function, and its code.
pub(super) type Candidates = HashMap<CandidateToken, (Function, CompiledCode), FxBuildHasher>;

/// The same as the pass requests them, with what it takes to compile code in order to know its size.
pub(super) struct DeferredBodies<'a> {
    pub deferred: Deferred<'a>,
    pub isa: &'a dyn TargetIsa,
    pub declarations: &'a ModuleDeclarations,
    /// The number of the next new body.
    pub fresh: u32,
    /// Whether the pass works on several threads, and code is kept.
    pub ahead: bool,
    pub contexts: Pool<Context>,
    pub candidates: Candidates,
}

impl DeferredBodies<'_> {
    fn size_of(&mut self, func: &Function) -> Option<u32> {
        compile(&self.contexts, self.isa, func).as_ref().map(size)
    }
}

fn compile(contexts: &Pool<Context>, isa: &dyn TargetIsa, func: &Function) -> Option<CompiledCode> {
    let mut context = contexts.take(Context::new);
    context.clear();
    context.func.clone_from(func);
    let compiled = context.compile(isa, &mut ControlPlane::default()).is_ok();
    let code = context.take_compiled_code().filter(|_| compiled);
    contexts.put(context);
    code
}

fn size(code: &CompiledCode) -> u32 {
    code.code_info().total_size
}

impl Bodies for DeferredBodies<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        self.deferred.function(function)
    }

    fn data(&mut self, data: DataIndex) -> Option<&DataObject> {
        Some(&self.deferred.unit.data[data.index()].2)
    }

    fn code_sizes(&mut self) -> Option<&mut dyn CodeSizes> {
        Some(self)
    }

    fn fresh_symbol(&mut self, _: &[FunctionIndex]) -> Option<UserExternalName> {
        let symbol = UserExternalName::new(ADDED, self.fresh);
        self.fresh += 1;
        Some(symbol)
    }

    fn link_name(&mut self, symbol: &UserExternalName) -> Option<String> {
        let UserExternalName { namespace, index } = *symbol;
        let (linkage, name) = match namespace {
            0 => {
                let declaration = self.declarations.get_function_decl(FuncId::from_u32(index));
                (declaration.linkage, &declaration.name)
            }
            1 => {
                let declaration = self.declarations.get_data_decl(DataId::from_u32(index));
                (declaration.linkage, &declaration.name)
            }
            _ => return None,
        };
        name.clone().filter(|_| linkage != cranelift_module::Linkage::Local)
    }

    fn shared(&self) -> Option<&dyn SharedBodies> {
        self.ahead.then_some(&self.deferred)
    }
}

impl CodeSizes for DeferredBodies<'_> {
    fn of_function(&mut self, function: FunctionIndex) -> Option<u32> {
        self.size_of(self.deferred.function(function))
    }

    fn of_thunk(&mut self, _: FunctionIndex, thunk: &Function) -> Option<u32> {
        self.size_of(thunk)
    }

    fn of_candidate(&mut self, candidate: &Candidate) -> Option<u32> {
        self.size_of(&candidate.func)
    }

    /// On the threads of the current pool, where code can be handed over.
    #[cfg(feature = "parallel")]
    fn of_candidates(&mut self, candidates: &[Candidate]) -> Vec<Option<u32>> {
        use rayon::iter::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};
        if !self.ahead {
            return candidates.iter().map(|candidate| self.of_candidate(candidate)).collect();
        }
        let (contexts, isa) = (&self.contexts, self.isa);
        let work = |candidate: &Candidate| {
            let code = compile(contexts, isa, &candidate.func)?;
            Some((size(&code), candidate.token.map(|token| (token, candidate.func.clone(), code))))
        };
        let compiled: Vec<_> = candidates.par_iter().with_max_len(1).map(work).collect();
        let mut sizes = Vec::with_capacity(compiled.len());
        for compiled in compiled {
            let (size, kept) = compiled.unzip();
            sizes.push(size);
            if let Some((token, func, code)) = kept.flatten() {
                self.candidates.insert(token, (func, code));
            }
        }
        sizes
    }
}
