//! Which oracle must notice which fault.

use crate::oracles::Oracle::{
    self, Checker, Classes, Copies, Differential, Frames, Incremental, Laws, Library, Linked, Modules, Sensitivity,
    Streaming, Thunks, Units,
};
use cranelift_mergefunc::fault_injection::Fault::{self, *};
use std::time::Instant;

/// The oracles that must notice each fault; `ConstantHash` is not a fault.
///
/// If the walk overlooks something, another function has the same encoding, and the checker, which
/// reads the functions independently, refuses the merge. If the plan merges too much, the laws of a
/// plan and the checker report it. If references are compared wrongly, classes are not those of the
/// definition.
const MATRIX: &[(Fault, &[Oracle])] = &[
    (ShuffleMask, &[Sensitivity, Checker]),
    (AtomicOperator, &[Sensitivity, Checker]),
    (IntCondition, &[Sensitivity, Checker, Classes]),
    (FloatCondition, &[Sensitivity, Checker, Classes]),
    (IntegerConstant, &[Sensitivity, Checker, Classes, Differential]),
    (FloatBits, &[Sensitivity, Checker, Classes]),
    (PoolBytes, &[Sensitivity, Checker, Classes]),
    (PoolHandle, &[Sensitivity, Checker]),
    (AccessOffset, &[Sensitivity, Checker, Classes]),
    (SlotOffset, &[Sensitivity, Checker, Classes]),
    (SlotIndex, &[Sensitivity, Checker]),
    (Lane, &[Sensitivity, Checker, Classes]),
    (Fault::TrapCode, &[Sensitivity, Checker, Classes, Differential]),
    (AccessTrapCode, &[Sensitivity, Checker, Classes]),
    (NoTrapWildcard, &[Sensitivity, Checker, Classes]),
    (ByteOrder, &[Sensitivity, Checker]),
    (MemoryFlags, &[Checker, Incremental, Streaming, Units]),
    (AliasRegion, &[Checker]),
    (ColdBlock, &[Checker]),
    (ResultType, &[Sensitivity, Checker]),
    (CallConv, &[Sensitivity, Checker]),
    (Extension, &[Sensitivity, Checker]),
    (Purpose, &[Sensitivity, Checker]),
    (CalleeSignature, &[Sensitivity, Checker]),
    (SlotSize, &[Sensitivity, Checker]),
    (SlotAlignment, &[Sensitivity, Checker]),
    (BranchArguments, &[Sensitivity, Checker]),
    (BranchTargets, &[Sensitivity, Checker]),
    (Fault::JumpTable, &[Sensitivity, Checker, Classes]),
    (ExceptionTag, &[Sensitivity, Checker]),
    (ExceptionContext, &[Sensitivity, Checker]),
    (ExceptionDefault, &[Sensitivity, Checker]),
    (OperandOrder, &[Sensitivity, Checker, Classes]),
    (Signedness, &[Sensitivity, Checker, Classes]),
    (StackMap, &[Sensitivity, Checker]),
    (SymbolOffset, &[Sensitivity, Checker]),
    (ThreadLocal, &[Sensitivity, Checker]),
    (GlobalOffset, &[Sensitivity, Checker]),
    (Patchable, &[Sensitivity, Checker, Classes]),
    (LibCall, &[Sensitivity, Checker]),
    (StackLimit, &[Sensitivity, Checker]),
    (SequencePoint, &[Sensitivity, Checker, Classes]),
    (HandlerNumber, &[Sensitivity, Checker]),
    (Namespace, &[Sensitivity, Checker, Classes]),
    (Key, &[Checker, Classes]),
    (DigestTrusted, &[Sensitivity, Checker, Classes, Differential]),
    (DataContents, &[Checker]),
    (DataAddend, &[Checker]),
    (DataTarget, &[Checker, Classes]),
    (DataSection, &[Checker]),
    (NoRefinement, &[Checker, Classes]),
    (OneRound, &[Checker, Classes]),
    (AddressByClass, &[Checker, Classes]),
    (PreemptibleByClass, &[Checker, Classes]),
    (NoMergeByClass, &[Checker, Classes]),
    (Pinned, &[Checker, Laws]),
    (Inside, &[Checker]),
    (NoMerge, &[Checker, Laws]),
    (ExternallyCalled, &[Checker, Laws]),
    (AddressTaken, &[Checker, Laws]),
    (AddressSignificant, &[Checker, Laws]),
    (Visible, &[Checker, Laws]),
    (Preemptible, &[Checker, Laws]),
    (Alignment, &[Checker, Laws]),
    (AliasUnsupported, &[Checker, Laws]),
    (ThunkUnsupported, &[Checker, Laws]),
    (AliasForThunk, &[Checker, Laws]),
    (OtherClass, &[Checker, Laws, Differential]),
    (ThunkCycle, &[Checker, Laws]),
    (RedirectForgotten, &[Checker, Laws]),
    (NothingRedirected, &[Checker, Laws]),
    (AddressFollowsCalls, &[Checker, Laws]),
    (PreemptibleRedirected, &[Checker, Laws]),
    (CalleesExchanged, &[Checker, Laws]),
    (Colocated, &[Checker, Laws]),
    (ThunkElsewhere, &[Differential]),
    (ThunkArguments, &[Differential]),
    (PassesAnother, &[Checker, Differential]),
    (PassedBackwards, &[Checker]),
    (PassedNothing, &[Checker, Laws]),
    (ParameterForgotten, &[Checker, Differential]),
    (CasesExchanged, &[Checker, Differential]),
    (SearchBound, &[Checker, Differential]),
    (ArmsExchanged, &[Checker, Differential, Incremental, Linked]),
    (SelectExchanged, &[Checker, Differential, Incremental, Linked]),
    (JoinWithoutValue, &[Checker, Differential, Incremental, Linked]),
    (ArmMovable, &[Checker, Differential]),
    (AlignedReferences, &[Checker, Differential]),
    (BodyBecomesThunk, &[Checker, Differential, Incremental]),
    (GuardInArm, &[Checker]),
    (WrittenElsewhere, &[Checker, Differential, Linked]),
    (CalleeWithoutThunk, &[Checker, Differential, Linked]),
    (SelfCallForgotten, &[Checker]),
    (PassedAddressEliminated, &[Checker, Laws]),
    (NamedEliminated, &[Checker]),
    (ThunkPassesBackwards, &[Differential]),
    (ParameterByThree, &[Checker, Differential]),
    (SelfTailCallExchanged, &[Checker, Differential]),
    (StackMapOfCase, &[Checker]),
    (SignatureByLength, &[Checker]),
    (TableOffset, &[Thunks]),
    (NextFloat, &[Incremental, Linked]),
    (DigestWithoutReferences, &[Checker, Incremental, Modules]),
    (DigestWithoutKind, &[Checker]),
    (AlignmentAcrossUnits, &[Checker, Modules]),
    (EliminatedPassesNothing, &[Checker]),
    (LateThunkForgotten, &[Checker, Modules]),
    (SymbolValueForgotten, &[Laws]),
    (LocalNameForgotten, &[Linked]),
    (InterposedCalleePassed, &[Linked]),
    (AddedBodyUnnamed, &[Linked]),
    (StreamedReferences, &[Streaming]),
    (StreamedConstants, &[Streaming]),
    (StreamedCallees, &[Streaming]),
    (StreamedCalleesAsWritten, &[Streaming]),
    (StreamedAddresses, &[Streaming]),
    (StreamedTables, &[Streaming]),
    (StreamedPointers, &[Streaming]),
    (StreamedItself, &[Streaming]),
    (StreamedAddressByClass, &[Streaming]),
    (StreamedAttributes, &[Streaming]),
    (StreamedAlignment, &[Streaming]),
    (StreamedDigest, &[Streaming]),
    (StreamedImports, &[Streaming]),
    (StreamedCalls, &[Streaming]),
    (RewrittenCallers, &[Streaming]),
    (ReplacedCallees, &[Streaming]),
    (HeldBody, &[Streaming]),
    (ReleasedBody, &[Streaming]),
    (HeldCode, &[Streaming]),
    (FrameTailCalls, &[Frames]),
    (FrameReturns, &[Frames]),
    (FrameRelation, &[Frames]),
    (FrameCallees, &[Frames]),
    (CycleDigest, &[Checker, Differential]),
    (CycleReferences, &[Checker, Differential]),
    (CycleMeets, &[Checker, Differential]),
    (CachedAddressByClass, &[Library]),
    (EliminatedBodyRemembered, &[Library]),
    (PreemptibleRemembered, &[Checker]),
    (EliminatedAddressTaken, &[Checker, Differential]),
    (EliminatedPointer, &[Differential]),
    (LateThunkTwice, &[Differential]),
    (ContentName, &[Units, Copies]),
    (ContentCallee, &[Units, Copies]),
    (ContentCycle, &[Units, Copies]),
    (ContentAlignment, &[Copies]),
    (ContentTables, &[Copies]),
    (ContentAddress, &[Copies]),
    (ContentVisible, &[Copies]),
    (ContentKeepsNoSymbol, &[Units]),
    (ContentFollowers, &[Units]),
    (ContentMismatched, &[Units]),
    (SharedArguments, &[Units]),
    (RowsPassed, &[Units]),
    (ConstantHash, &[]),
];

/// The first case in which an oracle notices a fault, and nothing without it, if any.
fn first_case(oracle: Oracle, fault: Option<Fault>) -> Option<u64> {
    first_case_of(oracle, fault, oracle.cases())
}

fn first_case_of(oracle: Oracle, fault: Option<Fault>, cases: u64) -> Option<u64> {
    (0..cases.min(oracle.cases()))
        .find(|&case| oracle.notices(fault, case) && !oracle.notices(None, case))
}

/// Panics of the pass are expected here, and their messages are suppressed.
fn quietly<T>(body: impl FnOnce() -> T) -> T {
    std::panic::set_hook(Box::new(|_| {}));
    let result = body();
    let _ = std::panic::take_hook();
    result
}

fn notices_its_faults(oracle: Oracle) {
    let faults = MATRIX.iter().filter(|(_, oracles)| oracles.contains(&oracle));
    let missed: Vec<&str> = quietly(|| {
        let missed = faults.filter(|(fault, _)| first_case(oracle, Some(*fault)).is_none());
        missed.map(|(fault, _)| fault.id()).collect()
    });
    assert_eq!(missed, [""; 0], "{oracle:?} does not notice");
}

#[test]
fn the_matrix_has_every_fault_once() {
    let mut faults: Vec<Fault> = MATRIX.iter().map(|(fault, _)| *fault).collect();
    faults.sort();
    assert_eq!(faults, Fault::ALL);
    let unnoticed = MATRIX.iter().filter(|(_, oracles)| oracles.is_empty());
    let unnoticed: Vec<&str> = unnoticed.map(|(fault, _)| fault.id()).collect();
    assert_eq!(unnoticed, ["constant-hash"]);
}

#[test]
fn sensitivity_notices_its_faults() {
    notices_its_faults(Sensitivity);
}

#[test]
fn the_checker_notices_its_faults() {
    notices_its_faults(Checker);
}

#[test]
fn classes_notice_their_faults() {
    notices_its_faults(Classes);
}

#[test]
fn laws_notice_their_faults() {
    notices_its_faults(Laws);
}

#[test]
fn differential_execution_notices_its_faults() {
    notices_its_faults(Differential);
}

#[test]
fn incremental_programs_notice_their_faults() {
    notices_its_faults(Incremental);
}

#[test]
fn linked_programs_notice_their_faults() {
    notices_its_faults(Linked);
}

#[test]
fn modules_notice_their_faults() {
    notices_its_faults(Modules);
}

#[test]
fn functions_that_arrive_one_at_a_time_notice_their_faults() {
    notices_its_faults(Streaming);
}

#[test]
fn programs_of_the_library_alone_notice_their_faults() {
    notices_its_faults(Library);
}

#[test]
fn units_that_are_planned_apart_notice_their_faults() {
    notices_its_faults(Units);
}

#[test]
fn copies_of_code_notice_their_faults() {
    notices_its_faults(Copies);
}

#[test]
fn frames_notice_their_faults() {
    notices_its_faults(Frames);
}

#[test]
fn thunks_notice_their_faults() {
    notices_its_faults(Thunks);
}

/// The reports of every oracle on an input without a fault, and with `ConstantHash`.
#[test]
fn nothing_is_noticed_where_nothing_is_wrong() {
    for oracle in Oracle::ALL {
        // Faults that are noticed at all are noticed in these cases.
        let all = oracle.cases();
        let first = (0..all.min(700)).chain(all.saturating_sub(150)..all);
        let step = match oracle {
            Differential | Incremental | Streaming => 8,
            Frames => 20,
            Library | Units | Copies => 40,
            Linked => 6,
            Modules => 4,
            Sensitivity | Checker | Classes | Laws | Thunks => 1,
        };
        for case in first.step_by(step) {
            assert!(!oracle.notices(None, case), "{oracle:?}, case {case}");
            let constant_hash = oracle.notices(Some(ConstantHash), case);
            assert!(!constant_hash, "{oracle:?}, case {case}, all hashes equal");
        }
    }
}

/// For the faults whose names contain one of the comma-separated texts of `FAULTS`; with `MUST`,
/// only for the oracles that must notice them. `CASES` is the most cases of each oracle.
#[test]
#[ignore = "prints the whole matrix, which takes long"]
fn print_the_matrix() {
    println!("| fault | {} |", Oracle::ALL.map(|oracle| format!("{oracle:?}")).join(" | "));
    println!("|---|{}", "---|".repeat(Oracle::ALL.len()));
    let only = std::env::var("FAULTS").unwrap_or_default();
    let only_must = std::env::var_os("MUST").is_some();
    let cases = std::env::var("CASES").map_or(u64::MAX, |cases| cases.parse().expect("a number"));
    let is_wanted = |fault: &Fault| only.split(',').any(|only| fault.id().contains(only));
    for (fault, must) in MATRIX.iter().filter(|(fault, _)| is_wanted(fault)) {
        let start = Instant::now();
        let cells = Oracle::ALL.map(|oracle| {
            if only_must && !must.contains(&oracle) {
                return String::new();
            }
            let first = quietly(|| first_case_of(oracle, Some(*fault), cases));
            let must = if must.contains(&oracle) { "must" } else { "" };
            first.map_or(must.to_owned(), |case| format!("{must} {case}").trim().to_owned())
        });
        println!("| {} | {} |", fault.id(), cells.join(" | "));
        eprintln!("{} took {:?}", fault.id(), start.elapsed());
    }
}

/// For the faults whose names contain the text of `FAULTS`.
#[test]
#[ignore = "prints how runs end and what they notice, which takes long"]
fn print_what_differential_execution_notices() {
    use std::collections::BTreeMap;
    std::panic::set_hook(Box::new(|_| {}));
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for case in 0..100 {
        for end in crate::oracles::ends(case) {
            *ends.entry(end).or_default() += 1;
        }
    }
    println!("{ends:#?}");
    let only = std::env::var("FAULTS").unwrap_or_default();
    for &fault in Fault::ALL.iter().filter(|fault| fault.id().contains(&only)) {
        let start = Instant::now();
        let case = first_case(Oracle::Differential, Some(fault));
        println!("| {} | {case:?} | {:?}", fault.id(), start.elapsed());
    }
}
