//! Refers to functions of earlier flushes once more, in a later flush: what was eliminated by then
//! is called, pointed to and compared.
//!
//! The functions are equal or similar, and were defined in one flush or in several. They are
//! referred to in the same way, so their callers are equal where they are.

use super::generate::Drawn;
use super::program::{
    Address, Callee, Data, End, Facts, Function, Part, Place, Pointer, Shape, Statement,
};
use crate::modules::Item;
use arbitrary::{Result, Unstructured};
use cranelift_module::Linkage;

/// How the functions of earlier flushes are referred to.
#[derive(Clone, Copy)]
enum Reference {
    Call,
    Address,
    Table,
    Compare,
}

impl Drawn {
    /// Defines, in a later flush, a caller of each of some functions of one family, or of these
    /// pairs: a function and its copy in another flush.
    pub(super) fn call_later(
        &mut self,
        pairs: &[(usize, usize)],
        u: &mut Unstructured<'_>,
    ) -> Result<()> {
        let mut functions: Vec<usize> = match pairs.is_empty() || u.ratio(1, 3)? {
            true => u.choose(&self.families)?.clone(),
            false => {
                let (function, _) = *u.choose(pairs)?;
                let family = self.program.functions[function].family;
                let is_member =
                    |(of, _): &&(usize, usize)| self.program.functions[*of].family == family;
                pairs.iter().filter(is_member).flat_map(|&(of, copy)| [of, copy]).collect()
            }
        };
        functions.truncate(6);
        let Some(&first) = functions.first() else {
            return Ok(());
        };
        let defined = functions.iter().map(|&at| self.program.flush_of(Part::Function(at)));
        let last = self.style.flushes - 1;
        let earliest = defined.max().unwrap_or(0);
        let flush = match u.ratio(1, 2)? {
            true => last,
            false => u.int_in_range((earliest + 1).min(last)..=last)?,
        };
        let reference = *u.choose(&[
            Reference::Call,
            Reference::Call,
            Reference::Call,
            Reference::Address,
            Reference::Table,
            Reference::Compare,
        ])?;
        let family = self.families.len();
        let own = Function {
            family,
            shape: Shape { extras: Vec::new(), tail: false, results: 1 },
            statements: Vec::new(),
            end: End::Return,
            facts: Facts::default(),
            declared: Linkage::Export,
            linkage: Linkage::Export,
            attributes: self.attributes(false, u)?,
            bytes: false,
        };
        let shape = self.program.functions[first].shape.clone();
        let mut passes = self.passes(&own, &shape, u)?;
        passes.pointers = [Pointer::Own(0), Pointer::Own(1)];
        let table = match reference {
            Reference::Table => Some(self.table(&functions, flush, u)?),
            Reference::Call | Reference::Address | Reference::Compare => None,
        };
        let mut members = Vec::new();
        for (slot, &function) in functions.iter().enumerate() {
            let call = match (reference, table) {
                (Reference::Call | Reference::Compare, _) => Callee::Direct(function),
                (_, Some(data)) => Callee::Slot(Place { data, slot, base: slot }),
                (Reference::Address | Reference::Table, None) => Callee::Indirect(function),
            };
            let passes = passes.clone();
            let mut statements = vec![Statement::Call { call, passes, in_loop: false, entries: 0 }];
            if matches!(reference, Reference::Compare) {
                let addresses = [Address::Code(function), Address::Code(first)];
                statements.insert(0, Statement::Compare(addresses));
            }
            let number = self.program.functions.len();
            self.program.flushes[flush].defined.push(Part::Function(number));
            self.program.functions.push(Function { statements, ..own.clone() });
            members.push(number);
        }
        self.families.push(members);
        self.program.later += functions.len();
        Ok(())
    }

    /// A table of these functions that is defined in this flush.
    fn table(
        &mut self,
        functions: &[usize],
        flush: usize,
        u: &mut Unstructured<'_>,
    ) -> Result<usize> {
        let number = self.program.data.len();
        let items = functions.iter().map(|&function| Item::Function(function)).collect();
        let attributes = self.attributes(true, u)?;
        let (family, linkage) = (self.data_families.len(), Linkage::Local);
        self.program.data.push(Data { family, items, writable: false, linkage, attributes });
        self.data_families.push(vec![number]);
        self.program.flushes[flush].defined.push(Part::Data(number));
        Ok(number)
    }
}
