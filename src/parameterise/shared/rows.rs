//! The summary of the functions of this unit for other units: their shapes, and their cells.
//!
//! Functions are compared as they are written: no call is redirected, because other units know a
//! function by its symbol, or do not know it at all. A symbol that only this unit can see is known
//! by a digest of its behaviour. This module reads; it does *not* decide.

use crate::apply::KeptCalls;
use crate::canon::{Context, Digest, Encoding, Mark, Place, Scratch, code_digest, encode};
use crate::congruence::WithoutIr;
use crate::content::{Contents, Names, Target, digests};
use crate::corpus::Kind;
use crate::options::{ContentAddressing, Options};
use crate::parameterise::is_candidate;
use crate::parameterise::loops::calls_in_loops;
use crate::parameterise::table::{Ranges, places};
use crate::parameterise::value::{Symbols, Value, blocks_with_addresses};
use crate::plan::Plan;
use crate::target::Target as CodeTarget;
use crate::unit::{Bodies, FunctionIndex, Linkage};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Function, UserExternalName, UserExternalNameRef};
use cranelift_entity::{EntityRef, SecondaryMap};
use cranelift_mergefunc_units::{
    Cell, FunctionSummary, Identity, UnitSummary, cell_hash, identity_hash,
};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// A digest of a shape.
pub(crate) type Shape = [u8; 16];

/// A function that may share a body.
pub(super) struct Row {
    pub function: FunctionIndex,
    pub shape: Shape,
    /// Symbols are numbers of [`Rows::identities`].
    pub cells: Vec<Cell>,
}

/// The functions of a unit that may share bodies with functions of other units.
pub(super) struct Rows {
    pub rows: Vec<Row>,
    pub identities: Vec<Identity>,
}

impl Rows {
    /// The hash of each cell of a row.
    pub fn hashes<'a>(&'a self, row: &'a Row) -> impl ExactSizeIterator<Item = u64> + 'a {
        let identity = |symbol: u32| identity_hash(&self.identities[symbol as usize]);
        row.cells.iter().map(move |cell| cell_hash(cell, identity))
    }
}

/// The rows of the functions that a plan keeps after identical merging and of which the shape is
/// `wanted`.
///
/// Walks every function once: what only this unit can see is known by a digest of all that it
/// reaches.
pub(super) fn rows(
    plan: &Plan,
    without_ir: &WithoutIr,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
    wanted: &mut dyn FnMut(&Shape) -> bool,
) -> Rows {
    let mut reader = Reader {
        plan,
        options,
        scratch: Scratch::recording(),
        encoding: Encoding::default(),
        packed: Vec::new(),
        numbers: HashMap::default(),
        symbols: Vec::new(),
        contents: Vec::new(),
        local: SecondaryMap::new(),
    };
    let mut rows = Vec::new();
    for index in 0..plan.added() {
        let function = FunctionIndex::new(index);
        if without_ir.functions.contains(function) {
            continue;
        }
        let body = bodies.body(function);
        if !reader.walk(function, body) {
            continue;
        }
        reader.keep_contents(function, body);
        if !is_candidate(plan, function, options) {
            continue;
        }
        let shape = xxh3_128(&reader.encoding.shape).to_le_bytes();
        if wanted(&shape)
            && let Some(cells) = reader.cells(function, body)
        {
            rows.push(Row { function, shape, cells });
        }
    }
    let identities = reader.identities(bodies);
    Rows { rows, identities }
}

/// The input of the digest of a function that only this unit can see.
struct LocalContents {
    own: Digest,
    references: Vec<(Kind, UserExternalName)>,
}

struct Reader<'a> {
    plan: &'a Plan,
    options: &'a Options<'a>,
    scratch: Scratch,
    encoding: Encoding,
    packed: Vec<u8>,
    /// The numbers of the symbols that cells refer to.
    numbers: HashMap<UserExternalName, u32, FxBuildHasher>,
    symbols: Vec<UserExternalName>,
    /// Of the functions that only this unit can see.
    contents: Vec<LocalContents>,
    /// Their numbers.
    local: SecondaryMap<FunctionIndex, Option<u32>>,
}

impl Reader<'_> {
    /// Walks a function as it is written. Returns whether that is possible.
    fn walk(&mut self, function: FunctionIndex, body: &Function) -> bool {
        let symbols = Names::of(body);
        let context =
            Context::of(self.options, self.plan.entry(function).attributes().key, &symbols);
        encode(body, &context, &mut self.scratch, &mut self.encoding).is_ok()
    }

    /// Keeps what the digest of the function that was just walked is made of, if only this unit can
    /// see the function.
    fn keep_contents(&mut self, function: FunctionIndex, body: &Function) {
        let entry = self.plan.entry(function);
        if entry.attributes().linkage != Linkage::Local {
            return;
        }
        let own = code_digest(&self.encoding, entry.attributes().alignment, &mut self.packed);
        let names = body.params.user_named_funcs();
        let references = self.encoding.callees.iter().map(|&node| {
            let (kind, symbol) = Names::reference(node);
            (kind, names[UserExternalNameRef::new(symbol)].clone())
        });
        let references = references.collect();
        self.local[function] = Some(self.contents.len() as u32);
        self.contents.push(LocalContents { own, references });
    }

    /// The values of the function that was just walked at all places. `None` for a function whose
    /// calls may be patched.
    fn cells(&mut self, function: FunctionIndex, body: &Function) -> Option<Vec<Cell>> {
        if body.dfg.ext_funcs.values().any(|callee| callee.patchable) {
            return None;
        }
        let Reader { plan, options, scratch, encoding, numbers, symbols: known, .. } = self;
        let entry = plan.entry(function);
        let own = (entry.attributes().linkage != Linkage::Preemptible).then_some(entry.symbol());
        let symbols = Symbols { plan, earlier: None, options, written: KeptCalls::all() };
        let addressed = blocks_with_addresses(body);
        let mut number = |symbol: UserExternalName| {
            *numbers.entry(symbol).or_insert_with_key(|symbol| {
                known.push(symbol.clone());
                known.len() as u32 - 1
            })
        };
        let mut cells: Vec<Cell> = Vec::new();
        let mut at: Vec<Place> = Vec::new();
        let mut calls = false;
        for (mark, ranges) in places(&scratch.marks, encoding) {
            let Mark { place, operand, .. } = *mark;
            let value = operand
                .and_then(|operand| symbols.value_of(body, (place, operand), &[], &addressed));
            let cell = match value {
                Some(Value::Constant { ty, bits }) => {
                    Cell::Constant { ty: ty.index() as u16, bits }
                }
                Some(Value::Offset { ty, bytes }) => Cell::Offset { ty: ty.index() as u16, bytes },
                Some(Value::Callee { symbol, signature, .. })
                    if Some(&symbol) == own && *signature == body.signature =>
                {
                    Cell::Itself
                }
                Some(Value::Callee { symbol, direct, .. }) => {
                    calls = true;
                    // A symbol of another unit means one function, called or passed.
                    let direct = direct && plan.function(&symbol).is_some();
                    Cell::Callee { symbol: number(symbol), direct }
                }
                Some(Value::Function { symbol, .. }) => Cell::Function { symbol: number(symbol) },
                Some(Value::Address { symbol, offset, .. }) => {
                    Cell::Address { symbol: number(symbol), offset }
                }
                None => Cell::Fixed(fixed(&ranges, body, encoding, mark)),
            };
            cells.push(cell);
            at.push(place);
        }
        if calls {
            for column in calls_in_loops(body, &at) {
                if let Cell::Callee { direct, .. } = &mut cells[column] {
                    *direct = true;
                }
            }
        }
        Some(cells)
    }

    /// The meaning of each symbol of a cell.
    fn identities(self, bodies: &mut dyn Bodies) -> Vec<Identity> {
        let Reader { plan, symbols, contents, local, .. } = self;
        let content = |symbol: &UserExternalName| local[plan.function(symbol)?];
        // A symbol that other units cannot see and that has no digest differs from everything else.
        let mut name = |symbol: &UserExternalName| -> String {
            bodies.link_name(symbol).unwrap_or_else(|| format!("{symbol} of one unit"))
        };
        let contents: Vec<Contents> = contents
            .into_iter()
            .map(|LocalContents { own, references }| {
                let references = references.into_iter().map(|(kind, symbol)| {
                    let target = match content(&symbol) {
                        Some(number) => Target::Content(number),
                        None => Target::Name(name(&symbol)),
                    };
                    (kind, target)
                });
                Contents { own, references: references.collect() }
            })
            .collect();
        let digests = digests(&contents);
        symbols
            .iter()
            .map(|symbol| match content(symbol) {
                Some(number) => {
                    let digest = digests[number as usize].as_bytes();
                    Identity::Content(*digest.first_chunk().expect("32 bytes"))
                }
                None => Identity::Name(name(symbol)),
            })
            .collect()
    }
}

/// A hash of something that cannot be passed.
fn fixed(ranges: &Ranges<'_>, body: &Function, encoding: &Encoding, mark: &Mark) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(ranges.constants);
    hasher.update(ranges.references);
    // A thread-local symbol, or the callee of a call whose handler is named.
    if !ranges.references.is_empty()
        && let Some(&node) = encoding.callees.get(mark.callees)
    {
        let (kind, symbol) = Names::reference(node);
        let symbol = &body.params.user_named_funcs()[UserExternalNameRef::new(symbol)];
        hasher.update(&[kind as u8]);
        hasher.update(&symbol.namespace.to_le_bytes());
        hasher.update(&symbol.index.to_le_bytes());
    }
    hasher.digest()
}

/// The summary of a unit after identical merging.
pub(crate) fn summary(
    plan: &Plan,
    without_ir: &WithoutIr,
    bodies: &mut dyn Bodies,
    options: &Options<'_>,
    content: &ContentAddressing,
    unit: String,
) -> UnitSummary {
    let Rows { rows, identities } = rows(plan, without_ir, bodies, options, &mut |_| true);
    let models = [CodeTarget::x86_64().size_model, CodeTarget::aarch64(false).size_model];
    let functions = rows
        .into_iter()
        .map(|Row { function, shape, cells }| {
            let entry = plan.entry(function);
            let body = bodies.body(function);
            let bytes =
                models.map(|model| model.and_then(|model| model.predict(body)).unwrap_or(0));
            FunctionSummary {
                shape,
                symbol: bodies
                    .link_name(entry.symbol())
                    .unwrap_or_else(|| format!("{}", entry.symbol())),
                linkage: entry.attributes().linkage,
                hot: entry.attributes().hot,
                bytes,
                cells,
            }
        })
        .collect();
    UnitSummary { unit, settings: content.settings, symbols: identities, functions }
}
