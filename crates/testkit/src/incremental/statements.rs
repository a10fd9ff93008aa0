//! The statements of the first function of a family.

use super::contract::fits;
use super::generate::{Choice, Drawn};
use super::program::{
    Address, Argument, Callee, End, Extra, Facts, Function, MAX_EXTRAS, Operation, Passes, Place,
    Pointer, Shape, Statement,
};
use crate::modules::Item;
use arbitrary::{Result, Unstructured};
use cranelift_module::Linkage;

/// An address, and the choice of its function if code takes it by name.
type Taken = (Address, Option<Choice>);

impl Drawn {
    /// The first function of a family, and what its holes for functions are for.
    pub(super) fn function(
        &self,
        choices: &mut Vec<Choice>,
        u: &mut Unstructured<'_>,
    ) -> Result<Function> {
        let tail = u.ratio(1, 6)?;
        let mut extras = Vec::new();
        if u.ratio(1, 2)? {
            let one = *u.choose(&Extra::ALL)?;
            let mixed = u.ratio(1, 3)?;
            for _ in 0..u.int_in_range(0..=MAX_EXTRAS)? {
                extras.push(if mixed { *u.choose(&Extra::ALL)? } else { one });
            }
        }
        let mut function = Function {
            family: self.families.len(),
            shape: Shape { extras, tail, results: 1 },
            statements: Vec::new(),
            end: End::Return,
            facts: Facts::default(),
            declared: Linkage::Local,
            linkage: Linkage::Local,
            attributes: self.attributes(false, u)?,
            bytes: false,
        };
        let (mut calls, can_call) = (0, !self.families.is_empty() || u.ratio(1, 3)?);
        for _ in 0..u.int_in_range(1..=4)? {
            let call = can_call && calls < 2 && u.ratio(1, 2)?;
            calls += usize::from(call);
            let statement = match call {
                true => self.call(&function, choices, u)?,
                false => self.statement(&function, choices, u)?,
            };
            function.statements.push(statement);
        }
        // Small functions do not pay to be merged unless they are identical.
        let mix = *u.choose(&[0, 1, 4, 8, 16, 24])?;
        let at = u.int_in_range(0..=function.statements.len())?;
        let mix = Statement::Mix { rounds: mix, seed: u.arbitrary::<u16>()?.into() };
        function.statements.insert(at, mix);
        if tail && u.ratio(1, 2)? {
            let family = self.callee_of(true, u)?;
            if let Some(choice) = family {
                let shape = self.shape_of(choice, &function.shape);
                let mut passes = self.passes(&function, &shape, u)?;
                for (at, pointer) in passes.pointers.iter_mut().enumerate() {
                    // Its stack slots no longer exist by then.
                    if *pointer == Pointer::Slot {
                        *pointer = Pointer::Own(at);
                    }
                }
                choices.push(choice);
                function.end = End::Tail(0, passes);
            }
        }
        Ok(function)
    }

    /// The function to call. `tail`: by a tail call.
    fn callee_of(&self, tail: bool, u: &mut Unstructured<'_>) -> Result<Option<Choice>> {
        let families: Vec<usize> = (0..self.families.len())
            .filter(|&family| {
                let function = self.families[family][0];
                !tail || self.program.functions[function].shape.tail
            })
            .collect();
        Ok(Some(match u.int_in_range(0..=7)? {
            0 => Choice::Itself,
            1 => Choice::Partner,
            _ if families.is_empty() => Choice::Itself,
            2..=4 => Choice::Of(*families.last().expect("is not empty")),
            _ => Choice::Of(*u.choose(&families)?),
        }))
    }

    fn shape_of(&self, choice: Choice, own: &Shape) -> Shape {
        match choice {
            Choice::Of(family) | Choice::Next(family) => {
                self.program.functions[self.families[family][0]].shape.clone()
            }
            Choice::Itself | Choice::Partner => own.clone(),
        }
    }

    pub(super) fn passes(
        &self,
        own: &Function,
        callee: &Shape,
        u: &mut Unstructured<'_>,
    ) -> Result<Passes> {
        let pointers = *u.choose(&[
            [Pointer::Own(0), Pointer::Own(1)],
            [Pointer::Own(0), Pointer::Own(1)],
            [Pointer::Own(0), Pointer::Own(1)],
            [Pointer::Own(1), Pointer::Own(0)],
            [Pointer::Own(0), Pointer::Own(0)],
            [Pointer::Next(0), Pointer::Own(1)],
            [Pointer::Own(0), Pointer::Slot],
        ])?;
        let mut extras = Vec::new();
        let callee = Function { shape: callee.clone(), ..own.clone() };
        for at in 0..callee.shape.extras.len() {
            let argument = match u.int_in_range(0..=5)? {
                0 => Argument::Current,
                1 => Argument::Own(at),
                2 => Argument::Own(u.choose_index(own.shape.extras.len().max(1))?),
                _ => Argument::Constant(17 + at as i64),
            };
            extras.push(match fits(argument, own, at, &callee) {
                true => argument,
                false => Argument::Constant(17 + at as i64),
            });
        }
        Ok(Passes { pointers, extras })
    }

    fn call(
        &self,
        own: &Function,
        choices: &mut Vec<Choice>,
        u: &mut Unstructured<'_>,
    ) -> Result<Statement> {
        let in_loop = u.ratio(1, 6)?;
        let entries = if u.ratio(1, 8)? { u.int_in_range(1..=4)? } else { 0 };
        if u.ratio(1, 5)? {
            let tables: Vec<usize> = (1..self.data_families.len())
                .filter(|&family| {
                    let data = &self.program.data[self.data_families[family][0]];
                    matches!(data.items[0], Item::Function(_))
                })
                .collect();
            if !tables.is_empty() {
                let call = Callee::Slot(self.place(*u.choose(&tables)?, u)?);
                let shape = self.program.functions[self.program.callee(call)].shape.clone();
                let passes = self.passes(own, &shape, u)?;
                return Ok(Statement::Call { call, passes, in_loop, entries });
            }
        }
        let choice = self.callee_of(false, u)?.expect("a callee");
        let shape = self.shape_of(choice, &own.shape);
        let passes = self.passes(own, &shape, u)?;
        choices.push(choice);
        let number = u.choose_index(4)?;
        let call = *u.choose(&[
            Callee::Direct(number),
            Callee::Direct(number),
            Callee::Direct(number),
            Callee::Direct(number),
            Callee::Indirect(number),
            Callee::Symbol(number),
            Callee::Handled(number),
        ])?;
        Ok(Statement::Call { call, passes, in_loop, entries })
    }

    /// An item of a data object of a family.
    fn place(&self, family: usize, u: &mut Unstructured<'_>) -> Result<Place> {
        let data = self.data_families[family][0];
        let items = self.program.data[data].items.len();
        let slot = u.choose_index(items)?;
        let base = if u.ratio(1, 2)? { u.choose_index(items)? } else { 0 };
        Ok(Place { data, slot, base })
    }

    fn statement(
        &self,
        own: &Function,
        choices: &mut Vec<Choice>,
        u: &mut Unstructured<'_>,
    ) -> Result<Statement> {
        let value = *u.choose(&[1, 1, 1, 5, 0x1234, 1 << 40])?;
        if self.style.data && u.ratio(1, 3)? {
            return self.of_data(value, u);
        }
        let offset = 8 * u.int_in_range(0..=4)?;
        Ok(match u.int_in_range(0..=23)? {
            0..=2 => {
                let operation =
                    *u.choose(&[Operation::Add, Operation::Xor, Operation::Multiply])?;
                Statement::Constant(operation, value)
            }
            3 => Statement::Float(0x4009_21fb_5444_2d18),
            4 if !own.shape.extras.is_empty() => {
                Statement::Extra(u.choose_index(own.shape.extras.len())?)
            }
            4..=8 => self.reload(offset, value, u)?,
            9..=10 => {
                Statement::Vector { pointer: u.choose_index(2)?, offset: offset / 16 * 16, value }
            }
            11 => Statement::Guarded { offset, in_loop: u.arbitrary()? },
            12 => Statement::Slot { offset, value },
            13 => Statement::Switch([value, value + 1, value + 2]),
            14..=16 => self.of_data(value, u)?,
            17..=20 => self.reload(offset, value, u)?,
            21..=22 => self.compare(choices, u)?,
            _ => self.misaligned(choices, u)?,
        })
    }

    fn reload(&self, offset: i32, value: i64, u: &mut Unstructured<'_>) -> Result<Statement> {
        let read = u.choose_index(2)?;
        let written = if u.ratio(1, 8)? { read } else { 1 - read };
        let other = if u.ratio(3, 4)? { offset } else { 8 * u.int_in_range(0..=4)? };
        let extra = *u.choose(&[Extra::I64, Extra::I64, Extra::I32, Extra::I8])?;
        Ok(Statement::Reload { read, written, offsets: [offset, other], value, extra })
    }

    fn of_data(&self, value: i64, u: &mut Unstructured<'_>) -> Result<Statement> {
        let family = u.choose_index(self.data_families.len())?;
        let place = self.place(family, u)?;
        let data = &self.program.data[place.data];
        Ok(match data.items[place.slot] {
            Item::Number(_) if family > 0 => {
                Statement::Number { place, stores: data.writable && u.arbitrary()? }
            }
            Item::Data { .. } => Statement::Through(place),
            Item::Number(_) | Item::Function(_) => Statement::Constant(Operation::Add, value),
        })
    }

    /// Compares addresses. Comparisons of insignificant addresses are removed later.
    fn compare(&self, choices: &mut Vec<Choice>, u: &mut Unstructured<'_>) -> Result<Statement> {
        let Some(addresses) = self.addresses(u)? else {
            return Ok(Statement::Float(0x3ff0_0000_0000_0000));
        };
        choices.extend(addresses.iter().filter_map(|(_, choice)| *choice));
        Ok(Statement::Compare(addresses.map(|(address, _)| address)))
    }

    /// Whether an address is aligned as it must be.
    fn misaligned(&self, choices: &mut Vec<Choice>, u: &mut Unstructured<'_>) -> Result<Statement> {
        let Some([(address, choice), _]) = self.addresses(u)? else {
            return Ok(Statement::Float(0x4000_0000_0000_0000));
        };
        choices.extend(choice);
        Ok(Statement::Misaligned(address))
    }

    /// Two addresses that may be one.
    fn addresses(&self, u: &mut Unstructured<'_>) -> Result<Option<[Taken; 2]>> {
        let kind = u.int_in_range(0..=6)?;
        let data = 1 + u.choose_index(self.data_families.len())?;
        if let Some(members) = self.data_families.get(data).filter(|_| kind > 2) {
            let is_table = matches!(self.program.data[members[0]].items[0], Item::Function(_));
            let place = self.place(data, u)?;
            if is_table && kind > 3 {
                let family = self.program.functions[self.program.function_at(place)].family;
                let other = match kind {
                    4 => (Address::Slot(self.place(data, u)?), None),
                    _ => (Address::Code(place.slot), Some(Choice::Of(family))),
                };
                return Ok(Some([(Address::Slot(place), None), other]));
            }
            let other = Address::Data(*u.choose(members)?);
            return Ok(Some([(Address::Data(place.data), None), (other, None)]));
        }
        if self.families.is_empty() {
            return Ok(None);
        }
        let family = u.choose_index(self.families.len())?;
        let other = if u.arbitrary()? { Choice::Next(family) } else { Choice::Of(family) };
        Ok(Some([
            (Address::Code(0), Some(Choice::Of(family))),
            (Address::Code(u.choose_index(2)?), Some(other)),
        ]))
    }
}
