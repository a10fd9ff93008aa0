//! Stacks of linked programs whose units share code: `locate --stack` says to which functions the
//! frames belong.

use crate::across::Units;
use crate::program::run;
use std::fmt::Write as _;
use testkit::tools::Toolchain;

/// Functions of each kind in each unit.
const COUNT: usize = 4;

/// Where the call in a function of a unit is.
fn location(unit: usize, function: usize, is_leaf: bool) -> usize {
    0x1000 + 0x100 * (unit * COUNT + function) + 0x10 * usize::from(is_leaf)
}

/// Leaves, which differ in a constant and call C, and functions that call them. The last unit calls
/// all of these.
fn unit(unit: usize) -> String {
    let mut text = String::from(";@ defaults linkage=local addresses=insignificant\n");
    for at in 0..COUNT {
        for is_leaf in [true, false] {
            let own = if is_leaf { "leaf" } else { "enter" };
            let callee = if is_leaf { "show".into() } else { format!("leaf{unit}_{at}") };
            let linkage = if is_leaf { "" } else { ";@ linkage=export\n" };
            let (k, location) = (unit * 100 + at * 7 + 3, location(unit, at, is_leaf));
            let _ = write!(
                text,
                "
{linkage}function %{own}{unit}_{at}(i64) -> i64 system_v {{
    fn0 = %{callee}(i64) -> i64 system_v
block0(v0: i64):
    v1 = iconst.i64 {k}
    v2 = imul v0, v1
    v3 = bxor v2, v0
    v4 = rotl v3, v0
    v5 = imul v4, v3
    v6 = isub v5, v4
@{location:04x} v7 = call fn0(v6)
    v8 = bxor v7, v2
    v9 = imul v8, v6
    v10 = iadd v9, v1
    v11 = rotl v10, v9
    v12 = imul v11, v7
    return v12
}}
"
            );
        }
    }
    text
}

fn start(units: usize) -> String {
    let (mut callees, mut calls) = (String::new(), String::new());
    for at in 0..units * COUNT {
        let (unit, function) = (at / COUNT, at % COUNT);
        let _ = writeln!(callees, "    fn{at} = %enter{unit}_{function}(i64) -> i64 system_v");
        let _ = writeln!(calls, "@{:04x} v{} = call fn{at}(v{at})", 0x100 + at, at + 1);
    }
    format!(
        ";@ linkage=export\nfunction %start(i64) -> i64 system_v {{\n{callees}block0(v0: i64):\n{calls}    return v{}\n}}\n",
        units * COUNT
    )
}

const MAIN_C: &str = "\
#include <stdio.h>
extern char __executable_start;
long start(long);
long enter0_1(long);
long show(long x) {
    void **frame = __builtin_frame_address(0);
    for (int at = 0; at < 3; at++) {
        printf(\"%lx%s\", (long)((char *)frame[1] - &__executable_start), at < 2 ? \",\" : \"\\n\");
        frame = frame[0];
    }
    return x;
}
int main(void) {
    start(5);
    enter0_1(7);
}
";

/// A backtrace of merged code would name functions that were not called, and units that did not
/// call them.
#[test]
fn frames_of_a_linked_program_are_the_functions_that_were_called() {
    for (tools, target) in [(Toolchain::x86_64(), "x86_64"), (Toolchain::aarch64(), "aarch64")] {
        let units = Units::with_host(tools, target, 3, MAIN_C);
        for at in 0..2 {
            units.workshop.write(&format!("u{at}.clif"), unit(at));
        }
        units.workshop.write("u2.clif", start(2));
        let set = ["--set", "preserve_frame_pointers=true"];
        let summaries: Vec<String> = (0..3)
            .map(|at| {
                let (unit, summary) =
                    (units.path(&format!("u{at}.clif")), units.path(&format!("u{at}.summary")));
                let target = ["summarize", "--target", target, &unit, "-o", &summary];
                units.clif_merge(&[&target[..], &set].concat());
                summary
            })
            .collect();
        let parts = units.maps("size", &summaries);
        let json = |at: usize| units.path(&format!("u{at}.json"));
        let options = |at: usize| {
            let map = format!("{parts}/u{at}.map");
            let options = ["--map", &map, "--merge-map", &json(at), "--name", &format!("u{at}")];
            [&options[..], &set].concat().into_iter().map(str::to_owned).collect()
        };
        let (printed, ..) = units.program("program", "u", options, &[]);
        let locate = |stack: &str| {
            let image = units.path("program");
            let maps: Vec<String> = (0..3).map(json).collect();
            let arguments = [
                &["locate", &image, "--stack", stack][..],
                &maps.iter().map(String::as_str).collect::<Vec<_>>(),
            ];
            String::from_utf8(run(&arguments.concat()).expect(0, "").stdout).expect("text")
        };
        let stacks: Vec<&str> = printed.lines().collect();
        assert_eq!(stacks.len(), 2 * COUNT + 1, "{printed}");
        let mut shared = std::collections::BTreeSet::new();
        for (at, stack) in stacks[..2 * COUNT].iter().enumerate() {
            let (unit, function) = (at / COUNT, at % COUNT);
            let [leaf, enter] = [true, false].map(|is_leaf| location(unit, function, is_leaf));
            let [a, b, c] = stack.split(',').collect::<Vec<_>>()[..] else { panic!("{stack}") };
            let expected = format!(
                "#0 {a} u{unit}:leaf{unit}_{function} @{leaf:04x}\n\
                 #1 {b} u{unit}:enter{unit}_{function} @{enter:04x}\n\
                 #2 {c} u2:start @{:04x}\n",
                0x100 + at
            );
            assert_eq!(locate(stack), expected);
            shared.insert(a);
        }
        assert!(shared.len() < 2 * COUNT, "nothing is shared: {printed}");
        // C does not say which function it called.
        let from_c = locate(stacks[2 * COUNT]);
        assert!(from_c.contains("u0:enter0_1 @1100") && from_c.contains(" or u"), "{from_c}");
        assert!(
            from_c.lines().last().is_some_and(|last| last.ends_with("no function of these units"))
        );
    }
}

/// A map that is damaged must be an error that names it, not other frames.
#[test]
fn a_table_of_frames_that_is_damaged_is_refused() {
    let units = Units::with_host(Toolchain::x86_64(), "x86_64", 1, "int main(void) { return 0; }");
    units.workshop.write("u0.clif", unit(0));
    let json = units.path("u0.json");
    units.compile("u", "u", |_| vec!["--merge-map".into(), json.clone()]);
    let text = std::fs::read_to_string(&json).expect("a map");
    let table = text.split("\"table\": \"").nth(1).expect("a table").split('"').next().unwrap();
    for (damaged, message) in [
        (format!("{}zz", &table[2..]), "the table of frames is not hexadecimal"),
        (table[..table.len() - 2].to_owned(), "not a table of frames"),
        ("0000".to_owned(), "the table of frames is of 0 pieces of code"),
    ] {
        units.workshop.write("bad.json", text.replace(table, &damaged));
        let bad = units.path("bad.json");
        let said = run(&["locate", &units.path("u0.o"), &bad, "--stack", "0x10"]).expect(1, "");
        assert!(
            said.stderr.contains("bad.json") && said.stderr.contains(message),
            "{}",
            said.stderr
        );
    }
}
