//! The facts that must hold where a function is called, so that all facts in it, and in its
//! callees, are true.
//!
//! Merging keeps facts only if they hold for every function that a body is used for. A program can
//! show this only if its facts are true, and if functions without facts are called where those of
//! their copies would be false. A [`Contract`] says what is true of the pointers of a function;
//! [`settle`] computes all contracts, and changes calls that cannot keep the contract of their
//! callee.

use super::program::{Argument, End, Function, Passes, Pointer, Program, Statement};

/// The facts that hold wherever a function is called. The bits only ever grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contract {
    /// The two pointers never reach the same byte.
    pub disjoint: bool,
    /// They are aligned to 16 bytes.
    pub aligned: [bool; 2],
    /// No function ever writes to the memory behind it.
    pub frozen: [bool; 2],
    /// Some function may write to the memory behind it.
    pub written: [bool; 2],
    /// It is not null, whatever `g` is.
    pub valid: [bool; 2],
}

impl Contract {
    /// The needs of the accesses of a function itself.
    fn of(function: &Function) -> Contract {
        let facts = &function.facts;
        let mut contract = Contract::default();
        let (mut loads, mut stores) = ([false; 2], [false; 2]);
        for statement in &function.statements {
            match statement {
                Statement::Reload { read, written, .. } => {
                    loads[*read] = true;
                    stores[*written] = true;
                    contract.valid[*read] = true;
                    contract.valid[*written] = true;
                }
                Statement::Vector { pointer, .. } => {
                    loads[*pointer] = true;
                    contract.valid[*pointer] = true;
                }
                Statement::Guarded { .. } => {
                    loads[0] = true;
                    // The load may be moved, so it may be executed whatever `g` is.
                    contract.valid[0] |= facts.can_move[0];
                }
                Statement::Constant(..)
                | Statement::Float(_)
                | Statement::Mix { .. }
                | Statement::Extra(_)
                | Statement::Slot { .. }
                | Statement::Number { .. }
                | Statement::Through(_)
                | Statement::Compare(_)
                | Statement::Misaligned(_)
                | Statement::Switch(_)
                | Statement::Call { .. } => {}
            }
        }
        let accessed = [0, 1].map(|at| loads[at] || stores[at]);
        contract.disjoint =
            accessed == [true; 2] && stores != [false; 2] && facts.regions[0] != facts.regions[1];
        for at in 0..2 {
            contract.aligned[at] = accessed[at] && facts.aligned[at];
            contract.frozen[at] = loads[at] && facts.readonly[at];
            contract.written[at] = stores[at];
        }
        contract
    }

    /// The requirements of this contract, of a callee, on the caller that passes these pointers.
    /// `None` if the caller cannot ensure it.
    fn through(&self, pointers: [Pointer; 2]) -> Option<Contract> {
        let mut needed = Contract::default();
        for (at, pointer) in pointers.into_iter().enumerate() {
            match pointer {
                Pointer::Own(own) | Pointer::Next(own) => {
                    needed.aligned[own] |= self.aligned[at];
                    needed.frozen[own] |= self.frozen[at];
                    needed.written[own] |= self.written[at];
                    // Only `a` may be null, and a pointer behind a null pointer is not null.
                    let stays_null = at == 0 && pointer == Pointer::Own(0);
                    needed.valid[own] |= self.valid[at] || !stays_null;
                }
                Pointer::Slot if self.frozen[at] => return None,
                Pointer::Frozen if self.written[at] => return None,
                Pointer::Slot | Pointer::Frozen => {}
            }
        }
        if self.disjoint {
            match pointers {
                [
                    Pointer::Own(one) | Pointer::Next(one),
                    Pointer::Own(other) | Pointer::Next(other),
                ] => {
                    if one == other {
                        return None;
                    }
                    needed.disjoint = true;
                }
                // There is a slot for each. Where one is never written, both may be that one.
                [Pointer::Frozen | Pointer::Slot, _] | [_, Pointer::Frozen | Pointer::Slot] => {}
            }
        }
        Some(needed)
    }

    fn join(&mut self, other: &Contract) {
        self.disjoint |= other.disjoint;
        for at in 0..2 {
            self.aligned[at] |= other.aligned[at];
            self.frozen[at] |= other.frozen[at];
            self.written[at] |= other.written[at];
            self.valid[at] |= other.valid[at];
        }
    }

    fn is_contradictory(&self) -> bool {
        (0..2).any(|at| self.frozen[at] && self.written[at])
    }
}

/// The contracts of all functions, by number.
///
/// A fact of a function that its own accesses make false is dropped. A call whose callee requires
/// what the caller cannot ensure passes other pointers, and a tail call is dropped.
pub fn settle(program: &mut Program) -> Vec<Contract> {
    for function in &mut program.functions {
        let Contract { written, .. } = Contract::of(function);
        for (readonly, written) in function.facts.readonly.iter_mut().zip(written) {
            *readonly &= !written;
        }
    }
    loop {
        match contracts(program) {
            Ok(contracts) => return contracts,
            Err((function, callee)) => repair(program, function, &callee),
        }
    }
}

/// The contracts, or a function that cannot keep them and the contracts that its calls must allow
/// for.
fn contracts(program: &Program) -> Result<Vec<Contract>, (usize, Vec<Contract>)> {
    let mut contracts: Vec<Contract> = program.functions.iter().map(Contract::of).collect();
    loop {
        let before = contracts.clone();
        for function in 0..contracts.len() {
            for (callee, passes) in program.calls_of(function) {
                match contracts[callee].through(passes.pointers) {
                    Some(needed) => contracts[function].join(&needed),
                    None => return Err((function, contracts)),
                }
            }
            if contracts[function].is_contradictory() {
                return Err((function, contracts));
            }
        }
        if contracts == before {
            return Ok(contracts);
        }
    }
}

/// Makes all calls of a function pass pointers that allow for everything that the callees may
/// require.
fn repair(program: &mut Program, function: usize, contracts: &[Contract]) {
    let callees: Vec<usize> =
        program.calls_of(function).into_iter().map(|(callee, _)| callee).collect();
    let Function { statements, end, .. } = &mut program.functions[function];
    let mut passes: Vec<&mut Passes> = Vec::new();
    for statement in statements {
        if let Statement::Call { passes: own, .. } = statement {
            passes.push(own);
        }
    }
    let mut changed = false;
    for (passes, callee) in passes.into_iter().zip(callees) {
        let frozen = contracts[callee].frozen;
        let pointers = frozen.map(|frozen| if frozen { Pointer::Frozen } else { Pointer::Slot });
        changed |= passes.pointers != pointers;
        passes.pointers = pointers;
    }
    // The stack slots of a function no longer exist when it makes a tail call.
    if let End::Tail(..) = end {
        *end = End::Return;
        changed = true;
    }
    assert!(changed, "function {function} cannot keep the contracts of its callees");
}

/// Whether a call can pass this for a number of that type.
pub fn fits(argument: Argument, function: &Function, at: usize, callee: &Function) -> bool {
    match argument {
        Argument::Constant(_) | Argument::Current => true,
        Argument::Own(own) => function.shape.extras.get(own) == callee.shape.extras.get(at),
    }
}
