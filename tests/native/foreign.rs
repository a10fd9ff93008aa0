//! Mach-O and COFF: these programs cannot be run here, but linkers must accept the objects, and the
//! addresses of the exported symbols must be those that the table requires.

use crate::cases::{Case, cases};
use crate::unit::{Build, bare, merged, one_function};
use cranelift_module::Linkage;
use object::Object;
use std::collections::BTreeMap;
use testkit::tools::{Workshop, need};

/// Cases that are visible from the outside: both functions are exported.
fn exported(cases: &[Case]) -> Vec<&Case> {
    cases.iter().filter(|case| case.linkages == [Linkage::Export; 2]).collect()
}

/// Checks the addresses of exported symbols: one where the table says so, two elsewhere, and code
/// at each of them.
#[track_caller]
fn check(cases: &[Case], image: &[u8], prefix: &str) {
    let file = object::File::parse(image).expect("an image");
    let exports: BTreeMap<String, u64> = file
        .exports()
        .expect("exports")
        .into_iter()
        .map(|export| (String::from_utf8_lossy(export.name()).into_owned(), export.address()))
        .collect();
    let mut checked = 0;
    for case in exported(cases) {
        let [f, g] = [0, 1].map(|which| {
            let name = format!("{prefix}{}", case.name(which));
            *exports.get(&name).unwrap_or_else(|| panic!("{name}: {}", case.describe()))
        });
        assert_eq!(f == g, case.shares_its_address(), "{}", case.describe());
        checked += 1;
    }
    assert!(checked > 10, "{checked} cases");
}

const COFF: Build = Build {
    triple: "x86_64-pc-windows-msvc",
    // There is no table of addresses that would allow position independence.
    pic: false,
    unwind_info: false,
    per_function_section: false,
};

fn mach_o(triple: &'static str) -> Build {
    Build { triple, pic: true, ..COFF }
}

fn links_mach_o(triple: &'static str, architecture: &str) {
    need("lld");
    let cases = cases(architecture == "x86_64");
    let workshop = Workshop::new(triple);
    let link = |object: &[u8], name: &str| {
        let object_name = format!("{name}.o");
        workshop.write(&object_name, object);
        let version = ["-platform_version", "macos", "11.0.0", "11.0.0"];
        let imports = ["-undefined", "dynamic_lookup"];
        let files = ["-dylib", &object_name, "-o", name];
        let arguments =
            [&["-flavor", "darwin", "-arch", architecture][..], &version, &imports, &files];
        workshop.run("lld", &arguments.concat());
        std::fs::read(workshop.path(name)).expect("a library")
    };
    // A refusal of the linker without merging would have nothing to do with merging.
    link(&bare(&cases, mach_o(triple)), "bare.dylib");
    check(&cases, &link(&merged(&cases, mach_o(triple)).0, "merged.dylib"), "_");
}

#[test]
fn mach_o_for_x86_64_links_and_aliases_are_at_one_address() {
    links_mach_o("x86_64-apple-darwin", "x86_64");
}

#[test]
fn mach_o_for_arm64_links_and_aliases_are_at_one_address() {
    links_mach_o("aarch64-apple-darwin", "arm64");
}

#[test]
fn coff_links_and_aliases_are_at_one_address() {
    need("lld");
    let cases = cases(true);
    let workshop = Workshop::new(COFF.triple);
    // The imports of the unit.
    for import in ["callback", "memcpy"] {
        workshop.write(&format!("{import}.obj"), one_function(COFF, import));
    }
    let mut options =
        String::from("/dll\n/noentry\n/nodefaultlib\n/machine:x64\ncallback.obj\nmemcpy.obj\n");
    for case in exported(&cases) {
        for which in 0..2 {
            options += &format!("/export:{}\n", case.name(which));
        }
    }
    workshop.write("options", options);
    let link = |object: &[u8], name: &str| {
        let object_name = format!("{name}.obj");
        workshop.write(&object_name, object);
        let out = format!("/out:{name}");
        workshop.run("lld", &["-flavor", "link", "@options", &object_name, &out]);
        std::fs::read(workshop.path(name)).expect("a library")
    };
    link(&bare(&cases, COFF), "bare.dll");
    check(&cases, &link(&merged(&cases, COFF).0, "merged.dll"), "");
}
