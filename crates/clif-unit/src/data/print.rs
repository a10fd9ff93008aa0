//! The directive `;@ data`: from data objects to text, one way for each.

use super::parse::MAX_FILL;
use super::{GivenData, POINTER_BYTES};
use crate::directives::PREFIX;
use cranelift_codegen::ir::UserExternalName;
use cranelift_mergefunc::cranelift_codegen;
use cranelift_mergefunc::data::{Contents, DataAttributes};

/// Columns of a line.
const WIDTH: usize = 100;
/// Columns of a string: the characters that fit behind `;@ +`.
const STRING_WIDTH: usize = 94;
/// Bytes written as digits in one item.
const DIGITS: usize = 32;
/// Fewer zeros are written like other bytes.
const ZEROS: usize = 8;
/// Fewer letters are written like other bytes.
const LETTERS: usize = 4;

/// The text of a data object, with a line end. There is one for each object.
pub fn print(data: &GivenData, display: &dyn Fn(&UserExternalName) -> String) -> String {
    let mut line = format!("{PREFIX} data {}", display(&data.symbol));
    for word in attributes(data) {
        line += " ";
        line += &word;
    }
    if let Some(target) = &data.alias {
        return line + &format!(" alias={}\n", display(target));
    }
    line += " =";
    let more = format!("{PREFIX} +");
    let mut text = String::new();
    for item in items(data, display) {
        if line.len() + 1 + item.len() > WIDTH && line != more {
            text += &line;
            text.push('\n');
            line.clone_from(&more);
        }
        line += " ";
        line += &item;
    }
    text + &line + "\n"
}

/// The attributes that differ from the defaults of the tool, which
/// [`crate::directives::defaults_line`] says.
fn attributes(data: &GivenData) -> Vec<String> {
    let plain = DataAttributes::default();
    let attributes = match data.alias {
        None => data.attributes,
        // The rest is that of its target.
        Some(_) => {
            let DataAttributes { linkage, externally_used, .. } = data.attributes;
            DataAttributes { linkage, externally_used, ..plain }
        }
    };
    let DataAttributes {
        linkage,
        addresses,
        writable,
        tls,
        pinned,
        externally_used,
        key,
        alignment,
    } = attributes;
    let words = [
        (linkage != plain.linkage).then(|| format!("linkage={}", linkage.name())),
        (addresses != plain.addresses).then(|| format!("addresses={}", addresses.name())),
        writable.then(|| "writable".to_owned()),
        tls.then(|| "tls".to_owned()),
        (key != plain.key).then(|| format!("key={key}")),
        (alignment != plain.alignment).then(|| format!("align={alignment}")),
        data.object.section.as_ref().map(|section| format!("section={section}")),
        data.used.then(|| "used".to_owned()),
        (pinned && !data.used).then(|| "pinned".to_owned()),
        externally_used.then(|| "externally-used".to_owned()),
    ];
    words.into_iter().flatten().collect()
}

fn items(data: &GivenData, display: &dyn Fn(&UserExternalName) -> String) -> Vec<String> {
    let mut items = Vec::new();
    let bytes = match &data.object.contents {
        Contents::Zeros(0) => return items,
        Contents::Zeros(size) => return vec![format!("zero {size}")],
        Contents::Bytes(bytes) => bytes,
    };
    let mut at = 0;
    for reloc in &data.object.relocations {
        let offset = reloc.offset as usize;
        push_bytes(&mut items, &bytes[at..offset]);
        let addend = match reloc.addend {
            0 => String::new(),
            addend => format!("{addend:+}"),
        };
        items.push(format!("{}{addend}", display(&reloc.target)));
        at = offset + POINTER_BYTES;
    }
    push_bytes(&mut items, &bytes[at..]);
    // Without this, it would be an object of zeros alone.
    if items.iter().all(|item| item.starts_with("zero")) {
        items.insert(0, "\"\"".to_owned());
    }
    items
}

/// Writes bytes as zeros, strings and digits, whatever suits each part.
fn push_bytes(items: &mut Vec<String>, bytes: &[u8]) {
    let mut at = 0;
    // Where what is to be written as digits begins.
    let mut start = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let zeros = rest.iter().take_while(|&&byte| byte == 0).take(MAX_FILL as usize).count();
        let letters = rest.iter().take_while(|&&byte| is_letter(byte)).take(LETTERS).count();
        if zeros >= ZEROS {
            push_digits(items, &bytes[start..at]);
            items.push(format!("zero {zeros}"));
            at += zeros;
            start = at;
        } else if letters >= LETTERS || (letters + 1 == LETTERS && rest.get(letters) == Some(&0)) {
            push_digits(items, &bytes[start..at]);
            at += push_string(items, rest);
            start = at;
        } else {
            at += zeros.max(letters).max(1);
        }
    }
    push_digits(items, &bytes[start..]);
}

fn is_letter(byte: u8) -> bool {
    byte == b' ' || byte.is_ascii_graphic() || byte == b'\n' || byte == b'\t'
}

/// Writes letters as one string, and the zero that ends them. Returns how many bytes it took.
fn push_string(items: &mut Vec<String>, bytes: &[u8]) -> usize {
    let mut text = "\"".to_owned();
    let mut length = 0;
    for &byte in bytes {
        match byte {
            b'\n' => text += "\\n",
            b'\t' => text += "\\t",
            b'\\' | b'"' => text.extend(['\\', byte as char]),
            0 => text += "\\00",
            _ => text.push(byte as char),
        }
        length += 1;
        let zeros = bytes[length..].iter().take_while(|&&byte| byte == 0).take(ZEROS).count();
        let goes_on =
            bytes.get(length).is_some_and(|&next| is_letter(next)) || (1..ZEROS).contains(&zeros);
        if byte == 0 || !goes_on || text.len() + 4 > STRING_WIDTH {
            break;
        }
    }
    text.push('"');
    items.push(text);
    length
}

fn push_digits(items: &mut Vec<String>, bytes: &[u8]) {
    for bytes in bytes.chunks(DIGITS) {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        items.push(format!("hex {digits}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::parse::{MAX_SIZE, Name, Parsed};
    use crate::error::Place;
    use arbitrary::Unstructured;
    use cranelift_mergefunc::data::{DataObject, DataReloc};
    use cranelift_mergefunc::{Addresses, Linkage};

    fn display(symbol: &UserExternalName) -> String {
        match symbol.namespace {
            7 => format!("%name_{}", symbol.index),
            _ => symbol.to_string(),
        }
    }

    /// The object that a text names, under the symbols that `display` writes.
    fn read_back(text: &str) -> GivenData {
        let symbol = |name: &Name| match name {
            Name::Text(text) => UserExternalName::new(7, text["name_".len()..].parse().unwrap()),
            Name::User(symbol) => symbol.clone(),
        };
        let mut lines = text.lines();
        let mut data = Parsed::first_line(1, lines.next().expect("a line")).expect(text);
        for line in lines {
            data.add_line(2, line).expect(text);
        }
        let pointers = data.pointers.iter().map(|pointer| DataReloc {
            offset: pointer.offset,
            target: symbol(&pointer.target),
            addend: pointer.addend,
        });
        let relocations = pointers.collect();
        GivenData {
            symbol: symbol(&data.name),
            attributes: data.attributes(Addresses::Significant),
            used: data.used(),
            alias: data.said.alias.as_ref().map(symbol),
            object: DataObject { relocations, contents: data.contents, section: data.said.section },
            place: Place::default(),
        }
    }

    fn some_symbol(u: &mut Unstructured<'_>) -> arbitrary::Result<UserExternalName> {
        Ok(UserExternalName::new(u.int_in_range(6..=7)?, u.arbitrary()?))
    }

    fn some_data(u: &mut Unstructured<'_>) -> arbitrary::Result<GivenData> {
        let mut bytes = Vec::new();
        let mut relocations = Vec::new();
        for _ in 0..u.int_in_range(0..=8)? {
            match u.int_in_range(0..=4)? {
                0 => bytes.resize(bytes.len() + u.int_in_range(0..=40)?, 0),
                1 => {
                    for _ in 0..u.int_in_range(0..=120)? {
                        bytes.push(*u.choose(b"ab \\\"\n\t~=;")?);
                    }
                }
                2 => {
                    let offset = bytes.len() as u32;
                    let addend = *u.choose(&[0, 1, -1, i64::MIN, i64::MAX])?;
                    relocations.push(DataReloc { offset, target: some_symbol(u)?, addend });
                    bytes.extend([0; POINTER_BYTES]);
                }
                _ => bytes.extend(u.arbitrary::<[u8; 9]>()?),
            }
        }
        let contents = match u.ratio(1, 4)? {
            true => {
                relocations.clear();
                Contents::Zeros(u.int_in_range(0..=MAX_SIZE)?)
            }
            false => Contents::Bytes(bytes),
        };
        let section = match u.arbitrary()? {
            true => Some(".data=x,\"y".to_owned()),
            false => None,
        };
        let used = u.arbitrary()?;
        Ok(GivenData {
            symbol: some_symbol(u)?,
            attributes: DataAttributes {
                linkage: *u.choose(&Linkage::ALL)?,
                addresses: *u.choose(&Addresses::ALL)?,
                writable: u.arbitrary()?,
                tls: u.arbitrary()?,
                pinned: used || u.arbitrary()?,
                externally_used: u.arbitrary()?,
                key: *u.choose(&[0, 1, u64::MAX])?,
                alignment: 1 << u.int_in_range(0..=16)?,
            },
            used,
            object: DataObject { contents, relocations, section },
            alias: None,
            place: Place::default(),
        })
    }

    #[test]
    fn what_is_printed_is_read_back() {
        crate::random::check(|u| {
            let data = some_data(u)?;
            let text = print(&data, &display);
            assert_eq!(read_back(&text), data, "{text}");
            let longest = text.lines().map(str::len).max().unwrap();
            assert!(longest <= 180, "{text}");
            Ok(())
        });
    }

    #[test]
    fn the_canonical_text() {
        for (given, canonical) in [
            (
                "%name_1 = \"abc\\00\" u32 7 zero 4 u6:1 %name_2+8 u64 0xff hex 0102ff",
                "%name_1 = \"abc\\00\" hex 0700000000000000 u6:1 %name_2+8 hex ff000000000000000102ff",
            ),
            (
                "%name_1 pinned used align=8 writable linkage=local = u64 0",
                "%name_1 linkage=local writable align=8 used = \"\" zero 8",
            ),
            ("%name_1 linkage=export align=1 = zero 3 zero 5", "%name_1 = zero 8"),
            ("%name_1 =", "%name_1 ="),
            (
                "%name_1 externally-used alias=u6:2 linkage=local",
                "%name_1 linkage=local externally-used alias=u6:2",
            ),
            (
                "%name_1 = hex 610a u8 1 \"ab\\00\" \"abcd\" u64 0",
                "%name_1 = hex 610a01616200 \"abcd\" zero 8",
            ),
        ] {
            let printed = print(&read_back(&format!(";@ data {given}")), &display);
            assert_eq!(printed, format!(";@ data {canonical}\n"));
        }
        let long = format!(";@ data %name_1 = \"{}\"", "0123456789".repeat(20));
        let printed = print(&read_back(&long), &display);
        assert!(printed.lines().all(|line| line.len() <= WIDTH), "{printed}");
        assert_eq!(printed.matches("\n;@ + \"").count(), 3, "{printed}");
    }
}
