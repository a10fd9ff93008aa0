//! Faults to inject, one at a time: a comparator that overlooks a field, a plan that merges too
//! much, an incomplete rewrite. Each is a mistake that a merger could make, or that one has made.
//!
//! [`planted`] runs a closure with one fault injected in this thread. The library asks for the
//! fault in few places (`hooks` of the test kit), and only in a copy that is made for that. A
//! comparator that overlooks a field is one that reads functions in which the field is masked
//! (`masking`).
//!
//! The faults test the tests: `crates/testkit/faults/tests/fault_injection.rs` says which oracle
//! must notice which fault.

mod masking;
mod plans;

use crate::extra_argument::ExtraArgument;
use crate::options::Options;
use crate::parameterise::body::Parameter;
use crate::plan::{Disposition, Plan};
use crate::target::Target;
use crate::unit::{Addresses, Attributes, DataIndex, FunctionIndex, Linkage, Unit};
use cranelift_codegen::ir::{
    AbiParam, Function, Inst, Opcode, Signature, UserExternalName, UserStackMapEntry, Value, types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_entity::EntityRef;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

pub(crate) use masking::{masked, masked_data};
pub use plans::jump;
pub(crate) use plans::{applied, encoded, overlooked, passed, planned, redirected, unsupported};

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident = $id:literal,)+) => {
        /// A fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Fault {
            /// All of them.
            pub const ALL: &[Fault] = &[$(Fault::$name),+];

            /// A kebab-case name.
            pub fn id(self) -> &'static str {
                match self {
                    $(Fault::$name => $id),+
                }
            }
        }
    };
}

faults! {
    // Faults of the walk: ignored fields.
    /// The mask of a shuffle.
    ShuffleMask = "shuffle-mask",
    /// The operator of an atomic operation.
    AtomicOperator = "atomic-operator",
    /// The condition of an integer comparison.
    IntCondition = "int-condition",
    /// The condition of a float comparison.
    FloatCondition = "float-condition",
    /// Integer constants.
    IntegerConstant = "integer-constant",
    /// Float constants are compared as numbers, so that 0.0 is -0.0 and all NaNs are one.
    FloatBits = "float-bits",
    /// The bytes in the constant pool.
    PoolBytes = "pool-bytes",
    /// Constants of the pool are compared by their handles.
    PoolHandle = "pool-handle",
    /// Offsets of loads and stores.
    AccessOffset = "access-offset",
    /// Offsets into stack slots.
    SlotOffset = "slot-offset",
    /// Which stack slot it is.
    SlotIndex = "slot-index",
    /// Lanes and other immediates of 8 bits.
    Lane = "lane",
    /// Trap codes of instructions that trap.
    TrapCode = "trap-code",
    /// Trap codes of memory accesses.
    AccessTrapCode = "access-trap-code",
    /// An access that cannot trap equals one that can, with whatever code.
    NoTrapWildcard = "no-trap-wildcard",
    /// Byte orders.
    ByteOrder = "byte-order",
    /// Memory flags that let the optimiser assume facts: `aligned`, `readonly`, `can_move`, alias
    /// regions.
    MemoryFlags = "memory-flags",
    /// Alias regions.
    AliasRegion = "alias-region",
    /// Whether a block is cold.
    ColdBlock = "cold-block",
    /// Types of results.
    ResultType = "result-type",
    /// Calling conventions.
    CallConv = "call-conv",
    /// Extensions of parameters.
    Extension = "extension",
    /// Purposes of parameters.
    Purpose = "purpose",
    /// Signatures of callees.
    CalleeSignature = "callee-signature",
    /// Sizes of stack slots.
    SlotSize = "slot-size",
    /// Alignments of stack slots.
    SlotAlignment = "slot-alignment",
    /// Arguments of branches.
    BranchArguments = "branch-arguments",
    /// Which way a branch goes.
    BranchTargets = "branch-targets",
    /// Entries of jump tables.
    JumpTable = "jump-table",
    /// Tags of exception handlers.
    ExceptionTag = "exception-tag",
    /// Contexts of exception tables.
    ExceptionContext = "exception-context",
    /// Handlers for all other exceptions.
    ExceptionDefault = "exception-default",
    /// The order of operands, also where it matters.
    OperandOrder = "operand-order",
    /// Whether an operation is signed.
    Signedness = "signedness",
    /// User stack maps.
    StackMap = "stack-map",
    /// Offsets of symbols.
    SymbolOffset = "symbol-offset",
    /// Whether a symbol is thread-local.
    ThreadLocal = "thread-local",
    /// Offsets of derived global values.
    GlobalOffset = "global-offset",
    /// Whether a call can be patched: such a callee is compared by class.
    Patchable = "patchable",
    /// Which library function is called.
    LibCall = "lib-call",
    /// The stack limit.
    StackLimit = "stack-limit",
    /// Sequence points.
    SequencePoint = "sequence-point",
    /// The number of an exception handler whose address is taken.
    HandlerNumber = "handler-number",
    /// The namespace of a symbol.
    Namespace = "namespace",
    /// The function key.
    Key = "key",
    /// Encodings are equal if 8 bits of a digest are.
    DigestTrusted = "digest-trusted",
    /// The contents of data objects.
    DataContents = "data-contents",
    /// The addend of a pointer in a data object.
    DataAddend = "data-addend",
    /// The target of a pointer in a data object.
    DataTarget = "data-target",
    /// Sections of data objects.
    DataSection = "data-section",

    // How references are compared.
    /// Callees are not refined at all.
    NoRefinement = "no-refinement",
    /// Callees are refined once, and not those of callees.
    OneRound = "one-round",
    /// A significant address is compared by class.
    AddressByClass = "address-by-class",
    /// A preemptible function is compared by class.
    PreemptibleByClass = "preemptible-by-class",
    /// A function that must stay distinguishable is compared by class.
    NoMergeByClass = "no-merge-by-class",

    // Faults of the plan: ignored attributes.
    /// That a function is pinned.
    Pinned = "pinned",
    /// That something points into a function.
    Inside = "inside",
    /// That a function must not be merged.
    NoMerge = "no-merge",
    /// That a function is externally called.
    ExternallyCalled = "externally-called",
    /// That an address is taken.
    AddressTaken = "address-taken",
    /// That an address is significant.
    AddressSignificant = "address-significant",
    /// That a symbol is visible.
    Visible = "visible",
    /// That a symbol is preemptible.
    Preemptible = "preemptible",
    /// Alignments.
    Alignment = "alignment",
    /// That the target supports no aliases.
    AliasUnsupported = "alias-unsupported",
    /// That the target supports no thunks.
    ThunkUnsupported = "thunk-unsupported",

    // Faults of the plan: wrong decisions.
    /// Every thunk becomes an alias.
    AliasForThunk = "alias-for-thunk",
    /// A function is merged into one of another class.
    OtherClass = "other-class",
    /// Two functions are thunks to each other.
    ThunkCycle = "thunk-cycle",

    // Faults of applying.
    /// One callee keeps its old name.
    RedirectForgotten = "redirect-forgotten",
    /// All callees keep their old names.
    NothingRedirected = "nothing-redirected",
    /// Uses of an address follow the calls.
    AddressFollowsCalls = "address-follows-calls",
    /// Calls of preemptible functions go to what their thunks jump to.
    PreemptibleRedirected = "preemptible-redirected",
    /// Calls go to another function.
    CalleesExchanged = "callees-exchanged",
    /// Callees become colocated.
    Colocated = "colocated",

    // Faults of the back end.
    /// A thunk jumps to another function.
    ThunkElsewhere = "thunk-elsewhere",
    /// A call thunk drops its last argument and passes the first twice.
    ThunkArguments = "thunk-arguments",

    // Faults of parameterised bodies and extra arguments.
    /// The second function of a set passes the extra arguments of the first one.
    PassesAnother = "passes-another",
    /// The extra arguments are in the opposite order.
    PassedBackwards = "passed-backwards",
    /// Calls pass no extra arguments.
    PassedNothing = "passed-nothing",
    /// The last place of a parameter keeps the value of the first function.
    ParameterForgotten = "parameter-forgotten",
    /// A callee dispatch exchanges two of its cases.
    CasesExchanged = "cases-exchanged",
    /// The search of a callee dispatch takes the last case below a bound for one above it.
    SearchBound = "search-bound",
    /// Where two functions differ, a selector leads to the instructions of the other one.
    ArmsExchanged = "arms-exchanged",
    /// Where the operands of two functions differ, a selector chooses that of the other one.
    SelectExchanged = "select-exchanged",
    /// Where the instructions that differ join, zero is passed in place of what they compute.
    JoinWithoutValue = "join-without-value",
    /// An access that only one of two functions makes may be moved.
    ArmMovable = "arm-movable",
    /// A selector leads around guards against speculation.
    GuardInArm = "guard-in-arm",
    /// References of instructions need not agree between two aligned functions.
    AlignedReferences = "aligned-references",
    /// A parameterised body that comes to another one becomes a thunk, since all symbols are kept.
    BodyBecomesThunk = "body-becomes-thunk",
    /// Calls that are compared as they are written go to the callee of another function.
    WrittenElsewhere = "written-elsewhere",
    /// A function whose address is passed has no code, if only its calls passed its extra arguments
    /// before.
    CalleeWithoutThunk = "callee-without-thunk",
    /// Functions that call themselves call the first function of their set instead.
    SelfCallForgotten = "self-call-forgotten",
    /// Functions whose addresses are used have no thunks.
    PassedAddressEliminated = "passed-address-eliminated",
    /// Functions that are thunks with extra arguments are eliminated, whatever refers to them.
    NamedEliminated = "named-eliminated",
    /// Thunks pass the extra arguments in the opposite order.
    ThunkPassesBackwards = "thunk-passes-backwards",
    /// Places share a parameter if they agree in the first three functions.
    ParameterByThree = "parameter-by-three",
    /// A self-call in tail position exchanges two arguments of one type.
    SelfTailCallExchanged = "self-tail-call-exchanged",
    /// A call in a callee dispatch has only the first entry of the stack map.
    StackMapOfCase = "stack-map-of-case",
    /// Signatures with equal numbers of parameters and results count as equal.
    SignatureByLength = "signature-by-length",
    /// A thunk loses the offset of a symbol whose address it loads from the global offset table.
    TableOffset = "table-offset",
    /// A thunk sets another floating-point register than the body reads.
    NextFloat = "next-float",

    // Faults of incremental merging.
    /// References of known functions are not compared.
    DigestWithoutReferences = "digest-without-references",
    /// A reference of a known function by symbol is not distinguished from one by class.
    DigestWithoutKind = "digest-without-kind",
    /// Alignments of emitted bodies are not compared.
    AlignmentAcrossUnits = "alignment-across-units",
    /// Later units do not pass the extra arguments of functions that earlier units eliminated.
    EliminatedPassesNothing = "eliminated-passes-nothing",
    /// Functions that earlier units eliminated get no late thunk when one is needed.
    LateThunkForgotten = "late-thunk-forgotten",
    /// They get no late thunk if a global value is their address.
    SymbolValueForgotten = "symbol-value-forgotten",
    /// An exported function to which references of others go has no local name.
    LocalNameForgotten = "local-name-forgotten",
    /// The addresses of exported functions are passed in place of callees, even where those can be
    /// interposed.
    InterposedCalleePassed = "interposed-callee-passed",
    /// A body that the plan adds refers to functions by symbols that can be interposed.
    AddedBodyUnnamed = "added-body-unnamed",
    /// Of the functions of an emitted cycle, only the first is compared.
    CycleDigest = "cycle-digest",
    /// References of functions of an emitted cycle to functions outside it are not compared.
    CycleReferences = "cycle-references",
    /// Two functions of an emitted cycle may both equal one function.
    CycleMeets = "cycle-meets",
    /// Addresses of functions of earlier units are compared by class if their calls are.
    CachedAddressByClass = "cached-address-by-class",
    /// Bodies that the plan eliminated are remembered as if they were emitted.
    EliminatedBodyRemembered = "eliminated-body-remembered",
    /// Preemptible functions are remembered, so that later ones are merged into them.
    PreemptibleRemembered = "preemptible-remembered",
    /// Functions that earlier units eliminated get no late thunk if code takes their address.
    EliminatedAddressTaken = "eliminated-address-taken",
    /// They get no late thunk if a data object points to them.
    EliminatedPointer = "eliminated-pointer",
    /// They get another late thunk in each unit that needs one.
    LateThunkTwice = "late-thunk-twice",

    // Faults of functions that arrive one at a time.
    /// They are equal if their encodings are, whatever they refer to.
    StreamedReferences = "streamed-references",
    /// Their constants are not compared.
    StreamedConstants = "streamed-constants",
    /// Callees of compiled code may lose their symbols to a body that takes extra arguments.
    StreamedCallees = "streamed-callees",
    /// Callees as they were written keep their symbols, and callees after the plan do not.
    StreamedCalleesAsWritten = "streamed-callees-as-written",
    /// Addresses that their code takes are not recorded.
    StreamedAddresses = "streamed-addresses",
    /// Symbols that their tables observe, such as those of calls that can be patched, are not
    /// recorded.
    StreamedTables = "streamed-tables",
    /// Addresses that data objects hold are not recorded.
    StreamedPointers = "streamed-pointers",
    /// A call of a function of the same encoding counts as one of the function itself.
    StreamedItself = "streamed-itself",
    /// Addresses are compared by class if calls are.
    StreamedAddressByClass = "streamed-address-by-class",
    /// Attributes of functions of one linkage are those of the first one.
    StreamedAttributes = "streamed-attributes",
    /// Alignments are not compared.
    StreamedAlignment = "streamed-alignment",
    /// Digests are equal if their first bytes are.
    StreamedDigest = "streamed-digest",
    /// All symbols that are not added are one.
    StreamedImports = "streamed-imports",
    /// Callees of code that is not added may lose their symbols to a body that takes extra
    /// arguments.
    StreamedCalls = "streamed-calls",
    /// Calls of code that is not added and is rewritten pass no extra arguments.
    RewrittenCallers = "rewritten-callers",
    /// Callees of code that may be replaced may lose their symbols, although that code may also
    /// stay.
    ReplacedCallees = "replaced-callees",
    /// The IR of a function that equals a held one is requested under its own number.
    HeldBody = "held-body",
    /// Functions that were given up count as held.
    ReleasedBody = "released-body",
    /// Every function has code of its own, as the plan says it.
    HeldCode = "held-code",

    // Faults of backtraces.
    /// No function has tail calls.
    FrameTailCalls = "frame-tail-calls",
    /// The instruction behind a call is taken for the call.
    FrameReturns = "frame-returns",
    /// An instruction of a body is taken for that of its number in each of its functions.
    FrameRelation = "frame-relation",
    /// It is not known what calls call.
    FrameCallees = "frame-callees",

    // Faults of bodies that units share.
    /// Content digests do not depend on the names that are referred to.
    ContentName = "content-name",
    /// They do not depend on the content-addressed bodies that are referred to.
    ContentCallee = "content-callee",
    /// They do not depend on the rest of a cycle.
    ContentCycle = "content-cycle",
    /// They do not depend on alignments.
    ContentAlignment = "content-alignment",
    /// They do not depend on how near callees are, nor on which of them share an entry.
    ContentTables = "content-tables",
    /// An address of a function that keeps its symbol counts as that of its content-addressed body.
    ContentAddress = "content-address",
    /// Functions that other units can see are referred to by content.
    ContentVisible = "content-visible",
    /// Functions whose symbols are needed are eliminated.
    ContentKeepsNoSymbol = "content-keeps-no-symbol",
    /// Functions that were merged into a function do not follow it into its content-addressed body.
    ContentFollowers = "content-followers",
    /// Shared code passes the extra arguments of a thunk that is called with more arguments than it
    /// has.
    ContentMismatched = "content-mismatched",
    /// Functions that share a body that a map names pass the extra arguments of the first of them.
    SharedArguments = "shared-arguments",
    /// The callees that functions of a set pass are not recorded before it is decided what becomes
    /// of the functions.
    RowsPassed = "rows-passed",

    // No fault.
    /// All functions have one hash, which costs time only.
    ConstantHash = "constant-hash",
}

std::thread_local! {
    static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Runs `body` in this thread with a fault injected, or with none.
pub fn planted<T>(fault: impl Into<Option<Fault>>, body: impl FnOnce() -> T) -> T {
    /// Removes the fault, also when `body` panics.
    struct Before(Option<Fault>);
    impl Drop for Before {
        fn drop(&mut self) {
            PLANTED.set(self.0);
        }
    }
    let _before = Before(PLANTED.replace(fault.into()));
    body()
}

/// Whether this fault is injected.
pub fn is(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Two things, exchanged if this fault is injected.
pub fn exchanged<T>(fault: Fault, (a, b): (T, T)) -> (T, T) {
    if is(fault) { (b, a) } else { (a, b) }
}

/// Whether any fault is injected. Then only the oracle that runs the code may notice it.
pub fn is_any() -> bool {
    PLANTED.get().is_some()
}

/// The extra arguments that the functions of a set pass to their body.
pub(crate) fn extra(mut arguments: Vec<Arc<[ExtraArgument]>>) -> Vec<Arc<[ExtraArgument]>> {
    match PLANTED.get() {
        Some(Fault::PassesAnother) => arguments[1] = arguments[0].clone(),
        Some(Fault::PassedBackwards) => {
            for arguments in &mut arguments {
                *arguments = arguments.iter().rev().cloned().collect();
            }
        }
        _ => {}
    }
    arguments
}

/// The self-calls and parameters with which a body for a set of functions is made.
pub(crate) fn shared(
    recursive: Vec<Inst>,
    mut parameters: Vec<Parameter>,
) -> (Vec<Inst>, Vec<Parameter>) {
    match PLANTED.get() {
        Some(Fault::SelfCallForgotten) => (Vec::new(), parameters),
        Some(Fault::CasesExchanged) => {
            for (_, cases) in parameters.iter_mut().flat_map(|parameter| &mut parameter.dispatches)
            {
                let [first, second, ..] = &mut cases[..] else {
                    unreachable!("one of two or more");
                };
                core::mem::swap(&mut first.bits, &mut second.bits);
            }
            (recursive, parameters)
        }
        Some(Fault::ParameterForgotten) => {
            if let Some(parameter) = parameters.first_mut() {
                parameter.places.pop();
            }
            (recursive, parameters)
        }
        _ => (recursive, parameters),
    }
}

/// The keys by which places that may share a parameter are compared.
pub(crate) fn cells<C>(mut cells: Vec<C>) -> Vec<C> {
    if is(Fault::ParameterByThree) {
        cells.truncate(3);
    }
    cells
}

/// The arguments that a self-call of a body passes on.
pub(crate) fn passed_on(func: &Function, call: Inst, values: &[Value]) -> Vec<Value> {
    let mut values = values.to_vec();
    let count = values.len();
    if is(Fault::SelfTailCallExchanged)
        && func.dfg.insts[call].opcode() == Opcode::ReturnCall
        && let [.., one, other] = values[..]
        && func.dfg.value_type(one) == func.dfg.value_type(other)
    {
        values.swap(count - 1, count - 2);
    }
    values
}

/// The first case number above, in the search of a callee dispatch.
pub(crate) fn bound(bound: u64) -> u64 {
    bound - u64::from(is(Fault::SearchBound))
}

/// The stack map of a call in a callee dispatch.
pub(crate) fn stack_map(
    mut entries: Option<Vec<UserStackMapEntry>>,
) -> Option<Vec<UserStackMapEntry>> {
    if let (true, Some(entries)) = (is(Fault::StackMapOfCase), &mut entries) {
        entries.truncate(1);
    }
    entries
}

/// The form in which signatures are compared.
pub(crate) fn signature(signature: &Signature) -> Cow<'_, Signature> {
    if !is(Fault::SignatureByLength) {
        return Cow::Borrowed(signature);
    }
    let mut length = Signature::new(CallConv::Fast);
    length.params = vec![AbiParam::new(types::I64); signature.params.len()];
    length.returns = vec![AbiParam::new(types::I64); signature.returns.len()];
    Cow::Owned(length)
}

/// Whether a function is called with a mismatched signature.
pub(crate) fn is_mismatched(
    right: bool,
    called: Option<&Signature>,
    own: Option<&Signature>,
) -> bool {
    right && called.map(signature) != own.map(signature)
}

/// The extra arguments that later units pass to the body that replaced an eliminated function.
pub(crate) fn by_later_units(arguments: Arc<[ExtraArgument]>) -> Arc<[ExtraArgument]> {
    if is(Fault::EliminatedPassesNothing) { Arc::default() } else { arguments }
}

/// How references to a function are compared, by class or by symbol.
pub(crate) fn by_class(attributes: &Attributes, call: bool, address: bool) -> (bool, bool) {
    match PLANTED.get() {
        Some(Fault::AddressByClass) => (call, call),
        Some(Fault::PreemptibleByClass) if attributes.linkage == Linkage::Preemptible => {
            (true, attributes.addresses == Addresses::Insignificant)
        }
        Some(Fault::NoMergeByClass) if attributes.no_merge => {
            (true, attributes.addresses == Addresses::Insignificant)
        }
        _ => (call, address),
    }
}
