//! Functions in memory, printed and read back: what a text means is what was printed.
//!
//! [`check`] prints a function twice. As this project prints it, it must be read back whole: the
//! same encoding, and the same tables, flags, source locations, debug tags and stack maps. As
//! Cranelift prints it, it must be read back whole or be refused; only the memory flags of atomic
//! operations are not in such a text, and nothing says so there. The comparison is written down
//! anew, so that a printer that drops something does not drop it on both sides.

use clif_unit::text;
use clif_unit::unit::{Reading, Source, parse_unit};
use clif_unit::verify::Verifier;
use cranelift_codegen::ir::{
    Block, ExternalName, Function, GlobalValueData, Inst, InstructionData, MemFlagsData,
    StackSlotKind, Value,
};
use cranelift_mergefunc::explain::Encoding;
use cranelift_mergefunc::{Compare, Options, cranelift_codegen};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::OnceLock;

/// The text of a function that was read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The verifier refuses the function, so no text of it need be read.
    Invalid,
    /// No text can say what it is, and what is printed was refused.
    Unprintable,
    /// A text that Cranelift prints was refused.
    CraneliftsRefused,
    /// Both were read back.
    Both,
}

/// Panics if a text of `func` is read as another function, or if what this project prints is
/// refused.
pub fn check(func: &Function) -> Found {
    if !matches!(clif_unit::contain::contain(|| verifier().verify(func)), Ok(Ok(()))) {
        return Found::Invalid;
    }
    let ours = text::of(func);
    if is_unprintable(func) {
        assert!(read(&ours).is_err(), "{ours}");
        return Found::Unprintable;
    }
    let again = read(&ours).unwrap_or_else(|error| panic!("{error}\nin what was printed:\n{ours}"));
    compare(func, &again, Atomics::Compare, &ours);
    assert_eq!(text::of(&again), ours, "printed again");
    let cranelifts = func.display().to_string();
    match read(&cranelifts) {
        Err(_) => Found::CraneliftsRefused,
        Ok(again) => {
            compare(func, &again, Atomics::Ignore, &cranelifts);
            Found::Both
        }
    }
}

/// Whether the flags of atomic operations are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Atomics {
    Compare,
    Ignore,
}

fn verifier() -> &'static Verifier {
    static VERIFIER: OnceLock<Verifier> = OnceLock::new();
    VERIFIER.get_or_init(Verifier::without_target)
}

fn read(text: &str) -> Result<Function, String> {
    let source = Source { name: "unit.clif".to_owned(), text: text.to_owned() };
    let unit = parse_unit(&[source], Reading::plain(verifier()));
    unit.map(|unit| unit.names.restore(&unit.functions[0])).map_err(|error| format!("{error:#}"))
}

/// Whether a function in memory is what no text can say: a value of a dynamic type that is not
/// declared or that is a parameter, a dynamic stack slot of a sized kind, a load of a global value
/// that may trap or be unaligned, a constant without bytes or of more than 16, or a description
/// with a quotation mark or a line break.
fn is_unprintable(func: &Function) -> bool {
    let is_dynamic = |value: &Value| func.dfg.value_type(*value).is_dynamic_vector();
    let is_declared = |value: &Value| {
        let ty = func.dfg.value_type(*value);
        func.dfg.dynamic_types.values().any(|data| data.concrete() == Some(ty))
    };
    let mut params = func.layout.blocks().flat_map(|block| func.dfg.block_params(block));
    let mut results = insts(func).flat_map(|inst| func.dfg.inst_results(inst));
    let mut slots = func.dynamic_stack_slots.values();
    let mut constants = func.dfg.constants.iter();
    let mut regions = func.dfg.alias_regions.iter();
    let mut loads = func.global_values.values().filter_map(|gv| match gv {
        GlobalValueData::Load { base: _, offset: _, global_type: _, flags } => {
            Some(func.dfg.mem_flags[*flags])
        }
        _ => None,
    });
    params.any(is_dynamic)
        || loads.any(|flags| !flags.notrap() || !flags.aligned())
        || results.any(|result| is_dynamic(result) && !is_declared(result))
        || slots.any(|slot| slot.kind != StackSlotKind::ExplicitDynamicSlot)
        || constants.any(|(_, data)| !(1..=16).contains(&data.len()))
        || regions.any(|(_, data)| data.description.contains(['"', '\n']))
}

/// Everything counts that a text can say.
fn strict() -> Options<'static> {
    let compare = Compare { debug_info: true, every_function: true };
    Options { compare, ..Options::default() }
}

fn compare(func: &Function, again: &Function, atomics: Atomics, text: &str) {
    let ignores = atomics == Atomics::Ignore && insts(func).any(|inst| is_atomic(func, inst));
    if !ignores {
        let options = strict();
        // Value labels are in no text.
        let mut unlabelled = func.clone();
        unlabelled.dfg.values_labels = None;
        assert_eq!(Encoding::of(&unlabelled, &options), Encoding::of(again, &options), "{text}");
    }
    assert_eq!(tables(func), tables(again), "{text}");
    assert_eq!(code(func, atomics), code(again, atomics), "{text}");
}

fn insts(func: &Function) -> impl Iterator<Item = Inst> + '_ {
    func.layout.blocks().flat_map(|block| func.layout.block_insts(block))
}

fn is_atomic(func: &Function, inst: Inst) -> bool {
    let data = &func.dfg.insts[inst];
    matches!(data, InstructionData::AtomicRmw { .. } | InstructionData::AtomicCas { .. })
}

/// The text of each instruction, operands and destinations as they are written, and which blocks
/// are cold.
fn code(func: &Function, atomics: Atomics) -> String {
    let mut out = String::new();
    let blocks: Vec<Block> = func.layout.blocks().collect();
    let place = |block: Block| blocks.iter().position(|&other| other == block);
    // By the place of the definition; a text need not keep numbers.
    let params = blocks.iter().flat_map(|&block| func.dfg.block_params(block));
    let results = insts(func).flat_map(|inst| func.dfg.inst_results(inst));
    let numbers: HashMap<Value, usize> = params.chain(results).copied().zip(0..).collect();
    for block in func.layout.blocks() {
        let params = func.dfg.block_params(block);
        let types: Vec<_> = params.iter().map(|&param| func.dfg.value_type(param)).collect();
        let cold = func.layout.is_cold(block);
        writeln!(out, "{block} {types:?} cold {cold}").unwrap();
        for inst in func.layout.block_insts(block) {
            let data = &func.dfg.insts[inst];
            let flags = data.memflags().map(|flags| func.dfg.mem_flags[flags]);
            let flags = flags.filter(|_| atomics == Atomics::Compare || !is_atomic(func, inst));
            let results = func.dfg.inst_results(inst);
            let types: Vec<_> = results.iter().map(|&value| func.dfg.value_type(value)).collect();
            let map = func.dfg.user_stack_map_entries(inst).unwrap_or(&[]);
            let operands = func.dfg.inst_values(inst);
            let operands: Vec<_> =
                operands.map(|value| numbers.get(&func.dfg.resolve_aliases(value))).collect();
            let (tables, exceptions) = (&func.dfg.jump_tables, &func.dfg.exception_tables);
            let to = data.branch_destination(tables, exceptions).iter();
            let to: Vec<_> = to.map(|call| place(call.block(&func.dfg.value_lists))).collect();
            writeln!(
                out,
                "{} {operands:?} {to:?} {flags:?} {types:?} {map:?} {:?} {}",
                data.opcode(),
                func.debug_tags.get(inst),
                func.srcloc(inst),
            )
            .unwrap();
        }
    }
    out
}

/// The tables of a function, used or not.
fn tables(func: &Function) -> String {
    let mut out = String::new();
    let name = |name: &ExternalName| name.display(Some(&func.params)).to_string();
    let flags = |flags| -> MemFlagsData { func.dfg.mem_flags[flags] };
    writeln!(out, "{} {:?} {:?}", func.name, func.signature, func.stack_limit).unwrap();
    for slot in func.sized_stack_slots.iter() {
        writeln!(out, "{slot:?}").unwrap();
    }
    for slot in func.dynamic_stack_slots.iter() {
        writeln!(out, "{slot:?}").unwrap();
    }
    for (dynamic, data) in func.dfg.dynamic_types.iter() {
        writeln!(out, "{dynamic} {} {}", data.base_vector_ty, data.dynamic_scale).unwrap();
    }
    for (region, data) in func.dfg.alias_regions.iter() {
        writeln!(out, "{region} {data:?}").unwrap();
    }
    for (gv, data) in func.global_values.iter() {
        match data {
            GlobalValueData::Symbol { name: symbol, offset, colocated, tls } => {
                writeln!(out, "{gv} {} {offset:?} {colocated} {tls}", name(symbol))
            }
            GlobalValueData::Load { base, offset, global_type, flags: load } => {
                writeln!(out, "{gv} {base} {offset:?} {global_type} {:?}", flags(*load))
            }
            GlobalValueData::VMContext
            | GlobalValueData::IAddImm { .. }
            | GlobalValueData::DynScaleTargetConst { .. } => writeln!(out, "{gv} {data:?}"),
        }
        .unwrap();
    }
    for signature in func.dfg.signatures.iter() {
        writeln!(out, "{signature:?}").unwrap();
    }
    for (callee, data) in func.dfg.ext_funcs.iter() {
        let (colocated, patchable) = (data.colocated, data.patchable);
        writeln!(out, "{callee} {} {} {colocated} {patchable}", name(&data.name), data.signature)
            .unwrap();
    }
    for constant in func.dfg.constants.iter() {
        writeln!(out, "{constant:?}").unwrap();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Found, check};
    use crate::corpus;
    use crate::generate::function::Profile;
    use crate::generate::opcodes::Machine;
    use crate::generate::unit::GeneratedUnit;
    use crate::mutate::function::function_mutants;
    use crate::mutate::instruction_mutants;
    use crate::permute::{Colocated, permuted};
    use crate::support::Rng;
    use arbitrary::Unstructured;
    use cranelift_codegen::ir::immediates::{Ieee16, Ieee32, Ieee64, Ieee128};
    use cranelift_codegen::ir::{ArgumentPurpose, LibCall, TrapCode};
    use cranelift_codegen::isa::CallConv;
    use cranelift_mergefunc::cranelift_codegen;
    use std::num::NonZeroU8;
    use std::str::FromStr;

    /// All opcodes and entities, and all of them once more in other forms: with aliases, other
    /// numbers, unused entities, source locations, debug tags and keys of slots.
    #[test]
    fn every_opcode_and_entity_is_read_back() {
        let mut refused = 0;
        for (seed, func) in (0_u64..).zip(corpus()) {
            assert_ne!(check(&func), Found::Invalid, "{func}");
            for round in 0..8 {
                let other = permuted(&func, Colocated::Change, 100 * seed + round);
                let found = check(&other);
                assert_ne!(found, Found::Invalid, "{other}");
                refused += usize::from(found == Found::CraneliftsRefused);
            }
        }
        println!("of what Cranelift prints, {refused} were refused");
        assert!(refused > 10, "{refused}");
    }

    /// Each field of each instruction and of each entity, changed alone.
    #[test]
    fn changed_functions_are_read_back() {
        let (mut both, mut unprintable) = (0, 0);
        for func in corpus() {
            let mutants = instruction_mutants(&func).into_iter().chain(function_mutants(&func));
            // Each opcode is in the corpus.
            for mutant in mutants.filter(|mutant| !mutant.what.starts_with("opcode")) {
                let found = check(&mutant.func);
                both += usize::from(found == Found::Both);
                unprintable += usize::from(found == Found::Unprintable);
            }
        }
        println!("{both} mutants were read back from both texts, {unprintable} cannot be texts");
        assert!(both > 500, "{both}");
    }

    #[test]
    fn generated_functions_are_read_back() {
        let mut count = 0;
        for seed in 0..12 {
            let bytes = Rng::new(seed).bytes(4096);
            let profile = Profile::all(Machine::host());
            let unit = GeneratedUnit::draw(&mut Unstructured::new(&bytes), &profile);
            for member in &unit.unit.functions {
                count += usize::from(check(&member.body) != Found::Invalid);
            }
        }
        assert!(count > 50, "{count}");
    }

    /// Numbers and words are read as what they were printed from: floats of all kinds, codes of
    /// traps, conventions, library functions.
    #[test]
    fn every_number_and_word_is_read_back() {
        fn same<T: ToString + FromStr + PartialEq + std::fmt::Debug>(value: T) {
            let text = value.to_string();
            assert_eq!(text.parse().ok().as_ref(), Some(&value), "{text}");
        }
        (0..=u16::MAX).for_each(|bits| same(Ieee16::with_bits(bits)));
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let (low, high) = (rng.word(), rng.word());
            let bits = u128::from(high) << 64 | u128::from(low);
            for (shift, zero) in
                [(0, 0), (0, u128::MAX << 110), (40, 0), (80, 0), (112, 0), (120, 0)]
            {
                let bits = (bits >> shift) | zero;
                same(Ieee128::with_bits(bits));
                same(Ieee64::with_bits(bits as u64));
                same(Ieee64::with_bits((bits >> 64) as u64));
                same(Ieee32::with_bits(bits as u32));
                same(Ieee32::with_bits((bits >> 96) as u32));
            }
        }
        for code in 1..=u8::MAX {
            same(TrapCode::from_raw(NonZeroU8::new(code).unwrap()));
        }
        for call_conv in [
            CallConv::Fast,
            CallConv::Tail,
            CallConv::SystemV,
            CallConv::WindowsFastcall,
            CallConv::AppleAarch64,
            CallConv::Probestack,
            CallConv::Winch,
            CallConv::PreserveAll,
        ] {
            same(call_conv);
        }
        LibCall::all_libcalls().iter().for_each(|&libcall| same(libcall));
        for purpose in [
            ArgumentPurpose::Normal,
            ArgumentPurpose::StructArgument(u32::MAX),
            ArgumentPurpose::StructReturn,
            ArgumentPurpose::VMContext,
        ] {
            same(purpose);
        }
    }
}
