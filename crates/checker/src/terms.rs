//! Known values, where calls pass extra arguments.
//!
//! A parameterised body has parameters where its functions have constants and references, so the
//! two cannot be walked instruction by instruction. The extra arguments are known: in each claim an
//! extra argument is a constant, or the address of a symbol. So such values, and values computed
//! from them in order to use them in place of the constants and references, are not bound to values
//! of the original. They are evaluated on both sides in the same way, and compared where they are
//! used. Everything else is bound as usual.

use super::simulation::resolve;
use super::tables::user_symbol;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    Constant, Endianness, ExternalName, Function, GlobalValueData, Inst, InstructionData, MemFlags,
    Opcode, StackSlot, Type, UserExternalName, Value, types,
};
use cranelift_entity::{EntitySet, SecondaryMap};

/// The content of a known value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// This many bits; those that the type does not have are 0.
    Bits(Type, u128),
    /// This many bytes behind a base, in wrapping arithmetic of the type.
    Behind(Type, Base, u64),
}

/// The base of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Value(Value),
    Slot(StackSlot),
    /// And whether the reference itself is to a place behind the symbol: with an offset that is
    /// added to an address, code refers to the symbol.
    Symbol(UserExternalName, bool),
}

impl Term {
    /// The type of the value.
    pub fn ty(&self) -> Type {
        match self {
            Term::Bits(ty, _) | Term::Behind(ty, ..) => *ty,
        }
    }

    /// The address this many bytes further.
    pub fn add(self, bytes: i64) -> Option<Term> {
        match self {
            Term::Bits(ty, bits) if ty.is_int() && ty.bits() <= 64 => {
                let sum = (bits as u64).wrapping_add(bytes as u64);
                Some(Term::Bits(ty, u128::from(masked(ty, sum))))
            }
            Term::Behind(ty, base, offset) => {
                Some(Term::Behind(ty, base, masked(ty, offset.wrapping_add(bytes as u64))))
            }
            Term::Bits(..) => None,
        }
    }
}

/// An extra argument, in place of a constant or a reference: what a claim about a parameterised
/// body depends on.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtraTerm(Content);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Content {
    /// The number of the type, and the bits.
    Bits(u16, u64),
    /// The number of the type, the symbol, and the bytes behind it.
    Symbol(u16, (u32, u32), u64),
}

impl ExtraTerm {
    /// These bits, passed as this type. Those that the type does not have must be 0.
    pub fn bits(ty: Type, bits: u64) -> ExtraTerm {
        ExtraTerm(Content::Bits(ty.index() as u16, bits))
    }

    /// The address that is this many bytes behind that of a symbol, passed as this type.
    pub fn address(ty: Type, symbol: &UserExternalName, offset: i64) -> ExtraTerm {
        let key = (symbol.namespace, symbol.index);
        ExtraTerm(Content::Symbol(ty.index() as u16, key, masked(ty, offset as u64)))
    }

    /// The extra argument that a known operand is, if its type can be passed.
    pub(crate) fn of(term: &Term) -> Option<ExtraTerm> {
        match term {
            Term::Bits(ty, bits) if ty.is_int() || matches!(*ty, types::F32 | types::F64) => {
                Some(ExtraTerm::bits(*ty, u64::try_from(*bits).ok()?))
            }
            Term::Behind(ty, Base::Symbol(symbol, _), offset) => {
                Some(ExtraTerm::address(*ty, symbol, *offset as i64))
            }
            Term::Bits(..) | Term::Behind(..) => None,
        }
    }

    /// The value of a parameter of this type; `None` if the argument has another type.
    pub(crate) fn term(&self, ty: Type) -> Option<Term> {
        let ExtraTerm(content) = self;
        let (Content::Bits(number, ..) | Content::Symbol(number, ..)) = content;
        (ty.index() as u16 == *number).then(|| match content {
            Content::Bits(_, bits) => Term::Bits(ty, u128::from(masked(ty, *bits))),
            Content::Symbol(_, (namespace, index), offset) => {
                let symbol = UserExternalName::new(*namespace, *index);
                Term::Behind(ty, Base::Symbol(symbol, *offset != 0), *offset)
            }
        })
    }
}

/// The low bits of a number: the width of an integer type of up to 64 bits.
pub(crate) fn masked(ty: Type, bits: u64) -> u64 {
    bits & (u64::MAX >> (64 - ty.bits().clamp(1, 64)))
}

/// The known values of one function.
#[derive(Default)]
pub(crate) struct Terms {
    known: SecondaryMap<Value, Option<Term>>,
    /// The extra parameters, and values computed from them.
    extra: EntitySet<Value>,
    /// The extra parameters, and the integers that were passed as them.
    passed: EntitySet<Value>,
}

impl Terms {
    pub fn set(&mut self, value: Value, term: Term) {
        self.known[value] = Some(term);
    }

    /// Sets the term of an extra parameter.
    pub fn set_extra(&mut self, param: Value, term: Term) {
        self.set(param, term);
        self.extra.insert(param);
        self.passed.insert(param);
    }

    /// Sets the term of a value that extra arguments select.
    pub fn set_selected(&mut self, param: Value, term: Term) {
        self.set(param, term);
        self.extra.insert(param);
    }

    /// The bits of a value that follow from extra arguments.
    pub fn selected(&self, func: &Function, value: Value) -> Option<u128> {
        let of_extra = self.extra.contains(resolve(&func.dfg, value)?);
        self.bits(func, value).filter(|_| of_extra).map(|(_, bits)| bits)
    }

    /// Whether a value is an extra argument itself, or the integer that was passed as another type.
    pub fn is_passed(&self, func: &Function, value: Value) -> bool {
        resolve(&func.dfg, value).is_some_and(|original| self.passed.contains(original))
    }

    /// The bits of a value, if it is an extra argument in this sense.
    pub fn passed(&self, func: &Function, value: Value) -> Option<u64> {
        let (_, bits) = self.bits(func, value).filter(|_| self.is_passed(func, value))?;
        Some(bits as u64)
    }

    /// The content of a value, if it is known.
    pub fn get(&self, func: &Function, value: Value) -> Option<&Term> {
        self.known[resolve(&func.dfg, value)?].as_ref()
    }

    fn bits(&self, func: &Function, value: Value) -> Option<(Type, u128)> {
        match self.get(func, value)? {
            Term::Bits(ty, bits) => Some((*ty, *bits)),
            Term::Behind(..) => None,
        }
    }

    /// A value as an address: a base and the bytes behind it.
    pub fn behind(&self, func: &Function, value: Value) -> Option<Term> {
        let original = resolve(&func.dfg, value)?;
        let ty = func.dfg.value_type(original);
        Some(self.known[original].clone().unwrap_or(Term::Behind(ty, Base::Value(original), 0)))
    }

    /// Records the value that `inst` computes, if that is all the instruction does: then it has no
    /// counterpart. `constants` are those that exist.
    pub fn learn(&mut self, func: &Function, inst: Inst, constants: &EntitySet<Constant>) -> bool {
        let &[result] = func.dfg.inst_results(inst) else {
            return false;
        };
        let term = self.evaluate(func, inst, func.dfg.value_type(result), constants);
        let known = term.is_some();
        self.known[result] = term;
        let is_extra = |&arg: &Value| {
            resolve(&func.dfg, arg).is_some_and(|original| self.extra.contains(original))
        };
        if known && func.dfg.inst_args(inst).iter().any(is_extra) {
            self.extra.insert(result);
        }
        if let InstructionData::LoadNoOffset { opcode: Opcode::Bitcast, arg, flags: _ }
        | InstructionData::Unary { opcode: Opcode::Ireduce, arg } = func.dfg.insts[inst]
            && known
            && self.is_passed(func, arg)
        {
            self.passed.insert(result);
        }
        known
    }

    fn evaluate(
        &self,
        func: &Function,
        inst: Inst,
        ty: Type,
        constants: &EntitySet<Constant>,
    ) -> Option<Term> {
        use InstructionData as I;
        let at = |name: &ExternalName, offset: i64| {
            let symbol = user_symbol(func, name)?.clone();
            Some(Term::Behind(ty, Base::Symbol(symbol, offset != 0), masked(ty, offset as u64)))
        };
        match &func.dfg.insts[inst] {
            I::UnaryImm { opcode: Opcode::Iconst, imm } => {
                Some(Term::Bits(ty, u128::from(masked(ty, imm.bits() as u64))))
            }
            I::UnaryIeee16 { opcode: _, imm } => Some(Term::Bits(ty, imm.bits().into())),
            I::UnaryIeee32 { opcode: _, imm } => Some(Term::Bits(ty, imm.bits().into())),
            I::UnaryIeee64 { opcode: _, imm } => Some(Term::Bits(ty, imm.bits().into())),
            I::UnaryConst { opcode: _, constant_handle } => {
                let there = constants.contains(*constant_handle);
                let data = there.then(|| func.dfg.constants.get(*constant_handle).as_slice())?;
                let mut bits = [0; 16];
                if data.len() != ty.bytes() as usize {
                    return None;
                }
                bits.get_mut(..data.len())?.copy_from_slice(data);
                Some(Term::Bits(ty, u128::from_le_bytes(bits)))
            }
            I::FuncAddr { opcode: _, func_ref } => {
                let callee = func.dfg.ext_funcs.get(*func_ref)?;
                if callee.patchable {
                    return None;
                }
                at(&callee.name, 0)
            }
            I::UnaryGlobalValue { opcode: Opcode::SymbolValue, global_value } => {
                match func.global_values.get(*global_value)? {
                    GlobalValueData::Symbol { name, offset, colocated: _, tls: false } => {
                        at(name, offset.bits())
                    }
                    _ => None,
                }
            }
            I::StackAddr { opcode: _, stack_slot, offset } => {
                let offset = i64::from(i32::from(*offset)) as u64;
                Some(Term::Behind(ty, Base::Slot(*stack_slot), masked(ty, offset)))
            }
            I::LoadNoOffset { opcode: Opcode::Bitcast, arg, flags } => {
                match self.get(func, *arg)? {
                    Term::Bits(from, bits) => {
                        let by_lanes = from.lane_count() != ty.lane_count();
                        (!by_lanes || is_little(func, *flags)).then_some(Term::Bits(ty, *bits))
                    }
                    // An address that is passed as a float, in one lane. Anything else is computed
                    // from a value, on both sides.
                    Term::Behind(from, base @ Base::Symbol(..), offset) => {
                        let whole = from.bits() == ty.bits() && !ty.is_vector();
                        whole.then(|| Term::Behind(ty, base.clone(), *offset))
                    }
                    Term::Behind(_, Base::Value(_) | Base::Slot(_), _) => None,
                }
            }
            // The value may have been passed as a float of more bits.
            I::Unary { opcode: Opcode::Ireduce, arg } if ty.is_int() => {
                let (_, bits) = self.bits(func, *arg)?;
                Some(Term::Bits(ty, u128::from(masked(ty, bits as u64))))
            }
            I::Binary { opcode: Opcode::Iadd, args } if ty.is_int() && ty.bits() <= 64 => {
                self.sum(func, *args, ty)
            }
            I::IntCompare {
                opcode: _,
                cond: cond @ (IntCC::Equal | IntCC::UnsignedLessThan),
                args,
            } if ty == types::I8 => {
                let [(_, a), (_, b)] = [self.bits(func, args[0])?, self.bits(func, args[1])?];
                let holds = if *cond == IntCC::Equal { a == b } else { a < b };
                Some(Term::Bits(ty, u128::from(holds)))
            }
            // Which of the two it is, is known.
            I::Ternary { opcode: Opcode::Select, args: [condition, then, otherwise] } => {
                let (_, bits) = self.bits(func, *condition)?;
                self.behind(func, if bits != 0 { *then } else { *otherwise })
            }
            I::Binary { opcode: Opcode::Iconcat, args } => {
                let [(low_ty, low), (_, high)] =
                    [self.bits(func, args[0])?, self.bits(func, args[1])?];
                (low_ty == types::I64).then_some(Term::Bits(ty, low | high << 64))
            }
            I::Unary { opcode: Opcode::ScalarToVector, arg } if ty == types::I64X2 => {
                Some(Term::Bits(ty, self.bits(func, *arg)?.1))
            }
            I::TernaryImm8 { opcode: Opcode::Insertlane, args, imm } if ty == types::I64X2 => {
                let [(_, vector), (_, lane)] =
                    [self.bits(func, args[0])?, self.bits(func, args[1])?];
                let shift = 64 * u32::from(*imm & 1);
                let kept = vector & !(u128::from(u64::MAX) << shift);
                Some(Term::Bits(ty, kept | lane << shift))
            }
            _ => None,
        }
    }

    fn sum(&self, func: &Function, args: [Value; 2], ty: Type) -> Option<Term> {
        let bits = args.map(|arg| self.bits(func, arg).map(|(_, bits)| bits as u64));
        let (other, added) = match bits {
            [None, None] => return None,
            [Some(a), Some(b)] => {
                return Some(Term::Bits(ty, u128::from(masked(ty, a.wrapping_add(b)))));
            }
            [None, Some(added)] => (args[0], added),
            [Some(added), None] => (args[1], added),
        };
        match self.behind(func, other)? {
            Term::Behind(_, base, offset) => {
                Some(Term::Behind(ty, base, masked(ty, offset.wrapping_add(added))))
            }
            Term::Bits(..) => None,
        }
    }
}

fn is_little(func: &Function, flags: MemFlags) -> bool {
    func.dfg.mem_flags.is_valid(flags)
        && func.dfg.mem_flags[flags].explicit_endianness() == Some(Endianness::Little)
}
