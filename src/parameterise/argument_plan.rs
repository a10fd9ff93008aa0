//! The ways to pass a parameterised body the values in which its functions differ.
//!
//! A value that is not a callee is passed as it is. For callees, the call either passes the
//! address, or passes a case number by which the body dispatches among direct calls. Callee
//! dispatch takes more code in the body and less at each call of the body. Callees that differ in
//! the same functions share one case number, which may be a constant that is passed anyway. This
//! module says which argument plans are worth compiling, and what each means for the body and for
//! its call sites; it does *not* decide between them.

use super::dispatch::Case;
use super::table::{Parameter, Table};
use super::value::Value;
use super::{body, cost};
use crate::extra_argument::ExtraArgument;
use crate::options::Callees;
use alloc::vec::Vec;
use cranelift_codegen::ir::{Inst, types};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// How a parameterised body receives the values in which its functions differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ArgumentPlan {
    /// The parameters that are passed as they are.
    pub passed: Vec<Parameter>,
    /// The callees that the body dispatches on.
    pub dispatches: Vec<Dispatch>,
}

/// Callees among which the body dispatches by one case number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dispatch {
    /// Callees that partition the functions in the same way.
    pub callees: Vec<Parameter>,
    /// The case of each function, from 0, numbered in the order of first occurrence.
    pub cases: Vec<u32>,
    /// The column of a passed constant that distinguishes the cases. Without one, the case number
    /// is passed.
    pub by: Option<usize>,
}

/// The inputs for listing the argument plans of functions.
pub(super) struct CalleeStrategies<'a> {
    pub table: &'a Table,
    pub rows: &'a [u32],
    /// The columns of direct calls that must stay direct.
    pub direct: &'a [usize],
    pub callees: Callees,
    /// How many calls or thunks pass the extra arguments.
    pub call_sites: i64,
}

impl CalleeStrategies<'_> {
    fn is_callee(&self, parameter: &Parameter) -> bool {
        let cell = self.table.at(self.rows[0], parameter.columns[0]);
        matches!(self.table.value(cell), Some(Value::Callee { .. }))
    }

    /// The number of the value that each function has, numbered in the order of first occurrence.
    fn partition(&self, parameter: &Parameter) -> Vec<u32> {
        let mut number: HashMap<u32, u32, FxBuildHasher> = HashMap::default();
        let cells = self.rows.iter().map(|&row| self.table.at(row, parameter.columns[0]));
        cells
            .map(|cell| {
                let next = number.len() as u32;
                *number.entry(cell).or_insert(next)
            })
            .collect()
    }

    /// The argument plans for the differences between these functions, one or two. None if there is
    /// no way to pass them. Linear in the number of functions and parameters.
    pub fn all(&self, parameters: Vec<Parameter>) -> Vec<ArgumentPlan> {
        let (callees, passed): (Vec<_>, Vec<_>) =
            parameters.into_iter().partition(|parameter| self.is_callee(parameter));
        if callees.is_empty() {
            return alloc::vec![ArgumentPlan { passed, dispatches: Vec::new() }];
        }
        if self.callees == Callees::None {
            return Vec::new();
        }
        let mut groups: Vec<(Vec<u32>, Vec<Parameter>)> = Vec::new();
        for callee in callees {
            let cases = self.partition(&callee);
            match groups.iter_mut().find(|(known, _)| *known == cases) {
                Some((_, callees)) => callees.push(callee),
                None => groups.push((cases, alloc::vec![callee])),
            }
        }
        // A constant of one argument that has one value in each case, and a different value in
        // every case.
        let constant_partition = |parameter: &Parameter| {
            let cell = self.table.at(self.rows[0], parameter.columns[0]);
            let constant = matches!(
                self.table.value(cell),
                Some(Value::Constant { ty, .. }) if ty.is_int() && ty.bits() <= 64
            );
            constant.then(|| (parameter.columns[0], self.partition(parameter)))
        };
        let partitions: Vec<(usize, Vec<u32>)> =
            passed.iter().filter_map(constant_partition).collect();

        let mut least = ArgumentPlan { passed, dispatches: Vec::new() };
        let mut smaller = least.clone();
        for (cases, callees) in groups {
            let constant_partition = partitions.iter().find(|(_, other)| *other == cases);
            let by = constant_partition.map(|&(column, _)| column);
            let (direct, others): (Vec<_>, Vec<_>) =
                callees.iter().cloned().partition(|callee| self.is_direct(callee));
            let count = cases.iter().max().map_or(0, |&last| last as usize + 1);
            if count > cost::MAX_DISPATCH_CASES {
                if !direct.is_empty() {
                    return Vec::new();
                }
                least.passed.extend(others.iter().cloned());
                smaller.passed.extend(others);
                continue;
            }
            least.passed.extend(others.iter().cloned());
            if !direct.is_empty() {
                least.dispatches.push(Dispatch { callees: direct, cases: cases.clone(), by });
            }
            if self.is_smaller(&callees, count, by) {
                smaller.dispatches.push(Dispatch { callees, cases, by });
            } else {
                let unchanged = least.dispatches.last().filter(|dispatch| dispatch.cases == cases);
                smaller.dispatches.extend(unchanged.cloned());
                smaller.passed.extend(others);
            }
        }
        for argument_plan in [&mut least, &mut smaller] {
            // In the order of the walk.
            argument_plan.passed.sort_unstable_by_key(|parameter| parameter.columns[0]);
        }
        if least == smaller {
            return alloc::vec![least];
        }
        alloc::vec![least, smaller]
    }

    fn is_direct(&self, callee: &Parameter) -> bool {
        self.callees == Callees::Dispatch
            || callee.columns.iter().any(|column| self.direct.contains(column))
            || self.rows.iter().any(|&row| {
                let cell = self.table.at(row, callee.columns[0]);
                matches!(self.table.value(cell), Some(Value::Callee { direct: true, .. }))
            })
    }

    /// Whether dispatching is estimated to take fewer bytes than passing addresses.
    fn is_smaller(&self, callees: &[Parameter], cases: usize, by: Option<usize>) -> bool {
        let calls: usize = callees.iter().map(|callee| callee.columns.len()).sum();
        let number = if by.is_some() { 0 } else { cost::CASE_NUMBER };
        let each = callees.len() as i64 * cost::ADDRESS - number;
        let thunks = match self.table.written().is_empty() {
            true => 0,
            false => cost::THUNK * (cases * callees.len()) as i64,
        };
        each * self.call_sites + thunks > cost::CASE * (cases as i64 - 1) * calls as i64
    }
}

impl Dispatch {
    /// The position of the first function of each case, among the functions.
    pub fn firsts(&self) -> Vec<usize> {
        let count = self.cases.iter().max().map_or(0, |&last| last + 1);
        let first = |case| self.cases.iter().position(|&other| other == case);
        (0..count).filter_map(first).collect()
    }
}

impl ArgumentPlan {
    /// The extra arguments of one function, as integers: `row` of the table, which has position
    /// `at` among the functions.
    pub fn arguments(&self, table: &Table, row: u32, at: usize) -> Vec<ExtraArgument> {
        let passed = self.passed.iter().flat_map(|parameter| {
            let cell = table.at(row, parameter.columns[0]);
            table.value(cell).expect("a column that differs holds a value").arguments()
        });
        let numbers = self.dispatches.iter().filter(|dispatch| dispatch.by.is_none());
        let numbers = numbers.map(|dispatch| ExtraArgument::Constant {
            ty: types::I32,
            bits: u64::from(dispatch.cases[at]),
        });
        passed.chain(numbers).collect()
    }

    /// The parameters of a body for these functions, by the place of each column in the first
    /// function.
    pub fn parameters(
        &self,
        table: &Table,
        rows: &[u32],
        inst: impl Fn(usize) -> Inst,
    ) -> Vec<body::Parameter> {
        let value = |row: u32, column: usize| {
            table.value(table.at(row, column)).expect("a column that differs holds a value")
        };
        let mut parameters: Vec<body::Parameter> = Vec::new();
        for parameter in &self.passed {
            parameters.push(body::Parameter {
                types: value(rows[0], parameter.columns[0])
                    .arguments()
                    .iter()
                    .map(ExtraArgument::ty)
                    .collect(),
                places: parameter.columns.iter().map(|&column| inst(column)).collect(),
                dispatches: Vec::new(),
            });
        }
        for dispatch in &self.dispatches {
            let bits = |row: u32, case: usize| match dispatch.by {
                None => case as u64,
                Some(by) => match value(row, by) {
                    Value::Constant { ty: _, bits } => *bits as u64,
                    other => unreachable!("not a number: {other:?}"),
                },
            };
            let firsts = dispatch.firsts();
            let cases = |column: usize| {
                let case = |(case, &first): (usize, &usize)| match value(rows[first], column) {
                    Value::Callee { ty: _, symbol, signature, colocated: _, direct: _ } => Case {
                        bits: bits(rows[first], case),
                        symbol: symbol.clone(),
                        signature: signature.clone(),
                    },
                    other => unreachable!("not a callee: {other:?}"),
                };
                firsts.iter().enumerate().map(case).collect::<Vec<Case>>()
            };
            let columns = dispatch.callees.iter().flat_map(|callee| &callee.columns);
            let dispatches = columns.map(|&column| (inst(column), cases(column))).collect();
            let passed = |parameter: &Parameter| Some(parameter.columns[0]) == dispatch.by;
            match self.passed.iter().position(passed) {
                Some(by) => parameters[by].dispatches.extend::<Vec<_>>(dispatches),
                None => parameters.push(body::Parameter {
                    types: alloc::vec![types::I32],
                    places: Vec::new(),
                    dispatches,
                }),
            }
        }
        parameters
    }
}
