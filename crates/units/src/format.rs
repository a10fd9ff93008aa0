//! The common part of the files of summaries and of sharing maps: numbers, blocks with checksums,
//! reading at an offset.
//!
//! Numbers are little-endian where their width is fixed, else LEB128 varints; signed ones are
//! zigzag-coded first. Tables are sequences of *blocks*, each of which is read and verified alone:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | length of the payload |
//! | 4 | number of entries |
//! | 8 | XXH3-64 of the eight bytes before and the payload |
//! | … | the payload: entries |
//!
//! A block ends with the first entry that takes its payload to [`BLOCK`] bytes or more.
//!
//! Whatever is read may be damaged or made up. Nothing here panics because of it, and no more is
//! allocated than a constant times the bytes that are there. Checksums find damage; they do *not*
//! stop someone who wants to deceive.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Why a file cannot be read.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// It is something else. This kind of file was expected.
    Magic(&'static str),
    /// It is of another version of the format.
    Version {
        /// The version of the file.
        found: u32,
        /// The only version that is read.
        expected: u32,
    },
    /// It is cut off, or was changed: the part that is not as it was written.
    Damaged(&'static str),
    /// It has more of this than numbers can count.
    TooLarge(&'static str),
    /// Reading or writing failed; the message of the system.
    Io(String),
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatError::Magic(expected) => write!(f, "not a {expected}"),
            FormatError::Version { found, expected } => {
                write!(f, "of version {found} of the format; only version {expected} is read")
            }
            FormatError::Damaged(part) => write!(f, "damaged or cut off: {part}"),
            FormatError::TooLarge(what) => write!(f, "too large: more than 2^32 {what}"),
            FormatError::Io(message) => write!(f, "cannot be read or written: {message}"),
        }
    }
}

impl core::error::Error for FormatError {}

#[cfg(feature = "std")]
impl From<std::io::Error> for FormatError {
    fn from(error: std::io::Error) -> Self {
        FormatError::Io(alloc::string::ToString::to_string(&error))
    }
}

/// Where a file is written, piece by piece.
///
/// See the [example](crate#example).
pub type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), FormatError> + 'a;

/// Something that can be read at any offset: bytes in memory, a file.
///
/// See the [example](crate#example).
pub trait ReadAt: Send + Sync {
    /// How many bytes there are.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `into` with the bytes from an offset on. It is an error if there are fewer.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), FormatError>;
}

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), FormatError> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.get(offset..));
        let from = from.and_then(|from| from.get(..into.len()));
        into.copy_from_slice(from.ok_or(FormatError::Damaged("the end of the file"))?);
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        ReadAt::len(self.as_slice())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), FormatError> {
        self.as_slice().read_at(offset, into)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), FormatError> {
        (**self).read_at(offset, into)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for Box<T> {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), FormatError> {
        (**self).read_at(offset, into)
    }
}

/// A file, which must not change while it is read.
///
/// See the [example](crate#example).
#[cfg(feature = "std")]
#[derive(Debug)]
pub struct FileAt {
    #[cfg(unix)]
    file: std::fs::File,
    #[cfg(not(unix))]
    file: std::sync::Mutex<std::fs::File>,
    len: u64,
}

#[cfg(feature = "std")]
impl FileAt {
    /// Opens a file.
    pub fn open(path: impl AsRef<std::path::Path>) -> std::io::Result<FileAt> {
        FileAt::new(std::fs::File::open(path)?)
    }

    /// Reads an open file, which must be seekable.
    pub fn new(file: std::fs::File) -> std::io::Result<FileAt> {
        let len = file.metadata()?.len();
        #[cfg(not(unix))]
        let file = std::sync::Mutex::new(file);
        Ok(FileAt { file, len })
    }
}

#[cfg(feature = "std")]
impl ReadAt for FileAt {
    fn len(&self) -> u64 {
        self.len
    }

    #[cfg(unix)]
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), FormatError> {
        Ok(std::os::unix::fs::FileExt::read_exact_at(&self.file, into, offset)?)
    }

    #[cfg(not(unix))]
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), FormatError> {
        use std::io::{Read, Seek, SeekFrom};
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.seek(SeekFrom::Start(offset))?;
        Ok(file.read_exact(into)?)
    }
}

/// Reads a part of a file. Nothing is allocated if it is not there.
pub(super) fn read(
    source: &dyn ReadAt,
    offset: u64,
    len: u64,
    part: &'static str,
) -> Result<Vec<u8>, FormatError> {
    let mut bytes = Vec::new();
    read_into(source, offset, len, part, &mut bytes)?;
    Ok(bytes)
}

/// Reads a part of a file into a buffer that is used again.
pub(super) fn read_into(
    source: &dyn ReadAt,
    offset: u64,
    len: u64,
    part: &'static str,
    into: &mut Vec<u8>,
) -> Result<(), FormatError> {
    let is_there = offset.checked_add(len).is_some_and(|end| end <= source.len());
    let len = usize::try_from(len).ok().filter(|_| is_there).ok_or(FormatError::Damaged(part))?;
    into.clear();
    into.resize(len, 0);
    source.read_at(offset, into)
}

pub(super) fn put_varint(out: &mut Vec<u8>, number: u64) {
    put_long_varint(out, u128::from(number));
}

pub(super) fn put_long_varint(out: &mut Vec<u8>, mut number: u128) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(super) fn put_zigzag(out: &mut Vec<u8>, number: i64) {
    put_varint(out, ((number << 1) ^ (number >> 63)) as u64);
}

/// Reads numbers from bytes. A missing or ill-formed number is an error that names the part of the
/// file.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a> {
    rest: &'a [u8],
    part: &'static str,
}

impl<'a> Bytes<'a> {
    pub fn new(rest: &'a [u8], part: &'static str) -> Self {
        Bytes { rest, part }
    }

    pub fn damaged(&self) -> FormatError {
        FormatError::Damaged(self.part)
    }

    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(self.damaged())?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(self.damaged())?;
        self.rest = rest;
        Ok(*taken)
    }

    pub fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A varint of any type of numbers. Only the shortest form of a number is one.
    pub fn varint<T: TryFrom<u128>>(&mut self) -> Result<T, FormatError> {
        let mut number = 0;
        for shift in (0..128).step_by(7) {
            let byte = self.u8()?;
            let bits = u128::from(byte & 0x7f);
            if (bits << shift) >> shift != bits || (byte == 0 && shift > 0) {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return T::try_from(number).map_err(|_| self.damaged());
            }
        }
        Err(self.damaged())
    }

    pub fn zigzag<T: TryFrom<i64>>(&mut self) -> Result<T, FormatError> {
        let number: u64 = self.varint()?;
        let number = (number >> 1) as i64 ^ -((number & 1) as i64);
        T::try_from(number).map_err(|_| self.damaged())
    }

    /// How many things follow of which each takes a byte or more.
    pub fn count(&mut self) -> Result<usize, FormatError> {
        let count = self.varint()?;
        if count <= self.remaining() { Ok(count) } else { Err(self.damaged()) }
    }

    /// Nothing must be left.
    pub fn end(self) -> Result<(), FormatError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.damaged()) }
    }
}

/// The first bytes of both kinds of files: 8 bytes that say what it is, 4 of the version, 32 of the
/// settings.
pub(super) const HEADER: usize = 44;

/// The kind of a file.
pub(super) struct Kind {
    pub magic: [u8; 8],
    pub version: u32,
    pub name: &'static str,
}

impl Kind {
    pub fn header(&self, settings: &[u8; 32]) -> Vec<u8> {
        [self.magic.as_slice(), &self.version.to_le_bytes(), settings].concat()
    }

    /// Reads the header and the last `N` bytes, which end with a checksum of both. Returns the
    /// settings and the others of the last bytes.
    pub fn read<const N: usize>(
        &self,
        source: &dyn ReadAt,
    ) -> Result<([u8; 32], [u8; N]), FormatError> {
        let wrong = FormatError::Magic(self.name);
        let mut magic = [0; 8];
        if source.len() < 8 {
            return Err(wrong);
        }
        source.read_at(0, &mut magic)?;
        if magic != self.magic {
            return Err(wrong);
        }
        let mut header = [0; HEADER];
        let part = "the header";
        let start = read(source, 8, 4, part)?;
        let found = Bytes::new(&start, part).u32()?;
        if found != self.version {
            return Err(FormatError::Version { found, expected: self.version });
        }
        let at_end = source.len().checked_sub(N as u64).filter(|&at| at >= HEADER as u64);
        let at_end = at_end.ok_or(FormatError::Damaged("the end of the file"))?;
        source.read_at(0, &mut header)?;
        let mut end = [0; N];
        source.read_at(at_end, &mut end)?;
        let (last, check) = end.split_last_chunk().ok_or(FormatError::Damaged(part))?;
        if checksum(&[&header, last]).to_le_bytes() != *check {
            return Err(FormatError::Damaged("the header or the end of the file"));
        }
        let settings = Bytes::new(&header[12..], part).array()?;
        Ok((settings, end))
    }

    /// The last bytes of a file.
    pub fn end(&self, settings: &[u8; 32], mut last: Vec<u8>) -> Vec<u8> {
        let check = checksum(&[&self.header(settings), &last]);
        last.extend(check.to_le_bytes());
        last
    }
}

/// XXH3-64 of all pieces, one after the other.
pub(super) fn checksum(pieces: &[&[u8]]) -> u64 {
    match pieces {
        [piece] => xxh3_64(piece),
        pieces => {
            let mut hasher = Xxh3::new();
            pieces.iter().for_each(|piece| hasher.update(piece));
            hasher.digest()
        }
    }
}

/// The number of bytes at which a block ends.
pub(super) const BLOCK: usize = 4096;

/// The bytes of a block before its payload.
const BLOCK_HEADER: u64 = 16;

/// Collects entries to a block.
#[derive(Default)]
pub(super) struct BlockWriter {
    pub payload: Vec<u8>,
    entries: u32,
}

impl BlockWriter {
    /// Whether no entry was written to this block.
    pub fn is_new(&self) -> bool {
        self.entries == 0
    }

    /// After each entry, which the caller appended to the payload: the finished block, if it is
    /// full.
    pub fn entry(&mut self) -> Option<Vec<u8>> {
        self.entries += 1;
        if self.payload.len() < BLOCK { None } else { self.finish() }
    }

    /// The last block, if there is one.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        if self.is_new() {
            return None;
        }
        let len = u32::try_from(self.payload.len()).expect("entries of less than 4 GB");
        let head = [len.to_le_bytes(), self.entries.to_le_bytes()].concat();
        let check = checksum(&[&head, &self.payload]).to_le_bytes();
        let block = [&head, check.as_slice(), &self.payload].concat();
        self.payload.clear();
        self.entries = 0;
        Some(block)
    }
}

/// A part of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Section {
    pub at: u64,
    pub len: u64,
    /// How many entries it has.
    pub entries: u64,
    pub name: &'static str,
}

/// Reads the blocks of a table, one after the other. Holds one of them.
pub(super) struct Blocks<'a> {
    source: &'a dyn ReadAt,
    /// The rest, still to be read.
    rest: Section,
    payload: Vec<u8>,
    /// How much of the payload was read.
    read: usize,
    /// How many entries of this block were not.
    entries: u32,
}

impl<'a> Blocks<'a> {
    pub fn new(source: &'a dyn ReadAt, section: Section) -> Self {
        Blocks { source, rest: section, payload: Vec::new(), read: 0, entries: 0 }
    }

    /// Reads the next block, and says whether there was one.
    fn next_block(&mut self) -> Result<bool, FormatError> {
        let part = self.rest.name;
        let damaged = FormatError::Damaged(part);
        if self.rest.len == 0 {
            return if self.rest.entries == 0 { Ok(false) } else { Err(damaged) };
        }
        let after_head = self.rest.len.checked_sub(BLOCK_HEADER).ok_or(damaged.clone())?;
        let mut head = [0; BLOCK_HEADER as usize];
        self.source.read_at(self.rest.at, &mut head)?;
        let mut bytes = Bytes::new(&head, part);
        let (len, entries, check) = (bytes.u32()?, bytes.u32()?, bytes.u64()?);
        let left = self.rest.entries.checked_sub(u64::from(entries));
        let rest = after_head.checked_sub(u64::from(len)).zip(left);
        let (rest_len, rest_entries) =
            rest.filter(|_| entries > 0 && entries <= len).ok_or(damaged.clone())?;
        let at = self.rest.at + BLOCK_HEADER;
        read_into(self.source, at, u64::from(len), part, &mut self.payload)?;
        if checksum(&[&head[..8], &self.payload]) != check {
            return Err(damaged);
        }
        self.rest.at = at + u64::from(len);
        (self.rest.len, self.rest.entries) = (rest_len, rest_entries);
        (self.read, self.entries) = (0, entries);
        Ok(true)
    }

    /// The next entry, which a function parses that gets to know whether it is the first one of its
    /// block. `None` at the end.
    pub fn entry<T>(
        &mut self,
        parse: impl FnOnce(&mut Bytes<'_>, bool) -> Result<T, FormatError>,
    ) -> Result<Option<T>, FormatError> {
        let mut is_first = false;
        if self.entries == 0 {
            if self.read < self.payload.len() {
                return Err(FormatError::Damaged(self.rest.name));
            }
            if !self.next_block()? {
                return Ok(None);
            }
            is_first = true;
        }
        let mut bytes = Bytes::new(&self.payload[self.read..], self.rest.name);
        let entry = parse(&mut bytes, is_first)?;
        self.read = self.payload.len() - bytes.remaining();
        self.entries -= 1;
        Ok(Some(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        let mut out = Vec::new();
        let long = (0..128).map(|bit| 1u128 << bit).chain([0, u128::MAX, 127, 128]);
        let long: Vec<u128> = long.flat_map(|n| [n, n.wrapping_sub(1)]).collect();
        let signed: Vec<i64> = (0..64).flat_map(|bit| [1i64 << bit, -(1i64 << bit >> 1)]).collect();
        long.iter().for_each(|&number| put_long_varint(&mut out, number));
        signed.iter().for_each(|&number| put_zigzag(&mut out, number));
        let mut bytes = Bytes::new(&out, "numbers");
        long.iter().for_each(|&number| assert_eq!(bytes.varint::<u128>(), Ok(number)));
        signed.iter().for_each(|&number| assert_eq!(bytes.zigzag::<i64>(), Ok(number)));
        assert_eq!(bytes.end(), Ok(()));
    }

    #[test]
    fn numbers_have_one_form() {
        let of = |bytes: &[u8]| Bytes::new(bytes, "numbers").varint::<u32>();
        assert_eq!(of(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok(u32::MAX));
        let wrong: [&[u8]; 6] =
            [&[], &[0x80], &[0x80, 0], &[0xff, 0xff, 0xff, 0xff, 0x1f], &[0x80; 40], &[0xff; 40]];
        wrong.iter().for_each(|bytes| assert_eq!(of(bytes), Err(FormatError::Damaged("numbers"))));
        let largest = [[0xff; 18].as_slice(), &[0x03]].concat();
        assert_eq!(Bytes::new(&largest, "").varint(), Ok(u128::MAX));
        let beyond = [[0xff; 18].as_slice(), &[0x07]].concat();
        assert!(Bytes::new(&beyond, "").varint::<u128>().is_err());
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let bytes = alloc::vec![1u8, 2, 3];
        let mut two = [0; 2];
        assert_eq!(bytes.read_at(1, &mut two), Ok(()));
        assert_eq!(two, [2, 3]);
        assert!(bytes.read_at(2, &mut two).is_err());
        assert!(bytes.read_at(u64::MAX, &mut two).is_err());
        assert!(read(&bytes, 1, u64::MAX, "").is_err());
        assert!(read(&bytes, u64::MAX, 2, "").is_err());
        assert!(read(&bytes, 0, 1 << 60, "").is_err());
        assert_eq!(read(&bytes, 3, 0, ""), Ok(Vec::new()));
    }
}
