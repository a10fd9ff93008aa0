//! Bodies of an embedder, with predicted sizes in place of compiled ones.

use super::{Scratch, SizeModel};
use crate::unit::{
    Bodies, Candidate, CodeSizes, DataIndex, DataObject, FunctionIndex, SharedBodies,
};
use alloc::string::String;
use cranelift_codegen::ir::{Function, UserExternalName};

/// The bodies of an embedder, who is never asked for a size: a model predicts them.
pub(crate) struct Predicted<'a> {
    bodies: &'a mut dyn Bodies,
    model: SizeModel,
    scratch: Scratch,
}

impl<'a> Predicted<'a> {
    pub fn new(bodies: &'a mut dyn Bodies, model: SizeModel) -> Self {
        Predicted { bodies, model, scratch: Scratch::default() }
    }
}

impl Bodies for Predicted<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        self.bodies.body(function)
    }

    fn data(&mut self, data: DataIndex) -> Option<&DataObject> {
        self.bodies.data(data)
    }

    fn code_sizes(&mut self) -> Option<&mut dyn CodeSizes> {
        Some(self)
    }

    fn fresh_symbol(&mut self, members: &[FunctionIndex]) -> Option<UserExternalName> {
        self.bodies.fresh_symbol(members)
    }

    fn link_name(&mut self, symbol: &UserExternalName) -> Option<String> {
        self.bodies.link_name(symbol)
    }

    fn shared(&self) -> Option<&dyn SharedBodies> {
        self.bodies.shared()
    }

    fn probe_callee(&mut self) -> UserExternalName {
        self.bodies.probe_callee()
    }
}

impl CodeSizes for Predicted<'_> {
    /// Identical merging compares this with the bytes of a thunk: in doubt, a function is kept.
    fn of_function(&mut self, function: FunctionIndex) -> Option<u32> {
        self.model.at_least(self.bodies.body(function), &mut self.scratch)
    }

    fn of_thunk(&mut self, _: FunctionIndex, thunk: &Function) -> Option<u32> {
        self.model.predict_with(thunk, &mut self.scratch)
    }

    fn of_candidate(&mut self, candidate: &Candidate) -> Option<u32> {
        self.model.predict_with(&candidate.func, &mut self.scratch)
    }
}
