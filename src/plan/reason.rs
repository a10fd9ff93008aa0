//! Reasons: why each function was merged, or was not.
//!
//! Every decision of the plan is one of these values. Reports, JSON and listings render them; the
//! ids are stable and listed in `docs/design.md`.

use core::fmt;

/// Why a function got its [`Disposition`](crate::Disposition).
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Kept: no other function has this signature and these table sizes.
    Prefiltered,
    /// Kept: walked, and no other function has an equal body.
    Different,
    /// Kept: its body equals those of other functions, but they refer to different functions.
    ReferencesDiffer,
    /// Kept: Cranelift's verifier refuses the function.
    Malformed,
    /// Kept: its body replaces the bodies of the other functions of its class.
    Representative,
    /// Kept: declared as pinned.
    Pinned,
    /// Kept: declared as not to be merged.
    NoMerge,
    /// Kept: no function that equals it is merged.
    EqualsNotMerged,
    /// Kept: it must keep its symbol, and a thunk would not be smaller than the body.
    ThunkNotSmaller,
    /// Kept: it must keep its symbol, and the target has no thunk.
    NoThunk,
    /// Kept: all members are preemptible, and a private copy would not pay or has no symbol.
    AllPreemptible,
    /// Kept: the limit on merges is reached.
    MergeLimit,
    /// Redirected: its address would matter, but no code takes it.
    OnlyCalled,
    /// Redirected or aliased: its address does not matter.
    AddressInsignificant,
    /// Thunk: visible outside the unit, and its address is significant or the back end has no
    /// aliases.
    VisibleOutside,
    /// Thunk: its address is taken and must stay its own.
    AddressTaken,
    /// Thunk: calls to it can be patched.
    PatchableCalls,
    /// Thunk or alias: another definition may take the symbol's place. Data objects of that kind
    /// are kept.
    Preemptible,
    /// Thunk or alias: code outside the pass calls it by its symbol.
    ExternallyCalled,
    /// Kept: the independent checker refused the plan.
    NotProved,
    /// Kept: a parameterised body that replaces several similar functions and receives their
    /// differences as extra arguments.
    ParameterisedBody,
    /// Redirected: it differs from others in constants, callees or few instructions, and its
    /// callers pass the difference to the parameterised body, as extra arguments.
    Similar,
    /// Thunk: it differs from others in constants, callees or few instructions, and passing the
    /// difference in one thunk takes fewer bytes than passing it at every call.
    ThunkCheaper,
    /// Kept: it differs from others in constants and callees only, but passing these to a
    /// parameterised body would take more bytes than the body saves.
    SimilarNotSmaller,
    /// Kept: it differs from others in constants and callees only, but is so short that calls of a
    /// parameterised body would take noticeably longer.
    SimilarSlower,
    /// Redirected: its code is emitted under a digest of its contents, which other units may share;
    /// and that code.
    ContentAddressed,
    /// Data object, kept: it can be written.
    Writable,
    /// Data object, kept: each thread has its own.
    ThreadLocal,
    /// Data object, kept: its address matters, and data has no thunks.
    AddressSignificant,
    /// Data object, kept: it must keep its symbol, and the back end has no aliases.
    NoAlias,
}

impl Reason {
    /// Every reason, in the order of the documentation.
    pub const ALL: [Reason; 30] = [
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
        Reason::SimilarSlower,
        Reason::ContentAddressed,
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
            Reason::SimilarSlower => "similar-slower",
            Reason::ContentAddressed => "content-addressed",
            Reason::Writable => "writable",
            Reason::ThreadLocal => "thread-local",
            Reason::AddressSignificant => "address-significant",
            Reason::NoAlias => "no-alias",
        }
    }

    /// One sentence that explains the reason.
    pub fn explanation(self) -> &'static str {
        match self {
            Reason::Prefiltered => "no other function has its signature and size",
            Reason::Different => "no other function has an equal body",
            Reason::ReferencesDiffer => {
                "its body equals others, but they call or use different functions"
            }
            Reason::Malformed => "the verifier refuses it",
            Reason::Representative => "its body replaces those of its class",
            Reason::Pinned => "pinned: its symbol and body stay untouched",
            Reason::NoMerge => "declared as not to be merged",
            Reason::EqualsNotMerged => "no function that equals it is merged",
            Reason::ThunkNotSmaller => "it must keep its symbol, and a thunk is not smaller",
            Reason::NoThunk => "it must keep its symbol, and the target has no thunk",
            Reason::AllPreemptible => {
                "its whole class is preemptible, and a private copy does not pay"
            }
            Reason::MergeLimit => "the limit on merges is reached",
            Reason::OnlyCalled => "no code takes its address: its callers call the representative",
            Reason::AddressInsignificant => {
                "its address does not matter: references to it go to the representative"
            }
            Reason::VisibleOutside => "visible outside the unit: becomes a thunk",
            Reason::AddressTaken => "its address is taken and matters: becomes a thunk",
            Reason::PatchableCalls => "calls to it can be patched: becomes a thunk",
            Reason::Preemptible => "preemptible: becomes a thunk, its callers keep calling it",
            Reason::ExternallyCalled => {
                "code outside the pass calls it by its symbol: becomes a thunk"
            }
            Reason::NotProved => "the plan of the unit could not be proved: a bug of this crate",
            Reason::ParameterisedBody => {
                "a parameterised body that replaces several similar functions"
            }
            Reason::Similar => {
                "differs from others in constants, callees or few instructions: its callers pass the difference to a body"
            }
            Reason::ThunkCheaper => {
                "differs from others in constants, callees or few instructions: its thunk passes the difference to a body"
            }
            Reason::SimilarNotSmaller => {
                "differs from others in constants and callees only, but a common body does not pay"
            }
            Reason::SimilarSlower => {
                "differs from others in constants and callees only, but calls of a common body would take longer"
            }
            Reason::ContentAddressed => {
                "its code is emitted under a digest of its contents, which other units may share"
            }
            Reason::Writable => "it can be written",
            Reason::ThreadLocal => "each thread has its own",
            Reason::AddressSignificant => "its address matters, and data has no thunks",
            Reason::NoAlias => "it must keep its symbol, and the back end has no aliases",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}
