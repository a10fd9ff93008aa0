//! Merging of functions: what a compiler does, and what becomes of functions.

use crate::prelude::*;
use crate::{CompiledFunctionBody, FuncKey};
use std::any::Any;

/// A function that was translated and not compiled, as it was read on the thread that translated it.
pub type Reading = Box<dyn Any + Send>;

/// What a function has in the end.
pub enum Merged {
    /// The code that was compiled for this function: its own, or that of an equal one.
    Compiled(FuncKey),
    /// A body that is not compiled yet ([`FunctionMerger::body`]), by a number. It has source locations of this function.
    Body(u32, FuncKey),
}

/// The functions of a module or component after merging.
#[derive(Default)]
pub struct Merging {
    /// The functions that have code, some of which are new ones.
    pub functions: Vec<(FuncKey, Merged)>,
    /// The functions that share a body with others, ascending.
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

/// Merges the functions of one module or component.
pub trait FunctionMerger: Send + Sync {
    /// Reads a function that was translated. `outside` if more than direct calls refers to it.
    fn read(&self, key: FuncKey, func: &mut CompiledFunctionBody, outside: bool) -> Reading;

    /// Adds a function that was read. Returns it if it has to be compiled now.
    fn add(
        &mut self,
        key: FuncKey,
        reading: Reading,
        func: CompiledFunctionBody,
    ) -> Option<CompiledFunctionBody>;

    /// Decides what becomes of all functions that were added. `translate` translates one of them again.
    fn plan(
        &mut self,
        translate: &mut dyn FnMut(FuncKey) -> Result<CompiledFunctionBody>,
    ) -> Result<Merging>;

    /// A body of the plan, to be compiled. On any thread.
    fn body(&self, number: u32) -> CompiledFunctionBody;
}
