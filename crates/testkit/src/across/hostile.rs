//! Sharing maps and summaries that say anything: made up, of other units, or damaged, with
//! checksums that are right or not.
//!
//! Checksums are corrected after a change as the formats are described
//! (`crates/units/src/summary.rs`, `crates/units/src/sharing_map.rs`): what reads a file must not
//! rely on them. Nothing here knows what a file should say, nor what comes of it.

use super::map;
use crate::support::Rng;
use cranelift_mergefunc::across::decide_sharing;
use cranelift_mergefunc::units::fixed_hash;
use cranelift_mergefunc::units::{
    Cell, FunctionSummary, Group, Identity, SetDecision, UnitSummary,
};
use cranelift_mergefunc::{Linkage, Policy};
use std::collections::HashMap;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The bytes before all tables of a file, and those after them in maps and in summaries.
const HEADER: usize = 44;
const END_OF_MAP: usize = 24;
const END_OF_SUMMARIES: usize = 88;

/// The bytes of an entry of the index of a map: a shape (16), where its record is (8), its length
/// (4), a checksum (4).
const ENTRY: usize = 32;

/// Sets whose parameters are anything: what two functions differ in, more or less than that,
/// columns of several parameters, columns that there are not. The hash of the other columns is
/// right for one function, or not.
pub fn random_sets(group: &Group<'_>, rng: &mut Rng) -> Vec<SetDecision> {
    let rows = &group.rows;
    let mut sets = Vec::new();
    for _ in 0..1 + rng.below(3) {
        let (first, second) = (&rows[rng.below(rows.len())], &rows[rng.below(rows.len())]);
        let hashes: Vec<u64> = first.cells.iter().map(|cell| cell.hash).collect();
        let mut parameters: Vec<Vec<u32>> = Vec::new();
        if rng.but_one_in(4) {
            let mut number: HashMap<[u64; 2], usize> = HashMap::new();
            for (column, cells) in first.cells.iter().zip(&second.cells).enumerate() {
                let hashes = [cells.0.hash, cells.1.hash];
                if hashes[0] != hashes[1] {
                    let next = parameters.len();
                    let at = *number.entry(hashes).or_insert(next);
                    if at == next {
                        parameters.push(Vec::new());
                    }
                    parameters[at].push(column as u32);
                }
            }
        }
        let more = rng.choose(&[8, 40, 400, 4000]);
        for column in 0..hashes.len() as u32 {
            match rng.below(more) {
                0 => parameters.push(vec![column]),
                1 if !parameters.is_empty() => {
                    let at = rng.below(parameters.len());
                    parameters[at].push(column);
                }
                _ => {}
            }
        }
        match rng.below(24) {
            0 => parameters.push(vec![rng.choose(&[u32::MAX, hashes.len() as u32, 1 << 20])]),
            1 => parameters.push(Vec::new()),
            2 => drop(parameters.pop()),
            3 if parameters.len() > 1 => {
                let more = parameters.pop().expect("two or more");
                parameters[0].extend(more);
            }
            _ => {}
        }
        for columns in &mut parameters {
            columns.sort_unstable();
            columns.dedup();
        }
        if rng.one_in(3) {
            rng.shuffle(&mut parameters);
        }
        let fixed = match rng.one_in(12) {
            true => rng.word(),
            false => fixed_hash(hashes.iter().copied(), &parameters),
        };
        let rows = (0..rows.len() as u32).collect();
        sets.push(SetDecision { parameters, fixed, rows, saved: rng.word() as i64 });
    }
    sets
}

/// A map for units with these summaries that says anything. `other` is a map, at best of other
/// units.
pub fn hostile_map(summaries: &[UnitSummary], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let bytes = match rng.below(6) {
        0 => map(summaries, &mut |group| decide_sharing(group, Policy::Size)),
        // Of units as they are not.
        1 => map(&stale(summaries, rng), &mut |group| decide_sharing(group, Policy::Size)),
        // Shapes that one function has have sets, too.
        2 => map(&twice(summaries), &mut |group| random_sets(group, rng)),
        _ => map(summaries, &mut |group| random_sets(group, rng)),
    };
    match rng.below(3) {
        0 => bytes,
        _ => damaged_map(&bytes, other, rng),
    }
}

/// Summaries of which each function is in a second unit as well.
fn twice(summaries: &[UnitSummary]) -> Vec<UnitSummary> {
    let again =
        |of: &UnitSummary| UnitSummary { unit: format!("{}, again", of.unit), ..of.clone() };
    summaries.iter().cloned().chain(summaries.iter().map(again)).collect()
}

/// Summaries that say other things than they did, and can be combined.
fn stale(summaries: &[UnitSummary], rng: &mut Rng) -> Vec<UnitSummary> {
    let mut stale = summaries.to_vec();
    for _ in 0..1 + rng.below(8) {
        let at = rng.below(stale.len());
        change_summary(&mut stale, at, rng);
    }
    stale
}

/// A map that says something else, if it says anything.
pub fn damaged_map(map: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = map.to_vec();
    match rng.below(8) {
        // The sets of one shape are given to another one.
        0..3 => {
            let entries = entries(&bytes);
            for _ in 0..1 + rng.below(4) {
                if entries.len() > 1 {
                    let [one, two] = [(); 2].map(|()| rng.choose(&entries));
                    exchange(&mut bytes, one + 16, two + 16, 12);
                }
            }
            // The index is not in order.
            if entries.len() > 1 && rng.one_in(8) {
                let [one, two] = [(); 2].map(|()| rng.choose(&entries));
                exchange(&mut bytes, one, two, 16);
            }
            seal_map(&mut bytes);
        }
        // The sets that another map has for these shapes.
        3 => {
            bytes = other.to_vec();
            for (from, to) in entries(map).into_iter().zip(entries(other)) {
                bytes[to..to + 16].copy_from_slice(&map[from..from + 16]);
            }
            bytes[..HEADER].copy_from_slice(&map[..HEADER]);
            seal_map(&mut bytes);
        }
        // Another map, for these settings or not.
        4 => {
            bytes = other.to_vec();
            if rng.but_one_in(4) {
                bytes[..HEADER].copy_from_slice(&map[..HEADER]);
                seal_map(&mut bytes);
            }
        }
        5 => damage(&mut bytes, rng),
        // The ends, which say where everything is, mostly as they were.
        _ => {
            let end = bytes.len() - END_OF_MAP;
            let within = if rng.one_in(8) { 0..bytes.len() } else { HEADER..end };
            if within.len() > 1 {
                damage_in_place(&mut bytes[within], rng);
            }
            seal_map(&mut bytes);
        }
    }
    bytes
}

/// Files of summaries, one or more of which say other things than they did or nothing that can be
/// read.
pub fn damaged_summaries(summaries: &[UnitSummary], rng: &mut Rng) -> Vec<Vec<u8>> {
    let kind = rng.below(8);
    if kind < 3 {
        return stale(summaries, rng).iter().map(UnitSummary::to_bytes).collect();
    }
    let mut files: Vec<Vec<u8>> = summaries.iter().map(UnitSummary::to_bytes).collect();
    let at = rng.below(files.len());
    match kind {
        3 => {
            let from = rng.below(files.len());
            let (table, from) = (rng.below(5), files[from].clone());
            files[at] = with_table_of(&files[at], &from, table);
        }
        4 => damage(&mut files[at], rng),
        // The ends, which say where everything is, mostly as they were.
        _ => {
            let file = &mut files[at];
            let end = file.len() - END_OF_SUMMARIES;
            let within = if rng.one_in(8) { 0..file.len() } else { HEADER..end };
            damage_in_place(&mut file[within], rng);
            seal_summaries(file);
        }
    }
    files
}

/// Changes one thing that a summary says.
fn change_summary(all: &mut [UnitSummary], at: usize, rng: &mut Rng) {
    let from = rng.below(all.len());
    let strange = cell(&all[at], rng);
    let other = match all[from].functions.is_empty() {
        true => None,
        false => Some(rng.choose(&all[from].functions)),
    };
    let UnitSummary { symbols, functions, .. } = &mut all[at];
    if rng.one_in(6) && symbols.len() > 1 {
        let [one, two] = [(); 2].map(|()| rng.below(symbols.len()));
        match rng.below(3) {
            0 => symbols.swap(one, two),
            1 => symbols[one] = symbols[two].clone(),
            _ => symbols[one] = Identity::Content([rng.word() as u8; 16]),
        }
        return;
    }
    if functions.is_empty() {
        return;
    }
    let number = rng.below(functions.len());
    let second = rng.below(functions.len());
    match rng.below(10) {
        0 | 1 => {
            let shape = functions[number].shape;
            functions[number].shape = functions[second].shape;
            functions[second].shape = shape;
        }
        2 => functions[number].shape = other.map_or([0; 16], |other| other.shape),
        3 => {
            let sizes = [0, 1, 300, i32::MAX as u32, u32::MAX];
            functions[number].bytes = [rng.choose(&sizes), rng.choose(&sizes)];
        }
        4 => {
            functions[number].hot ^= true;
            functions[number].linkage = rng.choose(&Linkage::ALL);
        }
        5 => {
            let most = rng.choose(&[2, 40]);
            let copies = 1 + rng.below(most);
            let FunctionSummary { cells, .. } = &functions[second];
            let cells = cells.clone();
            for copy in 0..copies {
                let mut function = functions[number].clone();
                function.symbol += &format!(" {copy}");
                if rng.one_in(3) {
                    function.cells = cells.clone();
                }
                functions.push(function);
            }
        }
        6 => {
            let cells = &mut functions[number].cells;
            match rng.below(3) {
                0 => cells.truncate(rng.below(cells.len() + 1)),
                1 => cells.push(strange),
                _ => {
                    let len = cells.len() + rng.choose(&[1, 30, 3000]);
                    cells.resize(len, strange);
                }
            }
        }
        _ => {
            let cells = &mut functions[number].cells;
            if !cells.is_empty() {
                let [one, two] = [(); 2].map(|()| rng.below(cells.len()));
                match rng.one_in(3) {
                    true => cells.swap(one, two),
                    false => cells[one] = strange,
                }
            }
        }
    }
}

/// Any cell that a function of a unit may have.
fn cell(unit: &UnitSummary, rng: &mut Rng) -> Cell {
    let ty = rng.choose(&[0, 1, 0x70, 0x74, 0x76, 0x77, 0x8e, 0xffff]);
    let word = u128::from(rng.word());
    let bits = rng.choose(&[0, 1, 1 << 31, 1 << 32, 1 << 127, u128::MAX, word]);
    let kinds = if unit.symbols.is_empty() { 4 } else { 7 };
    let kind = rng.below(kinds);
    let symbol = rng.below(unit.symbols.len().max(1)) as u32;
    match kind {
        0 => Cell::Itself,
        1 => Cell::Fixed(bits as u64),
        2 => Cell::Constant { ty, bits },
        3 => Cell::Offset { ty, bytes: bits as i32 },
        4 => Cell::Callee { symbol, direct: rng.one_in(2) },
        5 => Cell::Function { symbol },
        _ => Cell::Address { symbol, offset: bits as i64 },
    }
}

/// Changes bits or bytes, exchanges parts, or repeats or cuts off a part.
fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let (kind, len) = (rng.below(9), bytes.len());
    match kind {
        0..6 => damage_in_place(bytes, rng),
        6 => bytes.truncate(rng.below(len)),
        7 => drop(bytes.drain(..rng.below(len))),
        _ => {
            let part = 1 + rng.below(len.min(80));
            let from = rng.below(len + 1 - part);
            let again = bytes[from..from + part].to_vec();
            let at = rng.below(len);
            bytes.splice(at..at, again);
        }
    }
}

/// Changes bits or bytes, or exchanges parts.
fn damage_in_place(bytes: &mut [u8], rng: &mut Rng) {
    let count = 1 + rng.below(3);
    let kind = rng.below(6);
    let len = bytes.len();
    match kind {
        0..3 => {
            for _ in 0..count {
                bytes[rng.below(len)] ^= 1 << rng.below(8);
            }
        }
        3..5 => {
            for _ in 0..count {
                let at = rng.below(len);
                bytes[at] = match rng.below(4) {
                    0 => 0,
                    1 => 0xff,
                    2 => bytes[at].wrapping_add(1),
                    _ => rng.word() as u8,
                };
            }
        }
        _ => {
            let part = 1 + rng.below((len / 2).min(80));
            let [one, two] = [(); 2].map(|()| rng.below(len + 1 - part));
            exchange(bytes, one, two, part);
        }
    }
}

/// Exchanges two parts, as far as they do not overlap.
fn exchange(bytes: &mut [u8], one: usize, two: usize, len: usize) {
    let len = len.min(one.abs_diff(two));
    for at in 0..len {
        bytes.swap(one + at, two + at);
    }
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let word = u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
    usize::try_from(word).ok().filter(|number| *number < 1 << 40)
}

fn short_number(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize)
}

/// A varint, and where it ends.
fn varint(bytes: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut number = 0_u64;
    for shift in (0..63).step_by(7) {
        let byte = *bytes.get(at)?;
        number |= u64::from(byte & 0x7f) << shift;
        at += 1;
        if byte < 0x80 {
            return Some((usize::try_from(number).ok()?, at));
        }
    }
    None
}

fn checksum(pieces: &[&[u8]]) -> u64 {
    let mut hasher = Xxh3::new();
    pieces.iter().for_each(|piece| hasher.update(piece));
    hasher.digest()
}

/// Where the entries of the index of a map are; none if that cannot be said.
fn entries(map: &[u8]) -> Vec<usize> {
    let find = || {
        let end = map.len().checked_sub(END_OF_MAP)?;
        let from = number(map, end)?.checked_add(HEADER)?;
        Some((from..end).step_by(ENTRY).filter(|at| at + ENTRY <= end).collect())
    };
    find().unwrap_or_default()
}

/// Corrects all checksums of a map, as far as it can be followed.
fn seal_map(map: &mut [u8]) {
    let Some(end) = map.len().checked_sub(END_OF_MAP).filter(|end| *end >= HEADER) else {
        return;
    };
    let check = checksum(&[&map[..HEADER], &map[end..end + 16]]);
    map[end + 16..].copy_from_slice(&check.to_le_bytes());
    for at in entries(map) {
        let check = xxh3_64(&map[at..at + 28]) as u32;
        map[at + 28..at + 32].copy_from_slice(&check.to_le_bytes());
        let shape = map[at..at + 16].to_vec();
        let place = number(map, at + 16).zip(short_number(map, at + 24));
        let Some((from, len)) = place.filter(|(_, len)| *len >= 8) else {
            continue;
        };
        if let Some(record) = map[HEADER..end].get_mut(from..).and_then(|rest| rest.get_mut(..len))
        {
            let check = checksum(&[&shape, &record[8..]]);
            record[..8].copy_from_slice(&check.to_le_bytes());
        }
    }
}

/// The bytes of each table of a file of summaries: units, names, contents, rows, index.
fn tables(file: &[u8]) -> Option<[std::ops::Range<usize>; 5]> {
    let end = file.len().checked_sub(END_OF_SUMMARIES)?;
    let mut at = HEADER;
    let mut tables = [const { 0..0 }; 5];
    for (number_of, table) in tables.iter_mut().enumerate() {
        let len = number(file, end + 8 * number_of)?;
        *table = at..at + len;
        at += len;
    }
    (at <= end).then_some(tables)
}

/// A file that has a table of another one, and says so.
fn with_table_of(file: &[u8], other: &[u8], table: usize) -> Vec<u8> {
    let [Some(own), Some(others)] = [tables(file), tables(other)] else {
        return file.to_vec();
    };
    let mut bytes = file.to_vec();
    let end = file.len() - END_OF_SUMMARIES;
    let end_of_other = other.len() - END_OF_SUMMARIES;
    for word in [table, table + 5] {
        let of_other = &other[end_of_other + 8 * word..][..8];
        bytes[end + 8 * word..][..8].copy_from_slice(of_other);
    }
    bytes.splice(own[table].clone(), other[others[table].clone()].iter().copied());
    seal_summaries(&mut bytes);
    bytes
}

/// Corrects all checksums of a file of summaries, as far as it can be followed.
fn seal_summaries(file: &mut [u8]) {
    let Some(end) = file.len().checked_sub(END_OF_SUMMARIES).filter(|end| *end >= HEADER) else {
        return;
    };
    let check = checksum(&[&file[..HEADER], &file[end..end + 80]]);
    file[end + 80..].copy_from_slice(&check.to_le_bytes());
    let Some(tables) = tables(file) else {
        return;
    };
    let mut rows = tables[3].start;
    for (number_of, table) in tables.into_iter().enumerate() {
        let is_index = number_of == 4;
        if number_of != 3 {
            let _ = seal_blocks(file, table, is_index.then_some(&mut rows));
        }
    }
}

/// Corrects the checksums of blocks; of an index, also those of the rows to which it leads.
fn seal_blocks(
    file: &mut [u8],
    blocks: std::ops::Range<usize>,
    mut rows: Option<&mut usize>,
) -> Option<()> {
    let mut at = blocks.start;
    while at < blocks.end {
        let payload = at + 16..at.checked_add(16 + short_number(file, at)?)?;
        file.get(payload.clone())?;
        if let Some(rows) = &mut rows {
            let mut entry = payload.start;
            while entry < payload.end {
                let (_, len) = varint(file, entry + 16)?;
                let (len, check) = varint(file, len)?;
                let sum = xxh3_64(file.get(**rows..)?.get(..len)?) as u32;
                file.get_mut(check..)?.get_mut(..4)?.copy_from_slice(&sum.to_le_bytes());
                **rows += len;
                entry = check + 4;
            }
        }
        let check = checksum(&[&file[at..at + 8], file.get(payload.clone())?]);
        file[at + 8..at + 16].copy_from_slice(&check.to_le_bytes());
        at = payload.end;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::across::{pieces, summaries};
    use crate::generate::function::Profile;
    use crate::generate::opcodes::Machine;
    use arbitrary::Unstructured;

    /// If a checksum were not where it is taken to be, all damage would be noticed by checksums.
    #[test]
    fn files_as_they_were_written_have_the_right_checksums() {
        let isa = Machine::host().isa("none");
        let (mut maps, mut files) = (0, 0);
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let bytes = rng.bytes(1500);
            let profile = Profile::runnable(Machine::host());
            let mut u = Unstructured::new(&bytes);
            let (_, units) = pieces(&mut u, seed, &profile, &*isa, &mut rng);
            let summaries = summaries(&units);
            let bytes = map(&summaries, &mut |group| random_sets(group, &mut rng));
            let mut sealed = bytes.clone();
            seal_map(&mut sealed);
            assert_eq!(sealed, bytes);
            maps += usize::from(entries(&bytes).len() > 1);
            for summary in &summaries {
                let bytes = summary.to_bytes();
                let mut sealed = bytes.clone();
                seal_summaries(&mut sealed);
                assert_eq!(sealed, bytes);
                assert!((0..5).all(|table| with_table_of(&bytes, &bytes, table) == bytes));
                files += usize::from(summary.functions.len() > 1);
            }
        }
        assert!(maps > 5 && files > 20, "{maps} {files}");
    }
}
