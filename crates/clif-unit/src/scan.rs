//! The lines of a text: where functions begin, which directives stand above them, and which data
//! objects there are.
//!
//! This comes before Cranelift's reader, which sees one function at a time and no directives. It
//! also refuses what would only exhaust the reader's memory, and words that the reader would take
//! for something else. It does not understand functions.

use crate::data::parse::Parsed;
use crate::error::{Place, bail_at};
use crate::header::Header;
use crate::names;
use crate::unit::Source;
use crate::words::{DEFAULTS, FUNCTION, PREFIX, Said, Wrong, blank, expect, first_word, read};
use anyhow::Result;
use winnow::combinator::{fail, preceded};

/// The items of a text.
#[derive(Debug, Default)]
pub struct Scan<'a> {
    /// Its functions, in order.
    pub functions: Vec<Scanned<'a>>,
    /// Its data objects, in order.
    pub data: Vec<Parsed>,
}

/// A function of a text that was not parsed yet.
#[derive(Debug)]
pub struct Scanned<'a> {
    /// The line of `function`, from 1.
    pub line: usize,
    /// From there to the next function.
    pub text: &'a str,
    /// The directives above it.
    pub directives: Said,
    /// Its name in the source, from a comment above it.
    pub source_name: Option<&'a str>,
}

/// The item that the last line, comments apart, leaves open. Numbers are those of lines.
enum Open {
    Nothing,
    /// Directives of the next function, and the first line of them.
    Directives(usize, Said),
    /// The last data object, which can go on, and the last line of it.
    Data(usize),
    /// Defaults, and their line.
    Defaults(usize),
}

/// Finds the functions and the data objects of a text.
///
/// Of the lines before the first one (`test`, `set`, `target`) only the form matters here, which
/// `header` checks.
///
/// # Errors
///
/// Malformed and stray directives, lines before the first function that cannot be there, and
/// numbers of entities that no function can have, with their places.
pub fn scan(source: &Source) -> Result<Scan<'_>> {
    let mut scan = Scan::default();
    let mut defaults = Said::default();
    let mut open = Open::Nothing;
    let name = &source.name;
    let stray = |line: usize| {
        let place = Place::column(name, line, 1);
        place.error("a directive must stand right above 'function'")
    };
    let mut header = Header::default();
    let mut starts = Vec::new();
    let mut at = 0;
    let mut source_name = None;
    for (index, line) in source.text.split_inclusive('\n').enumerate() {
        let number = index + 1;
        let start = at;
        at += line.len();
        let line = line.trim_end_matches(['\n', '\r']);
        let trimmed = line.trim_start();
        if trimmed.starts_with(PREFIX) {
            open =
                directive(&mut scan, &mut defaults, open, number, line).map_err(
                    |stop| match stop {
                        Stop::Stray(line) => stray(line),
                        Stop::Wrong(column, message) => {
                            Place::column(name, number, column).error(message)
                        }
                    },
                )?;
            continue;
        }
        if trimmed.is_empty() || trimmed.starts_with(';') {
            source_name = names::in_comment(trimmed).or(source_name);
            continue;
        }
        let directives = match std::mem::replace(&mut open, Open::Nothing) {
            Open::Directives(_, directives) if is_function_line(trimmed) => directives,
            Open::Directives(line, _) => return Err(stray(line).into()),
            Open::Data(line) if !scan.functions.is_empty() && !is_function_line(trimmed) => {
                bail_at!(
                    Place::column(name, line, 1),
                    "a data object must stand outside of functions"
                )
            }
            Open::Defaults(line) if !scan.functions.is_empty() && !is_function_line(trimmed) => {
                bail_at!(Place::column(name, line, 1), "defaults must stand outside of functions")
            }
            Open::Nothing | Open::Data(_) | Open::Defaults(_) => Said::default(),
        };
        if is_function_line(trimmed) {
            let mut directives = directives;
            directives.linkage = directives.linkage.or(defaults.linkage);
            directives.addresses = directives.addresses.or(defaults.addresses);
            let source_name = source_name.take();
            scan.functions.push(Scanned { line: number, text: "", directives, source_name });
            starts.push(start);
        } else if scan.functions.is_empty() {
            header.add_line(name, number, line)?;
        }
        let part = if scan.functions.is_empty() { Part::Header } else { Part::Function };
        code_line(part, line)
            .map_err(|(column, error)| Place::column(name, number, column).error(error))?;
    }
    if let Open::Directives(line, _) = open {
        return Err(stray(line).into());
    }
    let ends = starts.iter().skip(1).copied().chain([source.text.len()]);
    for ((function, &start), end) in scan.functions.iter_mut().zip(&starts).zip(ends) {
        function.text = &source.text[start..end];
    }
    Ok(scan)
}

/// Why a directive cannot be read.
enum Stop {
    /// The directive in this line belongs to no function.
    Stray(usize),
    /// An error at this column of the current line.
    Wrong(usize, String),
}

impl From<Wrong> for Stop {
    fn from((column, message): Wrong) -> Stop {
        Stop::Wrong(column, message)
    }
}

/// Reads a directive line.
fn directive(
    scan: &mut Scan<'_>,
    defaults: &mut Said,
    open: Open,
    number: usize,
    line: &str,
) -> Result<Open, Stop> {
    match (first_word(line), open) {
        ("data" | "+" | "defaults", Open::Directives(line, _)) => Err(Stop::Stray(line)),
        ("defaults", Open::Nothing | Open::Data(_) | Open::Defaults(_)) => {
            let mut said = Said::default();
            said.add_line(&DEFAULTS, line)?;
            defaults.linkage = said.linkage.or(defaults.linkage);
            defaults.addresses = said.addresses.or(defaults.addresses);
            defaults.data_addresses = said.data_addresses.or(defaults.data_addresses);
            Ok(Open::Defaults(number))
        }
        ("data", Open::Nothing | Open::Data(_) | Open::Defaults(_)) => {
            let mut data = Parsed::first_line(number, line)?;
            data.fill_in(defaults.data_addresses);
            scan.data.push(data);
            Ok(Open::Data(number))
        }
        ("+", Open::Data(_)) => {
            scan.data.last_mut().expect("is open").add_line(number, line)?;
            Ok(Open::Data(number))
        }
        ("+", Open::Nothing | Open::Defaults(_)) => {
            let refused = expect("there is no data object above that could go on", fail);
            Ok(read(line, preceded((PREFIX, blank), refused))?)
        }
        (_, open) => {
            let (first, mut directives) = match open {
                Open::Directives(first, directives) => (first, directives),
                Open::Nothing | Open::Data(_) | Open::Defaults(_) => (number, Said::default()),
            };
            directives.add_line(&FUNCTION, line)?;
            Ok(Open::Directives(first, directives))
        }
    }
}

/// Whether a line without leading space begins a function.
pub fn is_function_line(line: &str) -> bool {
    line.strip_prefix("function").is_some_and(|rest| rest.starts_with([' ', '\t', '%']))
}

/// The largest number of a value. Cranelift packs it into 24 bits.
const MAX_VALUE: u64 = (1 << 24) - 1;
/// The largest number of any other entity: far more than any program has, and yet few enough that
/// the reader, which makes all those below, does not run out of memory.
const MAX_ENTITY: u64 = (1 << 20) - 1;
/// The entities that a text numbers.
const ENTITIES: [&str; 10] =
    ["v", "block", "ss", "dss", "dt", "gv", "sig", "fn", "const", "region"];

/// The item to which a line that is no comment belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The lines before the first function, which `header` reads.
    Header,
    /// A function, which Cranelift's reader reads.
    Function,
}

/// Looks at a line that is no comment. An error comes with its column.
fn code_line(part: Part, line: &str) -> Result<(), Wrong> {
    let bytes = line.as_bytes();
    let column = |at: usize| line[..at].chars().count() + 1;
    let wrong = |at: usize, message: String| Err((column(at), message));
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b';' if line[at..].starts_with(PREFIX) => {
                return wrong(at, "a directive must stand on a line of its own".to_owned());
            }
            // Comments hold anything.
            b';' => break,
            b'"' => match line[at + 1..].find('"') {
                Some(length) => at += length + 2,
                None if part == Part::Header => break,
                None => {
                    return wrong(at, "a text in quotation marks must end on its line".to_owned());
                }
            },
            // The reader accepts this as an empty name, which cannot be written elsewhere.
            b'%' if !bytes.get(at + 1).is_some_and(|&next| is_word(next)) => {
                return wrong(at, "an empty name: expected letters behind '%'".to_owned());
            }
            // Names and source locations are no entities.
            b'%' => {
                let end = at + 1 + length_of(&bytes[at + 1..], is_word);
                if part == Part::Function
                    && bytes.get(end).is_some_and(|next| b".$@?:".contains(next))
                {
                    let length = line[at..].find([' ', '(', ',']).unwrap_or(line.len() - at);
                    let name = &line[at..at + length];
                    return wrong(
                        at,
                        format!("'{name}' is not a name such as %f: letters, digits and '_' only"),
                    );
                }
                at = end;
            }
            b'@' | b'#' => at += 1 + length_of(&bytes[at + 1..], |byte| byte.is_ascii_hexdigit()),
            byte if byte.is_ascii_alphanumeric() => {
                let length = length_of(&bytes[at..], is_word);
                let word = &line[at..at + length];
                if let Some(message) = wrong_word(word, &line[at + length..]) {
                    return wrong(at, message);
                }
                at += length;
            }
            byte if part == Part::Function && !is_known(byte) => {
                let unknown = line[at..].chars().next().unwrap_or_default();
                return wrong(at, format!("CLIF has no character {unknown:?} here"));
            }
            _ => at += 1,
        }
    }
    Ok(())
}

/// How many bytes from the first on are of this kind.
fn length_of(bytes: &[u8], kind: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|&&byte| kind(byte)).count()
}

/// Whether the reader knows a character that begins no word.
fn is_known(byte: u8) -> bool {
    b"(){}[]<>-+*,.:=!".contains(&byte) || byte == b' ' || (0x09..=0x0d).contains(&byte)
}

/// How Cranelift's printer writes a symbol of which it knows only the index in a table of the
/// function.
const NAMELESS: &str = "userextname";

/// Why a word cannot be read, if so. `behind` is the rest of the line.
fn wrong_word(word: &str, behind: &str) -> Option<String> {
    if word.len() > 7 && is_too_large(word) {
        return Some(format!("the number of '{word}' is too large"));
    }
    // The reader would take it for the Nth name that the text has in any other place.
    if word.strip_prefix(NAMELESS).is_some_and(is_number) {
        return Some(format!(
            "'{word}' is an index into a table of names that no text has, so it can be any symbol; write the name \
             itself in its place, such as %table or u1:7"
        ));
    }
    // The reader takes the minus sign for a part of the number.
    if word.strip_prefix('u').is_some_and(is_number)
        && let Some(index) = behind.strip_prefix(':')
        && let digits = length_of(index.as_bytes(), |byte| byte.is_ascii_digit())
        && digits > 0
        && index[digits..].starts_with('-')
    {
        let (index, offset) = index.split_at(digits);
        let offset = &offset[..1 + length_of(&offset.as_bytes()[1..], is_word)];
        return Some(format!("expected a space in front of the offset: '{word}:{index} {offset}'"));
    }
    None
}

fn is_number(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
}

/// The words of a line of a function, each with its byte: without names, source locations, texts in
/// quotation marks and comments.
pub(crate) fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = line.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            match bytes[at] {
                b';' => break,
                b'"' => at += line[at + 1..].find('"').map_or(line.len(), |length| length + 2),
                b'%' => at += 1 + length_of(&bytes[at + 1..], is_word),
                b'@' | b'#' => {
                    at += 1 + length_of(&bytes[at + 1..], |byte| byte.is_ascii_hexdigit());
                }
                byte if byte.is_ascii_alphanumeric() => {
                    let start = at;
                    at += length_of(&bytes[at..], is_word);
                    return Some((start, &line[start..at]));
                }
                _ => at += 1,
            }
        }
        None
    })
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_too_large(word: &str) -> bool {
    let digits = word.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
    let entity = &word[..word.len() - digits.len()];
    let limit = if entity == "v" { MAX_VALUE } else { MAX_ENTITY };
    ENTITIES.contains(&entity)
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        // The reader would refuse a number that does not fit, but must not be reached with it.
        && digits.parse().map_or(true, |number: u64| number > limit)
}

#[cfg(test)]
mod tests {
    use super::{Part, Scan, code_line, scan};
    use crate::unit::Source;

    fn check(text: &str, expected: &str) {
        let source = Source { name: "t".to_owned(), text: text.to_owned() };
        let found = match scan(&source) {
            Ok(Scan { functions, data }) => {
                let lines: Vec<_> = functions.iter().map(|function| function.line).collect();
                let data: Vec<_> = data.iter().map(|data| data.place.0).collect();
                match data.is_empty() {
                    true => format!("{lines:?}"),
                    false => format!("{lines:?} and data {data:?}"),
                }
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn functions_are_found() {
        check("", "[]");
        check("test merge\n\nfunction %f() {\n}\n;@ pinned\n; c\n\nfunction u0:1() {}", "[3, 8]");
        check("functional\n", "t:1:1: expected 'function', found 'functional'");
    }

    #[test]
    fn stray_directives_are_errors() {
        let stray = "a directive must stand right above 'function'";
        check(";@ pinned\n", &format!("t:1:1: {stray}"));
        check("function %f() {\n;@ pinned\n}\n", &format!("t:2:1: {stray}"));
        check(";@ pinned\ntest merge\n", &format!("t:1:1: {stray}"));
        let own = "a directive must stand on a line of its own";
        check("function %f() { ;@ pinned\n}\n", &format!("t:1:17: {own}"));
        check("function %f() { ; see ;@ pinned\n}\n", "[1]");
        check("function %f() {\nregion0 = 1 \";@\"\n}\n", "[1]");
    }

    #[test]
    fn data_stands_outside_of_functions() {
        check(
            ";@ data %a =\ntest merge\n;@ + u8 1\n",
            "t:3:4: there is no data object above that could go on",
        );
        let text = ";@ data %a = u8 1\n; c\n\n;@ + u8 2\ntest merge\nfunction %f() {\n}\n\
                    ;@ data %b =\n;@ pinned\nfunction %g() {\n}\n;@data %c =\n";
        check(text, "[6, 10] and data [1, 8, 12]");
        let stray = "a directive must stand right above 'function'";
        check(";@ pinned\n;@ data %a =\n", &format!("t:1:1: {stray}"));
        check(";@ data %a =\n;@ pinned\n;@ + u8 1\n", &format!("t:2:1: {stray}"));
        check(";@ data %a =\n;@ pinned\n", &format!("t:2:1: {stray}"));
        check(
            "function %f() {\n;@ data %a =\n;@ + u8 1\n}\n",
            "t:3:1: a data object must stand outside of functions",
        );
    }

    #[test]
    fn defaults_stand_outside_of_functions() {
        let text = ";@ defaults linkage=local\ntest merge\nfunction %f() {\n}\n\
                    ;@ defaults addresses=significant data-addresses=insignificant\n\
                    ;@ data %a =\n;@ pinned\nfunction %g() {\n}\n;@ defaults linkage=export\n";
        check(text, "[3, 8] and data [6]");
        let stray = "a directive must stand right above 'function'";
        check(";@ pinned\n;@ defaults linkage=local\n", &format!("t:1:1: {stray}"));
        check(
            "function %f() {\n;@ defaults linkage=local\n}\n",
            "t:2:1: defaults must stand outside of functions",
        );
        check(";@ defaults\n", "t:1:1: an empty directive");
        check(
            ";@ defaults linkage=no\n",
            "t:1:13: unknown linkage 'no'; there are export, hidden, local, preemptible",
        );
        check(
            ";@ defaults key=1\n",
            "t:1:13: unknown default 'key'; there are linkage=, addresses=, data-addresses=",
        );
        check(";@ defaults linkage=local linkage=local\n", "t:1:27: 'linkage' is repeated");
        check(
            ";@ defaults linkage=local\n;@ + u8 1\n",
            "t:2:4: there is no data object above that could go on",
        );
    }

    #[test]
    fn large_numbers_and_empty_names_are_errors() {
        for line in [
            "v16777215 = iconst.i32 1234567890123",
            "return v1, v2",
            "jump block1048575",
            "fn0 = %v99999999 sig0 ; v99999999",
            "@99999999 fn0 = u4294967295:4294967295 sig0",
            "v1 = iconst.i64 0x1234_5678_9abc",
            "return ; 100 % of it",
            "region0 = 1 \"100 %\"",
        ] {
            assert_eq!(code_line(Part::Function, line), Ok(()));
        }
        for (line, column) in [
            ("v16777216 = iconst.i32 1", 1),
            ("  v99999999999999999999999 = iconst.i32 1", 3),
            ("jump block1048576", 6),
            ("sig1048576 = () fast", 1),
            ("function %() {", 10),
            ("    fn0 = colocated %() -> i32", 21),
            ("    gv0 = symbol %+8", 18),
            ("%", 1),
            // Behind what the reader takes for the end of another word.
            ("@0v16777216 = iconst.i32 1", 3),
            ("region0 = 1 \"\" v16777216 = iconst.i32 1", 16),
        ] {
            assert_eq!(code_line(Part::Function, line).unwrap_err().0, column, "{line}");
        }
    }

    /// A name that only a table of the function knows was another symbol, or a panic.
    #[test]
    fn words_that_mean_something_else_are_errors() {
        for line in [
            "gv0 = symbol u0:1 -8",
            "gv0 = symbol %userextname0 ; userextname0",
            "gv0 = symbol u0:1+8",
            "v1 = load.i64 v0-8",
            "userextnames",
        ] {
            assert_eq!(code_line(Part::Function, line), Ok(()));
        }
        for (line, column) in [
            ("gv0 = symbol colocated userextname0", 24),
            ("fn0=colocated userextname12 sig0", 15),
            ("function userextname0() {", 10),
            ("region0 = 1 \"a\" gv0 = symbol tls userextname0", 34),
            ("@00userextname0", 4),
            ("gv0 = symbol u0:1-8", 14),
            ("region0 = 1 \"a", 13),
            ("function %core.ptr.read() {", 10),
            ("v1 = iadd v0, v0 \u{e9}", 18),
            ("v1 = iadd v0, _v0", 15),
        ] {
            assert_eq!(code_line(Part::Function, line).unwrap_err().0, column, "{line}");
        }
        assert_eq!(code_line(Part::Header, "test x \u{e9} \"a"), Ok(()));
    }
}
