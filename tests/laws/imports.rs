//! Laws of the layout: no cycle of imports among the modules of the library, a checker that sees
//! only what it checks, a budget of lines for each module, and bounds of fields and parameters.
//!
//! A module is a file or a folder of `src/`. Its imports are read from its paths that begin with
//! `crate::`, tests and documentation left out. `cargo test --test laws imports -- --nocapture`
//! draws the modules as floors: each imports only floors below its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::Visit;

type Imports = BTreeMap<String, BTreeSet<String>>;

/// The code of a file without comments, and without the tests at its end.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests").next().expect("splitting gives a first part");
    let is_text =
        |line: &str| ["//", "#[cfg_attr", "#[doc"].iter().any(|start| line.starts_with(start));
    let lines = code.lines().filter(|line| !is_text(line.trim_start()));
    lines.collect::<Vec<_>>().join("\n")
}

/// The modules that code names by paths from the root of the crate. Names at the root itself, which
/// has no floor, and grouped imports from it are under the name `crate`.
fn imported(code: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let paths = code.split("crate::").skip(1);
    let starts = paths.map(|path| path.split(|c| !is_name(c)).next().unwrap_or_default());
    starts
        .map(|name| if modules.contains(name) { name.to_owned() } else { "crate".to_owned() })
        .collect()
}

/// The Rust files below a directory, with their texts.
fn rust_files(root: &Path) -> Vec<(PathBuf, String)> {
    let mut left = vec![root.to_owned()];
    let mut files = Vec::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("is readable");
            left.extend(entries.map(|entry| entry.expect("is readable").path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("is text");
            files.push((path, text));
        }
    }
    files.sort_unstable();
    files
}

/// The files of the library, each with its module.
fn files() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = rust_files(&root).into_iter().map(|(path, text)| {
        let inside = path.strip_prefix(&root).expect("is below the root");
        let first = inside.iter().next().expect("is not the root").to_str().expect("is text");
        (first.strip_suffix(".rs").unwrap_or(first).to_owned(), text)
    });
    files.collect()
}

/// The imports of each module of the library.
fn imports() -> Imports {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for (module, text) in files().into_iter().filter(|(module, _)| module != "lib") {
        *texts.entry(module).or_default() += &code(&text);
    }
    let modules: BTreeSet<String> = texts.keys().cloned().collect();
    let imports = texts.iter().map(|(module, code)| {
        let mut imports = imported(code, &modules);
        imports.remove(module);
        (module.clone(), imports)
    });
    imports.collect()
}

/// The modules as floors, the lowest first: each imports only floors below its own. `Err` has the
/// modules of cycles, and those above them.
fn floors(imports: &Imports) -> Result<Vec<Vec<&str>>, Vec<&str>> {
    let mut floors: Vec<Vec<&str>> = Vec::new();
    let mut built: BTreeSet<&str> = BTreeSet::new();
    while built.len() < imports.len() {
        let left = imports.iter().filter(|(module, _)| !built.contains(module.as_str()));
        let floor = left
            .clone()
            .filter(|(_, imports)| imports.iter().all(|module| built.contains(module.as_str())));
        let floor: Vec<&str> = floor.map(|(module, _)| module.as_str()).collect();
        if floor.is_empty() {
            return Err(left.map(|(module, _)| module.as_str()).collect());
        }
        built.extend(&floor);
        floors.push(floor);
    }
    Ok(floors)
}

#[test]
fn modules_import_only_floors_below_their_own() {
    let imports = imports();
    for (module, imports) in &imports {
        assert!(!imports.contains("crate"), "{module} imports from the root");
    }
    let floors = floors(&imports).expect("modules without a cycle of imports");
    for floor in floors.iter().rev() {
        for module in floor {
            let imports: Vec<&str> = imports[*module].iter().map(String::as_str).collect();
            println!("{module:>15} -> {}", imports.join(", "));
        }
        println!();
    }
}

#[test]
fn a_cycle_of_imports_is_found() {
    let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let imports: Imports =
        [("a", set(&["b"])), ("b", set(&["c"])), ("c", set(&["b"])), ("d", set(&[]))]
            .map(|(name, imports)| (name.to_owned(), imports))
            .into();
    assert_eq!(floors(&imports), Err(vec!["a", "b", "c"]));
    let modules = imports.keys().cloned().collect();
    let text = "use crate::a::X;\n// crate::b\nlet x = crate::c::y();\n#[cfg(test)]\nmod tests { use crate::d; }";
    assert_eq!(imported(&code(text), &modules), set(&["a", "c"]));
}

#[test]
fn the_checker_sees_plans_and_ids_only() {
    let allowed = ["extra_argument", "options", "plan", "unit"].map(str::to_owned);
    assert_eq!(imports()["checker"], BTreeSet::from(allowed));
}

/// Lines of each module, comments and tests included, at most. A module that needs more first makes
/// room: budgets are lowered when something is deleted, and raised with a reason. All are a
/// hundredth higher since comments are as narrow as code, and public items link to an example.
const BUDGETS: [(&str, usize); 28] = [
    // Functions are finished for back ends that compile functions only. Callers that are not added
    // are rewritten.
    ("apply", 570),
    ("canon", 2560),
    // Which instruction of a body runs for which.
    ("checker", 1280),
    ("congruence", 1480),
    ("content", 770),
    ("copy", 180),
    // The symbols of one function leave their table, and enter another one.
    // Whom code calls that is not added.
    ("corpus", 570),
    ("decide", 740),
    // To which function a frame belongs: instructions, frames, and a table of them; whom code calls
    // by its relocations, where functions are not numbered; bodies are related on all threads.
    ("explain", 1480),
    ("extra_argument", 250),
    ("incremental", 880),
    ("internals", 140),
    // Values are taken out, so that memory is kept from function to function.
    ("interner", 100),
    ("ir", 150),
    ("layout", 570),
    ("lib", 250),
    ("lists", 110),
    // The options of back ends that compile functions only.
    ("options", 350),
    // The record of a function to find those that it resembles, when its IR is gone. How many
    // instructions calls execute. Pairs that do not pay, as near misses.
    ("parameterise", 7810),
    ("pass", 350),
    // Whose code each function has, and how thunks call.
    ("plan", 1670),
    ("prove", 100),
    ("signatures", 60),
    // Copies, scans and outlines are counted.
    ("stats", 120),
    // Functions are read on any thread, and compiled code may be replaced, which is proved. The
    // reading for backtraces. New bodies get symbols that nothing else has. Plans on all threads.
    ("streaming", 930),
    ("target", 1100),
    ("threads", 120),
    // Fresh symbols.
    ("unit", 880),
];

#[test]
fn modules_keep_to_their_budgets_of_lines() {
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for (module, text) in files() {
        *lines.entry(module).or_default() += text.lines().count();
    }
    let budgets = BTreeMap::from(BUDGETS);
    for (module, &lines) in &lines {
        let budget = budgets.get(module.as_str()).copied().unwrap_or_default();
        assert!(lines <= budget, "{module} has {lines} lines of {budget}");
    }
    assert_eq!(lines.len(), budgets.len(), "budgets of modules that are gone");
}

/// The modules of subjects count as one name each.
#[test]
fn few_names_are_at_the_root() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs"));
    let text = text.expect("is text");
    let mut names = 0;
    for item in text.split("\npub ").skip(1) {
        let item = item.split(';').next().unwrap_or_default();
        names += match item.split_once('{') {
            Some((start, list)) if start.starts_with("use") => list
                .split('}')
                .next()
                .unwrap_or("")
                .split(',')
                .filter(|it| !it.trim().is_empty())
                .count(),
            _ => 1,
        };
    }
    assert!((30..=50).contains(&names), "{names} names");
}

/// Structs with more fields, and functions with more parameters besides `self`, are hard to hold in
/// mind.
const MAX_FIELDS: usize = 12;
const MAX_PARAMETERS: usize = 6;

/// The names of structs and functions beyond the bounds.
#[derive(Default)]
struct TooMany(Vec<String>);

impl<'ast> Visit<'ast> for TooMany {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if item.fields.len() > MAX_FIELDS {
            self.0.push(format!("{}: {} fields", item.ident, item.fields.len()));
        }
        syn::visit::visit_item_struct(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        let inputs = signature.inputs.iter();
        let typed = inputs.filter(|input| matches!(input, syn::FnArg::Typed(_))).count();
        if typed > MAX_PARAMETERS {
            self.0.push(format!("{}: {typed} parameters", signature.ident));
        }
        syn::visit::visit_signature(self, signature);
    }
}

#[test]
fn structs_have_few_fields_and_functions_few_parameters() {
    let mut found = TooMany::default();
    let fields: String = (0..=MAX_FIELDS).map(|at| format!("f{at}: u8,")).collect();
    let parameters: String = (0..=MAX_PARAMETERS).map(|at| format!("p{at}: u8,")).collect();
    let text = format!("struct S {{ {fields} }} impl S {{ fn f(&self, {parameters}) {{}} }}");
    found.visit_file(&syn::parse_file(&text).expect("is Rust"));
    assert_eq!(found.0, ["S: 13 fields", "f: 7 parameters"]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (path, text) in [rust_files(&root.join("src")), rust_files(&root.join("crates"))].concat() {
        let mut found = TooMany::default();
        found.visit_file(&syn::parse_file(&text).expect("is Rust"));
        assert!(found.0.is_empty(), "{}: {:?}", path.display(), found.0);
    }
}
