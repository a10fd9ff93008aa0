//! Two JITs of the same program: does every function return the same?
//!
//! Functions are run whenever the modules are made ready to run, and addresses are compared that
//! the program could compare.

use super::{GoesOn, Pair, Threads};
use crate::isa;
use crate::jit::{self, Run};
use arbitrary::{Result, Unstructured};
use cranelift_jit::JITModule;
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::Linkage;

extern "C" fn outside(argument: i64) -> i64 {
    argument.wrapping_mul(31) + 7
}

static ZEROS: [u64; 8] = [0; 8];

/// An empty module. Every function that it does not have itself is the same one; every data object
/// is zeros.
fn module() -> JITModule {
    let isa = isa::native(&[("is_pic", "false"), ("use_colocated_libcalls", "false")]);
    jit::module(isa, |builder| {
        builder.symbol_lookup_fn(Box::new(|name| match name.as_bytes().first() {
            Some(b'f') => Some(outside as *const u8),
            Some(b'd') => Some(ZEROS.as_ptr().cast()),
            _ => None,
        }));
    })
}

/// Makes random calls on two JITs, and runs what they made.
pub(super) fn check(
    u: &mut Unstructured<'_>,
    mut options: ModuleOptions,
    threads: Threads,
) -> Result<()> {
    options.back_end = *u.choose(&[BackEnd::Jit, BackEnd::Jit, BackEnd::Any])?;
    u.ratio(1, 16)?;
    let merging = match threads {
        Threads::One => MergingModule::with_options(module(), options),
        Threads::Pool => MergingModule::in_parallel(module(), options),
    };
    let mut pair = Pair::new(module(), merging, false, false);
    let done = run(&mut pair, u);
    let Pair { bare, merging, calls: _calls, .. } = pair;
    jit::free(bare);
    // The module is lost with all that it holds if a flush failed.
    if let Ok((module, _)) = merging.into_inner() {
        jit::free(module);
    }
    done
}

fn run(pair: &mut Pair<JITModule>, u: &mut Unstructured<'_>) -> Result<()> {
    for _ in 0..u.int_in_range(4..=40)? {
        let went_on = match u.ratio(1, 16)? {
            true => pair.finalize(),
            false => pair.step(u)?,
        };
        if went_on.is_none() {
            return Ok(());
        }
    }
    pair.finalize();
    Ok(())
}

impl Pair<JITModule> {
    /// Makes everything ready to run, and runs it.
    fn finalize(&mut self) -> GoesOn {
        self.define_the_rest()?;
        self.calls.add("finalize_definitions".to_owned());
        if let Err(error) = self.merging.finalize_definitions() {
            panic!("finalize_definitions: {error}");
        }
        self.bare.finalize_definitions().expect("memory can be protected");
        self.everything_is_flushed();
        self.check_outcomes();
        for at in 0..self.functions.len() {
            self.functions[at].outside |= self.linkage(at) == Linkage::Import;
        }
        for at in 0..self.data.len() {
            self.data[at].outside |= self.data_linkage(at) == Linkage::Import;
        }
        let map = self.merging.finalized_map();
        let mut runs = Vec::new();
        for (at, handle) in self.functions.iter().enumerate() {
            if handle.shape.is_none() || handle.wide {
                continue;
            }
            let code = self.merging.get_finalized_function(handle.ids[1]);
            let bare = self.bare.get_finalized_function(handle.ids[0]);
            let pairs = (0..4).flat_map(|argument| [bare, code].map(|code| (at, code, argument)));
            runs.extend(pairs);
            assert_eq!(code as usize % handle.alignment() as usize, 0, "function {at} is aligned");
            let is_behind = map
                .originals_at(code as usize as u64)
                .any(|original| original.symbol.index == handle.ids[1].as_u32());
            assert!(is_behind, "function {at} is not behind its own code");
        }
        let calls: Vec<Run> =
            runs.iter().map(|&(_, code, number)| Run::with(code, number)).collect();
        let results = jit::run(&calls);
        for (pair, (at, _, argument)) in runs.iter().enumerate().step_by(2) {
            let [bare, merging] = [pair, pair + 1].map(|run| results.get(run));
            let shape = &self.functions[*at].shape;
            assert!(bare.is_some(), "function {at} of {argument} does not end: {shape:?}");
            assert_eq!(bare, merging, "function {at} of {argument}: {shape:?}");
        }
        let address = |at: usize| self.merging.get_finalized_function(self.functions[at].ids[1]);
        let mut addresses: Vec<(usize, usize)> =
            self.distinct().into_iter().map(|at| (address(at) as usize, at)).collect();
        addresses.sort_unstable();
        for pair in addresses.windows(2) {
            assert_ne!(pair[0].0, pair[1].0, "functions {} and {}", pair[0].1, pair[1].1);
        }
        Some(())
    }
}
