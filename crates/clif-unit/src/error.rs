//! Errors: mistakes in texts, with their places, and mistakes in what a caller asks for.

use crate::sources::Source;
use std::fmt;

/// A place in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The name of the text.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1; nothing stands for the whole line.
    pub column: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { file, line, column } = self;
        write!(f, "{file}:{line}")?;
        column.map_or(Ok(()), |column| write!(f, ":{column}"))
    }
}

impl Place {
    /// A line of a text.
    pub fn line(file: &str, line: usize) -> Place {
        Place { file: file.to_owned(), line, column: None }
    }

    /// A column of a line of a text.
    pub fn column(file: &str, line: usize, column: usize) -> Place {
        Place { column: Some(column), ..Place::line(file, line) }
    }

    /// The error that something is wrong here.
    pub fn error(&self, message: impl Into<String>) -> TextError {
        let mark = Mark { place: self.clone(), label: String::new(), text: None };
        TextError { message: message.into(), marks: vec![mark] }
    }
}

/// A mistake in a text. Shown as one line for each place: the first with the message.
#[derive(Debug)]
pub struct TextError {
    /// The error.
    pub message: String,
    /// Where, and which other places have to do with it.
    pub marks: Vec<Mark>,
}

/// A place of an error.
#[derive(Debug)]
pub struct Mark {
    /// Where it is.
    pub place: Place,
    /// The text in question; the message says it if this is empty.
    pub label: String,
    /// The line of the text.
    pub text: Option<String>,
}

impl TextError {
    /// Adds another place.
    pub fn and(mut self, place: &Place, label: impl Into<String>) -> TextError {
        self.marks.push(Mark { place: place.clone(), label: label.into(), text: None });
        self
    }

    /// Adds the line of the first place.
    pub fn with_line(mut self, line: impl Into<String>) -> TextError {
        self.marks[0].text = Some(line.into());
        self
    }
}

/// Gives an error the lines of its places.
pub fn with_lines(error: anyhow::Error, sources: &[Source]) -> anyhow::Error {
    let mut error = match error.downcast::<TextError>() {
        Ok(error) => error,
        Err(error) => return error,
    };
    for Mark { place, text, label: _ } in &mut error.marks {
        let source = sources.iter().find(|source| source.name == place.file);
        let line = source.and_then(|source| source.text.lines().nth(place.line - 1));
        *text = line.map(str::to_owned).or(text.take());
    }
    error.into()
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Mark { place, label, text: _ }) in self.marks.iter().enumerate() {
            match at {
                0 => write!(f, "{place}: {}", self.message)?,
                _ => write!(f, "\n{place}: {label}")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for TextError {}

/// Returns with an error at a place.
macro_rules! bail_at {
    ($place:expr, $($message:tt)*) => {
        return Err($place.error(format!($($message)*)).into())
    };
}
pub(crate) use bail_at;

/// A target or a setting that does not exist or that the target does not know. A program reports it
/// as an error of its command line.
#[derive(Debug)]
pub struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// A [`UsageError`] with this message.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    UsageError(message.into()).into()
}
