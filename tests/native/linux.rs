//! ELF: x86-64 and aarch64, as executables of every kind and as shared libraries. The host is
//! assumed to be x86-64; aarch64 runs in an emulator.

use crate::c::{Identity, Printed, compare, program};
use crate::cases::{Case, cases};
use crate::unit::{Build, bare, merged};
use std::sync::OnceLock;
use testkit::tools::{Kind, Toolchain, Workshop, need};

/// Everything that is linked, made once.
struct Unit {
    cases: Vec<Case>,
    workshop: Workshop,
    tools: Toolchain,
}

fn unit(tools: Toolchain) -> Unit {
    let Toolchain { triple, gcc, .. } = tools;
    let x86_64 = triple.starts_with("x86_64");
    let cases = cases(x86_64);
    let workshop = Workshop::new(triple);
    let plain = Build { triple, pic: true, unwind_info: false, per_function_section: false };
    // Cranelift's unwind information has absolute addresses, which only a program at a fixed
    // address can have.
    let unwinds = Build { unwind_info: true, ..plain };
    let sections = Build { per_function_section: true, ..unwinds };
    for (name, build) in [("plain", plain), ("unwinds", unwinds), ("sections", sections)] {
        let (object, stats) = merged(&cases, build);
        assert!(stats.thunks > 0 && stats.aliases > 0 && stats.redirects > 0, "{stats:?}");
        workshop.write(&format!("{name}.o"), object);
    }
    println!("{triple}: {} cases", cases.len());
    workshop.write("bare.o", bare(&cases, plain));
    workshop.write("bare_unwinds.o", bare(&cases, unwinds));
    need("ld.bfd");
    for (name, shared) in [("outside", true), ("inside", false)] {
        let source = format!("{name}.c");
        workshop.write(&source, program(&cases, shared));
        let object = format!("{name}.o");
        workshop.run(gcc, &["-O1", "-fPIE", "-w", "-c", &source, "-o", &object]);
    }
    Unit { cases, workshop, tools }
}

fn x86_64() -> &'static Unit {
    static UNIT: OnceLock<Unit> = OnceLock::new();
    UNIT.get_or_init(|| unit(Toolchain::x86_64()))
}

fn aarch64() -> &'static Unit {
    static UNIT: OnceLock<Unit> = OnceLock::new();
    UNIT.get_or_init(|| unit(Toolchain::aarch64()))
}

impl Unit {
    /// Links one of the objects and runs the program.
    #[track_caller]
    fn linked(&self, object: &str, kind: Kind, flags: &[&str]) -> Printed {
        let name = format!("{object}{}{}", kind as u8, flags.concat()).replace(['/', ',', '='], "");
        // Warnings of linkers are about guesses that they had to make.
        let flags = [flags, &["-Wl,--fatal-warnings"]].concat();
        let main = if kind == Kind::Shared { "outside.o" } else { "inside.o" };
        let objects = [&*format!("{object}.o")];
        let Unit { workshop, tools, .. } = self;
        let printed = workshop.link_and_run(tools, (kind, &name), main, &objects, &flags);
        Printed::of(&printed.unwrap_or_else(|error| panic!("{error}")))
    }

    /// The results of the unit without merging.
    fn before(&self, kind: Kind) -> &'static Printed {
        static BEFORE: [OnceLock<Printed>; 6] = [const { OnceLock::new() }; 6];
        let index = 3 * usize::from(self.tools.gcc != "gcc") + kind as usize;
        BEFORE[index].get_or_init(|| {
            // Where C interposes a function, the unwind information of that function refers to
            // another section, which GNU ld does not accept. (Merged, the function has none.)
            let before = match kind {
                Kind::Static => {
                    // A cross compiler does not look for it everywhere.
                    let directory = format!("-B{}", need("ld.lld").display());
                    self.linked("bare_unwinds", kind, &[LLD, &directory])
                }
                Kind::Pie | Kind::Shared => self.linked("bare", kind, &[]),
            };
            // The comparison can only detect lost frames if unwinding works without merging.
            assert_eq!(before.lost == "lost 0", kind == Kind::Static, "unwinding works");
            let shared = kind == Kind::Shared;
            let mut results: Vec<&str> = Vec::new();
            for (index, line) in before.results.iter().enumerate() {
                let (_, result) = line.split_once(' ').expect("results");
                results.push(result);
                let is_in_c = self.cases[index / 2].is_in_c(index % 2, shared);
                assert_eq!(result.starts_with("1000000 "), is_in_c, "{line}");
            }
            results.sort_unstable();
            results.dedup();
            assert!(results.len() > self.cases.len() * 8 / 10, "{} results", results.len());
            before
        })
    }

    #[track_caller]
    fn check(&self, object: &str, kind: Kind, flags: &[&str], identity: Identity) {
        let after = self.linked(object, kind, flags);
        compare(&self.cases, kind == Kind::Shared, self.before(kind), &after, identity);
    }
}

const GNU: &str = "-fuse-ld=bfd";
const LLD: &str = "-fuse-ld=lld";
const GC: &str = "-Wl,--gc-sections";

#[test]
fn gnu_ld_links_a_position_independent_program() {
    x86_64().check("plain", Kind::Pie, &[GNU], Identity::Kept);
}

/// GNU ld refuses a program in which two functions claim unwind information for one place.
#[test]
fn gnu_ld_links_a_static_program_that_unwinds() {
    x86_64().check("unwinds", Kind::Static, &[GNU], Identity::Kept);
}

#[test]
fn gnu_ld_links_a_shared_library() {
    x86_64().check("plain", Kind::Shared, &[GNU], Identity::Kept);
}

#[test]
fn gnu_ld_drops_unused_sections_only() {
    x86_64().check("sections", Kind::Static, &[GNU, GC], Identity::Kept);
}

/// Each function was merged into those before it, before later functions were known.

#[test]
fn lld_links_a_position_independent_program() {
    need("ld.lld");
    x86_64().check("plain", Kind::Pie, &[LLD], Identity::Kept);
}

#[test]
fn lld_links_a_static_program_that_unwinds() {
    need("ld.lld");
    x86_64().check("unwinds", Kind::Static, &[LLD], Identity::Kept);
}

#[test]
fn lld_links_a_shared_library() {
    need("ld.lld");
    x86_64().check("plain", Kind::Shared, &[LLD], Identity::Kept);
}

#[test]
fn lld_drops_unused_sections_only() {
    need("ld.lld");
    x86_64().check("sections", Kind::Static, &[LLD, GC], Identity::Kept);
}

#[test]
fn lld_folds_what_is_merged() {
    need("ld.lld");
    x86_64().check("sections", Kind::Static, &[LLD, "-Wl,--icf=all"], Identity::Folded);
}

#[test]
fn aarch64_runs_a_static_program_that_unwinds() {
    aarch64().check("unwinds", Kind::Static, &[], Identity::Kept);
    aarch64().check("sections", Kind::Static, &[GC], Identity::Kept);
}

#[test]
fn aarch64_runs_a_position_independent_program() {
    aarch64().check("plain", Kind::Pie, &[], Identity::Kept);
}

#[test]
fn aarch64_runs_a_shared_library() {
    aarch64().check("plain", Kind::Shared, &[], Identity::Kept);
}
