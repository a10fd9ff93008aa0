//! The frames of a stack of a linked image: to which functions, of which units, they belong.
//!
//! Each unit says which functions its code runs and calls, by the names that linkers know
//! (`cranelift_mergefunc::explain::FrameTable`). Here the names of all units become one program: a
//! call of a symbol that another unit defines is a call of the function there, and code that units
//! share is code of the functions of all of them.
//!
//! It does *not* walk a stack.

use crate::linked::{LinkedFunction, LinkedMap};
use anyhow::{Result, anyhow};
use cranelift_mergefunc::cranelift_codegen::ir::UserExternalName;
use cranelift_mergefunc::explain::FrameTable;
use cranelift_mergefunc_frames::{
    Callee, Level, Place, Running, Table, TailCallees, TailCalls, resolve,
};
use serde::{Deserialize, Serialize};

/// The code of a unit, as it is written.
#[derive(Debug, Serialize, Deserialize)]
pub struct WrittenFrames {
    /// The names of functions, by their numbers in the table.
    functions: Vec<String>,
    /// The names of the symbols of code, by their numbers.
    code: Vec<String>,
    /// The bytes of the table, in hexadecimal.
    table: String,
}

impl WrittenFrames {
    /// Takes the names of functions from `name`.
    pub fn new(frames: &FrameTable, name: impl Fn(&UserExternalName) -> String) -> WrittenFrames {
        let FrameTable { table, functions, code } = frames;
        let names = |symbols: &[UserExternalName]| symbols.iter().map(&name).collect();
        let table = table.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        WrittenFrames { functions: names(functions), code: names(code), table }
    }

    /// # Errors
    ///
    /// Errors in the table.
    pub fn read(self) -> Result<UnitFrames> {
        let WrittenFrames { functions, code, table } = self;
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let byte = |pair: &[u8]| match *pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = table.as_bytes().chunks(2).map(byte).collect();
        let bytes = bytes.ok_or_else(|| anyhow!("the table of frames is not hexadecimal"))?;
        let table = Table::parse(bytes)?;
        for number in 0..table.len() {
            let code = table.code(number)?;
            let named = |&function: &u32| (function as usize) < functions.len();
            let callees = code.sites.iter().flat_map(|site| &site.of);
            let called = callees.filter_map(|(_, callee)| match callee {
                Callee::Function(callee) => Some(callee),
                Callee::Unknown => None,
            });
            if !code.functions.iter().chain(called).all(named) {
                return Err(anyhow!("the table of frames has a function without a name"));
            }
        }
        if table.len() != code.len() {
            return Err(anyhow!("the table of frames is of {} pieces of code", table.len()));
        }
        Ok(UnitFrames { table, functions, code })
    }
}

/// The code of a unit.
#[derive(Clone, Debug)]
pub struct UnitFrames {
    table: Table,
    functions: Vec<String>,
    code: Vec<String>,
}

/// A function of the program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Function {
    /// By its number in the map.
    Known(usize),
    /// One that no unit of the map defines.
    Other(String),
}

/// A function to which a frame can belong.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// The unit.
    pub unit: &'a str,
    /// The function.
    pub function: &'a LinkedFunction,
    /// The source location, if one is known.
    pub location: Option<u32>,
}

/// A frame, and the functions to which it can belong: none, if it is not of code of the units.
pub type Frame<'a> = (u64, Vec<Candidate<'a>>);

/// To which functions the frames of a stack belong, innermost first, without those of thunks. The
/// first address is that of the instruction that trapped, or a return address as all others.
/// `units` are those of the map, in its order.
///
/// # Errors
///
/// A table that is wrong.
pub fn frames<'a>(
    map: &'a LinkedMap,
    units: &[Option<UnitFrames>],
    addresses: &[u64],
) -> Result<Vec<Frame<'a>>> {
    let program = Program { map, units };
    let levels: Result<Vec<Level<Function>>> =
        addresses.iter().enumerate().map(|(at, &address)| program.level(address, at > 0)).collect();
    let mut levels = levels?;
    resolve(&mut levels, &program.tail_calls());
    let frames = addresses.iter().zip(levels).filter(|(_, level)| !level.is_thunk);
    let frames = frames.map(|(&address, level)| {
        let candidates = level.running.into_iter().filter_map(|running| match running.function {
            Function::Known(index) => {
                let (unit, function) = map.function(index);
                Some(Candidate { unit, function, location: running.location })
            }
            Function::Other(_) => None,
        });
        (address, candidates.collect())
    });
    Ok(frames.collect())
}

/// The units as one program.
struct Program<'a> {
    map: &'a LinkedMap,
    units: &'a [Option<UnitFrames>],
}

impl Program<'_> {
    /// The level of a frame, by its address alone.
    fn level(&self, address: u64, is_return: bool) -> Result<Level<Function>> {
        let inside = address - u64::from(is_return && address > 0);
        let mut level = Level { running: Vec::new(), is_thunk: false };
        for (start, unit, name) in self.map.code_at(inside) {
            let offset = u32::try_from(address - start).unwrap_or(u32::MAX);
            for (number, frames) in self.units.iter().enumerate() {
                let Some(frames) = frames.as_ref().filter(|_| unit.is_none_or(|at| at == number))
                else {
                    continue;
                };
                let Some(code) = frames.code.iter().position(|own| own == name) else { continue };
                let place = Place { offset, is_return };
                let mut found = frames.table.level(code, place)?;
                // Of a stack that begins in code of others, the innermost address is a return
                // address, too.
                if !is_return && found.running.iter().all(|at| at.location.is_none()) {
                    found = frames.table.level(code, Place { is_return: true, ..place })?;
                }
                level.is_thunk |= found.is_thunk;
                let running = found.running.into_iter().map(|running| {
                    let Running { function, location, callee } = running;
                    let callee = match callee {
                        Callee::Function(callee) => {
                            Callee::Function(self.function(number, frames, callee))
                        }
                        Callee::Unknown => Callee::Unknown,
                    };
                    Running { function: self.function(number, frames, function), location, callee }
                });
                level.running.extend(running);
            }
        }
        Ok(level)
    }

    /// The function of a number in the table of a unit.
    fn function(&self, unit: usize, frames: &UnitFrames, number: u32) -> Function {
        let name = frames.functions.get(number as usize).map_or("", |name| name);
        let known = self.map.named(unit, name);
        known.map_or_else(|| Function::Other(name.into()), Function::Known)
    }

    fn tail_calls(&self) -> TailCalls<Function> {
        let mut all = TailCalls::new();
        for (unit, frames) in self.units.iter().enumerate() {
            let Some(frames) = frames else { continue };
            for (&function, callees) in frames.table.tail_calls() {
                let function = self.function(unit, frames, function);
                // A unit knows the tail calls of its own functions.
                if !matches!(&function, Function::Known(at) if self.map.is_of(*at, unit)) {
                    continue;
                }
                let callees = match callees {
                    TailCallees::Any => TailCallees::Any,
                    TailCallees::Known(callees) => {
                        let callees = callees.iter();
                        let callees = callees.map(|&callee| self.function(unit, frames, callee));
                        TailCallees::Known(callees.collect())
                    }
                };
                all.insert(function, callees);
            }
        }
        all
    }
}
