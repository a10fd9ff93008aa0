//! The interface to the embedder: bodies, data objects, fresh symbols.

use super::{DataIndex, DataObject, FunctionIndex};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::EntityRef;

/// Hands out the bodies of a unit's functions.
///
/// The caller owns the functions; the pass requests those it needs, in an order of its own, some
/// of them twice.
///
/// An implementor must ensure that
/// * a body is the same whenever it is requested, and the one given to
///   [`Merger::add`](crate::Merger::add);
/// * it passes Cranelift's verifier.
///
/// Failure to uphold these may result in functions that are not merged, in panics, or, if bodies
/// change in between, in wrong merges.
///
/// See the [example](crate#example).
pub trait Bodies {
    /// The body of `function`.
    fn body(&mut self, function: FunctionIndex) -> &Function;

    /// The contents of `data`. Requested only if data objects were added. An object whose contents
    /// are not available is not merged. Default: none are.
    fn data(&mut self, data: DataIndex) -> Option<&DataObject> {
        let _ = data;
        None
    }

    /// A symbol that nothing uses yet, for a private copy or a parameterised body that replaces
    /// `members`, ascending; a different one at each call. More functions may be merged into the
    /// body later, and the body itself may be merged into another one: see
    /// [`NewBody::members`](crate::NewBody::members). Default: there are none, and functions that
    /// would need one are not merged.
    ///
    /// Planning panics if it is the symbol of a function that was added, or of one that is known to
    /// be called and arrives alone ([`StreamingMerger`](crate::streaming::StreamingMerger)).
    fn fresh_symbol(&mut self, members: &[FunctionIndex]) -> Option<UserExternalName> {
        let _ = members;
        None
    }

    /// The name by which linkers know a symbol that means the same function or data object in all
    /// units: not one that only this unit can see. A content-addressed body
    /// ([`Options::content_addressing`](crate::Options::content_addressing)) refers to nothing else
    /// but other such bodies. Two symbols must not have one name. Default: none has any.
    fn link_name(&mut self, symbol: &UserExternalName) -> Option<String> {
        let _ = symbol;
        None
    }

    /// The same functions, for several threads at a time. With the feature `parallel`, the pass
    /// then works on all threads of the current `rayon` pool, with the same result. Default: none,
    /// and the pass works on one thread.
    fn sync(&self) -> Option<Box<dyn SyncBodies + '_>> {
        None
    }
}

/// Symbols that nothing uses yet: for [`Bodies::fresh_symbol`].
///
/// ```
/// # use cranelift_mergefunc::{FreshSymbols, cranelift_codegen::ir::UserExternalName};
/// let used = [UserExternalName::new(0, 7), UserExternalName::new(3, 0)];
/// let mut fresh = FreshSymbols::beside(used);
/// assert_eq!(fresh.next(0), Some(UserExternalName::new(0, 8)));
/// assert_eq!(fresh.next(0), Some(UserExternalName::new(0, 9)));
/// assert_eq!(fresh.next(1), Some(UserExternalName::new(1, 0)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct FreshSymbols {
    /// The next index of each namespace.
    next: BTreeMap<u32, Option<u32>>,
}

impl FreshSymbols {
    /// Symbols behind all of these, which the unit uses.
    pub fn beside(used: impl IntoIterator<Item = UserExternalName>) -> FreshSymbols {
        let mut next: BTreeMap<u32, Option<u32>> = BTreeMap::new();
        for UserExternalName { namespace, index } in used {
            let next = next.entry(namespace).or_insert(Some(0));
            *next = next.and_then(|next| Some(next.max(index.checked_add(1)?)));
        }
        FreshSymbols { next }
    }

    /// A symbol of this namespace, another one at each call. `None` if all are used.
    pub fn next(&mut self, namespace: u32) -> Option<UserExternalName> {
        let next = self.next.entry(namespace).or_insert(Some(0));
        let index = (*next)?;
        *next = index.checked_add(1);
        Some(UserExternalName { namespace, index })
    }
}

/// Hands out the bodies of a unit's functions to several threads at a time, with the obligations of
/// [`Bodies`].
///
/// See the [example](crate#example).
pub trait SyncBodies: Sync {
    /// The body of `function`.
    fn body(&self, function: FunctionIndex) -> &Function;

    /// The contents of `data`: see [`Bodies::data`].
    fn data(&self, data: DataIndex) -> Option<&DataObject> {
        let _ = data;
        None
    }
}

/// Functions in the order in which they were added.
impl SyncBodies for &[Function] {
    fn body(&self, function: FunctionIndex) -> &Function {
        &self[function.index()]
    }
}

/// Functions in the order in which they were added.
impl Bodies for Vec<Function> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self[function.index()]
    }

    fn sync(&self) -> Option<Box<dyn SyncBodies + '_>> {
        Some(Box::new(&**self))
    }
}

/// Functions in the order in which they were added.
impl Bodies for &[Function] {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self[function.index()]
    }

    fn sync(&self) -> Option<Box<dyn SyncBodies + '_>> {
        Some(Box::new(&**self))
    }
}
