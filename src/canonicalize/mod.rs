//! The canonical body of a function: the body that is compared with [`Canonicalize::Optimize`].
//!
//! One round is Cranelift's own optimiser and then our rules ([`rules`]), which choose one form where Cranelift
//! leaves equal integer operations in two. Cranelift's optimiser is not idempotent: a branch that became a jump
//! leaves a block that the next run removes, and a load that is forwarded can make the next one redundant. So
//! rounds are repeated until a body occurs a second time. The canonical body is the least encoding of those that
//! repeat, nearly always a single one that a round leaves unchanged. So the canonical body of a canonical body is
//! that body, and the result does not depend on which code requests it, or how often.
//!
//! A function on which the optimiser fails, or that has not repeated itself after [`MAX_ROUNDS`] rounds, is its own
//! canonical body. So is one on which the optimiser panics, with the feature `std`; without, the panic cannot be
//! caught, and continues to the caller.
//!
//! What it does *not* do: it never looks at more than one function, and a function that a plan rewrites is not
//! optimised afterwards. Code that needs a function as a plan leaves it takes the canonical body first and rewrites
//! that.

mod rules;

use crate::canon::{self, Context, Encoding, Scratch};
use crate::options::{Canonicalize, ComparePolicy, Options};
use crate::target::Target;
use crate::unit::NoUnit;
use alloc::borrow::Cow;
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::TargetIsa;

pub use rules::apply as apply_rules;

/// After this many rounds a function that still changes is left unchanged. Functions that front ends make take one
/// to four, the last of which finds nothing more.
const MAX_ROUNDS: usize = 16;

/// The body that is compared.
///
/// With [`Canonicalize::Optimize`] it takes two to three times as long as Cranelift takes to optimise the function,
/// and `MAX_ROUNDS` times at most.
pub fn canonicalized<'f>(func: &'f Function, how: Canonicalize<'_>) -> Cow<'f, Function> {
    match how {
        Canonicalize::None => Cow::Borrowed(func),
        Canonicalize::Optimize(isa) => match settled(func, isa) {
            Some(body) => body,
            // Compared as it is: the back end will report the error, not this pass.
            None => Cow::Borrowed(func),
        },
    }
}

impl Encoding {
    /// The encoding of a function on its own: every symbol it names is compared by name, none by class. `None` if
    /// the walk finds IR that the verifier refuses.
    ///
    /// Within a unit, use [`Merger`](crate::Merger), which knows which callees are equal.
    pub fn of(func: &Function, options: &Options<'_>) -> Option<Encoding> {
        let mut encoding = Encoding::default();
        let context =
            Context { policy: options.compare, target: options.target, key: 0, symbols: &NoUnit };
        let body = canonicalized(func, options.canonicalize);
        canon::encode(&body, &context, &mut Scratch::default(), &mut encoding).ok()?;
        Some(encoding)
    }
}

/// The body at which repeated rounds on `func` settle, if they do.
fn settled<'f>(func: &'f Function, isa: &dyn TargetIsa) -> Option<Cow<'f, Function>> {
    let encode = |body: &Function| {
        let context = Context {
            policy: ComparePolicy::default(),
            target: Target::of(isa),
            key: 0,
            symbols: &NoUnit,
        };
        let mut encoding = Encoding::default();
        canon::encode(body, &context, &mut Scratch::default(), &mut encoding).ok()?;
        Some(encoding)
    };
    let mut bodies = alloc::vec![Cow::Borrowed(func)];
    let mut encodings = alloc::vec![encode(func)?];
    while bodies.len() <= MAX_ROUNDS {
        let next = round(bodies.last().expect("begins with one"), isa)?;
        let encoding = encode(&next)?;
        if let Some(first) = encodings.iter().position(|known| *known == encoding) {
            let least = (first..encodings.len()).min_by_key(|&at| &encodings[at]);
            return Some(bodies.swap_remove(least.expect("at least one repeats")));
        }
        bodies.push(Cow::Owned(next));
        encodings.push(encoding);
    }
    None
}

/// One round: Cranelift's optimiser, and then our rules. `None` if it fails.
fn round(func: &Function, isa: &dyn TargetIsa) -> Option<Function> {
    let optimise = || {
        let mut context = cranelift_codegen::Context::for_function(func.clone());
        context.optimize(isa, &mut Default::default()).ok()?;
        Some(context.func)
    };
    let mut optimised = contained(optimise)??;
    rules::apply(&mut optimised);
    Some(optimised)
}

/// The result of `work`, which calls code of Cranelift's that can panic; `None` if it does.
#[cfg(not(feature = "std"))]
fn contained<T>(work: impl FnOnce() -> T) -> Option<T> {
    Some(work())
}

#[cfg(feature = "std")]
use with_std::contained;
#[cfg(feature = "std")]
pub use with_std::panic_is_contained;

#[cfg(feature = "std")]
mod with_std {
    use core::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    std::thread_local! {
        static CONTAINED: Cell<bool> = const { Cell::new(false) };
    }

    /// Whether a panic on this thread is one of Cranelift's optimiser that this library catches, so that the
    /// function in hand is left unchanged. For panic hooks, which need not report such a panic: the hook of the
    /// standard library does. Where panics abort, nothing is caught.
    pub fn panic_is_contained() -> bool {
        CONTAINED.get()
    }

    /// The result of `work`, which calls code of Cranelift's that can panic; `None` if it does. `work` must not
    /// change anything that is used afterwards.
    pub(super) fn contained<T>(work: impl FnOnce() -> T) -> Option<T> {
        let before = CONTAINED.replace(true);
        let result = catch_unwind(AssertUnwindSafe(work));
        CONTAINED.set(before);
        result.ok()
    }
}
