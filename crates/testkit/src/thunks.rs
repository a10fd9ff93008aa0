//! Thunks in raw bytes, compared with thunks in IR as the back end compiles them.
//!
//! Where a raw thunk takes the address of a symbol that may be far away, it must use the
//! relocations that the back end uses, equal in kind and addend: a thunk that loads an address from
//! the global offset table and adds an offset to the place of the entry reads another entry. One
//! that takes such an address from a register that has it, or one that is near to it, needs no
//! relocation for it: there can be fewer.

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{ExternalName, Signature, UserExternalName, UserFuncName};
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::{Context, FinalizedRelocTarget};
use cranelift_mergefunc::thunk::{CallThunks, OptimizeFor, ThunkCode, call_thunk};
use cranelift_mergefunc::{ExtraArgument, Target};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A relocation: of what, how, and what is added in bytes.
type Relocated = (UserExternalName, Reloc, i64);

/// Whether one of these arguments is an address of `symbol` that may be far away.
fn is_far(symbol: &UserExternalName, arguments: &[ExtraArgument]) -> bool {
    let far = |argument: &ExtraArgument| match argument {
        ExtraArgument::Constant { .. } => false,
        ExtraArgument::Function { symbol: of, colocated, .. }
        | ExtraArgument::Address { symbol: of, colocated, .. } => of == symbol && !colocated,
    };
    arguments.iter().any(far)
}

/// Whether what is loaded is an entry of the global offset table.
fn is_table(kind: Reloc) -> bool {
    matches!(kind, Reloc::X86GOTPCRel4 | Reloc::Aarch64AdrGotPage21 | Reloc::Aarch64Ld64GotLo12Nc)
}

fn sorted(mut relocations: Vec<Relocated>) -> Vec<Relocated> {
    relocations.sort_by_key(|(symbol, kind, _)| (symbol.index, format!("{kind:?}")));
    relocations
}

/// Whether these relocations are some of the expected ones, in each way in which one of those gets
/// the address of each symbol.
fn covers(relocations: &[Relocated], expected: &[Relocated]) -> bool {
    let found = |(symbol, kind, _): &Relocated| {
        relocations.iter().any(|(of, found, _)| (of, found) == (symbol, kind))
    };
    relocations.iter().all(|of| expected.contains(of)) && expected.iter().all(found)
}

/// The relocations that the back end makes. `None` if it compiles no such thunk.
fn compiled(
    isa: &dyn TargetIsa,
    own: &Signature,
    arguments: &[ExtraArgument],
) -> Option<Vec<Relocated>> {
    let (name, to) = (UserFuncName::user(0, 1), UserExternalName::new(0, 0));
    let thunk = call_thunk(name, own, arguments, &to, &CallThunks::of(isa));
    let context = catch_unwind(AssertUnwindSafe(|| {
        let mut context = Context::for_function(thunk);
        context.compile(isa, &mut ControlPlane::default()).ok()?;
        Some(context)
    }));
    let context = context.ok().flatten()?;
    let code = context.compiled_code().expect("compiled");
    let relocations = code.buffer.relocs().iter().filter_map(|of| match &of.target {
        FinalizedRelocTarget::ExternalName(ExternalName::User(name)) => {
            let symbol = context.func.params.user_named_funcs()[*name].clone();
            is_far(&symbol, arguments).then_some((symbol, of.kind, of.addend))
        }
        FinalizedRelocTarget::ExternalName(_) | FinalizedRelocTarget::Func(_) => None,
    });
    Some(sorted(relocations.collect()))
}

/// The raw thunk for functions of this signature that passes these arguments, if there is one.
///
/// # Errors
///
/// Says how it takes addresses that may be far away in another way than the back end does.
pub fn thunk(
    isa: &dyn TargetIsa,
    own: &Signature,
    arguments: &[ExtraArgument],
    optimize: OptimizeFor,
) -> Result<Option<ThunkCode>, String> {
    let to = UserExternalName::new(0, 0);
    let Some(code) = Target::of(isa).thunk_code(own, arguments, &to, optimize) else {
        return Ok(None);
    };
    let relocations = code.relocations.iter().filter(|of| is_far(&of.symbol, arguments));
    let relocations = relocations.map(|of| (of.symbol.clone(), of.kind, of.addend));
    let relocations = sorted(relocations.collect());
    let from_table = |argument: &&ExtraArgument| match argument {
        ExtraArgument::Address { symbol, offset, colocated: false, .. } if *offset != 0 => {
            let of = |(of, kind, _): &Relocated| of == symbol && is_table(*kind);
            relocations.iter().any(of)
        }
        ExtraArgument::Address { .. }
        | ExtraArgument::Function { .. }
        | ExtraArgument::Constant { .. } => false,
    };
    if let Some(argument) = arguments.iter().find(from_table) {
        return Err(format!("{argument:?}: nothing is added to what is loaded from the table"));
    }
    match compiled(isa, own, arguments) {
        Some(expected) if !covers(&relocations, &expected) => {
            Err(format!("{arguments:?}: {relocations:?} instead of {expected:?}"))
        }
        _ => Ok(Some(code)),
    }
}
