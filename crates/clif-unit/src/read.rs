//! One function, read by Cranelift's reader, and what is wrong with its text.
//!
//! The reader's errors have a line only, which may be below the mistake, since it looks one word
//! ahead; and it panics at some mistakes. `scan` and `entities` find texts that it reads although
//! they mean nothing.

use crate::contain::contain;
use crate::entities;
use crate::error::{Place, TextError};
use crate::scan::words;
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::CallConv;
use cranelift_mergefunc::cranelift_codegen;
use cranelift_reader::ParseOptions;

/// The function of a text, which begins in this line of its file. `call_conv` is its convention if
/// it does not say it.
pub(crate) fn function(
    file: &str,
    first: usize,
    text: &str,
    call_conv: CallConv,
) -> Result<Function, TextError> {
    let options = ParseOptions { default_calling_convention: call_conv, ..ParseOptions::default() };
    let here = |message: &str| Place::line(file, first).error(message);
    let at = |(number, column, message): entities::Wrong| {
        Place::column(file, first + number, column).error(message)
    };
    // The reader asserts some of what it should report.
    let read = match contain(|| cranelift_reader::parse_test(text, options)) {
        Ok(Ok(read)) => read,
        Ok(Err(error)) => {
            let number = error.location.line_number.saturating_sub(1);
            let place = match column_of(text, number, &error.message) {
                Some((number, column)) => Place::column(file, first + number, column),
                None => Place::line(file, first + number),
            };
            return Err(place.error(explained(&error.message)));
        }
        Err(panic) => {
            let clash = || entities::clash_of_constants(text, &panic);
            let wrong = entities::undeclared_in_malformed(text).or_else(clash);
            return Err(wrong.map(at).unwrap_or_else(|| {
                here(&format!("malformed function: Cranelift's reader panicked: {panic}"))
            }));
        }
    };
    let mut functions = read.functions.into_iter();
    match (functions.next(), functions.next()) {
        (Some((mut func, details)), None) => {
            if let Some(wrong) = entities::undeclared(text, &func, &details.map) {
                return Err(at(wrong));
            }
            entities::renumber_constants(&mut func);
            Ok(func)
        }
        (_, Some(_)) => Err(here("after this function, another one begins in mid-line")),
        (None, None) => Err(here("expected a function")),
    }
}

/// A message of the reader, with what to do where it does not say it.
fn explained(message: &str) -> String {
    if let Some(region) = message.strip_prefix("duplicate alias region ") {
        return format!(
            "{region} is out of order: declare each alias region once, from region0 on"
        );
    }
    let version = cranelift_codegen::VERSION;
    match message.starts_with("Unknown opcode") {
        true => format!("{message}; texts are read as Cranelift {version} writes them"),
        false => message.to_owned(),
    }
}

/// Where the word stands that a message names: its line (from 0) and column (from 1), in the line
/// that the reader had come to or shortly above.
fn column_of(text: &str, number: usize, message: &str) -> Option<(usize, usize)> {
    // Entities have numbers; other words of a message may stand in the text by chance.
    let is_named = |word: &&str| {
        word.starts_with(|first: char| first.is_ascii_alphabetic())
            && (word.ends_with(|last: char| last.is_ascii_digit())
                || message.contains(&format!("'{word}'")))
    };
    let named = message.rsplit([' ', '\'']).find(is_named)?;
    let lines: Vec<&str> = text.lines().take(number + 1).collect();
    // It looks one word ahead, behind empty lines and comments.
    lines.iter().enumerate().rev().take(MAX_LINES_AHEAD).find_map(|(number, line)| {
        let (at, _) = words(line).find(|&(_, word)| word == named)?;
        Some((number, line[..at].chars().count() + 1))
    })
}

/// How many lines the reader's place may be behind the word that its message is about.
const MAX_LINES_AHEAD: usize = 8;
