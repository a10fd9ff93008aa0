//! Unusual paths: links, pipes, texts with a byte order mark.

use crate::program::{names, read, run, run_with, temporary, text_of, write};

const FUNCTION: &str = "function %f(i32) -> i32 {\nblock0(v0: i32):\n    return v0\n}\n";

/// Editors on Windows write one, and do not show it.
#[test]
fn a_byte_order_mark_is_kept_when_expectations_are_rewritten() {
    let marked = |text: &str| format!("\u{feff}{text}");
    let directory = temporary();
    let file = directory.path().join("marked.clif");
    write(&file, marked(&format!("test merge\n\n{FUNCTION}")));
    let mut bless = crate::program::program();
    bless.args(["test", text_of(&file)]).env("CRANELIFT_TEST_BLESS", "1");
    assert!(bless.status().unwrap().success());
    assert!(read(&file).starts_with("\u{feff}test merge\n"), "{}", read(&file));
    let text = run(&["test", text_of(&file)]).expect(0, "");
    assert!(text.text().starts_with("1 passed"), "{}", text.text());
}

/// Random bytes were printed as text that is not UTF-8, and an empty file had no functions.
#[test]
fn a_file_named_wasm_without_its_first_bytes_is_no_module() {
    let directory = temporary();
    let file = directory.path().join("random.wasm");
    for bytes in [&b""[..], b"\xff\x00\x61\x73\x6d", b"(module)"] {
        write(&file, bytes);
        let message = format!("error: {}: not WebAssembly, which begins with", text_of(&file));
        run(&["report", text_of(&file)]).expect(1, &message);
    }
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    const TEST: &str = "test merge\nfunction %f() fast {\nblock0:\n    return\n}\n\n\
                        ; keep: prefiltered\n; function %f() fast {\n; block0:\n;     return\n; }\n";

    /// A link to a directory above led into it again and again, until the path was too long.
    #[test]
    fn directories_are_visited_once() {
        let directory = temporary();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(at("inner/empty")).unwrap();
        write(at("inner/a.clif"), TEST);
        symlink("..", at("inner/up")).unwrap();
        symlink("inner", at("again")).unwrap();
        symlink("inner/a.clif", at("the-same.clif")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        symlink("myself", at("myself")).unwrap();
        for paths in
            [&[directory.path()][..], &[directory.path(), &at("inner"), &at("inner/a.clif")]]
        {
            let paths: Vec<&str> = paths.iter().map(|path| text_of(path)).collect();
            let run = run(&[&["test", "-v"], &paths[..]].concat()).expect(0, "");
            assert!(run.text().contains("\n1 passed, 0 failed, 0 skipped;"), "{}", run.text());
        }
        // A dangling link with the name of a text is an error.
        symlink("nowhere", at("missing.clif")).unwrap();
        let message = format!("error: cannot read {}", text_of(&at("missing.clif")));
        run(&["test", text_of(directory.path())]).expect(1, &message);
        run(&["merge", text_of(directory.path())]).expect(1, &message);
    }

    /// Reading a pipe without a writer never ends.
    #[test]
    fn pipes_in_a_directory_are_refused() {
        for (name, what) in [("pipe.clif", "a pipe"), ("socket.clif", "a socket")] {
            let directory = temporary();
            write(directory.path().join("a.clif"), FUNCTION);
            let odd = directory.path().join(name);
            let _listener = match what {
                "a pipe" => {
                    assert!(Command::new("mkfifo").arg(&odd).status().expect("mkfifo").success());
                    None
                }
                _ => Some(UnixListener::bind(&odd).unwrap()),
            };
            for command in ["merge", "test"] {
                run(&[command, text_of(directory.path())])
                    .expect(1, &format!("error: {}: {what}, not a file", text_of(&odd)));
            }
            // Under a name without `.clif` it is not read.
            std::fs::rename(&odd, directory.path().join("other")).unwrap();
            run(&["merge", text_of(directory.path())]).expect(0, "merged 0 of 1");
        }
    }

    /// The link itself was replaced by a file.
    #[test]
    fn dangling_links_are_written_through() {
        let directory = temporary();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("inner")).unwrap();
        symlink("inner/second", at("first")).unwrap();
        symlink("../out.clif", at("inner/second")).unwrap();
        let to = |name: &str| {
            let path = at(name);
            run_with(&["merge", "-", "-o", text_of(&path)], FUNCTION.as_bytes())
        };
        for _ in 0..2 {
            to("first").expect(0, "");
            assert!(at("first").is_symlink() && at("inner/second").is_symlink());
            assert!(read(at("out.clif")).contains("function %f"));
        }
        assert_eq!(names(directory.path()), ["first", "inner", "out.clif"]);
        symlink("cycle", at("cycle")).unwrap();
        to("cycle").expect(1, "error: cannot write");
        symlink("no/such/directory", at("far")).unwrap();
        to("far").expect(1, "error: cannot write");
        assert!(at("cycle").is_symlink() && at("far").is_symlink());
    }
}
