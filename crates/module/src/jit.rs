//! The additions for `cranelift-jit`: addresses, of merged functions, too.

use crate::{BackEnd, MergingModule};
use cranelift_jit::JITModule;
use cranelift_mergefunc::explain::MergeMap;
use cranelift_module::{DataId, FuncId, ModuleRelocTarget, ModuleResult};

impl MergingModule<JITModule> {
    /// Flushes with [`BackEnd::Jit`] and makes everything that was defined ready to run. Can be
    /// called any number of times; functions of later flushes are merged into those that exist.
    ///
    /// # Errors
    ///
    /// See [`MergingModule::flush`], and the errors of `JITModule::finalize_definitions`.
    pub fn finalize_definitions(&mut self) -> ModuleResult<()> {
        self.flush_to(BackEnd::Jit, false)?;
        self.inner.finalize_definitions()
    }

    /// The address of a function that was defined and finalized, merged or not.
    ///
    /// # Panics
    ///
    /// If it was not, as `JITModule::get_finalized_function` does.
    pub fn get_finalized_function(&self, function: FuncId) -> *const u8 {
        self.inner.get_finalized_function(self.address_of(function))
    }

    /// The address and size in bytes of a data object that was defined and finalized, merged or
    /// not.
    ///
    /// # Panics
    ///
    /// If it was not, as `JITModule::get_finalized_data` does.
    pub fn get_finalized_data(&self, data: DataId) -> (*const u8, usize) {
        self.inner.get_finalized_data(self.data_address_of(data))
    }

    /// The address that a relocation to `target` resolves to.
    ///
    /// # Panics
    ///
    /// See `JITModule::get_address`.
    pub fn get_address(&self, target: &ModuleRelocTarget) -> *const u8 {
        let target = match *target {
            ModuleRelocTarget::User { namespace: 0, index } => {
                self.address_of(FuncId::from_u32(index)).into()
            }
            ModuleRelocTarget::User { namespace: 1, index } => {
                self.data_address_of(DataId::from_u32(index)).into()
            }
            ref other => other.clone(),
        };
        self.inner.get_address(&target)
    }

    /// The merge map, with the addresses of all functions that were finalized.
    pub fn finalized_map(&self) -> MergeMap {
        let mut map = self.merge_map();
        for (function, state) in self.symbols.functions.iter().filter(|(_, state)| state.size > 0) {
            let start = self.inner.get_finalized_function(function) as usize as u64;
            map.place(crate::symbol(function), start, u64::from(state.size));
        }
        map
    }
}
