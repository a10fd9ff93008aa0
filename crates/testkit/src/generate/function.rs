//! One function from a fuzzer's bytes: what it may be made of, and its blocks.
//!
//! Blocks are made when something branches to them and filled in the order in which they were made,
//! so all branches go forward but those to loop headers that dominate them: control flow is
//! reducible, and what dominates a block is known when it is filled. The code within a block is in
//! `code`, calls are in `calls`, and how blocks end is in `exits`.
//!
//! A function has the strongest facts that are true of it. It refers to functions and tables of the
//! unit by the number of their *group*; `unit` puts members in their places.

use crate::generate::body::{Body, End};
use crate::generate::conventions::{
    self, FUEL_OFFSET, SEED_OFFSET, USUAL_FUEL, memory_symbol, out_of_fuel,
};
use crate::generate::draw::Draw;
use crate::generate::opcodes::{Machine, TYPES};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AbiParam, AliasRegion, AliasRegionData, ArgumentExtension, ArgumentPurpose, Block, FuncRef,
    Function, GlobalValue, InsertBuilder, Inst, InstBuilder, MemFlagsData, Signature, SourceLoc,
    StackSlot, StackSlotData, StackSlotKind, TrapCode, Type, UserExternalName, UserFuncName, Value,
    types,
};
use cranelift_codegen::isa::CallConv;
use std::collections::{BTreeMap, VecDeque};

/// The allowed parts of functions, and how large they may get.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// For which back end.
    pub machine: Machine,
    /// How large functions may get.
    pub size: Size,
    /// Types besides the common integers.
    pub types: Types,
    /// Atomic accesses and fences.
    pub atomics: bool,
    /// Explicit traps, and accesses through null pointers.
    pub traps: bool,
    /// Calls that can be patched.
    pub patchable: bool,
    /// Branches on conditions that follow from constants.
    pub constant_branches: bool,
    /// Functions that cannot be run, or not be compiled with the usual settings.
    pub static_only: bool,
    /// Pointers into functions, which nothing uses.
    pub inside: bool,
    /// Only operations that every machine has.
    pub portable: bool,
    /// The common properties of the functions of a unit, and its data objects.
    pub unit: UnitProfile,
}

/// How large a function may get.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Blocks, at most.
    pub blocks: usize,
    /// Operations of a block, at most. Operands and addresses take instructions of their own.
    pub operations: usize,
    /// Stack slots, at most.
    pub slots: usize,
}

/// Which types besides the common integers values may have.
#[derive(Clone, Copy, Debug)]
pub struct Types {
    /// Floats.
    pub floats: bool,
    /// Vectors.
    pub vectors: bool,
    /// Types that few instructions know: `i128`, and with floats `f16` and `f128`.
    pub rare: bool,
}

impl Types {
    /// The common integers only.
    pub const NONE: Types = Types { floats: false, vectors: false, rare: false };
    /// All of them.
    pub const ALL: Types = Types { floats: true, vectors: true, rare: true };
}

/// The parts of a unit.
#[derive(Clone, Copy, Debug)]
pub struct UnitProfile {
    /// Functions that differ in one change of meaning.
    pub near_misses: bool,
    /// Functions that differ in few instructions, and that can share a body. Signatures are longer,
    /// so that extra arguments are on the stack at times.
    pub differing: bool,
    /// Data objects, with pointers to functions.
    pub tables: bool,
    /// Whether all functions have the signature `(i64, i64) -> i64 tail`, so that any of them can
    /// be referred to in place of any other one. They call more often. Calls that can be patched
    /// still have no result, and cannot be run.
    pub uniform: bool,
}

impl Profile {
    /// Everything that runs on the machine.
    pub fn runnable(machine: Machine) -> Profile {
        Profile {
            machine,
            size: Size { blocks: 10, operations: 10, slots: 3 },
            types: Types::ALL,
            atomics: true,
            traps: true,
            patchable: true,
            constant_branches: true,
            static_only: false,
            inside: false,
            portable: false,
            unit: UnitProfile { near_misses: true, differing: false, tables: true, uniform: false },
        }
    }

    /// This profile, with functions that differ in few instructions in place of near misses, large
    /// enough that one body for two of them pays.
    pub fn differing(self) -> Profile {
        let size = Size { blocks: 7, operations: 12, ..self.size };
        Profile {
            size,
            unit: UnitProfile { differing: true, near_misses: false, ..self.unit },
            ..self
        }
    }

    /// Small functions of one signature that differ in constants, references and facts. Functions
    /// of a unit are equal where their texts and what they refer to are.
    pub fn small() -> Profile {
        Profile {
            size: Size { blocks: 3, operations: 2, slots: 1 },
            types: Types::NONE,
            atomics: false,
            constant_branches: false,
            inside: true,
            unit: UnitProfile {
                near_misses: false,
                differing: false,
                tables: false,
                uniform: true,
            },
            ..Profile::runnable(Machine::host())
        }
    }

    /// Everything, so that some functions cannot be run.
    pub fn all(machine: Machine) -> Profile {
        Profile { static_only: true, inside: true, ..Profile::runnable(machine) }
    }

    /// Whether values of a type may occur.
    pub fn knows(&self, ty: Type) -> bool {
        let rare = matches!(ty, types::I128 | types::F16 | types::F128);
        TYPES.contains(&ty)
            && (self.types.rare || !rare)
            && (self.types.vectors || !ty.is_vector())
            && (self.types.floats || !ty.lane_type().is_float())
    }
}

/// The callable functions of a function.
#[derive(Clone, Debug, Default)]
pub struct Callees {
    /// The signature of each group of functions.
    pub groups: Vec<Signature>,
    /// The groups of tables.
    pub tables: Vec<Table>,
}

/// The layout of a read-only data object: pointers to functions of groups, then other bytes.
#[derive(Clone, Debug)]
pub struct Table {
    /// The groups of the functions that it points to, 8 bytes each from the start.
    pub pointers: Vec<u32>,
    /// The place in the memory of a pointer that follows, if there is one.
    pub memory: Option<i64>,
    /// The bytes that follow.
    pub bytes: Vec<u8>,
}

impl Table {
    /// The number of pointers.
    pub fn words(&self) -> usize {
        self.pointers.len() + usize::from(self.memory.is_some())
    }
}

/// A function as it was drawn, and what is known of it by construction.
#[derive(Clone, Debug)]
pub struct Seed {
    /// The function. References to `u0:G` and `u4:G` mean any member of the group G.
    pub func: Function,
    /// Its known properties.
    pub properties: Properties,
}

/// The properties of a function that are known by construction.
#[derive(Clone, Debug, Default)]
pub struct Properties {
    /// Instructions whose operands and immediates can be anything of the same type: what they
    /// compute is no address, and what they take is none.
    pub free: Vec<Inst>,
    /// Values that are addresses, or come from addresses.
    pub addresses: Vec<Value>,
    /// Accesses to the memory and to stack slots, but for those to fuel.
    pub accesses: Vec<Access>,
    /// Stack slots that are written at entry.
    pub slots: Vec<StackSlot>,
    /// Whether a branch depends on constants only, so that not all code that can be reached counts.
    pub folds: bool,
    /// Whether it can be run.
    pub runnable: bool,
}

/// An access to the memory or to a stack slot.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The load or the store.
    pub inst: Inst,
    /// How many bytes it reads or writes.
    pub bytes: u32,
    /// Where in a stack slot; the others are in the memory, where there are [`ROOM`] bytes behind.
    pub slot: Option<InSlot>,
    /// Whether the address is null once in a while.
    pub null: bool,
}

/// How far an access in the memory may be moved: more than any alignment that its facts state.
pub const ROOM: i32 = 16;

/// A place in a stack slot, by an address that nothing else uses.
#[derive(Clone, Copy, Debug)]
pub struct InSlot {
    /// The address of the place, or of the slot.
    pub address: Inst,
    /// The place.
    pub offset: u32,
}

/// A value that operations may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub value: Value,
    pub ty: Type,
    /// Whether it follows from constants.
    pub constant: bool,
}

/// A block, and what is known of it before it is filled.
pub(super) struct Node {
    pub block: Block,
    /// The types of its parameters, and whether they may be used.
    pub params: Vec<(Type, bool)>,
    /// The nodes that branch to it, but for those that it dominates.
    pub preds: Vec<usize>,
    /// Only one branch may lead to it.
    pub taken: bool,
    pub filled: bool,
    pub header: bool,
    idom: usize,
    depth: u32,
    /// The values that are known at its end, with those of its dominators.
    known: Vec<Known>,
}

/// The entities that instructions of a function refer to and share.
#[derive(Default)]
pub(super) struct Entities {
    /// The regions of the four quarters of the memory.
    pub regions: Vec<AliasRegion>,
    /// Functions, by namespace and index, and whether calls of them can be patched.
    pub imports: BTreeMap<(u32, u32, bool), FuncRef>,
    /// Symbols, by namespace and index, with an offset.
    pub symbols: BTreeMap<(u32, u32, i64), GlobalValue>,
}

/// A function in the making.
pub(super) struct Builder<'d, 'u, 'a> {
    pub draw: &'d mut Draw<'u, 'a>,
    pub profile: &'d Profile,
    pub callees: &'d Callees,
    pub body: &'d mut Body,
    pub properties: Properties,
    pub entities: Entities,
    /// The group of the function.
    pub group: u32,
    /// The values that can be used in it.
    pub known: Vec<Known>,
    /// The address of the memory.
    pub memory: Option<Value>,
    pub nodes: Vec<Node>,
    /// The node that is filled.
    pub at: usize,
    pub pending: VecDeque<usize>,
}

/// A signature that the machine's back end can compile.
pub fn signature(draw: &mut Draw<'_, '_>, profile: &Profile) -> Signature {
    use CallConv::*;
    if profile.unit.uniform {
        let mut signature = Signature::new(Tail);
        signature.params = vec![AbiParam::new(types::I64); 2];
        signature.returns = vec![AbiParam::new(types::I64)];
        return signature;
    }
    let x86 = [Tail, SystemV, Fast, Tail, WindowsFastcall, PreserveAll];
    let arm = [Tail, SystemV, Fast, Tail, AppleAarch64, PreserveAll];
    let call_conv = draw.choose(if profile.machine.is_x86() { &x86 } else { &arm });
    let mut signature = Signature::new(call_conv);
    let most = if profile.unit.differing { 10 } else { 6 };
    for _ in 0..draw.below(most) {
        let param = param(draw, profile, call_conv);
        signature.params.push(param);
    }
    // Results must fit into registers, whatever their types are.
    let most = match call_conv {
        PreserveAll => 0,
        WindowsFastcall => 1,
        Tail => 3,
        _ => 2,
    };
    for _ in 0..draw.below(most + 1) {
        let mut result = param(draw, profile, call_conv);
        result.purpose = ArgumentPurpose::Normal;
        if result.value_type == types::I128 && signature.returns.len() + 2 > most {
            result = AbiParam::new(types::I64);
        }
        signature.returns.push(result);
        if result.value_type == types::I128 {
            break;
        }
    }
    signature
}

fn param(draw: &mut Draw<'_, '_>, profile: &Profile, call_conv: CallConv) -> AbiParam {
    const COMMON: [Type; 6] =
        [types::I64, types::I32, types::I64, types::F64, types::I8, types::I16];
    let any = if draw.one_in(3) { draw.choose(&TYPES) } else { draw.choose(&COMMON) };
    let fits = match call_conv {
        CallConv::Tail => true,
        CallConv::WindowsFastcall => any.bits() <= 64 && any != types::F16,
        CallConv::AppleAarch64 => any.bits() <= 64 || any.is_vector(),
        _ => any != types::I128,
    };
    let ty = if fits && profile.knows(any) { any } else { types::I64 };
    let mut param = AbiParam::new(ty);
    if ty.is_int() && ty.bits() < 64 {
        param.extension = draw.choose(&[
            ArgumentExtension::None,
            ArgumentExtension::Uext,
            ArgumentExtension::Sext,
        ]);
    }
    if ty == types::I64 && draw.one_in(12) {
        param.purpose = ArgumentPurpose::VMContext;
    }
    param
}

/// The number by which a function of a seed says that it was entered. Numbers of two seeds differ
/// in more than one bit.
pub(super) fn seed_number(group: u32) -> i64 {
    i64::from(group + 1) * 0x11_0011
}

/// The trap code of a function that does nothing but trap.
pub(super) fn trivial_code(group: u32) -> TrapCode {
    TrapCode::unwrap_user(100 + (group % 100) as u8)
}

/// Draws the function of a group.
pub fn seed(draw: &mut Draw<'_, '_>, profile: &Profile, callees: &Callees, group: u32) -> Seed {
    let signature = callees.groups[group as usize].clone();
    let func =
        Function::with_name_signature(UserFuncName::user(conventions::FUNCTIONS, group), signature);
    let mut body = Body::new(func);
    let mut builder = Builder::new(draw, profile, callees, group, &mut body);
    builder.fill_all();
    let Builder { properties, .. } = builder;
    Seed { func: body.func, properties }
}

/// Adds to a function at the end of a block, of which nothing behind is in the layout. `known` are
/// the values that can be used there, and `memory` is the address of the memory if that is one of
/// them.
pub(super) fn grow<T>(
    seed: &mut Seed,
    block: Block,
    (known, memory): (Vec<Known>, Option<Value>),
    (profile, callees, group): (&Profile, &Callees, u32),
    draw: &mut Draw<'_, '_>,
    add: impl FnOnce(&mut Builder<'_, '_, '_>) -> T,
) -> T {
    let mut body = Body { func: std::mem::replace(&mut seed.func, Function::new()), block };
    let mut builder = Builder::new(draw, profile, callees, group, &mut body);
    builder.entities.regions =
        builder.body.func.dfg.alias_regions.iter().map(|(it, _)| it).collect();
    (builder.known, builder.memory) = (known, memory);
    builder.properties.slots.clone_from(&seed.properties.slots);
    let result = add(&mut builder);
    let Builder { properties: Properties { free, addresses, accesses, .. }, .. } = builder;
    seed.properties.free.extend(free);
    seed.properties.addresses.extend(addresses);
    seed.properties.accesses.extend(accesses);
    seed.func = body.func;
    result
}

/// Draws at most this number of operations on integers that every back end compiles, which use
/// these values, and returns their results.
pub(super) fn operations(
    body: &mut Body,
    draw: &mut Draw<'_, '_>,
    known: &[Value],
    count: usize,
) -> Vec<Value> {
    let profile = Profile { traps: false, portable: true, ..Profile::small() };
    let callees = Callees::default();
    let mut builder = Builder::new(draw, &profile, &callees, 0, body);
    for &value in known {
        let ty = builder.body.func.dfg.value_type(value);
        builder.known.push(Known { value, ty, constant: false });
    }
    let mut results = Vec::new();
    for _ in 0..count {
        let inst = builder.value_operation();
        results.extend(inst.map(|inst| builder.body.func.dfg.first_result(inst)));
    }
    results
}

impl<'d, 'u, 'a> Builder<'d, 'u, 'a> {
    fn new(
        draw: &'d mut Draw<'u, 'a>,
        profile: &'d Profile,
        callees: &'d Callees,
        group: u32,
        body: &'d mut Body,
    ) -> Self {
        Builder {
            draw,
            profile,
            callees,
            body,
            properties: Properties { runnable: true, ..Properties::default() },
            entities: Entities::default(),
            group,
            known: Vec::new(),
            memory: None,
            nodes: Vec::new(),
            at: 0,
            pending: VecDeque::new(),
        }
    }
}

impl Builder<'_, '_, '_> {
    /// The next instruction of the block.
    pub fn ins(&mut self) -> InsertBuilder<'_, End<'_>> {
        self.body.ins()
    }

    fn fill_all(&mut self) {
        let group = self.group;
        let entry = self.node(Vec::new(), false);
        self.pending.pop_front();
        self.nodes[entry].filled = true;
        self.body.block = self.nodes[entry].block;
        let params: Vec<AbiParam> = self.body.func.signature.params.clone();
        for param in params {
            let value = self.body.func.dfg.append_block_param(self.body.block, param.value_type);
            self.known.push(Known { value, ty: param.value_type, constant: false });
        }
        self.body.func.layout.append_block(self.body.block);
        if self.draw.one_in(if group == 0 { 10 } else { 40 }) {
            self.trivial(group);
            return;
        }
        self.stack_slots();
        let memory = self.address_of_memory(0);
        self.memory = Some(memory);
        for (user_id, name) in (1..).zip(["first", "second", "third", "read-only"]) {
            let data = AliasRegionData { user_id, description: name.into() };
            self.entities.regions.push(self.body.func.dfg.alias_regions.insert(data));
        }
        self.take_fuel();
        let number = self.ins().iconst(types::I64, seed_number(group));
        let flags = MemFlagsData::new().with_notrap().with_aligned();
        self.ins().store(flags, number, memory, SEED_OFFSET);
        self.write_stack_slots();
        self.body();
        while let Some(node) = self.pending.pop_front() {
            // The block that made the node may have ended without a branch to it.
            if !self.nodes[node].preds.is_empty() {
                self.enter(node);
                self.body();
            }
        }
        self.decorate();
    }

    /// A function of one instruction, which has no fuel to take.
    fn trivial(&mut self, group: u32) {
        let returns = self.body.func.signature.returns.iter();
        let param = |ty: Type| self.known.iter().find(|known| known.ty == ty);
        let params = returns.map(|result| param(result.value_type).map(|known| known.value));
        // One group only, or two of them could be equal.
        match params.collect::<Option<Vec<Value>>>() {
            Some(params) if group == 0 => _ = self.ins().return_(&params),
            _ => _ = self.ins().trap(trivial_code(group)),
        }
    }

    fn take_fuel(&mut self) {
        let fuel = self.fuel();
        self.ins().trapz(fuel, out_of_fuel());
        let one = self.ins().iconst(types::I64, 1);
        let less = self.ins().isub(fuel, one);
        let flags = MemFlagsData::new().with_notrap().with_aligned();
        let memory = self.memory();
        self.ins().store(flags, less, memory, FUEL_OFFSET);
    }

    fn fuel(&mut self) -> Value {
        let flags = MemFlagsData::new().with_notrap().with_aligned();
        let memory = self.memory();
        self.ins().load(types::I64, flags, memory, FUEL_OFFSET)
    }

    /// Whether there is enough fuel for what may not end before there is none.
    pub fn is_fuel_plentiful(&mut self) -> Value {
        let fuel = self.fuel();
        let used = self.draw.choose(&[8, 4, 16, 32]);
        let least = self.ins().iconst(types::I64, USUAL_FUEL - used);
        self.ins().icmp(IntCC::SignedGreaterThan, fuel, least)
    }

    /// Whether to go on with a loop: three times of four, as good as random.
    pub fn goes_on(&mut self) -> Value {
        let fuel = self.fuel();
        let spread = self.ins().iconst(types::I64, 0x9e37_79b9);
        let spread = self.ins().imul(fuel, spread);
        let sixteen = self.ins().iconst(types::I8, 16);
        let bits = self.ins().ushr(spread, sixteen);
        let three = self.ins().iconst(types::I64, 3);
        let bits = self.ins().band(bits, three);
        let zero = self.ins().iconst(types::I64, 0);
        self.ins().icmp(IntCC::NotEqual, bits, zero)
    }

    /// The address of the memory, which is known everywhere.
    pub fn memory(&self) -> Value {
        self.memory.expect("made at entry")
    }

    /// A symbol as a global value, one for each.
    pub fn symbol(&mut self, namespace: u32, index: u32, offset: i64) -> GlobalValue {
        if let Some(&global) = self.entities.symbols.get(&(namespace, index, offset)) {
            return global;
        }
        let global = self.body.symbol(UserExternalName { namespace, index }, offset, false);
        self.entities.symbols.insert((namespace, index, offset), global);
        global
    }

    /// The address of a symbol.
    pub fn address(&mut self, namespace: u32, index: u32, offset: i64) -> Value {
        let global = self.symbol(namespace, index, offset);
        let address = self.ins().symbol_value(types::I64, global);
        self.properties.addresses.push(address);
        address
    }

    /// The address of a byte of the memory.
    pub fn address_of_memory(&mut self, offset: i64) -> Value {
        let UserExternalName { namespace, index } = memory_symbol();
        self.address(namespace, index, offset)
    }

    fn stack_slots(&mut self) {
        const SIZES: [u32; 6] = [32, 16, 24, 8, 1, 40];
        for _ in 0..self.draw.below(self.profile.size.slots + 1) {
            let size = self.draw.choose(&SIZES);
            let align_shift = self.draw.below(6) as u8;
            let data = StackSlotData::new(StackSlotKind::ExplicitSlot, size, align_shift);
            let slot = self.body.func.create_sized_stack_slot(data);
            // Others are there and not used: a frame of another size.
            if size.is_multiple_of(8) {
                self.properties.slots.push(slot);
            }
        }
    }

    /// No word is read that was not written, and all words differ.
    fn write_stack_slots(&mut self) {
        let mut number = 0;
        for slot in self.properties.slots.clone() {
            for offset in (0..self.body.func.sized_stack_slots[slot].size as i32).step_by(8) {
                number += 0x0101_0101_0101_0101;
                let word = self.ins().iconst(types::I64, number);
                let address = self.ins().stack_addr(types::I64, slot, offset);
                self.properties.addresses.push(address);
                self.ins().store(MemFlagsData::new().with_notrap(), word, address, 0);
            }
        }
    }

    /// A node for a block that is filled later.
    pub fn node(&mut self, params: Vec<(Type, bool)>, taken: bool) -> usize {
        let block = self.body.func.dfg.make_block();
        let header = self.draw.one_in(3);
        self.nodes.push(Node {
            block,
            params,
            preds: Vec::new(),
            taken,
            filled: false,
            header,
            idom: 0,
            depth: 0,
            known: Vec::new(),
        });
        self.pending.push_back(self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    /// Begins to fill a block.
    fn enter(&mut self, node: usize) {
        let mut idom = self.nodes[node].preds[0];
        for at in 1..self.nodes[node].preds.len() {
            let mut other = self.nodes[node].preds[at];
            while idom != other {
                if self.nodes[idom].depth < self.nodes[other].depth {
                    other = self.nodes[other].idom;
                } else {
                    idom = self.nodes[idom].idom;
                }
            }
        }
        self.at = node;
        self.body.block = self.nodes[node].block;
        self.known = self.nodes[idom].known.clone();
        self.nodes[node].idom = idom;
        self.nodes[node].depth = self.nodes[idom].depth + 1;
        self.nodes[node].filled = true;
        for (ty, usable) in self.nodes[node].params.clone() {
            let value = self.body.func.dfg.append_block_param(self.body.block, ty);
            if usable {
                self.known.push(Known { value, ty, constant: false });
            } else {
                self.properties.addresses.push(value);
            }
        }
        self.body.func.layout.append_block(self.body.block);
        if self.draw.one_in(8) {
            self.body.func.layout.set_cold(self.body.block);
        }
        if self.nodes[node].header {
            self.take_fuel();
        }
    }

    pub fn dominates(&self, node: usize, mut other: usize) -> bool {
        while self.nodes[other].depth > self.nodes[node].depth {
            other = self.nodes[other].idom;
        }
        other == node
    }

    /// Fills the block from where it stands.
    fn body(&mut self) {
        let (first, end) = (self.at == 0, self.profile.size.operations + 1);
        let mut count = self.draw.below(end);
        if first {
            count = count.max(self.draw.below(end));
        }
        let before = self.known.len();
        for _ in 0..count {
            self.operation();
        }
        self.observe(before);
        self.nodes[self.at].known = std::mem::take(&mut self.known);
        self.known = self.nodes[self.at].known.clone();
        self.exit();
    }

    /// Source locations, which nothing depends on.
    fn decorate(&mut self) {
        if self.draw.one_in(3) {
            let mut rng = self.draw.rng();
            for block in self.body.func.layout.blocks().collect::<Vec<_>>() {
                for inst in self.body.func.layout.block_insts(block).collect::<Vec<_>>() {
                    if rng.one_in(2) {
                        self.body.func.set_srcloc(inst, SourceLoc::new(rng.below(5000) as u32));
                    }
                }
            }
        }
    }
}
