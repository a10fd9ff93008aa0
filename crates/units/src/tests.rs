//! Files of summaries and maps: that they say what was written, that nothing depends on how
//! summaries were collected, and that damage is an error and nothing worse.

use super::*;
use crate::format::{Bytes, checksum};
use crate::linkage::Linkage;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use arbtest::arbitrary::{Result, Unstructured};
use core::sync::atomic::{AtomicU64, Ordering};

fn run(inputs: u64, property: impl FnMut(&mut Unstructured<'_>) -> Result<()>) {
    let mut property = property;
    for input in 0..inputs {
        arbtest::arbtest(&mut property).seed(input << 32 | 4096).run();
    }
}

fn shuffle<T>(u: &mut Unstructured<'_>, items: &mut [T]) -> Result<()> {
    for at in (1..items.len()).rev() {
        items.swap(at, u.int_in_range(0..=at)?);
    }
    Ok(())
}

/// Names that share much, little and nothing with others.
fn name(u: &mut Unstructured<'_>) -> Result<String> {
    Ok(match u.int_in_range(0..=9)? {
        0 => String::new(),
        1 => "é".repeat(u.int_in_range(1..=300)?),
        2 => format!("{}{}", "long".repeat(70), u.int_in_range(0..=9)?),
        _ => format!("_ZN4core3ptr{}E", u.int_in_range(0..=30)?),
    })
}

fn cell(u: &mut Unstructured<'_>, kind: u32, symbols: u32) -> Result<Cell> {
    let symbol = u.int_in_range(0..=symbols - 1)?;
    let edge = |u: &mut Unstructured<'_>| -> Result<u128> {
        let bit = u.int_in_range(0..=127)?;
        Ok((1u128 << bit).wrapping_sub(u.int_in_range(0..=1)?))
    };
    let ty = *u.choose(&[0u16, 0x70, 0x76, 0x77, 0x8e, 0x8f, u16::MAX])?;
    Ok(match kind % 7 {
        0 => Cell::Itself,
        1 => Cell::Fixed(u.int_in_range(0..=2)? << 62),
        2 => Cell::Constant { ty, bits: edge(u)? },
        3 => Cell::Offset { ty, bytes: (edge(u)? as i32).wrapping_neg() },
        4 => Cell::Callee { symbol, direct: u.arbitrary()? },
        5 => Cell::Function { symbol },
        _ => Cell::Address { symbol, offset: (edge(u)? as i64).wrapping_neg() },
    })
}

/// Units whose functions have few shapes, most cells of a column alike.
fn units(u: &mut Unstructured<'_>) -> Result<Vec<UnitSummary>> {
    let count = u.int_in_range(0..=7)?;
    let mut units = Vec::new();
    for at in 0..count {
        let mut symbols = Vec::new();
        for _ in 0..u.int_in_range(1..=8)? {
            symbols.push(match u.ratio(1, 3)? {
                true => Identity::Content([u.int_in_range(0..=9)?; 16]),
                false => Identity::Name(name(u)?),
            });
        }
        let mut functions = Vec::new();
        for _ in 0..u.int_in_range(0..=9)? {
            let shape = u.int_in_range(0..=5u8)?;
            let mut cells = Vec::new();
            let columns =
                if u.ratio(1, 9)? { u.int_in_range(0..=20)? } else { u32::from(shape) * 3 };
            for column in 0..columns {
                let kind = if u.ratio(1, 20)? { u.arbitrary()? } else { u32::from(shape) + column };
                cells.push(match u.ratio(2, 3)? {
                    true => Cell::Fixed(u64::from(column)),
                    false => cell(u, kind, symbols.len() as u32)?,
                });
            }
            functions.push(FunctionSummary {
                shape: [shape; 16],
                symbol: name(u)?,
                linkage: *u.choose(&Linkage::ALL)?,
                hot: u.arbitrary()?,
                bytes: [u.arbitrary()?, u.int_in_range(0..=300)?],
                cells,
            });
        }
        let unit = format!("unit {at}");
        units.push(UnitSummary { unit, settings: [7; 32], symbols, functions });
    }
    Ok(units)
}

/// The meaning of a unit, whatever the order of functions and symbols.
fn meaning(unit: &UnitSummary) -> Vec<String> {
    let mut functions: Vec<String> = unit
        .functions
        .iter()
        .map(|function| {
            let identity = |cell: &Cell| cell.symbol().map(|at| &unit.symbols[at as usize]);
            let cells = function.cells.iter();
            let cells = cells.map(|cell| (cell.with_symbol(|_| 0), identity(cell)));
            let cells: Vec<_> = cells.collect();
            let head = FunctionSummary { cells: Vec::new(), ..function.clone() };
            format!("{head:?} {cells:?}")
        })
        .collect();
    functions.sort();
    functions.insert(0, format!("{:?} {:?}", unit.unit, unit.settings));
    functions
}

/// Those that agree in the columns in which any two of most of the group agree share a body;
/// columns that differ together are a parameter.
fn decide(group: &Group<'_>) -> Vec<SetDecision> {
    let mut by_columns: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for (at, row) in group.rows.iter().enumerate() {
        by_columns.entry(row.cells.len()).or_default().push(at as u32);
    }
    let mut sets = Vec::new();
    for (columns, rows) in by_columns.into_iter().filter(|(_, rows)| rows.len() > 1) {
        let hashes = |column: usize| -> Vec<u64> {
            rows.iter().map(|&row| group.rows[row as usize].cells[column].hash).collect()
        };
        let mut parameters: BTreeMap<Vec<u64>, Vec<u32>> = BTreeMap::new();
        for column in (0..columns).filter(|column| column % 4 != 3) {
            let hashes = hashes(column);
            if hashes.iter().any(|&hash| hash != hashes[0]) {
                parameters.entry(hashes).or_default().push(column as u32);
            }
        }
        let mut parameters: Vec<Vec<u32>> = parameters.into_values().collect();
        parameters.sort();
        let mut by_fixed: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for &row in &rows {
            let hashes = group.rows[row as usize].cells.iter().map(|cell| cell.hash);
            by_fixed.entry(fixed_hash(hashes, &parameters)).or_default().push(row);
        }
        for (fixed, rows) in by_fixed.into_iter().filter(|(_, rows)| rows.len() > 1) {
            let saved = 100 - rows.len() as i64 * 40;
            sets.push(SetDecision { parameters: parameters.clone(), fixed, rows, saved });
        }
    }
    sets
}

fn files(units: &[UnitSummary]) -> Vec<Vec<u8>> {
    units.iter().map(UnitSummary::to_bytes).collect()
}

fn open(files: &[Vec<u8>]) -> core::result::Result<Vec<Summaries<'_>>, FormatError> {
    files.iter().map(|file| Summaries::open(file)).collect()
}

fn merged(files: &[Vec<u8>]) -> core::result::Result<Vec<u8>, CombineError> {
    let mut out = Vec::new();
    let inputs = open(files).map_err(|error| CombineError::Input { input: 0, error })?;
    merge_summaries(&inputs, &mut |bytes| {
        out.extend(bytes);
        Ok(())
    })?;
    Ok(out)
}

type Combining = (Combined, Vec<u8>, BTreeMap<String, Vec<u8>>);

/// The counts of combining, the map, and the parts.
fn combined(files: &[Vec<u8>]) -> core::result::Result<Combining, CombineError> {
    let (mut map, mut parts) = (Vec::new(), BTreeMap::<String, Vec<u8>>::new());
    let inputs = open(files).map_err(|error| CombineError::Input { input: 0, error })?;
    let mut write_map = |bytes: &[u8]| {
        map.extend(bytes);
        Ok(())
    };
    let mut write_part = |unit: &str, bytes: &[u8]| {
        parts.entry(unit.into()).or_default().extend(bytes);
        Ok(())
    };
    let mut outputs = Outputs { map: Some(&mut write_map), parts: Some(&mut write_part) };
    let combined = combine(&inputs, &mut decide, &mut outputs)?;
    Ok((combined, map, parts))
}

#[test]
fn units_are_read_as_they_were_written() {
    let mut functions = 0;
    run(200, |u| {
        let units = units(u)?;
        let merged = merged(&files(&units)).expect("different units");
        let opened = Summaries::open(&merged).expect("a file");
        assert_eq!(opened.units().len(), units.len());
        for (at, unit) in units.iter().enumerate() {
            let alone = unit.to_bytes();
            let alone = Summaries::open(&alone).expect("a file");
            assert_eq!(alone.functions(), unit.functions.len() as u64);
            for read in [alone.unit(0), opened.unit(at)] {
                assert_eq!(meaning(&read.expect("as it was written")), meaning(unit));
            }
            functions += unit.functions.len();
        }
        Ok(())
    });
    assert!(functions > 1_000, "{functions}");
}

#[test]
fn symbols_and_functions_may_come_in_any_order() {
    let mut renumbered = 0;
    run(200, |u| {
        for unit in units(u)? {
            let mut other = unit.clone();
            // Each symbol twice, in another order, and some that are not used.
            let mut order: Vec<usize> = (0..unit.symbols.len()).collect();
            order.extend(0..unit.symbols.len());
            shuffle(u, &mut order)?;
            other.symbols = order.iter().map(|&at| unit.symbols[at].clone()).collect();
            other.symbols.push(Identity::Name(String::from("unused")));
            for function in &mut other.functions {
                for cell in &mut function.cells {
                    let places =
                        |at: usize| order.iter().enumerate().filter(move |(_, is)| **is == at);
                    let second: bool = u.arbitrary()?;
                    let find = |symbol: u32| {
                        let mut places = places(symbol as usize).map(|(at, _)| at as u32);
                        let first = places.next().expect("a place");
                        if second { places.next().unwrap_or(first) } else { first }
                    };
                    let now = cell.with_symbol(find);
                    renumbered += usize::from(now != *cell);
                    *cell = now;
                }
            }
            shuffle(u, &mut other.functions)?;
            assert_eq!(other.to_bytes(), unit.to_bytes());
        }
        Ok(())
    });
    assert!(renumbered > 500, "{renumbered}");
}

/// Merges files in a random tree, until few are left.
fn in_a_tree(u: &mut Unstructured<'_>, mut files: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
    let few = u.int_in_range(1..=3)?;
    while files.len() > few {
        shuffle(u, &mut files)?;
        let count = u.int_in_range(2..=files.len())?;
        let rest = files.split_off(count);
        let merged = merged(&files).expect("different units");
        files = rest;
        files.push(merged);
    }
    shuffle(u, &mut files)?;
    Ok(files)
}

#[test]
fn any_order_and_grouping_gives_the_same_bytes() {
    let (mut sets, mut several, mut across) = (0, 0, 0);
    run(250, |u| {
        let units = units(u)?;
        let files = files(&units);
        let one = merged(&files).expect("different units");
        let (counts, map, parts) = combined(&files).expect("different units");
        for _ in 0..3 {
            let grouped = in_a_tree(u, files.clone())?;
            assert_eq!(merged(&grouped).expect("different units"), one);
            assert_eq!(combined(&grouped), Ok((counts, map.clone(), parts.clone())));
        }
        assert_eq!(merged(core::slice::from_ref(&one)), Ok(one));
        sets += counts.sets;
        several += u64::from(counts.groups > 1);
        // A part has the records of the map of some shapes, without reports.
        let map = SharingMap::open(map).expect("a map");
        assert_eq!(parts.len(), units.len());
        for (unit, part) in parts {
            let part = SharingMap::open(part).expect("a part");
            let unit = units.iter().find(|other| other.unit == unit).expect("a unit");
            for at in 0..part.len() {
                let (shape, sets) = part.shape(at).expect("a record");
                assert!(unit.functions.iter().any(|function| function.shape == shape));
                let mut expected = map.sets(&shape).expect("a record");
                expected.iter_mut().for_each(|set| (set.members, set.saved) = (0, 0));
                assert_eq!(sets, expected);
                across += 1;
            }
        }
        Ok(())
    });
    assert!(sets > 500 && several > 50 && across > 500, "{sets} {several} {across}");
}

#[test]
fn maps_are_read_as_they_were_written() {
    let (mut found, mut absent) = (0, 0);
    let mut settings = [0; 32];
    run(30, |u| {
        let shapes = u.int_in_range(0..=400u32)?;
        let mut expected: BTreeMap<[u8; 16], Vec<SharedSet>> = BTreeMap::new();
        for _ in 0..shapes {
            let mut shape = [0; 16];
            shape[..4]
                .copy_from_slice(&u.arbitrary::<u32>()?.wrapping_mul(0x9E37_79B9).to_be_bytes());
            let mut sets = Vec::new();
            for _ in 0..u.int_in_range(1..=2)? {
                let mut parameters = Vec::new();
                for _ in 0..u.int_in_range(0..=2)? {
                    let columns: BTreeSet<u32> = (0..u.int_in_range(0..=3)?)
                        .map(|_| Ok(*u.choose(&[0, 1, 2, 300, u32::MAX - 1, u32::MAX])?))
                        .collect::<Result<_>>()?;
                    parameters.push(columns.into_iter().collect());
                }
                let (fixed, members, saved) = (u.arbitrary()?, u.arbitrary()?, u.arbitrary()?);
                sets.push(SharedSet { parameters, fixed, members, saved });
            }
            expected.insert(shape, sets);
        }
        settings[0] = shapes as u8;
        let mut file = Vec::new();
        let mut sink = |bytes: &[u8]| {
            file.extend(bytes);
            Ok(())
        };
        let mut writer = sharing_map::Writer::default();
        writer.start(&settings, &mut sink).expect("a vector");
        for (shape, sets) in &expected {
            writer.record(shape, sets, &mut sink).expect("a vector");
        }
        writer.finish(&settings, &mut sink).expect("a vector");
        let map = SharingMap::open(&file).expect("a map");
        assert_eq!((map.len(), map.settings()), (expected.len() as u64, &settings));
        for (at, (shape, sets)) in expected.iter().enumerate() {
            assert_eq!(map.sets(shape).as_ref(), Ok(sets));
            assert_eq!(map.shape(at as u64), Ok((*shape, sets.clone())));
            found += 1;
            let mut other = *shape;
            other[15] = 1;
            assert_eq!(map.sets(&other), Ok(Vec::new()));
            absent += 1;
        }
        for other in [[0xff; 16], [0; 16]] {
            assert_eq!(map.sets(&other), Ok(expected.get(&other).cloned().unwrap_or_default()));
        }
        Ok(())
    });
    assert!(found > 1_000 && absent > 1_000, "{found}");
}

/// Counts reads, and the bytes of the largest one and of all.
struct Counting<'a> {
    bytes: &'a [u8],
    reads: AtomicU64,
    largest: AtomicU64,
    all: AtomicU64,
}

impl<'a> Counting<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let zero = || AtomicU64::new(0);
        Counting { bytes, reads: zero(), largest: zero(), all: zero() }
    }
}

impl ReadAt for Counting<'_> {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> core::result::Result<(), FormatError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.largest.fetch_max(into.len() as u64, Ordering::Relaxed);
        self.all.fetch_add(into.len() as u64, Ordering::Relaxed);
        self.bytes.read_at(offset, into)
    }
}

#[test]
fn a_lookup_reads_little_and_shapes_of_one_function_are_not_read() {
    let mut file = Vec::new();
    let mut sink = |bytes: &[u8]| {
        file.extend(bytes);
        Ok(())
    };
    let mut writer = sharing_map::Writer::default();
    writer.start(&[0; 32], &mut sink).expect("a vector");
    for shape in 0..20_000u128 {
        let set = SharedSet { members: 2, ..SharedSet::default() };
        writer.record(&shape.to_be_bytes(), &[set], &mut sink).expect("a vector");
    }
    writer.finish(&[0; 32], &mut sink).expect("a vector");
    let source = Counting::new(&file);
    let map = SharingMap::open(&source).expect("a map");
    let at_first = source.reads.load(Ordering::Relaxed);
    assert_eq!(map.sets(&19_999u128.to_be_bytes()).map(|sets| sets.len()), Ok(1));
    assert!(source.reads.load(Ordering::Relaxed) - at_first <= 11);
    assert!(source.all.load(Ordering::Relaxed) < 4_096, "{:?}", source.all);

    let unit = |name: &str, shapes: core::ops::Range<u128>| {
        let functions = shapes.map(|shape| FunctionSummary {
            shape: shape.to_be_bytes(),
            symbol: format!("{shape}"),
            linkage: Linkage::Local,
            hot: false,
            bytes: [1, 1],
            cells: alloc::vec![Cell::Fixed(0); 100],
        });
        let functions = functions.collect();
        UnitSummary { unit: name.into(), functions, ..UnitSummary::default() }.to_bytes()
    };
    let files = [unit("a", 0..1000), unit("b", 999..2000)];
    let sources = files.each_ref().map(|file| Counting::new(file));
    let inputs: Vec<_> =
        sources.iter().map(|source| Summaries::open(source).expect("a file")).collect();
    let mut groups = 0;
    let mut decide = |group: &Group<'_>| {
        groups += 1;
        assert_eq!(group.shape, 999u128.to_be_bytes());
        assert_eq!(group.symbol(&group.rows[1]).as_deref(), Ok("999"));
        Vec::new()
    };
    let counts = combine(&inputs, &mut decide, &mut Outputs::default()).expect("two units");
    assert_eq!((counts.shapes, counts.groups, counts.grouped, groups), (2000, 1, 2, 1));
    for (source, file) in sources.iter().zip(&files) {
        assert!(source.all.load(Ordering::Relaxed) < file.len() as u64 / 10, "{:?}", source.all);
    }
}

/// Reads all of a file, in every way. Returns how many functions and cells it has.
fn read_summaries(file: &[u8]) -> core::result::Result<(usize, usize), FormatError> {
    let source = Counting::new(file);
    let read = |source| {
        let file = Summaries::open(source)?;
        let counting = |group: &Group<'_>| {
            let symbols: Vec<_> = group.rows.iter().map(|row| group.symbol(row)).collect();
            assert_eq!(symbols.len(), group.rows.len());
            Vec::new()
        };
        let inner = |error| match error {
            CombineError::Input { error, .. } => error,
            other => panic!("{other}"),
        };
        let inputs = core::slice::from_ref(&file);
        let mut counting = counting;
        combine(inputs, &mut counting, &mut Outputs::default()).map_err(inner)?;
        merge_summaries(inputs, &mut |_| Ok(())).map_err(inner)?;
        let mut counts = (0, 0);
        for at in 0..file.units().len() {
            let unit = file.unit(at)?;
            counts.0 += unit.functions.len();
            counts.1 += unit.functions.iter().map(|function| function.cells.len()).sum::<usize>();
        }
        Ok(counts)
    };
    let counts = read(&source);
    assert!(source.largest.load(Ordering::Relaxed) <= file.len() as u64);
    if let Ok((functions, cells)) = counts {
        assert!(functions <= file.len() && cells <= 8 * file.len());
    }
    counts
}

/// The sets that a map has for its shapes.
type Said = Vec<([u8; 16], Vec<SharedSet>)>;

/// Reads all of a map. A lookup fails or finds what the map said.
fn read_map(
    file: &[u8],
    said: &[([u8; 16], Vec<SharedSet>)],
) -> core::result::Result<usize, FormatError> {
    let source = Counting::new(file);
    let read = |source| {
        let map = SharingMap::open(source)?;
        for (shape, sets) in said {
            assert!(map.sets(shape).map_or(true, |found| found == *sets));
        }
        let mut count = 0;
        for at in 0..map.len() {
            let (shape, sets) = map.shape(at)?;
            map.sets(&shape)?;
            let columns = sets.iter().flat_map(|set| &set.parameters);
            count += sets.len() + columns.map(Vec::len).sum::<usize>();
        }
        Ok(count)
    };
    let count = read(&source);
    assert!(source.largest.load(Ordering::Relaxed) <= file.len() as u64);
    assert!(count.as_ref().map_or(true, |&count| count <= file.len()));
    count
}

/// A small file of summaries with all kinds of cells, and its map.
fn sample() -> (Vec<u8>, Vec<u8>, Said) {
    let mut found = None;
    run(250, |u| {
        let files = files(&units(u)?);
        let file = merged(&files).expect("different units");
        let (counts, map, _) = combined(&files).expect("different units");
        if found.is_none() && file.len() < 4_000 && counts.sets > 3 && counts.units > 2 {
            found = Some((file, map));
        }
        Ok(())
    });
    let (file, map) = found.expect("one of many is small and has sets");
    let opened = SharingMap::open(&map).expect("a map");
    let said = (0..opened.len()).map(|at| opened.shape(at).expect("a record")).collect();
    drop(opened);
    (file, map, said)
}

#[test]
fn damage_is_an_error() {
    let (file, map, said) = sample();
    assert!(read_summaries(&file).is_ok_and(|(functions, cells)| functions > 9 && cells > 9));
    assert!(read_map(&map, &said).is_ok_and(|count| count > 3));
    let mut kinds = BTreeSet::new();
    for (which, good) in [&file, &map].into_iter().enumerate() {
        let read = |file: &[u8]| match which {
            0 => read_summaries(file).err(),
            _ => read_map(file, &said).err(),
        };
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let error =
                read(&bad).unwrap_or_else(|| panic!("file {which}, bit {bit} of {}", good.len()));
            kinds.insert(format!("{error}"));
            let magic = (0..64).contains(&bit);
            let version = (64..96).contains(&bit);
            assert_eq!(magic, matches!(error, FormatError::Magic(_)), "bit {bit}");
            assert_eq!(version, matches!(error, FormatError::Version { .. }), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(read(&good[..len]).is_some(), "{len} bytes");
            let longer = [good, &good[..len]].concat();
            assert!(len == 0 || read(&longer).is_some(), "{len} more bytes");
        }
    }
    assert!(kinds.len() >= 12, "{kinds:?}");
}

#[test]
fn damage_of_one_record_leaves_others() {
    let (_, map, said) = sample();
    assert!(said.len() > 1);
    let mut bad = map.clone();
    // The first byte of the first record.
    bad[44] ^= 1;
    let opened = SharingMap::open(&bad).expect("its ends are as they were");
    assert_eq!(opened.sets(&said[0].0), Err(FormatError::Damaged("a record of the map")));
    assert_eq!(opened.sets(&said[1].0), Ok(said[1].1.clone()));
}

/// Corrects all checksums of a file of summaries, as far as it can be followed.
fn seal_summaries(file: &mut [u8]) -> Option<()> {
    let end = file.len().checked_sub(88)?;
    let number =
        |file: &[u8], at: usize| Some(u64::from_le_bytes(*file.get(at..)?.first_chunk()?) as usize);
    let lens: Vec<usize> = (0..5).map(|at| number(file, end + 8 * at)).collect::<Option<_>>()?;
    let seal_block = |file: &mut [u8], at: usize| {
        let len = u32::from_le_bytes(*file.get(at..)?.first_chunk()?) as usize;
        let payload = file.get(at + 16..)?.get(..len)?;
        let check = checksum(&[&file[at..at + 8], payload]);
        file[at + 8..at + 16].copy_from_slice(&check.to_le_bytes());
        Some(len)
    };
    let seal_end = |file: &mut [u8]| {
        let check = checksum(&[&file[..44], &file[end..end + 80]]);
        file[end + 80..].copy_from_slice(&check.to_le_bytes());
    };
    seal_end(file);
    let mut at = 44;
    let mut row = 0;
    for (table, len) in lens.into_iter().enumerate() {
        let to = at + len;
        if table == 3 {
            (row, at) = (at, to);
            continue;
        }
        while at < to {
            if table == 4 {
                let len = u32::from_le_bytes(*file.get(at..)?.first_chunk()?) as usize;
                let mut entry = at + 16;
                while entry < at + 16 + len {
                    let mut bytes = Bytes::new(file.get(entry..)?, "");
                    bytes.take(16).ok()?;
                    let (_, len): (u64, usize) = (bytes.varint().ok()?, bytes.varint().ok()?);
                    let check = file.len() - bytes.remaining();
                    let sum = checksum(&[file.get(row..)?.get(..len)?]) as u32;
                    file.get_mut(check..)?.get_mut(..4)?.copy_from_slice(&sum.to_le_bytes());
                    row += len;
                    entry = check + 4;
                }
            }
            at += 16 + seal_block(file, at)?;
        }
    }
    Some(())
}

/// Corrects all checksums of a map, as far as it can be followed.
fn seal_map(file: &mut [u8]) -> Option<()> {
    let end = file.len().checked_sub(24)?;
    let check = checksum(&[&file[..44], &file[end..end + 16]]);
    file[end + 16..].copy_from_slice(&check.to_le_bytes());
    let records = u64::from_le_bytes(*file[end..].first_chunk()?) as usize;
    for at in (records.checked_add(44)?..end).step_by(32) {
        let entry = file.get(at..at + 32)?.to_vec();
        let record = 44 + u64::from_le_bytes(*entry[16..].first_chunk()?) as usize;
        let len = u32::from_le_bytes(*entry[24..].first_chunk()?) as usize;
        let check = checksum(&[&entry[..28]]) as u32;
        file[at + 28..at + 32].copy_from_slice(&check.to_le_bytes());
        let payload = file.get(record..)?.get(8..len)?;
        let check = checksum(&[&entry[..16], payload]);
        file[record..record + 8].copy_from_slice(&check.to_le_bytes());
    }
    Some(())
}

#[test]
fn made_up_files_are_errors_or_files() {
    let (file, map, said) = sample();
    let mut copy = file.clone();
    assert!(seal_summaries(&mut copy).is_some() && copy == file);
    let mut copy = map.clone();
    assert!(seal_map(&mut copy).is_some() && copy == map);
    let mut random = fastrand_like(1);
    let (mut valid, mut errors) = ([0, 0], BTreeSet::new());
    for round in 0..10_000u64 {
        let which = (round % 2) as usize;
        let mut bad = if which == 0 { file.clone() } else { map.clone() };
        for _ in 0..1 + random() % 3 {
            let len = bad.len() as u64;
            let at = (12 + random() % (len - 12)) as usize;
            bad[at] = match random() % 4 {
                0 => 0,
                1 => 0xff,
                2 => bad[at].wrapping_add(1),
                _ => random() as u8,
            };
        }
        // As far as possible: then there are errors beyond.
        let _ = if which == 0 { seal_summaries(&mut bad) } else { seal_map(&mut bad) };
        let error = match which {
            0 => read_summaries(&bad).err(),
            // Shapes may have changed.
            _ => read_map(&bad, &[]).err(),
        };
        match error {
            None => valid[which] += 1,
            Some(error) => drop(errors.insert(format!("{which} {error}"))),
        }
    }
    assert!(valid.iter().all(|&valid| valid > 250) && errors.len() > 8, "{valid:?} {errors:?}");
    assert!(said.len() > 1);
}

/// Numbers that look random (SplitMix64).
fn fastrand_like(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
}

#[test]
fn random_bytes_are_errors() {
    let mut random = fastrand_like(2);
    type Seal = fn(&mut [u8]) -> Option<()>;
    for round in 0..10_000 {
        let len = random() % 600;
        let mut bytes: Vec<u8> = (0..len).map(|_| random() as u8).collect();
        let (header, seal): (&[u8], Seal) = match round % 4 {
            0 => (b"CLIFSUMS\x01\0\0\0", seal_summaries),
            1 => (b"CLIFSHAR\x01\0\0\0", seal_map),
            _ => (b"", |_| None),
        };
        if bytes.len() >= 140 {
            bytes[..header.len()].copy_from_slice(header);
            let _ = seal(&mut bytes);
        }
        assert!(read_summaries(&bytes).is_err());
        assert!(read_map(&bytes, &[]).is_err());
    }
}

#[test]
fn inputs_must_fit_together() {
    let unit = |name: &str, settings| {
        UnitSummary { unit: name.into(), settings, ..UnitSummary::default() }.to_bytes()
    };
    let [a, b, other] = [unit("a", [0; 32]), unit("b", [0; 32]), unit("c", [1; 32])];
    let both = |files: &[Vec<u8>]| {
        let error = merged(files).err();
        assert_eq!(error, combined(files).err());
        error
    };
    assert_eq!(both(&[a.clone(), b.clone()]), None);
    let duplicate = CombineError::DuplicateUnit("a".into());
    assert_eq!(format!("{duplicate}"), "two summaries of the unit `a`");
    let duplicate = Some(duplicate);
    assert_eq!(both(&[a.clone(), b.clone(), a.clone()]), duplicate);
    let ab = merged(&[a.clone(), b]).expect("two units");
    assert_eq!(both(&[ab, a.clone()]), duplicate);
    assert_eq!(both(&[a.clone(), other]), Some(CombineError::Settings { input: 1 }));
    // Nothing is something, too.
    let nothing = merged(&[]).expect("no units");
    assert!(Summaries::open(&nothing).is_ok_and(|opened| opened.units().is_empty()));
    let (counts, map, parts) = combined(&[]).expect("no units");
    assert_eq!((counts, parts.len()), (Combined::default(), 0));
    let map = SharingMap::open(map).expect("a map");
    assert!(map.is_empty() && map.sets(&[0; 16]) == Ok(Vec::new()));
    // A file that cannot be written.
    let opened = open(core::slice::from_ref(&a)).expect("a file");
    let full = FormatError::Io("full".into());
    let result = merge_summaries(&opened, &mut |_| Err(full.clone()));
    assert_eq!(result, Err(CombineError::Output(full)));
}

#[test]
fn hashes_of_cells_tell_them_apart() {
    let symbols = ["a", "b"].map(|name| Identity::Name(name.into()));
    let contents =
        [Identity::Content(*b"aaaaaaaaaaaaaaaa"), Identity::Name("aaaaaaaaaaaaaaaa".into())];
    let symbols: Vec<Identity> = symbols.into_iter().chain(contents).collect();
    let mut cells = alloc::vec![Cell::Itself];
    for number in [0, 1, u64::MAX] {
        cells.push(Cell::Fixed(number));
        for ty in [0x76, 0x77] {
            cells.push(Cell::Constant { ty, bits: u128::from(number) });
            cells.push(Cell::Constant { ty, bits: u128::from(number) << 64 | 2 });
            cells.push(Cell::Offset { ty, bytes: number as i32 });
        }
    }
    for symbol in 0..4 {
        cells.push(Cell::Function { symbol });
        cells.push(Cell::Callee { symbol, direct: false });
        cells.extend([0, 1, -1].map(|offset| Cell::Address { symbol, offset }));
    }
    let hash = |cell: &Cell| cell_hash(cell, |symbol| identity_hash(&symbols[symbol as usize]));
    let hashes: BTreeSet<u64> = cells.iter().map(hash).collect();
    assert_eq!(hashes.len(), cells.len());
    // Whether a call must stay direct is not what it calls.
    let calls = [false, true].map(|direct| hash(&Cell::Callee { symbol: 1, direct }));
    assert_eq!(calls[0], calls[1]);
    // Of all columns but those of parameters, with their numbers.
    let of =
        |hashes: &[u64], parameters: &[Vec<u32>]| fixed_hash(hashes.iter().copied(), parameters);
    assert_eq!(of(&[1, 2, 3], &[alloc::vec![1]]), of(&[1, 9, 3], &[alloc::vec![1, 7]]));
    assert_ne!(of(&[1, 2, 3], &[alloc::vec![1]]), of(&[1, 3, 3], &[alloc::vec![0]]));
    assert_ne!(of(&[1, 2, 2], &[alloc::vec![1]]), of(&[1, 2, 2], &[alloc::vec![2]]));
}

#[test]
#[cfg(feature = "std")]
fn files_are_read_where_they_are() {
    let path = tempfile::NamedTempFile::new().expect("a file").into_temp_path();
    std::fs::write(&path, b"0123456789").expect("written");
    let file = FileAt::open(&path).expect("opened");
    let mut three = [0; 3];
    assert_eq!((file.len(), file.read_at(7, &mut three)), (10, Ok(())));
    assert_eq!(&three, b"789");
    assert!(matches!(file.read_at(8, &mut three), Err(FormatError::Io(_))));
}
