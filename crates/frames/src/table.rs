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
    /// Where each piece of code begins.
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
        // Nearly all functions have no tail calls.
        put(&mut bytes, tail_calls.len() as u32);
        let mut before = 0;
        for (&function, callees) in tail_calls {
            put(&mut bytes, function - before);
            before = function;
            match callees {
                TailCallees::Any => put(&mut bytes, 0),
                TailCallees::Known(callees) => {
                    put(&mut bytes, callees.len() as u32 + 1);
                    callees.iter().for_each(|&callee| put(&mut bytes, callee));
                }
            }
        }
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
            let length = reader.number()? as usize;
            codes.push(u32::try_from(reader.at).map_err(|_| Malformed)?);
            reader.at =
                reader.at.checked_add(length).filter(|&at| at <= bytes.len()).ok_or(Malformed)?;
        }
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
            tail_calls.insert(function, callees);
        }
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
        let at = self.codes.get(number).map_or(0, |&at| at as usize);
        Reader { bytes: &self.bytes, at }.number().is_ok_and(|head| head >> 2 > 1)
    }

    /// A piece of code. Linear in its size.
    ///
    /// # Errors
    ///
    /// [`Malformed`], if it does not have this piece, or the bytes are wrong there.
    pub fn code(&self, number: usize) -> Result<Code, Malformed> {
        let at = *self.codes.get(number).ok_or(Malformed)? as usize;
        Code::read(&mut Reader { bytes: &self.bytes, at })
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
        let flags = u32::from(*is_thunk) | u32::from(has_locations) << 1;
        put(bytes, (functions.len() as u32) << 2 | flags);
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
                let at = location(site.of[first].0);
                put_difference(bytes, before, at);
                before = at;
            }
        }
        for site in sites.iter().filter(|site| site.place.is_return) {
            put(bytes, callee(&site.of[first].1));
        }
        for other in 1..functions.len() {
            // Runs of sites at which the difference from the first function is the same.
            let difference =
                |site: &Site| location(site.of[other].0).wrapping_sub(location(site.of[first].0));
            let mut before = 0;
            let runs = sites.chunk_by(|a, b| difference(a) == difference(b));
            for run in runs.filter(|_| has_locations) {
                put(bytes, run.len() as u32);
                put_difference(bytes, before, difference(&run[0]));
                before = difference(&run[0]);
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
        let (count, is_thunk, has_locations) = (head >> 2, head & 1 != 0, head & 2 != 0);
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
        let named = |number: u32| known(number).map_or(Callee::Unknown, Callee::Function);
        let mut at = 0;
        for site in &mut sites {
            if has_locations {
                at = reader.difference(at)?;
            }
            site.of.push((known(at), Callee::Unknown));
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
                let run = reader.number()? as usize;
                difference = reader.difference(difference)?;
                let end = filled.checked_add(run).filter(|_| run > 0).ok_or(Malformed)?;
                for site in sites.get_mut(filled..end).ok_or(Malformed)? {
                    let (first, callee) = site.of[0].clone();
                    site.of.push((known(location(first).wrapping_add(difference)), callee));
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
pub(crate) fn put(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Writes a number as its difference from another one: small, whatever its sign.
pub(crate) fn put_difference(bytes: &mut Vec<u8>, from: u32, to: u32) {
    let difference = to.wrapping_sub(from) as i32;
    put(bytes, (difference << 1 ^ difference >> 31) as u32);
}

pub(crate) struct Reader<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

impl Reader<'_> {
    pub fn number(&mut self) -> Result<u32, Malformed> {
        let mut number = 0;
        for shift in (0..32).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or(Malformed)?;
            self.at += 1;
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    pub fn difference(&mut self, from: u32) -> Result<u32, Malformed> {
        let number = self.number()?;
        Ok(from.wrapping_add(number >> 1 ^ (number & 1).wrapping_neg()))
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
