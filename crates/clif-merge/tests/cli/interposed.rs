//! Libraries of several units of which the program interposes functions and data: what named
//! another function or object goes on using that one, whatever was merged.
//!
//! Of two equal exported functions, the program has a definition of its own of the first. Callers
//! of the second must not reach it. (What called the first may reach either: an exported function
//! can be bound to the definition of its unit.)

use crate::across::{Units, linkers};
use std::fmt::Write as _;
use testkit::support::long_function;
use testkit::tools::{Kind, Toolchain};

fn function(name: &str, header: &str, first: &str) -> String {
    format!("\n{}", long_function(&format!("%{name}"), header, first))
}

/// Functions that are alike but for their callees or the data that they read; in the first unit,
/// `leaf0` equals `leaf1`, and `table0` equals `table1`.
fn units_of() -> [String; 2] {
    let calls = |name: &str, callee: &str| {
        let header = format!("    fn0 = %{callee}(i64) -> i64 system_v\n");
        function(name, &header, "v1 = call fn0(v0)")
    };
    let reads = |name: &str, table: &str| {
        let header = format!("    gv0 = symbol %{table}\n");
        function(name, &header, "v200 = symbol_value.i64 gv0\n    v1 = load.i64 v200")
    };
    let leaf = |name: &str| function(name, "", "v1 = iconst.i64 77");
    let mut first = String::new();
    for table in ["table0", "table1"] {
        let _ =
            writeln!(first, ";@ data %{table} addresses=insignificant align=8 = u64 4660 22136");
    }
    first += &[leaf("leaf0"), leaf("leaf1"), calls("calls0", "leaf0"), calls("calls1", "leaf1")]
        .concat();
    first += &[reads("reads0", "table0"), reads("reads1", "table1")].concat();
    let second = [calls("calls2", "other"), reads("reads2", "others")].concat();
    [first, second]
}

const MAIN: &str = "#include <stdio.h>
long leaf0(long x) { return x + 1000; }
long table0[2] = { 17, 18 };
long other(long x) { return x + 2000; }
long others[2] = { 19, 20 };
long calls0(long), calls1(long), calls2(long), reads0(long), reads1(long), reads2(long);
int main(void) {
    for (long x = 1; x < 9000; x += 1999) {
        printf(\"%ld %ld %ld %ld\\n\", calls1(x), calls2(x), reads1(x), reads2(x));
        calls0(x);
        reads0(x);
    }
}
";

/// A body that is shared by what named different exported symbols must not go through one of them.
#[test]
fn what_named_another_symbol_does_not_reach_one_that_is_interposed() {
    for (tools, target) in [(Toolchain::x86_64(), "x86_64"), (Toolchain::aarch64(), "aarch64")] {
        let units = Units::with_host(tools, target, 2, MAIN);
        for (at, text) in units_of().into_iter().enumerate() {
            units.workshop.write(&format!("u{at}.clif"), text);
        }
        let summaries = units.summaries("u");
        let run = |name: &str, options: &dyn Fn(usize) -> Vec<String>, flags: &[&str]| {
            let (objects, _) = units.compile(name, "u", options);
            let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
            let kind = (Kind::Shared, name);
            let printed = units.workshop.link_and_run(&tools, kind, "main.o", &objects, flags);
            printed.unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        let parts = units.maps("size", &summaries);
        let verify = || "--verify".to_owned();
        let with_map = |at: usize| vec![verify(), "--map".to_owned(), format!("{parts}/u{at}.map")];
        for (linker, flags) in linkers() {
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let run = |name: &str, options: &dyn Fn(usize) -> Vec<String>| {
                run(&format!("{name}-{linker}"), options, &flags)
            };
            let expected = run("unmerged", &|_| vec!["--no-merge".to_owned()]);
            assert_eq!(run("alone", &|_| vec![verify()]), expected);
            let one_round = |_| vec![verify(), "--content-addressed".to_owned()];
            assert_eq!(run("one-round", &one_round), expected, "{target}");
            assert_eq!(run("map", &with_map), expected, "{target}");
        }
    }
}
