//! Every single change of a function's header and layout that changes what it means.
//!
//! The pattern over `FunctionStencil` names every field, as in `mutate`: where one is not mutated
//! here, the comment says where it is, or why it does not count.

use crate::mutate::tables::{global_mutants, signature_mutants};
use crate::mutate::{Mutant, other_type, retyped};
use cranelift_codegen::ir::function::FunctionStencil;
use cranelift_codegen::ir::{
    DynamicStackSlotData, DynamicType, DynamicTypeData, Function, Opcode, StackSlotData,
    StackSlotKind, types,
};

/// All mutants of a function's header, slots, stack limit and layout.
pub fn function_mutants(func: &Function) -> Vec<Mutant> {
    let FunctionStencil {
        version_marker: _, // says nothing
        signature,
        sized_stack_slots: _,   // in `stack_slots`
        dynamic_stack_slots: _, // in `dynamic_slots`
        global_values: _,       // by use
        dfg: _,                 // by use, except what follows
        layout: _,              // in `layout`
        srclocs: _,             // does not count: `sensitivity`
        debug_tags: _,          // does not count: `sensitivity`
        stack_limit,
    } = &func.stencil;
    let mut mutants = Mutants { func, list: Vec::new() };
    for (what, other) in signature_mutants(signature) {
        mutants.put(&what, |func| func.signature = other);
    }
    mutants.stack_slots();
    mutants.dynamic_slots();
    if let Some(limit) = *stack_limit {
        mutants.put("no stack limit", |func| func.stack_limit = None);
        for (what, change) in global_mutants(func, limit) {
            mutants.put(&format!("stack limit: {what}"), |func| {
                func.stack_limit = Some(change(func));
            });
        }
    } else if let Some(limit) = func.global_values.keys().next() {
        mutants.put("a stack limit", |func| func.stack_limit = Some(limit));
    }
    mutants.layout();
    mutants.list
}

struct Mutants<'a> {
    func: &'a Function,
    list: Vec<Mutant>,
}

impl Mutants<'_> {
    fn put(&mut self, what: &str, change: impl FnOnce(&mut Function)) {
        let mut func = self.func.clone();
        change(&mut func);
        self.list.push(Mutant { what: what.into(), func });
    }

    fn stack_slots(&mut self) {
        for (slot, data) in self.func.sized_stack_slots.iter() {
            // The key does not count: `sensitivity`.
            let StackSlotData { kind, size, align_shift, key: _ } = data;
            for bit in [0, 31] {
                let size = size ^ 1 << bit;
                self.put("slot size", |func| func.sized_stack_slots[slot].size = size);
            }
            // More than slots have anyway, on any target.
            let larger = (*align_shift).max(3) + 1;
            self.put("slot alignment", |func| {
                func.sized_stack_slots[slot].align_shift = larger;
            });
            let other = match kind {
                StackSlotKind::ExplicitSlot => StackSlotKind::ExplicitDynamicSlot,
                StackSlotKind::ExplicitDynamicSlot => StackSlotKind::ExplicitSlot,
            };
            self.put("slot kind", |func| func.sized_stack_slots[slot].kind = other);
        }
        let slots: Vec<_> = self.func.sized_stack_slots.keys().collect();
        for pair in slots.windows(2) {
            // The uses stay where they are, so the frame is another.
            self.put("exchanged slots", |func| {
                let (first, second) =
                    (func.sized_stack_slots[pair[0]].clone(), &func.sized_stack_slots[pair[1]]);
                func.sized_stack_slots[pair[0]] = second.clone();
                func.sized_stack_slots[pair[1]] = first;
            });
        }
        self.put("an unused slot", |func| {
            func.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 8, 3));
        });
    }

    fn dynamic_slots(&mut self) {
        for (ty, data) in self.func.dfg.dynamic_types.iter() {
            let DynamicTypeData { base_vector_ty, dynamic_scale } = data;
            let other = if *base_vector_ty == types::I8X16 { types::I64X2 } else { types::I8X16 };
            self.put("base of a dynamic type", |func| {
                func.dfg.dynamic_types[ty].base_vector_ty = other;
            });
            for (what, change) in global_mutants(self.func, *dynamic_scale) {
                self.put(&format!("scale of a dynamic type: {what}"), |func| {
                    let scale = change(func);
                    func.dfg.dynamic_types[ty].dynamic_scale = scale;
                });
            }
        }
        for (slot, data) in self.func.dynamic_stack_slots.iter() {
            let DynamicStackSlotData { kind, dyn_ty } = data;
            let other = match kind {
                StackSlotKind::ExplicitSlot => StackSlotKind::ExplicitDynamicSlot,
                StackSlotKind::ExplicitDynamicSlot => StackSlotKind::ExplicitSlot,
            };
            self.put("kind of a dynamic slot", |func| {
                func.dynamic_stack_slots[slot].kind = other;
            });
            let types = self.func.dfg.dynamic_types.keys();
            for other in types.filter(|other| other != dyn_ty) {
                self.put("type of a dynamic slot", |func| {
                    func.dynamic_stack_slots[slot].dyn_ty = other;
                });
            }
        }
        if !self.func.dfg.dynamic_types.is_empty() {
            self.put("an unused dynamic slot", |func| {
                let kind = StackSlotKind::ExplicitDynamicSlot;
                let data = DynamicStackSlotData::new(kind, DynamicType::from_u32(0));
                func.create_dynamic_stack_slot(data);
            });
        }
    }

    /// Block parameters, and which instructions there are in which order.
    fn layout(&mut self) {
        for block in self.func.layout.blocks() {
            for &param in self.func.dfg.block_params(block) {
                let ty = other_type(self.func.dfg.value_type(param));
                let func = retyped(self.func, param, ty);
                let what = format!("type of {param} of {block}");
                self.list.push(Mutant { what, func });
            }
            self.put(&format!("one more parameter of {block}"), |func| {
                func.dfg.append_block_param(block, types::I64);
            });
            let insts: Vec<_> = self.func.layout.block_insts(block).collect();
            let is_nop = |inst| self.func.dfg.insts[inst].opcode() == Opcode::Nop;
            for (at, &inst) in insts.iter().enumerate().filter(|&(_, &inst)| !is_nop(inst)) {
                let text = self.func.dfg.display_inst(inst);
                self.put(&format!("without `{text}`"), |func| func.layout.remove_inst(inst));
                if at + 2 < insts.len() && !is_nop(insts[at + 1]) {
                    self.put(&format!("`{text}` one later"), |func| {
                        func.layout.remove_inst(inst);
                        func.layout.insert_inst(inst, insts[at + 2]);
                    });
                }
            }
        }
    }
}
