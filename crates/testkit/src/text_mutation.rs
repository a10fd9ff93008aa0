//! Texts of units, changed a little.
//!
//! Random bytes never get beyond the first line of a reader. So a correct text is taken, and lines,
//! words, numbers, names and directives of it are deleted, repeated, exchanged and replaced.
//! Nothing here knows what a text means.

use arbitrary::{Result, Unstructured};

/// Directive lines; `%` is replaced by a name of the text.
const DIRECTIVES: [&str; 28] = [
    ";@ defaults linkage=local addresses=insignificant",
    ";@ defaults linkage=preemptible data-addresses=insignificant",
    ";@ linkage=local",
    ";@ linkage=preemptible addresses=insignificant",
    ";@ linkage=hidden",
    ";@ addresses=insignificant",
    ";@ address-taken externally-called",
    ";@ key=0xffff",
    ";@ align=64",
    ";@ pinned",
    ";@ no-merge",
    ";@ thunk=%",
    ";@ alias=%",
    ";@",
    ";@ data % =",
    ";@ data %copy linkage=local addresses=insignificant = % %+8 u8 1 2 3",
    ";@ data %copy alias=%",
    ";@ data %big = zero 70000 u8 1 zero 300 %",
    ";@ data %zeros writable = zero 2147483647",
    ";@ data %tls tls = \"a\\00\\n\\\\\"",
    ";@ data %used used externally-used pinned section=.x align=65536 key=1 = hex 00ff",
    ";@ + u64 0xffffffffffffffff %-1",
    ";@ + zero 99999999999999999999",
    "test run",
    "target x86_64 has_avx",
    "set opt_level=speed",
    "; run: %(1, 2) == 3",
    "; keep: representative",
];

/// The replacements of a number.
const NUMBERS: [&str; 20] = [
    "0",
    "1",
    "-1",
    "2",
    "7",
    "8",
    "127",
    "255",
    "256",
    "65535",
    "65536",
    "1048575",
    "16777215",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "0x1_0000_0000_0000_0000",
];

/// The replacements of a word, besides words of the text.
const WORDS: [&str; 48] = [
    "function",
    "{",
    "}",
    "(",
    ")",
    "->",
    ":",
    "=",
    ",",
    ";",
    "%",
    "u0:0",
    "u1:4294967295",
    "v0",
    "block0",
    "block1",
    "ss0",
    "gv0",
    "sig0",
    "fn0",
    "const0",
    "region0",
    "userextname0",
    "gv3",
    "fn2",
    "sig4",
    "ss1",
    "const2",
    "dt1",
    "u0:0-8",
    "i8",
    "i64",
    "i128",
    "f64",
    "i8x16",
    "cold",
    "tail",
    "system_v",
    "colocated",
    "patchable",
    "symbol",
    "tls",
    "notrap",
    "%memcpy",
    "return",
    "trap user1",
    "\"\\00\"",
    "sret",
];

/// Changes a text in a few places.
///
/// # Errors
///
/// If `u` has too few bytes to draw from.
pub fn mutated(text: &str, u: &mut Unstructured<'_>) -> Result<String> {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    for _ in 0..u.int_in_range(1..=4)? {
        mutate(&mut lines, u)?;
    }
    Ok(lines.concat())
}

fn mutate(lines: &mut Vec<String>, u: &mut Unstructured<'_>) -> Result<()> {
    if lines.is_empty() {
        lines.push(String::from(*u.choose(&DIRECTIVES)?) + "\n");
        return Ok(());
    }
    let at = u.choose_index(lines.len())?;
    let other = u.choose_index(lines.len())?;
    match u.int_in_range(0..=11)? {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[other].clone()),
        2 => lines.swap(at, other),
        3 => {
            // A part of the text once more, such as a whole function.
            let end = (other + u.int_in_range(1..=16)?).min(lines.len());
            let part: Vec<String> = lines[other..end].to_vec();
            lines.splice(at..at, part);
        }
        4 => {
            let end = (at + u.int_in_range(1..=16)?).min(lines.len());
            lines.drain(at..end);
        }
        5..=6 => {
            let directive = u.choose(&DIRECTIVES)?;
            let names = names(lines);
            let mut line = String::new();
            for (number, part) in directive.split('%').enumerate() {
                let named = part.starts_with(|first: char| first.is_ascii_alphabetic());
                match (number, named || names.is_empty()) {
                    (0, _) => {}
                    (_, true) => line.push('%'),
                    (_, false) => line += u.choose(&names)?,
                }
                line += part;
            }
            lines.insert(at, line + "\n");
        }
        7 => {
            // Anything anywhere, in characters.
            let (place, _) = char_at(&lines[at], u)?;
            let character = *u.choose(&['\0', '"', '\\', '%', ';', '\u{e4}', '\u{1f600}', '\r'])?;
            lines[at].insert(place, character);
        }
        8 => {
            let (place, _) = char_at(&lines[at], u)?;
            lines[at].truncate(place);
        }
        _ => words(lines, at, other, u)?,
    }
    Ok(())
}

/// Where a character of a line begins and ends.
fn char_at(line: &str, u: &mut Unstructured<'_>) -> Result<(usize, usize)> {
    let places: Vec<(usize, char)> = line.char_indices().collect();
    if places.is_empty() {
        return Ok((0, 0));
    }
    let (at, character) = *u.choose(&places)?;
    Ok((at, at + character.len_utf8()))
}

/// The names that a text has, such as `%f` and `u0:1`.
fn names(lines: &[String]) -> Vec<&str> {
    let all = lines.iter().flat_map(|line| tokens(line)).filter_map(|(start, end, line)| {
        let token = &line[start..end];
        (token.starts_with('%') && token.len() > 1).then_some(token)
    });
    all.take(256).collect()
}

/// The words of a line, with where they begin and end; what separates words is a word, too.
fn tokens(line: &str) -> Vec<(usize, usize, &str)> {
    let mut tokens = Vec::new();
    let mut start = 0;
    let is_word = |c: char| c.is_ascii_alphanumeric() || ['_', '%', '.', '-', '@'].contains(&c);
    for (at, character) in line.char_indices() {
        let next = line[at + character.len_utf8()..].chars().next();
        let goes_on = is_word(character) && next.is_some_and(is_word);
        if !goes_on {
            let end = at + character.len_utf8();
            if !character.is_whitespace() {
                tokens.push((start, end, line));
            }
            start = end;
        }
    }
    tokens
}

/// Changes a word of a line.
fn words(lines: &mut [String], at: usize, other: usize, u: &mut Unstructured<'_>) -> Result<()> {
    let found: Vec<(usize, usize)> =
        tokens(&lines[at]).into_iter().map(|(start, end, _)| (start, end)).collect();
    if found.is_empty() {
        return Ok(());
    }
    let (start, end) = *u.choose(&found)?;
    let word = lines[at][start..end].to_owned();
    let new = match u.int_in_range(0..=7)? {
        0 => String::new(),
        1 => format!("{word} {word}"),
        2 => u.choose(&WORDS)?.to_string(),
        3 => {
            let others = tokens(&lines[other]);
            match others.is_empty() {
                true => word,
                false => {
                    let (start, end, line) = *u.choose(&others)?;
                    line[start..end].to_owned()
                }
            }
        }
        4 => {
            let names = names(lines);
            match names.is_empty() {
                true => word,
                false => u.choose(&names)?.to_string(),
            }
        }
        // The number at the end of the word, as in `v7`, or the whole word.
        _ => {
            let stem = word.trim_end_matches(|c: char| c.is_ascii_digit());
            let number = word[stem.len()..].parse::<u64>();
            let near = number.ok().filter(|_| u.arbitrary().unwrap_or(true));
            match near {
                Some(number) => format!("{stem}{}", number.wrapping_add(1) % 16),
                None => format!("{stem}{}", u.choose(&NUMBERS)?),
            }
        }
    };
    lines[at].replace_range(start..end, &new);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{mutated, tokens};
    use crate::support::Rng;
    use arbitrary::Unstructured;

    #[test]
    fn words_are_found() {
        let words = |line| -> Vec<&str> {
            tokens(line).into_iter().map(|(start, end, line)| &line[start..end]).collect()
        };
        assert_eq!(
            words("  v1 = iadd.i64 v0, %f+8\n"),
            ["v1", "=", "iadd.i64", "v0", ",", "%f", "+", "8"]
        );
    }

    #[test]
    fn any_text_can_be_changed() {
        for (seed, text) in
            ["", "\n", "\u{e4} \u{1f600}", "a b 1\n;@ x\n"].iter().cycle().enumerate().take(4000)
        {
            let bytes = Rng::new(seed as u64).bytes(64);
            let _ = mutated(text, &mut Unstructured::new(&bytes));
        }
    }
}
