//! Draws programs.
//!
//! Uniformly random functions are never equal. So a program is drawn from *families*: a function,
//! and copies of it that differ in some constants, references, and facts, by one of a few policies,
//! defined in one flush or another. Functions of later families call those of earlier ones, copy by
//! copy, and so are copies that become equal, or similar, once their callees are merged. Copies of
//! some families differ in few statements as well (`differing`). Nothing here knows what will
//! merge: the policies only ensure that much does.

use super::calls::{call, order};
use super::contract::settle;
use super::differing;
use super::program::{
    AREA, Callee, Data, End, Facts, Flush, Function, Hole, Part, Pointer, Program, Shape, Statement,
};
use crate::modules::Item;
use crate::support::Rng;
use crate::unit::similar;
use arbitrary::{Result, Unstructured};
use cranelift_mergefunc::{Addresses, Attributes, Callees, Policy, Similar};
use cranelift_mergefunc_module::ModuleOptions;
use cranelift_module::Linkage;

/// Draws a program.
///
/// # Errors
///
/// If `u` has too few bytes to draw from.
pub fn program(u: &mut Unstructured<'_>) -> Result<Program> {
    let style = Style::draw(u)?;
    let mut drawn = Drawn::new(style, options(u)?, u)?;
    if drawn.style.eliminates {
        let options = &mut drawn.program.options;
        options.similar = Similar { policy: Policy::Size, ..Similar::default() };
    }
    if drawn.style.data {
        drawn.program.options.data_addresses = Addresses::Insignificant;
        drawn.data_family(u)?;
    }
    for _ in 0..*u.choose(&[1, 1, 2, 2, 3, 4])? {
        while u.ratio(2, 5)? && drawn.data_families.len() < 4 {
            drawn.data_family(u)?;
        }
        drawn.family(u)?;
    }
    drawn.reach_all(u)?;
    if drawn.style.flushes > 1 {
        let copies = match drawn.style.eliminates || u.ratio(3, 4)? {
            true => drawn.echo(u)?,
            false => Vec::new(),
        };
        let most = if drawn.style.eliminates { 3 } else { 1 };
        for _ in 0..u.int_in_range(most / 2..=most)? {
            drawn.call_later(&copies, u)?;
        }
    }
    drawn.finish(u)
}

/// Draws a program of two units or more, with families of functions that call each other. Its
/// flushes are units only after [`apart`](super::apart): a flush refers to any other one.
///
/// # Errors
///
/// If `u` has too few bytes to draw from.
pub fn program_of_units(u: &mut Unstructured<'_>) -> Result<Program> {
    let style = Style {
        flushes: u.int_in_range(2..=5)?,
        attributes: u.ratio(1, 4)?,
        forward: true,
        bytes: u.ratio(1, 8)?,
        data: u.ratio(1, 8)?,
        eliminates: false,
        linkage: *u.choose(&[Linkages::Local, Linkages::Any, Linkages::Any])?,
        facts: FactsAcrossUnits::Same,
    };
    let mut options = options(u)?;
    options.similar.policy = *u.choose(&[Policy::Balanced, Policy::Size])?;
    options.function_addresses =
        *u.choose(&[Addresses::Insignificant, Addresses::Insignificant, Addresses::Significant])?;
    let mut drawn = Drawn::new(style, options, u)?;
    if u.ratio(1, 4)? {
        drawn.family(u)?;
    }
    for _ in 0..u.int_in_range(1..=3)? {
        drawn.rows(u)?;
    }
    for _ in 0..u.int_in_range(0..=2)? {
        drawn.data_family(u)?;
    }
    if u.ratio(1, 2)? {
        drawn.family(u)?;
    }
    drawn.reach_all(u)?;
    drawn.finish(u)
}

/// Whether a program in C can define something that replaces the part. C has no functions for tail
/// calls.
fn can_be_interposed(program: &Program, part: Part) -> bool {
    let is_tail = |function: usize| program.functions[function].shape.tail;
    matches!(program.linkage(part), Linkage::Export | Linkage::Preemptible)
        && match part {
            Part::Function(function) => !is_tail(function),
            Part::Data(data) => program.data[data].items.iter().all(|item| match *item {
                Item::Function(function) => !is_tail(function),
                Item::Number(_) | Item::Data { .. } => true,
            }),
        }
}

/// The common style of all parts of a program.
pub(super) struct Style {
    pub(super) flushes: usize,
    /// Whether attributes are drawn. Mostly, functions are what front ends make.
    attributes: bool,
    /// Whether parts that are defined later are referred to.
    forward: bool,
    /// Whether some functions are defined by their code.
    bytes: bool,
    /// Whether the program is mostly about equal data objects that other images see.
    pub(super) data: bool,
    /// Whether it is mostly about functions that early flushes eliminate: large local ones, of
    /// which nothing is known that keeps them, and to which later flushes refer.
    pub(super) eliminates: bool,
    linkage: Linkages,
    facts: FactsAcrossUnits,
}

/// The linkage of functions.
#[derive(Clone, Copy)]
enum Linkages {
    Local,
    Only(Linkage),
    Any,
}

/// How facts are spread over flushes.
#[derive(Clone, Copy)]
enum FactsAcrossUnits {
    /// Later flushes have none.
    FirstStrong,
    FirstWeak,
    Same,
    Any,
}

impl Style {
    fn draw(u: &mut Unstructured<'_>) -> Result<Style> {
        let flushes = *u.choose(&[1, 2, 2, 2, 3, 3, 4, 5])?;
        let eliminates = flushes > 1 && u.ratio(1, 3)?;
        let style = Style {
            flushes,
            attributes: u.ratio(1, 3)?,
            forward: u.ratio(1, 4)?,
            bytes: u.ratio(1, 4)?,
            data: u.ratio(1, 4)?,
            eliminates,
            linkage: *u.choose(&[
                Linkages::Local,
                Linkages::Local,
                Linkages::Local,
                Linkages::Only(Linkage::Export),
                Linkages::Only(Linkage::Hidden),
                Linkages::Only(Linkage::Preemptible),
                Linkages::Any,
                Linkages::Any,
            ])?,
            facts: *u.choose(&[
                FactsAcrossUnits::FirstStrong,
                FactsAcrossUnits::FirstStrong,
                FactsAcrossUnits::FirstWeak,
                FactsAcrossUnits::Same,
                FactsAcrossUnits::Any,
            ])?,
        };
        Ok(match eliminates {
            true => Style {
                attributes: false,
                forward: false,
                bytes: false,
                linkage: Linkages::Local,
                facts: FactsAcrossUnits::Same,
                ..style
            },
            false => style,
        })
    }
}

fn options(u: &mut Unstructured<'_>) -> Result<ModuleOptions> {
    let similar = match u.arbitrary()? {
        true => similar(u)?,
        false => Similar {
            policy: *u.choose(&[Policy::Balanced, Policy::Size, Policy::Size])?,
            callees: *u.choose(&[Callees::Indirect, Callees::Indirect, Callees::Dispatch])?,
            instructions: Default::default(),
            keep_symbols: false,
            integer_registers_only: false,
        },
    };
    // A draw that was here is gone. Seeds that found something still draw the same programs.
    u.int_in_range(0..=3)?;
    let options = ModuleOptions {
        take_ir: u.ratio(1, 4)?,
        function_addresses: *u.choose(&Addresses::ALL)?,
        data_addresses: *u.choose(&Addresses::ALL)?,
        aliases: !u.ratio(1, 4)?,
        remember: u.arbitrary()?,
        similar,
        ..ModuleOptions::default()
    };
    u.ratio(1, 8)?;
    Ok(options)
}

fn frozen() -> Data {
    Data {
        family: 0,
        items: (0..AREA / 8).map(|number| Item::Number(number * 0x0101 + 7)).collect(),
        writable: false,
        linkage: Linkage::Local,
        attributes: Attributes { alignment: 16, ..Attributes::default() },
    }
}

/// The function that a hole for a function names in the copy of a number.
#[derive(Clone, Copy)]
pub(super) enum Choice {
    /// A function of a family.
    Of(usize),
    /// The function behind it.
    Next(usize),
    /// The function itself.
    Itself,
    /// The function before or behind it.
    Partner,
}

/// How copies differ in their holes.
enum Variation {
    /// Not at all.
    None,
    /// In all, each by its own number.
    All,
    /// In all, by so few numbers that there are equal ones.
    Few(usize),
    /// In one hole.
    One(usize),
    /// One copy in one hole, and perhaps another one in another one.
    OneOfAll([(usize, usize); 2]),
    /// Each hole for itself.
    Random(usize),
}

pub(super) struct Drawn {
    pub(super) program: Program,
    pub(super) style: Style,
    /// Functions, by family.
    pub(super) families: Vec<Vec<usize>>,
    /// Data objects, by family.
    pub(super) data_families: Vec<Vec<usize>>,
}

/// Another constant for each number. Some need more bytes than others.
pub(super) const STEPS: [i64; 8] = [0, 1, 2, -1, 0x101, 1 << 33, -77, 0x7fff_ffff];

impl Drawn {
    /// Nothing yet but the data object that is never written to.
    fn new(style: Style, options: ModuleOptions, u: &mut Unstructured<'_>) -> Result<Drawn> {
        let mut drawn = Drawn {
            program: Program {
                options,
                speed: u.ratio(7, 8)?,
                colocated: u.ratio(3, 4)?,
                functions: Vec::new(),
                data: vec![frozen()],
                flushes: vec![Flush::default(); style.flushes],
                calls: Vec::new(),
                interposed: Vec::new(),
                any_back_end: u.ratio(1, 8)?,
                finishes: u.arbitrary()?,
                later: 0,
            },
            style,
            families: Vec::new(),
            data_families: vec![vec![0]],
        };
        drawn.program.flushes[0].defined.push(Part::Data(0));
        Ok(drawn)
    }

    /// The program: with facts that are true, calls from outside, and what other images interpose.
    fn finish(self, u: &mut Unstructured<'_>) -> Result<Program> {
        let Drawn { mut program, style, .. } = self;
        let contracts = settle(&mut program);
        order(&mut program, u)?;
        for (function, contract) in contracts.iter().enumerate() {
            if !program.functions[function].shape.tail {
                for _ in 0..u.int_in_range(2..=4)? {
                    let call = call(&program, function, contract, u)?;
                    program.calls.push(call);
                }
            }
        }
        let functions = (0..program.functions.len()).map(Part::Function);
        for part in functions.chain((0..program.data.len()).map(Part::Data)) {
            let is_drawn = match part {
                Part::Function(_) if style.data => u.ratio(1, 16)?,
                Part::Data(_) if style.data => u.ratio(1, 2)?,
                Part::Function(_) | Part::Data(_) => u.ratio(1, 4)?,
            };
            if is_drawn && can_be_interposed(&program, part) {
                program.interposed.push(part);
            }
        }
        Ok(program)
    }

    pub(super) fn attributes(&self, data: bool, u: &mut Unstructured<'_>) -> Result<Attributes> {
        let ModuleOptions { function_addresses: functions, data_addresses: objects, .. } =
            &self.program.options;
        let addresses = if data { *objects } else { *functions };
        let mut attributes = Attributes { addresses, ..Attributes::default() };
        if self.style.attributes {
            if u.ratio(1, 3)? {
                attributes.addresses = *u.choose(&Addresses::ALL)?;
            }
            attributes.pinned = u.ratio(1, 10)?;
            attributes.no_merge = u.ratio(1, 12)?;
            attributes.externally_called = u.ratio(1, 8)?;
            attributes.address_taken = u.ratio(1, 8)?;
            attributes.hot = u.ratio(1, 8)?;
            attributes.identical_only = u.ratio(1, 16)?;
            attributes.key = u64::from(u.ratio(1, 12)?);
            attributes.alignment = *u.choose(&[1, 1, 1, 16, 64])?;
        }
        Ok(attributes)
    }

    pub(super) fn draw_linkage(&self, u: &mut Unstructured<'_>) -> Result<Linkage> {
        Ok(match self.style.linkage {
            Linkages::Local => Linkage::Local,
            Linkages::Only(linkage) => linkage,
            Linkages::Any => *u.choose(&[
                Linkage::Local,
                Linkage::Local,
                Linkage::Export,
                Linkage::Hidden,
                Linkage::Preemptible,
            ])?,
        })
    }

    /// Data objects: numbers, or pointers to functions of one family, or to numbers.
    fn data_family(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let family = self.data_families.len();
        let of = match self.families.is_empty() {
            true => None,
            false => Some(u.choose_index(self.families.len())?),
        };
        let pointed = match family > 1 && u.ratio(1, 4)? {
            true => Some(u.int_in_range(1..=family - 1)?),
            false => None,
        };
        let pointed = pointed.filter(|&pointed| {
            matches!(self.program.data[self.data_families[pointed][0]].items[0], Item::Number(_))
        });
        let (length, writable) = (u.int_in_range(1..=3)?, of.is_none() && u.ratio(1, 3)?);
        let tables = of.filter(|_| u.ratio(2, 3).unwrap_or(false));
        let mut members = Vec::new();
        let copies = u.int_in_range(if self.style.data { 2 } else { 1 }..=3)?;
        for copy in 0..copies {
            let other = u.ratio(1, if self.style.data { 6 } else { 2 })?;
            let mut items = Vec::new();
            for slot in 0..length {
                items.push(match (tables, pointed) {
                    (Some(of), _) => {
                        let functions = &self.families[of];
                        let at = if other { slot + copy } else { slot };
                        Item::Function(functions[at % functions.len()])
                    }
                    (None, Some(pointed)) => {
                        let targets = &self.data_families[pointed];
                        let target = targets[if other { copy % targets.len() } else { 0 }];
                        Item::Data { data: target, slot: 0 }
                    }
                    (None, None) => {
                        let other = if other && slot == 0 { copy as i64 } else { 0 };
                        Item::Number(1000 + slot as i64 + 0x1_0000_0001 * other)
                    }
                });
            }
            let attributes = self.attributes(true, u)?;
            let linkage = match self.style.data && u.ratio(3, 4)? {
                true => Linkage::Export,
                false => self.draw_linkage(u)?,
            };
            members.push(self.program.data.len());
            let part = Part::Data(self.program.data.len());
            self.program.data.push(Data { family, items, writable, linkage, attributes });
            let flush = match u.ratio(1, 3)? {
                true => u.choose_index(self.style.flushes)?,
                false => 0,
            };
            self.program.flushes[flush].defined.push(part);
            if flush + 1 < self.style.flushes && u.ratio(1, 8)? {
                self.widen(part, flush + 1, u)?;
            }
        }
        self.data_families.push(members);
        Ok(())
    }

    /// A function and its copies.
    fn family(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let mut choices = Vec::new();
        let mut first = self.function(&mut choices, u)?;
        let differs = u.ratio(1, 4)?;
        if differs {
            self.program.options.similar.policy = Policy::Size;
        }
        if differs || self.style.eliminates {
            differing::enlarge(&mut first);
        }
        let copies = *u.choose(&[1, 2, 2, 3, 3, 4, 4, 6, 8])?;
        let holes = first.clone().holes().len().max(1);
        let variation = match u.int_in_range(0..=10)? {
            0 => Variation::None,
            1..=2 => Variation::All,
            3..=4 => Variation::Few(u.int_in_range(2..=3)?),
            5..=6 => Variation::One(u.choose_index(holes)?),
            7 => {
                let one = (u.choose_index(copies)?, u.choose_index(holes)?);
                Variation::OneOfAll([one; 2])
            }
            // Two that agree in all but the last ones.
            8 => Variation::OneOfAll([
                (copies - 1, u.choose_index(holes)?),
                (copies.saturating_sub(2), u.choose_index(holes)?),
            ]),
            _ => Variation::Random(u.int_in_range(2..=4)?),
        };
        let strong = self.facts(u)?;
        let start = self.program.functions.len();
        let flushes = self.flushes(copies, &choices, u)?;
        // A copy of a copy, with other facts at most: later flushes merge those with the same facts
        // into earlier ones.
        let mut same_as: Vec<Option<usize>> = vec![None; copies];
        for (copy, same) in same_as.iter_mut().enumerate().skip(1) {
            if u.ratio(1, 3)? {
                *same = Some(u.int_in_range(0..=copy - 1)?);
            }
        }
        let mut numbers: Vec<Vec<usize>> = Vec::new();
        for (copy, same) in same_as.into_iter().enumerate() {
            let own = match same {
                Some(same) => numbers[same].clone(),
                None => {
                    let mut own = Vec::new();
                    for hole in 0..holes {
                        own.push(match variation {
                            Variation::None => 0,
                            Variation::All => copy,
                            Variation::Few(few) => copy % few,
                            Variation::One(one) => {
                                if one == hole {
                                    copy
                                } else {
                                    0
                                }
                            }
                            Variation::OneOfAll(places) => {
                                usize::from(places.contains(&(copy, hole)))
                            }
                            Variation::Random(count) => u.choose_index(count)?,
                        });
                    }
                    own
                }
            };
            numbers.push(own);
        }
        // Callees by the number of the copy, by the variation, or the same for all.
        let pairing = u.int_in_range(0..=3)?;
        let linkage = self.draw_linkage(u)?;
        for copy in 0..copies {
            let mut function = first.clone();
            let mut choices = choices.iter();
            for (hole, &number) in function.holes().into_iter().zip(&numbers[copy]) {
                match hole {
                    Hole::Constant(value) => {
                        *value = value.wrapping_add(STEPS[number % STEPS.len()]);
                    }
                    Hole::Float(bits) => *bits = bits.wrapping_add(number as u64 * 3),
                    Hole::Offset(offset, unit) => {
                        *offset = (*offset + unit * number as i32) % 48;
                    }
                    Hole::Function(callee) => {
                        let choice = *choices.next().expect("a choice for each");
                        *callee = match choice {
                            Choice::Of(family) | Choice::Next(family) => {
                                let members = &self.families[family];
                                let at = match pairing {
                                    0 => number,
                                    1 | 2 => copy,
                                    _ => *callee,
                                };
                                let next = usize::from(matches!(choice, Choice::Next(_)));
                                members[(at + next) % members.len()]
                            }
                            Choice::Itself => start + copy,
                            Choice::Partner => start + (copy ^ 1).min(copies - 1),
                        }
                    }
                    Hole::Data(data) => {
                        let family = &self.data_families[self.program.data[*data].family];
                        let first = family.iter().position(|member| member == data).unwrap_or(0);
                        let at = first + if pairing == 1 { copy } else { number };
                        *data = family[at % family.len()];
                    }
                    Hole::Item(item, data) => {
                        *item = (*item + number) % self.program.data[data].items.len();
                    }
                }
            }
            if differs && u.ratio(3, 4)? {
                differing::edit(&mut function, &mut Rng::new(u.arbitrary::<u16>()?.into()));
            }
            function.facts = self.facts_of(&strong, flushes[copy], u)?;
            function.attributes = self.attributes(false, u)?;
            function.bytes = self.style.bytes && u.ratio(1, 3)?;
            function.linkage = match self.style.linkage {
                Linkages::Any if u.ratio(1, 3)? => self.draw_linkage(u)?,
                _ => linkage,
            };
            function.declared = match u.ratio(1, 12)? {
                true if function.linkage != Linkage::Local => Linkage::Import,
                _ => function.linkage,
            };
            self.program.functions.push(function);
            self.program.flushes[flushes[copy]].defined.push(Part::Function(start + copy));
            if flushes[copy] + 1 < self.style.flushes && u.ratio(1, 7)? {
                self.widen(Part::Function(start + copy), flushes[copy] + 1, u)?;
            }
        }
        self.families.push((start..start + copies).collect());
        Ok(())
    }

    /// Widens the linkage of a part after its flush.
    fn widen(&mut self, part: Part, flush: usize, u: &mut Unstructured<'_>) -> Result<()> {
        let linkage = match self.program.linkage(part) {
            Linkage::Local | Linkage::Hidden => Linkage::Export,
            Linkage::Export | Linkage::Preemptible | Linkage::Import => return Ok(()),
        };
        let flush = u.int_in_range(flush..=self.style.flushes - 1)?;
        self.program.flushes[flush].widened.push((part, linkage));
        Ok(())
    }

    /// In which flush each copy is defined.
    fn flushes(
        &self,
        copies: usize,
        choices: &[Choice],
        u: &mut Unstructured<'_>,
    ) -> Result<Vec<usize>> {
        let last = self.style.flushes - 1;
        let policy = match self.style.eliminates {
            true => *u.choose(&[2, 2, 3])?,
            false => u.int_in_range(0..=4)?,
        };
        let mut flushes: Vec<usize> = Vec::new();
        for copy in 0..copies {
            flushes.push(match policy {
                // All but the last ones in the first.
                0 | 1 if copy + 1 + usize::from(policy == 1) < copies => 0,
                0 | 1 => last,
                2 => 0,
                3 => copy * (last + 1) / copies,
                _ => u.int_in_range(0..=last)?,
            });
        }
        for copy in 0..copies {
            if self.style.forward {
                continue;
            }
            for choice in choices {
                match *choice {
                    Choice::Of(family) | Choice::Next(family) => {
                        // With the callee of the same number, mostly.
                        let members = &self.families[family];
                        let next = usize::from(matches!(choice, Choice::Next(_)));
                        let callee = Part::Function(members[(copy + next) % members.len()]);
                        flushes[copy] = flushes[copy].max(self.program.flush_of(callee));
                    }
                    Choice::Itself => {}
                    Choice::Partner => {
                        let partner = (copy ^ 1).min(copies - 1);
                        flushes[copy] = flushes[copy].max(flushes[partner]);
                        flushes[partner] = flushes[copy];
                    }
                }
            }
        }
        Ok(flushes)
    }

    pub(super) fn facts(&self, u: &mut Unstructured<'_>) -> Result<Facts> {
        let mut facts = Facts {
            regions: *u.choose(&[
                [1, 2],
                [1, 2],
                [1, 2],
                [2, 1],
                [0, 1],
                [1, 0],
                [1, 1],
                [0, 0],
            ])?,
            readonly_data: u.arbitrary()?,
            cold: u.ratio(1, 4)?,
            ..Facts::default()
        };
        for at in 0..2 {
            facts.aligned[at] = u.ratio(1, 3)?;
            facts.readonly[at] = u.ratio(1, 3)?;
            facts.can_move[at] = u.ratio(1, 3)?;
        }
        Ok(facts)
    }

    fn facts_of(&self, strong: &Facts, flush: usize, u: &mut Unstructured<'_>) -> Result<Facts> {
        let last = self.style.flushes - 1;
        Ok(match self.style.facts {
            FactsAcrossUnits::FirstStrong if flush == last && last > 0 => Facts::default(),
            FactsAcrossUnits::FirstWeak if flush == 0 => Facts::default(),
            FactsAcrossUnits::FirstStrong
            | FactsAcrossUnits::FirstWeak
            | FactsAcrossUnits::Same => *strong,
            FactsAcrossUnits::Any => match u.int_in_range(0..=3)? {
                0 => Facts::default(),
                1 => self.facts(u)?,
                _ => *strong,
            },
        })
    }

    /// Makes every function be called by a function that is called from outside.
    fn reach_all(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let seen = |program: &Program, function: usize| {
            let Function { shape, .. } = &program.functions[function];
            !shape.tail && program.linkage(Part::Function(function)) != Linkage::Local
        };
        let all = 0..self.program.functions.len();
        let entries = all.clone().filter(|&function| seen(&self.program, function));
        let reached = self.program.reached(entries.map(Part::Function));
        let family = self.families.len();
        let linkage = *u.choose(&[Linkage::Export, Linkage::Export, Linkage::Preemptible])?;
        let mut members = Vec::new();
        let exact = u.arbitrary()?;
        for function in all {
            if reached.contains(&Part::Function(function)) && u.ratio(3, 4)? {
                continue;
            }
            let own = Function {
                family,
                shape: Shape { extras: Vec::new(), tail: false, results: 1 },
                statements: Vec::new(),
                end: End::Return,
                facts: Facts::default(),
                declared: linkage,
                linkage,
                attributes: self.attributes(false, u)?,
                bytes: self.style.bytes && u.ratio(1, 3)?,
            };
            let shape = self.program.functions[function].shape.clone();
            let mut passes = self.passes(&own, &shape, u)?;
            if exact {
                passes.pointers = [Pointer::Own(0), Pointer::Own(1)];
            }
            let call = match u.ratio(1, 4)? {
                true => Callee::Indirect(function),
                false => Callee::Direct(function),
            };
            let call = Statement::Call { call, passes, in_loop: false, entries: 0 };
            let number = self.program.functions.len();
            let earliest = self.program.flush_of(Part::Function(function));
            let last = self.style.flushes - 1;
            let flush = match u.ratio(1, 3)? {
                true => u.int_in_range(earliest..=last)?,
                false if self.style.eliminates => {
                    u.int_in_range((earliest + 1).min(last)..=last)?
                }
                false => earliest,
            };
            self.program.flushes[flush].defined.push(Part::Function(number));
            let mix = if exact { 1 } else { u.int_in_range(0..=3)? };
            let statements = vec![call, Statement::Mix { rounds: mix, seed: 0 }];
            self.program.functions.push(Function { statements, ..own });
            members.push(number);
        }
        self.families.push(members);
        Ok(())
    }
}
