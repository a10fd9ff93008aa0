//! Laws of the layout: no cycle of imports among the modules of the library, and a checker that sees only what it
//! checks.
//!
//! A module is a file or a folder of `src/`. What it imports is read from its paths that begin with `crate::`, tests
//! and documentation left out. `cargo test --test laws imports -- --nocapture` draws the modules as floors: each
//! imports only floors below its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

type Imports = BTreeMap<String, BTreeSet<String>>;

/// The code of a file without comments, and without the tests at its end.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests").next().expect("splitting gives a first part");
    let is_text =
        |line: &str| ["//", "#[cfg_attr", "#[doc"].iter().any(|start| line.starts_with(start));
    let lines = code.lines().filter(|line| !is_text(line.trim_start()));
    lines.collect::<Vec<_>>().join("\n")
}

/// The modules that code names by paths from the root of the crate. Names at the root itself, which has no floor,
/// and grouped imports from it are under the name `crate`.
fn imported(code: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let paths = code.split("crate::").skip(1);
    let starts = paths.map(|path| path.split(|c| !is_name(c)).next().unwrap_or_default());
    starts
        .map(|name| if modules.contains(name) { name.to_owned() } else { "crate".to_owned() })
        .collect()
}

/// What each module of the library imports.
fn imports() -> Imports {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![root.clone()];
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    while let Some(path) = files.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("is readable");
            files.extend(entries.map(|entry| entry.expect("is readable").path()));
            continue;
        }
        let inside = path.strip_prefix(&root).expect("is below the root");
        let first = inside.iter().next().expect("is not the root").to_str().expect("is text");
        let module = first.strip_suffix(".rs").unwrap_or(first);
        if module != "lib" {
            let text = std::fs::read_to_string(&path).expect("is text");
            *texts.entry(module.to_owned()).or_default() += &code(&text);
        }
    }
    let modules: BTreeSet<String> = texts.keys().cloned().collect();
    let imports = texts.iter().map(|(module, code)| {
        let mut imports = imported(code, &modules);
        imports.remove(module);
        (module.clone(), imports)
    });
    imports.collect()
}

/// The modules as floors, the lowest first: each imports only floors below its own. `Err` has the modules of cycles,
/// and those above them.
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
    let allowed = ["extra_argument", "options", "plan", "target", "unit"].map(str::to_owned);
    assert_eq!(imports()["checker"], BTreeSet::from(allowed));
}
