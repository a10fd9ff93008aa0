//! A reader and a writer of JSON (integers only), and generic ways to walk what was read.

use crate::random::{Rng, mix};
use alloc::string::String;
use alloc::vec::Vec;

enum Value {
    Null,
    Bool(bool),
    Number(i64),
    Text(String),
    List(Vec<Value>),
    Object(Vec<(String, Value)>),
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&mut self) -> Option<u8> {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\n')) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn word<T>(&mut self, word: &[u8], value: T) -> Option<T> {
        self.bytes[self.at..].starts_with(word).then(|| {
            self.at += word.len();
            value
        })
    }

    /// The items between two brackets, with commas.
    fn several<T>(
        &mut self,
        [open, close]: [u8; 2],
        one: impl Fn(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.expect(open)?;
        let mut all = Vec::new();
        if self.peek()? != close {
            loop {
                all.push(one(self)?);
                if self.expect(b',').is_none() {
                    break;
                }
            }
        }
        self.expect(close)?;
        Some(all)
    }

    fn text(&mut self) -> Option<String> {
        self.expect(b'"')?;
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|&byte| byte == b'"')?;
        self.at += length + 1;
        Some(rest[..length].iter().map(|&byte| char::from(byte)).collect())
    }

    fn number(&mut self) -> Option<i64> {
        let negative = self.expect(b'-').is_some();
        let mut number = 0i64;
        while let Some(digit @ b'0'..=b'9') = self.bytes.get(self.at) {
            number = number.wrapping_mul(10).wrapping_add(i64::from(digit - b'0'));
            self.at += 1;
        }
        Some(if negative { -number } else { number })
    }

    fn value(&mut self) -> Option<Value> {
        match self.peek()? {
            b'n' => self.word(b"null", Value::Null),
            b't' => self.word(b"true", Value::Bool(true)),
            b'f' => self.word(b"false", Value::Bool(false)),
            b'"' => self.text().map(Value::Text),
            b'[' => self.several(*b"[]", Self::value).map(Value::List),
            b'{' => self.several(*b"{}", Self::member).map(Value::Object),
            _ => self.number().map(Value::Number),
        }
    }

    fn member(&mut self) -> Option<(String, Value)> {
        let name = self.text()?;
        self.expect(b':')?;
        Some((name, self.value()?))
    }
}

fn write_number(out: &mut String, number: i64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push('-');
    }
    out.extend(digits[at..].iter().map(|&digit| char::from(digit)));
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    out.push_str(text);
    out.push('"');
}

fn write_all<T>(
    out: &mut String,
    [open, close]: [char; 2],
    all: &[T],
    one: impl Fn(&mut String, &T),
) {
    out.push(open);
    for (at, item) in all.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        one(out, item);
    }
    out.push(close);
}

fn write(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, *number),
        Value::Text(text) => write_text(out, text),
        Value::List(list) => write_all(out, ['[', ']'], list, write),
        Value::Object(members) => write_all(out, ['{', '}'], members, |out, (name, value)| {
            write_text(out, name);
            out.push(':');
            write(out, value);
        }),
    }
}

/// Combines something of every value of a tree.
fn fold<A: Copy>(value: &Value, start: A, one: &impl Fn(A, &Value) -> A) -> A {
    let state = one(start, value);
    match value {
        Value::List(list) => list.iter().fold(state, |state, item| fold(item, state, one)),
        Value::Object(members) => members.iter().fold(state, |state, (_, v)| fold(v, state, one)),
        _ => state,
    }
}

fn random(rng: &mut Rng, depth: u32) -> Value {
    match rng.below(if depth == 0 { 4 } else { 8 }) {
        0 => Value::Null,
        1 => Value::Bool(rng.below(2) == 0),
        2 => Value::Number((rng.next() as i64) >> rng.below(60)),
        3 => Value::Text(crate::random::Sample::sample(rng)),
        4 | 5 => Value::List((0..rng.below(7)).map(|_| random(rng, depth - 1)).collect()),
        _ => Value::Object(
            (0..rng.below(7))
                .map(|_| (crate::random::Sample::sample(rng), random(rng, depth - 1)))
                .collect(),
        ),
    }
}

pub fn run(n: u32) -> u64 {
    let mut rng = Rng::new(3);
    let value = Value::List((0..50).map(|_| random(&mut rng, 4)).collect());
    let mut text = String::new();
    write(&mut text, &value);
    let mut sum = 0;
    for _ in 0..n {
        let mut reader = Reader { bytes: text.as_bytes(), at: 0 };
        let Some(value) = reader.value() else {
            return 0;
        };
        let numbers = fold(&value, 0u64, &|sum, value| match value {
            Value::Number(number) => mix(sum, *number as u64),
            Value::Bool(truth) => sum + u64::from(*truth),
            _ => sum,
        });
        let longest = fold(&value, 0u32, &|longest, value| match value {
            Value::Text(text) => longest.max(text.len() as u32),
            Value::List(list) => longest.max(list.len() as u32),
            _ => longest,
        });
        let texts = fold(&value, (0u32, 0u64), &|(count, length), value| match value {
            Value::Text(text) => (count + 1, length + text.len() as u64),
            _ => (count, length),
        });
        let mut again = String::new();
        write(&mut again, &value);
        let same = u64::from(again == text);
        sum = mix(sum, numbers ^ u64::from(longest) ^ u64::from(texts.0) ^ texts.1 ^ same);
    }
    sum
}
