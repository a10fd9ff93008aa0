//! Lines of texts with what is to be said about them, drawn as `rustc` draws them.
//!
//! Plain text is the same on every machine; colours are added where a terminal shows it.

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use clif_unit::error::{Mark, TextError};
use std::ops::Range;

/// Draws an error at its places. The first line is the message, the second the first place.
pub fn draw_error(error: &TextError) -> String {
    let TextError { message, marks } = error;
    let mut group = Level::ERROR.primary_title(message).elements(None::<Origin<'_>>);
    for (at, Mark { place, label, text }) in marks.iter().enumerate() {
        let path = place.file.as_str();
        group = match text {
            None => {
                let origin = Origin::path(path).line(place.line);
                group.element(match place.column {
                    None => origin,
                    Some(column) => origin.char_column(column),
                })
            }
            Some(text) => {
                let mark = mark(word(text, place.column), label, at == 0);
                group.element(
                    Snippet::source(text).line_start(place.line).path(path).annotation(mark),
                )
            }
        };
    }
    Renderer::styled().render(&[group])
}

/// Lines of a text of which one is marked.
pub struct Excerpt<'a> {
    /// The name of the text.
    pub path: &'a str,
    /// The number of the first line, from 1.
    pub first: usize,
    /// The lines.
    pub lines: String,
    /// Which of them is marked, from 0.
    pub marked: usize,
    /// The column of the word that is marked, from 1; nothing marks the whole line.
    pub column: Option<usize>,
    /// The label of the mark.
    pub label: String,
}

/// Draws excerpts below an empty line, in colour if standard output shows it.
pub fn draw_excerpts(excerpts: &[Excerpt<'_>]) -> String {
    let mut group = Group::with_level(Level::NOTE);
    for Excerpt { path, first, lines, marked, column, label } in excerpts {
        let start: usize = lines.split_inclusive('\n').take(*marked).map(str::len).sum();
        let Range { start: from, end } =
            word(lines.lines().nth(*marked).unwrap_or_default(), *column);
        let mark = mark(start + from..start + end, label, true);
        let snippet = Snippet::source(lines).line_start(*first).path(*path).fold(false);
        group = group.element(snippet.annotation(mark));
    }
    let renderer = match anstream::AutoStream::choice(&std::io::stdout()) {
        anstream::ColorChoice::Never => Renderer::plain(),
        _ => Renderer::styled(),
    };
    format!("\n{}\n", renderer.render(&[group]))
}

fn mark<'a>(span: Range<usize>, label: &'a str, primary: bool) -> Annotation<'a> {
    let kind = if primary { AnnotationKind::Primary } else { AnnotationKind::Context };
    kind.span(span).label((!label.is_empty()).then_some(label))
}

/// The bytes of the word at a column of a line, or of all its words.
fn word(line: &str, column: Option<usize>) -> Range<usize> {
    match column {
        None => line.len() - line.trim_start().len()..line.trim_end().len(),
        Some(column) => {
            let start = line.char_indices().nth(column - 1).map_or(line.len(), |(at, _)| at);
            let length = line[start..].find(char::is_whitespace);
            start..length.map_or(line.len(), |length| start + length)
        }
    }
}
