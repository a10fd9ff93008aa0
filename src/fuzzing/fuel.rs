//! Fuel for functions that were not made to be run: everything ends.
//!
//! Every block takes one from the fuel at the start of the imported memory, and traps when there is
//! none. Control flow that is equal takes equally much, whatever the layout is and whether a branch
//! is written as a jump, so this can be done before or after merging.

use crate::fuzzing::program::MEMORY;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::immediates::Imm64;
use cranelift_codegen::ir::{
    ExternalName, Function, GlobalValueData, InstBuilder, MemFlagsData, TrapCode, UserExternalName,
    types,
};

/// With what a function traps that has no fuel.
pub const OUT_OF_FUEL: TrapCode = TrapCode::unwrap_user(42);

/// Lets every block of a function take from the fuel. Linear in its blocks.
pub fn limit(func: &mut Function) {
    let name = func.params.ensure_user_func_name(UserExternalName::new(MEMORY, 0));
    let fuel = func.create_global_value(GlobalValueData::Symbol {
        name: ExternalName::User(name),
        offset: Imm64::new(0),
        colocated: true,
        tls: false,
    });
    let blocks: Vec<_> = func.layout.blocks().collect();
    for block in blocks {
        let mut cursor = FuncCursor::new(func);
        cursor.goto_first_insertion_point(block);
        let address = cursor.ins().symbol_value(types::I64, fuel);
        let left = cursor.ins().load(types::I64, MemFlagsData::trusted(), address, 0);
        let one = cursor.ins().iconst(types::I64, 1);
        let left = cursor.ins().isub(left, one);
        cursor.ins().store(MemFlagsData::trusted(), left, address, 0);
        let zero = cursor.ins().iconst(types::I64, 0);
        let enough = cursor.ins().icmp(IntCC::SignedGreaterThanOrEqual, left, zero);
        cursor.ins().trapz(enough, OUT_OF_FUEL);
    }
}
