//! Units of any number of functions: how time and memory grow.
//!
//! Each [`Family`] is one shape that large units take, or one that makes a naive algorithm
//! quadratic. The same family, size and index give the same function, with a symbol `u0:INDEX`. It
//! knows nothing of what is merged.

use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{
    AbiParam, ExtFuncData, ExternalName, Function, InstBuilder, MemFlagsData, Signature,
    UserExternalName, UserFuncName, Value,
};
use cranelift_codegen::isa::CallConv;
use fastrand::Rng;

/// A kind of unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Functions of many sizes that call others; two of five do the same as an earlier one.
    Mixed,
    /// Two call chains of equal functions, each through half the unit: they differ at the end.
    Chains,
    /// Ten rings of mutually recursive functions, each with one function in a thousand that
    /// differs.
    Rings,
    /// Three of ten functions are equal, the others are those of `Mixed`.
    Equal,
    /// One shape, and all constants different.
    Constants,
    /// Equally many blocks, instructions and values, and all shapes different.
    Shapes,
}

impl Family {
    pub const ALL: [Family; 6] = [
        Family::Mixed,
        Family::Chains,
        Family::Rings,
        Family::Equal,
        Family::Constants,
        Family::Shapes,
    ];

    /// The unit of `count` functions.
    pub fn unit(self, count: u32) -> Vec<Function> {
        (0..count).map(|index| self.function(index, count)).collect()
    }

    /// One of its functions.
    pub fn function(self, index: u32, count: u32) -> Function {
        function(index, &self.content(index, count))
    }

    fn content(self, index: u32, count: u32) -> Content {
        let small = |constant: u64, callee: Option<u32>| Content {
            shape: 0,
            constants: constant,
            steps: 8,
            callees: callee.into_iter().collect(),
        };
        match self {
            Family::Mixed => mixed(index),
            Family::Chains => {
                let (chain, at) = (index % 2, index / 2);
                let last = at + 1 >= count / 2;
                small(if last { u64::from(chain) } else { 2 }, (!last).then_some(index + 2))
            }
            Family::Rings => {
                let length = (count / 10).max(1);
                let first = index - index % length;
                let next = first + (index - first + 1) % length;
                let next = if next < count { next } else { first };
                small(u64::from((index % length).is_multiple_of(1000)), Some(next))
            }
            Family::Equal if index % 10 < 3 => small(0, None),
            Family::Equal => mixed(index),
            Family::Constants => small(1 + u64::from(index), None),
            Family::Shapes => {
                Content { shape: 1 + u64::from(index), constants: 0, steps: 24, callees: vec![] }
            }
        }
    }
}

/// The contents of a function: functions of equal contents are equal.
struct Content {
    shape: u64,
    constants: u64,
    /// Instructions before the calls, roughly.
    steps: u32,
    callees: Vec<u32>,
}

/// A function of [`Family::Mixed`].
fn mixed(index: u32) -> Content {
    let mut random = Rng::with_seed(u64::from(index));
    if index > 10 && random.u32(..5) < 2 {
        // An equal one calls the same functions.
        return mixed(random.u32(..index));
    }
    // Most functions are small, some are large.
    let steps = 4 + random.u32(..12) + random.u32(..8) * random.u32(..8) * random.u32(..3);
    let callees = match index {
        0 => vec![],
        _ => (0..random.u32(..3)).map(|_| random.u32(..index)).collect(),
    };
    // One of ten differs in its constants alone from others of its shape.
    let shape = if random.u32(..10) == 0 { index % 1000 } else { index };
    Content { shape: 1 + u64::from(shape), constants: u64::from(index), steps, callees }
}

fn function(index: u32, content: &Content) -> Function {
    let mut signature = Signature::new(CallConv::SystemV);
    signature.params.extend([AbiParam::new(I64), AbiParam::new(I64)]);
    signature.returns.push(AbiParam::new(I64));
    let name = UserFuncName::user(0, index);
    let mut func = Function::with_name_signature(name, signature.clone());
    let mut constants = Rng::with_seed(content.constants);
    let mut shape = Rng::with_seed(content.shape);
    let mut callees = Vec::new();
    if !content.callees.is_empty() {
        let signature = func.import_signature(signature);
        for &callee in &content.callees {
            let symbol = UserExternalName { namespace: 0, index: callee };
            let name = ExternalName::user(func.declare_imported_user_function(symbol));
            let data = ExtFuncData { name, signature, colocated: true, patchable: false };
            callees.push(func.import_function(data));
        }
    }
    let block = func.dfg.make_block();
    let mut values: Vec<Value> = (0..2).map(|_| func.dfg.append_block_param(block, I64)).collect();
    let mut cursor = FuncCursor::new(&mut func);
    cursor.insert_block(block);
    for step in 0..content.steps {
        let a = values[shape.usize(..values.len())];
        let b = values[shape.usize(..values.len())];
        let value = match (shape.u32(..9), step) {
            (_, 0) => cursor.ins().iconst(I64, constants.i64(0..1 << 40)),
            (0, _) => cursor.ins().iadd(a, b),
            (1, _) => cursor.ins().isub(a, b),
            (2, _) => cursor.ins().imul(a, b),
            (3, _) => cursor.ins().band(a, b),
            (4, _) => cursor.ins().bxor(a, b),
            (5, _) => cursor.ins().ushr(a, b),
            (6, _) => cursor.ins().load(I64, MemFlagsData::new(), a, 8),
            (7, _) => cursor.ins().umax(a, b),
            (_, _) => cursor.ins().smin(a, b),
        };
        values.push(value);
        if step % 16 == 15 {
            // A block that the function may leave out, so that large functions have many.
            let (then, join) = (cursor.func.dfg.make_block(), cursor.func.dfg.make_block());
            let joined = cursor.func.dfg.append_block_param(join, I64);
            let condition = cursor.ins().icmp(IntCC::SignedLessThan, a, value);
            cursor.ins().brif(condition, then, &[], join, &[value.into()]);
            cursor.insert_block(then);
            let changed = cursor.ins().bnot(value);
            cursor.ins().jump(join, &[changed.into()]);
            cursor.insert_block(join);
            values.push(joined);
        }
    }
    let mut last = *values.last().expect("two parameters");
    for callee in callees {
        let call = cursor.ins().call(callee, &[last, values[0]]);
        last = cursor.func.dfg.first_result(call);
    }
    cursor.ins().return_(&[last]);
    func
}

#[cfg(test)]
mod tests {
    use super::*;
    use cranelift_codegen::settings;

    #[test]
    fn functions_are_verified() {
        let flags = settings::Flags::new(settings::builder());
        for family in Family::ALL {
            for func in family.unit(200) {
                cranelift_codegen::verify_function(&func, &flags).expect("valid");
            }
        }
    }
}
