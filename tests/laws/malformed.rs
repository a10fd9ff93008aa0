//! Law: a function that the verifier refuses because of a reference to an entity that does not
//! exist has no encoding, and nothing panics. The checker refuses it, too.

use crate::support::{corpus, parse_one, walk_all};
use cranelift_codegen::entity::EntityRef;
use cranelift_codegen::ir::instructions::InstructionMapper;
use cranelift_codegen::ir::{
    self, Block, BlockArg, BlockCall, Constant, DynamicStackSlot, ExceptionTable, FuncRef,
    Function, GlobalValue, GlobalValueData, Immediate, Inst, JumpTable, MemFlags, SigRef,
    StackSlot, Value, ValueList, ValueListPool,
};
use cranelift_mergefunc::check::may_replace;
use cranelift_mergefunc::explain::Encoding;

/// An index that no table of the corpus has.
const NOWHERE: usize = 5000;

/// Copies an instruction, with one of its references to an entity that does not exist.
struct Spoiler<'a> {
    pool: &'a mut ValueListPool,
    /// A spoilt operand.
    value: Value,
    /// References that stay as they are before the one that is spoilt.
    before: usize,
    /// The spoilt part.
    spoilt: Option<&'static str>,
}

impl Spoiler<'_> {
    fn entity<T: EntityRef>(&mut self, what: &'static str, old: T) -> T {
        self.other(what, old, T::new(NOWHERE))
    }

    fn other<T>(&mut self, what: &'static str, old: T, nowhere: T) -> T {
        if self.spoilt.is_some() {
            return old;
        }
        match self.before.checked_sub(1) {
            Some(before) => {
                self.before = before;
                old
            }
            None => {
                self.spoilt = Some(what);
                nowhere
            }
        }
    }
}

impl InstructionMapper for Spoiler<'_> {
    fn map_value(&mut self, value: Value) -> Value {
        self.other("a value", value, self.value)
    }

    fn map_value_list(&mut self, list: ValueList) -> ValueList {
        let values = list.as_slice(self.pool).to_vec();
        let values: Vec<Value> = values.into_iter().map(|value| self.map_value(value)).collect();
        ValueList::from_slice(&values, self.pool)
    }

    fn map_global_value(&mut self, global_value: GlobalValue) -> GlobalValue {
        self.entity("a global value", global_value)
    }

    fn map_jump_table(&mut self, jump_table: JumpTable) -> JumpTable {
        self.entity("a jump table", jump_table)
    }

    fn map_exception_table(&mut self, exception_table: ExceptionTable) -> ExceptionTable {
        self.entity("an exception table", exception_table)
    }

    fn map_block_call(&mut self, block_call: BlockCall) -> BlockCall {
        let block = self.map_block(block_call.block(self.pool));
        let args: Vec<BlockArg> = block_call.args(self.pool).collect();
        let args: Vec<BlockArg> =
            args.into_iter().map(|arg| arg.map_value(|value| self.map_value(value))).collect();
        BlockCall::new(block, args, self.pool)
    }

    fn map_block(&mut self, block: Block) -> Block {
        self.entity("a block", block)
    }

    fn map_func_ref(&mut self, func_ref: FuncRef) -> FuncRef {
        self.entity("a function", func_ref)
    }

    fn map_sig_ref(&mut self, sig_ref: SigRef) -> SigRef {
        self.entity("a signature", sig_ref)
    }

    fn map_stack_slot(&mut self, stack_slot: StackSlot) -> StackSlot {
        self.entity("a stack slot", stack_slot)
    }

    fn map_dynamic_stack_slot(&mut self, slot: DynamicStackSlot) -> DynamicStackSlot {
        self.entity("a dynamic stack slot", slot)
    }

    fn map_constant(&mut self, constant: Constant) -> Constant {
        self.entity("a constant", constant)
    }

    fn map_immediate(&mut self, immediate: Immediate) -> Immediate {
        self.entity("an immediate", immediate)
    }

    fn map_mem_flags(&mut self, flags: MemFlags) -> MemFlags {
        self.entity("memory flags", flags)
    }
}

/// A function with one reference of `inst` spoilt, and of what kind it is. `None` if there are not
/// this number.
fn spoilt(
    func: &Function,
    inst: Inst,
    before: usize,
    value: Value,
) -> Option<(Function, &'static str)> {
    let mut func = func.clone();
    let data = func.dfg.insts[inst];
    let mut spoiler = Spoiler { pool: &mut func.dfg.value_lists, value, before, spoilt: None };
    let data = data.map(&mut spoiler);
    let what = spoiler.spoilt?;
    func.dfg.insts[inst] = data;
    Some((func, what))
}

fn is_refused(func: &Function, original: &Function, what: &str) {
    assert!(Encoding::of(func, &walk_all()).is_none(), "{what}");
    assert!(may_replace(func, original, &walk_all()).is_err(), "{what}");
    assert!(may_replace(original, func, &walk_all()).is_err(), "original {what}");
}

#[test]
fn a_reference_that_leads_nowhere_is_refused() {
    let mut kinds = std::collections::BTreeSet::new();
    for mut func in corpus() {
        // The parser's invalid value in the gaps of a numbering.
        func.dfg.make_invalid_value_for_parser();
        let gap = func.dfg.num_values() - 1;
        let values = [Value::new(NOWHERE), Value::new(gap)];
        let insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
        for inst in insts.collect::<Vec<_>>() {
            for value in values {
                for before in 0.. {
                    let Some((other, what)) = spoilt(&func, inst, before, value) else {
                        break;
                    };
                    let place = format!("{what} of {inst} of\n{func}");
                    is_refused(&other, &func, &place);
                    kinds.insert(what);
                }
            }
        }
    }
    assert_eq!(kinds.len(), 12, "{kinds:?}");
}

#[test]
fn a_stack_limit_that_leads_nowhere_is_refused() {
    let text = "function u0:0(i64 vmctx) system_v {
    gv0 = vmctx
    gv1 = load.i64 notrap aligned gv0+16
    gv2 = iadd_imm.i64 gv1, 8
    stack_limit = gv2
block0(v0: i64):
    return
}";
    let func = parse_one(text);
    let spoil: [fn(&mut Function); 4] = [
        |func| func.stencil.stack_limit = Some(GlobalValue::new(NOWHERE)),
        |func| {
            let GlobalValueData::IAddImm { base, .. } =
                &mut func.global_values[GlobalValue::new(2)]
            else {
                panic!("is a sum");
            };
            *base = GlobalValue::new(NOWHERE);
        },
        |func| {
            let GlobalValueData::Load { base, .. } = &mut func.global_values[GlobalValue::new(1)]
            else {
                panic!("is a load");
            };
            *base = GlobalValue::new(2);
        },
        |func| {
            let GlobalValueData::Load { flags, .. } = &mut func.global_values[GlobalValue::new(1)]
            else {
                panic!("is a load");
            };
            *flags = MemFlags::new(NOWHERE);
        },
    ];
    for (at, spoil) in spoil.into_iter().enumerate() {
        let mut other = func.clone();
        spoil(&mut other);
        is_refused(&other, &func, &format!("{at}"));
    }
}

#[test]
fn tables_that_lead_nowhere_are_refused() {
    let text = "function u0:0(i64) -> i64 system_v {
    sig0 = (i64) -> i64 system_v
    fn0 = u0:1 sig0
block0(v0: i64):
    v1 = call fn0(v0)
    return v1
}";
    let func = parse_one(text);
    let callee = FuncRef::new(0);
    let mut other = func.clone();
    other.dfg.ext_funcs[callee].signature = SigRef::new(NOWHERE);
    is_refused(&other, &func, "a callee without a signature");
    let mut other = func.clone();
    other.dfg.ext_funcs[callee].name =
        ir::ExternalName::User(ir::UserExternalNameRef::new(NOWHERE));
    is_refused(&other, &func, "a callee without a symbol");
    let mut other = func.clone();
    other.layout.clear();
    is_refused(&other, &func, "no blocks");
}

#[test]
fn a_use_before_the_definition_is_refused() {
    let func = parse_one(
        "function u0:0(i64) -> i64 system_v {
block0(v0: i64):
    v1 = iadd v0, v0
    v2 = isub v1, v0
    return v2
}",
    );
    let mut other = func.clone();
    let entry = func.layout.entry_block().expect("a block");
    let insts: Vec<Inst> = func.layout.block_insts(entry).collect();
    other.layout.remove_inst(insts[0]);
    other.layout.insert_inst(insts[0], insts[2]);
    is_refused(&other, &func, "another order");
    is_refused(&other, &other, "the same order");
}

/// A region that does not exist is not a fact that could be dropped.
#[test]
fn a_region_that_is_not_there_is_refused() {
    let text = |region: &str| {
        parse_one(&format!(
            "function u0:0(i64) -> i64 system_v {{
    region0 = 1 \"one\"
block0(v0: i64):
    v1 = load.i64 notrap {region} v0
    return v1
}}"
        ))
    };
    let nowhere = |mut func: Function| {
        let load = func.layout.blocks().flat_map(|block| func.layout.block_insts(block)).next();
        let load = load.expect("a load");
        let flags = func.dfg.insts[load].memflags_data(&func.dfg).expect("of an access");
        let flags = flags.with_alias_region(Some(ir::AliasRegion::new(NOWHERE)));
        let interned = func.dfg.mem_flags.insert(flags).expect("has room");
        let ir::InstructionData::Load { flags, .. } = &mut func.dfg.insts[load] else {
            panic!("is a load");
        };
        *flags = interned;
        func
    };
    for other in [text("region0"), text("")] {
        is_refused(&nowhere(other.clone()), &other, "a region");
    }
}
