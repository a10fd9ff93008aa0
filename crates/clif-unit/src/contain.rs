//! Panics of Cranelift's reader and verifier, which panic at some texts where they should return an
//! error.
//!
//! It does *not* set a panic hook: a program that has one asks [`intercepted`] in it.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// How many calls of `contain` this thread is in.
    static CONTAINED: Cell<usize> = const { Cell::new(0) };
    /// The message of the last contained panic.
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// For a panic hook: whether the panic happens within [`contain`]. Its message is then kept for the
/// caller of that, and nothing is to be printed.
pub fn intercepted(message: &str) -> bool {
    let contained = CONTAINED.get() > 0;
    if contained {
        MESSAGE.set(message.to_owned());
    }
    contained
}

/// Runs `work`, which calls code that panics where it should return an error.
///
/// Whatever `work` was changing must not be used any more if it panicked.
///
/// # Errors
///
/// The message of the panic, with its place if the panic hook calls [`intercepted`] and the panic
/// did not come from another thread.
pub fn contain<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    CONTAINED.set(CONTAINED.get() + 1);
    let result = catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(CONTAINED.get() - 1);
    result.map_err(|panic| match (MESSAGE.take(), panic.downcast_ref::<&str>()) {
        (message, _) if !message.is_empty() => message,
        (_, Some(text)) => (*text).to_owned(),
        (_, None) => panic.downcast_ref::<String>().cloned().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::contain;

    #[test]
    fn contained_panics_are_errors() {
        assert_eq!(contain(|| 1), Ok(1));
        assert!(contain(|| panic!("no")).is_err());
    }
}
