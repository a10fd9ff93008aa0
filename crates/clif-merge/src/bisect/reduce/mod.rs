//! `bisect --reduce`: a unit that is as small as possible and still shows the failure.
//!
//! Delta debugging: parts are left out in chunks, which are halved where nothing can be left out
//! any more, until no single part can. Functions come first, then data objects, blocks,
//! instructions, parameters of blocks, source locations, stack limits and directives. Functions
//! that merge resemble each other, so that blocks and instructions are removed from all functions
//! of one shape at once. The remaining unit was read from its text, and so verified by Cranelift,
//! before the command is run on it: without merges it must succeed, with all of them fail.
//!
//! It does *not* reduce signatures or the contents of data objects, and it does not look for the
//! same cause: a command that fails for several reasons can lead to another one.

mod body;
mod compact;

use super::command::{Command, Outcome};
use super::make::Maker;
use crate::args::General;
use crate::table::thousands;
use anyhow::Result;
use clif_unit::contain::contain;
use clif_unit::emit_text::emit_unmerged;
use clif_unit::unit::Unit;
use compact::{compact, number};
use cranelift_codegen::ir::Function;
use cranelift_mergefunc::{Attributes, cranelift_codegen};
use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;

/// How large a unit is; the first number that differs decides. Every step makes it smaller, so
/// there is an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Size {
    /// Functions and data objects.
    definitions: usize,
    blocks: usize,
    instructions: usize,
    parameters: usize,
    bytes: usize,
}

impl Size {
    fn of(unit: &Unit, text: &str) -> Size {
        let sum = |count: fn(&Function) -> usize| unit.functions.iter().map(count).sum();
        Size {
            definitions: unit.functions.len() + unit.data.len(),
            blocks: sum(body::block_count),
            instructions: sum(body::instruction_count),
            parameters: sum(|func| {
                body::shape(func).iter().map(|&(parameters, _)| parameters).sum()
            }),
            bytes: text.len(),
        }
    }
}

/// Reduces units.
pub struct Reducer<'a> {
    maker: &'a Maker<'a>,
    command: &'a mut Command,
    /// The count of runs at which it ends.
    most: usize,
    general: General,
    /// Digests of the texts that were tried. If two texts had one, the second would not be tried.
    tried: HashSet<u64>,
    /// Whether what is not used can be left out of the text.
    compacts: bool,
}

/// A unit that shows the failure.
struct State {
    unit: Unit,
    text: String,
    size: Size,
}

/// Changes a copy of a unit.
type Edit<'a> = &'a dyn Fn(&mut Unit);

/// Changes the block at a place.
type BlockEdit<'a> = &'a dyn Fn(&mut Function, usize);

impl<'a> Reducer<'a> {
    /// Runs the command at most `most` times.
    pub fn new(
        maker: &'a Maker<'a>,
        command: &'a mut Command,
        most: usize,
        general: General,
    ) -> Reducer<'a> {
        let most = command.runs().saturating_add(most);
        Reducer { maker, command, most, general, tried: HashSet::new(), compacts: true }
    }

    /// The text of the smallest unit that is found. `involved` are the functions that have most to
    /// do with the failure.
    ///
    /// # Errors
    ///
    /// If the command cannot be run.
    pub fn reduce(&mut self, unit: &Unit, involved: &BTreeSet<usize>) -> Result<String> {
        let start = emit_unmerged(unit);
        let unit = self.maker.read(&start)?;
        let size = Size::of(&unit, &start);
        let mut state = State { unit, text: start, size };
        self.compacts = self.takes(&mut state, compact)?;
        let others = |unit: &mut Unit| {
            retain(unit, &|function| involved.contains(&function), &|_| true);
        };
        if self.attempt(&mut state, &others)? {
            self.attempt(&mut state, &|unit| unit.data.clear())?;
        }
        loop {
            let before = state.size;
            self.definitions(&mut state)?;
            self.blocks(&mut state)?;
            self.instructions(&mut state)?;
            self.parameters(&mut state)?;
            self.properties(&mut state)?;
            self.directives(&mut state)?;
            if state.size == before || self.is_over() {
                break;
            }
        }
        self.takes(&mut state, number)?;
        if self.is_over() {
            self.general.say("not reduced any further: --max-runs");
        }
        let Size { definitions, blocks, instructions, .. } = state.size;
        let [definitions, blocks, instructions] =
            [definitions, blocks, instructions].map(|count| thousands(count as u64));
        self.general.say(&format!(
            "reduced to {definitions} functions and data objects, {blocks} blocks, {instructions} instructions"
        ));
        Ok(self.maker.with_header(&state.text))
    }

    /// Replaces the text by an equivalent edited one, if that still shows the failure. Whether it
    /// does.
    fn takes(&mut self, state: &mut State, edit: fn(&str) -> String) -> Result<bool> {
        let text = edit(&state.text);
        if text == state.text {
            return Ok(true);
        }
        let Ok(unit) = self.maker.read(&text) else { return Ok(false) };
        let takes = !self.is_over() && self.shows_failure(&unit)?;
        if takes {
            let size = Size::of(&unit, &text);
            *state = State { unit, text, size };
        }
        Ok(takes)
    }

    /// Two runs may be needed for an attempt.
    fn is_over(&self) -> bool {
        self.command.runs() + 2 > self.most
    }

    /// Replaces the unit by an edited one, if that is smaller and shows the failure. Whether it
    /// did.
    fn attempt(&mut self, state: &mut State, edit: Edit<'_>) -> Result<bool> {
        if self.is_over() {
            return Ok(false);
        }
        let mut edited = copy(&state.unit);
        // An edit that leaves something impossible behind can make Cranelift panic.
        let text = contain(|| {
            edit(&mut edited);
            let text = emit_unmerged(&edited);
            if self.compacts { compact(&text) } else { text }
        });
        let Ok(text) = text else { return Ok(false) };
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        if !self.tried.insert(hasher.finish()) {
            return Ok(false);
        }
        let Ok(unit) = self.maker.read(&text) else { return Ok(false) };
        let size = Size::of(&unit, &text);
        if size >= state.size || !self.shows_failure(&unit)? {
            return Ok(false);
        }
        if self.general.verbose {
            let runs = thousands(self.command.runs() as u64);
            self.general.say(&format!(
                "{runs} runs: {} functions and data objects, {} blocks, {} instructions, {} bytes",
                size.definitions, size.blocks, size.instructions, size.bytes,
            ));
        }
        *state = State { unit, text, size };
        Ok(true)
    }

    /// Whether the command fails with all merges and succeeds without.
    fn shows_failure(&mut self, unit: &Unit) -> Result<bool> {
        let texts = contain(|| {
            [self.maker.most(), Some(0)].map(|limit| {
                let merged = self.maker.merged(unit, limit).ok()?;
                Some(self.maker.text(unit, &merged))
            })
        });
        let Ok([Some(with), Some(without)]) = texts else { return Ok(false) };
        if with == without {
            return Ok(false);
        }
        for (text, expected) in [(with, Outcome::Fails), (without, Outcome::Passes)] {
            let Ok(contents) = self.maker.contents(&text) else { return Ok(false) };
            if self.command.on_file(&self.maker.write(&contents)?)? != expected {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes an edit of parts in ever smaller chunks, from the last part to the first. `count` is
    /// how many parts there are.
    fn chunks(
        &mut self,
        state: &mut State,
        count: &dyn Fn(&Unit) -> usize,
        edit: &dyn Fn(&mut Unit, Range<usize>),
    ) -> Result<()> {
        let mut length = count(&state.unit);
        while length > 0 {
            let mut end = count(&state.unit);
            while end > 0 && !self.is_over() {
                let start = end.saturating_sub(length);
                self.attempt(state, &|unit| edit(unit, start..end))?;
                end = start.min(count(&state.unit));
            }
            length /= 2;
        }
        Ok(())
    }

    fn definitions(&mut self, state: &mut State) -> Result<()> {
        self.chunks(state, &|unit| unit.functions.len(), &|unit, chunk| {
            retain(unit, &|function| !chunk.contains(&function), &|_| true);
        })?;
        self.chunks(state, &|unit| unit.data.len(), &|unit, chunk| {
            retain(unit, &|_| true, &|data| !chunk.contains(&data));
        })
    }

    /// Makes an edit of parts of functions: in all functions of a shape at once, then in single
    /// ones.
    fn in_functions(
        &mut self,
        state: &mut State,
        count: &dyn Fn(&Function) -> usize,
        edit: &dyn Fn(&mut Function, Range<usize>),
    ) -> Result<()> {
        for together in [true, false] {
            for first in 0..state.unit.functions.len() {
                let group = group(&state.unit, first, together);
                // The group of an earlier function, or one that comes later as a single function.
                if group[0] != first || together && group.len() == 1 {
                    continue;
                }
                self.chunks(state, &|unit| count(&unit.functions[first]), &|unit, chunk| {
                    for &function in &group {
                        let func = &mut unit.functions[function];
                        if chunk.end <= count(func) {
                            edit(func, chunk.clone());
                        }
                    }
                })?;
            }
        }
        Ok(())
    }

    fn blocks(&mut self, state: &mut State) -> Result<()> {
        self.in_functions(state, &body::block_count, &body::trap)?;
        let edits: [BlockEdit<'_>; 4] = [
            &body::stop,
            &|func, place| body::straighten(func, place, 0),
            &|func, place| body::straighten(func, place, 1),
            &body::join,
        ];
        for edit in edits {
            self.in_functions(state, &body::block_count, &|func, places| {
                for place in places.rev() {
                    edit(func, place);
                }
            })?;
        }
        Ok(())
    }

    fn instructions(&mut self, state: &mut State) -> Result<()> {
        self.in_functions(state, &body::removable_count, &body::remove_instructions)
    }

    fn parameters(&mut self, state: &mut State) -> Result<()> {
        // Those of the entry block are the signature.
        let places = |func: &Function| {
            let shape = body::shape(func).into_iter().enumerate().skip(1);
            let places =
                shape.flat_map(|(block, (count, _))| (0..count).map(move |at| (block, at)));
            places.collect::<Vec<_>>()
        };
        self.in_functions(state, &|func| places(func).len(), &|func, chunk| {
            for &(block, number) in places(func)[chunk].iter().rev() {
                body::remove_parameter(func, block, number);
            }
        })
    }

    /// Removes properties of functions besides blocks.
    fn properties(&mut self, state: &mut State) -> Result<()> {
        let edits: [&dyn Fn(&mut Function); 2] =
            [&|func| func.srclocs.clear(), &|func| func.stack_limit = None];
        for edit in edits {
            self.chunks(state, &|unit| unit.functions.len(), &|unit, chunk| {
                unit.functions[chunk].iter_mut().for_each(edit);
            })?;
        }
        Ok(())
    }

    fn directives(&mut self, state: &mut State) -> Result<()> {
        let default = Attributes::default();
        let edits: [&dyn Fn(&mut Attributes); 3] = [
            &|own| *own = Attributes { linkage: own.linkage, addresses: own.addresses, ..default },
            &|own| own.linkage = default.linkage,
            &|own| own.addresses = default.addresses,
        ];
        for edit in edits {
            self.chunks(state, &|unit| unit.functions.len(), &|unit, chunk| {
                unit.given[chunk].iter_mut().for_each(|given| edit(&mut given.attributes));
            })?;
        }
        self.chunks(state, &|unit| unit.functions.len(), &|unit, chunk| {
            for given in &mut unit.given[chunk] {
                // A function that is a thunk only by its directive is a caller without it.
                if given.became.take().is_some() {
                    given.attributes.pinned = false;
                    given.attributes.no_merge = false;
                }
            }
        })
    }
}

/// The functions that have the shape of one, itself included, in their order; or that one alone.
fn group(unit: &Unit, first: usize, together: bool) -> Vec<usize> {
    if !together {
        return vec![first];
    }
    let of = |function: &Function| (function.signature.clone(), body::shape(function));
    let wanted = of(&unit.functions[first]);
    (0..unit.functions.len()).filter(|&at| of(&unit.functions[at]) == wanted).collect()
}

/// Only some functions and data objects. References to the others are to symbols that are defined
/// elsewhere.
fn retain(unit: &mut Unit, functions: &dyn Fn(usize) -> bool, data: &dyn Fn(usize) -> bool) {
    let mut at = 0..;
    unit.functions.retain(|_| at.next().is_some_and(functions));
    let mut at = 0..;
    unit.given.retain(|_| at.next().is_some_and(functions));
    let mut at = 0..;
    unit.data.retain(|_| at.next().is_some_and(data));
}

fn copy(unit: &Unit) -> Unit {
    Unit {
        functions: unit.functions.clone(),
        given: unit.given.clone(),
        data: unit.data.clone(),
        names: unit.names.clone(),
    }
}
