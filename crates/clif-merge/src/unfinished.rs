//! The file that is being written, which must not be left behind half written.
//!
//! When a signal asks the program to end (`SIGINT`, `SIGTERM`), this is the only clean-up.
//! On systems other than Unix, the file stays where it is when the program is ended.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use tempfile::NamedTempFile;

/// The path of the file, while there is one.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Makes a temporary file, which is removed if a signal ends the program before [`finished`].
///
/// # Errors
///
/// What `make` says.
pub fn begin(
    make: impl FnOnce() -> std::io::Result<NamedTempFile>,
) -> std::io::Result<NamedTempFile> {
    heed_signals();
    // A signal that arrives meanwhile waits until the path to be removed is known.
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    let file = make()?;
    *unfinished = Some(file.path().to_owned());
    Ok(file)
}

/// The file is finished or removed.
pub fn finished() {
    *UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Removes the file, if there is one and nothing is just being done with it.
pub fn remove() {
    if let Ok(mut unfinished) = UNFINISHED.try_lock()
        && let Some(path) = unfinished.take()
    {
        // It may be finished by now.
        let _ = std::fs::remove_file(path);
    }
}

/// From now on, removes the file before a signal ends the program.
#[cfg(unix)]
fn heed_signals() {
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;
    use std::sync::Once;
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // If no handler can be installed, the signals end the program as usual.
        let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
        std::thread::spawn(move || {
            for signal in signals.forever() {
                let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(path) = unfinished.take() {
                    let _ = std::fs::remove_file(path);
                }
                // The parent process learns which signal ended the program. The lock is not released,
                // so that no other file is begun.
                let _ = emulate_default_handler(signal);
            }
        });
    });
}

#[cfg(not(unix))]
fn heed_signals() {}
