//! Arguments: what the body of several similar functions is told, so that it does what one of them does.
//!
//! A function that was merged with others that differ from it in constants and callees is a call to their
//! body with its own arguments behind those of its caller. This module says what arguments are, and puts
//! them into code. It does *not* decide what becomes an argument (`similar` does).

use crate::apply::user_name;
#[cfg(feature = "fuzzing")]
use crate::fuzzing::fault_injection::{self, Fault};
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::immediates::Imm64;
use cranelift_codegen::ir::{
    AbiParam, ExceptionTableData, ExtFuncData, FuncRef, Function, GlobalValueData, Inst,
    InstBuilder, InstructionData, Signature, Type, UserExternalName, Value,
};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// What a body is told in place of a constant or a reference. A constant of more than 64 bits takes two
/// arguments, the low half first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExtraArgument {
    /// A constant, as an integer of up to 64 bits.
    Constant {
        /// The type of the integer.
        ty: Type,
        /// Its bits; those that the type does not have are 0.
        bits: u64,
    },
    /// The address of a function.
    Function {
        /// The type of an address.
        ty: Type,
        /// Which one.
        symbol: UserExternalName,
        /// How it is called.
        signature: Arc<Signature>,
        /// Whether a call reaches it without going through a table.
        colocated: bool,
    },
    /// An address so many bytes behind that of a symbol.
    Address {
        /// The type of an address.
        ty: Type,
        /// The symbol.
        symbol: UserExternalName,
        /// Bytes.
        offset: i64,
        /// Whether the symbol is so near that no table is needed.
        colocated: bool,
    },
}

impl ExtraArgument {
    /// The type of the parameter that takes it.
    pub fn ty(&self) -> Type {
        match self {
            ExtraArgument::Constant { ty, .. }
            | ExtraArgument::Function { ty, .. }
            | ExtraArgument::Address { ty, .. } => *ty,
        }
    }

    /// The symbol whose address it is, or is behind.
    pub fn symbol(&self) -> Option<&UserExternalName> {
        match self {
            ExtraArgument::Constant { .. } => None,
            ExtraArgument::Function { symbol, .. } | ExtraArgument::Address { symbol, .. } => {
                Some(symbol)
            }
        }
    }

    /// Whether it is an address that code computes without a table.
    #[cfg(feature = "module")]
    pub(crate) fn is_near(&self) -> bool {
        match self {
            ExtraArgument::Constant { .. } => false,
            ExtraArgument::Function { colocated, .. }
            | ExtraArgument::Address { colocated, .. } => *colocated,
        }
    }

    /// The same, of what `address` says of each symbol, if it says something.
    pub fn redirected(
        &self,
        address: &dyn Fn(&UserExternalName) -> Option<UserExternalName>,
    ) -> ExtraArgument {
        let mut redirected = self.clone();
        if let ExtraArgument::Function { symbol, .. } | ExtraArgument::Address { symbol, .. } =
            &mut redirected
            && let Some(to) = address(symbol)
        {
            *symbol = to;
        }
        redirected
    }

    /// Computes it where the cursor is.
    pub(crate) fn insert(&self, cursor: &mut FuncCursor<'_>) -> Value {
        match self {
            ExtraArgument::Constant { ty, bits } => cursor.ins().iconst(*ty, *bits as i64),
            ExtraArgument::Function { ty, symbol, signature, colocated } => {
                let func = &mut *cursor.func;
                let signature = func.import_signature(Signature::clone(signature));
                let name = user_name(func, symbol.clone());
                let func_ref = func.import_function(ExtFuncData {
                    name,
                    signature,
                    colocated: *colocated,
                    patchable: false,
                });
                cursor.ins().func_addr(*ty, func_ref)
            }
            ExtraArgument::Address { ty, symbol, offset, colocated } => {
                let func = &mut *cursor.func;
                let name = user_name(func, symbol.clone());
                let gv = func.create_global_value(GlobalValueData::Symbol {
                    name,
                    offset: Imm64::new(*offset),
                    colocated: *colocated,
                    tls: false,
                });
                cursor.ins().symbol_value(*ty, gv)
            }
        }
    }
}

/// The signature of a body that takes these arguments behind the parameters of `signature`: of what
/// [`call_thunk`](crate::call_thunk) calls, and of what rewritten calls refer to. Narrow integers that are passed
/// on the stack can be extended in it.
pub fn extended_signature(signature: &Signature, arguments: &[ExtraArgument]) -> Signature {
    let mut extended = signature.clone();
    for argument in arguments {
        extended.params.push(call_sites(argument.ty(), extended.params.len()));
    }
    extended
}

/// The parameter of a body that is told a value of this type, behind so many others.
///
/// The x86-64 back end of Cranelift 0.135 stores an integer that is passed on the stack in its own size, and
/// loads it in 8 bytes, which waits until the store is through: unless it is extended. There are six
/// registers.
pub(crate) fn call_sites(ty: Type, others: usize) -> AbiParam {
    match ty.is_int() && ty.bits() < 64 && others >= 6 {
        true => AbiParam::new(ty).uext(),
        false => AbiParam::new(ty),
    }
}

/// What calls through a function reference pass behind the arguments that there are.
pub(crate) type Appended = HashMap<FuncRef, Vec<ExtraArgument>, FxBuildHasher>;

/// Has the calls of `func` pass further arguments. Linear in the size of `func`.
pub(crate) fn append(func: &mut Function, calls: &Appended) {
    if calls.is_empty() {
        return;
    }
    #[cfg(feature = "fuzzing")]
    if fault_injection::is(Fault::PassedNothing) {
        return;
    }
    let mut sites: Vec<(Inst, &[ExtraArgument])> = Vec::new();
    for block in func.layout.blocks() {
        for inst in func.layout.block_insts(block) {
            if let Some(arguments) = called(func, inst).and_then(|callee| calls.get(&callee)) {
                sites.push((inst, arguments));
            }
        }
    }
    for (inst, arguments) in sites {
        let location = func.srcloc(inst);
        let mut cursor = FuncCursor::new(func).at_inst(inst).with_srcloc(location);
        let values: Vec<Value> =
            arguments.iter().map(|argument| argument.insert(&mut cursor)).collect();
        let callee = called(func, inst).expect("a direct call");
        push_arguments(func, inst, callee, &values);
    }
}

/// The function that an instruction calls directly.
pub(crate) fn called(func: &Function, inst: Inst) -> Option<FuncRef> {
    match func.dfg.insts[inst] {
        InstructionData::Call { opcode: _, args: _, func_ref }
        | InstructionData::TryCall { opcode: _, args: _, func_ref, exception: _ } => Some(func_ref),
        _ => None,
    }
}

/// Has a direct call go to `callee` and pass these arguments behind its own.
pub(crate) fn push_arguments(func: &mut Function, inst: Inst, callee: FuncRef, values: &[Value]) {
    let dfg = &mut func.dfg;
    let signature = dfg.ext_funcs[callee].signature;
    let args = match &mut dfg.insts[inst] {
        InstructionData::Call { opcode: _, args, func_ref } => {
            *func_ref = callee;
            args
        }
        InstructionData::TryCall { opcode: _, args, func_ref, exception } => {
            *func_ref = callee;
            // The table says how the callee is called, and other calls may share it.
            let table = dfg.exception_tables[*exception].deep_clone(&mut dfg.value_lists);
            let (normal, handlers) = (*table.normal_return(), table.items());
            let table = ExceptionTableData::new(signature, normal, handlers);
            *exception = dfg.exception_tables.push(table);
            args
        }
        _ => unreachable!("a direct call"),
    };
    for &value in values {
        args.push(value, &mut dfg.value_lists);
    }
}
