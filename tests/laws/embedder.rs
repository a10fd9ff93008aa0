//! Laws of what embedders ask a plan, function by function.

use crate::support::{free, random};
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_mergefunc::thunk::{CallThunks, Thunk};
use cranelift_mergefunc::{
    Attributes, Bodies, Disposition, ExtraArgument, FunctionIndex, Linkage, Merger, Options, Plan,
    Policy, Similar, Target,
};
use testkit::scale::Family;
use testkit::support::parse_one;
use testkit::unit::{Held, Unit, uniform};

/// A function that `apply` would not change is said to need none, but for few; and what is said to
/// need none is not changed.
#[test]
fn what_needs_no_apply_is_not_changed() {
    let [mut without, mut in_vain] = [0, 0];
    random(|u| {
        let unit = Unit::random(u)?;
        let plan = unit.plan();
        for (function, entry) in plan.entries().take(unit.functions.len()) {
            if entry.disposition() == Disposition::Keep {
                let mut body = unit.functions[function.as_u32() as usize].body.clone();
                let before = body.clone();
                let needs = plan.needs_apply(&body);
                let changed = plan.apply(function, &mut body);
                assert!(needs || !changed && body == before, "{before}\n{body}");
                without += usize::from(!needs);
                in_vain += usize::from(needs && !changed);
            }
        }
        Ok(())
    });
    assert!(without > 4 * in_vain, "{without} need none, {in_vain} are not changed");
}

fn constants(functions: u32, target: Target) -> Plan {
    let unit = Family::Constants.unit(functions);
    let similar = Similar { policy: Policy::Size, ..Similar::default() };
    let options = Options { target, similar, ..Options::default() };
    let mut merger = Merger::new(options);
    for (at, func) in unit.iter().enumerate() {
        let linkage = if at == 0 { Linkage::Export } else { Linkage::Local };
        let attributes = Attributes { linkage, ..free() };
        merger.add(func.name.get_user().unwrap().clone(), func, attributes).unwrap();
    }
    merger.plan(&mut Held::new(&unit))
}

/// Nothing has the address of a function that is replaced by a body with extra arguments, so there
/// is none to take.
#[test]
fn a_function_that_needs_arguments_has_no_substitute() {
    let plan = constants(8, Target::x86_64());
    let [body] = plan.new_bodies() else { panic!("one body") };
    let members: Vec<_> = (0..8).map(FunctionIndex::from_u32).collect();
    assert_eq!(body.members(), members);
    assert_eq!(plan.address_target(members[0]), Some(members[0]), "a thunk");
    assert_eq!(plan.address_target(members[1]), None);
    assert_eq!(plan.address_target(body.function()), Some(body.function()));
}

/// The members of a new body are the functions that the plan replaces by it.
#[test]
fn members_are_those_that_are_replaced() {
    random(|u| {
        let plan = Unit::random(u)?.plan();
        for new in plan.new_bodies() {
            let replaced = plan
                .entries()
                .filter(|(_, entry)| entry.disposition().representative() == Some(new.function()));
            assert!(replaced.map(|(function, _)| function).eq(new.members().iter().copied()));
        }
        Ok(())
    });
}

/// A thunk comes with all that it passes and names.
#[test]
fn a_thunk_is_finished() {
    let plan = constants(8, Target::x86_64());
    let signature = Family::Constants.function(0, 8).signature.clone();
    let [first, second] = [0, 1].map(FunctionIndex::from_u32);
    let body = plan.entry(plan.new_bodies()[0].function()).symbol();
    match plan.thunk(first, &signature) {
        Some(Thunk::Code(code)) => assert_eq!(code.relocations.last().unwrap().symbol, *body),
        other => panic!("{other:?}"),
    }
    assert!(plan.thunk(second, &signature).is_none(), "it was redirected");
    let call_thunks = Some(CallThunks { tail_calls: true, colocated: true });
    let plan = constants(8, Target { jump_thunk: None, call_thunks, ..Target::x86_64() });
    let body = plan.entry(plan.new_bodies()[0].function()).symbol();
    match plan.thunk(first, &signature) {
        Some(Thunk::Function(func)) => {
            assert_eq!(func.name.get_user(), Some(plan.entry(first).symbol()));
            let passed = plan.thunk_arguments(first);
            assert!(matches!(*passed, [ExtraArgument::Constant { .. }]));
            assert!(func.params.user_named_funcs().values().any(|symbol| symbol == body));
        }
        other => panic!("{other:?}"),
    }
}

/// Attributes that are set before the plan is made count as if they had been given at once.
#[test]
fn attributes_can_be_set_late() {
    random(|u| {
        let unit = Unit::random(u)?;
        let plans = [false, true].map(|late| {
            let mut merger = Merger::new(unit.options);
            let mut functions = Vec::new();
            for member in &unit.functions {
                let early = Attributes { key: member.attributes.key, ..Attributes::default() };
                let attributes = if late { early } else { member.attributes };
                functions.push(merger.add(member.symbol(), &member.body, attributes).unwrap());
            }
            for (&function, member) in functions.iter().zip(&unit.functions) {
                merger.set_attributes(function, member.attributes).unwrap();
                assert_eq!(*merger.attributes(function), member.attributes);
            }
            let bodies = unit.bodies();
            merger.plan(&mut Held::new(&bodies))
        });
        let [at_once, late] = plans.map(|plan| {
            let entries = plan.entries();
            let given = entries.map(|(_, entry)| {
                (entry.disposition(), entry.reason(), entry.class(), *entry.attributes())
            });
            given.collect::<Vec<_>>()
        });
        assert_eq!(at_once, late);
        Ok(())
    });
}

/// An embedder that is asked for symbols of bodies, and with which functions, in order.
struct Asked {
    functions: Vec<Function>,
    members: Vec<Vec<FunctionIndex>>,
}

impl Bodies for Asked {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self.functions[function.as_u32() as usize]
    }

    fn fresh_symbol(&mut self, members: &[FunctionIndex]) -> Option<UserExternalName> {
        self.members.push(members.to_vec());
        Some(UserExternalName::new(9, self.members.len() as u32 - 1))
    }
}

/// Five shapes of six functions each, which differ in a constant.
fn five_shapes() -> Vec<Function> {
    let function = |own: u32| {
        let (shape, steps) = (own % 5, 12 + own % 5);
        let step = |at: u32| format!("    v{at} = imul v{}, v{shape}\n", at - 1);
        let steps: String = (7..7 + steps).map(step).collect();
        parse_one(&format!(
            "function u0:{own}(i64, i64, i64, i64, i64) -> i64 {{
block0(v0: i64, v1: i64, v2: i64, v3: i64, v4: i64):
    v5 = iconst.i64 {}
    v6 = iadd v0, v5
{steps}    return v{}
}}",
            own * 1000,
            6 + 12 + own % 5
        ))
    };
    (0..30).map(function).collect()
}

/// The symbol of a new body is asked for with functions that it replaces.
#[test]
fn members_are_those_of_the_new_body() {
    let similar = Similar { policy: Policy::Size, ..Similar::default() };
    let target = uniform(Target::generic());
    let mut merger = Merger::new(Options { similar, target, ..Options::default() });
    let mut asked = Asked { functions: five_shapes(), members: Vec::new() };
    for func in &asked.functions {
        merger.add(func.name.get_user().unwrap().clone(), func, free()).unwrap();
    }
    let plan = merger.plan(&mut asked);
    // Bodies of two shapes can share one.
    assert!((1..=5).contains(&plan.new_bodies().len()), "{}", plan.new_bodies().len());
    for new in plan.new_bodies() {
        let symbol = plan.entry(new.function()).symbol();
        let said = &asked.members[symbol.index as usize];
        assert!(said.len() > 1 && said.is_sorted());
        assert!(said.iter().all(|member| new.members().contains(member)));
    }
}
