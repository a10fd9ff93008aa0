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
    /// Whole lines that are in the file once, without their indentation.
    pub before: &'static [&'static str],
    /// What is inserted before them.
    pub insert: &'static str,
}

/// What of the repository is not copied: build output, histories, and packages with workspaces of their own.
const LEFT_OUT: [&str; 6] =
    ["target", ".git", "fuzz", "examples/wasm-unit", "tests/no-std", "tests/other-targets"];

/// Copies the repository at `from` to `to`, and inserts the hooks. A file that is there with the same contents is not
/// written again, so that nothing is compiled twice.
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
    let missing = hooks.iter().find(|hook| !files.iter().any(|file| Path::new(hook.file) == file));
    match missing {
        Some(hook) => Err(io::Error::other(format!("{} has hooks and does not exist", hook.file))),
        None => Ok(()),
    }
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
    let lines: Vec<&str> = text.lines().collect();
    let found = |window: &[&str]| window.iter().map(|line| line.trim()).eq(hook.before.iter().copied());
    let mut places = lines.windows(hook.before.len()).enumerate().filter(|(_, window)| found(window));
    let (Some((at, _)), None) = (places.next(), places.next()) else {
        let Hook { file, before, .. } = hook;
        return Err(io::Error::other(format!("{file}: not there once: {before:?}")));
    };
    let mut hooked = String::new();
    for (number, line) in lines.iter().enumerate() {
        if number == at {
            hooked += hook.insert;
            hooked.push('\n');
        }
        hooked += line;
        hooked.push('\n');
    }
    Ok(hooked)
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
    use super::{Hook, hooked};

    #[test]
    fn a_hook_needs_its_lines_once() {
        let hook = Hook { file: "f", before: &["b"], insert: "x" };
        assert_eq!(hooked("a\n  b\nc\n", &hook).unwrap(), "a\nx\n  b\nc\n");
        assert!(hooked("b\nb\n", &hook).is_err());
        assert!(hooked("a\n", &hook).is_err());
    }
}
