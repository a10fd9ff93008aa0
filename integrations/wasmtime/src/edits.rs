//! The insertions into the released crates, and the files that they get in addition.
//!
//! The lines of a hook stand in the release once; nothing else of its code is here.

use inject::{Hook, Put};
use std::path::Path;

/// A file that a crate has in addition.
pub struct Added {
    pub of: &'static str,
    pub path: &'static str,
    pub text: &'static str,
}

pub const ADDED: &[Added] = &[
    Added {
        of: "wasmtime",
        path: "src/compile/merging.rs",
        text: include_str!("../added/wasmtime_merging.rs"),
    },
    Added {
        of: "wasmtime-environ",
        path: "src/compile/merging.rs",
        text: include_str!("../added/environ_merging.rs"),
    },
    Added {
        of: "wasmtime-environ",
        path: "src/sharing.rs",
        text: include_str!("../added/environ_sharing.rs"),
    },
    Added {
        of: "wasmtime-internal-cranelift",
        path: "src/compiler/merge.rs",
        text: include_str!("../added/cranelift_merge.rs"),
    },
];

/// The dependencies of a crate on the library.
pub fn dependencies(of: &str, library: &Path) -> String {
    match of {
        "wasmtime-environ" => {
            let path = library.join("crates/frames");
            format!("\n[dependencies.cranelift-mergefunc-frames]\npath = {path:?}\n")
        }
        "wasmtime-internal-cranelift" => {
            format!(
                "\n[dependencies.cranelift-mergefunc]\npath = {library:?}\nfeatures = [\"parallel\", \"std\"]\n"
            )
        }
        _ => String::new(),
    }
}

/// Compares random modules without and with merging.
pub const DIFFERENTIAL: &str = include_str!("../added/differential.rs");

/// The package that builds the program. Its features are those by which the program's own source
/// says what it can do.
pub const PROGRAM: &str = r#"[package]
name = "wasmtime-with-merging"
version = "48.0.8"
edition = "2024"
publish = false

[workspace]

[[bin]]
name = "wasmtime"
path = "../wasmtime-cli/src/bin/wasmtime.rs"

[[bin]]
name = "differential"
path = "differential.rs"
required-features = ["differential"]

[features]
default = ["run", "compile", "wast", "settings"]
differential = ["dep:arbitrary", "dep:wasm-encoder", "dep:wasm-smith", "dep:wasmparser"]
run = ["wasmtime-cli/run"]
compile = ["wasmtime-cli/compile"]
wast = ["wasmtime-cli/wast"]
settings = []
config = []
explore = []
serve = []
completion = []
objdump = []
hot-blocks = []
wizer = []
cranelift = []
debug = []

[dependencies]
arbitrary = { version = "1.5", optional = true }
clap = { version = "4", features = ["derive"] }
wasm-encoder = { version = "0.254", features = ["wasmparser"], optional = true }
wasm-smith = { version = "0.254", optional = true }
wasmparser = { version = "0.254", optional = true }
wasmtime = "48"
wasmtime-cli = { path = "../wasmtime-cli", default-features = false, features = ["wat", "parallel-compilation", "pooling-allocator", "gc", "threads", "component-model", "addr2line", "demangle", "backtrace", "logging", "cranelift"] }

[patch.crates-io]
wasmtime = { path = "../wasmtime" }
wasmtime-cli-flags = { path = "../wasmtime-cli-flags" }
wasmtime-environ = { path = "../wasmtime-environ" }
wasmtime-internal-cranelift = { path = "../wasmtime-internal-cranelift" }

[profile.release]
debug = "line-tables-only"
"#;

pub const HOOKS: &[(&str, Hook)] = &[
    // The option.
    (
        "wasmtime-environ",
        Hook {
            file: "src/tunables.rs",
            at: &["pub inlining: Inlining,"],
            put: Put::After(
                "
        /// Whether functions that do the same share their code.
        pub function_merging: FunctionMerging,",
            ),
        },
    ),
    (
        "wasmtime-environ",
        Hook {
            file: "src/tunables.rs",
            at: &["inlining: Inlining::No,"],
            put: Put::After("            function_merging: FunctionMerging::Off,"),
        },
    ),
    (
        "wasmtime-environ",
        Hook {
            file: "src/tunables.rs",
            at: &["/// Inlining modes supported by Wasmtime."],
            put: Put::Before(
                r#"/// Which functions of a module share their code.
#[derive(Clone, Copy, Hash, Serialize, Deserialize, Debug, PartialEq, Eq)]
pub enum FunctionMerging {
    /// None.
    Off,
    /// Those that do the same.
    Identical,
    /// Those that do the same, and similar ones, as far as that saves a good part of their code.
    Balanced,
}
"#,
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/config.rs",
            at: &["pub use wasmtime_environ::Inlining;"],
            put: Put::After("pub use wasmtime_environ::FunctionMerging;"),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/config.rs",
            at: &["/// Returns the configured [`Config::compiler_inlining`] value."],
            put: Put::Before(
                "    /// Returns the configured [`Config::compiler_function_merging`] value.
    pub fn get_compiler_function_merging(&self) -> FunctionMerging {
        self.tunables().function_merging
    }
",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/config.rs",
            at: &["/// Whether to enable function inlining during compilation or not."],
            put: Put::Before(
                "    /// Whether functions of a module that do the same share their code.
    ///
    /// Code takes less memory then. A frame of a backtrace names one of the functions that share
    /// its code. Not with inlining or debugging, where this setting is ignored, and only by
    /// Cranelift.
    ///
    /// The default value for this is `FunctionMerging::Off`.
    pub fn compiler_function_merging(&mut self, merging: FunctionMerging) -> &mut Self {
        self.tunables.function_merging = Some(merging);
        self
    }
",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/engine/serialization.rs",
            at: &["inlining_sum_size_threshold,", "concurrency_support,"],
            put: Put::Before("            // Code that functions share is found by the table of the module.\n            function_merging: _,\n"),
        },
    ),
    (
        "wasmtime-cli-flags",
        Hook {
            file: "src/lib.rs",
            at: &["/// Whether or not trap metadata is present for wasm internal assertions"],
            put: Put::Before(
                r#"        /// Which functions of a module share their code.
        #[serde(default)]
        #[serde(deserialize_with = "crate::opt::deserialize_cli_parse_wrapper")]
        #[serde(serialize_with = "crate::opt::serialize_cli_parse_wrapper")]
        pub function_merging: Option<wasmtime::FunctionMerging>,
"#,
            ),
        },
    ),
    (
        "wasmtime-cli-flags",
        Hook {
            file: "src/lib.rs",
            at: &["if let Some(enable) = self.codegen.inlining {"],
            put: Put::Before(
                "        if let Some(merging) = self.codegen.function_merging {
            config.compiler_function_merging(merging);
        }",
            ),
        },
    ),
    (
        "wasmtime-cli-flags",
        Hook {
            file: "src/lib.rs",
            at: &["inlining: Some(engine.get_compiler_inlining()),"],
            put: Put::After(
                "                function_merging: Some(engine.get_compiler_function_merging()),",
            ),
        },
    ),
    (
        "wasmtime-cli-flags",
        Hook {
            file: "src/opt.rs",
            at: &["impl WasmtimeOptionValue for wasmtime::Inlining {"],
            put: Put::Before(
                r#"impl WasmtimeOptionValue for wasmtime::FunctionMerging {
    const VAL_HELP: &'static str = "[=off|identical|balanced]";
    fn parse(val: Option<&str>) -> Result<Self> {
        Ok(match val {
            Some("off") => Self::Off,
            Some("identical") => Self::Identical,
            None | Some("balanced") => Self::Balanced,
            Some(other) => bail!("unknown function merging: {other}"),
        })
    }

    fn display(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}
"#,
            ),
        },
    ),
    // Compiling.
    (
        "wasmtime-environ",
        Hook {
            file: "src/compile/mod.rs",
            at: &["mod module_types;"],
            put: Put::Before("mod merging;"),
        },
    ),
    (
        "wasmtime-environ",
        Hook {
            file: "src/compile/mod.rs",
            at: &["pub use self::module_types::*;"],
            put: Put::Before("pub use self::merging::*;"),
        },
    ),
    (
        "wasmtime-environ",
        Hook {
            file: "src/compile/mod.rs",
            at: &["/// Finish compiling the given function."],
            put: Put::Before(
                "    /// Merges the functions of a module or component, if that is configured.
    fn function_merger(&self) -> Option<Box<dyn FunctionMerger + '_>>;
",
            ),
        },
    ),
    (
        "wasmtime-environ",
        Hook {
            file: "src/lib.rs",
            at: &["mod scopevec;"],
            put: Put::After("mod sharing;"),
        },
    ),
    (
        "wasmtime-environ",
        Hook {
            file: "src/lib.rs",
            at: &["pub use crate::module_artifacts::*;"],
            put: Put::After("pub use crate::sharing::*;"),
        },
    ),
    (
        "wasmtime-internal-cranelift",
        Hook {
            file: "src/compiler.rs",
            at: &["pub(crate) mod component;"],
            put: Put::After("mod merge;"),
        },
    ),
    (
        "wasmtime-internal-cranelift",
        Hook {
            file: "src/compiler.rs",
            at: &["impl InliningCompiler for Compiler {"],
            put: Put::After(
                "    fn function_merger(&self) -> Option<Box<dyn wasmtime_environ::FunctionMerger + '_>> {
        let Tunables { function_merging, inlining, debug_native, debug_guest, .. } = self.tunables;
        let is_off = function_merging == wasmtime_environ::FunctionMerging::Off
            || inlining != wasmtime_environ::Inlining::No
            || debug_native
            || debug_guest;
        (!is_off).then(|| Box::new(merge::Merger::new(self, function_merging)) as _)
    }
",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &["mod stratify;"],
            put: Put::Before("mod merging;"),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &["type CompileInput<'a> = Box<dyn FnOnce(&dyn Compiler) -> Result<CompileOutput<'a>> + Send + 'a>;"],
            put: Put::Instead(
                "// An input can be compiled as often as needed: a function that comes to share its code is translated again.
type CompileInput<'a> =
    Box<dyn Fn(&dyn Compiler) -> Result<CompileOutput<'a>> + Send + Sync + 'a>;",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &["f: impl FnOnce(&dyn Compiler) -> Result<CompileOutput<'a>> + Send + 'a,"],
            put: Put::Instead(
                "        f: impl Fn(&dyn Compiler) -> Result<CompileOutput<'a>> + Send + Sync + 'a,",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &["inputs: Vec<CompileInput<'a>>,"],
            put: Put::After("    bodies: Vec<merging::Body<'a>>,"),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &[
                "let mut ret = CompileInputs { inputs: vec![] };",
                "",
                "let module_index = StaticModuleIndex::from_u32(0);",
            ],
            put: Put::Instead(
                "        let mut ret = CompileInputs { inputs: vec![], bodies: vec![] };

        let module_index = StaticModuleIndex::from_u32(0);",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &[
                "let mut ret = CompileInputs { inputs: vec![] };",
                "",
                "ret.collect_inputs_in_translations(types.module_types_builder(), module_translations);",
            ],
            put: Put::Instead(
                "        let mut ret = CompileInputs { inputs: vec![], bodies: vec![] };

        ret.collect_inputs_in_translations(types.module_types_builder(), module_translations);",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &["for (def_func_index, func_body_data) in functions {"],
            put: Put::After(
                "                let key = FuncKey::DefinedWasmFunction(module, def_func_index);
                let body = func_body_data.body.clone();
                self.bodies.push(merging::Body { input: self.inputs.len(), key, translation, body });",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &["let func_body = func_body_data.body.clone();"],
            put: Put::Before(
                "                    let func_body_data = merging::again(&func_body_data);",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &["let mut raw_outputs = if let Some(inlining_compiler) = compiler.inlining_compiler() {"],
            put: Put::Instead(
                "        let mut sharing = wasmtime_environ::Sharing::default();
        let mut raw_outputs = if let Some(inlining_compiler) = compiler.inlining_compiler() {
            if let Some(merger) = inlining_compiler.function_merger() {
                let compiled;
                (compiled, sharing) =
                    merging::compile(self, engine, compiler, inlining_compiler, merger)?;
                compiled
            } else",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &["Ok(UnlinkedCompileOutputs { outputs })"],
            put: Put::Instead("        Ok(UnlinkedCompileOutputs { outputs, sharing })"),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &["outputs: BTreeMap<FuncKey, CompileOutput<'a>>,"],
            put: Put::After(
                "    // The functions that share bodies.
    sharing: wasmtime_environ::Sharing,",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &["let mut needs_gc_heap = false;"],
            put: Put::After("        indices.sharing = self.sharing;"),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &["// The index of each compiled function in `compiled_funcs`."],
            put: Put::Before(
                "    // The functions that share bodies.
    sharing: wasmtime_environ::Sharing,
",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &["self.indices.get(&callee).copied().unwrap_or_else(|| {"],
            put: Put::Before(
                "                let callee = self.sharing.code_of(callee);",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &["let mut obj = wasmtime_environ::ObjectBuilder::new(obj, tunables);"],
            put: Put::Before("        table_builder.inner.sharing = self.sharing;"),
        },
    ),
    // Finding functions.
    (
        "wasmtime-environ",
        Hook {
            file: "src/module_artifacts.rs",
            at: &["inner: CompiledFunctionsTable,"],
            put: Put::Instead("    /// The functions that are built.\n    pub inner: CompiledFunctionsTable,"),
        },
    ),
    (
        "wasmtime-environ",
        Hook {
            file: "src/module_artifacts.rs",
            at: &["src_locs: TryPrimaryMap::new(),"],
            put: Put::After("                sharing: crate::Sharing::default(),"),
        },
    ),
    (
        "wasmtime-environ",
        Hook {
            file: "src/module_artifacts.rs",
            at: &["src_locs: TryPrimaryMap<SrcLocIndex, FilePos>,"],
            put: Put::After(
                "
    /// The functions that share bodies.
    pub sharing: crate::Sharing,",
            ),
        },
    ),
    (
        "wasmtime-environ",
        Hook {
            file: "src/module_artifacts.rs",
            at: &["let index = self.func_loc_index(key)?;"],
            put: Put::Before("        let key = self.sharing.code_of(key);"),
        },
    ),
    (
        "wasmtime-environ",
        Hook {
            file: "src/module_artifacts.rs",
            at: &["let index = self.src_loc_index(key)?;"],
            put: Put::Before(
                "        if let Some(shared) = self.sharing.get(key) {
            return Some(shared.src_loc);
        }",
            ),
        },
    ),
    (
        "wasmtime-environ",
        Hook {
            file: "src/module_artifacts.rs",
            at: &["pub fn func_by_text_offset(&self, text_offset: u32) -> Option<FuncKey> {"],
            put: Put::Instead(
                "    pub(crate) fn code_by_text_offset(&self, text_offset: u32) -> Option<FuncKey> {",
            ),
        },
    ),
    // Compiled code.
    (
        "wasmtime-internal-cranelift",
        Hook {
            file: "src/compiler.rs",
            at: &["debug_slot_descriptor: Option<FrameStateSlotBuilder>,"],
            put: Put::After(
                "    /// The original instructions whose source locations are numbers.
    sites: Option<cranelift_mergefunc::explain::Sites>,",
            ),
        },
    ),
    (
        "wasmtime-internal-cranelift",
        Hook {
            file: "src/compiler.rs",
            at: &["debug_slot_descriptor: None,"],
            put: Put::After("            sites: None,"),
        },
    ),
    (
        "wasmtime-internal-cranelift",
        Hook {
            file: "src/compiler.rs",
            at: &["if let Some((body, tunables)) = body_and_tunables {"],
            put: Put::Before("        compiled_function.sites = self.cx.sites.take();"),
        },
    ),
    (
        "wasmtime-internal-cranelift",
        Hook {
            file: "src/compiled_function.rs",
            at: &["name_map: PrimaryMap<ir::UserExternalNameRef, ir::UserExternalName>,", "/// The alignment for the compiled function."],
            put: Put::Instead(
                "    pub name_map: PrimaryMap<ir::UserExternalNameRef, ir::UserExternalName>,
    /// The original instructions whose source locations are numbers.
    pub sites: Option<cranelift_mergefunc::explain::Sites>,
    /// The alignment for the compiled function.",
            ),
        },
    ),
    (
        "wasmtime-internal-cranelift",
        Hook {
            file: "src/compiled_function.rs",
            at: &["metadata: Default::default(),"],
            put: Put::Before("            sites: None,"),
        },
    ),
    (
        "wasmtime-internal-cranelift",
        Hook {
            file: "src/compiled_function.rs",
            at: &[".map(|&MachSrcLoc { start, end, loc }| (loc, start, (end - start)));"],
            put: Put::Instead(
                "            .map(|&MachSrcLoc { start, end, loc }| {
                let sites = self.sites.as_ref();
                (sites.map_or(loc, |sites| sites.location(loc)), start, end - start)
            });",
            ),
        },
    ),
    // Backtraces.
    (
        "wasmtime",
        Hook {
            file: "src/runtime/vm/traphandlers/backtrace.rs",
            at: &["pub struct Backtrace(TryVec<Frame>);"],
            put: Put::Instead(
                "pub struct Backtrace(
    TryVec<Frame>,
    /// Where each frame returns to.
    TryVec<usize>,
);",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/vm/traphandlers/backtrace.rs",
            at: &["pub fn empty() -> Backtrace {", "Backtrace(TryVec::new())"],
            put: Put::Instead(
                "    pub fn empty() -> Backtrace {
        Backtrace(TryVec::new(), TryVec::new())",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/vm/traphandlers/backtrace.rs",
            at: &["None => Backtrace(TryVec::new()),"],
            put: Put::Instead(
                "            None => Backtrace::empty(),",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/vm/traphandlers/backtrace.rs",
            at: &["let mut frames = TryVec::new();"],
            put: Put::Instead(
                "        let (mut frames, mut callers) = (TryVec::<Frame>::new(), TryVec::new());",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/vm/traphandlers/backtrace.rs",
            at: &["|frame| match frames.push(frame) {"],
            put: Put::Instead(
                "                |frame| match callers
                    .push(unwind.get_next_older_pc_from_fp(frame.fp()))
                    .and_then(|()| frames.push(frame))
                {",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/vm/traphandlers/backtrace.rs",
            at: &["Backtrace(frames)"],
            put: Put::Instead(
                "        Backtrace(frames, callers)",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/vm/traphandlers/backtrace.rs",
            at: &["/// Iterate over the frames inside this backtrace."],
            put: Put::Before(
                "    /// Where each frame returns to: in the next one, or in the trampoline by which the host called.
    pub fn callers(&self) -> &[usize] {
        &self.1
    }
",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/module/registry.rs",
            at: &["/// An identifier of a module that has previously been inserted into a"],
            put: Put::Before(
                "/// Code, an offset into it, and whether a call returns there; and whether it is that of a frame.
type Place<'a> = (Option<(&'a CompiledFunctionsTable, u32, bool)>, bool);
",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/module/registry.rs",
            at: &["/// Fetches frame information about a program counter in a backtrace."],
            put: Put::Before(
                "    /// The functions to which each frame of a trace can belong that is of code that functions share, with the place of its
    /// instruction in the binary. Of the frames behind the first `most`, those are looked at that
    /// say something of them.
    pub(crate) fn functions_of_frames(
        &self,
        trace: &crate::runtime::vm::Backtrace,
        trap_pc: Option<usize>,
        most: usize,
    ) -> Vec<Vec<(FuncKey, wasmtime_environ::FilePos)>> {
        let place = |pc: usize, is_return: bool| {
            let (code, at) = self.loaded_code_by_pc(pc - usize::from(is_return))?;
            Some((&*code.index, at as u32, is_return))
        };
        let mut places = Vec::new();
        let mut frames = trace.frames().zip(trace.callers()).peekable();
        while let Some((frame, &caller)) = frames.next() {
            let at = place(frame.pc(), Some(frame.pc()) != trap_pc);
            places.push((at, true));
            if frames.peek().is_none_or(|(next, _)| next.pc() != caller) {
                // The host called. The trampoline is no frame, and says which function that was.
                places.push((place(caller, true), false));
            }
            if places.len() > 2 * most && !at.is_some_and(|(index, at, _)| index.is_shared(at)) {
                break;
            }
        }
        let follows = |(a, is_frame): &Place<'_>, (b, _): &Place<'_>| match (a, b) {
            (Some((a, ..)), Some((b, ..))) => *is_frame && core::ptr::eq(*a, *b),
            _ => false,
        };
        let mut found = Vec::new();
        for run in places.chunk_by(follows) {
            let stack = run.iter().filter_map(|(at, _)| *at);
            let stack: Vec<_> = stack.map(|(_, at, is_return)| (at + u32::from(is_return), is_return)).collect();
            let of = run[0].0.map_or(vec![Vec::new()], |(index, ..)| index.functions_of_frames(&stack));
            found.extend(of.into_iter().zip(run).filter(|(_, (_, is_frame))| *is_frame).map(|(of, _)| of));
        }
        found
    }
",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/module/registry.rs",
            at: &["pc: usize,", ") -> Option<(FrameInfo, ModuleWithCode<'a>)> {"],
            put: Put::Instead(
                "        pc: usize,
        functions: &[(FuncKey, wasmtime_environ::FilePos)],
    ) -> Option<(FrameInfo, ModuleWithCode<'a>)> {",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/module/registry.rs",
            at: &["let info = FrameInfo::new(module.clone(), text_offset)?;"],
            put: Put::Instead(
                "        let info = FrameInfo::new(module.clone(), text_offset, functions)?;",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/trap.rs",
            at: &["for frame in runtime_trace.frames() {"],
            put: Put::Instead(
                "        let modules = store.modules();
        let functions = modules.functions_of_frames(&runtime_trace, trap_pc, max_frames.get());
        let mut functions = functions.iter();
        for frame in runtime_trace.frames() {
            let functions = functions.next().map_or(&[][..], |functions| functions);",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/trap.rs",
            at: &["if let Some((info, module)) = store.modules().lookup_frame_info(pc_to_lookup) {"],
            put: Put::Instead(
                "            if let Some((info, module)) = modules.lookup_frame_info(pc_to_lookup, functions) {",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/trap.rs",
            at: &[
                "let write_raw_func_name = |f: &mut fmt::Formatter<'_>| {",
                "demangle_function_name_or_index(f, frame.func_name(), frame.func_index() as usize)",
                "};",
            ],
            put: Put::Instead(
                "            let write_raw_func_name = |f: &mut fmt::Formatter<'_>| {
                let name = |f: &mut fmt::Formatter<'_>, frame: &FrameInfo| {
                    demangle_function_name_or_index(f, frame.func_name(), frame.func_index() as usize)
                };
                name(f, frame)?;
                let others = frame.merged_with();
                for (at, other) in others.iter().take(3).enumerate() {
                    f.write_str([\" (or \", \", \"][at.min(1)])?;
                    name(f, other)?;
                }
                match others.len() {
                    0 => Ok(()),
                    1..=3 => f.write_str(\")\"),
                    more => write!(f, \", or {} others)\", more - 3),
                }
            };",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/trap.rs",
            at: &["symbols: Vec<FrameSymbol>,"],
            put: Put::After("    is_shared: bool,\n    merged_with: Vec<FrameInfo>,"),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/trap.rs",
            at: &["pub(crate) fn new(module: Module, text_offset: usize) -> Option<FrameInfo> {"],
            put: Put::Instead(
                "    ///
    /// Where several functions have the code, these are those to which the frame can belong.
    pub(crate) fn new(
        module: Module,
        text_offset: usize,
        functions: &[(FuncKey, FilePos)],
    ) -> Option<FrameInfo> {",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/trap.rs",
            at: &["let func_start = compiled_module.func_start_srcloc(key);", "let instr =", "wasmtime_environ::lookup_file_pos(module.engine_code().address_map_data(), text_offset);"],
            put: Put::Instead(
                "        let instr =
            wasmtime_environ::lookup_file_pos(module.engine_code().address_map_data(), text_offset);
        let (key, instr) = functions.first().map_or((key, instr), |&(key, at)| (key, Some(at)));
        let func_start = compiled_module.func_start_srcloc(key);
        let (_, index) = key.unwrap_defined_wasm_function();
        let others = functions.iter().skip(1);
        let other = |other: &(_, _)| FrameInfo::new(module.clone(), text_offset, &[*other]);
        let merged_with = others.filter_map(other).collect();",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/trap.rs",
            at: &["instr,", "func_start,", "symbols,", "})"],
            put: Put::Instead(
                "            instr,
            func_start,
            symbols,
            is_shared: !functions.is_empty(),
            merged_with,
        })",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/trap.rs",
            at: &["/// Returns the debug symbols found, if any, for this function frame."],
            put: Put::Before(
                "    /// The other functions to which this frame can belong.
    ///
    /// These are functions that share their code, if
    /// [`Config::compiler_function_merging`](crate::Config::compiler_function_merging) asks for
    /// that, and of which the callers do not say which was called: calls through a table are on the
    /// stack.
    pub fn merged_with(&self) -> &[FrameInfo] {
        &self.merged_with
    }

    /// Whether several functions have the code of this frame.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }
",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/profiling.rs",
            at: &["let start = compiled.finished_function_ranges().next()?.1.start;"],
            put: Put::Instead(
                "                    let starts = compiled.finished_function_ranges().map(|it| it.1.start);
                    let start = starts.min()?;",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/profiling.rs",
            at: &["let end = compiled.finished_function_ranges().last()?.1.end;"],
            put: Put::Instead(
                "                    let ends = compiled.finished_function_ranges().map(|it| it.1.end);
                    let end = ends.max()?;",
            ),
        },
    ),
];
