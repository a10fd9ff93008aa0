//! The content of a place of a function where similar functions may differ.
//!
//! The walk notes what each instruction holds ([`Operand`]); this module says which of that can be
//! passed to a body. It does *not* choose the parameters.

use crate::apply::KeptCalls;
use crate::canon::{Operand, Place};
use crate::extra_argument::{ExtraArgument, Substitute, computed_as, extended_signature};
use crate::incremental::MergeCache;
use crate::ir::user_symbol;
use crate::options::Options;
use crate::plan::Plan;
use crate::unit::Linkage;
use alloc::sync::Arc;
use alloc::vec::Vec;
use cranelift_codegen::ir::{
    Block, FuncRef, Function, GlobalValueData, Inst, InstructionData, Signature, Type,
    UserExternalName, types,
};
use cranelift_entity::EntityRef;

/// The content of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A constant of a type of up to 128 bits; the bits that the type does not have are 0.
    Constant { ty: Type, bits: u128 },
    /// An offset that is added to an address of this type, in bytes.
    Offset { ty: Type, bytes: i32 },
    /// A function that is called directly. If `direct`, the call must stay direct.
    Callee {
        ty: Type,
        symbol: UserExternalName,
        signature: Arc<Signature>,
        colocated: bool,
        direct: bool,
    },
    /// The address of a function.
    Function { ty: Type, symbol: UserExternalName, signature: Arc<Signature>, colocated: bool },
    /// An address that is this many bytes behind that of a symbol.
    Address { ty: Type, symbol: UserExternalName, offset: i64, colocated: bool },
}

impl Value {
    /// This value, with `colocated` only if no other definition can take the symbol's place when
    /// libraries are linked: a near or redirected call of an externally visible function goes to
    /// the unit's own definition, while its address is whatever the linker finds.
    fn near(mut self, symbols: &Symbols<'_>) -> Value {
        match &mut self {
            Value::Callee { symbol, colocated, direct, .. } => {
                let interposed = symbols.options.interposition && symbols.is_defined(symbol);
                *direct = (*colocated || interposed) && !symbols.is_own(symbol);
                *colocated &= !*direct;
            }
            Value::Function { symbol, colocated, .. }
            | Value::Address { symbol, colocated, .. } => {
                *colocated = *colocated && symbols.is_own(symbol);
            }
            Value::Constant { .. } | Value::Offset { .. } => {}
        }
        self
    }

    /// The extra arguments for it, as integers: one, or two for more than 64 bits.
    pub fn arguments(&self) -> Vec<ExtraArgument> {
        let constant = |ty: Type, bits: u64| ExtraArgument::Constant { ty, bits };
        match self {
            Value::Constant { ty, bits } => match Type::int(ty.bits() as u16) {
                Some(types::I128) => alloc::vec![
                    constant(types::I64, *bits as u64),
                    constant(types::I64, (*bits >> 64) as u64),
                ],
                Some(int) => alloc::vec![constant(int, *bits as u64)],
                None => unreachable!("constants of other sizes are no values"),
            },
            Value::Offset { ty, bytes } => {
                let unused = 64 - ty.bits();
                alloc::vec![constant(*ty, (i64::from(*bytes) as u64) << unused >> unused)]
            }
            Value::Callee { ty, symbol, signature, colocated, direct: _ }
            | Value::Function { ty, symbol, signature, colocated } => {
                alloc::vec![ExtraArgument::Function {
                    ty: *ty,
                    symbol: symbol.clone(),
                    signature: signature.clone(),
                    colocated: *colocated,
                }]
            }
            Value::Address { ty, symbol, offset, colocated } => {
                alloc::vec![ExtraArgument::Address {
                    ty: *ty,
                    symbol: symbol.clone(),
                    offset: *offset,
                    colocated: *colocated,
                }]
            }
        }
    }
}

/// The symbols of the plan and of earlier units, where functions are compared.
pub(super) struct Symbols<'a> {
    pub plan: &'a Plan,
    /// The cache of earlier units.
    pub earlier: Option<&'a MergeCache>,
    pub options: &'a Options<'a>,
    /// The calls that are compared as they are written.
    pub written: &'a KeptCalls,
}

impl Symbols<'_> {
    /// Whether no other definition can take the place of the unit's own.
    fn is_own(&self, symbol: &UserExternalName) -> bool {
        let Symbols { plan, .. } = self;
        let function = plan.function(symbol).map(|at| plan.entry(at).attributes().linkage);
        let data = plan.data(symbol).map(|at| plan.data_entry(at).attributes().linkage);
        matches!(function.or(data), Some(Linkage::Local | Linkage::Hidden))
    }

    /// Whether this unit or an earlier one has a definition.
    fn is_defined(&self, symbol: &UserExternalName) -> bool {
        self.plan.function(symbol).is_some()
            || self.earlier.is_some_and(|earlier| earlier.had(symbol))
    }

    /// The value that an operand of an instruction holds after the plan, if it can become a
    /// parameter. `arguments` are those of the walk
    /// ([`Scratch::arguments`](crate::canon::Scratch)), `addressed` is the result of
    /// [`blocks_with_addresses`]. The function may be one that the verifier refuses.
    pub fn value_of(
        &self,
        func: &Function,
        (place, operand): (Place, Operand),
        arguments: &[ExtraArgument],
        addressed: &[Block],
    ) -> Option<Value> {
        let (Place::Inst(inst) | Place::ExtraArgument(inst)) = place else {
            return None;
        };
        let result = func.dfg.inst_results(inst).first();
        let result = result.map(|&result| func.dfg.value_type(result));
        let value = match operand {
            Operand::Constant { ty, bits } => constant(ty, bits),
            Operand::Offset { ty, bytes } => {
                matches!(ty, types::I32 | types::I64).then_some(Value::Offset { ty, bytes })
            }
            Operand::Callee(func_ref) => {
                if addressed.binary_search(&func.layout.inst_block(inst)?).is_ok() {
                    return None;
                }
                let (written, signature, colocated) = callee(func, func_ref)?;
                let ty = self.options.target.pointer_type?;
                let (symbol, signature) = match self.plan.redirected_call(written, self.written) {
                    None => (written.clone(), signature.clone()),
                    Some(Substitute { symbol, arguments }) if arguments.is_empty() => {
                        (symbol, signature.clone())
                    }
                    Some(Substitute { symbol, arguments }) => {
                        (symbol, extended_signature(signature, &arguments))
                    }
                };
                let signature = Arc::new(signature);
                Some(Value::Callee { ty, symbol, signature, colocated, direct: false })
            }
            Operand::Function(func_ref) => {
                let (written, signature, colocated) = callee(func, func_ref)?;
                let symbol = self.plan.address_symbol(written).clone();
                let signature = Arc::new(signature.clone());
                Some(Value::Function { ty: result?, symbol, signature, colocated })
            }
            Operand::Symbol(global_value) => match func.global_values.get(global_value)? {
                GlobalValueData::Symbol { name, offset, colocated, tls: false } => {
                    Some(Value::Address {
                        ty: result?,
                        symbol: self.plan.address_symbol(user_symbol(func, name)?).clone(),
                        offset: offset.bits(),
                        colocated: *colocated,
                    })
                }
                _ => None,
            },
            Operand::ExtraArgument(number) => passed(&arguments[number]),
        };
        Some(value?.near(self))
    }
}

/// The blocks of which the address of a handler is taken, ascending: the address belongs to the one
/// call at the end of the block, so the calls of these blocks stay what and where they are.
pub(super) fn blocks_with_addresses(func: &Function) -> Vec<Block> {
    if func.dfg.exception_tables.is_empty() {
        return Vec::new();
    }
    // In memory order, which is several times cheaper than block by block; instructions without a
    // place do no harm.
    let insts = (0..func.dfg.num_insts()).map(Inst::new);
    let blocks = insts.filter_map(|inst| match func.dfg.insts[inst] {
        InstructionData::ExceptionHandlerAddress { opcode: _, block, imm: _ } => Some(block),
        _ => None,
    });
    let mut blocks: Vec<Block> = blocks.collect();
    blocks.sort_unstable();
    blocks
}

/// A constant of a size that can be passed.
fn constant(ty: Type, bits: u128) -> Option<Value> {
    let passed = matches!(ty.bits(), 8 | 16 | 32 | 64 | 128) && !ty.is_dynamic_vector();
    let mask = u128::MAX.checked_shr(128_u32.checked_sub(ty.bits())?)?;
    passed.then_some(Value::Constant { ty, bits: bits & mask })
}

/// The callee of a call, if it can become a parameter: a patchable call means this very function,
/// and a function that Cranelift provides has no address.
fn callee(func: &Function, func_ref: FuncRef) -> Option<(&UserExternalName, &Signature, bool)> {
    let callee = func.dfg.ext_funcs.get(func_ref)?;
    let symbol = user_symbol(func, &callee.name).filter(|_| !callee.patchable)?;
    let signature = func.dfg.signatures.get(callee.signature)?;
    Some((symbol, signature, callee.colocated))
}

/// The value that an extra argument passes, which a body can receive in turn.
fn passed(argument: &ExtraArgument) -> Option<Value> {
    match argument.clone() {
        ExtraArgument::Constant { ty, bits } => constant(ty, bits.into()),
        ExtraArgument::Function { ty, symbol, signature, colocated } => {
            Some(Value::Function { ty: computed_as(ty), symbol, signature, colocated })
        }
        ExtraArgument::Address { ty, symbol, offset, colocated } => {
            Some(Value::Address { ty: computed_as(ty), symbol, offset, colocated })
        }
    }
}
