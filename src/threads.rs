//! Work on several functions at a time: with the feature `parallel`, on the threads of the current
//! `rayon` pool.
//!
//! Each piece of work sees the unit and earlier decisions, and writes only its own result;
//! what depends on the order is done afterwards, by the caller. So no result depends on the number
//! of threads. It starts no threads itself.

use crate::unit::Bodies;
#[cfg(feature = "parallel")]
use crate::unit::{DataIndex, DataObject, FunctionIndex, SyncBodies};
use alloc::vec::Vec;
#[cfg(feature = "parallel")]
use cranelift_codegen::ir::Function;

#[cfg(feature = "parallel")]
type Shared<T> = std::sync::Mutex<T>;
#[cfg(not(feature = "parallel"))]
type Shared<T> = core::cell::RefCell<T>;

/// Reusable memory of pieces of work, one for each thread that works at the same time.
pub(crate) struct Pool<S> {
    free: Shared<Vec<S>>,
}

impl<S> Default for Pool<S> {
    fn default() -> Self {
        Pool { free: Shared::default() }
    }
}

impl<S> Pool<S> {
    /// Memory that is not in use; `new` makes some if there is none.
    pub fn take(&self, new: impl FnOnce() -> S) -> S {
        let free = self.with(Vec::pop);
        free.unwrap_or_else(new)
    }

    /// Gives memory back. Work that panics does not.
    pub fn put(&self, memory: S) {
        self.with(|free| free.push(memory));
    }

    #[cfg(feature = "parallel")]
    fn with<R>(&self, work: impl FnOnce(&mut Vec<S>) -> R) -> R {
        // A thread that panics holds no lock.
        work(&mut self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    #[cfg(not(feature = "parallel"))]
    fn with<R>(&self, work: impl FnOnce(&mut Vec<S>) -> R) -> R {
        work(&mut self.free.borrow_mut())
    }

    /// The results of the work.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut S> {
        #[cfg(feature = "parallel")]
        let free = self.free.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        #[cfg(not(feature = "parallel"))]
        let free = self.free.get_mut();
        free.iter_mut()
    }
}

/// Whether work can be done by several threads at a time.
pub(crate) fn are_several(bodies: &dyn Bodies) -> bool {
    #[cfg(feature = "parallel")]
    return bodies.sync().is_some() && rayon::current_num_threads() > 1;
    #[cfg(not(feature = "parallel"))]
    return {
        let _ = bodies;
        false
    };
}

/// Does `work` on each of `items`, by all threads if `bodies` can be shared among them.
pub(crate) fn for_each<T: Send, S: Default + Send>(
    bodies: &mut dyn Bodies,
    pool: &Pool<S>,
    items: &mut [T],
    work: impl Fn(&mut dyn Bodies, &mut S, &mut T) + Sync,
) {
    #[cfg(feature = "parallel")]
    if items.len() > 1
        && are_several(bodies)
        && let Some(shared) = bodies.sync()
    {
        use rayon::iter::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};
        items.par_iter_mut().with_max_len(1).for_each(|item| {
            let mut scratch = pool.take(S::default);
            work(&mut OneOf(&*shared), &mut scratch, item);
            pool.put(scratch);
        });
        return;
    }
    let mut scratch = pool.take(S::default);
    for item in items {
        work(bodies, &mut scratch, item);
    }
    pool.put(scratch);
}

/// The bodies of a unit, as one of several threads asks for them.
#[cfg(feature = "parallel")]
struct OneOf<'a>(&'a dyn SyncBodies);

#[cfg(feature = "parallel")]
impl Bodies for OneOf<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        self.0.body(function)
    }

    fn data(&mut self, data: DataIndex) -> Option<&DataObject> {
        self.0.data(data)
    }
}
