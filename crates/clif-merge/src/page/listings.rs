//! Listings that a page holds: compressed, as text, within a budget.
//!
//! The listings of one set are one stream, because members of a set resemble each other. A stream
//! is raw DEFLATE, which browsers decompress by themselves, in Base64. Which functions are in a
//! set, and which sets come first, is for the caller to say.

use crate::jobs::{Jobs, Tools};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use std::io::Write as _;

/// The texts of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// Its CLIF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clif: Option<String>,
    /// Its native code before merging.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Its native code after merging, or what is there instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Functions whose listings are embedded.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Stream {
    /// The functions, by their indices in the table of decisions.
    pub functions: Vec<usize>,
    /// A JSON array of their listings, compressed.
    pub stream: String,
}

/// How many listings of one set are embedded. Members beyond are equal to these, but for what they
/// differ in.
const MAX_MEMBERS: usize = 64;

/// How many sets are compressed at a time.
const CHUNK: usize = 64;

/// The streams of the first sets, up to the budget in bytes of text. A function
/// that is in several is embedded with the first.
pub fn embed(
    sets: Vec<Vec<usize>>,
    budget: usize,
    jobs: &Jobs,
    listing: &(dyn Fn(usize) -> Listing + Sync),
) -> Vec<Stream> {
    let mut streams: Vec<Stream> = Vec::new();
    let mut left = budget;
    let mut is_taken = vec![false; sets.iter().flatten().max().map_or(0, |&most| most + 1)];
    let mut sets = sets.into_iter().peekable();
    // No stream is shorter than this.
    const LEAST: usize = 64;
    while sets.peek().is_some() && left >= LEAST {
        let mut chunk = Vec::new();
        for set in sets.by_ref() {
            let new = set.into_iter().filter(|&at| !std::mem::replace(&mut is_taken[at], true));
            let new: Vec<usize> = new.take(MAX_MEMBERS).collect();
            if !new.is_empty() {
                chunk.push(new);
            }
            if chunk.len() == CHUNK {
                break;
            }
        }
        let compressed = jobs.map(chunk, Vec::len, &Tools::new(&|| ()), |(), functions| {
            let listings: Vec<Listing> = functions.iter().map(|&at| listing(at)).collect();
            let stream = stream_of(&listings);
            Stream { functions, stream }
        });
        for stream in compressed {
            if stream.stream.len() <= left {
                left -= stream.stream.len();
                streams.push(stream);
            }
        }
    }
    streams
}

/// Listings as one text.
fn stream_of(listings: &[Listing]) -> String {
    let json = serde_json::to_vec(listings).expect("strings become JSON");
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(&json).expect("memory can be written to");
    STANDARD.encode(encoder.finish().expect("memory can be written to"))
}

#[cfg(test)]
mod tests {
    use super::{Listing, Stream, embed};
    use crate::jobs::Jobs;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use std::io::Read as _;

    fn listing(at: usize) -> Listing {
        Listing { clif: Some(format!("function %f{at}() {{}}")), ..Listing::default() }
    }

    fn read(stream: &Stream) -> Vec<serde_json::Value> {
        let bytes = STANDARD.decode(&stream.stream).expect("Base64");
        let mut text = String::new();
        let mut decoder = flate2::read::DeflateDecoder::new(&bytes[..]);
        decoder.read_to_string(&mut text).expect("DEFLATE");
        serde_json::from_str(&text).expect("JSON")
    }

    #[test]
    fn listings_are_read_back() {
        let streams = embed(vec![vec![2, 0], vec![0, 1], vec![1]], 1 << 20, &Jobs::ONE, &listing);
        let functions: Vec<_> = streams.iter().map(|stream| stream.functions.clone()).collect();
        assert_eq!(functions, [vec![2, 0], vec![1]]);
        assert_eq!(read(&streams[0])[1]["clif"], "function %f0() {}");
    }

    #[test]
    fn the_budget_is_kept() {
        let sets: Vec<Vec<usize>> = (0..1000).map(|at| vec![at]).collect();
        for budget in [0, 100, 5000] {
            let streams = embed(sets.clone(), budget, &Jobs::ONE, &listing);
            let bytes: usize = streams.iter().map(|stream| stream.stream.len()).sum();
            assert!(bytes <= budget && (budget == 0 || bytes * 2 > budget), "{bytes} of {budget}");
            assert!(streams.iter().enumerate().all(|(at, stream)| stream.functions == [at]));
        }
    }
}
