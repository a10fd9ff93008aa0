//! Reading functions where they are made, on any thread: what a merger must know of a function,
//! without the function.

use crate::canon::{self, Context, Digest, Encoding, Scratch, code_digest};
use crate::corpus::{ByNode, NotedSymbol, Reference, Symbols};
use crate::explain::Sites;
use crate::ir::table_bytes;
use crate::options::Options;
use crate::parameterise::Likeness;
use crate::unit::{Attributes, Observe};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use cranelift_codegen::ir::Function;

/// Reads functions, for [`StreamingMerger::add_reading`](super::StreamingMerger::add_reading). Each
/// thread has one of its own; it keeps memory from function to function, and nothing else.
///
/// See the [example](crate::streaming).
pub struct Reader<'a> {
    options: Options<'a>,
    scratch: Scratch,
    encoding: Encoding,
    /// Memory for the input of a digest.
    packed: Vec<u8>,
    /// The symbols of one function.
    symbols: Symbols,
    /// Whether it reads for backtraces.
    records: bool,
}

/// The reading of a function: a digest of its encoding, the symbols to which it refers, and the
/// sketch by which similar functions are found. It is the same whichever thread read it, and
/// whichever functions were read before.
///
/// See the [example](crate::streaming).
#[derive(Clone)]
pub struct Reading {
    pub(super) attributes: Attributes,
    /// Whether it has a block.
    pub(super) has_body: bool,
    /// `None` if it cannot be encoded.
    pub(super) digest: Option<Digest>,
    /// The instructions of its encoding.
    pub(super) instructions: u32,
    /// The bytes of its encoding.
    pub(super) encoded: usize,
    pub(super) symbols: Vec<NotedSymbol>,
    /// The references of its encoding, by the numbers of these symbols.
    pub(super) references: Vec<Reference>,
    /// `None` if it cannot share a body with similar functions.
    pub(super) likeness: Option<Likeness>,
    /// The bytes for holding it.
    pub(super) bytes: usize,
    /// Its instructions, for backtraces.
    pub(super) sites: Option<Sites>,
}

impl<'a> Reader<'a> {
    /// Reads for a merger with these options. Where similar functions are not merged
    /// ([`StreamingMerger::new`](super::StreamingMerger::new)),
    /// [`Similar::OFF`](crate::Similar::OFF) saves time.
    pub fn new(options: Options<'a>) -> Self {
        let (scratch, encoding, packed, symbols) = Default::default();
        Reader { options, scratch, encoding, packed, symbols, records: false }
    }

    /// Whether it reads for backtraces, too: what the instructions of functions are, for
    /// [`StreamingMerger::plan_recording`](super::StreamingMerger::plan_recording). That takes four
    /// bytes for each instruction of a function that may share code.
    pub fn recording(self, records: bool) -> Self {
        Reader { records, ..self }
    }

    /// Reads a function that has these attributes. One walk, a digest of the encoding, and a scan
    /// if similar functions are merged that differ in instructions.
    pub fn read(&mut self, func: &Function, attributes: Attributes) -> Reading {
        let has_body = func.layout.entry_block().is_some();
        self.symbols.add_tables(func);
        self.symbols.add_address_uses(func);
        let context = ByNode(RefCell::new(&mut self.symbols));
        let context = Context::of(&self.options, attributes.key, &context);
        let result = canon::encode(func, &context, &mut self.scratch, &mut self.encoding);
        let is_encoded = has_body && result.is_ok();
        let Reader { options, encoding, packed, .. } = self;
        if !is_encoded {
            encoding.clear();
        }
        let walked = if is_encoded { self.scratch.walked() } else { &[] };
        let sites = self.records.then(|| Sites::walked(func, walked));
        let of_encoding = is_encoded.then(|| {
            let digest = code_digest(encoding, attributes.alignment, packed);
            (digest, Likeness::of(func, encoding, &attributes, options))
        });
        let (digest, likeness) = of_encoding.unzip();
        Reading {
            attributes,
            has_body,
            digest,
            instructions: encoding.instructions,
            encoded: encoding.size(),
            references: encoding.callees.iter().copied().map(Reference::of).collect(),
            likeness: likeness.flatten(),
            symbols: self.symbols.drain().collect(),
            bytes: table_bytes(func),
            sites,
        }
    }
}

impl Reading {
    /// The bytes that it takes to hold the function: those of its IR, estimated from the sizes of
    /// its tables, if nothing else was said.
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// Says how many bytes it takes to hold the function, for a caller who holds it in another
    /// form, such as serialised.
    pub fn set_held_bytes(&mut self, bytes: usize) {
        self.bytes = bytes;
    }

    /// Whether the function may be held at all: if it may not, nobody has to find out what that
    /// would take.
    pub fn may_be_held(&self) -> bool {
        self.likeness.is_some()
    }
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("options", &self.options).finish_non_exhaustive()
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("instructions", &self.instructions).finish_non_exhaustive()
    }
}
