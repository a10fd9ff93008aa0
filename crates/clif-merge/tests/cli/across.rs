//! Merging across units: the objects of a program that was cut into units share bodies, and the
//! linked program prints what it prints without merging, whatever the sharing map says.

use crate::program::{run, text_of};
use clif_unit::sources::Source;
use cranelift_mergefunc::internals::fixed_hash;
use cranelift_mergefunc::units::{FileAt, Group, Outputs, SetDecision, Summaries, combine};
use cut_unit::{By, cut};
use object::{Object as _, ObjectSection as _};
use std::fmt::Write as _;
use testkit::support::Rng;
use testkit::tools::{Kind, Toolchain, Workshop, need};

/// How many functions of each kind there are.
pub const COUNT: usize = 40;

/// A program of functions that are alike: leaves that differ in constants, functions that call one
/// of them and differ in constants and callees, equal ones that call these, recursive ones, and
/// what C calls. `changed` is how many leaves are others than in version 0.
fn program(changed: usize) -> String {
    let mut text = String::from(";@ defaults linkage=local addresses=insignificant\n");
    for at in 0..COUNT {
        let (k, other) = (at * 37 + 11, (at * 7 + 3) % COUNT);
        let twist = if at < changed { "isub v5, v4" } else { "iadd v5, v4" };
        let _ = write!(
            text,
            "
function %leaf{at}(i32) -> i32 tail {{
block0(v0: i32):
    v1 = iconst.i32 {k}
    v2 = imul v0, v1
    v3 = bxor v2, v0
    v4 = ushr v3, v0
    v5 = imul v4, v3
    v6 = {twist}
    v7 = rotl v6, v1
    v8 = bxor v7, v2
    v9 = imul v8, v6
    v10 = iadd v9, v0
    return v10
}}

function %middle{at}(i32) -> i32 tail {{
    fn0 = %leaf{other}(i32) -> i32 tail
    fn1 = %equal{other}(i32) -> i32 tail
block0(v0: i32):
    v1 = iconst.i32 {k}
    v2 = icmp ugt v0, v1
    brif v2, block1(v0), block2
block1(v3: i32):
    v4 = call fn0(v3)
    v5 = bxor v4, v1
    v6 = imul v5, v4
    return v6
block2:
    v7 = call fn1(v0)
    v8 = iadd v7, v1
    v9 = imul v8, v7
    v10 = bxor v9, v0
    return v10
}}

function %equal{at}(i32) -> i32 tail {{
    fn0 = %leaf{third}(i32) -> i32 tail
block0(v0: i32):
    v1 = iconst.i32 29
    v2 = iadd v0, v1
    v3 = call fn0(v2)
    v4 = imul v3, v2
    v5 = bxor v4, v0
    v6 = iadd v5, v3
    v7 = imul v6, v6
    return v7
}}

function %down{at}(i32, i32) -> i32 tail {{
    fn0 = %down{at}(i32, i32) -> i32 tail
block0(v0: i32, v1: i32):
    brif v0, block1, block2
block1:
    v2 = iconst.i32 {k}
    v3 = imul v1, v2
    v4 = bxor v3, v0
    v5 = iconst.i32 1
    v6 = isub v0, v5
    v7 = call fn0(v6, v4)
    v8 = iadd v7, v3
    return v8
block2:
    return v1
}}

;@ linkage=export
function %enter{at}(i32) -> i32 system_v {{
    fn0 = %middle{at}(i32) -> i32 tail
    fn1 = %down{other}(i32, i32) -> i32 tail
block0(v0: i32):
    v1 = call fn0(v0)
    v2 = iconst.i32 7
    v3 = call fn1(v2, v1)
    v4 = bxor v3, v1
    return v4
}}
",
            third = at / 3 % 5,
        );
    }
    text
}

fn main_c() -> String {
    let mut text = String::from("#include <stdio.h>\n");
    let mut calls = String::new();
    for at in 0..COUNT {
        let _ = writeln!(text, "unsigned enter{at}(unsigned);");
        let _ = writeln!(calls, "        printf(\"%u \", enter{at}(x));");
    }
    text + "int main(void) {\n    for (unsigned x = 0; x < 3000; x += 701) {\n"
        + &calls
        + "        puts(\"\");\n    }\n}\n"
}

/// A program in units, for a target.
pub struct Units {
    pub workshop: Workshop,
    pub tools: Toolchain,
    pub target: &'static str,
    /// How many.
    pub count: usize,
    /// The output of the program without merging.
    pub before: String,
}

impl Units {
    /// [`program`] in units.
    pub fn new(tools: Toolchain, target: &'static str, count: usize, by: By) -> Units {
        let mut units = Units::with_host(tools, target, count, &main_c());
        units.write("u", program(0), by);
        units.before = units.program("none", "u", |_| vec!["--no-merge".into()], &[]).0;
        assert_eq!(units.before.split_whitespace().count(), 5 * COUNT);
        units
    }

    /// No units yet, but a main program in C that calls them.
    pub fn with_host(tools: Toolchain, target: &'static str, count: usize, main_c: &str) -> Units {
        let workshop = Workshop::new("across");
        workshop.write("main.c", main_c);
        workshop.run(tools.gcc, &["-O1", "-c", "main.c", "-o", "main.o"]);
        Units { workshop, tools, target, count, before: String::new() }
    }

    /// Cuts a program.
    pub fn write(&self, prefix: &str, text: String, by: By) {
        let source = Source { name: "whole".to_owned(), text };
        for (at, text) in cut(source, self.count, by).expect("units").into_iter().enumerate() {
            self.workshop.write(&format!("{prefix}{at}.clif"), text);
        }
    }

    pub fn path(&self, name: &str) -> String {
        text_of(&self.workshop.path(name)).to_owned()
    }

    pub fn clif_merge(&self, arguments: &[&str]) -> String {
        run(arguments).expect(0, "").stderr
    }

    /// The summaries of all units.
    pub fn summaries(&self, prefix: &str) -> Vec<String> {
        let summarise = |at: usize| {
            let summary = self.path(&format!("{prefix}{at}.summary"));
            let unit = self.path(&format!("{prefix}{at}.clif"));
            self.clif_merge(&["summarize", "--target", self.target, &unit, "-o", &summary]);
            summary
        };
        (0..self.count).map(summarise).collect()
    }

    /// A sharing map for each unit, by a policy. Returns the directory, which has `{prefix}0.map`
    /// and so on.
    pub fn maps(&self, policy: &str, summaries: &[String]) -> String {
        let parts = self.path(&format!("parts-{policy}"));
        let summaries: Vec<&str> = summaries.iter().map(String::as_str).collect();
        let arguments = ["combine", "--similar", policy, "--parts", &parts];
        self.clif_merge(&[&arguments, &summaries[..]].concat());
        parts
    }

    /// Compiles all units. Returns the names of the objects, and what the compilations say.
    pub fn compile(
        &self,
        name: &str,
        prefix: &str,
        options: impl Fn(usize) -> Vec<String>,
    ) -> (Vec<String>, String) {
        let mut objects = Vec::new();
        let mut said = String::new();
        for at in 0..self.count {
            let object = format!("{name}{at}.o");
            let unit = self.path(&format!("{prefix}{at}.clif"));
            let options = options(at);
            let mut arguments = vec!["compile", "-v", "--target", self.target];
            arguments.extend(options.iter().map(String::as_str));
            let output = self.path(&object);
            arguments.extend([&*unit, "-o", &output]);
            said += &self.clif_merge(&arguments);
            objects.push(object);
        }
        (objects, said)
    }

    /// Links objects and runs the program. Returns what it prints, and the bytes of `.text`.
    pub fn link(&self, name: &str, objects: &[String], flags: &[&str]) -> (String, u64) {
        let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
        let kind = (Kind::Pie, name);
        let printed = self.workshop.link_and_run(&self.tools, kind, "main.o", &objects, flags);
        let printed = printed.unwrap_or_else(|error| panic!("{name}: {error}"));
        let bytes = std::fs::read(self.workshop.path(name)).expect("a program");
        let file = object::File::parse(&*bytes).expect("a program");
        (printed, file.section_by_name(".text").expect("code").size())
    }

    /// Compiles all units, links them and runs the program. Returns what it prints, the bytes of
    /// `.text`, and what the compilations say.
    pub fn program(
        &self,
        name: &str,
        prefix: &str,
        options: impl Fn(usize) -> Vec<String>,
        flags: &[&str],
    ) -> (String, u64, String) {
        let (objects, said) = self.compile(name, prefix, options);
        let (printed, text) = self.link(name, &objects, flags);
        (printed, text, said)
    }

    /// Compiles with a map for each unit, with proofs, and requires the same output as without
    /// merging.
    fn check(&self, name: &str, map: impl Fn(usize) -> String) -> (u64, usize) {
        let with_map = |at: usize| vec!["--verify".into(), "--map".into(), map(at)];
        let (printed, bytes, said) = self.program(name, "u", with_map, &[]);
        assert_eq!(printed, self.before, "{name}");
        (bytes, shared(&said))
    }
}

/// How many functions share bodies as their maps say, by what the compilations say.
pub fn shared(said: &str) -> usize {
    let shared = said.lines().filter_map(|line| {
        let (count, _) = line.split_once(" functions share bodies as the map says")?;
        count.trim_start_matches("clif-merge: ").replace(',', "").parse::<usize>().ok()
    });
    shared.sum()
}

/// The linkers that programs are linked by: names, and what selects them.
pub fn linkers() -> [(&'static str, Vec<String>); 2] {
    need("ld.bfd");
    // A cross compiler does not look for it everywhere.
    let directory = format!("-B{}", need("ld.lld").display());
    let fatal = || "-Wl,--fatal-warnings".to_owned();
    [
        ("bfd", vec!["-fuse-ld=bfd".to_owned(), fatal()]),
        ("lld", vec!["-fuse-ld=lld".to_owned(), directory, fatal()]),
    ]
}

pub fn on_each_target(count: usize, by: By, check: impl Fn(&Units)) {
    for (tools, target) in [(Toolchain::x86_64(), "x86_64"), (Toolchain::aarch64(), "aarch64")] {
        check(&Units::new(tools, target, count, by));
    }
}

/// A unit that shares a body with another one must not lose its own symbols, nor get another unit's
/// constants.
#[test]
fn units_share_bodies_and_the_program_stays_the_same() {
    for by in [By::Neighbouring, By::Turn] {
        on_each_target(4, by, |units| {
            let alone = units.program("alone", "u", |_| Vec::new(), &[]);
            assert_eq!(alone.0, units.before);
            let one_round = |_| vec!["--verify".into(), "--content-addressed".into()];
            for (linker, flags) in linkers() {
                let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
                let name = format!("one-round-{linker}");
                let (printed, ..) = units.program(&name, "u", one_round, &flags);
                assert_eq!(printed, units.before, "{name}");
            }
            let summaries = units.summaries("u");
            for policy in ["balanced", "size"] {
                let parts = units.maps(policy, &summaries);
                let (bytes, shared) = units.check(policy, |at| format!("{parts}/u{at}.map"));
                assert!(shared > COUNT, "{policy}: {shared}");
                assert!(bytes < alone.1, "{policy}: {bytes} of {} bytes", alone.1);
            }
        });
    }
}

/// Combining must not depend on how summaries were grouped: else two machines could make different
/// maps.
#[test]
fn any_grouping_and_order_of_summaries_gives_the_same_map() {
    let units = Units::new(Toolchain::x86_64(), "x86_64", 4, By::Turn);
    let all = units.summaries("u");
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let [ab, cd, map, other, third] =
        ["ab.summary", "cd.summary", "map", "other", "third"].map(|name| units.path(name));
    units.clif_merge(&[&["combine", "-o", &map], &all[..]].concat());
    let backwards: Vec<&str> = all.iter().rev().copied().collect();
    units.clif_merge(&[&["combine", "-o", &other], &backwards[..]].concat());
    units.clif_merge(&["combine", "--partial", all[1], all[0], "-o", &ab]);
    units.clif_merge(&["combine", "--partial", all[3], all[2], "-o", &cd]);
    units.clif_merge(&["combine", &cd, &ab, "-o", &third]);
    let [map, other, third] = [map, other, third].map(|path| std::fs::read(path).expect("a map"));
    assert!(map.len() > 300, "{} bytes", map.len());
    assert!(map == other && map == third);
}

/// A function of one shape, in which only the callee differs.
fn calls(header: &str, name: &str, callee: &str) -> String {
    format!(
        ";@ {header}
function %{name}(i64, i64) -> i64 system_v {{
    fn0 = %{callee}(i64, i64) -> i64 system_v
block0(v0: i64, v1: i64):
    v2 = imul v0, v0
    v3 = iadd v2, v1
    v4 = bxor v3, v0
    v5 = imul v4, v3
    v6 = iadd v5, v4
    v7 = imul v6, v5
    v8 = bxor v7, v6
    v9 = call fn0(v8, v1)
    v10 = imul v9, v0
    v11 = iadd v10, v8
    v12 = imul v11, v10
    v13 = bxor v12, v11
    v14 = iadd v13, v12
    v15 = imul v14, v13
    v16 = bxor v15, v7
    v17 = iadd v16, v6
    v18 = imul v17, v5
    return v18
}}
"
    )
}

/// A function that C calls, and that calls another one.
fn enters(name: &str, callee: &str) -> String {
    format!(
        ";@ linkage=export no-merge
function %{name}(i64, i64) -> i64 system_v {{
    fn0 = %{callee}(i64, i64) -> i64 system_v
block0(v0: i64, v1: i64):
    v2 = call fn0(v0, v1)
    return v2
}}
"
    )
}

/// A function shares a body and passes its callee, which was merged into another function that
/// shares the body. That one lost its code, and the symbol of the callee led to nothing.
#[test]
fn a_callee_that_is_passed_keeps_code_if_it_was_merged_into_a_function_that_shares_the_body() {
    const LOCAL: &str = "linkage=local addresses=insignificant";
    const MAIN: &str = "#include <stdio.h>
long enter0(long, long), enter1(long, long), enter2(long, long);
long first(long a, long b) { return a - b; }
long second(long a, long b) { return a + b; }
int main(void) {
    for (long i = 0; i < 3; i++)
        printf(\"%ld %ld %ld\\n\", enter0(i + 5, i + 9), enter1(i + 5, i + 9), enter2(i + 5, i + 9));
}
";
    for (tools, target) in [(Toolchain::x86_64(), "x86_64"), (Toolchain::aarch64(), "aarch64")] {
        let mut units = Units::with_host(tools, target, 2, MAIN);
        let first = [
            calls(LOCAL, "outer", "leaf2"),
            calls(LOCAL, "leaf1", "first"),
            calls(LOCAL, "leaf2", "first"),
            enters("enter0", "outer"),
            enters("enter1", "leaf1"),
        ];
        units.workshop.write("u0.clif", first.concat());
        let second = [calls(LOCAL, "leaf", "second"), enters("enter2", "leaf")];
        units.workshop.write("u1.clif", second.concat());
        units.before = units.program("none", "u", |_| vec!["--no-merge".into()], &[]).0;
        let summaries = units.summaries("u");
        for policy in ["balanced", "size"] {
            let parts = units.maps(policy, &summaries);
            let (_, shared) = units.check(policy, |at| format!("{parts}/u{at}.map"));
            assert_eq!(shared, 3, "{target}, {policy}");
        }
    }
}

/// A map is not trusted: whatever it says, the program stays the same.
#[test]
fn maps_of_any_contents_change_nothing_but_sizes() {
    on_each_target(3, By::Turn, |units| {
        let paths = units.summaries("u");
        let files: Vec<FileAt> =
            paths.iter().map(|path| FileAt::open(path).expect("a file")).collect();
        let summaries: Vec<Summaries<'_>> =
            files.iter().map(|file| Summaries::open(file).expect("a summary")).collect();
        let mut shared = 0;
        for seed in 0..6 {
            // Any columns as any parameters, of any functions.
            let mut rng = Rng::new(seed);
            let mut bytes = Vec::new();
            let mut map = |piece: &[u8]| {
                bytes.extend_from_slice(piece);
                Ok(())
            };
            let mut outputs = Outputs { map: Some(&mut map), parts: None };
            let mut decide = |group: &Group<'_>| random_sets(group, &mut rng);
            combine(&summaries, &mut decide, &mut outputs).expect("combined");
            let path = text_of(&units.workshop.write("hostile.map", &bytes)).to_owned();
            shared += units.check(&format!("hostile{seed}"), |_| path.clone()).1;
            // Maps with damaged bytes, as far as they can be opened.
            const ENDS: usize = 72;
            for _ in 0..4 {
                let at = ENDS + rng.below(bytes.len() - 2 * ENDS);
                bytes[at] ^= 1 << rng.below(8);
            }
            let path = text_of(&units.workshop.write("damaged.map", &bytes)).to_owned();
            units.check(&format!("damaged{seed}"), |_| path.clone());
        }
        assert!(shared > 100, "random maps make functions share bodies: {shared}");
    });
}

fn random_sets(group: &Group<'_>, rng: &mut Rng) -> Vec<SetDecision> {
    let mut sets = Vec::new();
    for _ in 0..1 + rng.below(3) {
        let first = &group.rows[rng.below(group.rows.len())];
        let count = first.cells.len();
        let mut parameters: Vec<Vec<u32>> = Vec::new();
        for column in 0..count as u32 {
            match rng.below(4) {
                0 => parameters.push(vec![column]),
                1 if !parameters.is_empty() => {
                    let at = rng.below(parameters.len());
                    parameters[at].push(column);
                }
                _ => {}
            }
        }
        let hashes: Vec<u64> = first.cells.iter().map(|cell| cell.hash).collect();
        let fixed = fixed_hash(hashes.iter().copied(), &parameters);
        let rows = (0..group.rows.len() as u32).collect();
        sets.push(SetDecision { parameters, fixed, rows, saved: 1 });
    }
    sets
}

/// Some functions changed since the map was made: they are others, the rest is shared.
#[test]
fn stale_maps_and_those_of_other_programs_do_no_harm() {
    on_each_target(3, By::Turn, |units| {
        units.write("old", program(COUNT / 8), By::Turn);
        let summaries = units.summaries("old");
        let summaries: Vec<&str> = summaries.iter().map(String::as_str).collect();
        let map = units.path("old.map");
        units.clif_merge(&[&["combine", "-o", &map], &summaries[..]].concat());
        let (_, shared) = units.check("stale", |_| map.clone());
        assert!(shared > COUNT, "{shared}");
        // Of another target, which is ignored.
        let other = if units.target == "x86_64" { "aarch64" } else { "x86_64" };
        let [summary, foreign] = ["foreign.summary", "foreign.map"].map(|name| units.path(name));
        let unit = units.path("u0.clif");
        units.clif_merge(&["summarize", "--target", other, &unit, "-o", &summary]);
        units.clif_merge(&["combine", &summary, "-o", &foreign]);
        assert_eq!(units.check("foreign", |_| foreign.clone()).1, 0);
    });
}

/// Bad input gives one error that names the file, and nothing is written.
#[test]
fn files_that_cannot_be_used_are_errors() {
    let units = Units::new(Toolchain::x86_64(), "x86_64", 2, By::Turn);
    let summaries = units.summaries("u");
    let (unit, output) = (units.path("u0.clif"), units.path("nothing"));
    let good = std::fs::read(&summaries[0]).expect("a summary");
    let mut version = good.clone();
    version[8] ^= 0x40;
    for (name, bytes) in
        [("empty", &[][..]), ("short", &good[..good.len() / 2]), ("version", &version)]
    {
        let bad = text_of(&units.workshop.write(&format!("{name}.bad"), bytes)).to_owned();
        run(&["combine", &bad, "-o", &output]).expect(1, &bad);
        run(&["compile", "--map", &bad, &unit, "-o", &output]).expect(1, &bad);
        assert!(!units.workshop.path("nothing").exists());
    }
    run(&["combine", &summaries[0], &summaries[0], "-o", &output]).expect(1, "`u0`");
    run(&["combine", "/no/such/file", "-o", &output]).expect(1, "/no/such/file");
    run(&["summarize", &unit, "-o", "-"]).expect(2, "--name");
    let map = units.path("good.map");
    units.clif_merge(&["combine", &summaries[0], &summaries[1], "-o", &map]);
    for conflict in [&["--merge-limit", "3"][..], &["--no-merge"]] {
        let arguments = [&["compile", "--map", &map], conflict, &[&*unit, "-o", &output]].concat();
        run(&arguments).expect(2, "cannot be used with");
    }
    assert!(!units.workshop.path("nothing").exists());
}

/// A build engine must not compile a unit again of which the map did not change.
#[test]
fn parts_that_do_not_change_are_not_written() {
    let units = Units::new(Toolchain::x86_64(), "x86_64", 2, By::Neighbouring);
    let summaries = units.summaries("u");
    let parts = units.path("parts");
    let combine = ["combine", "-v", &summaries[0], &summaries[1], "--parts", &parts];
    assert!(run(&combine).expect(0, "2 of 2 maps changed").stdout.is_empty());
    run(&combine).expect(0, "0 of 2 maps changed");
    std::fs::write(units.workshop.path("parts/u1.map"), "").expect("written");
    run(&combine).expect(0, "1 of 2 maps changed");
}

/// Formats without groups of sections in the sense of ELF: the linker must still keep one copy of a
/// body.
#[test]
fn linkers_of_other_formats_keep_one_copy() {
    need("lld");
    let workshop = Workshop::new("formats");
    let unit = |at: usize| {
        format!(
            ";@ defaults linkage=local addresses=insignificant
function %leaf{at}(i64) -> i64 system_v {{
block0(v0: i64):
    v1 = iconst.i64 12345
    v2 = imul v0, v1
    v3 = bxor v2, v0
    v4 = imul v3, v2
    v5 = iadd v4, v3
    return v5
}}
;@ linkage=export
function %enter{at}(i64) -> i64 system_v {{
    fn0 = colocated %leaf{at}(i64) -> i64 system_v
block0(v0: i64):
    v1 = call fn0(v0)
    v2 = iconst.i64 12345
    v3 = imul v0, v2
    v4 = bxor v3, v1
    v5 = imul v4, v2
    return v5
}}
"
        )
    };
    let version = ["-platform_version", "macos", "11.0.0", "11.0.0"];
    let mach_o = |architecture: &'static str| {
        let flavor = ["-flavor", "darwin", "-arch", architecture, "-dylib", "-o", "image"];
        [&flavor[..], &version, &["-undefined", "dynamic_lookup"]].concat()
    };
    let exports = ["/export:enter0", "/export:enter1", "/out:image"];
    let coff = [&["-flavor", "link", "/dll", "/noentry", "/nodefaultlib"][..], &exports].concat();
    for (target, linker, section) in [
        ("x86_64-apple-darwin", mach_o("x86_64"), "__text"),
        ("aarch64-apple-darwin", mach_o("arm64"), "__text"),
        ("x86_64-pc-windows-msvc", coff, ".text"),
    ] {
        let size = |options: &[&str]| {
            let mut arguments = linker.clone();
            for (at, object) in ["0.o", "1.o"].into_iter().enumerate() {
                let unit = text_of(&workshop.write(&format!("{at}.clif"), unit(at))).to_owned();
                let output = text_of(&workshop.path(object)).to_owned();
                let files = ["compile", "--target", target, &*unit, "-o", &output];
                run(&[&files, options].concat()).expect(0, "");
                arguments.push(object);
            }
            workshop.run("lld", &arguments);
            let image = std::fs::read(workshop.path("image")).expect("an image");
            let file = object::File::parse(&*image).expect("an image");
            let section = file.section_by_name(section).expect("code");
            // Of COFF, the bytes in memory: those of the file are rounded.
            section.size().min(section.data().map_or(u64::MAX, |data| data.len() as u64))
        };
        let (alone, shared) = (size(&[]), size(&["--content-addressed"]));
        assert!(shared * 10 < alone * 8, "{target}: {shared} of {alone} bytes");
    }
}
