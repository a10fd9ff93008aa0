//! The order of definitions, and the calls from outside.

use super::contract::Contract;
use super::program::{AREA, Call, Program, Statement};
use arbitrary::{Result, Unstructured};

/// Removes comparisons of insignificant addresses, puts definitions into an order, and chooses when
/// the program is made ready to run.
pub fn order(program: &mut Program, u: &mut Unstructured<'_>) -> Result<()> {
    forget_comparisons(program);
    let mixed = u.arbitrary()?;
    for flush in &mut program.flushes {
        flush.defined.sort_unstable();
        if mixed {
            for last in (1..flush.defined.len()).rev() {
                flush.defined.swap(last, u.int_in_range(0..=last)?);
            }
        }
        flush.ready = u.ratio(3, 4)?;
    }
    program.flushes.last_mut().expect("there is one").ready = true;
    Ok(())
}

/// Removes comparisons of addresses whose result merging may change.
fn forget_comparisons(program: &mut Program) {
    let all = program.clone();
    for function in &mut program.functions {
        function.statements.retain(|statement| match statement {
            Statement::Compare(addresses) => {
                addresses.iter().all(|address| all.has_own_address(all.part_at(*address)))
            }
            _ => true,
        });
    }
}

/// A call from outside that keeps the contract, and keeps no condition that the contract does not
/// require.
pub fn call(
    program: &Program,
    function: usize,
    contract: &Contract,
    u: &mut Unstructured<'_>,
) -> Result<Call> {
    let null = !contract.valid[0] && !contract.frozen[0] && u.ratio(1, 3)?;
    let place = |at: usize, u: &mut Unstructured<'_>| -> Result<i64> {
        let area = AREA * if contract.frozen[at] { 2 } else { at as i64 };
        Ok(area + if contract.aligned[at] { 0 } else { *u.choose(&[0, 8, 3])? })
    };
    let a = place(0, u)?;
    let mut b = place(1, u)?;
    // Pointers that the contract does not require to be disjoint are equal, or their areas overlap.
    let apart = contract.disjoint || contract.frozen[0] || contract.frozen[1];
    if !apart && u.ratio(2, 3)? {
        let aligned = contract.aligned[1];
        b = match aligned {
            true => a / 16 * 16,
            false => a + *u.choose(&[0, 0, 8, 4])?,
        };
    }
    let mut extras = Vec::new();
    for at in 0..program.functions[function].shape.extras.len() {
        extras.push(*u.choose(&[3, -5, 1 << 35])? + at as i64);
    }
    Ok(Call {
        function,
        numbers: [*u.choose(&[0, 1, 2, 2, 3])?, if null { 0 } else { u.int_in_range(0..=2)? }],
        pointers: [if null { None } else { Some(a) }, Some(b)],
        extras,
    })
}
