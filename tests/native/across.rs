//! The unit as two objects, each with one function of each pair: linkers must keep one copy of the
//! code that both have, and the program must do what it does without merging, frames that are found
//! on the stack included.

use crate::c::{Identity, Printed, compare, program};
use crate::cases::{Case, cases};
use crate::unit::{Build, bare, content_addressed, one_function};
use object::{BinaryFormat, Object, ObjectSection, ObjectSymbol};
use std::collections::{BTreeMap, BTreeSet};
use testkit::tools::{Kind, Toolchain, Workshop, need};

/// The content-addressed symbols of an object or image that it defines, and their addresses.
fn contents(file: &[u8]) -> BTreeMap<String, u64> {
    let file = object::File::parse(file).expect("an object or image");
    let mut found = BTreeMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.is_definition()) {
        let name = symbol.name().expect("a name").trim_start_matches('_').to_owned();
        if name.starts_with("content.") {
            found.insert(name, symbol.address());
        }
    }
    found
}

/// The bytes of code.
fn code(image: &[u8]) -> u64 {
    let file = object::File::parse(image).expect("an image");
    let name = if file.format() == BinaryFormat::MachO { "__text" } else { ".text" };
    file.section_by_name(name).expect("code").size()
}

/// The code of a symbol of an object, up to where its section ends, with what it refers to by name.
fn code_of(file: &[u8], name: &str) -> (Vec<u8>, Vec<String>) {
    let file = object::File::parse(file).expect("an object");
    let is_it = |symbol: &object::Symbol<'_, '_>| {
        symbol.is_definition() && symbol.name().is_ok_and(|own| own.trim_start_matches('_') == name)
    };
    let symbol = file.symbols().find(is_it).expect("a symbol");
    let section = symbol.section_index().expect("a definition");
    let section = file.section_by_index(section).expect("a section");
    let start = symbol.address() - section.address();
    // In Mach-O, all are in one section.
    let mut starts: Vec<u64> = file
        .symbols()
        .filter(|other| other.section_index() == Some(section.index()))
        .map(|other| other.address() - section.address())
        .filter(|&other| other > start)
        .collect();
    starts.push(section.size());
    let end = starts.into_iter().min().expect("an end");
    let mut data = section.data().expect("code")[start as usize..end as usize].to_vec();
    // Padding is of the section.
    while data.last() == Some(&0) {
        data.pop();
    }
    let inside = section.relocations().filter(|(at, _)| (start..end).contains(at));
    let relocations = inside.map(|(at, relocation)| {
        let target = match relocation.target() {
            object::RelocationTarget::Symbol(symbol) => {
                file.symbol_by_index(symbol).and_then(|symbol| symbol.name()).expect("a name")
            }
            other => panic!("{name} refers to {other:?}"),
        };
        let (at, kind, addend) = (at - start, relocation.flags(), relocation.addend());
        format!("{at:#x} {kind:?} {target} {addend}")
    });
    (data, relocations.collect())
}

/// The two objects, and what both have. Equal digests must have equal code, since linkers keep any.
fn objects(cases: &[Case], build: Build) -> ([Vec<u8>; 2], BTreeSet<String>) {
    let objects = [0, 1].map(|which| content_addressed(cases, build, which));
    let [first, second] = [0, 1].map(|at| contents(&objects[at]));
    let both: BTreeSet<String> =
        first.into_keys().filter(|name| second.contains_key(name)).collect();
    for name in &both {
        let [first, second] = objects.each_ref().map(|object| code_of(object, name));
        assert_eq!(first, second, "{name} on {}", build.triple);
    }
    (objects, both)
}

/// Links and runs the two objects by a linker, and compares.
fn check(tools: Toolchain) {
    let triple = tools.triple;
    let cases = cases(triple.starts_with("x86_64"));
    let workshop = Workshop::new("two-objects");
    let plain = Build { triple, pic: true, unwind_info: false, per_function_section: false };
    let unwinds = Build { unwind_info: true, ..plain };
    for (name, shared) in [("outside", true), ("inside", false)] {
        let source = format!("{name}.c");
        workshop.write(&source, program(&cases, shared));
        let output = format!("{name}.o");
        workshop.run(tools.gcc, &["-O1", "-fPIE", "-w", "-c", &source, "-o", &output]);
    }
    // A cross compiler does not look for it everywhere.
    let directory = format!("-B{}", need("ld.lld").display());
    let lld = ["-fuse-ld=lld", &*directory];
    let linkers = [&["-fuse-ld=bfd"][..], &lld];
    need("ld.bfd");
    for (name, build) in [("plain", plain), ("unwinds", unwinds)] {
        workshop.write(&format!("{name}.o"), bare(&cases, build));
        let (objects, both) = objects(&cases, build);
        // All pairs of local functions, and the larger ones of others.
        assert!(both.len() > 30, "{} bodies are in both", both.len());
        for (at, object) in objects.into_iter().enumerate() {
            workshop.write(&format!("{name}{at}.o"), object);
        }
        let kinds = match build.unwind_info {
            true => &[Kind::Static][..],
            false => &[Kind::Pie, Kind::Shared],
        };
        for &kind in kinds {
            let shared = kind == Kind::Shared;
            let main = if shared { "outside.o" } else { "inside.o" };
            let run = |program: &str, objects: &[&str], flags: &[&str]| {
                let flags = [flags, &["-Wl,--fatal-warnings"]].concat();
                let printed = workshop.link_and_run(&tools, (kind, program), main, objects, &flags);
                let printed = printed.unwrap_or_else(|error| panic!("{program}: {error}"));
                let file = if shared { format!("lib{program}.so") } else { program.to_owned() };
                let image = std::fs::read(workshop.path(&file)).expect("an image");
                (Printed::of(&printed), image)
            };
            // GNU ld refuses the bare object where C interposes a function that has unwind
            // information.
            let (before, alone) = run("bare", &[&format!("{name}.o")], &lld);
            assert_eq!(before.lost == "lost 0", build.unwind_info, "unwinding works");
            for linker in linkers {
                for more in [&[][..], &["-Wl,--gc-sections"]] {
                    let flags = [linker, more].concat();
                    let files = [0, 1].map(|at| format!("{name}{at}.o"));
                    let (after, image) = run("two", &files.each_ref().map(|file| &**file), &flags);
                    compare(&cases, shared, &before, &after, Identity::Several);
                    let kept = contents(&image);
                    let missing = both.iter().filter(|name| !kept.contains_key(*name)).count();
                    assert_eq!(missing, 0, "{linker:?} {more:?}");
                    let (own, bare) = (code(&image), code(&alone));
                    assert!(own < bare, "{triple} {linker:?} {kind:?}: {own} bytes, not {bare}");
                }
            }
        }
    }
}

/// An unwind table of a copy that was left out would be a second one for the same code, which GNU
/// ld refuses.
#[test]
fn two_objects_with_equal_functions_are_one_program_on_x86_64() {
    check(Toolchain::x86_64());
}

#[test]
fn two_objects_with_equal_functions_are_one_program_on_aarch64() {
    check(Toolchain::aarch64());
}

/// A library of the objects, which cannot be run here: every symbol that others see must be there,
/// and code only once.
fn links(triple: &'static str, link: impl Fn(&Workshop, &[Case], &[String]) -> String) {
    need("lld");
    let pic = !triple.contains("windows");
    let build = Build { triple, pic, unwind_info: false, per_function_section: true };
    let cases = cases(triple.starts_with("x86_64"));
    let workshop = Workshop::new(triple);
    let (objects, both) = objects(&cases, build);
    assert!(both.len() > 30, "{} bodies are in both", both.len());
    let one = |name: &str, objects: &[&[u8]]| {
        let mut files = Vec::new();
        for (at, object) in objects.iter().enumerate() {
            files.push(format!("{name}{at}.o"));
            workshop.write(&files[at], object);
        }
        let image = link(&workshop, &cases, &files);
        std::fs::read(workshop.path(&image)).expect("an image")
    };
    let alone = one("bare", &[&bare(&cases, build)]);
    let image = one("two", &[&objects[0], &objects[1]]);
    let names = |image: &[u8]| -> Vec<Vec<u8>> {
        let file = object::File::parse(image).expect("an image");
        let exports = file.exports().expect("exports").into_iter();
        let names = exports.map(|export| export.name().to_vec());
        let mut names: Vec<Vec<u8>> = names.filter(|name| !is_content(name)).collect();
        names.sort();
        names
    };
    assert!(names(&alone).len() > 30);
    assert_eq!(names(&alone), names(&image), "the same exports");
    // COFF images have no symbols.
    if pic {
        let kept = contents(&image);
        assert!(both.iter().all(|name| kept.contains_key(name)), "{} are kept", kept.len());
    }
    let (own, bare) = (code(&image), code(&alone));
    assert!(own < bare, "{triple}: {own} bytes, not {bare}");
}

fn is_content(name: &[u8]) -> bool {
    name.trim_ascii_start().starts_with(b"_content.") || name.starts_with(b"content.")
}

fn links_mach_o(triple: &'static str, architecture: &str) {
    links(triple, |workshop, _, files| {
        let version = ["-platform_version", "macos", "11.0.0", "11.0.0"];
        let flavor = ["-flavor", "darwin", "-arch", architecture, "-dylib", "-o", "image"];
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let imports = ["-undefined", "dynamic_lookup"];
        workshop.run("lld", &[&flavor[..], &version, &imports, &files].concat());
        "image".to_owned()
    });
}

#[test]
fn two_objects_for_mach_o_have_one_copy_on_x86_64() {
    links_mach_o("x86_64-apple-darwin", "x86_64");
}

#[test]
fn two_objects_for_mach_o_have_one_copy_on_arm64() {
    links_mach_o("aarch64-apple-darwin", "arm64");
}

#[test]
fn two_objects_for_coff_have_one_copy() {
    let triple = "x86_64-pc-windows-msvc";
    links(triple, |workshop, cases, files| {
        let build = Build { triple, pic: false, unwind_info: false, per_function_section: false };
        let mut options =
            String::from("/dll\n/noentry\n/nodefaultlib\n/machine:x64\ncallback.obj\nmemcpy.obj\n");
        for import in ["callback", "memcpy"] {
            workshop.write(&format!("{import}.obj"), one_function(build, import));
        }
        for case in cases {
            for which in 0..2 {
                if case.linkages[which] == cranelift_module::Linkage::Export {
                    options += &format!("/export:{}\n", case.name(which));
                }
            }
        }
        workshop.write("options", options);
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let arguments = ["-flavor", "link", "@options", "/out:image"];
        workshop.run("lld", &[&arguments[..], &files].concat());
        "image".to_owned()
    });
}
