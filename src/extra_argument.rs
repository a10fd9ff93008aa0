//! Extra arguments: what a parameterised body receives so that it behaves as one of its functions.
//!
//! A function that was merged with others that differ from it in constants and callees becomes a
//! call of their parameterised body, with extra arguments behind the arguments of its caller. This
//! module defines extra arguments, and inserts them into code. It does *not* decide which values
//! become extra arguments
//! (`parameterise` does).

use crate::ir::{called, user_name};
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::immediates::{Ieee32, Ieee64, Imm64};
use cranelift_codegen::ir::{
    AbiParam, ExceptionTableData, ExtFuncData, FuncRef, Function, GlobalValueData, Inst,
    InstBuilder, InstructionData, MemFlagsData, Signature, Type, UserExternalName, Value, types,
};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// An argument that a parameterised body receives in place of a constant or a reference. A constant
/// of more than 64 bits takes two arguments, the low half first.
///
/// Its type is that of the parameter that receives it. Where the calling convention has no integer
/// register left, but a floating-point register, this is `f32` or `f64`, with the same bits.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExtraArgument {
    /// A constant, as an integer of up to 64 bits, or as an `f32` or `f64` of the same bits.
    Constant {
        /// The type that is passed.
        ty: Type,
        /// Its bits; those that the type does not have are 0.
        bits: u64,
    },
    /// The address of a function.
    Function {
        /// The type of an address, or `f64` where it is passed as such.
        ty: Type,
        /// The function's symbol.
        symbol: UserExternalName,
        /// The signature with which it is called.
        signature: Arc<Signature>,
        /// Whether a call reaches it without going through a table.
        colocated: bool,
    },
    /// An address that is this many bytes behind that of a symbol.
    Address {
        /// The type of an address, or `f64` where it is passed as such.
        ty: Type,
        /// The symbol.
        symbol: UserExternalName,
        /// The distance from the symbol, in bytes.
        offset: i64,
        /// Whether the symbol is near enough to need no table.
        colocated: bool,
    },
}

impl ExtraArgument {
    /// The type of the parameter that receives it.
    pub fn ty(&self) -> Type {
        match self {
            ExtraArgument::Constant { ty, .. }
            | ExtraArgument::Function { ty, .. }
            | ExtraArgument::Address { ty, .. } => *ty,
        }
    }

    /// The symbol whose address it is, or is relative to.
    pub fn symbol(&self) -> Option<&UserExternalName> {
        match self {
            ExtraArgument::Constant { .. } => None,
            ExtraArgument::Function { symbol, .. } | ExtraArgument::Address { symbol, .. } => {
                Some(symbol)
            }
        }
    }

    /// Whether it is an address that code computes without a table.
    pub fn is_near(&self) -> bool {
        match self {
            ExtraArgument::Constant { .. } => false,
            ExtraArgument::Function { colocated, .. }
            | ExtraArgument::Address { colocated, .. } => *colocated,
        }
    }

    /// This argument, with the symbol that `address` returns for its symbol, if it returns one.
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

    /// This argument, passed as this type, which has no fewer bits.
    pub(crate) fn passed_as(mut self, passed: Type) -> ExtraArgument {
        let (ExtraArgument::Constant { ty, .. }
        | ExtraArgument::Function { ty, .. }
        | ExtraArgument::Address { ty, .. }) = &mut self;
        *ty = passed;
        self
    }

    /// Inserts code at the cursor that computes it.
    pub(crate) fn insert(&self, cursor: &mut FuncCursor<'_>) -> Value {
        let bitcast = |cursor: &mut FuncCursor<'_>, ty: Type, address: Value| match ty.is_int() {
            true => address,
            false => cursor.ins().bitcast(ty, MemFlagsData::new(), address),
        };
        match self {
            ExtraArgument::Constant { ty: types::F32, bits } => {
                cursor.ins().f32const(Ieee32::with_bits(*bits as u32))
            }
            ExtraArgument::Constant { ty: types::F64, bits } => {
                cursor.ins().f64const(Ieee64::with_bits(*bits))
            }
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
                let address = cursor.ins().func_addr(computed_as(*ty), func_ref);
                bitcast(cursor, *ty, address)
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
                let address = cursor.ins().symbol_value(computed_as(*ty), gv);
                bitcast(cursor, *ty, address)
            }
        }
    }
}

/// The type in which code computes an argument of this type, if it is an address: an integer of
/// equal width.
pub(crate) fn computed_as(ty: Type) -> Type {
    ty.as_int()
}

/// The substitute for a function in calls.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Substitute {
    /// The symbol of the callee.
    pub symbol: UserExternalName,
    /// The extra arguments, behind the present arguments.
    pub arguments: Arc<[ExtraArgument]>,
}

/// The signature of a body that takes these arguments behind the parameters of `signature`: that of
/// the callee of [`call_thunk`](crate::thunk::call_thunk), and of the references of rewritten
/// calls. Narrow integers that are passed on the stack can be extended in it.
///
/// See the [example](crate#example).
pub fn extended_signature(signature: &Signature, arguments: &[ExtraArgument]) -> Signature {
    let mut extended = signature.clone();
    for argument in arguments {
        extended.params.push(extra_parameter(argument.ty(), extended.params.len()));
    }
    extended
}

/// The parameter of a parameterised body that receives an extra argument of this type, behind
/// `others` other parameters.
///
/// The x86-64 back end of Cranelift 0.135 stores an integer that is passed on the stack in its own
/// size, and loads it in 8 bytes, which waits until the store is through: unless it is extended.
/// There are six registers.
pub(crate) fn extra_parameter(ty: Type, others: usize) -> AbiParam {
    match ty.is_int() && ty.bits() < 64 && others >= 6 {
        true => AbiParam::new(ty).uext(),
        false => AbiParam::new(ty),
    }
}

/// The extra arguments of calls through a function reference, behind their present arguments.
pub(crate) type Appended = HashMap<FuncRef, Vec<ExtraArgument>, FxBuildHasher>;

/// Makes the calls of `func` pass extra arguments. Linear in the size of `func`.
pub(crate) fn append(func: &mut Function, calls: &Appended) {
    if calls.is_empty() {
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

/// Makes a direct call go to `callee` and pass these arguments behind its own.
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
            // The table holds the signature of the callee, and other calls may share the table.
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
