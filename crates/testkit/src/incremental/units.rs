//! Programs whose flushes are units: each is compiled to an object of its own, with content
//! addressing.

use super::define::{Definer, function_attributes, functions, name, say};
use super::program::{Hole, Part, Program};
use super::{print, settings};
use crate::across::map;
use crate::isa;
use crate::modules;
use crate::support::Rng;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::across::ContentAddressing;
use cranelift_mergefunc::thunk::CallThunks;
use cranelift_mergefunc::units::{Group, SetDecision, SharingMap, UnitSummary};
use cranelift_mergefunc::{Bodies, FunctionIndex, Merger, Options, Prove, Target};
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::Linkage;
use std::sync::Arc;

/// The program with units in place of flushes: what one unit refers to in another one is visible to
/// it, and one of `exported` functions that are called from outside is exported.
pub fn apart(program: &Program, exported: usize, rng: &mut Rng) -> Program {
    let mut units = program.clone();
    let is_called =
        |part: Part| program.calls.iter().any(|call| Part::Function(call.function) == part);
    let all: Vec<Part> =
        program.flushes.iter().flat_map(|flush| flush.defined.iter().copied()).collect();
    for &part in &all {
        let unit = program.flush_of(part);
        let is_seen = all.iter().any(|&from| {
            program.flush_of(from) != unit && program.references(from).contains(&part)
        });
        let linkage = match program.linkage(part) {
            Linkage::Local if is_called(part) && rng.one_in(exported) => Linkage::Export,
            Linkage::Local if is_seen => Linkage::Hidden,
            linkage => linkage,
        };
        match part {
            Part::Function(function) => {
                let function = &mut units.functions[function];
                (function.declared, function.linkage) = (linkage, linkage);
            }
            Part::Data(data) => units.data[data].linkage = linkage,
        }
    }
    for flush in &mut units.flushes {
        flush.widened.clear();
    }
    units.any_back_end = false;
    units.options = ModuleOptions {
        back_end: BackEnd::Object,
        content_addressed: true,
        // A plan that is refused merges nothing, and the program would do what it did: so it is a
        // panic, or the code shows it.
        prove: rng.choose(&[Prove::Debug, Prove::Never]),
        ..units.options
    };
    units
}

/// The program as it may have been when a map was made: some functions were others, and some were
/// not there.
pub fn before_changes(program: &Program, rng: &mut Rng) -> Program {
    let mut before = program.clone();
    let often = rng.choose(&[3, 8, 20]);
    for flush in &mut before.flushes {
        flush.defined.retain(|_| rng.but_one_in(often));
    }
    for number in 0..before.functions.len() {
        if rng.but_one_in(often) {
            continue;
        }
        let shape = program.functions[number].shape.clone();
        let callees: Vec<usize> = (0..program.functions.len())
            .filter(|&other| program.functions[other].shape == shape)
            .collect();
        for hole in before.functions[number].holes() {
            match hole {
                Hole::Constant(value) if rng.one_in(2) => *value ^= 4,
                Hole::Function(callee) if program.functions[*callee].shape == shape => {
                    *callee = rng.choose(&callees);
                }
                Hole::Constant(_)
                | Hole::Float(_)
                | Hole::Offset(..)
                | Hole::Function(_)
                | Hole::Data(_)
                | Hole::Item(..) => {}
            }
        }
    }
    before
}

/// The objects of a program of [`apart`].
pub struct Units<'a> {
    pub program: &'a Program,
    /// All in one, without merging.
    pub plain: Vec<u8>,
    /// One for each unit.
    pub merged: Vec<Vec<u8>>,
}

fn isa_of(program: &Program, triple: &str) -> cranelift_codegen::isa::OwnedTargetIsa {
    isa::of(triple, &[&settings(program.speed)[..], &[("is_pic", "true")]].concat())
}

impl<'a> Units<'a> {
    /// Compiles a program, whose symbols begin with `prefix`, each unit with the bytes of its map
    /// or without.
    ///
    /// # Panics
    ///
    /// If something is refused.
    pub fn new(program: &'a Program, prefix: &str, triple: &str, maps: &[Option<Vec<u8>>]) -> Self {
        let bodies = functions(program);
        let isa = || isa_of(program, triple);
        let mut plain =
            Definer::plain(modules::object_with(isa(), |_| {}), program, &bodies, prefix);
        let mut merged = Vec::new();
        for (unit, map) in maps.iter().enumerate() {
            plain.define(unit, &mut |_, _, _| {}).unwrap_or_else(|error| panic!("{error:?}"));
            let module = modules::object_with(isa(), |builder| {
                builder.per_function_section(true);
            });
            let mut module = MergingModule::with_options(module, program.options);
            if let Some(map) = map.clone() {
                module.set_sharing_map(Arc::new(SharingMap::open(map).expect("a map")));
            }
            let mut merging = Definer::new(module, program, &bodies, prefix).of_unit(unit);
            let defined =
                merging.define(unit, &mut |module, part, ids| say(module, program, part, ids));
            defined.unwrap_or_else(|error| panic!("unit {unit}: {error}"));
            let product = merging.module.finish();
            let product =
                product.unwrap_or_else(|error| panic!("unit {unit}: {error}\n{}", print(program)));
            merged.push(product.emit().expect("an object file"));
        }
        let plain = plain.module.finish().emit().expect("an object file");
        Units { program, plain, merged }
    }

    /// The bytes of a map for the units of a program.
    pub fn map(
        program: &Program,
        prefix: &str,
        triple: &str,
        decide: &mut dyn FnMut(&Group<'_>) -> Vec<SetDecision>,
    ) -> Vec<u8> {
        let isa = isa_of(program, triple);
        let bodies = functions(program);
        let summaries: Vec<UnitSummary> = (0..program.flushes.len())
            .map(|unit| summary(program, &bodies, unit, prefix, &*isa))
            .collect();
        map(&summaries, decide)
    }
}

/// The summary of a unit for other units.
fn summary(
    program: &Program,
    bodies: &[Function],
    unit: usize,
    prefix: &str,
    isa: &dyn TargetIsa,
) -> UnitSummary {
    let options = Options {
        target: Target { call_thunks: Some(CallThunks::of(isa)), ..Target::of(isa) },
        similar: program.options.similar,
        interposition: true,
        content_addressing: Some(ContentAddressing::of(isa)),
        ..Options::default()
    };
    let mut merger = Merger::new(options);
    let mut own = Named { program, prefix, bodies: Vec::new() };
    for &part in &program.flushes[unit].defined {
        if let Part::Function(number) = part
            && !program.functions[number].bytes
        {
            let symbol = UserExternalName::new(super::define::FUNCTION, number as u32);
            let attributes = function_attributes(program, number);
            merger.add(symbol, &bodies[number], attributes).expect("is added");
            own.bodies.push(&bodies[number]);
        }
    }
    merger.summarize(&mut own, format!("unit {unit}")).expect("content addressing is on")
}

struct Named<'a> {
    program: &'a Program,
    prefix: &'a str,
    bodies: Vec<&'a Function>,
}

impl Bodies for Named<'_> {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        self.bodies[function.as_u32() as usize]
    }

    fn link_name(&mut self, symbol: &UserExternalName) -> Option<String> {
        let index = symbol.index as usize;
        let part = match symbol.namespace {
            super::define::FUNCTION => Part::Function(index),
            super::define::DATA => Part::Data(index),
            _ => return None,
        };
        (self.program.linkage(part) != Linkage::Local).then(|| name(self.prefix, part))
    }
}
