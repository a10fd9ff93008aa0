//! Laws: sizes of native code are predicted, so that nothing is compiled to decide what is merged.

use cranelift_codegen::Context;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_mergefunc::thunk::{CallThunks, call_thunk};
use cranelift_mergefunc::{
    Bodies, ExtraArgument, FunctionIndex, Merger, Options, Policy, Similar, Target,
    cranelift_codegen,
};
use testkit::generate::function::Profile;
use testkit::generate::opcodes::Machine;
use testkit::generate::unit::GeneratedUnit;
use testkit::isa;
use testkit::support::{Rng, free, parse_one};

/// Functions, and symbols for new bodies.
struct Held {
    functions: Vec<Function>,
    fresh: u32,
}

impl Bodies for Held {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        self.functions.body(function)
    }

    fn fresh_symbol(&mut self, _: &[FunctionIndex]) -> Option<UserExternalName> {
        self.fresh += 1;
        Some(UserExternalName::new(1, self.fresh))
    }
}

fn function(own: u32) -> Function {
    let step = "    v2 = imul v0, v1\n".to_owned();
    let steps: String = (3..20).map(|at| format!("    v{at} = imul v{}, v1\n", at - 1)).collect();
    parse_one(&format!(
        "function u0:{own}(i64) -> i64 tail {{\nblock0(v0: i64):\n    v1 = iconst.i64 {own}\n{step}{steps}    return v19\n}}"
    ))
}

/// Nothing but the model of the target says what pays.
#[test]
fn similar_functions_are_merged_where_the_target_has_a_model() {
    let known = [Target::x86_64(), Target::aarch64(false), Target::x86_64().in_jit()];
    for target in known.into_iter().chain([Target::generic()]) {
        for policy in [Policy::Off, Policy::Balanced, Policy::Size] {
            let similar = Similar { policy, ..Similar::default() };
            let options = Options { target, similar, ..Options::default() };
            let mut bodies = Held { functions: (2..6).map(function).collect(), fresh: 0 };
            let mut merger = Merger::new(options);
            for (own, func) in (2..).zip(&bodies.functions) {
                merger.add(UserExternalName::new(0, own), func, free()).expect("is well-formed");
            }
            let plan = merger.plan(&mut bodies);
            let merged = if policy == Policy::Off || target == Target::generic() { 0 } else { 4 };
            assert_eq!(plan.stats().similar.merged, merged, "{policy:?}, {target:?}");
        }
    }
}

/// The size of a function, compiled and predicted; `None` if one of both cannot be determined.
fn sizes(name: &'static str, func: &Function) -> Option<[f64; 2]> {
    let settings =
        [("opt_level", "speed"), ("preserve_frame_pointers", "true"), ("is_pic", "true")];
    let isa = isa::of(name, &settings);
    let target = match name {
        "x86_64" => Target::x86_64(),
        _ => Target::aarch64(false),
    };
    let mut context = Context::for_function(func.clone());
    let compiled = context.compile(&*isa, &mut Default::default()).ok()?.code_info().total_size;
    let predicted = target.size_model?.predict(func)?;
    Some([compiled, predicted].map(f64::from))
}

/// The median error of a prediction in percent.
fn median(sizes: &[[f64; 2]]) -> f64 {
    let error = |[compiled, predicted]: &[f64; 2]| 100.0 * (predicted - compiled).abs() / compiled;
    let mut errors: Vec<f64> = sizes.iter().map(error).collect();
    errors.sort_by(f64::total_cmp);
    errors[errors.len() / 2]
}

/// The weights are those of this version of Cranelift: random functions, which the weights were not
/// fitted on, take what is predicted. They are harder to predict than the functions of programs.
#[test]
fn random_functions_take_what_is_predicted() {
    for (name, machine) in [("x86_64", Machine::X86_64), ("aarch64", Machine::Aarch64)] {
        let mut all = Vec::new();
        for seed in 1_000_000..1_000_040 {
            let bytes = Rng::new(seed).bytes(8192);
            let profile = Profile::runnable(machine);
            let unit =
                GeneratedUnit::draw(&mut arbitrary::Unstructured::new(&bytes), &profile).unit;
            all.extend(unit.functions.iter().filter_map(|member| sizes(name, &member.body)));
        }
        let bytes = |at: usize| all.iter().map(|sizes| sizes[at]).sum::<f64>();
        let bias = 100.0 * (bytes(1) - bytes(0)) / bytes(0);
        let median = median(&all);
        assert!(all.len() > 200, "{name}: {}", all.len());
        assert!(median < 25.0 && bias.abs() < 15.0, "{name}: {median:.1}% {bias:+.1}%");
    }
}

/// Thunks decide what merging costs, so they are predicted to the byte or nearly so, where
/// arguments are in registers.
#[test]
fn thunks_take_what_is_predicted() {
    let target = parse_one(
        "function u0:0(i64, i32) -> i64 fast {\nblock0(v0: i64, v1: i32):\n    return v0\n}",
    );
    let constant = |ty, bits| ExtraArgument::Constant { ty, bits };
    let (word, long) = (cranelift_codegen::ir::types::I32, cranelift_codegen::ir::types::I64);
    let near = ExtraArgument::Address {
        ty: long,
        symbol: UserExternalName::new(0, 7),
        offset: 0,
        colocated: true,
    };
    let lists = [
        vec![],
        vec![constant(word, 0)],
        vec![constant(word, 77)],
        vec![constant(long, 0x1_2345_6789_abcd)],
        vec![near.clone()],
        vec![constant(word, 3), near, constant(long, 0xffff_ffff_ffff_fff0)],
    ];
    for name in ["x86_64", "aarch64"] {
        for list in &lists {
            let options = CallThunks { tail_calls: false, colocated: true };
            let to = UserExternalName::new(0, 1);
            let thunk = call_thunk(target.name.clone(), &target.signature, list, &to, &options);
            let [compiled, predicted] = sizes(name, &thunk).expect("is predicted");
            assert!((compiled - predicted).abs() <= 2.0, "{name} {list:?}: {compiled} {predicted}");
        }
    }
}

/// Whether back ends can compile a body with types that they support in part is not known without
/// compiling it.
#[test]
fn functions_with_rare_types_are_not_predicted() {
    for (ty, known) in [
        ("i128", true),
        ("f64", true),
        ("i32x4", true),
        ("i8x4", false),
        ("f16", false),
        ("f128", false),
    ] {
        let func = parse_one(&format!(
            "function u0:0({ty}) -> {ty} fast {{\nblock0(v0: {ty}):\n    return v0\n}}"
        ));
        for target in [Target::x86_64(), Target::aarch64(false)] {
            let predicted = target.size_model.expect("is one").predict(&func);
            assert_eq!(predicted.is_some(), known, "{ty}");
        }
    }
}
