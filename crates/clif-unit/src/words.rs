//! The words of directive lines: their grammar, and what attributes they give.
//!
//! ```text
//! line  = blank ";@" blank { word blank }
//! word  = name [ "=" value ]          values reach to the next blank
//! ```
//!
//! Functions, data objects and defaults each take their own words, which [`Kind`] lists. The
//! contents of a data object are for `data::parse`. A mistake is final: there is one way only to
//! read a line.

use anyhow::{Result, bail};
use cranelift_codegen::ir::{KnownSymbol, LibCall, UserExternalName};
use cranelift_mergefunc::{Addresses, Linkage, cranelift_codegen};
use std::fmt::Display;
use std::str::FromStr as _;
use winnow::ascii::digit1;
use winnow::combinator::{alt, preceded, repeat, separated_pair, terminated};
use winnow::error::{FromExternalError, ParserError};
use winnow::stream::{LocatingSlice, Location as _, Stream as _};
use winnow::token::take_while;
use winnow::{Parser, Result as Parsed};

/// Begins every directive line.
pub const PREFIX: &str = ";@";

/// A line that is being read.
pub type Input<'a> = LocatingSlice<&'a str>;

/// The column (from 1, in characters) of a mistake in a line, and what is wrong there.
pub type Wrong = (usize, String);

/// An error where the input stands; nothing if the text is only something else.
#[derive(Debug)]
pub struct Mistake(Option<String>);

impl<'a> ParserError<Input<'a>> for Mistake {
    type Inner = Mistake;

    fn from_input(_: &Input<'a>) -> Mistake {
        Mistake(None)
    }

    fn into_inner(self) -> Result<Mistake, Mistake> {
        Ok(self)
    }

    fn is_backtrack(&self) -> bool {
        self.0.is_none()
    }
}

impl<'a> FromExternalError<Input<'a>, anyhow::Error> for Mistake {
    fn from_external_error(_: &Input<'a>, error: anyhow::Error) -> Mistake {
        Mistake(Some(error.to_string()))
    }
}

/// Reads a whole line.
///
/// # Errors
///
/// The first mistake.
pub fn read<'a, T>(line: &'a str, parser: impl Parser<Input<'a>, T, Mistake>) -> Result<T, Wrong> {
    preceded(blank, parser).parse(LocatingSlice::new(line)).map_err(|error| {
        let column = line[..error.offset()].chars().count() + 1;
        (column, error.into_inner().0.unwrap_or_else(|| "unexpected text".to_owned()))
    })
}

/// Makes it a mistake, at the beginning of what was expected, if something else stands there.
pub fn expect<'a, T>(
    message: impl Display,
    mut parser: impl Parser<Input<'a>, T, Mistake>,
) -> impl Parser<Input<'a>, T, Mistake> {
    move |input: &mut Input<'a>| {
        let start = input.checkpoint();
        parser.parse_next(input).map_err(|Mistake(found)| {
            if found.is_none() {
                input.reset(&start);
            }
            Mistake(Some(found.unwrap_or_else(|| message.to_string())))
        })
    }
}

/// Any space.
pub fn blank<'a>(input: &mut Input<'a>) -> Parsed<&'a str, Mistake> {
    take_while(0.., char::is_whitespace).parse_next(input)
}

/// A word, and the space behind it.
pub fn word<'a>(input: &mut Input<'a>) -> Parsed<&'a str, Mistake> {
    terminated(take_while(1.., |c: char| !c.is_whitespace()), blank).parse_next(input)
}

/// This word, and the space behind it.
pub fn exactly<'a>(text: &str) -> impl Parser<Input<'a>, &'a str, Mistake> {
    word.verify(move |found: &str| found == text)
}

/// A line and a column, both from 1.
pub type Place = (usize, usize);

/// Finds the columns of words, in their order, without counting all of a line for each.
pub struct Columns<'a> {
    number: usize,
    line: &'a str,
    /// A byte, and its column.
    last: (usize, usize),
}

impl<'a> Columns<'a> {
    /// At the beginning of a line, which has this number.
    pub fn new(number: usize, line: &'a str) -> Columns<'a> {
        Columns { number, line, last: (0, 1) }
    }

    /// The place of what comes next.
    pub fn here(&mut self, input: &Input<'_>) -> Place {
        let (last, column) = self.last;
        let at = input.current_token_start();
        self.last = (at, column + self.line[last..at].chars().count());
        (self.number, self.last.1)
    }
}

/// The first word of a directive line, behind the prefix.
pub fn first_word(line: &str) -> &str {
    let (_, behind) = line.split_once(PREFIX).unwrap_or_default();
    behind.split_whitespace().next().unwrap_or("")
}

/// The subject of a directive, and its words.
pub struct Kind {
    /// The name of its words in messages.
    called: &'static str,
    /// The parts that messages about unknown words add: to the word, and to the list of those that
    /// there are.
    unknown: [&'static str; 2],
    /// A word in front of the others.
    pub first: &'static str,
    /// Words that need a value.
    valued: &'static [&'static str],
    /// Words without one.
    flags: &'static [&'static str],
}

/// The directives of a function.
pub const FUNCTION: Kind = Kind {
    called: "directive",
    unknown: [""; 2],
    first: "",
    valued: &["linkage", "addresses", "key", "align", "thunk", "alias"],
    flags: &["address-taken", "externally-called", "pinned", "no-merge", "hot", "identical-only"],
};

/// The defaults of a text.
pub const DEFAULTS: Kind = Kind {
    called: "default",
    unknown: [""; 2],
    first: "defaults",
    valued: &["linkage", "addresses", "data-addresses"],
    flags: &[],
};

/// The attributes of a data object, in front of what it holds.
pub const DATA: Kind = Kind {
    called: "attribute",
    unknown: [" of a data object", ", and then '='"],
    first: "data",
    valued: &["linkage", "addresses", "key", "align", "section", "alias"],
    flags: &["writable", "tls", "used", "pinned", "externally-used"],
};

/// The meaning of words.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// The names of the words, in order.
    pub names: Vec<&'static str>,
    /// Where the symbol is visible.
    pub linkage: Option<Linkage>,
    /// Whether the address matters.
    pub addresses: Option<Addresses>,
    /// Likewise, for data objects without directives.
    pub data_addresses: Option<Addresses>,
    /// The key of what may merge.
    pub key: Option<u64>,
    /// In bytes.
    pub alignment: Option<u32>,
    /// The section, as the object format names it.
    pub section: Option<String>,
    /// The function to which this one is a jump.
    pub thunk: Option<Name>,
    /// That for which this is another name.
    pub alias: Option<Name>,
}

impl Said {
    /// Whether a word is said.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// Adds what a line says that has words only.
    ///
    /// # Errors
    ///
    /// The first mistake.
    pub fn add_line(&mut self, kind: &Kind, line: &str) -> Result<(), Wrong> {
        let first = (PREFIX, blank, kind.first, blank);
        let words = repeat::<_, _, (), _, _>(1.., word.try_map(|word| self.add(kind, word)));
        read(line, expect("an empty directive", preceded(first, words)))
    }

    /// Adds what one word says.
    ///
    /// # Errors
    ///
    /// Words that are unknown, repeated, or have a wrong value.
    pub fn add(&mut self, kind: &Kind, word: &str) -> Result<()> {
        let Kind { called, unknown: [of, then], first: _, valued, flags } = kind;
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let Some(&name) = valued.iter().chain(*flags).find(|known| **known == name) else {
            let words = valued.iter().map(|name| format!("{name}="));
            let words: Vec<_> = words.chain(flags.iter().map(|&flag| flag.to_owned())).collect();
            bail!("unknown {called} '{name}'{of}; there are {}{then}", words.join(", "))
        };
        match (name, value.filter(|value| !value.is_empty())) {
            ("linkage", Some(value)) => self.linkage = Some(parse_linkage(value)?),
            ("addresses", Some(value)) => self.addresses = Some(parse_addresses(value)?),
            ("data-addresses", Some(value)) => self.data_addresses = Some(parse_addresses(value)?),
            ("key", Some(value)) => self.key = Some(parse_number(value)?),
            ("align", Some(value)) => self.alignment = Some(parse_alignment(value)?),
            ("section", Some(value)) => self.section = Some(value.to_owned()),
            ("thunk", Some(value)) => self.thunk = Some(Name::parse(value)?),
            ("alias", Some(value)) => self.alias = Some(Name::parse(value)?),
            _ if valued.contains(&name) => bail!("{called} '{name}' needs a value: '{name}=...'"),
            _ if value.is_some() => bail!("{called} '{name}' takes no value"),
            _ => {}
        }
        if self.has(name) {
            bail!("'{name}' is repeated");
        }
        self.names.push(name);
        Ok(())
    }
}

/// A symbol as a text names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// `%f`, without the percent sign.
    Text(String),
    /// `u0:1`.
    User(UserExternalName),
}

impl Name {
    /// Reads `%f` or `u0:1`.
    ///
    /// # Errors
    ///
    /// A text that is no name, and names that Cranelift defines itself.
    pub fn parse(text: &str) -> Result<Name> {
        // Letters as Cranelift's reader takes them.
        let letters = take_while(1.., |c: char| c.is_ascii_alphanumeric() || c == '_');
        let number = || digit1.parse_to::<u32>();
        let user = separated_pair(preceded('u', number()), ':', number())
            .map(|(namespace, index)| Name::User(UserExternalName::new(namespace, index)));
        let name = preceded('%', letters).map(|text: &str| Name::Text(text.to_owned()));
        match read(text, alt((name, user))) {
            Ok(Name::Text(text)) if is_library_function(&text) => {
                bail!("%{text} is the name of a library function of Cranelift")
            }
            Ok(name) => Ok(name),
            Err(_) if text.starts_with('%') => {
                bail!("'{text}' is not a name such as %f: letters, digits and '_' only")
            }
            Err(_) => bail!("'{text}' is not a name such as %f or u0:1"),
        }
    }
}

/// Whether Cranelift takes `%text` for a function of its own.
pub fn is_library_function(text: &str) -> bool {
    LibCall::from_str(text).is_ok() || KnownSymbol::from_str(text).is_ok()
}

/// The largest alignment that a directive may ask for, in bytes.
const MAX_ALIGNMENT: u32 = 1 << 16;

/// A linkage by its name.
///
/// # Errors
///
/// There is none of this name.
pub fn parse_linkage(text: &str) -> Result<Linkage> {
    match Linkage::ALL.into_iter().find(|linkage| linkage.name() == text) {
        Some(linkage) => Ok(linkage),
        None => bail!("unknown linkage '{text}'; there are export, hidden, local, preemptible"),
    }
}

/// Address significance by its name.
///
/// # Errors
///
/// It is called something else.
pub fn parse_addresses(text: &str) -> Result<Addresses> {
    match Addresses::ALL.into_iter().find(|addresses| addresses.name() == text) {
        Some(addresses) => Ok(addresses),
        None => bail!("unknown word '{text}'; addresses are significant or insignificant"),
    }
}

/// An alignment in bytes.
fn parse_alignment(text: &str) -> Result<u32> {
    match u32::try_from(parse_number(text)?) {
        Ok(bytes) if bytes.is_power_of_two() && bytes <= MAX_ALIGNMENT => Ok(bytes),
        _ => bail!("alignment '{text}' is not a power of two from 1 to {MAX_ALIGNMENT}"),
    }
}

/// A decimal or hexadecimal number.
///
/// # Errors
///
/// It is none, or needs more than 64 bits.
pub fn parse_number(text: &str) -> Result<u64> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    // Numbers of the standard library may have a sign.
    match u64::from_str_radix(digits, radix) {
        Ok(number) if !digits.starts_with('+') => Ok(number),
        _ => bail!("'{text}' is not a number from 0 to 2^64 - 1"),
    }
}
