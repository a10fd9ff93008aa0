//! Unfinished output that must not be left behind: a file that is half written, and a directory of
//! temporary files.
//!
//! When a signal asks the program to end (`SIGINT`, `SIGTERM`), this is the only clean-up.
//! On systems other than Unix, they stay where they are when the program is ended.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use tempfile::{NamedTempFile, TempDir};

/// The files and directories to remove.
#[derive(Debug)]
struct Unfinished {
    file: Option<PathBuf>,
    directory: Option<PathBuf>,
}

impl Unfinished {
    fn remove(&mut self) {
        // Either may be finished by now.
        if let Some(file) = self.file.take() {
            let _ = std::fs::remove_file(file);
        }
        if let Some(directory) = self.directory.take() {
            remove_directory(&directory);
        }
    }
}

static UNFINISHED: Mutex<Unfinished> = Mutex::new(Unfinished { file: None, directory: None });

/// Makes a temporary file, which is removed if a signal ends the program before [`finished`].
///
/// # Errors
///
/// Errors of `make`.
pub fn begin(
    make: impl FnOnce() -> std::io::Result<NamedTempFile>,
) -> std::io::Result<NamedTempFile> {
    heed_signals();
    // A signal that arrives meanwhile waits until the path to be removed is known.
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    let file = make()?;
    unfinished.file = Some(file.path().to_owned());
    Ok(file)
}

/// The file is finished or removed.
pub fn finished() {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).file = None;
}

/// A directory for temporary files, which is removed with all that is in it when it is dropped, or
/// when a signal ends the program before. There is one at a time.
#[derive(Debug)]
pub struct Directory(TempDir);

impl Directory {
    /// Makes it where the system has its temporary files.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn new() -> std::io::Result<Directory> {
        heed_signals();
        let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::Builder::new().prefix("clif-merge-").tempdir()?;
        unfinished.directory = Some(directory.path().to_owned());
        Ok(Directory(directory))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // As on a signal, so that there is one way to remove the file.
        let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(directory) = unfinished.directory.take() {
            remove_directory(&directory);
        }
    }
}

/// How often the removal of a directory is tried: other threads may still write there.
const ATTEMPTS: usize = 100;

fn remove_directory(path: &Path) {
    for _ in 0..ATTEMPTS {
        match std::fs::remove_dir_all(path) {
            Ok(()) => return,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
}

/// The action of a signal instead of ending the program.
static AT_SIGNAL: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

/// From now on, signals that ask the program to end call `end`, which makes it end by itself. Only
/// where there are such signals, and once for a program.
pub fn end_with(end: Box<dyn Fn() + Send + Sync>) {
    heed_signals();
    let _ = AT_SIGNAL.set(end);
}

/// Removes the unfinished output, if there is some and no thread is using it.
pub fn remove() {
    if let Ok(mut unfinished) = UNFINISHED.try_lock() {
        unfinished.remove();
    }
}

/// From now on, removes the unfinished output before a signal ends the program.
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
                unfinished.remove();
                if let Some(end) = AT_SIGNAL.get() {
                    end();
                    continue;
                }
                // The parent process learns which signal ended the program. The lock is not
                // released, so that nothing else is begun.
                let _ = emulate_default_handler(signal);
            }
        });
    });
}

#[cfg(not(unix))]
fn heed_signals() {}
