//! A function in the making: everything that adds to one adds through this.

use cranelift_codegen::ir::{
    Block, DataFlowGraph, ExtFuncData, ExternalName, FuncRef, Function, GlobalValue,
    GlobalValueData, InsertBuilder, Inst, InstBuilder, InstInserterBase, InstructionData, SigRef,
    Type, UserExternalName, Value,
};
use cranelift_entity::EntityRef;

/// A function, and the block at whose end it grows.
pub(super) struct Body {
    pub func: Function,
    pub block: Block,
}

/// Appends instructions to a block.
pub(super) struct End<'f> {
    func: &'f mut Function,
    block: Block,
}

impl<'f> InstInserterBase<'f> for End<'f> {
    fn data_flow_graph(&self) -> &DataFlowGraph {
        &self.func.dfg
    }

    fn data_flow_graph_mut(&mut self) -> &mut DataFlowGraph {
        &mut self.func.dfg
    }

    fn insert_built_inst(self, inst: Inst) -> &'f mut DataFlowGraph {
        self.func.layout.append_inst(inst, self.block);
        &mut self.func.dfg
    }

    fn insert_aux_inst(&mut self, inst: Inst) {
        self.func.layout.append_inst(inst, self.block);
    }
}

impl Body {
    /// A function without blocks.
    pub fn new(func: Function) -> Body {
        Body { func, block: Block::new(0) }
    }

    /// The next instruction of the block.
    pub fn ins(&mut self) -> InsertBuilder<'_, End<'_>> {
        InsertBuilder::new(End { func: &mut self.func, block: self.block })
    }

    /// An instruction from its data.
    pub fn append(&mut self, data: InstructionData, ctrl: Type) -> Inst {
        let inst = self.func.dfg.make_inst(data);
        self.func.dfg.make_inst_results(inst, ctrl);
        self.func.layout.append_inst(inst, self.block);
        inst
    }

    /// A new block, to be branched to.
    pub fn new_block(&mut self, params: &[Type]) -> Block {
        let block = self.func.dfg.make_block();
        for &ty in params {
            self.func.dfg.append_block_param(block, ty);
        }
        block
    }

    /// Continues in such a block, with its parameters.
    pub fn continue_in(&mut self, block: Block) -> Vec<Value> {
        self.func.layout.append_block(block);
        self.block = block;
        self.func.dfg.block_params(block).to_vec()
    }

    fn name(&mut self, symbol: UserExternalName) -> ExternalName {
        ExternalName::User(self.func.params.ensure_user_func_name(symbol))
    }

    /// An import of a function.
    pub fn import(
        &mut self,
        symbol: UserExternalName,
        signature: SigRef,
        [colocated, patchable]: [bool; 2],
    ) -> FuncRef {
        let name = self.name(symbol);
        self.func.import_function(ExtFuncData { name, signature, colocated, patchable })
    }

    /// A symbol as a global value.
    pub fn symbol(
        &mut self,
        symbol: UserExternalName,
        offset: i64,
        colocated: bool,
    ) -> GlobalValue {
        let name = self.name(symbol);
        let data = GlobalValueData::Symbol { name, offset: offset.into(), colocated, tls: false };
        self.func.create_global_value(data)
    }

    /// The low bits of an integer.
    pub fn as_type(&mut self, value: Value, ty: Type) -> Value {
        let old = self.func.dfg.value_type(value);
        match old.bits().cmp(&ty.bits()) {
            std::cmp::Ordering::Less => self.ins().uextend(ty, value),
            std::cmp::Ordering::Equal => value,
            std::cmp::Ordering::Greater => self.ins().ireduce(ty, value),
        }
    }
}
