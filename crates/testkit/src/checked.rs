//! Panics of the pass as findings.

use crate::incremental::{Finding, Program};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Whether a panic is a finding, which is reported with the program.
    static IS_CHECKED: Cell<bool> = const { Cell::new(false) };
    /// Where the last one was.
    static PLACE: Cell<Option<String>> = const { Cell::new(None) };
}

/// A check, with panics of the pass as findings.
pub fn checked(
    program: &Program,
    check: &mut dyn FnMut(&Program) -> Result<(), Finding>,
) -> Result<(), Finding> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| match IS_CHECKED.get() {
            true => PLACE.set(panic.location().map(ToString::to_string)),
            false => hook(panic),
        }));
    });
    IS_CHECKED.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| check(program))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
        Err(Finding::new(format!("panic at {}: {text}", PLACE.take().unwrap_or_default())))
    });
    IS_CHECKED.set(false);
    result
}
