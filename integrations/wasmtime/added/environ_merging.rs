//! Merging of functions: what a compiler does.

use crate::prelude::*;
use crate::{CompiledFunctionBody, FuncKey, Sharing};
use std::any::Any;

/// A function that was translated and not compiled, as it was read on the thread that translated
/// it.
pub type Reading = Box<dyn Any + Send>;

/// A body that is not compiled yet.
pub struct Merged {
    /// Where its code is: the key of a function, or a new one.
    pub key: FuncKey,
    /// It has source locations of this function.
    pub like: FuncKey,
}

/// Whom a function calls directly.
#[derive(Default)]
pub struct Calls {
    /// The functions of its module that it calls.
    pub calls: Vec<FuncKey>,
    /// Those that it tail-calls. `None` if these can be others as well.
    pub tail_calls: Option<Vec<FuncKey>>,
}

/// Merges functions of one module or component.
pub trait FunctionMerger: Send + Sync {
    /// Reads a function that was translated. `outside` if more than direct calls refers to it. On
    /// any thread.
    fn read(&self, key: FuncKey, func: CompiledFunctionBody, outside: bool) -> Reading;

    /// Adds a function that was read.
    fn add(&mut self, key: FuncKey, reading: Reading);

    /// Says that there is a function that is not added, and whom it calls.
    fn add_other(&mut self, key: FuncKey, calls: Calls);

    /// Decides what becomes of all functions that were added: which have code, and which share it.
    /// `translate` translates one of them again. On all threads of `rayon`, if `parallel`.
    fn plan(
        &mut self,
        translate: &(dyn Fn(FuncKey) -> Result<CompiledFunctionBody> + Sync),
        parallel: bool,
    ) -> Result<(Vec<Merged>, Sharing)>;

    /// The code to compile under a key: a body of the plan, once, or a function that was not added
    /// and is translated. On any thread.
    fn finish(&self, key: FuncKey, func: Option<CompiledFunctionBody>) -> CompiledFunctionBody;

    /// Says, for backtraces, to which functions frames of this code can belong, once all of it is
    /// compiled.
    fn record_frames(self: Box<Self>, code: &[(FuncKey, &dyn Any)], sharing: &mut Sharing);
}
