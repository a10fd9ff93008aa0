//! Units that a unit was cut into: linked, their objects are the program that the object of the
//! whole unit is.
//!
//! The units themselves are for the tests of `cut-unit`.

use crate::program::{run, text_of};
use clif_unit::sources::Source;
use cut_unit::{By, cut};
use testkit::tools::{Kind, Toolchain, Workshop};

/// `%f` and `%g` are equal, and so are their callees; every cut separates some of the four.
const UNIT: &str = "
;@ defaults linkage=export addresses=insignificant

function %f(i32) -> i32 system_v {
    fn0 = colocated %h(i32) -> i32 system_v
block0(v0: i32):
    v1 = call fn0(v0)
    v2 = iconst.i32 3
    v3 = imul v1, v2
    return v3
}

function %g(i32) -> i32 system_v {
    fn0 = colocated %i(i32) -> i32 system_v
block0(v0: i32):
    v1 = call fn0(v0)
    v2 = iconst.i32 3
    v3 = imul v1, v2
    return v3
}

function %by_pointer(i32) -> i32 system_v {
    sig0 = (i32) -> i32 system_v
    fn0 = %i sig0
block0(v0: i32):
    v1 = func_addr.i64 fn0
    v2 = call_indirect sig0, v1(v0)
    return v2
}

;@ linkage=local
function %h(i32) -> i32 system_v {
    fn0 = %twice(i32) -> i32 system_v
block0(v0: i32):
    v1 = iconst.i32 7
    v2 = iadd v0, v1
    v3 = call fn0(v2)
    return v3
}

;@ linkage=local
function %i(i32) -> i32 system_v {
    fn0 = %twice(i32) -> i32 system_v
block0(v0: i32):
    v1 = iconst.i32 7
    v2 = iadd v0, v1
    v3 = call fn0(v2)
    return v3
}
";

const MAIN: &str = r#"
#include <stdio.h>
int f(int), g(int), by_pointer(int);
int twice(int x) { return 2 * x; }
int main(void) {
    printf("%d %d %d\n", f(1), g(2), by_pointer(3));
}
"#;

#[test]
fn objects_of_a_cut_link_to_the_same_program() {
    let workshop = Workshop::new("cut");
    let tools = Toolchain::x86_64();
    workshop.write("main.c", MAIN);
    workshop.run(tools.gcc, &["-c", "main.c", "-o", "main.o"]);
    let mut number = 0;
    let mut check = |units: Vec<String>, options: &[&str]| {
        let mut objects = Vec::new();
        for text in units {
            let unit = workshop.write(&format!("{number}.clif"), text);
            objects.push(format!("{number}.o"));
            let object = workshop.path(&objects[objects.len() - 1]);
            let files = [text_of(&unit), "-o", text_of(&object)];
            run(&[&["compile", "--target", "x86_64"], options, &files].concat()).expect(0, "");
            number += 1;
        }
        let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
        let name = format!("program{number}");
        let printed = workshop.link_and_run(&tools, (Kind::Static, &name), "main.o", &objects, &[]);
        assert_eq!(printed.as_deref(), Ok("48 54 20\n"), "{options:?} {objects:?}");
    };
    for options in [&["--no-merge"][..], &[]] {
        check(vec![UNIT.to_owned()], options);
        for (units, by) in [(2, By::Neighbouring), (2, By::Turn), (5, By::Turn)] {
            let source = Source { name: "whole".to_owned(), text: UNIT.to_owned() };
            check(cut(source, units, by).expect("units"), options);
        }
    }
}
