//! Which arguments go in registers, roughly: for predicting sizes, not for making code.

use cranelift_codegen::ir::{AbiParam, ArgumentPurpose, Signature, types};
use cranelift_codegen::isa::CallConv;

/// The registers of a target, by their numbers.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// That take integer arguments.
    pub integer_arguments: u32,
    /// That take floating-point arguments.
    pub float_arguments: u32,
    /// Of those for integers, how many a function for tail calls keeps free.
    pub reserved_for_tail_calls: u32,
    /// Whether the address of a returned structure takes one of those for integers.
    pub counts_struct_return: bool,
    /// That hold integers, saved ones included.
    pub integers: u32,
    /// That hold floating-point numbers.
    pub floats: u32,
    /// That keep integers across a call.
    pub saved: u32,
    /// That hold integers, take no arguments and keep nothing across a call.
    pub scratch: u32,
}

impl Registers {
    /// x86-64: without stack pointer, frame pointer.
    pub const X86_64: Registers = Registers {
        integer_arguments: 6,
        float_arguments: 8,
        reserved_for_tail_calls: 0,
        counts_struct_return: true,
        integers: 14,
        floats: 16,
        saved: 5,
        scratch: 3,
    };

    /// aarch64: without stack pointer, frame pointer, link register, and those reserved for the
    /// platform and as scratch.
    pub const AARCH64: Registers = Registers {
        integer_arguments: 8,
        float_arguments: 8,
        reserved_for_tail_calls: 2,
        counts_struct_return: false,
        integers: 26,
        floats: 32,
        saved: 10,
        scratch: 8,
    };

    /// Nothing is taken yet by the arguments of a function of this convention.
    pub fn taken(&self, call_conv: CallConv) -> Taken {
        let reserved = match call_conv {
            CallConv::Tail => self.reserved_for_tail_calls,
            _ => 0,
        };
        let integers = match call_conv {
            CallConv::WindowsFastcall => 4,
            _ => self.integer_arguments - reserved,
        };
        Taken {
            integers,
            floats: self.float_arguments.min(integers.max(4)),
            counts_struct_return: self.counts_struct_return,
            integer: 0,
            float: 0,
            words: 0,
        }
    }

    /// The words of 8 bytes that the arguments of a function take on the stack.
    pub fn stack_words(&self, signature: &Signature) -> u32 {
        let mut taken = self.taken(signature.call_conv);
        for param in &signature.params {
            taken.place(param);
        }
        taken.words
    }
}

/// The registers that the arguments so far take.
pub struct Taken {
    integers: u32,
    floats: u32,
    counts_struct_return: bool,
    /// Of those for integers.
    pub integer: u32,
    float: u32,
    /// The words on the stack.
    pub words: u32,
}

/// Where an argument goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In a register of this number.
    Register(u32),
    /// On the stack, behind this number of words.
    Stack(u32),
}

impl Taken {
    /// The place of the next argument.
    pub fn place(&mut self, param: &AbiParam) -> Location {
        let ty = param.value_type;
        match param.purpose {
            ArgumentPurpose::StructReturn if !self.counts_struct_return => {
                return Location::Register(0);
            }
            ArgumentPurpose::StructArgument(size) => return self.on_stack(size.div_ceil(8)),
            _ => {}
        }
        let words = if ty == types::I128 { 2 } else { 1 };
        let (taken, all) = match ty.is_int() {
            true => (&mut self.integer, self.integers),
            false => (&mut self.float, self.floats),
        };
        if *taken + words > all {
            return self.on_stack(words.max(ty.bytes().div_ceil(8)));
        }
        let register = *taken;
        *taken += words;
        Location::Register(register)
    }

    fn on_stack(&mut self, words: u32) -> Location {
        let before = self.words;
        self.words += words;
        Location::Stack(before)
    }
}
