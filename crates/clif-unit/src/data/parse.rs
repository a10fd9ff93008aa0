//! The directive `;@ data`: from text to data objects.
//!
//! ```text
//! ;@ data %table linkage=local align=8 = "abc\00" u32 7 zero 4 %f %g+8
//! ;@ + u64 0xff hex 0102ff
//!
//! first = ";@" "data" name { attribute } ( "=" { item } | "" )      without '=', it is an alias
//! more  = ";@" "+" { item }
//! item  = string | ( "u8" | "u16" | "u32" | "u64" ) number { number }
//!       | "zero" number | "hex" digits | name [ ( "+" | "-" ) number ]
//! ```
//!
//! An object of `zero` items alone is all zeros and takes no room in a file. `alias=%other` instead
//! of `=` makes the name another one for an object. This module does not resolve symbols; [`super`]
//! does.

use super::POINTER_BYTES;
use crate::words::{
    Columns, DATA, Input, Mistake, PREFIX, Said, Wrong, blank, exactly, expect, parse_number, read,
    word,
};
pub use crate::words::{Name, Place};
use anyhow::{Result, bail};
use cranelift_mergefunc::Addresses;
use cranelift_mergefunc::data::{Contents, DataAttributes};
use std::borrow::Cow;
use winnow::combinator::{alt, delimited, eof, opt, peek, preceded, repeat, terminated};
use winnow::token::{any, none_of, take, take_while};
use winnow::{Parser, Result as Parse};

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
    /// Its attributes, where the text gives them.
    pub said: Said,
    /// Where the text makes it another name for an object. It holds nothing then.
    alias_place: Option<Place>,
    /// Its bytes.
    pub contents: Contents,
    /// Its pointers.
    pub pointers: Vec<Pointer>,
    /// The most zeros that one word asks for.
    largest_fill: u64,
}

/// A pointer as the text gives it.
#[derive(Clone, Debug)]
pub struct Pointer {
    /// Bytes from the beginning of the object.
    pub offset: u32,
    /// Its target.
    pub target: Name,
    /// Bytes that are added to the address.
    pub addend: i64,
    /// Where the text has it.
    pub place: Place,
}

impl Parsed {
    /// Reads the first line of a data object, which has this number.
    ///
    /// # Errors
    ///
    /// The first mistake.
    pub fn first_line(number: usize, line: &str) -> Result<Parsed, Wrong> {
        let mut columns = Columns::new(number, line);
        read(line, |input: &mut Input<'_>| {
            (PREFIX, blank, exactly(DATA.first)).parse_next(input)?;
            let place = columns.here(input);
            let name = expect("expected the name of a data object", word);
            let mut data = Parsed {
                name: name.try_map(Name::parse).parse_next(input)?,
                place,
                said: Said::default(),
                alias_place: None,
                contents: Contents::Zeros(0),
                pointers: Vec::new(),
                largest_fill: 0,
            };
            while peek(opt(exactly("="))).parse_next(input)?.is_none() {
                if data.said.alias.is_some() && input.is_empty() {
                    return Ok(data);
                }
                let place = columns.here(input);
                expect("expected '=' and what the data object holds", word)
                    .try_map(|word| data.attribute(word))
                    .parse_next(input)?;
                if data.said.names.last() == Some(&"alias") {
                    data.alias_place = Some(place);
                }
            }
            data.items(&mut columns, input)?;
            Ok(data)
        })
    }

    /// Adds what a line says that goes on.
    ///
    /// # Errors
    ///
    /// The first mistake.
    pub fn add_line(&mut self, number: usize, line: &str) -> Result<(), Wrong> {
        let mut columns = Columns::new(number, line);
        read(line, |input: &mut Input<'_>| {
            (PREFIX, blank).parse_next(input)?;
            self.items(&mut columns, input)
        })
    }

    /// An alias has its own symbol, and all else of the object for which it is another name.
    fn attribute(&mut self, word: &str) -> Result<()> {
        self.said.add(&DATA, word)?;
        let own = |name: &&str| !["linkage", "externally-used", "alias"].contains(name);
        match self.said.names.iter().find(|name| own(name)) {
            Some(name) if self.said.alias.is_some() => {
                bail!("an alias has the '{name}' of its target")
            }
            _ => Ok(()),
        }
    }

    /// Takes what `;@ defaults` says of addresses, if the object says nothing itself. Those of an
    /// alias are those of its target.
    pub fn fill_in(&mut self, addresses: Option<Addresses>) {
        if self.said.alias.is_none() {
            self.said.addresses = self.said.addresses.or(addresses);
        }
    }

    /// The object for which it is another name, and where the text says so.
    pub fn alias(&self) -> Option<(&Name, Place)> {
        self.said.alias.as_ref().zip(self.alias_place)
    }

    /// Whether it says that the linker must keep it.
    pub fn used(&self) -> bool {
        self.said.has("used")
    }

    /// The attributes, where `addresses` holds if nothing is said of them.
    pub fn attributes(&self, addresses: Addresses) -> DataAttributes {
        let plain = DataAttributes::default();
        let said = &self.said;
        DataAttributes {
            linkage: said.linkage.unwrap_or(plain.linkage),
            addresses: said.addresses.unwrap_or(addresses),
            writable: said.has("writable"),
            tls: said.has("tls"),
            pinned: said.has("pinned") || said.has("used"),
            externally_used: said.has("externally-used"),
            key: said.key.unwrap_or(plain.key),
            alignment: said.alignment.map_or(plain.alignment, u64::from),
        }
    }

    /// The word `=` or `+`, and the items behind it.
    fn items(&mut self, columns: &mut Columns<'_>, input: &mut Input<'_>) -> Parse<(), Mistake> {
        let begins = |_| match self.said.alias {
            Some(_) => bail!("an alias holds what its target holds"),
            None => Ok(()),
        };
        word.try_map(begins).parse_next(input)?;
        while !input.is_empty() {
            let item = peek(word).parse_next(input)?;
            match item {
                "u8" | "u16" | "u32" | "u64" => {
                    let bits = item[1..].parse().expect("a number");
                    word.parse_next(input)?;
                    loop {
                        expect("expected a number", word)
                            .try_map(|digits| self.push(&integer(digits, bits)?))
                            .parse_next(input)?;
                        if !input.starts_with(|first: char| first.is_ascii_digit()) {
                            break;
                        }
                    }
                }
                "zero" => {
                    word.parse_next(input)?;
                    let count = expect("expected a number of bytes", word);
                    count.try_map(|count| self.fill(parse_number(count)?)).parse_next(input)?;
                }
                "hex" => {
                    word.parse_next(input)?;
                    let digits = expect("expected hexadecimal digits", word);
                    digits.try_map(|digits| self.push(&hex(digits)?)).parse_next(input)?;
                }
                _ if item.starts_with('"') => {
                    string.try_map(|bytes| self.push(&bytes)).parse_next(input)?;
                }
                _ => {
                    let place = columns.here(input);
                    word.try_map(|word| self.pointer(place, word)).parse_next(input)?;
                }
            }
        }
        Ok(())
    }

    /// Adds the address that a word stands for.
    fn pointer(&mut self, place: Place, text: &str) -> Result<()> {
        if !text.starts_with('%') && !text.contains(':') {
            bail!(
                "'{text}' is not an item of a data object; there are strings, u8, u16, u32, u64, \
                 zero, hex, and names such as %f+8 or u0:1"
            );
        }
        let (name, addend) = text.split_at(text.find(['+', '-']).unwrap_or(text.len()));
        let distance = match addend.get(1..) {
            None => 0,
            Some(digits) if digits.starts_with(|first: char| first.is_ascii_digit()) => {
                i128::from(parse_number(digits)?)
            }
            Some(_) => bail!("expected a number at the end of '{text}'"),
        };
        let signed = if addend.starts_with('-') { -distance } else { distance };
        let Ok(signed) = i64::try_from(signed) else {
            bail!("'{addend}' does not fit into 64 bits")
        };
        let offset = u32::try_from(self.contents.size()).expect("below the limit");
        let target = Name::parse(name)?;
        self.push(&[0; POINTER_BYTES])?;
        self.pointers.push(Pointer { offset, target, addend: signed, place });
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
    fn fill(&mut self, count: u64) -> Result<()> {
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

/// The bytes of a number of this width in bits, the lowest first.
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

/// The bytes of a string in quotes, and the space behind it.
fn string(input: &mut Input<'_>) -> Parse<Vec<u8>, Mistake> {
    let letter = alt((none_of(['"', '\\']).void(), ('\\', any).void()));
    let whole = ('"', repeat::<_, _, (), _, _>(0.., letter), '"');
    expect("a string without end", peek(whole)).parse_next(input)?;
    let plain =
        take_while(1.., |c| c != '"' && c != '\\').map(|text: &str| Cow::Borrowed(text.as_bytes()));
    let code = take(2usize).verify_map(|digits| hex(digits).ok());
    let special = alt(('n'.value(b'\n'), 't'.value(b'\t'), '\\'.value(b'\\'), '"'.value(b'"')));
    let escape = expect(
        "unknown escape; there are \\n, \\t, \\\\, \\\" and two hexadecimal digits as in \\00",
        preceded('\\', alt((special.map(|byte| vec![byte]), code))),
    );
    let escape = preceded(peek('\\'), escape.map(Cow::Owned));
    let add = |mut bytes: Vec<u8>, more: Cow<'_, [u8]>| {
        bytes.extend_from_slice(&more);
        bytes
    };
    let inside = repeat(0.., alt((plain, escape))).fold(Vec::new, add);
    let space = expect(
        "expected a space behind the string",
        alt((eof, take_while(1.., char::is_whitespace))),
    );
    terminated(delimited('"', inside, '"'), space).parse_next(input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cranelift_codegen::ir::UserExternalName;
    use cranelift_mergefunc::{Linkage, cranelift_codegen};

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
        let attributes = DataAttributes {
            linkage: Linkage::Local,
            addresses: Addresses::Insignificant,
            writable: true,
            tls: true,
            pinned: true,
            externally_used: true,
            key: 16,
            alignment: 8,
        };
        assert_eq!(data.attributes(Addresses::Significant), attributes);
        assert!(data.used() && !data.said.has("pinned"));
        assert_eq!(data.said.section.as_deref(), Some("__DATA,__x"));
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
        let DataAttributes { linkage, externally_used, .. } =
            data.attributes(Addresses::Significant);
        assert_eq!((linkage, externally_used), (Linkage::Hidden, true));
        assert_eq!(data.alias(), Some((&Name::User(UserExternalName::new(1, 2)), (1, 27))));
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
            ("%x u8 1", "1:12: unknown attribute 'u8' of a data object; there are linkage=,"),
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
            ("%x alias=", "1:12: attribute 'alias' needs a value: 'alias=...'"),
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
        let words = "= %f u0:1 u8 0x1 zero hex ab \"a\\00\" \" \\ +8 linkage=local align=8 tls é %f+8 - 99999999999";
        let words: Vec<&str> = words.split(' ').chain([" "; 3]).collect();
        crate::random::check(|u| {
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
