//! A unit like those of C++ compilers: templates, instantiated for many types.
//!
//! Instances of a template have one control-flow graph and differ in the width and the sign of
//! their accesses, in conditions, operators and a few instructions more. Classes have virtual
//! tables, which are data objects with pointers to instances, and call through them. Some instances
//! take more integers than a machine passes in registers, so that what merging adds is on the
//! stack; some are exported, and keep their symbols.
//!
//! The unit is always the same. It keeps to the conventions, but takes no fuel: loops are bounded
//! by 15 rounds, and recursion by a depth of 3. It shows nothing that real units do not have;
//! `function` draws what they seldom have.

use crate::generate::body::Body;
use crate::generate::conventions::{DATA, FUNCTIONS, memory_symbol};
use crate::support::free;
use crate::unit::{DataMember, Member, Unit, uniform};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{
    AbiParam, Block, BlockArg, Function, InstBuilder, MemFlagsData, SigRef, Signature, Type,
    UserExternalName, UserFuncName, Value,
};
use cranelift_codegen::isa::CallConv;
use cranelift_mergefunc::data::{Contents, DataAttributes, DataObject, DataReloc};
use cranelift_mergefunc::{Addresses, Attributes, Linkage, Options};

/// The instance of a template: an integer of this number of bytes, and how two of them compare.
#[derive(Clone, Copy)]
struct Element {
    bytes: u32,
    signed: bool,
    descending: bool,
}

/// A template. The first parameter of its instances says where the elements are, the second how
/// many there are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Template {
    /// The place of an element that equals one.
    Find,
    /// The first element by the order.
    First,
    /// The sum, or another total.
    Total,
    /// Puts an element in its place.
    Insert,
    /// A hash of all elements.
    Hash,
    /// Calls others, with more arguments than there are registers.
    Visit,
    /// Calls itself.
    Halves,
    /// Calls through the table of its class.
    Invoke,
}

impl Template {
    const ALL: [Template; 8] = [
        Template::Find,
        Template::First,
        Template::Total,
        Template::Insert,
        Template::Hash,
        Template::Visit,
        Template::Halves,
        Template::Invoke,
    ];

    /// The further parameters of an instance.
    fn others(self) -> &'static [Type] {
        match self {
            Template::Visit => &[I64, I32, I64, I64, I32, I64, I64, I32],
            _ => &[I64],
        }
    }

    fn signature(self) -> Signature {
        let mut signature = Signature::new(CallConv::SystemV);
        let params = [I64, I64].iter().chain(self.others());
        signature.params = params.copied().map(AbiParam::new).collect();
        signature.returns = vec![AbiParam::new(I64)];
        signature
    }
}

/// The targets of virtual tables.
const VIRTUAL: [Template; 3] = [Template::First, Template::Total, Template::Halves];

fn elements() -> Vec<Element> {
    let all = [1, 2, 4, 8].into_iter().flat_map(|bytes| {
        let signs = [false, true].into_iter();
        signs.flat_map(move |signed| {
            [false, true].map(|descending| Element { bytes, signed, descending })
        })
    });
    // A value of 8 bytes is never extended, so for its sign nothing but the order counts.
    all.filter(|element| !(element.bytes == 8 && element.signed && element.descending)).collect()
}

/// The number of an instance.
fn number(element: usize, template: Template) -> u32 {
    let at = Template::ALL.iter().position(|&other| other == template).expect("one of them");
    (element * Template::ALL.len() + at) as u32
}

/// The unit. `options` are those to plan it with.
pub fn unit(mut options: Options<'static>) -> Unit {
    options.target = uniform(options.target);
    let (mut functions, mut data) = (Vec::new(), Vec::new());
    for (class, &element) in elements().iter().enumerate() {
        for template in Template::ALL {
            let number = number(class, template);
            let body = Instance::build(class, element, template);
            let attributes = match number % 5 {
                0 => Attributes { linkage: Linkage::Export, ..Attributes::default() },
                1 => Attributes { linkage: Linkage::Export, ..free() },
                2 => Attributes { addresses: Addresses::Significant, ..free() },
                _ => free(),
            };
            functions.push(Member { attributes, body });
        }
        data.push(table(class));
    }
    Unit { functions, data, options }
}

/// The virtual table of a class.
fn table(class: usize) -> DataMember {
    let relocations = (0..).zip(VIRTUAL).map(|(at, template)| DataReloc {
        offset: 8 * at,
        target: UserExternalName::new(FUNCTIONS, number(class, template)),
        addend: 0,
    });
    let object = DataObject {
        contents: Contents::Bytes(vec![0; 8 * VIRTUAL.len()]),
        relocations: relocations.collect(),
        section: None,
    };
    let attributes = DataAttributes {
        linkage: if class.is_multiple_of(3) { Linkage::Export } else { Linkage::Local },
        addresses: Addresses::Insignificant,
        ..DataAttributes::default()
    };
    DataMember { symbol: UserExternalName::new(DATA, class as u32), attributes, object }
}

/// An instance of a template in the making.
struct Instance {
    body: Body,
    element: Element,
    class: usize,
    params: Vec<Value>,
    /// Where the elements are.
    start: Value,
    /// How many there are, at most 15.
    count: Value,
}

impl Instance {
    fn build(class: usize, element: Element, template: Template) -> Function {
        let name = UserFuncName::user(FUNCTIONS, number(class, template));
        let signature = template.signature();
        let types: Vec<Type> = signature.params.iter().map(|param| param.value_type).collect();
        let mut body = Body::new(Function::with_name_signature(name, signature));
        let entry = body.new_block(&types);
        let params = body.continue_in(entry);
        let memory = body.symbol(memory_symbol(), 256, false);
        let memory = body.ins().symbol_value(I64, memory);
        let (seven, fifteen, shift) =
            (body.ins().iconst(I64, 7), body.ins().iconst(I64, 15), body.ins().iconst(I64, 7));
        let object = body.ins().band(params[0], seven);
        let object = body.ins().ishl(object, shift);
        let start = body.ins().iadd(memory, object);
        let count = body.ins().band(params[1], fifteen);
        let mut instance = Instance { body, element, class, params, start, count };
        let result = match template {
            Template::Find => instance.find(),
            Template::First => instance.first(),
            Template::Total => instance.total(),
            Template::Insert => instance.insert(),
            Template::Hash => instance.hash(),
            Template::Visit => instance.visit(),
            Template::Halves => instance.halves(),
            Template::Invoke => instance.invoke(),
        };
        instance.body.ins().return_(&[result]);
        instance.body.func
    }

    fn constant(&mut self, value: i64) -> Value {
        self.body.ins().iconst(I64, value)
    }

    fn address(&mut self, at: Value) -> Value {
        // No instance for bytes scales.
        let shift = self.element.bytes.trailing_zeros();
        let offset = match shift {
            0 => at,
            _ => {
                let shift = self.constant(shift.into());
                self.body.ins().ishl(at, shift)
            }
        };
        self.body.ins().iadd(self.start, offset)
    }

    fn load(&mut self, at: Value) -> Value {
        let from = self.address(at);
        let (flags, ins) = (MemFlagsData::new().with_notrap(), self.body.ins());
        match (self.element.bytes, self.element.signed) {
            (1, false) => ins.uload8(I64, flags, from, 0),
            (1, true) => ins.sload8(I64, flags, from, 0),
            (2, false) => ins.uload16(I64, flags, from, 0),
            (2, true) => ins.sload16(I64, flags, from, 0),
            (4, false) => ins.uload32(flags, from, 0),
            (4, true) => ins.sload32(flags, from, 0),
            _ => ins.load(I64, flags, from, 0),
        }
    }

    fn store(&mut self, value: Value, at: Value) {
        let to = self.address(at);
        let (flags, ins) = (MemFlagsData::new().with_notrap(), self.body.ins());
        match self.element.bytes {
            1 => ins.istore8(flags, value, to, 0),
            2 => ins.istore16(flags, value, to, 0),
            4 => ins.istore32(flags, value, to, 0),
            _ => ins.store(flags, value, to, 0),
        };
    }

    /// Whether one element comes before another one.
    fn before(&mut self, a: Value, b: Value) -> Value {
        let condition = match (self.element.signed, self.element.descending) {
            (false, false) => IntCC::UnsignedLessThan,
            (false, true) => IntCC::UnsignedGreaterThan,
            (true, false) => IntCC::SignedLessThan,
            (true, true) => IntCC::SignedGreaterThan,
        };
        self.body.ins().icmp(condition, a, b)
    }

    /// A loop over all elements with a number that `step` changes; the number in the end.
    fn fold(&mut self, first: Value, step: impl FnOnce(&mut Self, Value, Value) -> Value) -> Value {
        let [head, inner] = [(); 2].map(|()| self.body.new_block(&[I64; 2]));
        let end = self.body.new_block(&[I64]);
        let zero = self.constant(0);
        self.jump(head, &[zero, first]);
        let params = self.body.continue_in(head);
        let more = self.body.ins().icmp(IntCC::UnsignedLessThan, params[0], self.count);
        self.brif(more, (inner, &params), (end, &params[1..]));
        let params = self.body.continue_in(inner);
        let next = step(self, params[0], params[1]);
        let one = self.constant(1);
        let at = self.body.ins().iadd(params[0], one);
        self.jump(head, &[at, next]);
        self.body.continue_in(end)[0]
    }

    fn jump(&mut self, to: Block, args: &[Value]) {
        let args: Vec<BlockArg> = args.iter().copied().map(BlockArg::Value).collect();
        self.body.ins().jump(to, &args);
    }

    fn brif(&mut self, condition: Value, then: (Block, &[Value]), other: (Block, &[Value])) {
        let args = |args: &[Value]| -> Vec<BlockArg> {
            args.iter().copied().map(BlockArg::Value).collect()
        };
        self.body.ins().brif(condition, then.0, &args(then.1), other.0, &args(other.1));
    }

    fn find(&mut self) -> Value {
        let wanted = self.params[2];
        let none = self.constant(-1);
        let found = self.fold(none, |own, at, found| {
            let element = own.load(at);
            let equal = own.body.ins().icmp(IntCC::Equal, element, wanted);
            own.body.ins().select(equal, at, found)
        });
        self.mixed(found)
    }

    fn first(&mut self) -> Value {
        let start = self.params[2];
        let first = self.fold(start, |own, at, first| {
            let element = own.load(at);
            let before = own.before(element, first);
            own.body.ins().select(before, element, first)
        });
        self.mixed(first)
    }

    /// More operations than an argument costs, the same in all instances but for the number of the
    /// class, and for one that depends on the sign.
    fn mixed(&mut self, mut value: Value) -> Value {
        for number in 0..8 {
            let class = if number == 5 { 2 * self.class as i64 } else { 0 };
            let constant = self.constant(0x9e37 + number + class);
            value = match number {
                3 if self.element.signed => self.body.ins().isub(value, constant),
                0 | 3 | 6 => self.body.ins().iadd(value, constant),
                1 | 4 => self.body.ins().bxor(value, constant),
                2 | 5 => self.body.ins().imul(value, constant),
                _ => self.body.ins().rotl(value, constant),
            };
        }
        value
    }

    fn total(&mut self) -> Value {
        let start = self.params[2];
        let total = self.fold(start, |own, at, total| {
            let element = own.load(at);
            match (own.element.signed, own.element.descending) {
                (false, false) => own.body.ins().iadd(total, element),
                (false, true) => own.body.ins().bxor(total, element),
                (true, false) => own.body.ins().smax(total, element),
                (true, true) => own.body.ins().imul(total, element),
            }
        });
        self.mixed(total)
    }

    fn insert(&mut self) -> Value {
        let value = self.params[2];
        let last = self.fold(value, |own, at, held| {
            let element = own.load(at);
            let before = own.before(held, element);
            let kept = own.body.ins().select(before, held, element);
            let moved = own.body.ins().select(before, element, held);
            own.store(kept, at);
            // Only some instances count.
            if own.element.signed {
                let zero = own.constant(0);
                let counted = own.load(zero);
                own.body.ins().iadd(moved, counted)
            } else {
                moved
            }
        });
        self.mixed(last)
    }

    fn hash(&mut self) -> Value {
        let seed = self.params[2];
        let by = i64::from(5 + self.element.bytes);
        let hash = self.fold(seed, |own, at, hash| {
            let element = own.load(at);
            let (prime, by) = (own.constant(0x0100_0000_01b3), own.constant(by));
            let hash = own.body.ins().bxor(hash, element);
            let hash = own.body.ins().imul(hash, prime);
            let turned = own.body.ins().rotl(hash, by);
            own.body.ins().bxor(hash, turned)
        });
        self.mixed(hash)
    }

    fn import(&mut self, template: Template) -> SigRef {
        self.body.func.import_signature(template.signature())
    }

    fn call(&mut self, template: Template, args: &[Value]) -> Value {
        let signature = self.import(template);
        let name = UserExternalName::new(FUNCTIONS, number(self.class, template));
        let callee = self.body.import(name, signature, [true, false]);
        let call = self.body.ins().call(callee, args);
        self.body.func.dfg.first_result(call)
    }

    fn visit(&mut self) -> Value {
        let params = self.params.clone();
        let total = self.call(Template::Total, &params[..3]);
        let place = self.call(Template::Find, &[params[0], params[1], params[4]]);
        let mut value = self.body.ins().iadd(total, place);
        for (at, &param) in params.iter().enumerate().skip(3) {
            let wide = match self.body.func.dfg.value_type(param) {
                I64 => param,
                _ if self.element.signed => self.body.ins().sextend(I64, param),
                _ => self.body.ins().uextend(I64, param),
            };
            value = match at % 3 {
                0 if self.element.descending => self.body.ins().isub(value, wide),
                0 => self.body.ins().iadd(value, wide),
                1 => self.body.ins().bxor(value, wide),
                _ => self.body.ins().imul(value, wide),
            };
        }
        let (zero, held) = (self.constant(0), self.mixed(value));
        self.store(held, zero);
        held
    }

    fn halves(&mut self) -> Value {
        let three = self.constant(3);
        let depth = self.body.ins().band(self.params[2], three);
        let (deeper, end) = (self.body.new_block(&[]), self.body.new_block(&[I64]));
        let element = self.load(depth);
        self.brif(depth, (deeper, &[]), (end, &[element]));
        self.body.continue_in(deeper);
        let one = self.constant(1);
        let (less, half) =
            (self.body.ins().isub(depth, one), self.body.ins().ushr(self.count, one));
        let at = self.params[0];
        let left = self.call(Template::Halves, &[at, half, less]);
        let other = self.body.ins().iadd(at, one);
        let right = self.call(Template::Halves, &[other, half, less]);
        let before = self.before(left, right);
        let chosen = self.body.ins().select(before, left, right);
        let mixed = self.mixed(chosen);
        self.jump(end, &[mixed]);
        self.body.continue_in(end)[0]
    }

    fn invoke(&mut self) -> Value {
        let table = UserExternalName::new(DATA, self.class as u32);
        let table = self.body.symbol(table, 0, false);
        let table = self.body.ins().symbol_value(I64, table);
        let flags = MemFlagsData::new().with_notrap().with_aligned().with_readonly();
        let mut value = self.params[2];
        for (at, template) in (0..).zip(VIRTUAL) {
            let method = self.body.ins().load(I64, flags, table, 8 * at);
            let signature = self.import(template);
            let args = [self.params[0], self.params[1], value];
            let call = self.body.ins().call_indirect(signature, method, &args);
            let result = self.body.func.dfg.first_result(call);
            value = match self.element.signed {
                true => self.body.ins().iadd(value, result),
                false => self.body.ins().bxor(value, result),
            };
        }
        self.mixed(value)
    }
}
