//! Lists of functions that are reachable from outside of the unit, which the command line marks by
//! their names.
//!
//! A unit that a compiler wrote has no directives, and one default for all of its functions is a
//! guess. So patterns of names, on the command line or in files, mark functions that are exported
//! and functions that are externally called. This module reads patterns and applies them; it does
//! not know functions.

use crate::error::Place;
use crate::sources::{Source, read_file};
use anyhow::{Context as _, Result, bail};
use cranelift_mergefunc::{Attributes, Linkage};
use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use std::collections::HashMap;
use std::path::Path;

/// A pattern of function names.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The option: `--export`.
    option: String,
    /// Where it stands in a file.
    place: Option<Place>,
    text: String,
    glob: Glob,
}

/// Begins a line that is not a pattern. No name begins like this.
const COMMENT: char = '#';

/// Reads a pattern: `*` matches any text, `?` one character, `[a-z]` one of several, `{a,b}` one of
/// several texts, and `\` before any of them that character itself.
///
/// # Errors
///
/// The error in the pattern, in one line.
pub fn parse_pattern(option: &str, text: &str) -> Result<Pattern, String> {
    if text.is_empty() {
        return Err(
            "a pattern is a name, such as %f or u0:1, in which * matches any text".to_owned()
        );
    }
    let glob = GlobBuilder::new(text).backslash_escape(true).build();
    match glob {
        Ok(glob) => {
            Ok(Pattern { option: option.to_owned(), place: None, text: text.to_owned(), glob })
        }
        Err(error) => Err(format!("'{text}' is not a pattern: {}", error.kind())),
    }
}

/// Reads a file of patterns, one on each line. Space around them, empty lines and lines that begin
/// with `#` mean nothing.
///
/// # Errors
///
/// A file that cannot be read or is not text, and a line that is not a pattern, with their places.
pub fn read_patterns(path: &Path) -> Result<Vec<Pattern>> {
    let Source { name, text } = read_file(path)?;
    let mut patterns = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(COMMENT) {
            continue;
        }
        let place = Place::line(&name, at + 1);
        match parse_pattern("", line) {
            Ok(pattern) => patterns.push(Pattern { place: Some(place), ..pattern }),
            Err(error) => return Err(place.error(error).with_line(line).into()),
        }
    }
    Ok(patterns)
}

/// Patterns, and which of them matched something so far.
#[derive(Debug, Default)]
struct Patterns {
    all: Vec<Pattern>,
    matched: Vec<bool>,
    set: GlobSet,
}

impl Patterns {
    fn new(all: Vec<Pattern>) -> Result<Patterns> {
        let mut set = GlobSetBuilder::new();
        for pattern in &all {
            set.add(pattern.glob.clone());
        }
        let set = set.build().context("too many patterns, or too large ones")?;
        Ok(Patterns { matched: vec![false; all.len()], all, set })
    }

    /// Whether one of them matches one of these names.
    fn matches(&mut self, names: &[String]) -> bool {
        let mut is_match = false;
        for name in names {
            for at in self.set.matches(name) {
                self.matched[at] = true;
                is_match = true;
            }
        }
        is_match
    }

    fn unmatched(&self) -> Option<&Pattern> {
        let at = self.matched.iter().position(|matched| !matched)?;
        Some(&self.all[at])
    }
}

/// The marks that functions have by their names: from the command line, or from whoever wrote the
/// unit.
#[derive(Debug, Default)]
pub struct Marks {
    /// Known attributes of functions, in place of the defaults.
    known: HashMap<String, Attributes>,
    exported: Patterns,
    externally_called: Patterns,
}

impl Marks {
    /// Functions that match one of these patterns are exported, or externally called.
    ///
    /// # Errors
    ///
    /// More patterns than can be searched for together.
    pub fn new(exported: Vec<Pattern>, externally_called: Vec<Pattern>) -> Result<Marks> {
        Ok(Marks {
            known: HashMap::new(),
            exported: Patterns::new(exported)?,
            externally_called: Patterns::new(externally_called)?,
        })
    }

    /// Has the function of this name these defaults, instead of those of unmarked functions.
    pub fn know(&mut self, name: String, defaults: Attributes) {
        self.known.insert(name, defaults);
    }

    /// The defaults for the function of these names, the first of which is that of its symbol, if
    /// `defaults` are those of unmarked functions. A function that is marked as externally called
    /// is so whatever its directives say: no directive says the opposite. The names are asked for
    /// only if they matter.
    pub fn defaults_for(
        &mut self,
        names: impl FnOnce() -> Vec<String>,
        defaults: Attributes,
    ) -> Attributes {
        let Marks { known, exported, externally_called } = self;
        if known.is_empty() && exported.all.is_empty() && externally_called.all.is_empty() {
            return defaults;
        }
        let names = &names();
        let known = names.first().and_then(|name| known.get(name));
        let mut attributes = known.copied().unwrap_or(defaults);
        if exported.matches(names) {
            attributes.linkage = Linkage::Export;
        }
        attributes.externally_called |= externally_called.matches(names);
        attributes
    }

    /// Checks that every pattern has matched: one that does not is misspelt or is meant for another
    /// unit, and the function that it should match would lose its symbol.
    ///
    /// # Errors
    ///
    /// The first pattern that has not.
    pub fn check_all_matched(&self) -> Result<()> {
        let unmatched = self.exported.unmatched().or_else(|| self.externally_called.unmatched());
        match unmatched {
            None => Ok(()),
            Some(Pattern { option, place, text, glob: _ }) => {
                let names = "names are such as %f or u0:1, or those of the source";
                let message = format!("'{text}' matches no function of the unit, where {names}");
                match place {
                    None => bail!("{option}: {message}"),
                    Some(place) => Err(place.error(message).with_line(text).into()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Marks, parse_pattern};
    use cranelift_mergefunc::{Attributes, Linkage};

    fn marks(exported: &[&str], externally_called: &[&str]) -> Marks {
        let parse = |patterns: &[&str]| {
            patterns.iter().map(|text| parse_pattern("--x", text).unwrap()).collect()
        };
        Marks::new(parse(exported), parse(externally_called)).unwrap()
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, names, others) in [
            ("u0:1", &["u0:1"][..], &["u0:11", "u10:1", "%u0:1"][..]),
            ("u0:*", &["u0:1", "u0:22"], &["u1:0"]),
            ("%a?", &["%ab", "%a/"], &["%a", "%abc", "%Ab"]),
            ("u0:[1-3]", &["u0:2"], &["u0:4", "u0:"]),
            ("%{open,close}_*", &["%open_", "%close_it"], &["%open", "%reopen_it"]),
            (r"%v\[0\]", &["%v[0]"], &["%v0"]),
            ("*", &["%f", "u1:2", "%a/b"], &[]),
            ("%*.rs", &["%a.rs", "%a/b.rs", "%.rs"], &["%a.rsx"]),
        ] {
            let mut marks = marks(&[pattern], &[]);
            let local = Attributes { linkage: Linkage::Local, ..Attributes::default() };
            let mut linkage =
                |name: &str| marks.defaults_for(|| vec![name.to_owned()], local).linkage;
            for name in names {
                assert_eq!(linkage(name), Linkage::Export, "{pattern} {name}");
            }
            for name in others {
                assert_eq!(linkage(name), Linkage::Local, "{pattern} {name}");
            }
        }
    }

    #[test]
    fn patterns_add_to_what_is_known() {
        let mut marks = marks(&["u0:1"], &["u0:2"]);
        let local = Attributes { linkage: Linkage::Local, ..Attributes::default() };
        for name in ["u0:0", "u0:1", "u0:2"] {
            marks.know(name.to_owned(), local);
        }
        let defaults = Attributes { hot: true, ..Attributes::default() };
        let mut of = |name: &str| marks.defaults_for(|| vec![name.to_owned()], defaults);
        assert_eq!(of("u0:0"), local);
        assert_eq!(of("u0:1"), Attributes { linkage: Linkage::Export, ..local });
        assert_eq!(of("u0:2"), Attributes { externally_called: true, ..local });
        assert_eq!(of("u0:3"), defaults);
    }

    #[test]
    fn mistakes_in_patterns_are_errors() {
        for (pattern, message) in [
            ("", "a pattern is a name"),
            ("u0:[1", "'u0:[1' is not a pattern: unclosed character class"),
            ("{%a", "'{%a' is not a pattern: unclosed alternate group"),
            ("%a[9-0]", "'%a[9-0]' is not a pattern: invalid range"),
            ("%a\\", "'%a\\' is not a pattern: dangling '\\'"),
        ] {
            let error = parse_pattern("--export", pattern).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn every_pattern_has_to_match() {
        let mut marks = marks(&["%f"], &["%g", "%h*"]);
        let called = |marks: &mut Marks, name: &str| {
            let names = || vec![name.to_owned()];
            marks.defaults_for(names, Attributes::default()).externally_called
        };
        assert_eq!(
            [called(&mut marks, "%f"), called(&mut marks, "%g"), called(&mut marks, "%x")],
            [false, true, false],
        );
        let error = marks.check_all_matched().unwrap_err().to_string();
        assert!(error.starts_with("--x: '%h*' matches no function"), "{error}");
        assert!(called(&mut marks, "%hh"));
        assert!(marks.check_all_matched().is_ok());
    }
}
