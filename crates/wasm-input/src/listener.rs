//! The IR of functions while Wasmtime compiles them.
//!
//! Wasmtime can write it into files, and does so in pieces of a few bytes, each with a call of the
//! system: that takes ten times as long as compiling. But Cranelift logs a function in one piece
//! before it makes code of it, at the level `trace` and with its feature for that, and Wasmtime
//! logs the name when it has compiled the function, at the level `debug` and on the same thread.
//! This is a logger that takes these two messages and formats no others. As other messages are
//! many, the level is `trace` only while a thread is about to log a function. There is one logger
//! for a process, so there is one translation at a time.

use crate::Error;
use log::{LevelFilter, Log, Metadata, Record};
use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A function that was compiled.
#[derive(Debug)]
pub struct Compiled {
    /// Its name in Wasmtime.
    pub symbol: String,
    /// Its IR as the code generator gets it.
    pub text: String,
}

/// A message that is listened to.
struct Message {
    /// The module that logs it.
    target: &'static str,
    /// How it begins.
    start: &'static str,
    /// The line that logs it, once it is known: 0 before. Most messages come from other lines, and
    /// are given up at that.
    line: AtomicU32,
}

/// Before a function is logged.
static BEGUN: Message = Message {
    target: "cranelift_codegen::context",
    start: "Number of CLIF instructions to optimize: ",
    line: AtomicU32::new(0),
};

/// Of a function before its code is generated.
static LOWERING: Message = Message {
    target: "cranelift_codegen::machinst::lower",
    start: "about to lower function: ",
    line: AtomicU32::new(0),
};

/// Of a function that is compiled, with its name.
static COMPILED: Message = Message {
    target: "wasmtime_internal_cranelift::compiler",
    start: "`",
    line: AtomicU32::new(0),
};

/// The text behind the name.
const BEHIND_NAME: &str = "` compiled in ";

struct Listener;

thread_local! {
    /// The function that this thread compiles.
    static LOWERED: RefCell<String> = const { RefCell::new(String::new()) };
}

/// How many threads are about to log a function.
static WAITING: Mutex<usize> = Mutex::new(0);

static ALL: Mutex<Vec<Compiled>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Runs `work`, in which Wasmtime compiles functions, and returns them in any order.
///
/// # Errors
///
/// If the process has another logger.
pub fn compiled_by<T>(work: impl FnOnce() -> T) -> Result<(T, Vec<Compiled>), Error> {
    static ONE: Mutex<()> = Mutex::new(());
    static IS_OURS: OnceLock<bool> = OnceLock::new();
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !*IS_OURS.get_or_init(|| log::set_logger(&Listener).is_ok()) {
        return Err(Error(
            "the process has a logger, so Wasmtime cannot be listened to".to_owned(),
        ));
    }
    COUNT.store(0, Ordering::Relaxed);
    // A translation that panicked may have left some.
    ALL.lock().unwrap_or_else(PoisonError::into_inner).clear();
    wait(|_| 0);
    let result = work();
    log::set_max_level(LevelFilter::Off);
    let all = std::mem::take(&mut *ALL.lock().unwrap_or_else(PoisonError::into_inner));
    drop(one);
    Ok((result, all))
}

/// Changes how many threads are about to log a function.
fn wait(change: impl Fn(usize) -> usize) {
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    *waiting = change(*waiting);
    log::set_max_level(if *waiting > 0 { LevelFilter::Trace } else { LevelFilter::Debug });
}

/// How many functions are compiled, of the translation that goes on.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

impl Log for Listener {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        // It is asked before messages that are expensive to make.
        false
    }

    fn log(&self, record: &Record<'_>) {
        if BEGUN.read(record, |_| true).is_some() {
            wait(|waiting| waiting + 1);
        } else if let Some(text) = LOWERING.read(record, |_| true) {
            LOWERED.set(text);
            wait(|waiting| waiting.saturating_sub(1));
        } else if let Some(text) = COMPILED.read(record, |text| text.contains(BEHIND_NAME)) {
            let (symbol, _) = text.rsplit_once(BEHIND_NAME).unwrap_or((&text, ""));
            let compiled = Compiled { symbol: symbol.to_owned(), text: LOWERED.take() };
            COUNT.fetch_add(1, Ordering::Relaxed);
            ALL.lock().unwrap_or_else(PoisonError::into_inner).push(compiled);
        }
    }

    fn flush(&self) {}
}

impl Message {
    /// The text behind the start of the message, if `record` is one.
    fn read(&self, record: &Record<'_>, is_one: impl Fn(&str) -> bool) -> Option<String> {
        let line = self.line.load(Ordering::Relaxed);
        if (line != 0 && record.line() != Some(line)) || record.target() != self.target {
            return None;
        }
        let mut text = Begun { expected: self.start, rest: String::new() };
        text.write_fmt(*record.args()).ok()?;
        (text.expected.is_empty() && is_one(&text.rest)).then_some(())?;
        self.line.store(record.line().unwrap_or(0), Ordering::Relaxed);
        Some(text.rest)
    }
}

/// A text that is given up where it does not begin as expected.
struct Begun {
    /// The part of the beginning that has not come yet.
    expected: &'static str,
    rest: String,
}

impl fmt::Write for Begun {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut text = text;
        if !self.expected.is_empty() {
            let length = self.expected.len().min(text.len());
            let (begin, rest) = text.split_at_checked(length).ok_or(fmt::Error)?;
            self.expected = self.expected.strip_prefix(begin).ok_or(fmt::Error)?;
            text = rest;
        }
        self.rest.push_str(text);
        Ok(())
    }

    fn write_char(&mut self, letter: char) -> fmt::Result {
        match self.expected {
            "" => self.rest.push(letter),
            _ => self.write_str(letter.encode_utf8(&mut [0; 4]))?,
        }
        Ok(())
    }
}
