//! How the program ends: by a signal, without memory, with a closed output pipe.

use crate::program::program;

/// `report --min-saved 50 FILE | head -0` ended with 0.
#[test]
fn a_closed_pipe_keeps_the_exit_code() {
    let directory = crate::program::temporary();
    let bad = directory.path().join("bad.clif");
    crate::program::write(&bad, "test merge\nfunction");
    let bad = crate::program::text_of(&bad);
    for (arguments, code, message) in [
        (&["report", "mixed.clif", "--min-saved", "99"][..], 3, "and 99% was asked for"),
        (&["report", "mixed.clif", "--min-saved", "1"], 0, ""),
        (&["test", bad], 1, ""),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = program().args(arguments).stdout(writer).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(message) && stderr.is_empty() == message.is_empty(), "{stderr}");
    }
}

#[cfg(unix)]
mod unix {
    use super::*;
    use crate::program::{names, temporary, text_of, write};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    /// The number of items: enough for a long write.
    const ITEMS: usize = 4;
    /// The bytes of one of them.
    const ITEM_BYTES: usize = 16_000_000;

    /// A short unit with large data.
    fn zeros(items: usize) -> String {
        let items = format!(" zero {ITEM_BYTES} u8 1").repeat(items);
        format!(";@ data %zeros ={items}\n")
    }

    /// A partial file stayed behind, under a temporary name.
    #[test]
    fn nothing_is_left_behind_by_a_signal() {
        let directory = temporary();
        let unit = directory.path().join("unit.clif");
        write(&unit, zeros(ITEMS));
        for signal in ["INT", "TERM"] {
            let mut ended = 0;
            for round in 0.. {
                assert!(round < 50, "the program was never met while it wrote");
                let out = directory.path().join("out.o");
                let mut child = program()
                    .args(["compile", text_of(&unit), "-o", text_of(&out)])
                    .stderr(Stdio::null())
                    .spawn()
                    .expect("the program starts");
                // An empty file exists for a moment, to check that the directory is writable; later
                // the file that is being written.
                let unfinished = || {
                    let entries = std::fs::read_dir(directory.path()).unwrap();
                    entries.filter_map(Result::ok).any(|entry| {
                        let name = entry.file_name().into_string().unwrap();
                        let size = entry.metadata().map_or(0, |metadata| metadata.len());
                        name.starts_with(".clif-merge-") && size > 0
                    })
                };
                while !unfinished() && child.try_wait().unwrap().is_none() {}
                let pid = child.id();
                // It may have ended by now.
                let kill = format!("kill -s {signal} {pid}");
                let _ = Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status();
                let status = child.wait().unwrap();
                match status.signal() {
                    Some(_) => ended += 1,
                    None => assert!(status.success(), "{status}"),
                }
                let left = names(directory.path());
                let expected: &[&str] = match status.success() {
                    true => &["out.o", "unit.clif"],
                    false => &["unit.clif"],
                };
                // A file that was finished at the last moment is whole.
                let whole = std::fs::metadata(&out)
                    .is_ok_and(|file| file.len() > (ITEMS * ITEM_BYTES) as u64);
                assert!(left == expected || whole && left.len() == 2, "{left:?}");
                let _ = std::fs::remove_file(&out);
                if ended == 2 {
                    break;
                }
            }
        }
    }

    /// The program ended by a signal, with a backtrace.
    #[cfg(target_os = "linux")]
    #[test]
    fn too_little_memory_is_one_line() {
        let directory = temporary();
        let unit = directory.path().join("unit.clif");
        write(&unit, zeros(40));
        let out = directory.path().join("out.clif");
        let output = Command::new("sh")
            .args(["-c", "ulimit -v 400000; exec \"$0\" \"$@\""])
            .arg(program().get_program())
            .args(["merge", text_of(&unit), "-o", text_of(&out)])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.starts_with("error: out of memory: the system refuses "), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert_eq!(names(directory.path()), ["unit.clif"]);
    }
}
