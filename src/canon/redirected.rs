//! References where a plan redirects them, and calls that pass extra arguments: the walk writes
//! what [`redirect`](crate::apply) would make of the function, without making it.
//!
//! **Law** (`tests/laws`): the encoding of a function through a view of a plan equals the encoding
//! of the function after the plan is applied to it.

use super::tables::Use;
use super::{Malformed, Operand, Place, Record, Scratch, Walk, type_number};
use crate::extra_argument::{ExtraArgument, computed_as, extended_signature};
use crate::unit::{Redirected, ResolveSymbol, Resolved};
use alloc::boxed::Box;
use alloc::sync::Arc;
use cranelift_codegen::ir::{
    ExternalName, FuncRef, Function, Inst, Opcode, Type, UserExternalName, UserExternalNameRef,
    Value, types,
};
use cranelift_entity::EntityRef;

/// A symbol of a function, as references to it are compared.
#[derive(Clone, Debug)]
pub(super) enum Known {
    /// All references lead to the symbol itself.
    AsWritten(Option<Resolved>),
    Redirected(Box<KnownTargets>),
}

#[derive(Clone, Debug)]
pub(super) struct KnownTargets {
    as_written: Option<Resolved>,
    redirected: Redirected,
    /// The targets of `redirected`.
    call: Option<Resolved>,
    address: Option<Resolved>,
}

/// The targets of references to a symbol: found out at the first one.
#[inline]
fn known<'a>(
    func: &Function,
    symbols: &dyn ResolveSymbol,
    scratch: &'a mut Scratch,
    name: UserExternalNameRef,
) -> Result<&'a Known, Malformed> {
    let known = scratch.symbols.get_mut(name.index()).ok_or(Malformed)?;
    Ok(known.get_or_insert_with(|| {
        let written = &func.params.user_named_funcs()[name];
        let as_written = symbols.resolve(written);
        let redirected = symbols.redirect(written);
        let to = |symbol: &UserExternalName| symbols.resolve(symbol);
        match &redirected {
            Redirected { call: None, address: None } => Known::AsWritten(as_written),
            Redirected { call, address } => Known::Redirected(Box::new(KnownTargets {
                as_written,
                call: call.as_ref().and_then(|call| to(&call.symbol)),
                address: address.as_ref().and_then(to),
                redirected,
            })),
        }
    }))
}

impl Walk<'_> {
    /// A use of a symbol of the function.
    pub(super) fn symbol(
        &mut self,
        name: UserExternalNameRef,
        usage: Use,
    ) -> Result<(), Malformed> {
        let func = self.func;
        let written = func.params.user_named_funcs().get(name).ok_or(Malformed)?;
        let Walk { context, scratch, out, .. } = self;
        let (to, resolved) = match known(func, context.symbols, scratch, name)? {
            Known::AsWritten(resolved) => (written, *resolved),
            Known::Redirected(targets) => {
                let KnownTargets { as_written, redirected, call, address } = &**targets;
                match (usage, &redirected.call, &redirected.address) {
                    (Use::Call, Some(target), _) => (&target.symbol, *call),
                    (Use::Address | Use::Inside, _, Some(target)) => (target, *address),
                    (Use::Call, None, _)
                    | (Use::Address | Use::Inside, _, None)
                    | (Use::PatchableCall | Use::PatchableAddress, _, _) => (written, *as_written),
                }
            }
        };
        let node = resolved.and_then(|resolved| match usage {
            Use::Call => resolved.call,
            Use::PatchableCall => None,
            Use::Address | Use::PatchableAddress => resolved.address,
            Use::Inside => resolved.inside,
        });
        out.reference(to, node);
        Ok(())
    }

    /// The extra arguments that a direct call passes.
    fn arguments(&mut self, callee: FuncRef) -> Result<Option<Arc<[ExtraArgument]>>, Malformed> {
        let func = self.func;
        let callee = func.dfg.ext_funcs.get(callee).ok_or(Malformed)?;
        let ExternalName::User(name) = callee.name else {
            return Ok(None);
        };
        if callee.patchable {
            return Ok(None);
        }
        Ok(match known(func, self.context.symbols, self.scratch, name)? {
            Known::AsWritten(_) => None,
            Known::Redirected(targets) => {
                let arguments = targets.redirected.call.as_ref().map(|call| &call.arguments);
                arguments.filter(|arguments| !arguments.is_empty()).cloned()
            }
        })
    }

    /// If a call passes extra arguments, writes what computes them, and keeps their numbers for the
    /// call, which comes next.
    pub(super) fn extra_arguments(&mut self, inst: Inst, callee: FuncRef) -> Result<(), Malformed> {
        self.scratch.values.passed.clear();
        match self.arguments(callee)? {
            None => Ok(()),
            Some(arguments) => self.passed_arguments(inst, &arguments),
        }
    }

    #[cold]
    fn passed_arguments(
        &mut self,
        inst: Inst,
        arguments: &[ExtraArgument],
    ) -> Result<(), Malformed> {
        for argument in arguments {
            let symbols = self.context.symbols;
            let argument = argument.redirected(&|symbol| symbols.redirect(symbol).address);
            self.extra_argument(inst, argument)?;
        }
        Ok(())
    }

    /// Whether the instruction at hand is a call that passes extra arguments.
    pub(super) fn passes_extra_arguments(&self) -> bool {
        !self.scratch.values.passed.is_empty()
    }

    fn extra_argument(&mut self, call: Inst, argument: ExtraArgument) -> Result<(), Malformed> {
        self.mark(Place::ExtraArgument(call));
        self.out.instructions += 1;
        let (opcode, ty) = match &argument {
            ExtraArgument::Constant { ty: types::F32, .. } => (Opcode::F32const, types::F32),
            ExtraArgument::Constant { ty: types::F64, .. } => (Opcode::F64const, types::F64),
            ExtraArgument::Constant { ty, .. } => (Opcode::Iconst, *ty),
            ExtraArgument::Function { ty, .. } => (Opcode::FuncAddr, computed_as(*ty)),
            ExtraArgument::Address { ty, .. } => (Opcode::SymbolValue, computed_as(*ty)),
        };
        let passed = argument.ty();
        let record = Record::EMPTY.byte(opcode as u8).half(type_number(ty));
        match &argument {
            ExtraArgument::Constant { ty: types::F32, bits } => {
                self.put(record);
                self.out.constant_i32(*bits as i32);
            }
            ExtraArgument::Constant { ty: _, bits } => {
                self.put(record);
                self.out.constant_i64(*bits as i64);
            }
            ExtraArgument::Function { ty: _, symbol, signature, colocated: _ } => {
                // It is not patchable.
                self.foreign_signature(record.byte(0), signature)?;
                self.address(symbol, Use::Address);
            }
            ExtraArgument::Address { ty: _, symbol, offset, colocated: _ } => {
                self.put(record);
                self.symbol_kind(false);
                self.out.constant_i64(*offset);
                self.address(symbol, Use::of_address(*offset));
            }
        }
        if self.scratch.record {
            self.holds(Operand::ExtraArgument(self.scratch.arguments.len()));
            self.scratch.arguments.push(argument);
        }
        self.scratch.values.count += 1;
        self.metadata_of_extra_argument(call)?;
        if ty != passed {
            self.passed_as_float(call, passed)?;
        }
        self.scratch.values.passed.push(self.scratch.values.count);
        Ok(())
    }

    /// The `bitcast` of the address that was written last.
    fn passed_as_float(&mut self, call: Inst, ty: Type) -> Result<(), Malformed> {
        let place = Place::ExtraArgument(call);
        self.mark(place);
        self.out.instructions += 1;
        let access = self.plain_access();
        let record = Record::EMPTY.byte(Opcode::Bitcast as u8).half(type_number(ty));
        self.put_numbers(record.half(access), [self.scratch.values.count]);
        self.scratch.values.count += 1;
        self.metadata_of_extra_argument(call)
    }

    fn metadata_of_extra_argument(&mut self, call: Inst) -> Result<(), Malformed> {
        if self.context.debug_info {
            self.word(self.func.srcloc(call).bits());
            self.length(0)?;
        }
        Ok(())
    }

    /// The address of a symbol that the function itself need not name.
    fn address(&mut self, symbol: &UserExternalName, usage: Use) {
        let resolved = self.context.symbols.resolve(symbol);
        let node = resolved.and_then(|resolved| match usage {
            Use::Inside => resolved.inside,
            Use::Address | Use::PatchableAddress | Use::Call | Use::PatchableCall => {
                resolved.address
            }
        });
        self.out.reference(symbol, node);
    }

    /// A record, and the signature of a call that passes extra arguments behind it: its number, and
    /// its contents where it is new.
    pub(super) fn extended_signature(
        &mut self,
        record: Record,
        callee: FuncRef,
    ) -> Result<(), Malformed> {
        let known = self.scratch.signatures.extended.iter().find(|(known, _)| *known == callee);
        if let Some(&(_, number)) = known {
            self.put_numbers(record, [number]);
            return Ok(());
        }
        let func = self.func;
        let signature = func.dfg.ext_funcs.get(callee).ok_or(Malformed)?.signature;
        let signature = func.dfg.signatures.get(signature).ok_or(Malformed)?;
        let arguments = self.arguments(callee)?.unwrap_or_default();
        let number = self.foreign_signature(record, &extended_signature(signature, &arguments))?;
        self.scratch.signatures.extended.push((callee, number));
        Ok(())
    }

    /// The operands of a call, extra arguments included.
    pub(super) fn call_operands(&mut self, values: &[Value]) -> Result<(), Malformed> {
        self.length(values.len() + self.scratch.values.passed.len())?;
        for &value in values {
            self.operands(Record::EMPTY, &[value])?;
        }
        for at in 0..self.scratch.values.passed.len() {
            self.put_numbers(Record::EMPTY, [self.scratch.values.passed[at]]);
        }
        Ok(())
    }
}
