//! Repeats much of one flush in a later one, with more or fewer facts.

use super::generate::Drawn;
use super::program::{FROZEN, Facts, Hole, Part};
use crate::modules::Item;
use arbitrary::{Result, Unstructured};

impl Drawn {
    /// Defines much of what one flush defines a second time in a later flush, where it refers to
    /// the copies there. A front end does that when it makes the same instances again and has more
    /// or fewer facts about them.
    ///
    /// Returns the functions of which there is a copy, with the copy.
    pub(super) fn echo(&mut self, u: &mut Unstructured<'_>) -> Result<Vec<(usize, usize)>> {
        let flush = u.int_in_range(1..=self.style.flushes - 1)?;
        let source = if u.ratio(2, 3)? { 0 } else { u.int_in_range(0..=flush - 1)? };
        // Equal to what was eliminated, and eliminated as that was.
        let exact = self.style.eliminates && u.ratio(3, 4)?;
        let dense = if exact { 16 } else { *u.choose(&[2, 2, 4, 8])? };
        let mut copies: Vec<(Part, Part)> = Vec::new();
        let parts = self.program.flushes[source].defined.clone();
        for part in parts.into_iter().filter(|part| *part != Part::Data(FROZEN)) {
            if u.ratio(1, dense)? {
                continue;
            }
            let copy = match part {
                Part::Function(function) => {
                    let copy = self.program.functions[function].clone();
                    self.program.functions.push(copy);
                    Part::Function(self.program.functions.len() - 1)
                }
                Part::Data(data) => {
                    let copy = self.program.data[data].clone();
                    self.program.data.push(copy);
                    Part::Data(self.program.data.len() - 1)
                }
            };
            copies.push((part, copy));
        }
        let copied = |part: Part| {
            let copy = copies.iter().find(|(of, _)| *of == part);
            copy.map_or(part, |(_, copy)| *copy)
        };
        let function_of = |part| match part {
            Part::Function(function) => function,
            Part::Data(_) => unreachable!("a function has another one as its copy"),
        };
        let data_of = |part| match part {
            Part::Data(data) => data,
            Part::Function(_) => unreachable!("a data object has another one as its copy"),
        };
        let (changes, facts, aligns) = match exact {
            true => (false, 3, false),
            false => (u.ratio(1, 3)?, u.int_in_range(0..=3)?, u.ratio(1, 4)?),
        };
        for &(_, copy) in &copies {
            match copy {
                Part::Function(number) => {
                    let function = &mut self.program.functions[number];
                    for hole in function.holes() {
                        match hole {
                            Hole::Constant(value) if changes && u.ratio(1, 6)? => *value ^= 2,
                            Hole::Function(callee) => {
                                *callee = function_of(copied(Part::Function(*callee)));
                            }
                            Hole::Data(data) => *data = data_of(copied(Part::Data(*data))),
                            Hole::Constant(_)
                            | Hole::Float(_)
                            | Hole::Offset(..)
                            | Hole::Item(..) => {}
                        }
                    }
                    let other = self.facts(u)?;
                    let facts = match facts {
                        0 | 1 => Facts::default(),
                        2 if u.arbitrary()? => other,
                        _ => self.program.functions[number].facts,
                    };
                    self.program.functions[number].facts = facts;
                    if aligns && u.arbitrary()? {
                        self.program.functions[number].attributes.alignment = 64;
                    }
                }
                Part::Data(number) => {
                    if aligns && u.arbitrary()? {
                        self.program.data[number].attributes.alignment = 64;
                    }
                    for item in &mut self.program.data[number].items {
                        match item {
                            Item::Number(_) => {}
                            Item::Function(function) => {
                                *function = function_of(copied(Part::Function(*function)));
                            }
                            Item::Data { data, .. } => *data = data_of(copied(Part::Data(*data))),
                        }
                    }
                }
            }
            self.program.flushes[flush].defined.push(copy);
        }
        let functions = copies.into_iter().filter_map(|pair| match pair {
            (Part::Function(function), Part::Function(copy)) => Some((function, copy)),
            _ => None,
        });
        Ok(functions.collect())
    }
}
