//! Dumps of compilers are read as they are, or refused where nothing says what they mean.

use crate::program::{run, run_with, temporary, text_of, write};
use clif_unit::isa;

/// A function as rustc_codegen_cranelift writes it with `--emit=llvm-ir`: all settings in front of
/// it, and comments below the first line, behind entities and below instructions.
fn rustc(symbol: &str) -> String {
    let [isa] = isa::build([isa::short("x86_64")], &[]).expect("is built in");
    let mut text = String::new();
    for flag in isa.flags().iter() {
        text += &format!("set {flag}\n");
    }
    text += "target x86_64";
    for flag in isa.isa_flags() {
        text += &format!(" {flag}");
    }
    text + &format!(
        "\n\n\nfunction {symbol}(i64, i64) -> i64 system_v {{\n\
         ; symbol _ZN7example4call17h0123456789abcdefE\n\
         ; instance Instance {{ def: Item(DefId(0:7 ~ example[4e51]::call)), args: ['{{erased}}] }}\n\
         ; abi FnAbi {{ args: [ArgAbi {{ layout: TyAndLayout {{ ty: *const u8 }} }}] }}\n\
         \n\
         ; kind  local ty                              size align (abi,pref)\n\
         ; stack _2    (&&[u16],)                        8b 8, 8              storage=ss0\n\
         \n\
         \x20   ss0 = explicit_slot 16\n\
         \x20   sig0 = (i64, i64) -> i64 system_v\n\
         \x20   fn0 = colocated u0:23 sig0 ; Instance {{ def: Item(DefId(0:9 ~ example[4e51]::f)) }}\n\
         \n\
         block0(v0: i64, v1: i64):\n\
         \x20   nop \n\
         ; write_cvalue: Addr(Pointer {{ base: Stack(ss0), offset: Offset32(0) }}, None): &u8\n\
         \x20   v2 = stack_addr.i64 ss0\n\
         \x20   store notrap v0, v2\n\
         \x20   jump block1\n\
         \n\
         block1:\n\
         \x20   nop \n\
         ; _3 = &mut _1\n\
         ;\n\
         ; _0 = <F as FnMut<(&&[u16],)>>::call_mut(move _3, _2)\n\
         @0001                               v3 = call fn0(v0, v1)\n\
         \x20   v4 -> v3\n\
         \x20   return v4\n\
         }}\n"
    )
}

#[test]
fn texts_of_rustc_are_read_as_they_are() {
    let text = rustc("u0:22");
    let local = ["--linkage", "local", "--addresses", "insignificant"];
    let printed = run_with(&[&["merge", "-"], &local[..]].concat(), text.as_bytes());
    let printed = printed.expect(0, "merged 0 of 1");
    assert!(printed.text().contains("fn0 = colocated u0:23 sig0"), "{}", printed.text());
    let again = run_with(&["merge", "-"], &printed.stdout).expect(0, "");
    assert_eq!(again.text(), printed.text());
    run_with(&["compile", "-", "-o", "-"], text.as_bytes()).expect(0, "");
}

/// Data objects of such a text have no names: each was another symbol of its function.
#[test]
fn symbols_without_names_are_refused() {
    let text = rustc("u0:22")
        .replace("    sig0 =", "    gv0 = symbol colocated userextname1 ; alloc16\n    sig0 =");
    let line = 1 + text.lines().position(|line| line.contains("userextname")).expect("it is there");
    for command in [&["merge", "-"][..], &["compile", "-", "-o", "-"], &["report", "-"]] {
        let run = run_with(command, text.as_bytes());
        let run =
            run.expect(1, "'userextname1' is an index into a table of names that no text has");
        assert!(run.stderr.contains(&format!(" --> <stdin>:{line}:28\n")), "{}", run.stderr);
    }
    // With names it is read.
    let named = text.replace("userextname1", "%alloc16");
    let printed = run_with(&["merge", "-"], named.as_bytes()).expect(0, "");
    assert!(printed.text().contains("gv0 = symbol colocated %alloc16\n"), "{}", printed.text());
}

/// A directory of such texts has each function before and after optimisation.
#[test]
fn two_stages_of_one_function_are_refused() {
    let directory = temporary();
    let path = |stage: &str| directory.path().join(format!("f.{stage}.clif"));
    write(path("unopt"), rustc("u0:22"));
    write(path("opt"), rustc("u0:22"));
    let whole = run(&["merge", text_of(directory.path())]);
    whole.expect(
        1,
        "function u0:22 is defined twice; these texts are two stages of its compilation",
    );
    run(&["merge", text_of(&path("opt"))]).expect(0, "merged 0 of 1");
}

/// Cranelift's drawing of a function that its verifier refuses: comments between the lines.
#[test]
fn drawn_errors_are_comments() {
    let text = "function u0:1(i32) -> i32 fast {\nblock0(v0: i32):\n    v1 = iadd v0, v0\n\
                ;   ^~~~~~~~~~~~~~~~\n; error: inst0: drawn\n\n    return v1\n}\n\n\
                ; 1 verifier error detected (see above). Compilation aborted.\n";
    run_with(&["merge", "-"], text.as_bytes()).expect(0, "merged 0 of 1");
}

/// Trampolines of Wasmer have one name; tests of Wasmtime have functions in comments.
#[test]
fn texts_without_functions_of_their_own_are_refused() {
    let trampoline = "function u0:0(i64 vmctx, i64) system_v {\nblock0(v0: i64, v1: i64):\n    \
                      return\n}\n";
    let twice = trampoline.repeat(2);
    run_with(&["merge", "-"], twice.as_bytes()).expect(1, "function u0:0 is defined twice");
    let commented: String = trampoline.lines().map(|line| format!(";; {line}\n")).collect();
    run_with(&["merge", "-"], commented.as_bytes())
        .expect(1, "<stdin>: no functions; those in comments are not read");
}
