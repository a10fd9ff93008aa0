//! How far reading a unit has come, for a program that shows it.

/// Receives each step of long work. `()` does not listen.
pub trait Progress: Send {
    /// Work of `total` steps begins.
    fn begin(&mut self, what: &'static str, total: usize);

    /// One step is done.
    fn step(&mut self);
}

impl Progress for () {
    fn begin(&mut self, _what: &'static str, _total: usize) {}

    fn step(&mut self) {}
}
