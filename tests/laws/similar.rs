//! Laws: similar functions share parameterised bodies, which receive the differences as extra
//! arguments.

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::immediates::Imm64;
use cranelift_codegen::ir::{InstructionData, Opcode, UserExternalName, UserFuncName, types};
use cranelift_codegen::settings;
use cranelift_codegen::verify_function;
use cranelift_mergefunc::{
    Attributes, Disposition, ExtraArgument, FunctionIndex, Instructions, Options, Plan, Policy,
    Prove, Reason, Similar, Target, cranelift_codegen,
};
use testkit::check::{Applied, check_unit};
use testkit::generate::opcodes::Machine;
use testkit::support::{free, parse_one};
use testkit::unit::{Member, Unit, uniform};

/// A function with constants at places of its own, large enough to share its body.
fn function(own: u32, constants: &[i64]) -> Member {
    wide(own, 2, constants)
}

/// A function with this number of parameters, two or more.
fn wide(own: u32, parameters: usize, constants: &[i64]) -> Member {
    let types = vec!["i64"; parameters].join(", ");
    let values: Vec<String> = (0..parameters).map(|value| format!("v{value}: i64")).collect();
    let values = values.join(", ");
    let mut text = format!("function u0:{own}({types}) -> i64 tail {{\nblock0({values}):\n");
    let mut last = parameters - 1;
    for (at, _) in constants.iter().enumerate() {
        let first = parameters + 4 * at;
        text += &format!(
            "    v{first} = iconst.i64 0
    v{} = imul v{last}, v1
    v{} = bxor v{}, v{first}
    v{} = rotl v{}, v1\n",
            first + 1,
            first + 2,
            first + 1,
            first + 3,
            first + 2,
        );
        last = first + 3;
    }
    text += &format!("    return v{last}\n}}\n");
    with(&parse_one(&text), own, constants)
}

/// A similar function under another symbol, with other constants.
fn with(like: &cranelift_codegen::ir::Function, own: u32, constants: &[i64]) -> Member {
    let mut body = like.clone();
    body.name = UserFuncName::User(UserExternalName::new(0, own));
    let entry = body.layout.entry_block().expect("a body");
    let insts: Vec<_> = body.layout.block_insts(entry).collect();
    let mut constants = constants.iter();
    for inst in insts {
        if let InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } = &mut body.dfg.insts[inst]
        {
            *imm = Imm64::new(*constants.next().expect("one for each place"));
        }
    }
    Member { attributes: free(), body }
}

fn unit(functions: Vec<Member>) -> Unit {
    let similar = Similar { policy: Policy::Size, ..Similar::default() };
    let target = uniform(Target::x86_64());
    let options = Options { target, similar, ..Options::default() };
    Unit { functions, data: Vec::new(), options }
}

/// The extra arguments of each function of a plan, all of which must be constants.
fn extra(plan: &Plan) -> Vec<Vec<i64>> {
    let constant = |argument: &ExtraArgument| match argument {
        ExtraArgument::Constant { bits, .. } => *bits as i64,
        other => panic!("no constant: {other:?}"),
    };
    let functions = plan.entries().take(plan.added());
    functions.map(|(_, entry)| entry.extra_arguments().iter().map(constant).collect()).collect()
}

/// A place at which all functions have one constant needs no parameter, and places with the same
/// constants share one.
#[test]
fn places_that_go_together_are_one_parameter() {
    let all = [[1, 7, 1, -1], [2, 7, 2, -2], [3, 7, 3, -3]];
    let all = (0..).zip(&all).map(|(own, constants)| function(own, constants));
    let plan = unit(all.collect()).plan();
    assert_eq!(extra(&plan), [[1, -1], [2, -2], [3, -3]]);
    assert_eq!(plan.new_bodies().len(), 1);
    let [set] = plan.similar_sets() else { panic!("{:?}", plan.similar_sets()) };
    assert_eq!((set.members.len(), set.parameters), (3, 2));
    assert_eq!(set.body, Some(plan.new_bodies()[0].function()));
    assert!(set.saved.is_some_and(|saved| saved > 0));
}

/// A set of 50,000 functions is divided into those that share all but one constant, and the number
/// of bodies that are made on the way follows the number of parts, not that of functions.
#[test]
fn fifty_thousand_functions_are_divided() {
    const COUNT: u32 = 50_000;
    const PARTS: i64 = 10;
    let like = function(0, &[0; 8]).body;
    let functions = (0..COUNT).map(|own| {
        let part = i64::from(own) % PARTS;
        let mut constants = [0; 8].map(|constant: i64| constant + 1000 * part);
        for (at, constant) in constants.iter_mut().enumerate() {
            *constant += at as i64;
        }
        constants[7] = i64::from(own) + 1_000_000;
        let mut member = with(&like, own, &constants);
        // Each pays for its extra arguments.
        member.attributes = Attributes::default();
        member
    });
    let mut unit = unit(functions.collect());
    unit.options.prove = Prove::Never;
    let plan = unit.plan();
    assert_eq!(plan.new_bodies().len(), PARTS as usize);
    assert!(plan.similar_sets().iter().all(|set| set.parameters == 1 && set.members.len() == 5000));
    let stats = plan.stats();
    assert_eq!(stats.similar.merged, COUNT as usize);
    assert!(stats.similar.tried <= 2 * PARTS as usize, "{stats:?}");
    assert_eq!(stats.similar.walks, COUNT as usize);
    let passes = |own: usize| vec![own as i64 + 1_000_000];
    assert!(extra(&plan).iter().enumerate().all(|(own, extra)| *extra == passes(own)));
}

/// Some formats count parameters in a byte. Cranelift does not: parameters for which no register is
/// left are passed on the stack, and every body that is made can be compiled. The time for that
/// grows with the number of parameters, so there is a limit far beyond a byte.
#[test]
fn there_can_be_more_parameters_than_a_byte_counts() {
    let plan = |parameters: usize, further: i64| {
        let functions = (0..3).map(|own| {
            let constants: Vec<i64> = (0..further).map(|at| 3 * at + i64::from(own)).collect();
            wide(own, parameters, &constants)
        });
        let mut unit = unit(functions.collect());
        unit.options.similar.instructions = Instructions::None;
        unit.plan()
    };
    for (parameters, further) in [(254, 1), (254, 2), (300, 3), (2, 300), (2, 998)] {
        let plan = plan(parameters, further);
        let [set] = plan.similar_sets() else { panic!("{:?}", plan.similar_sets()) };
        assert_eq!((set.members.len(), set.parameters), (3, further as usize));
        let body = plan.new_bodies()[0].body();
        assert_eq!(body.signature.params.len(), parameters + further as usize);
        for machine in [Machine::X86_64, Machine::Aarch64] {
            let mut context = Context::for_function(body.clone());
            let compiled = context.compile(&*machine.isa("none"), &mut ControlPlane::default());
            assert!(compiled.is_ok(), "{parameters} and {further} for {machine:?}");
        }
    }
    for (parameters, further) in [(2, 999), (999, 2), (1000, 1), (3000, 1)] {
        assert!(plan(parameters, further).new_bodies().is_empty());
    }
}

/// Where sizes cannot be predicted, similar functions are not merged.
#[test]
fn without_sizes_no_similar_functions_are_merged() {
    let mut unit = unit((0..3).map(|own| function(own, &[own.into(), 1, 2])).collect());
    unit.options.target.size_model = None;
    let plan = unit.plan();
    assert!(plan.new_bodies().is_empty());
    for (_, entry) in plan.entries() {
        assert_eq!(entry.disposition(), Disposition::Keep);
        assert_ne!(entry.reason(), Reason::Similar);
    }
}

/// A function that is marked as hot is not merged, unless the policy is size.
#[test]
fn hot_functions_are_merged_for_size_only() {
    for (policy, merged) in [(Policy::Off, 0), (Policy::Balanced, 2), (Policy::Size, 3)] {
        let mut unit = unit((0..3).map(|own| function(own, &[own.into(), 1, 2, 3])).collect());
        unit.options.similar.policy = policy;
        unit.functions[1].attributes.hot = true;
        assert_eq!(unit.plan().stats().similar.merged, merged, "{policy:?}");
    }
}

/// Functions of one shape that call each other: the places of constants in a caller are those of
/// the function whose shape was compared, whatever was merged since. Here without addresses, so
/// that no callee can be an extra argument.
#[test]
fn constants_stay_where_they_were_when_the_shape_was_compared() {
    let function = |own: u32, callee: &str, library: &str, constant: i64| {
        let body = parse_one(&format!(
            "function u0:{own}(i64) -> i64 tail {{
    fn0 = {callee}(i64) -> i64 tail
    fn1 = %{library}(f64) -> f64 system_v
block0(v0: i64):
    v1 = call fn0(v0)
    v2 = iconst.i64 {constant}
    v3 = imul v1, v2
    v4 = rotl v3, v0
    v5 = bxor v4, v3
    v6 = imul v5, v4
    v7 = bitcast.f64 v6
    v8 = call fn1(v7)
    v9 = bitcast.i64 v8
    return v9
}}"
        ));
        Member { attributes: free(), body }
    };
    let mut unit = unit(vec![
        function(0, "u1:0", "CeilF64", 5),
        function(1, "u1:0", "CeilF64", 7),
        function(2, "u0:0", "FloorF64", 11),
        function(3, "u0:0", "FloorF64", 13),
    ]);
    unit.options.target = uniform(Target::generic());
    let Applied { plan, kept } = check_unit(&unit);
    assert_eq!(extra(&plan), [[5], [7], [11], [13]]);
    let text = kept[&plan.new_bodies()[1].function()].to_string();
    assert!(text.contains("iconst.i64 5") && !text.contains("iconst.i64 11"), "{text}");
}

/// Three functions that differ in a constant for which a thunk and a call take equal bytes: calls
/// pass it.
fn three_similar() -> Vec<Member> {
    (0..3).map(|own| function(own, &[1000 + i64::from(own), 1, 2, 3])).collect()
}

/// A caller of u0:`callee` with this many arguments, whatever the callee's signature.
fn caller(own: u32, callee: u32, arguments: usize) -> Member {
    let (types, values) = (vec!["i64"; arguments].join(", "), vec!["v0"; arguments].join(", "));
    let body = parse_one(&format!(
        "function u0:{own}(i64) -> i64 tail {{
    fn0 = u0:{callee}({types}) -> i64 tail
block0(v0: i64):
    v1 = call fn0({values})
    return v1
}}"
    ));
    Member { attributes: free(), body }
}

/// The verifier does not check that a function is called with its own signature. A mismatched call
/// keeps its behaviour: it passes no extra arguments to a body, and its callee stays the same.
#[test]
fn a_call_with_a_mismatched_signature_goes_to_a_thunk() {
    let mut functions: Vec<Member> = three_similar();
    functions.extend([caller(3, 2, 3), caller(4, 1, 2)]);
    let Applied { plan, kept } = check_unit(&unit(functions));
    let outcomes: Vec<_> = plan.entries().map(|(_, entry)| entry.reason()).collect();
    assert_eq!(outcomes[1..3], [Reason::Similar, Reason::ExternallyCalled]);
    let calls = |caller: u32| kept[&FunctionIndex::from_u32(caller)].to_string();
    assert!(calls(3).contains("call fn0(v0, v0, v0)"), "{}", calls(3));
    assert!(calls(4).contains("call fn0(v0, v0, v2)"), "{}", calls(4));
}

/// Signatures of one length: other types, another convention, an extension, another result.
#[test]
fn a_signature_of_equal_length_is_another_one() {
    const OWN: &str = "(i64, i64) -> i64 tail";
    for signature in [
        "(f64, i64) -> i64 tail",
        "(i64, i32) -> i64 tail",
        "(i64, i64) -> f64 tail",
        "(i64, i64) -> i64 system_v",
        "(i64, i64 vmctx) -> i64 tail",
        OWN,
    ] {
        let (types, result) = signature[1..].split_once(") -> ").expect("a signature");
        let types: Vec<&str> = types.split(", ").map(|ty| &ty[..3]).collect();
        let [first, second] = types[..] else { panic!("two parameters") };
        let caller = |own: u32, signature: &str, [first, second]: [&str; 2], result: &str| {
            let body = parse_one(&format!(
                "function u0:{own}({first}, {second}) -> {result} tail {{
    fn0 = u0:{}{signature}
block0(v0: {first}, v1: {second}):
    v2 = call fn0(v0, v1)
    return v2
}}",
                own - 3
            ));
            // They do not share a body themselves.
            let attributes = Attributes { identical_only: true, ..free() };
            Member { attributes, body }
        };
        let mut functions: Vec<Member> = three_similar();
        // The call with the right signature comes first, and must not be confused with the other.
        functions.push(caller(3, OWN, ["i64", "i64"], "i64"));
        functions.push(caller(4, signature, [first, second], &result[..3]));
        let Applied { plan, kept } = check_unit(&unit(functions));
        let externally_called = signature != OWN;
        let reason = |own: u32| plan.entry(FunctionIndex::from_u32(own)).reason();
        assert_eq!(
            reason(1) == Reason::ExternallyCalled,
            externally_called,
            "{signature}: {}",
            reason(1)
        );
        assert_eq!(plan.new_bodies().len(), 1);
        let text = kept[&FunctionIndex::from_u32(4)].to_string();
        assert_eq!(text.contains("call fn0(v0, v1)\n"), externally_called, "{text}");
    }
}

/// Calls with handlers can share an exception table, which contains the signature of the callee.
/// Once, adding extra arguments to one call changed the signature of another.
#[test]
fn a_call_that_passes_more_has_a_table_of_its_own() {
    let mut functions: Vec<Member> = three_similar();
    let mut body = parse_one(
        "function u0:3(i64) -> i64 tail {
    sig0 = (i64, i64) -> i64 tail
    fn0 = u0:1 sig0
    fn1 = u1:0 sig0
block0(v0: i64):
    brif v0, block1, block2
block1:
    try_call fn0(v0, v0), sig0, block3(ret0), [ default: block4(exn0) ]
block2:
    try_call fn1(v0, v0), sig0, block3(ret0), [ default: block4(exn0) ]
block3(v1: i64):
    return v1
block4(v2: i64):
    return v2
}",
    );
    let calls: Vec<_> = body.layout.blocks().collect();
    let calls = [1, 2].map(|at| body.layout.last_inst(calls[at]).expect("a call"));
    let tables = calls.map(|call| body.dfg.insts[call].exception_table().expect("a table"));
    if let InstructionData::TryCall { exception, .. } = &mut body.dfg.insts[calls[1]] {
        *exception = tables[0];
    }
    functions.push(Member { attributes: Attributes::default(), body });
    let Applied { plan, kept } = check_unit(&unit(functions));
    assert_eq!(plan.new_bodies().len(), 1);
    let caller = &kept[&FunctionIndex::from_u32(3)];
    let passed = calls.map(|call| {
        let table = caller.dfg.insts[call].exception_table().expect("a table");
        let signature = caller.dfg.exception_tables[table].signature();
        caller.dfg.signatures[signature].params.len()
    });
    assert_eq!(passed, [3, 2]);
}

/// The verifier does not check the signature of self-calls either.
#[test]
fn a_mismatched_self_call_goes_to_a_thunk() {
    for arguments in [1, 2, 3, 9] {
        let function = |own: u32| {
            let types = vec!["i64"; arguments].join(", ");
            let values = vec!["v0"; arguments].join(", ");
            let Member { body, attributes } = function(own, &[own.into(), 1, 2, 3]);
            let block = "block0(v0: i64, v1: i64):\n";
            let call = format!(
                "    fn0 = colocated u0:{own}({types}) -> i64 tail\n{block}    v100 = call fn0({values})\n"
            );
            Member { attributes, body: parse_one(&body.to_string().replace(block, &call)) }
        };
        let Applied { plan, .. } = check_unit(&unit((0..3).map(function).collect()));
        for (_, entry) in plan.entries().take(3) {
            // Then the function itself is an extra argument of the body.
            let own = |argument: &ExtraArgument| argument.symbol() == Some(entry.symbol());
            assert_eq!(entry.extra_arguments().iter().any(own), arguments != 2, "{arguments}");
            let thunk = matches!(entry.disposition(), Disposition::Thunk { .. });
            assert!(thunk || arguments == 2, "{arguments}");
        }
        assert_eq!(plan.new_bodies().len(), 1);
    }
}

/// An offset is added in the width of the address that it is added to, whatever the target: a unit
/// can be one for addresses of 32 bits, and offsets of the same number of bytes from addresses of
/// different widths are two parameters.
#[test]
fn offsets_have_the_width_of_the_address() {
    let flags = settings::Flags::new(settings::builder());
    let member = |own: u32, offset: i32| {
        let mut text = format!(
            "function u0:{own}(i32, i64) -> i32 fast {{\nblock0(v0: i32, v1: i64):\n    v2 = iconst.i32 3\n"
        );
        for at in 0..8 {
            let last = 2 + 3 * at;
            let (base, offset) = if at % 2 == 0 { ("v0", offset) } else { ("v1", offset) };
            let opcode = if at % 4 < 2 { "load.i32" } else { "uload8.i32" };
            text += &format!(
                "    v{} = {opcode} {base}{offset:+}\n    v{} = imul v{last}, v{}\n    v{} = iadd v{}, v{}\n    store v{}, {base}{offset:+}\n",
                last + 1,
                last + 2,
                last + 1,
                last + 3,
                last + 2,
                last + 1,
                last + 3,
            );
        }
        text += "    return v26\n}\n";
        Member { attributes: free(), body: parse_one(&text) }
    };
    for target in [Target::x86_64(), Target { pointer_type: Some(types::I32), ..Target::generic() }]
    {
        let mut unit = unit(vec![member(0, 16), member(1, 32), member(2, -48)]);
        unit.options.target = uniform(target);
        let plan = unit.plan();
        let [merged] = plan.new_bodies() else { panic!("{:?}", plan.similar_sets()) };
        verify_function(merged.body(), &flags).expect("valid");
        let argument = |ty, bits| ExtraArgument::Constant { ty, bits };
        let expected = [
            [argument(types::I32, 16), argument(types::I64, 16)],
            [argument(types::I32, 32), argument(types::I64, 32)],
            [argument(types::I32, u64::from(-48_i32 as u32)), argument(types::I64, -48_i64 as u64)],
        ];
        for ((_, entry), expected) in plan.entries().zip(expected) {
            assert_eq!(entry.extra_arguments(), expected);
        }
        let params = &merged.body().signature.params[2..];
        assert_eq!([params[0].value_type, params[1].value_type], [types::I32, types::I64]);
    }
}

/// Code of a kernel would destroy what the programs that it interrupts have in floating-point
/// registers.
#[test]
fn integer_registers_only_takes_no_floating_point_registers() {
    let member = |index: u32, constant: u32| {
        let mut text =
            format!("function u0:{index}(i64, i64, i64, i64, i64, i64, i64, i64) -> i64 tail {{\n");
        text += "block0(v0: i64, v1: i64, v2: i64, v3: i64, v4: i64, v5: i64, v6: i64, v7: i64):\n";
        text += &format!("    v8 = iconst.i64 {constant}\n");
        for last in 8..60 {
            text += &format!("    v{} = imul v{last}, v{}\n", last + 1, last % 8);
        }
        text += "    return v60\n}\n";
        Member { attributes: free(), body: parse_one(&text) }
    };
    for target in [Target::x86_64(), Target::aarch64(false)] {
        for integer_registers_only in [false, true] {
            let mut unit = unit(vec![member(0, 300), member(1, 400), member(2, 500)]);
            unit.options.target = target;
            unit.options.similar.integer_registers_only = integer_registers_only;
            let plan = unit.plan();
            let [merged] = plan.new_bodies() else { panic!("{:?}", plan.similar_sets()) };
            let extra = merged.body().signature.params[8].value_type;
            assert_eq!(extra, if integer_registers_only { types::I64 } else { types::F64 });
        }
    }
}

/// While it is made, a body calls itself by a symbol that is none of the unit's. Functions that
/// name that symbol share no body that would take it for its own, and call it as before. The
/// checker would refuse a body that calls itself there.
#[test]
fn the_symbol_of_a_body_without_a_symbol_is_no_callee() {
    let caller = |own: u32| {
        let steps: String =
            (4..30).map(|at| format!("    v{at} = imul v{0}, v{0}\n", at - 1)).collect();
        let body = parse_one(&format!(
            "function u0:{own}(i64) -> i64 tail {{
    fn0 = u4294967295:4294967295(i64) -> i64 tail
block0(v0: i64):
    v1 = iconst.i64 {own}
    v2 = iadd v0, v1
    v3 = call fn0(v2)
{steps}    return v29
}}"
        ));
        Member { attributes: free(), body }
    };
    let mut unit = unit((1..4).map(caller).collect());
    unit.options.prove = Prove::Always;
    let Applied { plan, kept } = check_unit(&unit);
    assert!(plan.proof().is_some_and(Result::is_ok), "{:?}", plan.proof());
    for func in kept.values() {
        assert!(func.to_string().contains("u4294967295:4294967295"), "{func}");
    }
}
