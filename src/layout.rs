//! stub
use crate::target::Target;
use cranelift_codegen::ir::Function;
pub(crate) fn laid_out(func: &Function, _: &Target) -> Option<Function> { Some(func.clone()) }
