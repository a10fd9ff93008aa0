//! The parts of a filetest, and rewriting its expectations.
//!
//! After a function stand its run commands, its expectation and free comments; above the next one
//! may stand free comments and directives. This module distinguishes them by how the lines begin.
//! It understands neither the functions nor the expectations.

use clif_unit::directives::PREFIX;
use clif_unit::unit::is_function_line;
use std::ops::Range;

/// The lines of a filetest.
#[derive(Debug)]
pub struct Lines<'a> {
    /// All lines, with their line ends.
    lines: Vec<&'a str>,
    functions: Vec<Place>,
}

/// Where a function is, in lines from 0.
#[derive(Debug)]
struct Place {
    /// The `function` line.
    start: usize,
    /// The line after the closing brace.
    end: usize,
    /// The `function` line of the next one, or the end of the file.
    next: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nothing, or text of a function.
    Other,
    Directive,
    Command,
    Free,
    Expectation,
}

fn kind(line: &str) -> Kind {
    let line = line.trim();
    let Some(comment) = line.strip_prefix(';') else {
        return Kind::Other;
    };
    // Cranelift does not mind how many semicolons stand before a command.
    let words = comment.trim_start_matches(';').trim_start();
    let command = ["run", "print"].into_iter().filter_map(|word| words.strip_prefix(word));
    if line.starts_with(PREFIX) {
        Kind::Directive
    } else if command.into_iter().any(|rest| rest.is_empty() || rest.starts_with(':')) {
        Kind::Command
    } else if comment.starts_with(';') {
        Kind::Free
    } else {
        Kind::Expectation
    }
}

impl<'a> Lines<'a> {
    /// Takes a text apart.
    pub fn new(text: &'a str) -> Lines<'a> {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let starts =
            lines.iter().enumerate().filter(|(_, line)| is_function_line(line.trim_start()));
        let starts: Vec<usize> = starts.map(|(at, _)| at).collect();
        let nexts = starts.iter().copied().skip(1).chain([lines.len()]);
        let functions = starts.iter().zip(nexts).map(|(&start, next)| {
            let closes = |line: &&str| {
                line.split(';').next().is_some_and(|code| code.trim_end().ends_with('}'))
            };
            let closing = lines[start..next].iter().position(closes);
            let end = closing.map_or(next, |closing| start + closing + 1);
            Place { start, end, next }
        });
        let functions = functions.collect();
        Lines { lines, functions }
    }

    /// The number of functions.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// The text before the first function.
    pub fn header(&self) -> String {
        let end = self.functions.first().map_or(self.lines.len(), |place| place.start);
        self.lines[..end].concat()
    }

    /// The run commands in and after a function, and their lines from 1.
    pub fn commands(&self, function: usize) -> impl Iterator<Item = (usize, &'a str)> {
        let Place { start, end: _, next } = self.functions[function];
        let lines = self.lines[start..next].iter().zip(start + 1..);
        lines.filter(|(line, _)| kind(line) == Kind::Command).map(|(line, at)| (at, line.trim()))
    }

    /// The text with these lines as expectations, one list for each function. The lines are
    /// without line ends. Everything else stays.
    pub fn with_expectations(&self, expectations: &[Vec<String>]) -> String {
        assert_eq!(expectations.len(), self.functions.len(), "an expectation for each function");
        let mut text = self.header();
        for (place, expectation) in self.functions.iter().zip(expectations) {
            text += &self.lines[place.start..place.end].concat();
            let after = place.end..place.next;
            let is_expectation = |&at: &usize| kind(self.lines[at]) == Kind::Expectation;
            match after.clone().find(is_expectation) {
                Some(first) => {
                    for at in after {
                        if at == first {
                            push(&mut text, expectation);
                        }
                        if !is_expectation(&at) {
                            text += self.lines[at];
                        }
                    }
                }
                None => {
                    let at = self.place_for(after);
                    text += &self.lines[place.end..at].concat();
                    end_line(&mut text);
                    text += "\n";
                    push(&mut text, expectation);
                    if self.lines[at..place.next]
                        .first()
                        .is_some_and(|line| !line.trim().is_empty())
                    {
                        text += "\n";
                    }
                    text += &self.lines[at..place.next].concat();
                }
            }
        }
        text
    }

    /// Where an expectation goes that is not there yet: behind the comments that follow the
    /// function without an empty line, but not behind those of the next function.
    fn place_for(&self, after: Range<usize>) -> usize {
        let follows = |&at: &usize| matches!(kind(self.lines[at]), Kind::Command | Kind::Free);
        let end = after.clone().find(|at| !follows(at)).unwrap_or(after.end);
        let is_last = after.end == self.lines.len();
        let meets_next = match end == after.end {
            true => !is_last,
            false => !self.lines[end].trim().is_empty(),
        };
        if !meets_next {
            return end;
        }
        let command = |&at: &usize| kind(self.lines[at]) == Kind::Command;
        (after.start..end).rev().find(command).map_or(after.start, |at| at + 1)
    }
}

fn push(text: &mut String, expectation: &[String]) {
    end_line(text);
    for line in expectation {
        text.push_str(line);
        text.push('\n');
    }
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "; About.\ntest run\n\n\
        function %a() { ; no } here\nblock0:\n    return ; }\n}\n; run: %a()\n;; after a\n\n\
        ;; above b\n;@ pinned\nfunction %b() { block0: return }\n; print: %b()\n";

    #[test]
    fn lines_are_told_apart() {
        let lines = Lines::new(TEXT);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines.header(), "; About.\ntest run\n\n");
        assert_eq!(lines.commands(0).collect::<Vec<_>>(), [(8, "; run: %a()")]);
        assert_eq!(lines.commands(1).collect::<Vec<_>>(), [(14, "; print: %b()")]);
    }

    #[test]
    fn expectations_come_and_go_without_touching_the_rest() {
        let blessed = TEXT
            .replace(";; after a\n", ";; after a\n\n; keep: alone\n; function\n")
            .replace("; print: %b()\n", "; print: %b()\n\n; redirect to %a\n");
        let first = vec![
            vec!["; keep: alone".to_owned(), "; function".to_owned()],
            vec!["; redirect to %a".to_owned()],
        ];
        assert_eq!(Lines::new(TEXT).with_expectations(&first), blessed);
        assert_eq!(Lines::new(&blessed).with_expectations(&first), blessed);
        let second = vec![vec!["; longer".to_owned()], vec!["; other".to_owned()]];
        let changed = Lines::new(&blessed).with_expectations(&second);
        assert_eq!(Lines::new(&changed).with_expectations(&first), blessed);
    }

    #[test]
    fn comments_right_above_a_function_stay_there() {
        let text = "function %a() {\n}\n; run: %a()\n;; about b\nfunction %b() {\n}\n";
        let expectations = vec![vec!["; 1".to_owned()], vec!["; 2".to_owned()]];
        assert_eq!(
            Lines::new(text).with_expectations(&expectations),
            "function %a() {\n}\n; run: %a()\n\n; 1\n\n;; about b\nfunction %b() {\n}\n\n; 2\n",
        );
    }
}
