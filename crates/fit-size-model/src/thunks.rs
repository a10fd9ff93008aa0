//! Call thunks of many signatures and arguments, as merging makes them and probes for their costs.

use crate::sample::{Group, sample};
use cranelift_codegen::ir::{AbiParam, Signature, Type, UserExternalName, UserFuncName, types};
use cranelift_codegen::isa::{CallConv, TargetIsa};
use cranelift_mergefunc::thunk::{CallThunks, call_thunk};
use cranelift_mergefunc::{ExtraArgument, cranelift_codegen};
use cranelift_size_model::Registers;
use rayon::prelude::*;
use std::sync::Arc;

/// Thunks for both tail calls and ordinary ones.
pub fn group(isa: &dyn TargetIsa, registers: &Registers) -> Group {
    let mut cases: Vec<(Signature, Vec<ExtraArgument>, bool)> = Vec::new();
    for call_conv in [CallConv::SystemV, CallConv::Fast, CallConv::Tail] {
        for own in 0..12 {
            for floats in [0, 2] {
                for results in 0..3 {
                    let signature = signature(call_conv, own, floats, results);
                    for extra in extras(own + floats + results) {
                        cases.push((signature.clone(), extra.clone(), false));
                        if call_conv == CallConv::Tail {
                            cases.push((signature.clone(), extra, true));
                        }
                    }
                }
            }
        }
    }
    let samples = cases.par_iter().filter_map(|(signature, extra, tail_calls)| {
        let options = CallThunks { tail_calls: *tail_calls, colocated: true };
        let to = UserExternalName::new(0, 0);
        let thunk = call_thunk(UserFuncName::default(), signature, extra, &to, &options);
        sample(&thunk, isa, registers)
    });
    Group { name: "thunks".to_owned(), samples: samples.collect() }
}

fn signature(call_conv: CallConv, own: usize, floats: usize, results: usize) -> Signature {
    let mut signature = Signature::new(call_conv);
    let integers = (0..own).map(|at| if at % 3 == 2 { types::I32 } else { types::I64 });
    signature.params.extend(integers.map(AbiParam::new));
    signature.params.extend((0..floats).map(|_| AbiParam::new(types::F64)));
    signature.returns.extend((0..results).map(|_| AbiParam::new(types::I64)));
    signature
}

/// Lists of extra arguments: none, each alone, and sequences that begin at different ones.
fn extras(start: usize) -> Vec<Vec<ExtraArgument>> {
    let all = arguments();
    let mut lists = vec![Vec::new()];
    lists.extend(all.iter().map(|argument| vec![argument.clone()]));
    for length in 2..7 {
        for at in 0..3 {
            let from = start * 5 + length * 3 + at * 7;
            let list = (0..length).map(|next| all[(from + next * (at + 1)) % all.len()].clone());
            lists.push(list.collect());
        }
    }
    for length in [2, 4, 8, 20] {
        let zero = ExtraArgument::Constant { ty: types::I64, bits: 0 };
        lists.push(vec![zero; length]);
    }
    for ty in [types::F32, types::F64] {
        lists.push(vec![ExtraArgument::Constant { ty, bits: 0x5_1235 }; 3]);
    }
    lists
}

fn arguments() -> Vec<ExtraArgument> {
    let constants: [(Type, u64); 21] = [
        (types::I64, 0),
        (types::I32, 0),
        (types::I32, 1),
        (types::I8, 7),
        (types::I64, 24),
        (types::I32, 0x1235),
        (types::I64, 0x5_1235),
        (types::I32, 0xffff_fff0),
        (types::I64, 0xffff_ffff_ffff_fff0),
        (types::I64, 0xffff_ffff_8123_1235),
        (types::I64, 0x1235_1235_1235),
        (types::I64, 0x9235_1235_1235_1235),
        (types::F32, 0),
        (types::F32, 1),
        (types::F32, 0x1235),
        (types::F32, 0xffff_fff0),
        (types::F64, 0),
        (types::F64, 24),
        (types::F64, 0x5_1235),
        (types::F64, 0xffff_ffff_ffff_fff0),
        (types::F64, 0x1235_1235_1235),
    ];
    let mut all: Vec<ExtraArgument> =
        constants.iter().map(|&(ty, bits)| ExtraArgument::Constant { ty, bits }).collect();
    let signature = Arc::new(Signature::new(CallConv::Fast));
    for (at, colocated) in [true, false].into_iter().enumerate() {
        let at = at as u32;
        for ty in [types::I64, types::F64] {
            let symbol = UserExternalName::new(1, at);
            let signature = signature.clone();
            all.push(ExtraArgument::Function { ty, symbol, signature, colocated });
            let symbol = UserExternalName::new(2, at);
            all.push(ExtraArgument::Address { ty, symbol, offset: 0, colocated });
            let symbol = UserExternalName::new(3, at);
            all.push(ExtraArgument::Address { ty, symbol, offset: 8, colocated });
        }
    }
    all
}
