//! What is to be emitted for each function and data object of a plan: bodies, thunks, aliases, or nothing.
//!
//! Every back end carries a plan out by these functions. They decide nothing: an output is the disposition of an
//! entry together with all that it takes to emit it.

use super::{Disposition, LateThunk, NewBody, Plan};
use crate::extra_argument::ExtraArgument;
use crate::unit::{DataIndex, FunctionIndex};
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, Signature, UserExternalName};
use cranelift_entity::EntityRef;

/// What is to be emitted under the symbol of a function.
#[derive(Clone, Debug)]
pub struct Output<'a> {
    /// The function.
    pub function: FunctionIndex,
    /// Its symbol.
    pub symbol: &'a UserExternalName,
    /// The alignment in bytes that its code needs.
    pub alignment: u32,
    /// What is to be emitted.
    pub emit: Emit<'a>,
}

/// What is to be emitted for a function.
#[derive(Clone, Debug)]
pub enum Emit<'a> {
    /// Its body, after [`Plan::apply`].
    Body,
    /// This body, which the plan adds, after [`Plan::apply`].
    NewBody(&'a Function),
    /// A jump: [`Target::thunk_code`](crate::Target::thunk_code), optimised as [`Plan::optimize_for`] says, or
    /// [`call_thunk`](crate::call_thunk).
    Thunk {
        /// Its target.
        to: &'a UserExternalName,
        /// What it passes behind the arguments that it receives.
        extra_arguments: Vec<ExtraArgument>,
        /// The signature of the function, if it is not one of the unit but of an earlier one.
        late: Option<&'a Signature>,
    },
    /// Another name for the address of this symbol.
    Alias {
        /// The symbol, which has code.
        to: &'a UserExternalName,
    },
    /// Nothing: no reference to the function is left.
    Nothing,
}

/// What is to be emitted under the symbol of a data object.
#[derive(Clone, Debug)]
pub struct DataOutput<'a> {
    /// The data object.
    pub data: DataIndex,
    /// Its symbol.
    pub symbol: &'a UserExternalName,
    /// The alignment in bytes that it needs.
    pub alignment: u64,
    /// What is to be emitted.
    pub emit: DataEmit<'a>,
}

/// What is to be emitted for a data object.
#[derive(Clone, Copy, Debug)]
pub enum DataEmit<'a> {
    /// Its contents, with the pointers that [`Plan::address_symbol`] returns.
    Contents,
    /// Another name for the address of this symbol.
    Alias {
        /// The symbol, which has contents.
        to: &'a UserExternalName,
    },
    /// Nothing: no reference to the object is left.
    Nothing,
}

impl Plan {
    /// What is to be emitted with this unit: for the functions that were added, in their order, for functions that
    /// earlier units eliminated and that need code now, and for new bodies.
    pub fn outputs(&self) -> impl Iterator<Item = Output<'_>> {
        let added = (0..self.added()).map(FunctionIndex::new);
        let late = self.late_thunks.iter().map(|late| late.function);
        let new = self.new_bodies.iter().map(|new| new.function);
        added.chain(late).chain(new).map(|function| self.output(function))
    }

    /// What is to be emitted for one function.
    ///
    /// # Panics
    ///
    /// If `function` is not from this plan.
    pub fn output(&self, function: FunctionIndex) -> Output<'_> {
        let entry = self.entry(function);
        let emit = match entry.disposition() {
            Disposition::Keep => match self.new_body(function) {
                Some(NewBody { body, .. }) => Emit::NewBody(body),
                None => Emit::Body,
            },
            Disposition::Redirect { to: _ } => Emit::Nothing,
            Disposition::Alias { to } => Emit::Alias { to: &self.functions[to].symbol },
            Disposition::Thunk { to } => Emit::Thunk {
                to: &self.functions[to].symbol,
                extra_arguments: self.thunk_arguments(function),
                late: self.late_thunk(function).map(|late| &*late.signature),
            },
        };
        Output { function, symbol: entry.symbol(), alignment: entry.alignment(), emit }
    }

    fn late_thunk(&self, function: FunctionIndex) -> Option<&LateThunk> {
        let key = |late: &LateThunk| late.function.index();
        let at = self.late_thunks.binary_search_by_key(&function.index(), key).ok()?;
        Some(&self.late_thunks[at])
    }

    /// What is to be emitted for the data objects that were added, in their order.
    pub fn data_outputs(&self) -> impl Iterator<Item = DataOutput<'_>> {
        let entries = self.data.iter().take(self.added_data());
        entries.map(|(data, entry)| {
            let emit = match entry.disposition() {
                Disposition::Keep => DataEmit::Contents,
                Disposition::Redirect { to: _ } => DataEmit::Nothing,
                Disposition::Alias { to } => DataEmit::Alias { to: &self.data[to].symbol },
                Disposition::Thunk { to: _ } => unreachable!("data has no thunks"),
            };
            DataOutput { data, symbol: entry.symbol(), alignment: entry.alignment(), emit }
        })
    }
}
