//! Work on several functions at a time.
//!
//! The results do not depend on the number of threads: they are in the order of the work. Messages
//! and files come from them, so they do not, either.

use crate::STACK_BYTES;
use anyhow::{Context as _, Result};
use rayon::ThreadPool;
use rayon::iter::{IndexedParallelIterator as _, IntoParallelIterator as _, ParallelIterator as _};
use std::cmp::Reverse;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

/// How many threads work.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
#[command(next_help_heading = "General")]
pub struct JobsArg {
    /// Work on N functions at a time; without this option, one for each processor
    ///
    /// The output does not depend on it, but for the times that are printed: they are wall-clock
    /// times with N jobs, with and without merging.
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

impl JobsArg {
    /// Starts the threads. There is none but the present one for one job, and where the system
    /// refuses others, as with little memory for their stacks.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread that the user has asked for.
    pub fn start(self) -> Result<Jobs> {
        let jobs = self.jobs.or_else(|| std::thread::available_parallelism().ok());
        let jobs = jobs.map_or(1, NonZeroUsize::get);
        if jobs == 1 {
            return Ok(Jobs::ONE);
        }
        let builder = rayon::ThreadPoolBuilder::new().num_threads(jobs).stack_size(STACK_BYTES);
        match builder.build() {
            Ok(pool) => Ok(Jobs { pool: Some(pool) }),
            Err(_) if self.jobs.is_none() => Ok(Jobs::ONE),
            Err(error) => Err(error).with_context(|| format!("cannot start {jobs} threads")),
        }
    }
}

/// The threads.
pub struct Jobs {
    pool: Option<ThreadPool>,
}

impl Jobs {
    /// The present thread.
    pub const ONE: Jobs = Jobs { pool: None };

    /// How many there are.
    pub fn count(&self) -> usize {
        self.pool.as_ref().map_or(1, ThreadPool::current_num_threads)
    }

    /// Runs something that uses the current pool.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// The results of `work` on all items, in their order. Items of large weight are begun first.
    pub fn map<T: Send, R: Send, U: Send>(
        &self,
        items: Vec<T>,
        weight: impl Fn(&T) -> usize,
        tools: &Tools<'_, U>,
        work: impl Fn(&mut U, T) -> R + Sync,
    ) -> Vec<R> {
        let Some(pool) = &self.pool else {
            return tools.with(|tool| items.into_iter().map(|item| work(tool, item)).collect());
        };
        let mut items: Vec<(usize, T)> = items.into_iter().enumerate().collect();
        items.sort_by_key(|(_, item)| Reverse(weight(item)));
        let work = |(at, item)| (at, tools.with(|tool| work(tool, item)));
        let mut results: Vec<(usize, R)> =
            pool.install(|| items.into_par_iter().with_max_len(1).map(work).collect());
        results.sort_unstable_by_key(|&(at, _)| at);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

/// Tools of threads, one for each, such as the memory of a compiler.
pub struct Tools<'a, U> {
    make: &'a (dyn Fn() -> U + Sync),
    idle: Mutex<Vec<U>>,
}

impl<'a, U> Tools<'a, U> {
    /// Tools that are made when they are needed.
    pub fn new(make: &'a (dyn Fn() -> U + Sync)) -> Tools<'a, U> {
        Tools { make, idle: Mutex::default() }
    }

    fn with<R>(&self, work: impl FnOnce(&mut U) -> R) -> R {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let free = idle().pop();
        let mut tool = free.unwrap_or_else(self.make);
        let result = work(&mut tool);
        idle().push(tool);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::{JobsArg, Tools};
    use std::num::NonZeroUsize;

    #[test]
    fn results_are_in_the_order_of_the_work() {
        for jobs in [1, 2, 7] {
            let jobs = JobsArg { jobs: NonZeroUsize::new(jobs) }.start().expect("threads");
            let items: Vec<usize> = (0..1000).collect();
            let tools = Tools::new(&|| ());
            let doubled = jobs.map(items, |&item| item % 10, &tools, |(), item| item * 2);
            assert!(doubled.into_iter().eq((0..1000).map(|item| item * 2)));
        }
    }
}
