//! Texts and where they come from: files, directories, standard input.
//!
//! One file, several files, standard input (`-`) or a directory are one unit. Reading a text is
//! for `scan` and `unit`.

use crate::error::Place;
use anyhow::{Context as _, Result, bail};
use std::fs::FileType;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// A text and where it comes from.
#[derive(Debug)]
pub struct Source {
    /// The path, or `<stdin>`.
    pub name: String,
    /// Its contents, without a byte order mark.
    pub text: String,
}

/// The bytes that some editors put in front of a text in UTF-8.
pub const BYTE_ORDER_MARK: char = '\u{feff}';

impl Source {
    /// Takes bytes for a text.
    ///
    /// # Errors
    ///
    /// Bytes that are not UTF-8, with line and column.
    pub fn new(name: String, bytes: Vec<u8>) -> Result<Source> {
        match String::from_utf8(bytes) {
            Ok(mut text) => {
                if text.starts_with(BYTE_ORDER_MARK) {
                    text.remove(0);
                }
                Ok(Source { name, text })
            }
            Err(error) => {
                let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = 1 + good.iter().filter(|&&byte| byte == b'\n').count();
                let start = good.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
                // The rest may be anything, of any length.
                let text = String::from_utf8_lossy(&good[start..]) + "\u{fffd}";
                let column = text.chars().count();
                let place = Place::column(&name, line, column);
                Err(place.error("not UTF-8 text").with_line(text.into_owned()).into())
            }
        }
    }
}

/// Reads the texts of a unit.
///
/// # Errors
///
/// Those of [`read_bytes`], and bytes that are not UTF-8, with the path and the line.
pub fn read(paths: &[PathBuf]) -> Result<Vec<Source>> {
    read_bytes(paths)?.into_iter().map(|(name, bytes)| Source::new(name, bytes)).collect()
}

/// Reads the files of a unit, whatever is in them: the name of each, and its bytes.
///
/// # Errors
///
/// Unreadable paths, and directories without texts or with an entry that has the name of a text and
/// is none.
pub fn read_bytes(paths: &[PathBuf]) -> Result<Vec<(String, Vec<u8>)>> {
    let mut all = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
            all.push(("<stdin>".to_owned(), bytes));
        } else if path.is_dir() {
            let mut files = entries(path)?;
            files.retain(|entry| !entry.is_directory);
            if files.is_empty() {
                bail!("{}: the directory has no .clif files", path.display());
            }
            for file in files {
                all.push(read_named(&file.path)?);
            }
        } else {
            all.push(read_named(path)?);
        }
    }
    Ok(all)
}

fn read_named(path: &Path) -> Result<(String, Vec<u8>)> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    Ok((name, bytes))
}

/// Reads a text.
///
/// # Errors
///
/// A file that cannot be read, and bytes that are not UTF-8, with the path and the line.
pub fn read_file(path: &Path) -> Result<Source> {
    let (name, bytes) = read_named(path)?;
    Source::new(name, bytes)
}

/// A directory, or a `.clif` file.
#[derive(Debug)]
pub struct Entry {
    /// Where it is.
    pub path: PathBuf,
    /// Whether the entry is a directory, or a link to one.
    pub is_directory: bool,
}

/// The directories and the `.clif` files right inside a directory, by name. Other files do not
/// matter.
///
/// # Errors
///
/// Directories that cannot be read; and an entry that has the name of a `.clif` file and is none. A
/// pipe that the command line names is read, but a pipe that is found in a directory would be
/// waited for without end.
pub fn entries(directory: &Path) -> Result<Vec<Entry>> {
    let cannot_read = || format!("cannot read directory {}", directory.display());
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(cannot_read)? {
        let path = entry.with_context(cannot_read)?.path();
        let is_clif = path.extension().is_some_and(|extension| extension == "clif");
        let kind = match std::fs::metadata(&path) {
            Ok(metadata) => metadata.file_type(),
            Err(error) if is_clif => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
            // A dangling link, under a name that does not matter.
            Err(_) => continue,
        };
        if is_clif && !kind.is_file() && !kind.is_dir() {
            bail!("{}: {}, not a file", path.display(), name_of(kind));
        }
        if is_clif || kind.is_dir() {
            entries.push(Entry { path, is_directory: kind.is_dir() });
        }
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

/// The kind of an entry that is neither a file nor a directory.
fn name_of(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt as _;
        if kind.is_fifo() {
            return "a pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
    }
    let _ = kind;
    "a device"
}

#[cfg(test)]
mod tests {
    use super::Source;
    use crate::error::TextError;

    /// A file that is no text at all can be one line of megabytes.
    #[test]
    fn a_line_ends_where_it_is_no_text() {
        let bytes = [b"; a\n; b\xff".as_slice(), &[b'x'; 1000]].concat();
        let error = Source::new("a.clif".to_owned(), bytes).unwrap_err();
        assert_eq!(format!("{error:#}"), "a.clif:2:4: not UTF-8 text");
        let error = error.downcast_ref::<TextError>().expect("has a place");
        assert_eq!(error.marks[0].text.as_deref(), Some("; b\u{fffd}"));
    }
}
