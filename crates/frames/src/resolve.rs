//! Which functions the frames of one stack belong to.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// The function that an instruction called before merging.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callee<F> {
    /// It is no call, or a call through a pointer, or not known.
    Unknown,
    /// This one.
    Function(F),
}

/// A function that the code of a frame may be running.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running<F> {
    /// The function, as it was before merging.
    pub function: F,
    /// Its source location at the address, if it has one.
    pub location: Option<u32>,
    /// Which function it called, where the address is that of a return.
    pub callee: Callee<F>,
}

/// A frame, as far as its address says: the functions that it may belong to. None, if the code is
/// not known.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level<F> {
    /// The functions, in any order.
    pub running: Vec<Running<F>>,
    /// Whether the code is a thunk of its functions, which calls their code: then the next frame
    /// belongs to one of them, and this one would not exist without merging.
    pub is_thunk: bool,
}

/// Which functions a function may tail-call: their frames take the place of its own.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TailCallees<F> {
    /// Some that are not known.
    Any,
    /// These alone, directly.
    Known(Vec<F>),
}

/// The tail calls of all functions whose instructions are known. A function that is not there may
/// tail-call any function.
///
/// See the [example](crate#example).
pub type TailCalls<F> = BTreeMap<F, TailCallees<F>>;

/// Removes from the frames of a stack, innermost first, the functions that they cannot belong to.
///
/// The frames must be all of the stack, thunks included, but for frames of code that is not known,
/// some of which may be missing: where no function of a frame can have been called from the frame
/// above it, all remain. If every call on the stack is direct and the function of the outermost
/// frame is known, one function remains in each frame: that which runs without merging.
///
/// O(n k log k) for n frames of at most k functions each, if there are few tail calls.
///
/// See the [example](crate#example).
pub fn resolve<F: Ord + Clone>(levels: &mut [Level<F>], tail_calls: &TailCalls<F>) {
    for outer in (1..levels.len()).rev() {
        let entered = entered(&levels[outer], tail_calls);
        let Some(entered) = entered else { continue };
        let inner = &mut levels[outer - 1].running;
        if inner.iter().any(|running| entered.contains(&running.function)) {
            inner.retain(|running| entered.contains(&running.function));
        }
    }
    for inner in 0..levels.len().saturating_sub(1) {
        let below: BTreeSet<F> =
            levels[inner].running.iter().map(|running| running.function.clone()).collect();
        let outer = &mut levels[inner + 1];
        let is_thunk = outer.is_thunk;
        let leads = |running: &Running<F>| match &running.callee {
            Callee::Unknown if !is_thunk => true,
            Callee::Unknown => reaches(&running.function, &below, tail_calls),
            Callee::Function(callee) => reaches(callee, &below, tail_calls),
        };
        let kept: Vec<bool> = outer.running.iter().map(leads).collect();
        if kept.contains(&true) {
            let mut kept = kept.into_iter();
            outer.running.retain(|_| kept.next().unwrap_or(true));
        }
    }
}

/// The functions to which the frame inside of this one can belong. `None` if that can be any.
fn entered<F: Ord + Clone>(level: &Level<F>, tail_calls: &TailCalls<F>) -> Option<BTreeSet<F>> {
    if level.running.is_empty() {
        return None;
    }
    let mut all = BTreeSet::new();
    for Running { function, location: _, callee } in &level.running {
        let called = match callee {
            Callee::Unknown if level.is_thunk => function,
            Callee::Unknown => return None,
            Callee::Function(called) => called,
        };
        all.append(&mut behind(called, tail_calls)?);
    }
    Some(all)
}

/// A function, and all that its tail calls lead to. `None` if these can be any.
fn behind<F: Ord + Clone>(function: &F, tail_calls: &TailCalls<F>) -> Option<BTreeSet<F>> {
    let mut all = BTreeSet::from([function.clone()]);
    let mut queue = Vec::from([function]);
    while let Some(function) = queue.pop() {
        match tail_calls.get(function) {
            None | Some(TailCallees::Any) => return None,
            Some(TailCallees::Known(callees)) => {
                queue.extend(callees.iter().filter(|&callee| all.insert(callee.clone())));
            }
        }
    }
    Some(all)
}

/// Whether a call of a function can lead to a frame of one of these.
fn reaches<F: Ord + Clone>(function: &F, to: &BTreeSet<F>, tail_calls: &TailCalls<F>) -> bool {
    // Code that is not known: the frames between may be missing.
    to.is_empty() || behind(function, tail_calls).is_none_or(|all| !all.is_disjoint(to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn running(function: u32, callee: Option<u32>) -> Running<u32> {
        let callee = callee.map_or(Callee::Unknown, Callee::Function);
        Running { function, location: None, callee }
    }

    fn level(running: Vec<Running<u32>>) -> Level<u32> {
        Level { running, is_thunk: false }
    }

    /// Functions 0 to 9, without tail calls but these.
    fn tails(some: &[(u32, TailCallees<u32>)]) -> TailCalls<u32> {
        let mut all: TailCalls<u32> =
            (0..10).map(|function| (function, TailCallees::Known(vec![]))).collect();
        all.extend(some.iter().cloned());
        all
    }

    fn resolved(mut levels: Vec<Level<u32>>, tail_calls: &TailCalls<u32>) -> Vec<Vec<u32>> {
        resolve(&mut levels, tail_calls);
        let functions = |level: &Level<u32>| level.running.iter().map(|r| r.function).collect();
        levels.iter().map(functions).collect()
    }

    #[test]
    fn a_caller_names_its_callee() {
        // 0 called 2; 2 and 3 share code and call 4 or 5, which share code as well.
        let levels = vec![
            level(vec![running(4, None), running(5, None)]),
            level(vec![running(2, Some(4)), running(3, Some(5))]),
            level(vec![running(0, Some(2))]),
        ];
        assert_eq!(resolved(levels, &tails(&[])), [[4], [2], [0]]);
    }

    #[test]
    fn behind_a_pointer_all_functions_of_the_code_remain() {
        let levels =
            vec![level(vec![running(2, None), running(3, None)]), level(vec![running(0, None)])];
        assert_eq!(resolved(levels, &tails(&[])), [vec![2, 3], vec![0]]);
    }

    #[test]
    fn a_callee_that_is_known_names_its_caller() {
        // The address of 3 was called, and only 3 calls 4.
        let levels = vec![
            level(vec![running(4, None)]),
            level(vec![running(2, Some(5)), running(3, Some(4))]),
            level(vec![running(0, None)]),
        ];
        assert_eq!(resolved(levels, &tails(&[])), [[4], [3], [0]]);
    }

    #[test]
    fn a_frame_can_be_that_of_a_tail_call() {
        let levels = || {
            let both = level(vec![running(2, None), running(3, None)]);
            vec![both, level(vec![running(0, Some(1))])]
        };
        let known = tails(&[(1, TailCallees::Known(vec![3]))]);
        assert_eq!(resolved(levels(), &known), [[3], [0]]);
        let any = tails(&[(1, TailCallees::Any)]);
        assert_eq!(resolved(levels(), &any), [vec![2, 3], vec![0]]);
        // 2 shares its code with what it tail-calls: the frame can be that of either.
        let levels =
            vec![level(vec![running(2, None), running(3, None)]), level(vec![running(0, Some(2))])];
        let shared = tails(&[(2, TailCallees::Known(vec![3]))]);
        assert_eq!(resolved(levels, &shared), [vec![2, 3], vec![0]]);
    }

    #[test]
    fn a_function_without_known_instructions_may_tail_call_any() {
        let levels = vec![
            level(vec![running(2, None), running(3, None)]),
            level(vec![running(0, Some(77))]),
        ];
        assert_eq!(resolved(levels, &tails(&[])), [vec![2, 3], vec![0]]);
    }

    #[test]
    fn a_thunk_with_a_frame_names_its_function() {
        let levels = vec![
            level(vec![running(2, None), running(3, None)]),
            Level { running: vec![running(3, None)], is_thunk: true },
            level(vec![running(0, None)]),
        ];
        assert_eq!(resolved(levels, &tails(&[])), [[3], [3], [0]]);
    }

    #[test]
    fn missing_frames_remove_nothing() {
        let levels = vec![
            level(vec![running(2, None), running(3, None)]),
            level(vec![]),
            level(vec![running(0, Some(5)), running(1, None)]),
        ];
        assert_eq!(resolved(levels, &tails(&[])), [vec![2, 3], vec![], vec![0, 1]]);
        let levels =
            vec![level(vec![running(2, None), running(3, None)]), level(vec![running(0, Some(5))])];
        assert_eq!(resolved(levels, &tails(&[])), [vec![2, 3], vec![0]]);
    }
}
