//! The emission of each function and data object of a plan: bodies, thunks, aliases, or nothing.
//!
//! Every back end carries a plan out by these functions. They decide nothing: an output is the
//! disposition of an entry together with all that it takes to emit it.
//!
//! [`reached`] is the one answer to what a symbol leads to once that is done: whether there is code
//! under it, whose code runs when it is called, with which extra arguments, and whether its address
//! is its own. Plans, the merge cache, the checker, merge maps and the flushes of a module ask it,
//! each of the dispositions that it knows.

use super::{Disposition, LateThunk, NewBody, Plan, Reason};
use crate::extra_argument::ExtraArgument;
use crate::unit::{DataIndex, FunctionIndex, Item};
use alloc::vec::Vec;
use core::fmt;
use cranelift_codegen::ir::{Function, Signature, UserExternalName};
use cranelift_entity::EntityRef;

/// The emission under the symbol of a function.
///
/// See the [example](crate#example).
#[derive(Clone, Debug)]
pub struct Output<'a> {
    /// The function.
    pub function: FunctionIndex,
    /// Its symbol.
    pub symbol: &'a UserExternalName,
    /// The alignment in bytes that its code needs.
    pub alignment: u32,
    /// The code to emit.
    pub emit: Emit<'a>,
    /// The function whose body is the one of [`Emit::Body`], and whose signature a thunk has: the
    /// function itself, or, where functions arrived one at a time
    /// ([`streaming`](crate::streaming)), the one that it was known to equal.
    pub code: FunctionIndex,
    /// The target of references to it: whose code runs when it is called, with which extra
    /// arguments, and where its address may go.
    pub reached: Reached<'a, FunctionIndex>,
}

/// The code to emit for a function.
///
/// See the [example](crate#example).
#[derive(Clone, Debug)]
pub enum Emit<'a> {
    /// Its body, after [`Plan::apply`].
    Body,
    /// This body, which the plan adds, after [`Plan::apply`].
    NewBody(&'a Function),
    /// A jump: [`Target::thunk_code`](crate::Target::thunk_code), optimised as
    /// [`Plan::optimize_for`] says, or [`call_thunk`](crate::thunk::call_thunk).
    Thunk {
        /// Its target.
        to: &'a UserExternalName,
        /// The arguments that it passes behind those that it receives.
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

/// The emission under the symbol of a data object.
///
/// See the [example](crate::data).
#[derive(Clone, Debug)]
pub struct DataOutput<'a> {
    /// The data object.
    pub data: DataIndex,
    /// Its symbol.
    pub symbol: &'a UserExternalName,
    /// The alignment in bytes that it needs.
    pub alignment: u64,
    /// The data to emit.
    pub emit: DataEmit<'a>,
}

/// The data to emit for a data object.
///
/// See the [example](crate::data).
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

/// The target of references to a function or data object once it was planned, and carried out.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug)]
pub struct Reached<'a, I> {
    /// Whose code or contents are under its symbol. `None` if there is nothing: then no reference
    /// may name it.
    pub symbol: Option<I>,
    /// Which symbol references to its address name. `None` if it has no address, because only calls
    /// pass what its code takes.
    pub address: Option<I>,
    /// Which symbol direct calls name, with the extra arguments if it is another one, unless
    /// another definition may take the symbol of the function.
    pub call: I,
    /// Whose body or contents it has in the end.
    pub body: I,
    /// The arguments that the body takes behind those of the function.
    pub extra: &'a [ExtraArgument],
}

impl<I: Copy + PartialEq> Reached<'_, I> {
    /// Whether its symbol has an address that no other symbol has, so that it may be compared.
    pub fn has_own_address(&self, item: I) -> bool {
        self.symbol == Some(item)
    }
}

/// The target of references to an item. `of` returns the disposition of an item, and the extra
/// arguments that its representative takes in its place.
///
/// See the [example](crate#example).
pub fn reached<'a, I: Copy>(
    item: I,
    of: impl Fn(I) -> (Disposition<I>, &'a [ExtraArgument]),
) -> Reached<'a, I> {
    let (disposition, extra) = of(item);
    let (symbol, address, call) = match disposition {
        Disposition::Keep => (Some(item), Some(item), item),
        // The thunk exists anyway, and passes the extra arguments.
        Disposition::Thunk { to } => {
            (Some(item), Some(item), if extra.is_empty() { to } else { item })
        }
        Disposition::Alias { to } => (Some(to), Some(item), to),
        Disposition::Redirect { to } => (None, extra.is_empty().then_some(to), to),
    };
    let (mut body, mut extra): (I, &[ExtraArgument]) = (item, &[]);
    // A representative keeps its body, or is a thunk that passes extra arguments to a parameterised
    // body.
    for _ in 0..2 {
        let (disposition, passed) = of(body);
        let Some(to) = disposition.representative().filter(|_| extra.is_empty()) else {
            break;
        };
        (body, extra) = (to, passed);
    }
    Reached { symbol, address, call, body, extra }
}

/// Why there is no code, and are no contents, under a symbol: see [`Plan::without_code`].
///
/// See the [example](crate::incremental).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoCode {
    /// The symbol.
    pub symbol: UserExternalName,
    /// The function or data object that replaced it.
    pub to: UserExternalName,
    /// How many extra arguments its calls pass.
    pub extra_arguments: usize,
    /// Why it was merged, if that is known of an earlier unit.
    pub reason: Option<Reason>,
    /// Whether an earlier unit eliminated it.
    pub earlier: bool,
}

impl fmt::Display for NoCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoCode { symbol, to, extra_arguments, reason, earlier } = self;
        let unit = if *earlier { "an earlier unit" } else { "this unit" };
        write!(f, "{symbol} has no code: {unit} merged it into {to}")?;
        match extra_arguments {
            0 => {}
            1 => f.write_str(", which takes an extra argument")?,
            extra => write!(f, ", which takes {extra} extra arguments")?,
        }
        match reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for NoCode {}

impl Plan {
    /// The target of references to a function.
    pub(crate) fn reached(&self, function: FunctionIndex) -> Reached<'_, FunctionIndex> {
        reached(function, |function| {
            let entry = self.entry(function);
            (entry.disposition(), entry.extra_arguments())
        })
    }

    /// The target of references to a data object.
    pub(crate) fn data_reached(&self, data: DataIndex) -> Reached<'_, DataIndex> {
        reached(data, |data| (self.data[data].disposition(), &[]))
    }

    /// Why there is no code or data under a symbol, if there is none because this plan, or an
    /// earlier unit that this plan knows of, merged it away.
    ///
    /// No reference that is emitted may name such a symbol. A back end that checks that, of each
    /// relocation, each pointer in data, and each target and extra argument of a thunk, before it
    /// writes any of them, writes no code that leads nowhere, whatever is wrong with a plan.
    /// Constant time. For the plan of an incremental run, use
    /// [`MergeCache::without_code`](crate::incremental::MergeCache::without_code).
    pub fn without_code(&self, symbol: &UserExternalName) -> Option<NoCode> {
        let (to, reason, extra, earlier) = match self.item_of(symbol)? {
            Item::Function(function) if self.reached(function).symbol.is_none() => {
                let entry = self.entry(function);
                let to = self.entry(entry.disposition().representative()?).symbol();
                let extra = entry.extra_arguments().len();
                (to, entry.reason(), extra, self.eliminated_signature(function).is_some())
            }
            Item::Data(data) if self.data_reached(data).symbol.is_none() => {
                let entry = &self.data[data];
                let to = &self.data[entry.disposition().representative()?].symbol;
                (to, entry.reason(), 0, data.index() >= self.added_data())
            }
            Item::Function(_) | Item::Data(_) => return None,
        };
        Some(NoCode {
            symbol: symbol.clone(),
            to: to.clone(),
            extra_arguments: extra,
            reason: Some(reason),
            earlier,
        })
    }

    /// The emissions of this unit: for the functions that were added, in their order, for functions
    /// that earlier units eliminated and that need code now, and for new bodies.
    pub fn outputs(&self) -> impl Iterator<Item = Output<'_>> {
        let added = (0..self.added()).map(FunctionIndex::new);
        let late = self.earlier.late_thunks.iter().map(|late| late.function);
        let new = self.new_bodies.iter().map(|new| new.function);
        added.chain(late).chain(new).map(|function| self.output(function))
    }

    /// The emission of one function.
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
        Output {
            function,
            symbol: entry.symbol(),
            alignment: entry.alignment(),
            emit,
            code: self.emission.code.get(function.index()).copied().unwrap_or(function),
            reached: self.reached(function),
        }
    }

    fn late_thunk(&self, function: FunctionIndex) -> Option<&LateThunk> {
        let key = |late: &LateThunk| late.function.index();
        let at = self.earlier.late_thunks.binary_search_by_key(&function.index(), key).ok()?;
        Some(&self.earlier.late_thunks[at])
    }

    /// The emissions of the data objects that were added, in their order.
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
