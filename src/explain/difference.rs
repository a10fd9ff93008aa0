//! "Why not?": the first difference between two functions, and the rule that makes it matter.
//!
//! [`first_difference`] is a view of two encodings: the first place at which their streams part.
//! It does *not* search for the closest match (`clif-merge why` does, by [`place_hashes`]), nor
//! explain how to make the functions equal.

use crate::canon::{self, Context, Encoding, Mark, Place, Scratch};
use crate::options::Options;
use crate::plan::Plan;
use crate::unit::{FunctionIndex, Item, Node, ResolveSymbol};
use alloc::vec::Vec;
use cranelift_codegen::ir::{Block, Function, Inst};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Where two functions first differ.
///
/// See the [example](crate::explain).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The rule that makes the difference matter.
    pub rule: Rule,
    /// The place in the first function, if it has one at which the other continues.
    pub first: Option<Site>,
    /// The place in the second function.
    pub second: Option<Site>,
    /// For [`Rule::Reference`]: the two functions of the unit that are not equal, if both are
    /// functions of the unit that are compared by class.
    pub references: Option<(FunctionIndex, FunctionIndex)>,
}

/// A place in a function that can be pointed at.
///
/// See the [example](crate::explain).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// The function as a whole.
    Function,
    /// The signature.
    Signature,
    /// The stack slots.
    StackSlots,
    /// Dynamic types and slots.
    DynamicTypes,
    /// The stack limit.
    StackLimit,
    /// The header of a block.
    Block(Block),
    /// An instruction.
    Inst(Inst),
}

/// Why a difference matters.
///
/// See the [example](crate::explain).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The functions have different keys.
    Key,
    /// Parameters, results or calling conventions differ.
    Signature,
    /// Stack slots differ in number, size, alignment or order; even an unused one takes its place
    /// in the frame.
    StackSlots,
    /// Dynamic vector types differ.
    DynamicTypes,
    /// Stack limits differ.
    StackLimit,
    /// Blocks have different parameters.
    BlockParameters,
    /// One function has more code.
    Length,
    /// Instructions differ in opcode, type, operands, targets, trap code, byte order, or tables.
    Instruction,
    /// The same instructions with different constants.
    Constant,
    /// The same instructions that name different symbols, or functions that are not equal.
    Reference,
}

impl Rule {
    /// Every rule, in the order in which the parts of a function are compared.
    pub const ALL: [Rule; 10] = [
        Rule::Key,
        Rule::Signature,
        Rule::StackSlots,
        Rule::DynamicTypes,
        Rule::StackLimit,
        Rule::BlockParameters,
        Rule::Length,
        Rule::Instruction,
        Rule::Constant,
        Rule::Reference,
    ];

    /// The stable kebab-case id.
    pub fn id(self) -> &'static str {
        match self {
            Rule::Key => "key",
            Rule::Signature => "signature",
            Rule::StackSlots => "stack-slots",
            Rule::DynamicTypes => "dynamic-types",
            Rule::StackLimit => "stack-limit",
            Rule::BlockParameters => "block-parameters",
            Rule::Length => "length",
            Rule::Instruction => "instruction",
            Rule::Constant => "constant",
            Rule::Reference => "reference",
        }
    }

    /// One sentence that explains the rule.
    pub fn explanation(self) -> &'static str {
        match self {
            Rule::Key => "functions with different keys never merge",
            Rule::Signature => {
                "callers rely on the signature and the calling convention, so they must be equal"
            }
            Rule::StackSlots => {
                "stack slots make the frame: number, size, alignment and order must be equal"
            }
            Rule::DynamicTypes => "dynamic vector types must be equal",
            Rule::StackLimit => "the prologue checks the stack limit, so it must be equal",
            Rule::BlockParameters => "blocks must have parameters of the same types",
            Rule::Length => "one function has more code than the other",
            Rule::Instruction => {
                "opcode, types, operands, targets, trap code and byte order must be equal"
            }
            Rule::Constant => "the functions differ in a constant here",
            Rule::Reference => {
                "the symbols used must be the same, or functions of the unit that are equal"
            }
        }
    }
}

/// The first place at which two functions of a planned unit differ; `None` if they are equal, which
/// is the case exactly if the plan has them in one class or they were prefiltered by their counts.
///
/// `options` are those of the run. Walks both functions.
///
/// See the [example](crate::explain).
///
/// # Errors
///
/// The function (`a` or `b`) that cannot be walked, because the verifier refuses it.
pub fn first_difference(
    plan: &Plan,
    (a, a_body): (FunctionIndex, &Function),
    (b, b_body): (FunctionIndex, &Function),
    options: &Options<'_>,
) -> Result<Option<Difference>, FunctionIndex> {
    let a_walk = walk(plan, a, a_body, options).ok_or(a)?;
    let b_walk = walk(plan, b, b_body, options).ok_or(b)?;
    Ok(compare(plan, &a_walk, &b_walk))
}

/// A hash of the compared content at each place of a function of a planned unit: of the parts of
/// the header, blocks and instructions, in the order of the walk. References to functions of the
/// unit hash equally. For comparing functions place by place, where it does no harm if two
/// different places have one hash.
///
/// `options` are those of the run. Walks the function; `None` for one that the verifier refuses.
///
/// See the [example](crate::explain).
pub fn place_hashes(
    plan: &Plan,
    (function, body): (FunctionIndex, &Function),
    options: &Options<'_>,
) -> Option<Vec<u64>> {
    let walked = walk(plan, function, body, options)?;
    let places = 0..walked.scratch.marks.len();
    Some(places.map(|at| walked.hash(at)).collect())
}

struct Walked {
    encoding: Encoding,
    scratch: Scratch,
}

impl Walked {
    /// That of the streams' bytes of one place.
    fn hash(&self, at: usize) -> u64 {
        let (start, end) = (&self.scratch.marks[at], self.scratch.marks.get(at + 1));
        let [shape, constants, references] = self.encoding.key();
        let end_of = |position: fn(&Mark) -> usize, len: usize| end.map_or(len, position);
        let streams = [
            &shape[start.shape..end_of(|mark| mark.shape, shape.len())],
            &constants[start.constants..end_of(|mark| mark.constants, constants.len())],
            &references[start.references..end_of(|mark| mark.references, references.len())],
        ];
        streams.iter().fold(0, |hash, bytes| xxh3_64_with_seed(bytes, hash))
    }
}

fn walk(
    plan: &Plan,
    function: FunctionIndex,
    body: &Function,
    options: &Options<'_>,
) -> Option<Walked> {
    let context =
        Context::of(options, plan.entry(function).attributes().key, plan as &dyn ResolveSymbol);
    let mut walked = Walked { encoding: Encoding::default(), scratch: Scratch::recording() };
    canon::encode(body, &context, &mut walked.scratch, &mut walked.encoding).ok()?;
    Some(walked)
}

fn compare(plan: &Plan, a: &Walked, b: &Walked) -> Option<Difference> {
    let [a_shape, a_constants, a_references] = a.encoding.key();
    let [b_shape, b_constants, b_references] = b.encoding.key();
    let by_class = a.encoding.callees.iter().zip(&b.encoding.callees);
    let unequal = by_class.enumerate().find(|(_, (x, y))| !plan.equal_references(**x, **y));

    // The earliest place at which any of the streams parts. Within one place the shape comes first:
    // what follows a different opcode cannot be compared.
    let shape = first_mismatch(a_shape, b_shape).map(|at| {
        (at_byte(a, at, |mark| mark.shape), at_byte(b, at, |mark| mark.shape), Stream::Shape)
    });
    let limit = shape.map_or(usize::MAX, |(mark, _, _)| mark);
    let constants = first_mismatch(a_constants, b_constants).map(|at| {
        let place = at_byte(a, at, |mark| mark.constants);
        (place, at_byte(b, at, |mark| mark.constants), Stream::Constants)
    });
    let references = first_mismatch(a_references, b_references).map(|at| {
        let place = at_byte(a, at, |mark| mark.references);
        (place, at_byte(b, at, |mark| mark.references), Stream::References)
    });
    let classes = unequal.map(|(index, (&x, &y))| {
        let place = at_byte(a, index, |mark| mark.callees);
        (place, at_byte(b, index, |mark| mark.callees), Stream::Classes(x, y))
    });
    // Before the shapes part, both walks have the same places in the same order. Unequal callees
    // may only follow from another difference, so they are reported if there is none.
    let found = [shape, constants, references]
        .into_iter()
        .flatten()
        .filter(|&(place, _, stream)| place < limit || stream == Stream::Shape)
        .min_by_key(|&(place, _, stream)| (place, stream != Stream::Shape))
        .or(classes)?;
    let (a_at, b_at, stream) = found;
    let site =
        |walked: &Walked, at: usize| walked.scratch.marks.get(at).map(|mark| site(mark.place));
    let (first, second) = (site(a, a_at), site(b, b_at));
    let rule = match stream {
        Stream::Shape => rule_of(first, second),
        Stream::Constants => Rule::Constant,
        Stream::References | Stream::Classes(..) => Rule::Reference,
    };
    let references = match stream {
        Stream::Classes(x, y) => match (plan.item(x), plan.item(y)) {
            (Item::Function(x), Item::Function(y)) => Some((x, y)),
            (Item::Function(_) | Item::Data(_), Item::Function(_) | Item::Data(_)) => None,
        },
        Stream::Shape | Stream::Constants | Stream::References => None,
    };
    Some(Difference { rule, first, second, references })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Shape,
    Constants,
    References,
    Classes(Node, Node),
}

fn first_mismatch(a: &[u8], b: &[u8]) -> Option<usize> {
    let common = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    (common < a.len() || common < b.len()).then_some(common)
}

/// The last place that begins at or before position `at` of a stream and adds to it, as an index
/// into the marks; one past the last if the stream ends there.
fn at_byte(walked: &Walked, at: usize, position: impl Fn(&Mark) -> usize) -> usize {
    let marks = &walked.scratch.marks;
    let end = marks.partition_point(|mark| position(mark) <= at);
    end.saturating_sub(1)
}

fn site(place: Place) -> Site {
    match place {
        Place::Key => Site::Function,
        Place::Signature => Site::Signature,
        Place::StackSlots => Site::StackSlots,
        Place::DynamicTypes => Site::DynamicTypes,
        Place::StackLimit => Site::StackLimit,
        Place::Block(block) => Site::Block(block),
        Place::Inst(inst) | Place::ExtraArgument(inst) => Site::Inst(inst),
    }
}

fn rule_of(first: Option<Site>, second: Option<Site>) -> Rule {
    match (first, second) {
        (Some(Site::Function), _) => Rule::Key,
        (Some(Site::Signature), _) => Rule::Signature,
        (Some(Site::StackSlots), _) => Rule::StackSlots,
        (Some(Site::DynamicTypes), _) => Rule::DynamicTypes,
        (Some(Site::StackLimit), _) => Rule::StackLimit,
        (Some(Site::Block(_)), Some(Site::Block(_))) => Rule::BlockParameters,
        (Some(Site::Inst(_)), Some(Site::Inst(_))) => Rule::Instruction,
        _ => Rule::Length,
    }
}
