//! Two JITs of the same program: does every function return the same?
//!
//! Functions are run whenever the modules are made ready to run, and addresses are compared that the program could
//! compare.

use super::{GoesOn, Host, Pair};
use arbitrary::{Result, Unstructured};
use cranelift_jit::JITModule;
use cranelift_mergefunc::{BackEnd, ModuleOptions};
use cranelift_module::Linkage;

/// Makes random calls on two JITs, and runs what they made.
pub(super) fn check(
    u: &mut Unstructured<'_>,
    mut options: ModuleOptions,
    host: &mut dyn Host,
) -> Result<()> {
    options.back_end = *u.choose(&[BackEnd::Jit, BackEnd::Jit, BackEnd::Any])?;
    options.optimize = u.ratio(1, 16)?;
    let mut pair = Pair::new(host.jit(), host.jit(), options, false, false);
    let done = run(&mut pair, u, host);
    let Pair { bare, merging, calls: _calls, .. } = pair;
    host.free(bare);
    // The module is lost with all that it holds if a flush failed.
    if let Ok((jit, _)) = merging.into_inner() {
        host.free(jit);
    }
    done
}

fn run(pair: &mut Pair<JITModule>, u: &mut Unstructured<'_>, host: &mut dyn Host) -> Result<()> {
    for _ in 0..u.int_in_range(4..=40)? {
        let went_on = match u.ratio(1, 16)? {
            true => pair.finalize(host),
            false => pair.step(u)?,
        };
        if went_on.is_none() {
            return Ok(());
        }
    }
    pair.finalize(host);
    Ok(())
}

impl Pair<JITModule> {
    /// Makes everything ready to run, and runs it.
    fn finalize(&mut self, host: &mut dyn Host) -> GoesOn {
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
        for (at, handle) in self.functions.iter().enumerate() {
            if handle.shape.is_none() || handle.wide {
                continue;
            }
            let code = self.merging.get_finalized_function(handle.ids[1]);
            let bare = self.bare.get_finalized_function(handle.ids[0]);
            for argument in 0..4 {
                let [bare, merging] = [bare, code].map(|code| host.call(code, argument));
                assert_eq!(bare, merging, "function {at} of {argument}: {:?}", handle.shape);
            }
            assert_eq!(code as usize % handle.alignment() as usize, 0, "function {at} is aligned");
            let is_behind = map
                .originals_at(code as usize as u64)
                .any(|original| original.symbol.index == handle.ids[1].as_u32());
            assert!(is_behind, "function {at} is not behind its own code");
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
