//! Merging of functions: what a compiler does, and what becomes of functions.

use crate::prelude::*;
use crate::{CompiledFunctionBody, FuncKey};
use std::any::Any;

/// A function that was translated and not compiled, as it was read on the thread that translated it.
pub type Reading = Box<dyn Any + Send>;

/// A body that is not compiled yet.
pub struct Merged {
    /// Where its code is: the key of a function, or a new one.
    pub key: FuncKey,
    /// By this number, [`FunctionMerger::body`] has it, once.
    pub number: u32,
    /// It has source locations of this function.
    pub like: FuncKey,
}

/// The functions that were added, after merging.
#[derive(Default)]
pub struct Merging {
    /// Those that have code, some of which are new ones.
    pub functions: Vec<Merged>,
    /// The functions that share a body with others.
    pub shared: Vec<Shared>,
}

/// A function that shares its body.
#[derive(Clone, Copy)]
pub struct Shared {
    /// The function.
    pub key: FuncKey,
    /// Where it has its code: under its own key, or under that of another function.
    pub code: FuncKey,
    /// Whose body runs in the end.
    pub body: FuncKey,
}

/// Merges functions of one module or component.
pub trait FunctionMerger: Send + Sync {
    /// Reads a function that was translated. `outside` if more than direct calls refers to it. On any thread.
    fn read(&self, key: FuncKey, func: CompiledFunctionBody, outside: bool) -> Reading;

    /// Adds a function that was read.
    fn add(&mut self, key: FuncKey, reading: Reading);

    /// Says that there is a function that is not added, and whom it calls.
    fn add_other(&mut self, key: FuncKey, calls: Vec<FuncKey>);

    /// Decides what becomes of all functions that were added. `translate` translates one of them again.
    fn plan(
        &mut self,
        translate: &mut dyn FnMut(FuncKey) -> Result<CompiledFunctionBody>,
    ) -> Result<Merging>;

    /// A body of the plan, to be compiled. On any thread.
    fn body(&self, number: u32) -> CompiledFunctionBody;
}
