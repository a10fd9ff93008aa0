//! Sharing maps as files: which functions of all units share bodies, by shape.
//!
//! | bytes | what |
//! |---|---|
//! | 44 | header: `CLIFSHAR`, version (4), digest of target and settings (32) |
//! | … | records |
//! | 32 each | index: shape (16), where its record begins after the header (8), length of the record (4), the lower half of XXH3-64 of these (4). Ascending by shape |
//! | 24 | the bytes of all records (8), the number of shapes (8), XXH3-64 of the header and these (8) |
//!
//! A record is XXH3-64 (8) of the shape and the rest of it, then the number of sets, then for each:
//! its fixed hash (8), number of members, saved bytes (signed), number of parameters, and for each
//! parameter the number of its columns, the first one, and for each other the columns between the
//! one before and it. Numbers are varints unless their width is given.
//!
//! Opening a map reads its two ends. Looking a shape up takes O(log n) reads at n shapes, and
//! verifies all that is read; nothing is kept. Damage elsewhere is not found. This module does
//! *not* know what a map decides.

use crate::format::{
    Bytes, FormatError, HEADER, Kind, ReadAt, Sink, checksum, put_varint, put_zigzag, read,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;

const KIND: Kind = Kind { magic: *b"CLIFSHAR", version: 1, name: "sharing map" };

/// The bytes of an entry of the index.
const ENTRY: usize = 32;

/// The bytes after the index.
const END: usize = 24;

/// The number of entries from which on all are read at once.
const AT_ONCE: u64 = 64;

/// Functions of one shape that share a body: those that agree in all columns that are in no
/// parameter.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedSet {
    /// The columns of each parameter, ascending. A member has the same in all of them.
    pub parameters: Vec<Vec<u32>>,
    /// A hash of what all members have in the other columns.
    pub fixed: u64,
    /// How many functions are in it, for reports. 0 in the map for one unit.
    pub members: u32,
    /// How many bytes it saves, for reports. 0 in the map for one unit.
    pub saved: i64,
}

/// An open sharing map.
///
/// Damage that is found when it is opened, or when a shape is looked up, is an error.
///
/// See the [example](crate#example).
pub struct SharingMap<'a> {
    source: Box<dyn ReadAt + 'a>,
    settings: [u8; 32],
    /// The bytes of all records.
    records: u64,
    shapes: u64,
}

impl fmt::Debug for SharingMap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharingMap").field("shapes", &self.shapes).finish_non_exhaustive()
    }
}

/// Where a record is.
struct Entry {
    shape: [u8; 16],
    at: u64,
    len: u32,
}

impl<'a> SharingMap<'a> {
    /// Opens a map: reads its two ends.
    pub fn open(source: impl ReadAt + 'a) -> Result<SharingMap<'a>, FormatError> {
        let (settings, end) = KIND.read::<END>(&source)?;
        let part = "the end of the map";
        let mut end = Bytes::new(&end, part);
        let (records, shapes) = (end.u64()?, end.u64()?);
        let index = shapes.checked_mul(ENTRY as u64);
        let len = index.and_then(|index| index.checked_add(records));
        let len = len.and_then(|len| len.checked_add((HEADER + END) as u64));
        if len != Some(source.len()) {
            return Err(FormatError::Damaged(part));
        }
        Ok(SharingMap { source: Box::new(source), settings, records, shapes })
    }

    /// The digest of target, settings and versions of the summaries that were combined.
    pub fn settings(&self) -> &[u8; 32] {
        &self.settings
    }

    /// How many shapes have sets.
    pub fn len(&self) -> u64 {
        self.shapes
    }

    /// Whether nothing shares a body.
    pub fn is_empty(&self) -> bool {
        self.shapes == 0
    }

    /// The sets of a shape, in the order in which they were decided; none if the map does not have
    /// it. O(log n) reads.
    pub fn sets(&self, shape: &[u8; 16]) -> Result<Vec<SharedSet>, FormatError> {
        let (mut from, mut to) = (0, self.shapes);
        while to - from > AT_ONCE {
            let middle = from + (to - from) / 2;
            match self.entries(middle, 1)?[0].shape.cmp(shape) {
                Ordering::Less => from = middle + 1,
                Ordering::Equal | Ordering::Greater => to = middle + 1,
            }
        }
        let entries = self.entries(from, to - from)?;
        let found = entries.iter().find(|entry| entry.shape == *shape);
        found.map_or(Ok(Vec::new()), |entry| self.record(entry))
    }

    /// A shape with its sets, by number in ascending order of shapes. Panics if there are fewer.
    pub fn shape(&self, number: u64) -> Result<([u8; 16], Vec<SharedSet>), FormatError> {
        assert!(number < self.shapes, "the map has {} shapes", self.shapes);
        let entry = &self.entries(number, 1)?[0];
        Ok((entry.shape, self.record(entry)?))
    }

    /// Entries of the index: `count` of them.
    fn entries(&self, from: u64, count: u64) -> Result<Vec<Entry>, FormatError> {
        let part = "the index of the map";
        let at = HEADER as u64 + self.records + from * ENTRY as u64;
        let bytes = read(&*self.source, at, count * ENTRY as u64, part)?;
        let parse = |entry: &[u8]| {
            let mut bytes = Bytes::new(entry, part);
            let (shape, at, len, check) =
                (bytes.array()?, bytes.u64()?, bytes.u32()?, bytes.u32()?);
            if checksum(&[&entry[..ENTRY - 4]]) as u32 != check {
                return Err(bytes.damaged());
            }
            Ok(Entry { shape, at, len })
        };
        bytes.chunks_exact(ENTRY).map(parse).collect()
    }

    fn record(&self, entry: &Entry) -> Result<Vec<SharedSet>, FormatError> {
        let part = "a record of the map";
        let len = u64::from(entry.len);
        let end = entry.at.checked_add(len).filter(|&end| end <= self.records);
        end.ok_or(FormatError::Damaged(part))?;
        let record = read(&*self.source, HEADER as u64 + entry.at, len, part)?;
        let mut bytes = Bytes::new(&record, part);
        let check = bytes.u64()?;
        if checksum(&[&entry.shape, &record[8..]]) != check {
            return Err(bytes.damaged());
        }
        let sets = bytes.count()?;
        let sets = (0..sets).map(|_| take_set(&mut bytes)).collect::<Result<_, _>>()?;
        bytes.end()?;
        Ok(sets)
    }
}

fn take_set(bytes: &mut Bytes<'_>) -> Result<SharedSet, FormatError> {
    let (fixed, members, saved) = (bytes.u64()?, bytes.varint()?, bytes.zigzag()?);
    let parameters = bytes.count()?;
    let parameters = (0..parameters).map(|_| take_columns(bytes)).collect::<Result<_, _>>()?;
    Ok(SharedSet { parameters, fixed, members, saved })
}

fn take_columns(bytes: &mut Bytes<'_>) -> Result<Vec<u32>, FormatError> {
    let count = bytes.count()?;
    let mut columns: Vec<u32> = Vec::new();
    for _ in 0..count {
        let distance: u32 = bytes.varint()?;
        let least = columns.last().map_or(Some(0), |before| before.checked_add(1));
        let column = least.and_then(|least| least.checked_add(distance));
        columns.push(column.ok_or(bytes.damaged())?);
    }
    Ok(columns)
}

fn put_set(out: &mut Vec<u8>, set: &SharedSet) {
    let SharedSet { parameters, fixed, members, saved } = set;
    out.extend(fixed.to_le_bytes());
    put_varint(out, u64::from(*members));
    put_zigzag(out, *saved);
    put_varint(out, parameters.len() as u64);
    for columns in parameters {
        put_varint(out, columns.len() as u64);
        let mut least = 0;
        for &column in columns {
            let distance = u64::from(column).checked_sub(least);
            put_varint(out, distance.expect("columns of a parameter ascend"));
            least = u64::from(column) + 1;
        }
    }
}

/// Writes a map, with shapes in ascending order. Holds the index.
#[derive(Default)]
pub(super) struct Writer {
    index: Vec<u8>,
    records: u64,
}

impl Writer {
    pub fn start(&mut self, settings: &[u8; 32], out: &mut Sink<'_>) -> Result<(), FormatError> {
        out(&KIND.header(settings))
    }

    pub fn record(
        &mut self,
        shape: &[u8; 16],
        sets: &[SharedSet],
        out: &mut Sink<'_>,
    ) -> Result<(), FormatError> {
        let mut record = alloc::vec![0; 8];
        put_varint(&mut record, sets.len() as u64);
        sets.iter().for_each(|set| put_set(&mut record, set));
        let check = checksum(&[shape, &record[8..]]);
        record[..8].copy_from_slice(&check.to_le_bytes());
        let len = u32::try_from(record.len());
        let len = len.map_err(|_| FormatError::TooLarge("bytes of a record"))?;
        let entry = [shape, self.records.to_le_bytes().as_slice(), &len.to_le_bytes()].concat();
        self.index.extend(&entry);
        self.index.extend((checksum(&[&entry]) as u32).to_le_bytes());
        self.records += u64::from(len);
        out(&record)
    }

    pub fn finish(self, settings: &[u8; 32], out: &mut Sink<'_>) -> Result<(), FormatError> {
        if !self.index.is_empty() {
            out(&self.index)?;
        }
        let shapes = (self.index.len() / ENTRY) as u64;
        let last = [self.records.to_le_bytes(), shapes.to_le_bytes()].concat();
        out(&KIND.end(settings, last))
    }
}
