//! A line that shows the progress of long work.
//!
//! It appears only where a person waits: standard error is a terminal, and the work has lasted
//! over a second. It is rewritten in place and removed when the work is done. Not for logs.

use clif_unit::progress::Progress;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Work shorter than this shows no line.
const PATIENCE: Duration = Duration::from_secs(1);
/// The line is rewritten at most this often.
const INTERVAL: Duration = Duration::from_millis(100);

/// Counts steps of some work. Dropping it removes the line.
#[derive(Debug)]
pub struct ProgressLine {
    what: &'static str,
    total: usize,
    done: usize,
    wanted: bool,
    /// When the line is written next.
    due: Instant,
    shown: bool,
}

impl ProgressLine {
    /// The line will read `what done/total`.
    pub fn new(what: &'static str, total: usize, quiet: bool) -> ProgressLine {
        let wanted = !quiet && std::io::stderr().is_terminal();
        ProgressLine { what, total, done: 0, wanted, due: Instant::now() + PATIENCE, shown: false }
    }

    fn clear(&mut self) {
        if self.shown {
            let mut stderr = std::io::stderr();
            let _ = write!(stderr, "\r\x1b[K");
            let _ = stderr.flush();
            self.shown = false;
        }
    }
}

impl Progress for ProgressLine {
    fn begin(&mut self, what: &'static str, total: usize) {
        self.clear();
        (self.what, self.total, self.done) = (what, total, 0);
    }

    fn step(&mut self) {
        self.done += 1;
        if self.wanted {
            let now = Instant::now();
            if now >= self.due {
                self.due = now + INTERVAL;
                self.shown = true;
                let mut stderr = std::io::stderr();
                // A closed standard error is no reason to stop working.
                let _ = write!(stderr, "\r{} {}/{}\x1b[K", self.what, self.done, self.total);
                let _ = stderr.flush();
            }
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}
