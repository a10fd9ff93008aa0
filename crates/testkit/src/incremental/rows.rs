//! Families of functions of one shape that call each other.
//!
//! A sharing map makes functions of one shape share a body that is passed their callees. So here a
//! callee can be a function that shares the body, one that is equal to such a function and is
//! merged into it, or the function itself.

use super::generate::{Drawn, STEPS};
use super::program::{
    Address, Callee, End, Extra, Facts, Function, Hole, Operation, Part, Pointer, Shape, Statement,
};
use arbitrary::{Result, Unstructured};
use cranelift_module::Linkage;

impl Drawn {
    /// Functions that differ in constants and in whom they call: leaves, and each other. Many are
    /// equal, as they are written or because those are that they call.
    pub(super) fn rows(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let extras = vec![Extra::I64; *u.choose(&[0, 0, 0, 1, 2, 4])?];
        let shape = Shape { extras, tail: u.ratio(1, 10)?, results: 1 };
        let mut leaves = Vec::new();
        for leaf in 0..u.int_in_range(1..=3)? {
            let own = Statement::Constant(Operation::Xor, 1 << leaf);
            let flush = u.choose_index(self.style.flushes)?;
            let leaf = self.one(&shape, vec![own], u)?;
            leaves.push(self.push(leaf, flush));
        }
        self.families.push(leaves.clone());
        let first = self.first_row(&shape, u)?;
        let start = self.program.functions.len();
        let count = u.int_in_range(3..=9)?;
        // Of each row: the one that it equals but for its callees, if there is one, and its unit.
        let mut drawn: Vec<(Option<usize>, usize)> = Vec::new();
        for row in 0..count {
            let equal = match row > 0 && u.ratio(1, 2)? {
                true => Some(u.int_in_range(0..=row - 1)?),
                false => None,
            };
            let flush = match equal {
                Some(equal) if u.ratio(3, 4)? => drawn[equal].1,
                _ => u.choose_index(self.style.flushes)?,
            };
            drawn.push((equal, flush));
        }
        for (row, &(equal, flush)) in drawn.iter().enumerate() {
            let mut function = match equal {
                Some(equal) => self.program.functions[start + equal].clone(),
                None => first.clone(),
            };
            // Only of functions that no other unit refers to does merging eliminate the symbol.
            let near: Vec<usize> =
                (0..count).filter(|&other| drawn[other].1 == flush).map(|at| start + at).collect();
            let is_merged = |&at: &usize| drawn[at - start].0.is_some();
            let merged: Vec<usize> = near.iter().copied().filter(is_merged).collect();
            for hole in function.holes() {
                match (hole, equal) {
                    // A call of the function itself is copied as a call of the copy itself.
                    (Hole::Function(callee), Some(equal)) if *callee == start + equal => {
                        *callee = start + row;
                    }
                    (Hole::Function(callee), equal) if equal.is_none() || u.ratio(1, 4)? => {
                        *callee = match u.int_in_range(0..=7)? {
                            0 | 1 => *u.choose(&leaves)?,
                            2..=4 if !merged.is_empty() => *u.choose(&merged)?,
                            2..=5 => *u.choose(&near)?,
                            6 => start + row,
                            _ => start + u.choose_index(count)?,
                        };
                    }
                    (Hole::Constant(value), None) if u.ratio(1, 3)? => {
                        *value = value.wrapping_add(*u.choose(&STEPS)?);
                    }
                    (
                        Hole::Constant(_)
                        | Hole::Float(_)
                        | Hole::Offset(..)
                        | Hole::Function(_)
                        | Hole::Data(_)
                        | Hole::Item(..),
                        _,
                    ) => {}
                }
            }
            let Function { statements, end, .. } = function;
            let own = self.one(&shape, statements, u)?;
            self.push(Function { end, ..own }, flush);
        }
        self.families.push((start..start + count).collect());
        // Code outside reaches them through functions of their own unit that take no address, so
        // that nothing else keeps a symbol.
        let (mut entries, no_merge) = (Vec::new(), u.ratio(3, 4)?);
        for (row, &(_, flush)) in drawn.iter().enumerate() {
            if u.ratio(1, 4)? {
                continue;
            }
            let own = Shape { extras: Vec::new(), tail: false, results: 1 };
            let mut entry = self.one(&own, Vec::new(), u)?;
            let passes = self.passes(&entry, &shape, u)?;
            let call = Callee::Direct(start + row);
            entry.statements.push(Statement::Call { call, passes, in_loop: false, entries: 0 });
            entry.attributes.no_merge |= no_merge;
            (entry.declared, entry.linkage) = (Linkage::Export, Linkage::Export);
            entries.push(self.push(entry, flush));
        }
        if !entries.is_empty() {
            self.families.push(entries);
        }
        Ok(())
    }

    /// A function of a shape, with linkage and attributes of its own.
    fn one(
        &self,
        shape: &Shape,
        statements: Vec<Statement>,
        u: &mut Unstructured<'_>,
    ) -> Result<Function> {
        let linkage = match u.ratio(7, 8)? {
            true => Linkage::Local,
            false => self.draw_linkage(u)?,
        };
        Ok(Function {
            family: self.families.len(),
            shape: shape.clone(),
            statements,
            end: End::Return,
            facts: Facts::default(),
            declared: linkage,
            linkage,
            attributes: self.attributes(false, u)?,
            bytes: false,
        })
    }

    fn push(&mut self, function: Function, flush: usize) -> usize {
        let number = self.program.functions.len();
        self.program.functions.push(function);
        self.program.flushes[flush].defined.push(Part::Function(number));
        number
    }

    /// The common statements of all rows, but for their holes.
    fn first_row(&self, shape: &Shape, u: &mut Unstructured<'_>) -> Result<Function> {
        let own = self.one(shape, Vec::new(), u)?;
        let mix = |u: &mut Unstructured<'_>| -> Result<Statement> {
            let rounds = *u.choose(&[4, 8, 12])?;
            Ok(Statement::Mix { rounds, seed: u.arbitrary::<u16>()?.into() })
        };
        let mut statements = vec![mix(u)?];
        for _ in 0..*u.choose(&[1, 1, 1, 2])? {
            let call = *u.choose(&[
                Callee::Direct(0),
                Callee::Direct(0),
                Callee::Direct(0),
                Callee::Direct(0),
                Callee::Handled(0),
                Callee::Indirect(0),
                Callee::Symbol(0),
            ])?;
            let passes = self.passes(&own, shape, u)?;
            let in_loop = u.ratio(1, 10)?;
            statements.push(Statement::Call { call, passes, in_loop, entries: 0 });
            statements.push(mix(u)?);
        }
        if u.ratio(1, 4)? {
            statements.push(Statement::Constant(Operation::Add, 5));
        }
        if u.ratio(1, 4)? {
            statements.push(Statement::Compare([Address::Code(0), Address::Code(0)]));
        }
        let mut end = End::Return;
        if shape.tail && u.ratio(1, 2)? {
            let mut passes = self.passes(&own, shape, u)?;
            // Its stack slots no longer exist by then.
            passes.pointers = [Pointer::Own(0), Pointer::Own(1)];
            end = End::Tail(0, passes);
        }
        Ok(Function { statements, end, ..own })
    }
}
