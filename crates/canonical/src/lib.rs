//! Canonical bodies of functions of Cranelift IR: two functions that compute equal results in
//! different ways more often have equal ones. For whoever wants
//! [`cranelift-mergefunc`](cranelift_mergefunc) to compare functions after optimisation: take the
//! canonical body of each function before it is added.
//!
//! One round is Cranelift's own optimiser and then our rules ([`apply_rules`]), which choose one
//! form where Cranelift leaves equal integer operations in two. Cranelift's optimiser is not
//! idempotent: a branch that became a jump leaves a block that the next run removes, and a load
//! that is forwarded can make the next one redundant. So rounds are repeated until a body occurs a
//! second time. The canonical body is the least encoding of those that repeat, nearly always a
//! single one that a round leaves unchanged. So the canonical body of a canonical body is that
//! body.
//!
//! It does *not* look at more than one function, and proves nothing: Cranelift's optimiser is
//! trusted, as it is when code is compiled.
//!
//! # Example
//!
//! ```
//! use cranelift_codegen::settings::{self, Configurable};
//! use cranelift_mergefunc::{Options, explain::Encoding};
//! use cranelift_mergefunc_canonical::canonical_body;
//!
//! let mut flags = settings::builder();
//! flags.set("opt_level", "speed")?;
//! let isa = cranelift_native::builder()?.finish(settings::Flags::new(flags))?;
//! let encoding = |text: &str| {
//!     let func = cranelift_reader::parse_functions(text).unwrap().remove(0);
//!     Encoding::of(&canonical_body(&func, &*isa).unwrap(), &Options::default())
//! };
//! let [double, shift] = ["imul", "ishl"].map(|op| {
//!     let k = if op == "imul" { 2 } else { 1 };
//!     format!(
//!         "function u0:0(i64) -> i64 {{ block0(v0: i64): v1 = iconst.i64 {k}
//!         v2 = {op} v0, v1 return v2 }}"
//!     )
//! });
//! assert!(encoding(&double) == encoding(&shift));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod rules;

use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::explain::Encoding;
use cranelift_mergefunc::{Options, Target};
use std::borrow::Cow;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use rules::apply as apply_rules;

/// After this many rounds a function that still changes has no canonical body. Functions that front
/// ends make take one to four, the last of which finds nothing more.
const MAX_ROUNDS: usize = 16;

/// The canonical body of a function, for code that `isa` compiles. `None` if there is none: the
/// verifier or the optimiser refuses the function, the optimiser panics (where panics unwind; see
/// [`panic_is_contained`]), or the body has not repeated itself after 16 rounds.
///
/// Takes two to three times as long as Cranelift takes to optimise the function, and 16 times at
/// most.
///
/// See the [example](crate#example).
pub fn canonical_body(func: &Function, isa: &dyn TargetIsa) -> Option<Function> {
    let options = Options { target: Target::of(isa), ..Options::default() };
    let encode = |body: &Function| Encoding::of(body, &options);
    let mut bodies = vec![Cow::Borrowed(func)];
    let mut encodings = vec![encode(func)?];
    while bodies.len() <= MAX_ROUNDS {
        let next = round(bodies.last().expect("begins with one"), isa)?;
        let encoding = encode(&next)?;
        if let Some(first) = encodings.iter().position(|known| *known == encoding) {
            let least = (first..encodings.len()).min_by_key(|&at| &encodings[at]);
            return Some(bodies.swap_remove(least.expect("at least one repeats")).into_owned());
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

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic on this thread is one of Cranelift's optimiser that this library catches, so
/// that the function has no canonical body. For panic hooks, which need not report such a panic:
/// the hook of the standard library does. Where panics abort, nothing is caught.
///
/// See the [example](crate#example).
pub fn panic_is_contained() -> bool {
    CONTAINED.get()
}

/// The result of `work`, which calls code of Cranelift's that can panic; `None` if it does. `work`
/// must not change anything that is used afterwards.
fn contained<T>(work: impl FnOnce() -> T) -> Option<T> {
    let before = CONTAINED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(before);
    result.ok()
}
