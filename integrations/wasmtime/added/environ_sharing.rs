//! Functions that share code: where it is, and which of them the frames of a stack belong to.

use crate::prelude::*;
use crate::{CompiledFunctionsTable, FilePos, FuncKey};
use cranelift_mergefunc_frames::{Place, SymbolTable};
use serde::{Deserialize as _, Deserializer, Serializer};
use serde_derive::{Deserialize, Serialize};

/// The raw parts of a [`FuncKey`].
pub type RawKey = (u32, u32);

/// A function that shares the body of another one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Shared {
    /// The function.
    pub key: RawKey,
    /// Where it has its code: under its own key, or under that of another function.
    pub code: RawKey,
    /// Whose body runs in the end: that of a function, or one that was made for several functions.
    pub body: RawKey,
    /// Where it starts in the binary.
    pub src_loc: FilePos,
}

/// The functions that share bodies.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Sharing {
    /// Ascending by their keys.
    pub functions: Vec<Shared>,
    /// To which of them the frames of a stack can belong: a [`SymbolTable`]. Empty, if there is no
    /// address map.
    #[serde(serialize_with = "write_bytes", deserialize_with = "read_bytes")]
    pub frames: Vec<u8>,
}

/// In one piece: loading a module must not take time for each byte.
fn write_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

fn read_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    <&[u8]>::deserialize(deserializer).map(<[u8]>::to_vec)
}

fn key((namespace, index): RawKey) -> FuncKey {
    FuncKey::from_raw_parts(namespace, index)
}

impl Sharing {
    /// A function, if it shares the body of another one.
    pub fn get(&self, key: FuncKey) -> Option<&Shared> {
        let at = self.functions.binary_search_by_key(&key.into_raw_parts(), |it| it.key).ok()?;
        Some(&self.functions[at])
    }

    /// Where a function has its code.
    pub fn code_of(&self, of: FuncKey) -> FuncKey {
        self.get(of).map_or(of, |it| key(it.code))
    }

    /// The functions that have the body under this key, but for the one whose key it is.
    fn of_body(&self, body: FuncKey) -> impl Iterator<Item = FuncKey> + '_ {
        let body = body.into_raw_parts();
        self.functions.iter().filter(move |it| it.body == body).map(|it| key(it.key))
    }
}

impl CompiledFunctionsTable {
    /// A function whose code is at an offset into the text section.
    pub fn func_by_text_offset(&self, text_offset: u32) -> Option<FuncKey> {
        let code = self.code_by_text_offset(text_offset)?;
        // A body that was made for several functions is that of none.
        let made = self.src_loc(code).is_none().then(|| self.sharing.of_body(code).next());
        Some(made.flatten().unwrap_or(code))
    }

    /// Whether several functions have the code at an offset.
    pub fn is_shared(&self, text_offset: u32) -> bool {
        let code = self.code_by_text_offset(text_offset);
        code.is_some_and(|code| self.sharing.of_body(code).next().is_some())
    }

    /// The functions to which each frame can belong that is of code that functions share, with the
    /// place of its instruction in the binary. The frames follow each other on a stack, innermost
    /// first: each is an offset, and whether it is where a call returns.
    pub fn functions_of_frames(&self, stack: &[(u32, bool)]) -> Vec<Vec<(FuncKey, FilePos)>> {
        let place = |&(at, is_return): &(u32, bool)| {
            let code = self.code_by_text_offset(at - u32::from(is_return))?;
            let offset = at - self.func_loc(code)?.start;
            Some((code.into_raw_parts(), Place { offset, is_return }))
        };
        let places: Vec<_> = stack.iter().map(place).collect();
        let found = SymbolTable::parse(&self.sharing.frames).and_then(|table| table.frames(&places));
        let found = found.unwrap_or_else(|_| vec![Vec::new(); stack.len()]).into_iter();
        let at = |(of, at): (RawKey, Option<u32>)| (key(of), at.map_or(FilePos::none(), FilePos::new));
        found.map(|all| all.into_iter().map(at).collect()).collect()
    }
}
