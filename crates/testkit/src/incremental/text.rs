//! Functions as CLIF, in which `u0:N` is the function N and `u1:N` the data object N.

use super::program::{
    AREA, Address, Argument, Callee, End, Extra, FROZEN, Function, NEXT, Operation, Part, Passes,
    Place, Pointer, Program, Shape, Statement,
};
use cranelift_codegen::ir::immediates::Ieee64;
use cranelift_module::Linkage;
use std::fmt::Write;

/// The namespace of functions.
pub const FUNCTION: u32 = 0;
/// The namespace of data objects.
pub const DATA: u32 = 1;

/// The signature of functions of this shape.
pub fn signature(shape: &Shape) -> String {
    let mut text = "(i64, i64, i64, i64".to_owned();
    for extra in &shape.extras {
        write!(text, ", {}", extra.name()).unwrap();
    }
    text + ") -> i64 " + if shape.tail { "tail" } else { "system_v" }
}

/// A function.
pub fn function(program: &Program, number: usize) -> String {
    let own = &program.functions[number];
    let mut text = Text {
        program,
        own,
        preamble: String::new(),
        body: String::new(),
        signatures: Vec::new(),
        functions: 0,
        data: 0,
        values: 0,
        blocks: 0,
        slots: false,
        current: String::new(),
        more: None,
    };
    text.write();
    let Text { preamble, body, .. } = text;
    format!("function u0:{number}{} {{\n{preamble}{body}}}\n", signature(&own.shape))
}

struct Text<'a> {
    program: &'a Program,
    own: &'a Function,
    preamble: String,
    body: String,
    signatures: Vec<String>,
    functions: usize,
    data: usize,
    values: usize,
    blocks: usize,
    /// Whether slots for callees are filled.
    slots: bool,
    /// The number that statements change.
    current: String,
    /// Whether `n` allows calls, and `n - 1`.
    more: Option<[String; 2]>,
}

impl Text<'_> {
    fn write(&mut self) {
        for (number, region) in self.regions().into_iter().enumerate() {
            writeln!(self.preamble, "    region{number} = {region} \"memory {region}\"").unwrap();
        }
        let extras = self.own.shape.extras.iter().map(|extra| extra.name());
        let types: Vec<&str> = ["i64"; 4].into_iter().chain(extras).collect();
        let params: Vec<String> =
            types.iter().map(|name| format!("{}: {name}", self.value())).collect();
        let entry = self.block();
        writeln!(self.body, "{entry}({}):", params.join(", ")).unwrap();
        self.current = self.let_("iadd v0, v1");
        let calls = self.own.statements.iter().any(|step| matches!(step, Statement::Call { .. }));
        if calls || matches!(self.own.end, End::Tail(..)) {
            let zero = self.constant(0);
            let more = self.let_(&format!("icmp sgt v0, {zero}"));
            let one = self.constant(-1);
            self.more = Some([more, self.let_(&format!("iadd v0, {one}"))]);
        }
        for statement in &self.own.statements {
            self.statement(statement);
        }
        if let End::Tail(callee, passes) = &self.own.end {
            let [more, _] = self.more.clone().expect("there are calls");
            let [tail, end] = [(); 2].map(|()| self.block());
            self.fill_slots(passes);
            self.line(&format!("brif {more}, {tail}, {end}"));
            self.label(&tail);
            let function = self.function(*callee, Use::Call);
            let arguments = self.arguments(*callee, passes);
            self.line(&format!("return_call {function}({arguments})"));
            self.label(&end);
        }
        self.line(&format!("return {}", self.current));
    }

    fn value(&mut self) -> String {
        self.values += 1;
        format!("v{}", self.values - 1)
    }

    fn block(&mut self) -> String {
        self.blocks += 1;
        format!("block{}", self.blocks - 1)
    }

    fn line(&mut self, line: &str) {
        writeln!(self.body, "    {line}").unwrap();
    }

    fn label(&mut self, block: &str) {
        writeln!(self.body, "{block}:").unwrap();
    }

    /// A block with a parameter, which is then the number that statements change.
    fn join(&mut self, block: &str) {
        self.current = self.value();
        writeln!(self.body, "{block}({}: i64):", self.current).unwrap();
    }

    fn let_(&mut self, operation: &str) -> String {
        let value = self.value();
        self.line(&format!("{value} = {operation}"));
        value
    }

    fn constant(&mut self, value: i64) -> String {
        self.let_(&format!("iconst.i64 {value}"))
    }

    fn narrow(&mut self, extra: Extra, value: i64) -> String {
        match extra {
            Extra::I8 => self.let_(&format!("iconst.i8 {}", value as i8)),
            Extra::I32 => self.let_(&format!("iconst.i32 {}", value as i32)),
            Extra::I64 => self.constant(value),
        }
    }

    /// Makes a statement change the number.
    fn change(&mut self, operation: &str, value: &str) {
        self.current = self.let_(&format!("{operation} {}, {value}", self.current));
    }

    /// Makes the number depend on a value such that the same value makes another difference the next time.
    fn absorb(&mut self, value: &str) {
        let three = self.constant(3);
        self.change("imul", &three);
        self.change("iadd", value);
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Constant(operation, value) => {
                let value = self.constant(*value);
                self.change(
                    match operation {
                        Operation::Add => "iadd",
                        Operation::Xor => "bxor",
                        Operation::Multiply => "imul",
                    },
                    &value,
                );
            }
            Statement::Float(bits) => {
                let float = self.let_(&format!("f64const {}", Ieee64::with_bits(*bits)));
                let value = self.let_(&format!("bitcast.i64 {float}"));
                self.change("bxor", &value);
            }
            Statement::Mix(rounds) => {
                let odd = self.constant(0x1337_9bdf);
                for _ in 0..*rounds {
                    self.change("imul", &odd);
                    self.change("rotl", &odd);
                    self.change("bxor", "v1");
                }
            }
            Statement::Extra(extra) => {
                let own = format!("v{}", 4 + extra);
                let value = match self.own.shape.extras[*extra] {
                    Extra::I64 => own,
                    Extra::I32 => self.let_(&format!("sextend.i64 {own}")),
                    Extra::I8 => self.let_(&format!("uextend.i64 {own}")),
                };
                self.absorb(&value);
            }
            Statement::Reload { read, written, offsets, value, extra } => {
                let load = format!("{}+{}", self.load("i64", *read), offsets[0]);
                let before = self.let_(&load);
                let value = self.narrow(*extra, *value);
                self.line(&format!(
                    "store notrap{} {value}, v{}+{}",
                    self.flags(*written, true),
                    2 + written,
                    offsets[1]
                ));
                let after = self.let_(&load);
                self.absorb(&before);
                self.absorb(&after);
            }
            Statement::Vector { pointer, offset, value } => {
                let value = self.constant(*value);
                let vector = self.let_(&format!("splat.i64x2 {value}"));
                let load = self.load("i64x2", *pointer);
                let loaded = self.let_(&format!("{load}+{offset}"));
                let sum = self.let_(&format!("iadd {loaded}, {vector}"));
                let lane = self.let_(&format!("extractlane {sum}, 1"));
                self.absorb(&lane);
            }
            Statement::Guarded { offset, in_loop } => self.guarded(*offset, *in_loop),
            Statement::Slot { offset, value } => {
                let slot = self.slot(64, 8);
                let value = self.constant(*value);
                let address = self.let_(&format!("stack_addr.i64 {slot}+{offset}"));
                self.line(&format!("store notrap {value}, {address}"));
                let loaded = self.let_(&format!("load.i64 notrap {address}"));
                self.absorb(&loaded);
            }
            Statement::Number { place, stores } => {
                let address = self.place(*place);
                if *stores {
                    self.line(&format!("store notrap {}, {address}", self.current));
                }
                let readonly =
                    self.own.facts.readonly_data && !self.program.data[place.data].writable;
                let flags = match readonly {
                    true => "notrap aligned readonly can_move",
                    false => "notrap aligned",
                };
                let loaded = self.let_(&format!("load.i64 {flags} {address}"));
                self.absorb(&loaded);
            }
            Statement::Through(place) => {
                let address = self.place(*place);
                let pointer = self.let_(&format!("load.i64 notrap aligned {address}"));
                let loaded = self.let_(&format!("load.i64 notrap aligned {pointer}"));
                self.absorb(&loaded);
            }
            Statement::Compare(addresses) => {
                let [one, other] = addresses.map(|address| self.address_of(address));
                let equal = self.let_(&format!("icmp eq {one}, {other}"));
                let equal = self.let_(&format!("uextend.i64 {equal}"));
                self.absorb(&equal);
            }
            Statement::Misaligned(address) => {
                let alignment = self.program.alignment(self.program.part_at(*address));
                let address = self.address_of(*address);
                let below = self.constant(i64::from(alignment) - 1);
                let misses = self.let_(&format!("band {address}, {below}"));
                self.absorb(&misses);
            }
            Statement::Switch(values) => {
                let index = self.let_(&format!("ireduce.i32 {}", self.current));
                let three = self.let_("iconst.i32 3");
                let index = self.let_(&format!("band {index}, {three}"));
                let cases = values.map(|_| self.block());
                let [default, end] = [(); 2].map(|()| self.block());
                self.line(&format!("br_table {index}, {default}, [{}]", cases.join(", ")));
                for (case, value) in cases.iter().zip(values) {
                    self.label(case);
                    let value = self.constant(*value);
                    self.line(&format!("jump {end}({value})"));
                }
                self.label(&default);
                self.line(&format!("jump {end}(v0)"));
                let before = self.current.clone();
                self.join(&end);
                self.change("bxor", &before);
            }
            Statement::Call { call, passes, in_loop, entries } => {
                self.call(*call, passes, *in_loop, *entries);
            }
        }
    }

    fn flags(&self, pointer: usize, store: bool) -> String {
        let facts = &self.own.facts;
        let mut text = String::new();
        for (name, holds) in [
            ("aligned", facts.aligned[pointer]),
            ("readonly", facts.readonly[pointer] && !store),
            ("can_move", facts.can_move[pointer]),
        ] {
            if holds {
                write!(text, " {name}").unwrap();
            }
        }
        let region = facts.regions[pointer];
        if let Some(number) = self.regions().iter().position(|own| *own == region) {
            write!(text, " region{number}").unwrap();
        }
        text
    }

    /// The regions that accesses may be in, by their numbers in the function.
    fn regions(&self) -> Vec<u8> {
        let [one, other] = self.own.facts.regions;
        let mut regions = vec![one, other];
        regions.dedup();
        regions.retain(|region| *region != 0);
        regions
    }

    fn load(&self, ty: &str, pointer: usize) -> String {
        format!("load.{ty} notrap{} v{}", self.flags(pointer, false), 2 + pointer)
    }

    fn guarded(&mut self, offset: i32, in_loop: bool) {
        let load = format!("{}+{offset}", self.load("i64", 0));
        let [head, loads, tail, end] = [(); 4].map(|()| self.block());
        let current = self.current.clone();
        let times = self.constant(if in_loop { 3 } else { 1 });
        let minus = self.constant(-1);
        self.line(&format!("jump {head}({times}, {current})"));
        let [left, before] = [(); 2].map(|()| self.value());
        writeln!(self.body, "{head}({left}: i64, {before}: i64):").unwrap();
        self.line(&format!("brif v1, {loads}, {tail}({before})"));
        self.label(&loads);
        let loaded = self.let_(&load);
        self.current = before;
        self.absorb(&loaded);
        self.line(&format!("jump {tail}({})", self.current));
        self.join(&tail);
        let left = self.let_(&format!("iadd {left}, {minus}"));
        let current = self.current.clone();
        self.line(&format!("brif {left}, {head}({left}, {current}), {end}({current})"));
        self.join(&end);
    }

    fn slot(&mut self, bytes: i64, align: i64) -> String {
        let number = self.preamble.matches("explicit_slot").count();
        writeln!(self.preamble, "    ss{number} = explicit_slot {bytes}, align = {align}").unwrap();
        format!("ss{number}")
    }

    /// Whether references to a part are colocated. That must be the same in all functions.
    fn is_near(&self, part: Part, address: bool) -> bool {
        let linkage = match part {
            Part::Function(function) => self.program.functions[function].declared,
            Part::Data(data) => self.program.data[data].linkage,
        };
        let final_ = self.program.linkage(part);
        self.program.colocated
            && match (linkage, final_) {
                (Linkage::Import | Linkage::Preemptible, _) => false,
                // A shared library must ask the loader for the addresses of exported symbols.
                (_, Linkage::Export) => !address,
                (_, Linkage::Local | Linkage::Hidden) => true,
                (_, Linkage::Import | Linkage::Preemptible) => false,
            }
    }

    fn signature(&mut self, shape: &Shape) -> usize {
        let text = signature(shape);
        if let Some(known) = self.signatures.iter().position(|known| *known == text) {
            return known;
        }
        writeln!(self.preamble, "    sig{} = {text}", self.signatures.len()).unwrap();
        self.signatures.push(text);
        self.signatures.len() - 1
    }

    fn function(&mut self, callee: usize, used: Use) -> String {
        let signature = self.signature(&self.program.functions[callee].shape);
        let near = match self.is_near(Part::Function(callee), used == Use::Address) {
            true => "colocated ",
            false => "",
        };
        let number = self.functions;
        self.functions += 1;
        writeln!(self.preamble, "    fn{number} = {near}u{FUNCTION}:{callee} sig{signature}")
            .unwrap();
        format!("fn{number}")
    }

    /// The address of an item of a data object.
    fn address(&mut self, data: usize, item: usize) -> String {
        let near = if self.is_near(Part::Data(data), true) { "colocated " } else { "" };
        let number = self.data;
        self.data += 1;
        let offset = if item > 0 { format!("+{}", 8 * item) } else { String::new() };
        writeln!(self.preamble, "    gv{number} = symbol {near}u{DATA}:{data}{offset}").unwrap();
        self.let_(&format!("symbol_value.i64 gv{number}"))
    }

    /// An address and an offset, by which an item is accessed.
    fn place(&mut self, place: Place) -> String {
        let Place { data, slot, base } = place;
        let address = self.address(data, base);
        format!("{address}{:+}", 8 * (slot as i64 - base as i64))
    }

    fn address_of(&mut self, address: Address) -> String {
        match address {
            Address::Code(function) => {
                let function = self.function(function, Use::Address);
                self.let_(&format!("func_addr.i64 {function}"))
            }
            Address::Slot(place) => {
                let place = self.place(place);
                self.let_(&format!("load.i64 notrap aligned {place}"))
            }
            Address::Data(data) => self.address(data, 0),
        }
    }

    /// Fills the slots that are passed to callees, once.
    fn fill_slots(&mut self, passes: &Passes) {
        if self.slots || !passes.pointers.contains(&Pointer::Slot) {
            return;
        }
        self.slots = true;
        let number = self.preamble.matches("explicit_slot").count();
        // The numbers are those by which `arguments` finds them.
        for slot in ["fill0", "fill1"] {
            writeln!(self.preamble, "    ss{} = explicit_slot {AREA}, align = 16 ; {slot}", {
                self.preamble.matches("explicit_slot").count()
            })
            .unwrap();
        }
        let [one, other] =
            [number, number + 1].map(|number| self.let_(&format!("stack_addr.i64 ss{number}")));
        let [head, end] = [(); 2].map(|()| self.block());
        let start = self.constant(0);
        let [step, size] = [8, AREA].map(|value| self.constant(value));
        self.line(&format!("jump {head}({start})"));
        let at = self.value();
        writeln!(self.body, "{head}({at}: i64):").unwrap();
        for base in [one, other] {
            let address = self.let_(&format!("iadd {base}, {at}"));
            self.line(&format!("store notrap {at}, {address}"));
        }
        let next = self.let_(&format!("iadd {at}, {step}"));
        let more = self.let_(&format!("icmp ult {next}, {size}"));
        self.line(&format!("brif {more}, {head}({next}), {end}"));
        self.label(&end);
    }

    /// The number of the slot that is passed for a pointer.
    fn filled_slot(&self, pointer: usize) -> usize {
        let mark = format!("; fill{pointer}");
        let slots = self.preamble.lines().filter(|line| line.contains("explicit_slot"));
        slots.into_iter().position(|line| line.ends_with(&mark)).expect("is filled")
    }

    fn arguments(&mut self, callee: usize, passes: &Passes) -> String {
        let [_, less] = self.more.clone().expect("there are calls");
        let mut arguments = vec![less, "v1".to_owned()];
        for (at, pointer) in passes.pointers.into_iter().enumerate() {
            arguments.push(match pointer {
                Pointer::Own(own) => format!("v{}", 2 + own),
                Pointer::Next(own) => {
                    let next = self.constant(NEXT);
                    self.let_(&format!("iadd v{}, {next}", 2 + own))
                }
                Pointer::Slot => self.let_(&format!("stack_addr.i64 ss{}", self.filled_slot(at))),
                Pointer::Frozen => self.address(FROZEN, 0),
            });
        }
        let extras = &self.program.functions[callee].shape.extras;
        for (argument, extra) in passes.extras.iter().zip(extras) {
            arguments.push(match (argument, extra) {
                (Argument::Constant(value), _) => self.narrow(*extra, *value),
                (Argument::Own(own), _) => format!("v{}", 4 + own),
                (Argument::Current, Extra::I64) => self.current.clone(),
                (Argument::Current, Extra::I8 | Extra::I32) => {
                    self.let_(&format!("ireduce.{} {}", extra.name(), self.current))
                }
            });
        }
        arguments.join(", ")
    }

    /// A stack map of so many entries, of which each is another one.
    fn stack_map(&mut self, entries: usize) -> String {
        if entries == 0 {
            return String::new();
        }
        let slots = [(); 2].map(|()| self.slot(64, 8));
        let entry = |at: usize| {
            let ty = if at % 3 == 2 { "i32" } else { "i64" };
            format!("{ty} @ {}+{}", slots[at % 2], 8 * at)
        };
        let entries: Vec<String> = (0..entries).map(entry).collect();
        format!(", stack_map=[{}]", entries.join(", "))
    }

    fn call(&mut self, call: Callee, passes: &Passes, in_loop: bool, entries: usize) {
        self.fill_slots(passes);
        let map = self.stack_map(entries);
        let [more, _] = self.more.clone().expect("there are calls");
        let [calls, end] = [(); 2].map(|()| self.block());
        let before = self.current.clone();
        let times = self.constant(2);
        self.line(&format!("brif {more}, {calls}({times}, {before}), {end}({before})"));
        let [left, current] = [(); 2].map(|()| self.value());
        let cold = if self.own.facts.cold { " cold" } else { "" };
        writeln!(self.body, "{calls}({left}: i64, {current}: i64){cold}:").unwrap();
        self.current = current;
        let callee = self.program.callee(call);
        let shape = &self.program.functions[callee].shape;
        let result = match call {
            Callee::Direct(_) => {
                let function = self.function(callee, Use::Call);
                let arguments = self.arguments(callee, passes);
                self.let_(&format!("call {function}({arguments}){map}"))
            }
            Callee::Handled(_) => {
                let function = self.function(callee, Use::Call);
                let signature = self.signature(shape);
                let arguments = self.arguments(callee, passes);
                let [returned, thrown] = [(); 2].map(|()| self.block());
                self.line(&format!(
                    "try_call {function}({arguments}), sig{signature}, {returned}(ret0), [ default: {thrown} ]{map}"
                ));
                self.label(&thrown);
                self.line("trap user1");
                let result = self.value();
                writeln!(self.body, "{returned}({result}: i64):").unwrap();
                result
            }
            Callee::Indirect(_) | Callee::Slot(_) => {
                let address = self.address_of(match call {
                    Callee::Slot(place) => Address::Slot(place),
                    Callee::Direct(_) | Callee::Handled(_) | Callee::Indirect(_) => {
                        Address::Code(callee)
                    }
                });
                let signature = self.signature(shape);
                let arguments = self.arguments(callee, passes);
                self.let_(&format!("call_indirect sig{signature}, {address}({arguments}){map}"))
            }
        };
        self.absorb(&result);
        let current = self.current.clone();
        if in_loop {
            let minus = self.constant(-1);
            let left = self.let_(&format!("iadd {left}, {minus}"));
            self.line(&format!("brif {left}, {calls}({left}, {current}), {end}({current})"));
        } else {
            self.line(&format!("jump {end}({current})"));
        }
        self.join(&end);
    }
}

/// What a name of a function is used for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Call,
    Address,
}
