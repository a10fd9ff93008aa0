//! Where faults are planted in the library, and in the two modules of the test kit that must know
//! of them.
//!
//! `inject` inserts this code into a copy of the workspace. Which faults there are is said in
//! `faults/fault_injection/mod.rs`.

mod content;
mod frames;
mod incremental;
mod streaming;

use inject::{Hook, Put};

/// All hooks.
pub fn all() -> Vec<Hook> {
    [HOOKS, streaming::HOOKS, incremental::HOOKS, content::HOOKS, frames::HOOKS].concat()
}

/// Those of everything else than the modules above, in the order of their files.
const HOOKS: &[Hook] = &[
    // Another version, so that Cargo takes nothing that it compiles for one workspace for that of
    // the other.
    Hook {
        file: "Cargo.toml",
        at: &["version = \"0.1.0\""],
        put: Put::Instead("version = \"0.1.0-faults\""),
    },
    Hook {
        file: "Cargo.lock",
        at: &["name = \"clif-merge\"", "version = \"0.1.0\""],
        put: Put::Instead("name = \"clif-merge\"\nversion = \"0.1.0-faults\""),
    },
    Hook {
        file: "Cargo.lock",
        at: &["name = \"clif-unit\"", "version = \"0.1.0\""],
        put: Put::Instead("name = \"clif-unit\"\nversion = \"0.1.0-faults\""),
    },
    Hook {
        file: "Cargo.lock",
        at: &["name = \"cranelift-libcalls\"", "version = \"0.1.0\""],
        put: Put::Instead("name = \"cranelift-libcalls\"\nversion = \"0.1.0-faults\""),
    },
    Hook {
        file: "Cargo.lock",
        at: &["name = \"cranelift-mergefunc\"", "version = \"0.1.0\""],
        put: Put::Instead("name = \"cranelift-mergefunc\"\nversion = \"0.1.0-faults\""),
    },
    Hook {
        file: "Cargo.lock",
        at: &["name = \"cranelift-mergefunc-canonical\"", "version = \"0.1.0\""],
        put: Put::Instead("name = \"cranelift-mergefunc-canonical\"\nversion = \"0.1.0-faults\""),
    },
    Hook {
        file: "Cargo.lock",
        at: &["name = \"cranelift-mergefunc-checker\"", "version = \"0.1.0\""],
        put: Put::Instead("name = \"cranelift-mergefunc-checker\"\nversion = \"0.1.0-faults\""),
    },
    Hook {
        file: "Cargo.lock",
        at: &["name = \"cranelift-mergefunc-frames\"", "version = \"0.1.0\""],
        put: Put::Instead("name = \"cranelift-mergefunc-frames\"\nversion = \"0.1.0-faults\""),
    },
    Hook {
        file: "Cargo.lock",
        at: &["name = \"cranelift-mergefunc-module\"", "version = \"0.1.0\""],
        put: Put::Instead("name = \"cranelift-mergefunc-module\"\nversion = \"0.1.0-faults\""),
    },
    Hook {
        file: "Cargo.lock",
        at: &["name = \"cranelift-mergefunc-units\"", "version = \"0.1.0\""],
        put: Put::Instead("name = \"cranelift-mergefunc-units\"\nversion = \"0.1.0-faults\""),
    },
    Hook {
        file: "Cargo.lock",
        at: &["name = \"cranelift-size-model\"", "version = \"0.1.0\""],
        put: Put::Instead("name = \"cranelift-size-model\"\nversion = \"0.1.0-faults\""),
    },
    Hook {
        file: "Cargo.lock",
        at: &["name = \"cut-unit\"", "version = \"0.1.0\""],
        put: Put::Instead("name = \"cut-unit\"\nversion = \"0.1.0-faults\""),
    },
    Hook {
        file: "Cargo.lock",
        at: &["name = \"inject\"", "version = \"0.1.0\""],
        put: Put::Instead("name = \"inject\"\nversion = \"0.1.0-faults\""),
    },
    Hook {
        file: "Cargo.lock",
        at: &["name = \"fit-size-model\"", "version = \"0.1.0\""],
        put: Put::Instead("name = \"fit-size-model\"\nversion = \"0.1.0-faults\""),
    },
    Hook {
        file: "Cargo.lock",
        at: &["name = \"testkit\"", "version = \"0.1.0\""],
        put: Put::Instead("name = \"testkit\"\nversion = \"0.1.0-faults\""),
    },
    Hook {
        file: "Cargo.lock",
        at: &["name = \"wasm-input\"", "version = \"0.1.0\""],
        put: Put::Instead("name = \"wasm-input\"\nversion = \"0.1.0-faults\""),
    },
    // The program with a fault that its environment names, under a name of its own.
    Hook {
        file: "crates/clif-merge/Cargo.toml",
        at: &["publish = false"],
        put: Put::After(
            r#"autobins = false

[[bin]]
name = "clif-merge-faults"
path = "src/main.rs"
"#,
        ),
    },
    Hook {
        file: "crates/clif-merge/src/main.rs",
        at: &["fn run(command: Command) -> anyhow::Result<ExitCode> {"],
        put: Put::Instead(
            r#"fn run(command: Command) -> anyhow::Result<ExitCode> {
    use cranelift_mergefunc::fault_injection::{Fault, planted};
    let id = std::env::var("CLIF_MERGE_FAULT").unwrap_or_default();
    planted(Fault::ALL.iter().copied().find(|fault| fault.id() == id), || run_command(command))
}

fn run_command(command: Command) -> anyhow::Result<ExitCode> {"#,
        ),
    },
    // The faults in the example of an embedder without `cranelift-module`.
    Hook {
        file: "examples/raw.rs",
        at: &["fn main() -> Result<(), Box<dyn Error>> {"],
        put: Put::Instead(
            r#"fn main() -> Result<(), Box<dyn Error>> {
    use cranelift_mergefunc::fault_injection::{Fault, planted};
    let id = std::env::var("CLIF_MERGE_FAULT").unwrap_or_default();
    planted(Fault::ALL.iter().copied().find(|fault| fault.id() == id), run)
}

fn run() -> Result<(), Box<dyn Error>> {"#,
        ),
    },
    Hook {
        file: "examples/raw.rs",
        at: &[
            "let options = Options { target: Target::of(isa), aliases: true, ..Options::default() };",
        ],
        put: Put::After(
            "let options = Options { prove: cranelift_mergefunc::Prove::Never, ..options };",
        ),
    },
    // The checker would refuse what a fault merges.
    Hook {
        file: "crates/clif-merge/src/args.rs",
        at: &["options.merge_limit = self.merge_limit;"],
        put: Put::After("options.prove = cranelift_mergefunc::Prove::Never;"),
    },
    Hook {
        file: "src/lib.rs",
        at: &["#![no_std]"],
        put: Put::Instead(
            "#![allow(missing_docs, unused_imports, reason = \"a copy with faults\")]",
        ),
    },
    Hook {
        file: "src/lib.rs",
        at: &["pub mod explain;"],
        put: Put::After("pub mod fault_injection;"),
    },
    Hook {
        file: "src/lib.rs",
        at: &["#[cfg(feature = \"std\")]", "extern crate std;"],
        put: Put::Instead(""),
    },
    Hook { file: "src/lib.rs", at: &["#![deny(missing_docs)]"], put: Put::Instead("") },
    Hook {
        file: "src/apply/mod.rs",
        at: &["self.redirect(func, self.written(function, written))"],
        put: Put::Instead(
            r#"let changed = self.redirect(func, self.written(function, written));
crate::fault_injection::applied(func);
changed"#,
        ),
    },
    Hook {
        file: "src/apply/mod.rs",
        at: &["match self.function(symbol) {", "None => symbol,"],
        put: Put::Before(
            r#"if let Some(wrong) = crate::fault_injection::redirected(self, symbol, true) {
    return wrong;
}"#,
        ),
    },
    Hook {
        file: "src/parameterise/mod.rs",
        at: &["mod body;"],
        put: Put::Instead("pub(crate) mod body;"),
    },
    Hook {
        file: "src/apply/thunk.rs",
        at: &["let mut cursor = FuncCursor::new(&mut func);"],
        put: Put::Before(r#"crate::fault_injection::passed(&mut args);"#),
    },
    Hook {
        file: "src/canon/inst.rs",
        at: &["let record = Record::EMPTY.byte(opcode as u8).half(first);"],
        put: Put::Before(
            r#"let first = if crate::fault_injection::is(crate::fault_injection::Fault::ResultType) { 0 } else { first };"#,
        ),
    },
    Hook {
        file: "src/canon/inst.rs",
        at: &["self.length(entries.len())?;"],
        put: Put::Before(
            r#"let entries = if crate::fault_injection::is(crate::fault_injection::Fault::StackMap) { &[] } else { entries };"#,
        ),
    },
    Hook {
        file: "src/canon/mod.rs",
        at: &["out.clear();"],
        put: Put::Before(
            r#"let masked = crate::fault_injection::masked(func);
let (func, context) = (
    &*masked,
    &Context { key: if crate::fault_injection::is(crate::fault_injection::Fault::Key) { 0 } else { context.key }, ..*context },
);"#,
        ),
    },
    Hook {
        file: "src/canon/mod.rs",
        at: &["walk.value_labels()?;", "}"],
        put: Put::After(r#"crate::fault_injection::encoded(out);"#),
    },
    Hook {
        file: "src/congruence/summarise.rs",
        at: &["let pinned = own.pinned || self.observed.points_inside(symbol);"],
        put: Put::After(
            r#"let pinned = pinned && !crate::fault_injection::is(crate::fault_injection::Fault::Inside);"#,
        ),
    },
    Hook {
        file: "src/congruence/refine.rs",
        at: &["let incoming = incoming(partition, nodes, references);"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::NoRefinement) {
    return;
}"#,
        ),
    },
    Hook {
        file: "src/congruence/refine.rs",
        at: &["let mut edges: Vec<(u32, u32)> = Vec::new();"],
        put: Put::Before(r#"let is_waiting_at_first = waiting.len();"#),
    },
    Hook {
        file: "src/congruence/refine.rs",
        at: &["edges.clear();"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::OneRound) && splitter as usize >= is_waiting_at_first {
    continue;
}"#,
        ),
    },
    Hook {
        file: "src/canon/data.rs",
        at: &[
            "let DataObject { contents, relocations, section } = data;",
            "let mut hasher = Xxh3::new();",
        ],
        put: Put::Before(r#"let data = &*crate::fault_injection::masked_data(data);"#),
    },
    Hook {
        file: "src/canon/data.rs",
        at: &["out.clear();"],
        put: Put::Before(r#"let data = &*crate::fault_injection::masked_data(data);"#),
    },
    Hook {
        file: "src/extra_argument.rs",
        at: &["let mut sites: Vec<(Inst, &[ExtraArgument])> = Vec::new();"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::PassedNothing) {
    return;
}"#,
        ),
    },
    Hook {
        file: "src/canon/hash.rs",
        at: &["let hashes = encoding.key().map(xxh3_128);"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::ConstantHash) {
    return (0, StructuralHash(0));
}"#,
        ),
    },
    Hook {
        file: "crates/module/src/names.rs",
        at: &["used.extend(new.body().params.user_named_funcs().values().cloned());"],
        put: Put::Before(
            r#"if cranelift_mergefunc::fault_injection::is(cranelift_mergefunc::fault_injection::Fault::AddedBodyUnnamed) {
    continue;
}"#,
        ),
    },
    Hook {
        file: "crates/module/src/names.rs",
        at: &["Export => self.is_elf(),"],
        put: Put::Before(
            r#"Export if cranelift_mergefunc::fault_injection::is(cranelift_mergefunc::fault_injection::Fault::LocalNameForgotten) => false,"#,
        ),
    },
    Hook {
        file: "src/plan/mod.rs",
        at: &["arguments.map(|argument| argument.redirected(&address)).collect()"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::ThunkPassesBackwards) {
    return arguments.rev().map(|argument| argument.redirected(&address)).collect();
}"#,
        ),
    },
    Hook {
        file: "src/plan/mod.rs",
        at: &["match self.item_of(symbol) {"],
        put: Put::Before(
            r#"if let Some(wrong) = crate::fault_injection::redirected(self, symbol, false) {
    return wrong;
}"#,
        ),
    },
    Hook {
        file: "src/parameterise/body.rs",
        at: &["push_arguments(func, call, after, &passed);"],
        put: Put::Before(r#"let passed = crate::fault_injection::passed_on(func, call, &passed);"#),
    },
    Hook {
        file: "src/parameterise/as_written.rs",
        at: &["written.insert(callee, callee);"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::WrittenElsewhere) {
    let at = callees.iter().position(|&other| other == callee).unwrap();
    written.insert(callee, callees[(at + 1) % callees.len()]);
    continue;
}"#,
        ),
    },
    Hook {
        file: "src/parameterise/align/outline.rs",
        at: &["self.contents.extend_from_slice(&references[mark.references..ends[2]]);"],
        put: Put::Instead(
            r#"if !crate::fault_injection::is(crate::fault_injection::Fault::AlignedReferences) {
    self.contents.extend_from_slice(&references[mark.references..ends[2]]);
}"#,
        ),
    },
    Hook {
        file: "src/parameterise/workbench.rs",
        at: &["bodies += usize::from(is_body);"],
        put: Put::After(
            r#"let is_body = is_body
    && !crate::fault_injection::is(crate::fault_injection::Fault::BodyBecomesThunk);"#,
        ),
    },
    Hook {
        file: "src/parameterise/workbench.rs",
        at: &["self.keep_thunk(symbol);"],
        put: Put::Instead(
            r#"if !crate::fault_injection::is(crate::fault_injection::Fault::CalleeWithoutThunk) {
    self.keep_thunk(symbol);
}"#,
        ),
    },
    Hook {
        file: "src/parameterise/align/body.rs",
        at: &["cursor.ins().brif(selector, then, &[], otherwise, &[]);"],
        put: Put::Before(
            r#"let (then, otherwise) =
crate::fault_injection::exchanged(crate::fault_injection::Fault::ArmsExchanged, (then, otherwise));"#,
        ),
    },
    Hook {
        file: "src/parameterise/align/body.rs",
        at: &["let chosen = cursor.ins().select(selector, then, otherwise);"],
        put: Put::Before(
            r#"let (then, otherwise) =
crate::fault_injection::exchanged(crate::fault_injection::Fault::SelectExchanged, (then, otherwise));"#,
        ),
    },
    Hook {
        file: "src/parameterise/align/body.rs",
        at: &["let value = match from[side] {"],
        put: Put::Before(
            r#"let nothing = crate::fault_injection::is(crate::fault_injection::Fault::JoinWithoutValue);
let from = if nothing { &[None; 2] } else { from };"#,
        ),
    },
    Hook {
        file: "src/parameterise/align/body.rs",
        at: &["let held = without_can_move(body.dfg.mem_flags[flags]);"],
        put: Put::After(
            r#"let moves = crate::fault_injection::is(crate::fault_injection::Fault::ArmMovable);
let held = if moves { body.dfg.mem_flags[flags] } else { held };"#,
        ),
    },
    Hook {
        file: "src/parameterise/align/guards.rs",
        at: &["func.dfg.insts[inst].opcode() == Opcode::SelectSpectreGuard"],
        put: Put::Instead(
            r#"func.dfg.insts[inst].opcode() == Opcode::SelectSpectreGuard
&& !crate::fault_injection::is(crate::fault_injection::Fault::GuardInArm)"#,
        ),
    },
    Hook {
        file: "src/parameterise/dispatch.rs",
        at: &["let first_above = cursor.ins().iconst(ty, bound as i64);"],
        put: Put::Before(r#"let bound = crate::fault_injection::bound(bound);"#),
    },
    Hook {
        file: "src/parameterise/dispatch.rs",
        at: &["for entry in entries.unwrap_or_default() {"],
        put: Put::Before(r#"let entries = crate::fault_injection::stack_map(entries);"#),
    },
    Hook {
        file: "src/parameterise/judge/mod.rs",
        at: &["body::fold_branches(&mut body);"],
        put: Put::Before(
            r#"let (recursive, parameters) = crate::fault_injection::shared(recursive, parameters);"#,
        ),
    },
    Hook {
        file: "src/parameterise/accept.rs",
        at: &["let to = self.workbench.accept(&outcomes.members, symbol, body);"],
        put: Put::Before(
            r#"let mut outcomes = outcomes;
let all = outcomes.members.iter().map(|member| member.arguments.clone()).collect();
let all = crate::fault_injection::extra(all);
for (member, arguments) in outcomes.members.iter_mut().zip(all) {
    member.arguments = arguments;
}"#,
        ),
    },
    Hook {
        file: "src/signatures.rs",
        at: &["self.own.push((function, self.numbers.number(signature, Signature::clone)));"],
        put: Put::Before(r#"let signature = &*crate::fault_injection::signature(signature);"#),
    },
    Hook {
        file: "src/signatures.rs",
        at: &["self.referred.push((function, self.numbers.number(signature, Signature::clone)));"],
        put: Put::Before(r#"let signature = &*crate::fault_injection::signature(signature);"#),
    },
    Hook {
        file: "src/parameterise/table.rs",
        at: &["let number = *known.entry(cells).or_insert(parameters.len());"],
        put: Put::Before(r#"let cells = crate::fault_injection::cells(cells);"#),
    },
    Hook {
        file: "src/plan/symbols.rs",
        at: &["match linkage {"],
        put: Put::Before(
            r#"let address = address
    && !(by == ReplacedBy::ParameterisedBody
        && crate::fault_injection::is(crate::fault_injection::Fault::PassedAddressEliminated));"#,
        ),
    },
    Hook {
        file: "src/parameterise/value.rs",
        at: &["*direct = (*colocated || interposed) && !symbols.is_own(symbol);"],
        put: Put::Before(
            r#"let interposed = interposed && !crate::fault_injection::is(crate::fault_injection::Fault::InterposedCalleePassed);"#,
        ),
    },
    Hook {
        file: "src/target/thunk.rs",
        at: &["self.offset == 0"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::TableOffset) {
    return true;
}"#,
        ),
    },
    Hook {
        file: "src/target/registers.rs",
        at: &["self.floats.next().map(Register::Float)"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::NextFloat) {
    return self.floats.next().map(|register| Register::Float(register ^ 1));
}"#,
        ),
    },
    Hook {
        file: "src/pass.rs",
        at: &[
            "let (mut plan, known, mut record) = identical(summaries, cache, bodies, &options, end);",
        ],
        put: Put::Before(
            r#"let right = options;
let options = crate::fault_injection::unsupported(options);"#,
        ),
    },
    Hook {
        file: "src/pass.rs",
        at: &["let (plan, record) = decide(input, unit, beyond, Some(bodies), stats);"],
        put: Put::Before(r#"let unit = crate::fault_injection::overlooked(unit);"#),
    },
    Hook {
        file: "src/plan/change.rs",
        at: &["impl Outcome {"],
        put: Put::Before(
            r#"impl Plan {
    pub(crate) fn set_attributes(&mut self, function: FunctionIndex, attributes: Attributes) {
        self.functions[function].attributes = Arc::new(attributes);
    }
}
"#,
        ),
    },
    Hook {
        file: "src/pass.rs",
        at: &["let remember = match (cache, before) {"],
        put: Put::Before(
            r#"let plan = crate::fault_injection::planned(plan);
let options = right;"#,
        ),
    },
    Hook {
        file: "src/unit/mod.rs",
        at: &[
            "Resolved { call: call.then_some(node), address: address.then_some(node), inside: None }",
        ],
        put: Put::Before(
            r#"let (call, address) = crate::fault_injection::by_class(attributes, call, address);"#,
        ),
    },
    Hook {
        file: "crates/testkit/src/program.rs",
        at: &["Some(thunk(output.symbol, signature, extra_arguments, to, unit.options))"],
        put: Put::Before(
            r#"let to = plan.function(to).map_or(to, |to| {
    plan.entry(cranelift_mergefunc::fault_injection::jump(plan, to)).symbol()
});"#,
        ),
    },
    Hook {
        file: "crates/testkit/src/module/mod.rs",
        at: &["prove: Prove::default(),"],
        put: Put::Instead(
            r#"prove: match cranelift_mergefunc::fault_injection::is_any() {
    true => Prove::Never,
    false => Prove::default(),
},"#,
        ),
    },
];
