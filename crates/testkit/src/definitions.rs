//! The functions of a unit as definitions of a module, for benches.
//!
//! It does not declare data objects as such: what a unit does not define is imported.

use cranelift_codegen::Context;
use cranelift_codegen::ir::{
    ExternalName, Function, UserExternalName, UserExternalNameRef, UserFuncName,
};
use cranelift_module::{FuncId, FuncOrDataId, Linkage, Module};

/// Declares all functions as local ones of a module, and returns their definitions, which the
/// module does not have yet.
pub fn declared(module: &mut dyn Module, functions: &[Function]) -> Vec<(FuncId, Function)> {
    let declare = |func: &Function| {
        let name = func.name.to_string();
        let declared = module.declare_function(&name, Linkage::Local, &func.signature);
        declared.expect("symbols are distinct")
    };
    let ids: Vec<FuncId> = functions.iter().map(declare).collect();
    let definitions = functions.iter().zip(ids).map(|(func, id)| {
        let mut func = func.clone();
        func.name = UserFuncName::user(0, id.as_u32());
        rename(module, &mut func);
        (id, func)
    });
    definitions.collect()
}

/// Defines the functions, as an embedder does that compiles one after the other in the same
/// context.
pub fn define(module: &mut dyn Module, definitions: Vec<(FuncId, Function)>) {
    let mut context = Context::new();
    for (id, func) in definitions {
        context.func = func;
        module.define_function(id, &mut context).expect("compiles");
        module.clear_context(&mut context);
    }
}

/// Names everything as the module does, which imports what the unit does not define.
fn rename(module: &mut dyn Module, func: &mut Function) {
    let names = func.params.user_named_funcs().clone();
    for (name_ref, symbol) in names.iter() {
        let name = UserFuncName::User(symbol.clone()).to_string();
        let to = match module.get_name(&name) {
            Some(FuncOrDataId::Func(id)) => UserExternalName::new(0, id.as_u32()),
            Some(FuncOrDataId::Data(id)) => UserExternalName::new(1, id.as_u32()),
            None => import(module, func, name_ref, &name),
        };
        func.params.reset_user_func_name(name_ref, to);
    }
}

fn import(
    module: &mut dyn Module,
    func: &Function,
    name_ref: UserExternalNameRef,
    name: &str,
) -> UserExternalName {
    let external = ExternalName::User(name_ref);
    match func.dfg.ext_funcs.values().find(|callee| callee.name == external) {
        Some(callee) => {
            let signature = &func.dfg.signatures[callee.signature];
            let id = module.declare_function(name, Linkage::Import, signature).expect("imported");
            UserExternalName::new(0, id.as_u32())
        }
        None => {
            let id = module.declare_data(name, Linkage::Import, true, false).expect("imported");
            UserExternalName::new(1, id.as_u32())
        }
    }
}
