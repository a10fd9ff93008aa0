//! Builds the workspace with faults planted in the library, from outside.
//!
//! The library has no hooks for its tests. A copy of the workspace gets them: `faults/hooks.rs` says before which line
//! of which file what is inserted, `faults/fault_injection/` is a module that the copy of the library has in addition,
//! and `faults/tests/` are tests that only the copy has. It does *not* say which faults there are, nor run anything.

use std::fs;
use std::io;
use std::path::Path;

/// Code that is inserted into a file of the copy.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// Relative to the root of the repository.
    pub file: &'static str,
    /// Whole lines that stand together in the file once, without their indentation.
    pub at: &'static [&'static str],
    /// What becomes of them.
    pub put: Put,
}

/// Code, and where it is put.
#[derive(Clone, Copy, Debug)]
pub enum Put {
    /// Before the lines of the hook.
    Before(&'static str),
    /// Behind them.
    After(&'static str),
    /// In their place.
    Instead(&'static str),
}

/// What of the repository is not copied: build output, histories, and packages with workspaces of their own.
const LEFT_OUT: [&str; 7] = [
    "target",
    ".git",
    "fuzz",
    "tests/no-std",
    "tests/other-targets",
    // The copy runs the faults' tests, and not the one that makes a copy.
    "crates/testkit/tests",
    "crates/testkit/faults",
];

/// Copies the repository at `from` to `to`, and inserts the hooks. A file that is there with the same contents is not
/// written again, so that nothing is compiled twice; one that the repository does not have any more is removed.
///
/// # Errors
///
/// What cannot be read or written, and a hook whose lines are not in its file exactly once.
pub fn instrument(from: &Path, to: &Path, hooks: &[Hook]) -> io::Result<()> {
    let mut files = Vec::new();
    find(from, Path::new(""), &mut files)?;
    for file in &files {
        let mut contents = fs::read(from.join(file))?;
        let mut hooks = hooks.iter().filter(|hook| Path::new(hook.file) == file).peekable();
        if hooks.peek().is_some() {
            let mut text = String::from_utf8(contents).map_err(io::Error::other)?;
            for hook in hooks {
                text = hooked(&text, hook)?;
            }
            contents = text.into_bytes();
        }
        write(&to.join(file), &contents)?;
    }
    remove_others(to, &files)?;
    let missing = hooks.iter().find(|hook| !files.iter().any(|file| Path::new(hook.file) == file));
    match missing {
        Some(hook) => Err(io::Error::other(format!("{} has hooks and does not exist", hook.file))),
        None => Ok(()),
    }
}

/// Removes files of an earlier copy that are not among these, unless the copy has them in addition.
fn remove_others(copy: &Path, files: &[std::path::PathBuf]) -> io::Result<()> {
    let mut there = Vec::new();
    find(copy, Path::new(""), &mut there)?;
    for file in there {
        let added = file.starts_with("src/fault_injection");
        if !added && files.binary_search(&file).is_err() {
            fs::remove_file(copy.join(file))?;
        }
    }
    Ok(())
}

/// Copies all files of a directory.
///
/// # Errors
///
/// What cannot be read or written.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    find(from, Path::new(""), &mut files)?;
    files.iter().try_for_each(|file| write(&to.join(file), &fs::read(from.join(file))?))
}

/// All files below `from`, relative to it, in the order of their paths.
fn find(from: &Path, below: &Path, files: &mut Vec<std::path::PathBuf>) -> io::Result<()> {
    let mut directories = vec![below.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in from.join(&directory).read_dir()? {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            if LEFT_OUT.iter().any(|left_out| path == Path::new(left_out)) {
                continue;
            }
            match entry.file_type()?.is_dir() {
                true => directories.push(path),
                false => files.push(path),
            }
        }
    }
    files.sort();
    Ok(())
}

/// A text with the code of a hook in it.
fn hooked(text: &str, hook: &Hook) -> io::Result<String> {
    let Hook { file, at, put } = hook;
    let mut lines: Vec<&str> = text.lines().collect();
    let found = |window: &[&str]| window.iter().map(|line| line.trim()).eq(at.iter().copied());
    let mut places = lines.windows(at.len()).enumerate().filter(|(_, window)| found(window));
    let (Some((first, _)), None) = (places.next(), places.next()) else {
        return Err(io::Error::other(format!("{file}: not there once: {at:?}")));
    };
    match put {
        Put::Before(code) => lines.insert(first, code),
        Put::After(code) => lines.insert(first + at.len(), code),
        Put::Instead(code) => drop(lines.splice(first..first + at.len(), [*code])),
    }
    Ok(lines.join("\n") + "\n")
}

/// Writes a file that has other contents, or is not there.
fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|before| before == contents) {
        return Ok(());
    }
    let directory = path.parent().expect("a file is in a directory");
    fs::create_dir_all(directory)?;
    fs::write(path, contents)
}

#[cfg(test)]
mod tests {
    use super::{Hook, Put, hooked};

    #[test]
    fn a_hook_needs_its_lines_once() {
        let hook = Hook { file: "f", at: &["b"], put: Put::Before("x") };
        assert_eq!(hooked("a\n  b\nc\n", &hook).unwrap(), "a\nx\n  b\nc\n");
        let after = Hook { put: Put::After("x"), ..hook };
        assert_eq!(hooked("a\n  b\nc\n", &after).unwrap(), "a\n  b\nx\nc\n");
        let instead = Hook { put: Put::Instead("x"), ..hook };
        assert_eq!(hooked("a\n  b\nc\n", &instead).unwrap(), "a\nx\nc\n");
        assert!(hooked("b\nb\n", &hook).is_err());
        assert!(hooked("a\n", &hook).is_err());
    }
}
