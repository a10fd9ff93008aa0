//! Backtraces: to which function each frame of a stack belongs.
//!
//! Each return address says which function its caller called before merging, so the frames of a
//! stack are followed from the outermost to the innermost. `cranelift-mergefunc-frames` decides;
//! this module gives the candidates of each frame.
//!
//! It does *not* walk a stack.

use super::map::{MergeMap, Original};
use super::sites::{Instructions, Key, Recorded, Site, key};
use crate::plan::Plan;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use cranelift_codegen::ir::{SourceLoc, UserExternalName};
use cranelift_mergefunc_frames::{
    self as frames, Callee, Level, Place, Running, SymbolTable, Table, TailCallees, TailCalls,
};

/// A frame of a stack.
///
/// See the [example](crate::explain).
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    /// Its address: that of the instruction that trapped, or the one to which a call returns.
    pub address: u64,
    /// The functions to which it can belong: one, where the callers say which. None, if the map
    /// does not know the code.
    pub candidates: Vec<Candidate<'a>>,
}

/// A function to which a frame can belong.
///
/// See the [example](crate::explain).
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The function.
    pub function: &'a Original,
    /// The source location that its instruction had before it was [numbered](super::Sites::number):
    /// that of the call, at a return address. `None`, if it had none or none was recorded.
    pub location: Option<SourceLoc>,
}

/// [`Table`], and which functions and code its numbers are.
///
/// See the [example](crate::explain).
#[derive(Clone, Debug)]
pub struct FrameTable {
    /// The table.
    pub table: Table,
    /// The functions, by their numbers.
    pub functions: Vec<UserExternalName>,
    /// The symbols of the code, by its numbers.
    pub code: Vec<UserExternalName>,
}

impl FrameTable {
    /// [`MergeMap::frame_table`] of one plan, whose map is needed for nothing else.
    pub fn of(plan: &Plan, recorded: Recorded) -> FrameTable {
        let mut map = MergeMap::of(plan, |_| String::new());
        map.set_recorded(recorded);
        map.frame_table()
    }

    /// The table with the raw parts of symbols in place of numbers, as bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let FrameTable { table, functions, code } = self;
        let raw = |all: &[UserExternalName]| all.iter().map(key).collect::<Vec<Key>>();
        SymbolTable::bytes(table, &raw(functions), &raw(code))
    }
}

impl MergeMap {
    /// To which functions the frames of a stack belong, innermost first. `trap` is the address of
    /// the instruction that trapped, if one did; `returns` are the return addresses of all frames,
    /// those of thunks and of other code included. Frames of thunks, which would not exist without
    /// merging, are left out.
    ///
    /// If all calls on the stack are direct and the outermost function is known, each frame has one
    /// function, that which runs without merging; behind a call through a pointer, all functions of
    /// the code remain that made the next call. For that, functions and code must be
    /// [recorded](MergeMap::set_recorded).
    ///
    /// O(n k log k) for n frames of at most k functions each, if there are few tail calls.
    pub fn frames(&self, trap: Option<u64>, returns: &[u64]) -> Vec<Frame<'_>> {
        let addresses = trap.into_iter().map(|address| (address, false));
        let addresses = addresses.chain(returns.iter().map(|&address| (address, true)));
        let addresses: Vec<(u64, bool)> = addresses.collect();
        let level = |&(address, is_return): &(u64, bool)| self.level(address, is_return);
        let mut levels: Vec<Level<Key>> = addresses.iter().map(level).collect();
        frames::resolve(&mut levels, self.recorded().tail_calls());
        let shown = addresses.into_iter().zip(levels).filter(|(_, level)| !level.is_thunk);
        let frames = shown.map(|((address, _), level)| {
            let candidates = level.running.into_iter().filter_map(|running| {
                let function = self.original(&name(running.function))?;
                Some(Candidate { function, location: running.location.map(SourceLoc::new) })
            });
            Frame { address, candidates: candidates.collect() }
        });
        frames.collect()
    }

    /// The level of a frame, by its address.
    fn level(&self, address: u64, is_return: bool) -> Level<Key> {
        // Behind a call that does not return, another function can begin.
        let inside = address.wrapping_sub(u64::from(is_return));
        let Some(code) = self.at(inside) else {
            return Level { running: Vec::new(), is_thunk: false };
        };
        let place = Place { offset: (address - code.start) as u32, is_return };
        let places = self.recorded().places(&key(&code.symbol));
        let number = places.binary_search_by_key(&place, |&(place, _)| place).ok();
        let number = number.map(|at| places[at].1);
        let is_thunk = self.original(&code.symbol).is_some_and(Original::is_thunk);
        let running = self.functions_of(key(&code.symbol)).map(|function| {
            let site = number.and_then(|at| self.recorded().instructions(&function).at(at));
            let (location, callee) = said(site);
            Running { function, location, callee }
        });
        Level { running: running.collect(), is_thunk }
    }

    /// The table of code that says to which function a frame belongs, compactly: for engines that
    /// keep it beside their code, and have line tables of their own for code of a single function.
    /// It has the code that several functions share, and where other code calls such functions.
    /// Linear in the code that was recorded.
    pub fn frame_table(&self) -> FrameTable {
        self.frame_table_with(false)
    }

    /// Like [`frame_table`](MergeMap::frame_table), and all other code with its callees and source
    /// locations: for programs that are linked of several units, or have no other line tables.
    pub fn full_frame_table(&self) -> FrameTable {
        self.frame_table_with(true)
    }

    fn frame_table_with(&self, full: bool) -> FrameTable {
        let recorded = self.recorded();
        let mut numbers = Numbers::default();
        let thunks = self.originals().filter(|original| original.is_thunk());
        let thunks = thunks.map(|thunk| key(&thunk.symbol));
        let symbols: BTreeSet<Key> = recorded.code().chain(thunks).collect();
        let says = self.says(&symbols);
        let (mut codes, mut code) = (Vec::new(), Vec::new());
        for symbol in symbols {
            let here: Vec<Key> = self.functions_of(symbol).collect();
            let is_thunk = self.original(&name(symbol)).is_some_and(Original::is_thunk);
            let is_whole = full || here.len() > 1;
            let instructions = here.iter().map(|function| recorded.instructions(function));
            let instructions: Vec<Instructions<'_>> = instructions.collect();
            let mut sites = Vec::new();
            for &(place, at) in recorded.places(&symbol) {
                let said = instructions.iter().map(|function| said(function.at(at)));
                let said: Vec<(Option<u32>, Callee<Key>)> = said.collect();
                // Nothing follows from calls of code of its own alone: the next frame says that
                // itself.
                let says_more = |callee: &Callee<Key>| match callee {
                    Callee::Function(callee) => full || says.contains(callee),
                    Callee::Unknown => false,
                };
                let is_said = said.iter().any(|(_, callee)| says_more(callee));
                let of = said.into_iter().map(|(location, callee)| {
                    let callee = match callee {
                        Callee::Function(callee) if is_said => Callee::Function(numbers.of(callee)),
                        Callee::Function(_) | Callee::Unknown => Callee::Unknown,
                    };
                    (location.filter(|_| is_whole), callee)
                });
                if is_whole || is_said {
                    sites.push(frames::Site { place, of: of.collect() });
                }
            }
            if is_whole || is_thunk || !sites.is_empty() {
                let functions = here.into_iter().map(|function| numbers.of(function)).collect();
                codes.push(frames::Code { functions, is_thunk, sites });
                code.push(name(symbol));
            }
        }
        let table = Table::new(&codes, &numbers.tail_calls(recorded.tail_calls()));
        let functions = numbers.functions.into_iter().map(name).collect();
        FrameTable { table, functions, code }
    }

    /// The functions of whose calls something follows for the frames within: their code is shared,
    /// or they have tail calls, all of which are known.
    fn says(&self, symbols: &BTreeSet<Key>) -> BTreeSet<Key> {
        let mut says = BTreeSet::new();
        for &symbol in symbols {
            let here: Vec<Key> = self.functions_of(symbol).collect();
            let is_one = here.len() == 1;
            let more = here.iter().filter(|&at| match self.recorded().tail_calls().get(at) {
                Some(TailCallees::Known(callees)) => !is_one || !callees.is_empty(),
                None | Some(TailCallees::Any) => false,
            });
            says.extend(more.copied());
        }
        says
    }

    /// The functions that code may be running. A body that a plan added is none: it is not
    /// recorded, as its functions are. Code that is recorded and no function of the plan is that of
    /// itself.
    fn functions_of(&self, code: Key) -> impl Iterator<Item = Key> + use<'_> {
        let recorded = self.recorded();
        let all = self.originals_of(&name(code)).map(|original| key(&original.symbol));
        let are_recorded = !recorded.places(&code).is_empty();
        let is_alone = self.original(&name(code)).is_none() && recorded.has(&code);
        let all = all.filter(move |function| !are_recorded || recorded.has(function));
        all.chain(is_alone.then_some(code))
    }
}

fn name((namespace, index): Key) -> UserExternalName {
    UserExternalName { namespace, index }
}

/// Functions by number.
#[derive(Default)]
struct Numbers {
    functions: Vec<Key>,
    numbers: BTreeMap<Key, u32>,
}

impl Numbers {
    fn of(&mut self, function: Key) -> u32 {
        let Numbers { functions, numbers } = self;
        *numbers.entry(function).or_insert_with(|| {
            functions.push(function);
            functions.len() as u32 - 1
        })
    }

    /// The tail calls of all of them, and of those that they tail-call, which get numbers.
    fn tail_calls(&mut self, of: &TailCalls<Key>) -> TailCalls<u32> {
        let mut all = TailCalls::new();
        while let Some(function) = self.functions.get(all.len()) {
            let callees = match of.get(function) {
                None | Some(TailCallees::Any) => TailCallees::Any,
                Some(TailCallees::Known(callees)) => {
                    TailCallees::Known(callees.iter().map(|&callee| self.of(callee)).collect())
                }
            };
            all.insert(all.len() as u32, callees);
        }
        all
    }
}

/// The source location and the callee of an instruction.
fn said(site: Option<Site>) -> (Option<u32>, Callee<Key>) {
    let Some(Site { location, callee }) = site else {
        return (None, Callee::Unknown);
    };
    ((!location.is_default()).then(|| location.bits()), callee)
}
