//! Copies of source trees with code inserted at given lines: faults in a copy of this workspace,
//! merging in a copy of an engine.
//!
//! A hook names the lines, so that a tree that changed is refused and not built wrongly. It does
//! *not* say what is inserted, nor build or run anything.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Code that is inserted into a file of the copy.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// Relative to the root of the tree.
    pub file: &'static str,
    /// Whole lines that stand together in the file once, without their indentation.
    pub at: &'static [&'static str],
    /// The edit of the lines.
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

/// Copies the tree at `from` to `to`, without the directories that are `left_out`, and inserts the
/// hooks. A file that is there with the same contents is not written again, so that nothing is
/// compiled twice; one that the tree does not have any more is removed, unless it is in a directory
/// that the copy has in addition, `added`.
///
/// # Errors
///
/// Files that cannot be read or written, and a hook whose lines are not in its file exactly once.
pub fn instrument(
    (from, left_out): (&Path, &[&str]),
    (to, added): (&Path, &[&str]),
    hooks: &[Hook],
) -> io::Result<()> {
    let files = find(from, left_out)?;
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
    remove_others(to, added, &files)?;
    let missing = hooks.iter().find(|hook| !files.iter().any(|file| Path::new(hook.file) == file));
    match missing {
        Some(hook) => Err(io::Error::other(format!("{} has hooks and does not exist", hook.file))),
        None => Ok(()),
    }
}

/// Removes files of an earlier copy that are not among these, unless the copy has them in addition.
fn remove_others(copy: &Path, added: &[&str], files: &[PathBuf]) -> io::Result<()> {
    // Nothing is built in a copy but what it has in addition.
    for file in find(copy, added)? {
        if files.binary_search(&file).is_err() {
            fs::remove_file(copy.join(file))?;
        }
    }
    Ok(())
}

/// Copies all files of a directory.
///
/// # Errors
///
/// Files that cannot be read or written.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    find(from, &[])?.iter().try_for_each(|file| write(&to.join(file), &fs::read(from.join(file))?))
}

/// All files below `from`, relative to it, in the order of their paths, but for those of
/// directories that are `left_out`.
fn find(from: &Path, left_out: &[&str]) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut directories) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(directory) = directories.pop() {
        for entry in from.join(&directory).read_dir()? {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            if left_out.iter().any(|left_out| path == Path::new(left_out)) {
                continue;
            }
            match entry.file_type()?.is_dir() {
                true => directories.push(path),
                false => files.push(path),
            }
        }
    }
    files.sort();
    Ok(files)
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

/// Writes a file that has other contents, or is not there, with its directories.
///
/// # Errors
///
/// Files that cannot be written.
///
/// # Panics
///
/// If the path is none of a file.
pub fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
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
