//! The output of `merge` means the same under any options.

use crate::program::{inputs, read, run, run_with};

/// Defaults for functions and data objects without directives.
const DEFAULTS: [&[&str]; 4] = [
    &[],
    &["--linkage", "local", "--addresses", "insignificant"],
    &["--linkage", "preemptible", "--data-addresses", "insignificant"],
    &["--linkage", "hidden", "--addresses", "insignificant"],
];

/// Attributes that equal the defaults of the program were not printed: in `merge | compile`, with
/// the same options twice, functions that their directives export became local.
#[test]
fn the_output_means_the_same_under_any_options() {
    let given = ";@ data %table linkage=export = %main\n\
                 ;@ linkage=export addresses=significant\n\
                 function %a(i32) -> i32 {\nblock0(v0: i32):\n    v1 = imul v0, v0\n    \
                 return v1\n}\n\
                 function %main(i32) -> i32 {\nblock0(v0: i32):\n    v1 = ineg v0\n    \
                 return v1\n}\n";
    for first in DEFAULTS {
        let merge = |options: &[&str], text: &[u8]| {
            run_with(&[&["merge", "-"], options].concat(), text).expect(0, "merged 0 of 2")
        };
        let printed = merge(first, given.as_bytes());
        for second in DEFAULTS {
            let again = merge(second, &printed.stdout);
            assert_eq!(again.text(), printed.text(), "{first:?}, then {second:?}");
        }
    }
    let local = [&["merge", "-"], DEFAULTS[1]].concat();
    let printed = run_with(&local, given.as_bytes()).expect(0, "");
    let object = [&["compile", "-", "-o", "-"], DEFAULTS[1]].concat();
    let object = run_with(&object, &printed.stdout).expect(0, "").stdout;
    let symbols = global_symbols(&object);
    assert_eq!(symbols, ["a", "table"], "of {}", printed.text());
}

/// The names of the global symbols that an object defines, in order.
fn global_symbols(object: &[u8]) -> Vec<String> {
    use object::{Object as _, ObjectSymbol as _};
    let file = object::File::parse(object).expect("an object");
    let symbols = file.symbols().filter(|symbol| symbol.is_global() && symbol.is_definition());
    let mut names: Vec<String> =
        symbols.map(|symbol| symbol.name().expect("a name").to_owned()).collect();
    names.sort();
    names
}

/// A function that `--export` kept was printed without a directive: in `merge | compile`, with the
/// default for all others twice, it became local, and the object did not export it.
#[test]
fn printed_output_keeps_marks() {
    let names = ["%api", "%callback", "%other"];
    let function =
        |name| format!("function {name}(i32) -> i32 {{\nblock0(v0: i32):\n    return v0\n}}\n");
    let given = names.map(function).concat();
    let marks = ["--export", "%api", "--externally-called", "%callback"];
    let merge = [&["merge", "-"], DEFAULTS[1], &marks].concat();
    let printed = run_with(&merge, given.as_bytes()).expect(0, "merged 2 of 3");
    let compile = [&["compile", "-", "-o", "-"], DEFAULTS[1]].concat();
    let object = run_with(&compile, &printed.stdout).expect(0, "").stdout;
    assert_eq!(global_symbols(&object), ["api"], "of {}", printed.text());
    assert!(printed.text().contains("externally-called thunk=%api"), "{}", printed.text());
    let again = run_with(&[&["merge", "-"], DEFAULTS[1]].concat(), &printed.stdout).expect(0, "");
    assert_eq!(again.text(), printed.text());
}

/// Two printed texts form one unit when they are concatenated.
#[test]
fn printed_texts_can_be_concatenated() {
    let text = |name: &str, options: &[&str]| {
        let function = format!("function %{name}() {{\nblock0:\n    return\n}}\n");
        run_with(&[&["merge", "-"], options].concat(), function.as_bytes()).expect(0, "").stdout
    };
    let both = [text("f", DEFAULTS[1]), text("g", DEFAULTS[2])].concat();
    let both = run_with(&["merge", "-", "--merge-limit", "0"], &both).expect(0, "merged 0 of 2");
    for directive in [
        "\n;@ linkage=local addresses=insignificant\nfunction %f",
        "\n;@ linkage=preemptible\nfunction %g",
    ] {
        assert!(both.text().contains(directive), "{}", both.text());
    }
}

/// The README shows what `clif-merge merge samples/duplicates.clif` prints.
#[test]
fn the_readme_shows_what_is_printed() {
    let root = testkit::root();
    let readme = read(root.join("README.md"));
    let (_, example) = readme.split_once("\nbefore  ").expect("the example");
    let (example, _) = example.split_once("\n```").expect("the end of the example");
    let (heading, example) = example.split_once('\n').expect("a heading");
    let column = "before  ".len() + heading.find("after").expect("two columns");
    let printed = run(&["merge", "../../../../samples/duplicates.clif"]).expect(0, "");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let half = |side: fn(&str, usize) -> &str| {
        let lines = example.lines().map(|line| side(line, column));
        words(&lines.collect::<Vec<_>>().join("\n"))
    };
    let left = half(|line, column| line.get(..column).unwrap_or(line));
    let right = half(|line, column| line.get(column..).unwrap_or(""));
    assert_eq!(left, words(&read(inputs().join("../../../../samples/duplicates.clif"))));
    assert_eq!(right, words(printed.text()));
}

/// Gaps in the numbers of entities: what filled one was printed as a symbol without a name, which
/// nothing could read (`gv`), was an index out of bounds (`fn`), or a panic of Cranelift's when the
/// next constant was made (`const`).
#[test]
fn gaps_in_numbers_are_harmless() {
    let declared = [
        ("gv", "gv1 = vmctx\n    gv3 = symbol %table", "v8 = symbol_value.i64 gv3"),
        ("fn", "fn2 = %g(i64) -> i64", "v8 = call fn2(v0)"),
        ("sig", "sig2 = (i64) -> i64 system_v", "v8 = call_indirect sig2, v0(v0)"),
        ("ss", "ss1 = explicit_slot 8, align = 8", "v8 = stack_addr.i64 ss1"),
        (
            "const",
            "const3 = 0x00000000000000070000000000000007",
            "v9 = vconst.i64x2 const3\n    v10 = splat.i64x2 v0\n    v11 = iconst.i64 5\n    \
             v12 = splat.i64x2 v11\n    v13 = iadd v9, v12\n    v14 = iadd v13, v10\n    \
             v8 = extractlane v14, 1",
        ),
        ("block", "ss0 = explicit_slot 8", "v8 = iadd v0, v0\n    jump block7\n\nblock7:"),
        ("value", "ss0 = explicit_slot 8", "v8 = iadd v0, v0\n    v99 = iadd v8, v8"),
    ];
    for (kind, head, code) in declared {
        let function = |name: &str| {
            format!(
                "function %{name}(i64 vmctx) -> i64 system_v {{\n    {head}\n\n\
                 block0(v0: i64):\n    {code}\n    return v8\n}}\n"
            )
        };
        let unit = function("a") + &function("b");
        let merge = [&["merge", "-", "--verify"], DEFAULTS[1]].concat();
        let printed = run_with(&merge, unit.as_bytes()).expect(0, "1 redirected");
        let again = run_with(&["merge", "-"], &printed.stdout).expect(0, "");
        assert_eq!(again.text(), printed.text(), "{kind}");
        for unit in [unit.as_bytes(), &printed.stdout] {
            for options in DEFAULTS {
                run_with(&[&["compile", "-", "-o", "-"], options].concat(), unit).expect(0, "");
            }
            run_with(&["compile", "-", "-o", "-", "--no-merge"], unit).expect(0, "");
            run_with(&["report", "-"], unit).expect(0, "");
        }
    }
}

/// `u0:1-8` was printed, of which the reader takes `1-8` for a number.
#[test]
fn negative_offsets_of_symbols_are_read_again() {
    let unit = "function %f() -> i64 {\n    gv0 = symbol colocated u0:1 -8\nblock0:\n    \
                v0 = symbol_value.i64 gv0\n    return v0\n}\n";
    let printed = run_with(&["merge", "-"], unit.as_bytes()).expect(0, "");
    assert!(printed.text().contains("gv0 = symbol colocated u0:1 -8\n"), "{}", printed.text());
    let again = run_with(&["merge", "-"], &printed.stdout).expect(0, "");
    assert_eq!(again.text(), printed.text());
}
