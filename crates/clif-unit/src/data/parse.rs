//! The directive `;@ data`: from text to data objects.
//!
//! ```text
//! ;@ data %table linkage=local align=8 = "abc\00" u32 7 zero 4 %f %g+8
//! ;@ + u64 0xff hex 0102ff
//! ```
//!
//! The name and the attributes come first, what the object holds stands behind `=`, and a line that
//! begins with `+` goes on. An object of `zero` items alone is all zeros and takes no room in a
//! file. `alias=%other` instead of `=` makes the name another one for an object. This module
//! does not resolve symbols; [`super`] does.

use super::POINTER_BYTES;
use crate::directives::{
    PREFIX, flag, once, parse_addresses, parse_alignment, parse_linkage, parse_number,
};
use anyhow::{Result, anyhow, bail};
use cranelift_codegen::ir::{KnownSymbol, LibCall, UserExternalName};
use cranelift_mergefunc::{Addresses, Contents, DataAttributes, Linkage, cranelift_codegen};
use std::str::FromStr as _;

/// The largest object, in bytes: what code reaches from anywhere in it.
pub const MAX_SIZE: u64 = i32::MAX as u64;
/// The largest number of zeros that one word may add to an object that holds more than zeros, so
/// that a short text does not take much memory.
pub const MAX_FILL: u64 = 1 << 24;

/// A data object as the text gives it.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// Its name.
    pub name: Name,
    /// Line and column of the name.
    pub place: Place,
    /// Its linkage, where the text says it; likewise below.
    pub linkage: Option<Linkage>,
    /// Whether its address matters.
    pub addresses: Option<Addresses>,
    /// Whether it can be written.
    pub writable: bool,
    /// Whether each thread has its own.
    pub tls: bool,
    /// Whether the linker must keep it.
    pub used: bool,
    /// Whether it stays as it is.
    pub pinned: bool,
    /// Whether something that the pass does not see refers to it by its symbol.
    pub externally_used: bool,
    /// The key of data objects that may merge.
    pub key: Option<u64>,
    /// In bytes.
    pub alignment: Option<u32>,
    /// The section, as the object format names it.
    pub section: Option<String>,
    /// The object for which it is another name, and where the text says so. It holds nothing then.
    pub alias: Option<(Name, Place)>,
    /// Its bytes.
    pub contents: Contents,
    /// Its pointers.
    pub pointers: Vec<Pointer>,
    /// The most zeros that one word asks for.
    largest_fill: u64,
}

/// A line and a column, both from 1.
pub type Place = (usize, usize);

/// A pointer as the text gives it.
#[derive(Clone, Debug)]
pub struct Pointer {
    /// Bytes from the beginning of the object.
    pub offset: u32,
    /// What it points to.
    pub target: Name,
    /// Bytes that are added to the address.
    pub addend: i64,
    /// Where the text has it.
    pub place: Place,
}

/// A symbol as a text names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// `%f`, without the percent sign.
    Text(String),
    /// `u0:1`.
    User(UserExternalName),
}

/// What is wrong, and at which byte of the line.
type Error = (usize, anyhow::Error);

/// The words of a line. A string with its quotes is one word.
struct Words<'a> {
    line: &'a str,
    /// Where the rest begins.
    at: usize,
    /// Where the last word begins, and the column there.
    last: (usize, usize),
}

impl<'a> Words<'a> {
    /// The next word, and where it begins.
    fn next(&mut self) -> Result<Option<(usize, &'a str)>, Error> {
        let rest = &self.line[self.at..];
        let start = self.line.len() - rest.trim_start().len();
        let rest = &self.line[start..];
        let Some(first) = rest.chars().next() else {
            self.at = start;
            return Ok(None);
        };
        let blank = || rest.find(char::is_whitespace).unwrap_or(rest.len());
        let length = match first {
            '"' => string_length(rest).ok_or((start, anyhow!("a string without end")))?,
            _ => blank(),
        };
        self.at = start + length;
        let (last, column) = self.last;
        self.last = (start, column + self.line[last..start].chars().count());
        match self.line[self.at..].chars().next() {
            Some(next) if !next.is_whitespace() => {
                Err((self.at, anyhow!("expected a space behind the string")))
            }
            _ => Ok(Some((start, &rest[..length]))),
        }
    }

    /// The next word, which must be one of `what`.
    fn expect(&mut self, what: &str) -> Result<(usize, &'a str), Error> {
        self.next()?.ok_or_else(|| (self.line.len(), anyhow!("expected {what}")))
    }

    /// Whether the next word is a number.
    fn is_number(&self) -> bool {
        self.line[self.at..].trim_start().starts_with(|first: char| first.is_ascii_digit())
    }
}

/// The length of the string at the beginning of `text`, with its quotes.
fn string_length(text: &str) -> Option<usize> {
    let mut escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    Some(end + 2)
}

/// The first word of a directive line.
pub fn first_word(line: &str) -> &str {
    let start = line.find(PREFIX).map_or(line.len(), |at| at + PREFIX.len());
    line[start..].split_whitespace().next().unwrap_or("")
}

/// The words behind the first one of a directive line.
fn words(line: &str) -> Words<'_> {
    let at = line.find(PREFIX).map_or(0, |at| at + PREFIX.len());
    let mut words = Words { line, at, last: (0, 1) };
    // No string, so this does not fail.
    let _ = words.next();
    words
}

/// The column of a byte of a line.
fn column(line: &str, at: usize) -> usize {
    line[..at].chars().count() + 1
}

impl Parsed {
    /// Reads the first line of a data object, which has this number.
    ///
    /// # Errors
    ///
    /// The column (from 1, in characters) and what is wrong there.
    pub fn first_line(number: usize, line: &str) -> Result<Parsed, (usize, String)> {
        Parsed::read_first_line(number, line)
            .map_err(|(at, error)| (column(line, at), error.to_string()))
    }

    /// Adds what a line says that goes on.
    ///
    /// # Errors
    ///
    /// Like [`Parsed::first_line`].
    pub fn add_line(&mut self, number: usize, line: &str) -> Result<(), (usize, String)> {
        self.items(number, words(line)).map_err(|(at, error)| (column(line, at), error.to_string()))
    }

    fn read_first_line(number: usize, line: &str) -> Result<Parsed, Error> {
        let mut words = words(line);
        let (at, name) = words.expect("the name of a data object")?;
        let mut data = Parsed {
            name: Name::parse(name).map_err(|error| (at, error))?,
            place: (number, words.last.1),
            linkage: None,
            addresses: None,
            writable: false,
            tls: false,
            used: false,
            pinned: false,
            externally_used: false,
            key: None,
            alignment: None,
            section: None,
            alias: None,
            contents: Contents::Zeros(0),
            pointers: Vec::new(),
            largest_fill: 0,
        };
        loop {
            let (at, word) = match (words.next()?, &data.alias) {
                (Some(word), _) => word,
                (None, Some(_)) => return Ok(data),
                (None, None) => words.expect("'=' and what the data object holds")?,
            };
            match word {
                "=" => break,
                _ if word.starts_with("alias=") => {
                    let target =
                        Name::parse(&word["alias=".len()..]).map_err(|error| (at, error))?;
                    let alias = (target, (number, words.last.1));
                    once(&mut data.alias, "alias", alias).map_err(|error| (at, error))?;
                }
                _ => data.attribute(word).map_err(|error| (at, error))?,
            }
            data.check_alias().map_err(|error| (at, error))?;
        }
        data.items(number, words)?;
        Ok(data)
    }

    /// An alias has its own symbol, and all else of the object for which it is another name.
    fn check_alias(&self) -> Result<()> {
        let of_target = [
            ("addresses", self.addresses.is_some()),
            ("writable", self.writable),
            ("tls", self.tls),
            ("used", self.used),
            ("pinned", self.pinned),
            ("key", self.key.is_some()),
            ("align", self.alignment.is_some()),
            ("section", self.section.is_some()),
        ];
        match of_target.iter().find(|(_, said)| self.alias.is_some() && *said) {
            Some((name, _)) => bail!("an alias has the '{name}' of its target"),
            None => Ok(()),
        }
    }

    /// Takes what `;@ defaults` says of addresses, if the object says nothing itself. Those of an
    /// alias are those of its target.
    pub fn fill_in(&mut self, addresses: Option<Addresses>) {
        if self.alias.is_none() {
            self.addresses = self.addresses.or(addresses);
        }
    }

    /// The attributes, where `addresses` holds if nothing is said of them.
    pub fn attributes(&self, addresses: Addresses) -> DataAttributes {
        let plain = DataAttributes::default();
        DataAttributes {
            linkage: self.linkage.unwrap_or(plain.linkage),
            addresses: self.addresses.unwrap_or(addresses),
            writable: self.writable,
            tls: self.tls,
            pinned: self.pinned || self.used,
            externally_used: self.externally_used,
            key: self.key.unwrap_or(plain.key),
            alignment: self.alignment.map_or(plain.alignment, u64::from),
        }
    }

    fn attribute(&mut self, word: &str) -> Result<()> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        match (name, value) {
            ("linkage", Some(value)) => once(&mut self.linkage, name, parse_linkage(value)?),
            ("addresses", Some(value)) => once(&mut self.addresses, name, parse_addresses(value)?),
            ("key", Some(value)) => once(&mut self.key, name, parse_number(value)?),
            ("align", Some(value)) => once(&mut self.alignment, name, parse_alignment(value)?),
            ("section", Some(value)) if !value.is_empty() => {
                once(&mut self.section, name, value.to_owned())
            }
            ("writable", None) => flag(&mut self.writable, name),
            ("tls", None) => flag(&mut self.tls, name),
            ("used", None) => flag(&mut self.used, name),
            ("pinned", None) => flag(&mut self.pinned, name),
            ("externally-used", None) => flag(&mut self.externally_used, name),
            ("linkage" | "addresses" | "key" | "align" | "section" | "alias", _) => {
                bail!("attribute '{name}' needs a value: '{name}=...'")
            }
            ("writable" | "tls" | "used" | "pinned" | "externally-used", Some(_)) => {
                bail!("attribute '{name}' takes no value")
            }
            _ => bail!(
                "unknown attribute '{name}' of a data object; there are linkage, addresses, \
                 writable, tls, key, align, section, used, pinned, externally-used, and then '=', or \
                 alias=%other"
            ),
        }
    }

    fn items(&mut self, number: usize, mut words: Words<'_>) -> Result<(), Error> {
        if self.alias.is_some() {
            return Err((words.last.0, anyhow!("an alias holds what its target holds")));
        }
        while let Some((at, word)) = words.next()? {
            let here = |error| (at, error);
            match word {
                "u8" | "u16" | "u32" | "u64" => {
                    let bits = word[1..].parse().expect("a number");
                    let mut next = words.expect("a number")?;
                    loop {
                        let (at, digits) = next;
                        let here = |error| (at, error);
                        self.push(&integer(digits, bits).map_err(here)?).map_err(here)?;
                        if !words.is_number() {
                            break;
                        }
                        next = words.expect("a number")?;
                    }
                }
                "zero" => {
                    let (at, count) = words.expect("a number of bytes")?;
                    self.fill(count).map_err(|error| (at, error))?;
                }
                "hex" => {
                    let (at, digits) = words.expect("hexadecimal digits")?;
                    self.push(&hex(digits).map_err(|error| (at, error))?).map_err(here)?;
                }
                _ if word.starts_with('"') => {
                    let bytes = string(word).map_err(|(inside, error)| (at + inside, error))?;
                    self.push(&bytes).map_err(here)?;
                }
                _ if word.starts_with('%') || word.contains(':') => {
                    let (target, addend) = pointer(word).map_err(here)?;
                    let offset = u32::try_from(self.contents.size()).expect("below the limit");
                    self.push(&[0; POINTER_BYTES]).map_err(here)?;
                    let place = (number, words.last.1);
                    self.pointers.push(Pointer { offset, target, addend, place });
                }
                _ => {
                    return Err(here(anyhow!(
                        "'{word}' is not an item of a data object; there are strings, u8, \
                         u16, u32, u64, zero, hex, and names such as %f+8 or u0:1"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Adds bytes.
    fn push(&mut self, more: &[u8]) -> Result<()> {
        self.check_size(more.len() as u64)?;
        if let Contents::Zeros(size) = self.contents {
            check_fill(self.largest_fill)?;
            self.contents = Contents::Bytes(vec![0; usize::try_from(size)?]);
        }
        if let Contents::Bytes(bytes) = &mut self.contents {
            bytes.extend_from_slice(more);
        }
        Ok(())
    }

    /// Adds zeros.
    fn fill(&mut self, count: &str) -> Result<()> {
        let count = parse_number(count)?;
        self.check_size(count)?;
        self.largest_fill = self.largest_fill.max(count);
        match &mut self.contents {
            Contents::Zeros(size) => *size += count,
            Contents::Bytes(bytes) => {
                check_fill(count)?;
                bytes.resize(bytes.len() + usize::try_from(count)?, 0);
            }
        }
        Ok(())
    }

    fn check_size(&self, more: u64) -> Result<()> {
        match self.contents.size().checked_add(more) {
            Some(size) if size <= MAX_SIZE => Ok(()),
            _ => bail!("the data object is larger than {MAX_SIZE} bytes"),
        }
    }
}

fn check_fill(count: u64) -> Result<()> {
    match count <= MAX_FILL {
        true => Ok(()),
        false => bail!(
            "'zero {count}' in a data object that holds more than zeros; at most {MAX_FILL} at once"
        ),
    }
}

impl Name {
    /// Reads `%f` or `u0:1`.
    ///
    /// # Errors
    ///
    /// What is no name, and names of what Cranelift defines itself.
    fn parse(text: &str) -> Result<Name> {
        if let Some(text) = text.strip_prefix('%') {
            // Those that Cranelift's reader takes.
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if text.is_empty() || !text.bytes().all(is_name) {
                bail!("'%{text}' is not a name such as %f: letters, digits and '_' only");
            }
            if LibCall::from_str(text).is_ok() || KnownSymbol::from_str(text).is_ok() {
                bail!("%{text} is the name of a library function of Cranelift");
            }
            return Ok(Name::Text(text.to_owned()));
        }
        let numbers = text.strip_prefix('u').and_then(|text| text.split_once(':'));
        let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => text.parse().ok(),
            false => None,
        };
        match numbers.map(|(namespace, index)| (number(namespace), number(index))) {
            Some((Some(namespace), Some(index))) => {
                Ok(Name::User(UserExternalName::new(namespace, index)))
            }
            _ => bail!("'{text}' is not a name such as %f or u0:1"),
        }
    }
}

/// Reads a name and what is added to its address.
fn pointer(text: &str) -> Result<(Name, i64)> {
    let Some(at) = text.find(['+', '-']) else {
        return Ok((Name::parse(text)?, 0));
    };
    let addend = match text[at + 1..].starts_with(|c: char| c.is_ascii_digit()) {
        true => i128::from(parse_number(&text[at + 1..])?),
        false => bail!("expected a number at the end of '{text}'"),
    };
    let signed = if text.as_bytes()[at] == b'-' { -addend } else { addend };
    match i64::try_from(signed) {
        Ok(addend) => Ok((Name::parse(&text[..at])?, addend)),
        Err(_) => bail!("'{}' does not fit into 64 bits", &text[at..]),
    }
}

/// The bytes of a number of so many bits, the lowest first.
fn integer(text: &str, bits: u32) -> Result<Vec<u8>> {
    let number = parse_number(text)?;
    match bits == u64::BITS || number >> bits == 0 {
        true => Ok(number.to_le_bytes()[..bits as usize / 8].to_vec()),
        false => bail!("'{text}' does not fit into {bits} bits"),
    }
}

/// The bytes of hexadecimal digits.
fn hex(text: &str) -> Result<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    let bytes = text.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => Some((digit(high)? * 16 + digit(low)?) as u8),
        _ => None,
    });
    match bytes.collect() {
        Some(bytes) => Ok(bytes),
        None => bail!("'{text}' is not an even number of hexadecimal digits"),
    }
}

/// The bytes of a string with quotes around it.
fn string(word: &str) -> Result<Vec<u8>, Error> {
    let inside = &word[..word.len() - 1];
    let mut bytes = Vec::new();
    let mut at = 1;
    while at < inside.len() {
        let length = match &inside.as_bytes()[at..] {
            [b'\\', b'n', ..] => push_one(&mut bytes, b'\n', 2),
            [b'\\', b't', ..] => push_one(&mut bytes, b'\t', 2),
            [b'\\', same @ (b'\\' | b'"'), ..] => push_one(&mut bytes, *same, 2),
            [b'\\', ..] => match inside.get(at + 1..at + 3).map(hex) {
                Some(Ok(code)) => push_one(&mut bytes, code[0], 3),
                _ => {
                    let message = "unknown escape; there are \\n, \\t, \\\\, \\\" and two \
                                   hexadecimal digits as in \\00";
                    return Err((at, anyhow!(message)));
                }
            },
            [byte, ..] => push_one(&mut bytes, *byte, 1),
            [] => unreachable!("not at the end"),
        };
        at += length;
    }
    Ok(bytes)
}

/// Adds one byte, and returns how many bytes of text it took.
fn push_one(bytes: &mut Vec<u8>, byte: u8, length: usize) -> usize {
    bytes.push(byte);
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use cranelift_mergefunc::Linkage;

    fn parse(text: &str) -> Result<Parsed, String> {
        let mut lines = (1..).zip(text.lines());
        let (number, line) = lines.next().expect("a line");
        let place = |number| move |(column, text)| format!("{number}:{column}: {text}");
        let mut data = Parsed::first_line(number, line).map_err(place(number))?;
        for (number, line) in lines {
            data.add_line(number, line).map_err(place(number))?;
        }
        Ok(data)
    }

    fn bytes(text: &str) -> Vec<u8> {
        match parse(&format!(";@ data %x = {text}")).expect(text).contents {
            Contents::Bytes(bytes) => bytes,
            Contents::Zeros(size) => panic!("{text} is {size} zeros"),
        }
    }

    #[test]
    fn items_are_bytes() {
        assert_eq!(bytes("u8 255 0x10"), [255, 16]);
        assert_eq!(bytes("u16 0x0102 u32 7"), [2, 1, 7, 0, 0, 0]);
        assert_eq!(bytes("u64 18446744073709551615"), [0xff; 8]);
        assert_eq!(bytes("zero 2 hex 00fF"), [0, 0, 0, 255]);
        assert_eq!(bytes(r#""a\"\\\n\t\00\fF é" "" "b""#), b"a\"\\\n\t\0\xff \xc3\xa9b");
        assert_eq!(bytes(r#""; = zero" zero 1"#), b"; = zero\0");
        assert_eq!(bytes("zero 1\n;@ + u8 1\n  ;@ +\n;@+ u8 2"), [0, 1, 2]);
        assert_eq!(bytes("zero 16777216 zero 16777216 u8 1").len(), (1 << 25) + 1);
    }

    #[test]
    fn zeros_alone_take_no_room() {
        for (text, size) in
            [("", 0), ("zero 0", 0), ("zero 3 zero 4", 7), ("zero 2147483647", 2147483647)]
        {
            let data = parse(&format!(";@ data %x = {text}")).unwrap();
            assert_eq!(data.contents, Contents::Zeros(size), "{text}");
        }
        assert_eq!(bytes("\"\" zero 3"), [0; 3]);
        assert!(bytes("\"\"").is_empty());
    }

    #[test]
    fn attributes_and_pointers() {
        let data = parse(
            ";@ data u0:3 linkage=local addresses=insignificant writable tls key=0x10 align=8 \
             section=__DATA,__x used externally-used = %f zero 4 %g+8 u1:2-0x10\n;@ + %h-9223372036854775808",
        )
        .unwrap();
        assert_eq!(data.name, Name::User(UserExternalName::new(0, 3)));
        assert_eq!((data.linkage, data.key), (Some(Linkage::Local), Some(16)));
        assert_eq!((data.addresses, data.alignment), (Some(Addresses::Insignificant), Some(8)));
        assert!(data.writable && data.tls && data.used && data.externally_used && !data.pinned);
        assert_eq!(data.section.as_deref(), Some("__DATA,__x"));
        let pointers = data.pointers.iter().map(|p| (p.offset, p.addend, p.place));
        assert_eq!(
            pointers.collect::<Vec<_>>(),
            [(0, 0, (1, 124)), (12, 8, (1, 134)), (20, -16, (1, 139)), (28, i64::MIN, (2, 6)),],
        );
        assert_eq!(data.contents.size(), 36);
    }

    #[test]
    fn an_alias_holds_nothing() {
        let data = parse(";@ data %x linkage=hidden alias=u1:2 externally-used").unwrap();
        assert_eq!((data.linkage, data.externally_used), (Some(Linkage::Hidden), true));
        assert_eq!(data.alias, Some((Name::User(UserExternalName::new(1, 2)), (1, 27))));
        assert_eq!((data.contents.size(), data.pointers.len()), (0, 0));
    }

    #[test]
    fn mistakes_are_errors_with_columns() {
        for (text, expected) in [
            ("", "1:9: expected the name of a data object"),
            ("x =", "1:9: 'x' is not a name such as %f or u0:1"),
            ("% =", "1:9: '%' is not a name such as %f: letters"),
            ("%a-b =", "1:9: '%a-b' is not a name such as %f: letters"),
            ("u0:4294967296 =", "1:9: 'u0:4294967296' is not a name"),
            ("%Memcpy =", "1:9: %Memcpy is the name of a library function"),
            ("%x", "1:11: expected '=' and what the data object holds"),
            ("%x u8 1", "1:12: unknown attribute 'u8' of a data object; there are linkage,"),
            ("%x linkage=public =", "1:12: unknown linkage 'public'"),
            ("%x linkage =", "1:12: attribute 'linkage' needs a value: 'linkage=...'"),
            ("%x section= =", "1:12: attribute 'section' needs a value"),
            ("%x tls=1 =", "1:12: attribute 'tls' takes no value"),
            ("%x used used =", "1:17: 'used' is repeated"),
            ("%x align=3 =", "1:12: alignment '3' is not a power of two from 1 to 65536"),
            ("%x align=131072 =", "1:12: alignment '131072'"),
            ("%x \"a\" =", "1:12: unknown attribute '\"a\"'"),
            ("%x = u8 256", "1:17: '256' does not fit into 8 bits"),
            ("%x = u32 1 4294967296", "1:20: '4294967296' does not fit into 32 bits"),
            ("%x = u64 18446744073709551616", "1:18: '18446744073709551616' is not a number"),
            ("%x = u8", "1:16: expected a number"),
            ("%x = u8 -1", "1:17: '-1' is not a number from 0 to 2^64 - 1"),
            ("%x = 1", "1:14: '1' is not an item of a data object; there are strings, u8,"),
            ("%x = zero x", "1:19: 'x' is not a number"),
            ("%x = zero 2147483648", "1:19: the data object is larger than 2147483647 bytes"),
            ("%x = zero 2147483647 u8 1", "1:33: the data object is larger than"),
            ("%x = zero 16777217 u8 1", "1:31: 'zero 16777217' in a data object that holds more"),
            ("%x = u8 1 zero 16777217", "1:24: 'zero 16777217' in a data object"),
            ("%x = hex", "1:17: expected hexadecimal digits"),
            ("%x = hex 123", "1:18: '123' is not an even number of hexadecimal digits"),
            ("%x = hex 0x12", "1:18: '0x12' is not an even number of hexadecimal digits"),
            ("%x = \"a", "1:14: a string without end"),
            ("%x = \"a\\\"", "1:14: a string without end"),
            ("%x = \"é\\q\"", "1:16: unknown escape; there are \\n,"),
            ("%x = \"\\0\"", "1:15: unknown escape"),
            ("%x = \"é\"u8 1", "1:17: expected a space behind the string"),
            ("%x = +8", "1:14: '+8' is not an item of a data object"),
            ("%x = %+8", "1:14: '%' is not a name such as %f: letters"),
            ("%x = %f+", "1:14: expected a number at the end of '%f+'"),
            ("%x = %f++8", "1:14: expected a number at the end of '%f++8'"),
            ("%x = %f+8+8", "1:14: '8+8' is not a number"),
            ("%x = %f+9223372036854775808", "1:14: '+9223372036854775808' does not fit into 64"),
            ("%x = u0:", "1:14: 'u0:' is not a name such as %f or u0:1"),
            ("%x = %CeilF32", "1:14: %CeilF32 is the name of a library function"),
            ("%x = u8 1\n;@ + u8 x", "2:9: 'x' is not a number"),
            ("%x alias=%y =", "1:21: an alias holds what its target holds"),
            ("%x alias=%y u8 1", "1:21: unknown attribute 'u8'"),
            ("%x alias=%y\n;@ + u8 1", "2:4: an alias holds what its target holds"),
            ("%x alias=", "1:12: '' is not a name such as %f or u0:1"),
            ("%x alias", "1:12: attribute 'alias' needs a value"),
            ("%x alias=%y alias=%z", "1:21: 'alias' is repeated"),
            ("%x align=8 alias=%y", "1:20: an alias has the 'align' of its target"),
            ("%x alias=%y tls", "1:21: an alias has the 'tls' of its target"),
        ] {
            let error = parse(&format!(";@ data {text}")).expect_err(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn any_line_is_an_object_or_an_error() {
        let words = [
            "=",
            "%f",
            "u0:1",
            "u8",
            "0x1",
            "zero",
            "hex",
            "ab",
            "\"a\\00\"",
            "\"",
            "\\",
            "+8",
            "linkage=local",
            "align=8",
            "tls",
            "é",
            " ",
            " ",
            " ",
            "%f+8",
            "-",
            "99999999999",
        ];
        arbtest::arbtest(|u| {
            let mut line = ";@ data ".to_owned();
            for _ in 0..u.int_in_range(0..=12)? {
                line += u.choose(&words)?;
            }
            // Nothing is asked of what is read, but that it is read.
            let _ = parse(&line);
            Ok(())
        });
    }
}
