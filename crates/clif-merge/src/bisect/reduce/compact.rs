//! Text without what is not used: the entities at the head of a function that nothing names, and
//! gaps in numbers.
//!
//! Cranelift has no way to remove an entity from a function. In text they are lines, so this works
//! on text. It knows no more of CLIF than what its words look like; what it makes is read again.

use clif_unit::unit::is_function_line;
use std::collections::{HashMap, HashSet};

/// Entities that are declared at the head of a function, each in a line of its own. There are no
/// gaps in their numbers.
const DECLARED: &[&str] = &["ss", "gv", "sig", "fn", "const", "region"];
/// Entities that are not declared.
const UNDECLARED: &[&str] = &["block", "v"];

/// The text of a unit without declarations of what is not used.
pub fn compact(text: &str) -> String {
    edit(text, |function, out| {
        drop_unused(function);
        renumber(function, DECLARED, out);
    })
}

/// The text of a unit with its blocks and values numbered in the order of the text. Bugs can depend
/// on these numbers.
pub fn number(text: &str) -> String {
    edit(text, |function, out| renumber(function, UNDECLARED, out))
}

/// Edits the lines of each function.
fn edit(text: &str, edit: impl Fn(&mut Vec<&str>, &mut String)) -> String {
    let mut out = String::with_capacity(text.len());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if !is_function_line(line) {
            out += line;
            out.push('\n');
            continue;
        }
        let mut function = vec![line];
        while !matches!(function.last(), Some(&"}")) {
            let Some(line) = lines.next() else { break };
            function.push(line);
        }
        edit(&mut function, &mut out);
    }
    out
}

/// Drops declarations of entities that no other line names, until there is none.
fn drop_unused(function: &mut Vec<&str>) {
    loop {
        let mut uses: HashMap<&str, usize> = HashMap::new();
        for line in &*function {
            // A line that names an entity twice names it once.
            let words: HashSet<&str> =
                pieces(line).filter(|piece| kind_of(piece).is_some()).collect();
            for word in words {
                *uses.entry(word).or_default() += 1;
            }
        }
        let before = function.len();
        let body = function.iter().position(|line| line.trim_start().starts_with("block"));
        let body = body.unwrap_or(before);
        let mut at = 0;
        function.retain(|line| {
            at += 1;
            let declared = line.trim_start().split_once(" = ").map(|(name, _)| name);
            let is_entity =
                |name: &&str| kind_of(name).is_some_and(|kind| DECLARED.contains(&kind));
            let declared = declared.filter(is_entity);
            at > body || declared.is_none_or(|name| uses.get(name).is_none_or(|&count| count > 1))
        });
        if function.len() == before {
            return;
        }
    }
}

/// Writes a function with its entities of some kinds numbered in the order in which they appear.
fn renumber(function: &[&str], kinds: &[&str], out: &mut String) {
    let mut numbers: HashMap<&str, HashMap<&str, usize>> = HashMap::new();
    for line in function {
        for piece in pieces(line) {
            match kind_of(piece).filter(|kind| kinds.contains(kind)) {
                Some(kind) => {
                    let known = numbers.entry(kind).or_default();
                    let next = known.len();
                    let number = *known.entry(piece).or_insert(next);
                    out.push_str(&format!("{kind}{number}"));
                }
                None => out.push_str(piece),
            }
        }
        out.push('\n');
    }
}

/// The kind before the number of an entity; nothing if the piece is none.
fn kind_of(piece: &str) -> Option<&str> {
    let (kind, number) = piece.split_at(piece.find(|c: char| c.is_ascii_digit())?);
    let plain = number.bytes().all(|byte| byte.is_ascii_digit());
    (plain && (DECLARED.contains(&kind) || UNDECLARED.contains(&kind))).then_some(kind)
}

/// A line in pieces: words, and what is between them. A name such as `%fn0` is one piece, and none
/// of an entity.
fn pieces(line: &str) -> impl Iterator<Item = &str> {
    let is_word =
        |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '%' || c == '.' || c == '#';
    let mut rest = line;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = rest.find(|c| is_word(c) != is_word(first)).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::{compact, number};

    #[test]
    fn what_is_unused_goes_and_the_rest_is_numbered() {
        let text = "\
;@ data %fn7 = u8 1
;@ hot
function %fn3(i32) -> i32 fast {
    gv0 = symbol colocated %v9
    sig0 = () fast
    sig1 = (i32) -> i32 fast
    fn0 = %gone sig0
    fn4 = %fn3 sig1

block0(v3: i32):
    v7 = call fn4(v3)
    jump block5(v7)

block5(v1: i32):
    return v1
}
";
        let expected = "\
;@ data %fn7 = u8 1
;@ hot
function %fn3(i32) -> i32 fast {
    sig0 = (i32) -> i32 fast
    fn0 = %fn3 sig0

block0(v0: i32):
    v1 = call fn0(v0)
    jump block1(v1)

block1(v2: i32):
    return v2
}
";
        assert_eq!(number(&compact(text)), expected);
        assert_eq!(compact(&number(text)), expected);
        assert_eq!(number(&compact(expected)), expected);
        assert!(compact(text).contains("v7 = call fn0(v3)"));
    }
}
