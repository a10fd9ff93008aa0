//! What is inserted where into the released crates, and the files that they get in addition.
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
        of: "wasmtime-internal-cranelift",
        path: "src/compiler/merge.rs",
        text: include_str!("../added/cranelift_merge.rs"),
    },
];

/// The dependency on the library.
pub fn dependency(library: &Path) -> String {
    format!("\n[dependencies.cranelift-mergefunc]\npath = {:?}\nfeatures = [\"std\"]\n", library)
}

/// Compares random modules without and with merging.
pub const DIFFERENTIAL: &str = include_str!("../added/differential.rs");

/// The package that builds the program. Its features are those by which the program's own source says what it can do.
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

impl FromStr for FunctionMerging {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "off" => Ok(Self::Off),
            "identical" => Ok(Self::Identical),
            "balanced" => Ok(Self::Balanced),
            _ => bail!("invalid function merging `{s}`, only off,identical,balanced accepted"),
        }
    }
}

impl fmt::Display for FunctionMerging {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            FunctionMerging::Off => "off",
            FunctionMerging::Identical => "identical",
            FunctionMerging::Balanced => "balanced",
        })
    }
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
    /// Code takes less memory then. A frame of a backtrace names one of the functions that share its code. Not with
    /// inlining or debugging, where this setting is ignored, and only by Cranelift.
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
        val.map_or(Ok(wasmtime::FunctionMerging::Balanced), str::parse)
    }

    fn display(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
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
                "    /// What merges the functions of a module or component, if that is configured.
    fn function_merger(&self) -> Option<Box<dyn FunctionMerger + '_>>;
",
            ),
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
                "        let mut shared = Vec::new();
        let mut raw_outputs = if let Some(inlining_compiler) = compiler.inlining_compiler() {
            if let Some(merger) = inlining_compiler.function_merger() {
                let (compiled, sharing) =
                    merging::compile(self, engine, compiler, inlining_compiler, merger)?;
                shared = sharing;
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
            put: Put::Instead("        Ok(UnlinkedCompileOutputs { outputs, shared })"),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &["outputs: BTreeMap<FuncKey, CompileOutput<'a>>,"],
            put: Put::After(
                "    // The functions that share code with others, with where each starts in the binary.
    shared: Vec<(wasmtime_environ::Shared, FilePos)>,",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &["let mut needs_gc_heap = false;"],
            put: Put::After("        indices.shared = self.shared;"),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &["// The index of each compiled function in `compiled_funcs`."],
            put: Put::Before(
                "    // The functions that share code with others.
    shared: Vec<(wasmtime_environ::Shared, FilePos)>,
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
                "                let callee = match self.indices.contains_key(&callee) {
                    true => callee,
                    false => merging::code_of(&self.shared, callee),
                };",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/compile.rs",
            at: &["let mut obj = wasmtime_environ::ObjectBuilder::new(obj, tunables);"],
            put: Put::Before("        table_builder.share(&self.shared);"),
        },
    ),
    // Finding functions.
    (
        "wasmtime-environ",
        Hook {
            file: "src/module_artifacts.rs",
            at: &["src_locs: TryPrimaryMap::new(),"],
            put: Put::After("                shared: Vec::new(),"),
        },
    ),
    (
        "wasmtime-environ",
        Hook {
            file: "src/module_artifacts.rs",
            at: &["src_locs: TryPrimaryMap<SrcLocIndex, FilePos>,"],
            put: Put::After(
                "
    /// The functions that share code with others, ascending.
    shared: Vec<SharedFunction>,",
            ),
        },
    ),
    (
        "wasmtime-environ",
        Hook {
            file: "src/module_artifacts.rs",
            at: &["/// Finish construction of the `CompiledFunctionsTable`."],
            put: Put::Before(
                "    /// Adds functions that share code with others, ascending, each with where it starts in the binary.
    #[cfg(feature = \"compile\")]
    pub fn share(&mut self, shared: &[(crate::Shared, FilePos)]) {
        let raw = FuncKey::into_raw_parts;
        self.inner.shared.extend(shared.iter().map(|(shared, src_loc)| SharedFunction {
            key: raw(shared.key),
            code: raw(shared.code),
            body: raw(shared.body),
            src_loc: *src_loc,
        }));
    }
",
            ),
        },
    ),
    (
        "wasmtime-environ",
        Hook {
            file: "src/module_artifacts.rs",
            at: &["impl CompiledFunctionsTable {"],
            put: Put::Before(
                "/// A function that shares code with others, by the raw parts of keys.
#[derive(Debug, Serialize, Deserialize)]
struct SharedFunction {
    key: (u32, u32),
    /// Where it has its code.
    code: (u32, u32),
    /// Whose body runs.
    body: (u32, u32),
    src_loc: FilePos,
}

impl CompiledFunctionsTable {
    fn shared(&self, key: FuncKey) -> Option<&SharedFunction> {
        let at = self.shared.binary_search_by_key(&key.into_raw_parts(), |it| it.key).ok()?;
        Some(&self.shared[at])
    }

    /// The functions that have the body of this one, besides the one that it was made for.
    pub fn sharing(&self, key: FuncKey) -> impl Iterator<Item = FuncKey> + '_ {
        let body = self.shared(key).map_or(key.into_raw_parts(), |it| it.body);
        let sharing = self.shared.iter().filter(move |it| it.body == body);
        sharing.map(|it| FuncKey::from_raw_parts(it.key.0, it.key.1))
    }

    /// A function that has the body of a key that is none of a function of the module.
    fn owner(&self, key: FuncKey) -> FuncKey {
        match self.src_loc(key) {
            Some(_) => key,
            None => self.sharing(key).next().unwrap_or(key),
        }
    }

    /// Of the functions that have the body of this one, the one to which an instruction belongs by its place in the binary.
    pub fn func_of_instruction(&self, key: FuncKey, instruction: FilePos) -> FuncKey {
        let start = |key: &FuncKey| self.src_loc(*key).and_then(FilePos::file_offset);
        let all = self.sharing(key).chain([key]);
        let before = all.filter(|key| start(key) <= instruction.file_offset());
        before.max_by_key(start).unwrap_or(key)
    }
}
",
            ),
        },
    ),
    (
        "wasmtime-environ",
        Hook {
            file: "src/module_artifacts.rs",
            at: &["let index = self.func_loc_index(key)?;"],
            put: Put::Before(
                "        if let Some(shared) = self.shared(key).filter(|it| it.code != it.key) {
            return self.func_loc(FuncKey::from_raw_parts(shared.code.0, shared.code.1));
        }",
            ),
        },
    ),
    (
        "wasmtime-environ",
        Hook {
            file: "src/module_artifacts.rs",
            at: &["let index = self.src_loc_index(key)?;"],
            put: Put::Before(
                "        if let Some(shared) = self.shared(key) {
            return Some(shared.src_loc);
        }",
            ),
        },
    ),
    (
        "wasmtime-environ",
        Hook {
            file: "src/module_artifacts.rs",
            at: &["Some(key)"],
            put: Put::Instead("        Some(self.owner(key))"),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/instantiate.rs",
            at: &["/// Gets the function location information for a given function index."],
            put: Put::Before(
                "    /// Of the functions that share code with this one, the one to which an instruction belongs.
    pub fn func_of_instruction(&self, index: DefinedFuncIndex, instr: FilePos) -> DefinedFuncIndex {
        let key = FuncKey::DefinedWasmFunction(self.module_index(), index);
        let (_, index) = self.index.func_of_instruction(key, instr).unwrap_defined_wasm_function();
        index
    }
",
            ),
        },
    ),
    (
        "wasmtime",
        Hook {
            file: "src/runtime/trap.rs",
            at: &["let index = compiled_module.func_by_text_offset(text_offset)?;"],
            put: Put::After(
                "        let index = match wasmtime_environ::lookup_file_pos(
            module.engine_code().address_map_data(),
            text_offset,
        ) {
            Some(instr) => compiled_module.func_of_instruction(index, instr),
            None => index,
        };",
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
