//! Numbers to text and back.

use crate::random::{Rng, Sample, mix};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::str::FromStr;

fn through<T: Sample + core::fmt::Display + FromStr>(text: &mut String, rng: &mut Rng) -> u64 {
    text.clear();
    for _ in 0..8 {
        let _ = write!(text, "{},", T::sample(rng));
    }
    let mut sum = text.len() as u64;
    for part in text.split(',') {
        if let Ok(value) = part.parse::<T>() {
            sum = mix(sum, value.digest());
        }
    }
    sum
}

fn padded(text: &mut String, rng: &mut Rng) -> u64 {
    text.clear();
    let (a, b, c) = (rng.next() as u32, rng.next() as i16, rng.next());
    let _ = write!(text, "{a:>12} {b:+06} {c:#x} {a:o} {:<8}|{:^9}|", a % 77, "mid");
    text.digest()
}

/// Words of a text, the ways that iterators offer.
fn words(text: &str) -> u64 {
    let mut words: Vec<&str> = text.split_whitespace().filter(|word| word.len() > 2).collect();
    words.dedup();
    let letters = words.iter().flat_map(|word| word.chars()).filter(|c| c.is_alphanumeric());
    let upper: String = letters.map(|c| c.to_ascii_uppercase()).collect();
    upper.digest() ^ words.len() as u64
}

pub fn run(n: u32) -> u64 {
    let mut text = String::new();
    let mut rng = Rng::new(7);
    let mut sum = 0;
    for _ in 0..n {
        sum = mix(sum, through::<u8>(&mut text, &mut rng));
        sum = mix(sum, through::<u16>(&mut text, &mut rng));
        sum = mix(sum, through::<u32>(&mut text, &mut rng));
        sum = mix(sum, through::<i32>(&mut text, &mut rng));
        sum = mix(sum, through::<u64>(&mut text, &mut rng));
        sum = mix(sum, through::<i64>(&mut text, &mut rng));
        sum = mix(sum, padded(&mut text, &mut rng));
        sum = mix(sum, words(&text));
    }
    sum
}
