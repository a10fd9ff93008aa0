//! A table with symbols in place of numbers.

use crate::table::{Malformed, Place, Reader, Table, put, put_difference};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// A symbol: two numbers, such as those of Cranelift's `UserExternalName`.
///
/// See the [example](crate#example).
pub type Symbol = (u32, u32);

/// Functions to which a frame can belong, each with its source location.
///
/// See the [example](crate#example).
pub type Functions = Vec<(Symbol, Option<u32>)>;

/// [`Table`], and which symbols its functions and code have.
///
/// See the [example](crate#example).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolTable {
    table: Table,
    functions: Vec<Symbol>,
    /// With its number, ascending.
    code: Vec<(Symbol, usize)>,
}

/// Writes runs of symbols whose first number is the same.
fn write(bytes: &mut Vec<u8>, symbols: &[Symbol]) {
    let runs = || symbols.chunk_by(|a, b| a.0 == b.0);
    put(bytes, runs().count() as u32);
    let mut before = 0;
    for run in runs() {
        put(bytes, run[0].0);
        put(bytes, run.len() as u32);
        for &(_, symbol) in run {
            put_difference(bytes, before, symbol);
            before = symbol;
        }
    }
}

fn read(reader: &mut Reader<'_>) -> Result<Vec<Symbol>, Malformed> {
    let (mut symbols, mut before) = (Vec::new(), 0);
    for _ in 0..reader.number()? {
        let first = reader.number()?;
        for _ in 0..reader.number()? {
            before = reader.difference(before)?;
            symbols.push((first, before));
        }
    }
    Ok(symbols)
}

impl SymbolTable {
    /// The bytes of a table whose functions and code have these symbols, by their numbers.
    pub fn bytes(table: &Table, functions: &[Symbol], code: &[Symbol]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, functions);
        // Nearly all code of one function alone has the symbol of that function.
        let (mut others, mut given, mut before) = (Vec::new(), Vec::new(), 0);
        for (number, symbol) in code.iter().enumerate() {
            let caller = table.caller(number).map(|function| functions.get(function as usize));
            if caller != Some(Some(symbol)) {
                given.push(*symbol);
                if caller.is_some() {
                    others.push((number - before) as u32);
                    before = number;
                }
            }
        }
        write(&mut bytes, &given);
        put(&mut bytes, others.len() as u32);
        others.into_iter().for_each(|other| put(&mut bytes, other));
        bytes.extend(table.bytes());
        bytes
    }

    /// The table of these bytes. O(n log n) in the number of functions and pieces of code.
    ///
    /// # Errors
    ///
    /// [`Malformed`].
    pub fn parse(bytes: &[u8]) -> Result<SymbolTable, Malformed> {
        let mut reader = Reader { bytes, at: 0 };
        let (functions, given) = (read(&mut reader)?, read(&mut reader)?);
        let (mut others, mut other) = (BTreeSet::new(), 0_usize);
        for _ in 0..reader.number()? {
            other = other.checked_add(reader.number()? as usize).ok_or(Malformed)?;
            others.insert(other);
        }
        let table = Table::parse(bytes[reader.at..].to_vec())?;
        let (mut code, mut given) = (Vec::with_capacity(table.len()), given.into_iter());
        for number in 0..table.len() {
            let caller = table.caller(number).filter(|_| !others.contains(&number));
            let symbol = match caller {
                Some(function) => functions.get(function as usize).copied(),
                None => given.next(),
            };
            code.push((symbol.ok_or(Malformed)?, number));
        }
        if given.next().is_some() {
            return Err(Malformed);
        }
        code.sort_unstable();
        Ok(SymbolTable { table, functions, code })
    }

    /// To which functions each frame of a stack can belong that is of code that functions share,
    /// and its source location in each. The frames follow each other, innermost first: each is a
    /// place in code, or `None`, of other code. See [`Table::frames`].
    ///
    /// # Errors
    ///
    /// [`Malformed`].
    pub fn frames(&self, stack: &[Option<(Symbol, Place)>]) -> Result<Vec<Functions>, Malformed> {
        let SymbolTable { table, functions, code } = self;
        let number = |&(symbol, place): &(Symbol, Place)| {
            let at = code.binary_search_by_key(&symbol, |&(symbol, _)| symbol).ok()?;
            Some((code[at].1, place))
        };
        let numbers = |frame: &Option<(Symbol, Place)>| frame.as_ref().and_then(number);
        let stack: Vec<Option<(usize, Place)>> = stack.iter().map(numbers).collect();
        let mut found = Vec::with_capacity(stack.len());
        for (frame, level) in stack.iter().zip(table.frames(&stack)?) {
            let is_shared = frame.is_some_and(|(code, _)| table.is_shared(code));
            let running = level.running.into_iter().filter(|_| is_shared);
            let symbol = |function: u32| functions.get(function as usize).ok_or(Malformed);
            let of = running.map(|running| Ok((*symbol(running.function)?, running.location)));
            found.push(of.collect::<Result<Functions, Malformed>>()?);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::{Callee, TailCallees};
    use crate::table::{Code, Site};
    use alloc::vec;

    #[test]
    fn frames_of_shared_code_have_symbols() {
        let place = |offset, is_return| Place { offset, is_return };
        let called = Callee::Function;
        let leaf = |at| (Some(at), Callee::Unknown);
        let shared = Code {
            functions: vec![0, 1],
            is_thunk: false,
            sites: vec![Site { place: place(4, false), of: vec![leaf(10), leaf(90)] }],
        };
        let caller = |function| Code {
            functions: vec![function],
            is_thunk: false,
            sites: vec![Site { place: place(7, true), of: vec![(None, called(1))] }],
        };
        let tails = (0..4).map(|function| (function, TailCallees::Known(vec![]))).collect();
        let table = Table::new(&[shared, caller(2), caller(3)], &tails);
        let functions = [(5, 3), (5, 1), (4, 9), (4, 7)];
        // The code of the last function has another symbol than the function.
        let code = [(5, 7), (4, 9), (6, 0)];
        let bytes = SymbolTable::bytes(&table, &functions, &code);
        let table = SymbolTable::parse(&bytes).unwrap();
        assert_eq!(table.code, [((4, 9), 1), ((5, 7), 0), ((6, 0), 2)]);
        let frames = |stack: &[Option<(Symbol, Place)>]| table.frames(stack).unwrap();
        let (leaf, caller) = (((5, 7), place(4, false)), ((4, 9), place(7, true)));
        assert_eq!(frames(&[Some(leaf), Some(caller)]), [vec![((5, 1), Some(90))], vec![]]);
        let both = vec![((5, 3), Some(10)), ((5, 1), Some(90))];
        assert_eq!(frames(&[Some(leaf), None]), [both, vec![]]);
        for end in 0..bytes.len() {
            assert_eq!(SymbolTable::parse(&bytes[..end]), Err(Malformed), "{end}");
        }
    }
}
