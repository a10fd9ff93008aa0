//! The table of code, as bytes.
//!
//! Functions that share code differ in few of their callees, and their source locations run in
//! parallel: the second and every further function of a body is written as its differences from the
//! first.

use crate::resolve::{Callee, Level, Running, TailCallees, TailCalls, resolve};
use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::vec::Vec;
use core::fmt;

/// A place in code: the offset in bytes of an instruction that may trap, or of the instruction
/// behind a call.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// From the first byte of the code.
    pub offset: u32,
    /// Whether it is the return address of a call.
    pub is_return: bool,
}

/// The actions of the functions of code at a place.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The place.
    pub place: Place,
    /// The source location and the callee of each function of the code, in their order.
    pub of: Vec<(Option<u32>, Callee<u32>)>,
}

/// Code: a body, or a thunk.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The numbers of the functions that it may be running.
    pub functions: Vec<u32>,
    /// See [`Level::is_thunk`].
    pub is_thunk: bool,
    /// Ascending by their places.
    pub sites: Vec<Site>,
}

/// The bytes are not what [`Table::bytes`] returned.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a table of frames")
    }
}

impl core::error::Error for Malformed {}

/// Which functions the code of a program belongs to. Functions and code have numbers, from 0.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    bytes: Vec<u8>,
    /// Where each piece of code begins, with its length.
    codes: Vec<u32>,
    tail_calls: TailCalls<u32>,
}

impl Table {
    /// The table of this code. Linear in its size.
    ///
    /// # Panics
    ///
    /// If a site does not have an entry for each function of its code, or the table takes 4 GiB.
    pub fn new(codes: &[Code], tail_calls: &TailCalls<u32>) -> Table {
        let mut bytes = Vec::new();
        put(&mut bytes, codes.len() as u32);
        for code in codes {
            let mut own = Vec::new();
            code.write(&mut own);
            put(&mut bytes, u32::try_from(own.len()).expect("less than 4 GiB"));
            bytes.extend(own);
        }
        write_tail_calls(&mut bytes, tail_calls);
        Table::parse(bytes).expect("was written here")
    }

    /// The table of these bytes. Linear in the number of pieces of code.
    ///
    /// # Errors
    ///
    /// [`Malformed`].
    pub fn parse(bytes: Vec<u8>) -> Result<Table, Malformed> {
        let mut reader = Reader { bytes: &bytes, at: 0 };
        let mut codes = Vec::new();
        for _ in 0..reader.number()? {
            codes.push(u32::try_from(reader.at).map_err(|_| Malformed)?);
            let length = reader.number()? as usize;
            reader.at =
                reader.at.checked_add(length).filter(|&at| at <= bytes.len()).ok_or(Malformed)?;
        }
        let tail_calls = read_tail_calls(&mut reader)?;
        match reader.at == bytes.len() {
            true => Ok(Table { codes, tail_calls, bytes }),
            false => Err(Malformed),
        }
    }

    /// The tail calls of functions.
    pub fn tail_calls(&self) -> &TailCalls<u32> {
        &self.tail_calls
    }

    /// The table as bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many pieces of code it has.
    pub fn len(&self) -> usize {
        self.codes.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty()
    }

    /// Whether several functions have a piece of code.
    pub(crate) fn is_shared(&self, number: usize) -> bool {
        let head = self.piece(number).and_then(|mut reader| reader.number());
        head.is_ok_and(|head| head >> FLAGS > 1)
    }

    /// The function of a piece of code that is written as the calls of one function.
    pub(crate) fn caller(&self, number: usize) -> Option<u32> {
        let mut reader = self.piece(number).ok()?;
        match reader.number() {
            Ok(CALLS) => reader.number().ok(),
            _ => None,
        }
    }

    /// The bytes of a piece of code.
    fn piece(&self, number: usize) -> Result<Reader<'_>, Malformed> {
        let at = *self.codes.get(number).ok_or(Malformed)? as usize;
        let mut reader = Reader { bytes: &self.bytes, at };
        let length = reader.number()? as usize;
        let bytes = self.bytes.get(reader.at..).and_then(|rest| rest.get(..length));
        Ok(Reader { bytes: bytes.ok_or(Malformed)?, at: 0 })
    }

    /// A piece of code. Linear in its size.
    ///
    /// # Errors
    ///
    /// [`Malformed`], if it does not have this piece, or the bytes are wrong there.
    pub fn code(&self, number: usize) -> Result<Code, Malformed> {
        Code::read(&mut self.piece(number)?)
    }

    /// The level of a frame, by its address alone.
    ///
    /// # Errors
    ///
    /// See [`Table::code`].
    pub fn level(&self, number: usize, place: Place) -> Result<Level<u32>, Malformed> {
        Ok(self.code(number)?.level(place))
    }

    /// The frames of a stack, innermost first, each with the functions that it can belong to: see
    /// [`resolve`]. `None` is a frame of other code.
    ///
    /// # Errors
    ///
    /// See [`Table::code`].
    pub fn frames(&self, stack: &[Option<(usize, Place)>]) -> Result<Vec<Level<u32>>, Malformed> {
        // A recursion has the same code in many frames.
        let mut codes: BTreeMap<usize, Code> = BTreeMap::new();
        let mut levels = Vec::with_capacity(stack.len());
        for frame in stack {
            let Some((number, place)) = *frame else {
                levels.push(Level { running: Vec::new(), is_thunk: false });
                continue;
            };
            let code = match codes.entry(number) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(self.code(number)?),
            };
            levels.push(code.level(place));
        }
        resolve(&mut levels, &self.tail_calls);
        Ok(levels)
    }
}

/// The head of a piece of code that has nothing but the calls of one function, which most are.
const CALLS: u32 = 0;

/// The head of any other piece is the number of its functions, in front of bits of flags.
const FLAGS: u32 = 3;
const IS_GENERAL: u32 = 1;

fn write_calls(bytes: &mut Vec<u8>, function: u32, sites: &[Site]) {
    put(bytes, CALLS);
    put(bytes, function);
    let mut before = 0;
    for Site { place, of } in sites {
        assert_eq!(of.len(), 1, "an entry for each function");
        put(bytes, place.offset - before);
        put(bytes, callee(&of[0].1));
        before = place.offset;
    }
}

/// Reads the calls of one function, which come to the end of the bytes.
fn read_calls(reader: &mut Reader<'_>) -> Result<Code, Malformed> {
    let (function, mut offset, mut sites) = (reader.number()?, 0_u32, Vec::new());
    while reader.at < reader.bytes.len() {
        offset = offset.checked_add(reader.number()?).ok_or(Malformed)?;
        let place = Place { offset, is_return: true };
        sites.push(Site { place, of: Vec::from([(None, named(reader.number()?))]) });
    }
    Ok(Code { functions: Vec::from([function]), is_thunk: false, sites })
}

/// The most functions that one entry of the tail calls stands for, so that the entries of a table
/// that is read are at most some dozens for each of its bytes.
const MAX_RUN: usize = 0x80;

fn write_tail_calls(bytes: &mut Vec<u8>, tail_calls: &TailCalls<u32>) {
    let has_none = |callees: &TailCallees<u32>| *callees == TailCallees::Known(Vec::new());
    let all: Vec<(u32, &TailCallees<u32>)> =
        tail_calls.iter().map(|(&function, callees)| (function, callees)).collect();
    // Nearly all functions have no tail calls.
    let follows = |a: &(u32, &TailCallees<u32>), b: &(u32, &TailCallees<u32>)| {
        has_none(a.1) && has_none(b.1) && b.0 - a.0 == 1
    };
    let runs = || all.chunk_by(follows).flat_map(|run| run.chunks(MAX_RUN));
    put(bytes, runs().count() as u32);
    let mut before = 0;
    for run in runs() {
        let (first, callees) = run[0];
        put(bytes, first - before);
        before = run[run.len() - 1].0;
        match callees {
            TailCallees::Any => put(bytes, 0_u32),
            TailCallees::Known(callees) => {
                put(bytes, callees.len() as u32 + 1);
                callees.iter().for_each(|&callee| put(bytes, callee));
                if callees.is_empty() {
                    put(bytes, run.len() as u32 - 1);
                }
            }
        }
    }
}

fn read_tail_calls(reader: &mut Reader<'_>) -> Result<TailCalls<u32>, Malformed> {
    let (mut tail_calls, mut function) = (TailCalls::new(), 0_u32);
    for _ in 0..reader.number()? {
        function = function.checked_add(reader.number()?).ok_or(Malformed)?;
        let callees = match reader.number()? {
            0 => TailCallees::Any,
            count => {
                let callees: Result<Vec<u32>, Malformed> =
                    (1..count).map(|_| reader.number()).collect();
                TailCallees::Known(callees?)
            }
        };
        let has_none = callees == TailCallees::Known(Vec::new());
        tail_calls.insert(function, callees);
        let more = if has_none { reader.number()? } else { 0 };
        if more as usize >= MAX_RUN {
            return Err(Malformed);
        }
        for _ in 0..more {
            function = function.checked_add(1).ok_or(Malformed)?;
            tail_calls.insert(function, TailCallees::Known(Vec::new()));
        }
    }
    Ok(tail_calls)
}

/// Locations and callees as numbers.
fn location(location: Option<u32>) -> u32 {
    location.map_or(0, |location| location.wrapping_add(1))
}

fn callee(callee: &Callee<u32>) -> u32 {
    match callee {
        Callee::Unknown => 0,
        Callee::Function(function) => function.wrapping_add(1),
    }
}

/// The callee of a number.
fn named(number: u32) -> Callee<u32> {
    number.checked_sub(1).map_or(Callee::Unknown, Callee::Function)
}

impl Code {
    /// The level of a frame, by its address alone.
    fn level(&self, place: Place) -> Level<u32> {
        let Code { functions, is_thunk, sites } = self;
        let site = sites.binary_search_by_key(&place, |site| site.place).ok().map(|at| &sites[at]);
        let running = functions.iter().enumerate().map(|(index, &function)| {
            let (location, callee) =
                site.map_or((None, Callee::Unknown), |site| site.of[index].clone());
            Running { function, location, callee }
        });
        Level { running: running.collect(), is_thunk: *is_thunk }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        let Code { functions, is_thunk, sites } = self;
        let has_locations = sites.iter().any(|site| site.of.iter().any(|(at, _)| at.is_some()));
        let calls = sites.iter().all(|site| site.place.is_return);
        if let ([function], true, false, false) = (&functions[..], calls, *is_thunk, has_locations)
        {
            return write_calls(bytes, *function, sites);
        }
        let flags = IS_GENERAL | u32::from(*is_thunk) << 1 | u32::from(has_locations) << 2;
        put(bytes, (functions.len() as u32) << FLAGS | flags);
        let mut before = 0;
        for &function in functions {
            put_difference(bytes, before, function);
            before = function;
        }
        put(bytes, sites.len() as u32);
        let mut before = 0;
        for Site { place, of } in sites {
            assert_eq!(of.len(), functions.len(), "an entry for each function");
            let number = place.offset * 2 + u32::from(place.is_return);
            put(bytes, number - before);
            before = number;
        }
        let Some(first) = (!functions.is_empty()).then_some(0) else { return };
        if has_locations {
            let mut before = 0;
            for site in sites {
                match location(site.of[first].0) {
                    0 => put(bytes, 0_u32),
                    at => {
                        put(bytes, u64::from(zigzag(before, at)) + 1);
                        before = at;
                    }
                }
            }
        }
        for site in sites.iter().filter(|site| site.place.is_return) {
            put(bytes, callee(&site.of[first].1));
        }
        for other in 1..functions.len() {
            // Runs of sites without a location, and of sites at which the difference from the first
            // function is the same.
            let difference = |site: &Site| match location(site.of[other].0) {
                0 => None,
                at => Some(at.wrapping_sub(location(site.of[first].0))),
            };
            let mut before = 0;
            let runs = sites.chunk_by(|a, b| difference(a) == difference(b));
            for run in runs.filter(|_| has_locations) {
                let difference = difference(&run[0]);
                put(bytes, (run.len() as u64) << 1 | u64::from(difference.is_some()));
                if let Some(difference) = difference {
                    put_difference(bytes, before, difference);
                    before = difference;
                }
            }
            let returns = || sites.iter().filter(|site| site.place.is_return).enumerate();
            let differ = || returns().filter(|(_, site)| site.of[other].1 != site.of[first].1);
            put(bytes, differ().count() as u32);
            let mut before = 0;
            for (at, site) in differ() {
                put(bytes, at as u32 - before);
                put_difference(bytes, callee(&site.of[first].1), callee(&site.of[other].1));
                before = at as u32;
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Code, Malformed> {
        let head = reader.number()?;
        if head == CALLS {
            return read_calls(reader);
        }
        let (count, is_thunk, has_locations) = (head >> FLAGS, head & 2 != 0, head & 4 != 0);
        let mut functions = Vec::new();
        let mut function = 0;
        for _ in 0..count {
            function = reader.difference(function)?;
            functions.push(function);
        }
        let mut sites = Vec::new();
        let mut number = 0_u32;
        for _ in 0..reader.number()? {
            number = number.checked_add(reader.number()?).ok_or(Malformed)?;
            let place = Place { offset: number / 2, is_return: number % 2 == 1 };
            sites.push(Site { place, of: Vec::new() });
        }
        if functions.is_empty() {
            return Ok(Code { functions, is_thunk, sites });
        }
        let known = |number: u32| number.checked_sub(1);
        let mut before = 0;
        for site in &mut sites {
            let at = match has_locations {
                true => reader.long()?.checked_sub(1),
                false => None,
            };
            let at = at.map(|difference| u32::try_from(difference).map_err(|_| Malformed));
            let at = at.transpose()?.map(|difference| moved(before, difference));
            before = at.unwrap_or(before);
            site.of.push((at.and_then(known), Callee::Unknown));
        }
        for site in sites.iter_mut().filter(|site| site.place.is_return) {
            site.of[0].1 = named(reader.number()?);
        }
        for other in 1..functions.len() {
            let (mut filled, mut difference) = (0, 0);
            if !has_locations {
                for site in &mut sites {
                    let first = site.of[0].clone();
                    site.of.push(first);
                }
                filled = sites.len();
            }
            while filled < sites.len() {
                let head = reader.long()?;
                let (run, has_location) = ((head >> 1) as usize, head & 1 != 0);
                if has_location {
                    difference = reader.difference(difference)?;
                }
                let end = filled.checked_add(run).filter(|_| run > 0).ok_or(Malformed)?;
                for site in sites.get_mut(filled..end).ok_or(Malformed)? {
                    let (first, callee) = site.of[0].clone();
                    let at = location(first).wrapping_add(difference);
                    site.of.push((known(at).filter(|_| has_location), callee));
                }
                filled = end;
            }
            let mut returns: Vec<&mut Site> =
                sites.iter_mut().filter(|site| site.place.is_return).collect();
            let mut at = 0_usize;
            for _ in 0..reader.number()? {
                at = at.checked_add(reader.number()? as usize).ok_or(Malformed)?;
                let site = returns.get_mut(at).ok_or(Malformed)?;
                site.of[other].1 = named(reader.difference(callee(&site.of[0].1))?);
            }
        }
        Ok(Code { functions, is_thunk, sites })
    }
}

/// Writes a number in groups of seven bits, the low ones first (LEB128).
pub(crate) fn put(bytes: &mut Vec<u8>, number: impl Into<u64>) {
    let mut number = number.into();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// The difference of two numbers, small if they are near, whichever is greater.
fn zigzag(from: u32, to: u32) -> u32 {
    let difference = to.wrapping_sub(from) as i32;
    (difference << 1 ^ difference >> 31) as u32
}

/// The number with this difference, by [`zigzag`].
fn moved(from: u32, difference: u32) -> u32 {
    from.wrapping_add(difference >> 1 ^ (difference & 1).wrapping_neg())
}

/// Writes a number as its difference from another one.
pub(crate) fn put_difference(bytes: &mut Vec<u8>, from: u32, to: u32) {
    put(bytes, zigzag(from, to));
}

pub(crate) struct Reader<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

impl Reader<'_> {
    pub fn number(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.long()?).map_err(|_| Malformed)
    }

    /// A number of at most 35 bits.
    fn long(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..35).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or(Malformed)?;
            self.at += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    pub fn difference(&mut self, from: u32) -> Result<u32, Malformed> {
        Ok(moved(from, self.number()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn codes() -> Vec<Code> {
        let site = |offset, is_return, of: &[(Option<u32>, Callee<u32>)]| Site {
            place: Place { offset, is_return },
            of: of.to_vec(),
        };
        let called = Callee::Function;
        let shared = Code {
            functions: vec![7, 3, 9],
            is_thunk: false,
            sites: vec![
                site(
                    4,
                    false,
                    &[
                        (Some(10), Callee::Unknown),
                        (Some(90), Callee::Unknown),
                        (None, Callee::Unknown),
                    ],
                ),
                site(
                    9,
                    true,
                    &[(Some(12), called(1)), (Some(92), called(1)), (Some(1), called(2))],
                ),
                site(
                    9,
                    false,
                    &[
                        (Some(0), Callee::Unknown),
                        (Some(80), Callee::Unknown),
                        (Some(1), Callee::Unknown),
                    ],
                ),
                site(
                    300,
                    true,
                    &[(None, called(5)), (None, Callee::Unknown), (Some(u32::MAX - 1), called(0))],
                ),
            ],
        };
        let mut shared = shared;
        shared.sites.sort_by_key(|site| site.place);
        let alone = Code {
            functions: vec![1],
            is_thunk: false,
            sites: vec![site(20, true, &[(None, called(7))])],
        };
        let thunk = Code { functions: vec![3], is_thunk: true, sites: vec![] };
        vec![shared, alone, thunk]
    }

    fn tail_calls() -> TailCalls<u32> {
        let known = |callees: &[u32]| TailCallees::Known(callees.to_vec());
        [(1, known(&[])), (3, known(&[])), (7, known(&[3, 9])), (9, TailCallees::Any)].into()
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        let table = Table::new(&codes(), &tail_calls());
        let again = Table::parse(table.bytes().to_vec()).unwrap();
        assert_eq!(again, table);
        assert_eq!(again.len(), 3);
        for (number, code) in codes().iter().enumerate() {
            assert_eq!(again.code(number).as_ref(), Ok(code));
        }
        assert_eq!(again.tail_calls, tail_calls());
    }

    #[test]
    fn functions_without_tail_calls_take_few_bytes() {
        let none = |function| (function, TailCallees::Known(vec![]));
        let mut all: TailCalls<u32> = (3..1000).map(none).collect();
        all.insert(500, TailCallees::Known(vec![7, 1]));
        all.insert(u32::MAX, TailCallees::Any);
        let table = Table::new(&[], &all);
        assert_eq!(table.tail_calls, all);
        assert!(table.bytes().len() < 50, "{}", table.bytes().len());
    }

    #[test]
    fn sites_without_locations_are_read_as_written() {
        let at = |offset| Place { offset, is_return: false };
        let site = |number: u32| {
            let location = |from: u32| (Some(from + number), Callee::Unknown);
            let none = (None, Callee::Unknown);
            // The first, the second, and both have no location now and then.
            let of = match number % 4 {
                0 => vec![none.clone(), none],
                1 => vec![none, location(1 << 30)],
                2 => vec![location(5), none],
                _ => vec![location(u32::MAX - 200), location(1 << 30)],
            };
            Site { place: at(number), of }
        };
        let code =
            Code { functions: vec![0, 1], is_thunk: false, sites: (0..100).map(site).collect() };
        let table = Table::new(core::slice::from_ref(&code), &TailCalls::new());
        assert_eq!(table.code(0).as_ref(), Ok(&code));
    }

    #[test]
    fn bytes_that_are_cut_or_changed_are_errors_or_another_table() {
        let bytes = Table::new(&codes(), &tail_calls()).bytes().to_vec();
        let read = |bytes: Vec<u8>| -> Result<(), Malformed> {
            let table = Table::parse(bytes)?;
            (0..table.len()).try_for_each(|number| table.code(number).map(drop))
        };
        for end in 0..bytes.len() {
            assert_eq!(Table::parse(bytes[..end].to_vec()), Err(Malformed), "{end}");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let _ = read(changed);
            }
        }
    }

    #[test]
    fn a_stack_is_resolved() {
        let table = Table::new(&codes(), &tail_calls());
        let place = |offset, is_return| Place { offset, is_return };
        let stack = [Some((0, place(4, false))), Some((1, place(20, true))), None];
        let frames = table.frames(&stack).unwrap();
        // 1 called 7, which may tail-call 3 or 9, and 9 any.
        let functions: Vec<u32> =
            frames[0].running.iter().map(|running| running.function).collect();
        assert_eq!(functions, [7, 3, 9]);
        assert_eq!(frames[0].running[1].location, Some(90));
        assert!(frames[2].running.is_empty());
    }
}
