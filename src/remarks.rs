//! Reasons: why each function was merged, or was not.
//!
//! Every decision of the plan is one of these values. Reports, JSON and listings are renderings of
//! them; the ids are stable and listed in `docs/design.md`.

use core::fmt;

/// Why a function got its [`Disposition`](crate::Disposition).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Kept: no other function has this signature and these table sizes.
    Prefiltered,
    /// Kept: walked, and no other function has an equal body.
    Different,
    /// Kept: the bodies are equal to others', but they refer to different functions.
    ReferencesDiffer,
    /// Kept: Cranelift's verifier refuses the function.
    Malformed,
    /// Kept: its body stands for the others of its class.
    Representative,
    /// Kept: declared as pinned.
    Pinned,
    /// Kept: declared as not to be merged.
    NoMerge,
    /// Kept: all that it equals is left alone, too.
    EqualsNotMerged,
    /// Kept: its symbol must survive, and a thunk would not be smaller than the body.
    ThunkNotSmaller,
    /// Kept: its symbol must survive, and the target has no thunk.
    NoThunk,
    /// Kept: all members are preemptible, and a shared body would not pay or has no symbol.
    AllPreemptible,
    /// Kept: the limit on merges is reached.
    MergeLimit,
    /// Redirected: its address would matter, but nobody takes it.
    OnlyCalled,
    /// Redirected or aliased: its address does not matter.
    AddressInsignificant,
    /// Thunk: visible outside the unit, with an address of its own, or without aliases.
    VisibleOutside,
    /// Thunk: its address is taken and must stay its own.
    AddressTaken,
    /// Thunk: calls to it can be patched.
    PatchableCalls,
    /// Thunk or alias: another definition may take the symbol's place. Data objects of that kind
    /// are kept.
    Preemptible,
    /// Thunk or alias: something that the pass does not see calls it by its symbol.
    ExternallyCalled,
    /// Kept: the independent checker refused the plan.
    NotProved,
    /// Kept: a new body that does for several similar functions, which tell it what they differ in.
    ParameterisedBody,
    /// Redirected: it differs from others in constants and callees only, and its callers tell their body.
    Similar,
    /// Thunk: it differs from others in constants and callees only, and it is smaller to tell their body
    /// once than at every call.
    ThunkCheaper,
    /// Kept: it differs from others in constants and callees only, but to tell a common body would take
    /// more bytes than it saves.
    SimilarNotSmaller,
    /// Data object, kept: it can be written.
    Writable,
    /// Data object, kept: each thread has its own.
    ThreadLocal,
    /// Data object, kept: its address matters, and data has no thunks.
    AddressSignificant,
    /// Data object, kept: its symbol must survive, and the back end has no aliases.
    NoAlias,
}

impl Reason {
    /// Every reason, in the order of the documentation.
    pub const ALL: [Reason; 28] = [
        Reason::Prefiltered,
        Reason::Different,
        Reason::ReferencesDiffer,
        Reason::Malformed,
        Reason::Representative,
        Reason::Pinned,
        Reason::NoMerge,
        Reason::EqualsNotMerged,
        Reason::ThunkNotSmaller,
        Reason::NoThunk,
        Reason::AllPreemptible,
        Reason::MergeLimit,
        Reason::OnlyCalled,
        Reason::AddressInsignificant,
        Reason::VisibleOutside,
        Reason::AddressTaken,
        Reason::PatchableCalls,
        Reason::Preemptible,
        Reason::ExternallyCalled,
        Reason::NotProved,
        Reason::ParameterisedBody,
        Reason::Similar,
        Reason::ThunkCheaper,
        Reason::SimilarNotSmaller,
        Reason::Writable,
        Reason::ThreadLocal,
        Reason::AddressSignificant,
        Reason::NoAlias,
    ];

    /// The stable kebab-case id.
    pub fn id(self) -> &'static str {
        match self {
            Reason::Prefiltered => "prefiltered",
            Reason::Different => "different",
            Reason::ReferencesDiffer => "references-differ",
            Reason::Malformed => "malformed",
            Reason::Representative => "representative",
            Reason::Pinned => "pinned",
            Reason::NoMerge => "no-merge",
            Reason::EqualsNotMerged => "equals-not-merged",
            Reason::ThunkNotSmaller => "thunk-not-smaller",
            Reason::NoThunk => "no-thunk",
            Reason::AllPreemptible => "all-preemptible",
            Reason::MergeLimit => "merge-limit",
            Reason::OnlyCalled => "only-called",
            Reason::AddressInsignificant => "address-insignificant",
            Reason::VisibleOutside => "visible-outside",
            Reason::AddressTaken => "address-taken",
            Reason::PatchableCalls => "patchable-calls",
            Reason::Preemptible => "preemptible",
            Reason::ExternallyCalled => "externally-called",
            Reason::NotProved => "not-proved",
            Reason::ParameterisedBody => "parameterised-body",
            Reason::Similar => "similar",
            Reason::ThunkCheaper => "thunk-cheaper",
            Reason::SimilarNotSmaller => "similar-not-smaller",
            Reason::Writable => "writable",
            Reason::ThreadLocal => "thread-local",
            Reason::AddressSignificant => "address-significant",
            Reason::NoAlias => "no-alias",
        }
    }

    /// One sentence for a person.
    pub fn explanation(self) -> &'static str {
        match self {
            Reason::Prefiltered => "no other function has its signature and size",
            Reason::Different => "no other function has an equal body",
            Reason::ReferencesDiffer => {
                "its body equals others, but they call or use different functions"
            }
            Reason::Malformed => "the verifier refuses it",
            Reason::Representative => "its body stands for its class",
            Reason::Pinned => "pinned: its symbol and body stay untouched",
            Reason::NoMerge => "declared as not to be merged",
            Reason::EqualsNotMerged => "everything it equals is left alone, too",
            Reason::ThunkNotSmaller => "its symbol must survive and a thunk is not smaller",
            Reason::NoThunk => "its symbol must survive and the target has no thunk",
            Reason::AllPreemptible => {
                "its whole class is preemptible and a shared body does not pay"
            }
            Reason::MergeLimit => "the limit on merges is reached",
            Reason::OnlyCalled => "nobody takes its address: its callers call the representative",
            Reason::AddressInsignificant => {
                "its address does not matter: who refers to it refers to the representative"
            }
            Reason::VisibleOutside => "visible outside the unit: its symbol jumps",
            Reason::AddressTaken => "its address is taken and matters: its symbol jumps",
            Reason::PatchableCalls => "calls to it can be patched: its symbol jumps",
            Reason::Preemptible => "preemptible: its symbol jumps, its callers keep calling it",
            Reason::ExternallyCalled => "something else calls it by its symbol: its symbol jumps",
            Reason::NotProved => "the plan of the unit could not be proved: a bug of this crate",
            Reason::ParameterisedBody => "does for several similar functions",
            Reason::Similar => {
                "differs from others in constants and callees only, and its callers tell their body"
            }
            Reason::ThunkCheaper => {
                "differs from others in constants and callees only: its symbol tells their body"
            }
            Reason::SimilarNotSmaller => {
                "differs from others in constants and callees only, but a common body does not pay"
            }
            Reason::Writable => "it can be written",
            Reason::ThreadLocal => "each thread has its own",
            Reason::AddressSignificant => "its address matters, and data has no thunks",
            Reason::NoAlias => "its symbol must survive and the back end has no aliases",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}
