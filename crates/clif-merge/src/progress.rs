//! A line that shows the progress of long work, and how long the rest of it may take.
//!
//! It appears only where a person waits: standard error is a terminal, and the work has lasted
//! over a second. It is rewritten in place and removed when the work is done. Not for logs. The
//! estimate takes all steps for equally long, which they are not.

use crate::table::thousands;
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
    begun: Instant,
    /// When the line is written next.
    due: Instant,
    shown: bool,
}

impl ProgressLine {
    /// The line will read `what done/total`, or `what done` if the total is 0: not known.
    pub fn new(what: &'static str, total: usize, quiet: bool) -> ProgressLine {
        let wanted = !quiet && std::io::stderr().is_terminal();
        let begun = Instant::now();
        ProgressLine { what, total, done: 0, wanted, begun, due: begun + PATIENCE, shown: false }
    }

    /// Whether the line can appear at all.
    #[cfg(feature = "wasm")]
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// As many steps are done.
    pub fn reach(&mut self, done: usize) {
        self.done = done;
        self.draw();
    }

    fn draw(&mut self) {
        if !self.wanted {
            return;
        }
        let now = Instant::now();
        if now >= self.due {
            self.due = now + INTERVAL;
            self.shown = true;
            let mut stderr = std::io::stderr();
            // A closed standard error is no reason to stop working.
            let _ = write!(stderr, "\r{}\x1b[K", self.text(now));
            let _ = stderr.flush();
        }
    }

    /// The present text of the line.
    fn text(&self, now: Instant) -> String {
        let ProgressLine { what, total, done, .. } = self;
        if *total == 0 {
            return format!("{what} {}", thousands(*done as u64));
        }
        let [done, total] = [*done, *total].map(|steps| thousands(steps as u64));
        let left = rest(now - self.begun, self.done, self.total);
        format!("{what} {done}/{total}{left}")
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

/// How long the rest takes, if it goes on as it did: whole seconds.
fn rest(elapsed: Duration, done: usize, total: usize) -> String {
    let left = total.saturating_sub(done) as f64 / done.max(1) as f64 * elapsed.as_secs_f64();
    match left.round() as u64 {
        0 => String::new(),
        seconds @ 1..90 => format!(", about {seconds} s left"),
        seconds => format!(", about {} min left", seconds.div_ceil(60)),
    }
}

impl Progress for ProgressLine {
    fn begin(&mut self, what: &'static str, total: usize) {
        self.clear();
        (self.what, self.total, self.done) = (what, total, 0);
        self.begun = Instant::now();
    }

    fn step(&mut self) {
        self.reach(self.done + 1);
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{ProgressLine, rest};
    use std::time::{Duration, Instant};

    #[test]
    fn the_rest_is_what_the_steps_that_are_done_took() {
        let rest = |elapsed, done, total| rest(Duration::from_secs(elapsed), done, total);
        assert_eq!(rest(2, 1000, 2500), ", about 3 s left");
        assert_eq!(rest(10, 1, 31), ", about 5 min left");
        assert_eq!(rest(10, 10, 10), "");
        assert_eq!(rest(10, 11, 10), "");
        assert_eq!(rest(3, 0, 10), ", about 30 s left");
    }

    #[test]
    fn a_line_says_what_is_done_of_how_much() {
        let mut line = ProgressLine::new("reading", 2000, true);
        line.done = 1000;
        assert_eq!(
            line.text(line.begun + Duration::from_secs(4)),
            "reading 1,000/2,000, about 4 s left"
        );
        line.total = 0;
        assert_eq!(line.text(Instant::now()), "reading 1,000");
    }
}
