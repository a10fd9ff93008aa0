//! Where results go: standard output, a file, or whatever else a path names.
//!
//! A regular file is replaced as a whole: the result is written to a temporary file next to it,
//! which then takes its name, so that an error leaves the old file as it was. A path that is not a
//! regular file (a pipe, `/dev/null`) is written to directly. A link stays what it is, and what it
//! leads to is written, whether it is there or not.

use crate::exit::is_broken_pipe;
use crate::unfinished;
use anyhow::{Context as _, Result, bail};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// A place for a result, known to be writable as far as that can be known before writing.
#[derive(Debug)]
pub struct Output {
    /// The path as the user gave it.
    name: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Stdout,
    /// Not a regular file, or one that is open.
    Direct,
    /// A regular file, with links resolved, and its permissions if it exists.
    Replace {
        path: PathBuf,
        permissions: Option<Permissions>,
    },
}

impl Output {
    /// Checks that `path` can be written to, before the work that makes something to write.
    ///
    /// # Errors
    ///
    /// Errors of the system, with the path.
    pub fn check(path: &Path) -> Result<Output> {
        let name = path.to_owned();
        let cannot_write = || format!("cannot write {}", name.display());
        if path.as_os_str() == "-" || path == Path::new("/dev/stdout") {
            return Ok(Output { name, kind: Kind::Stdout });
        }
        let kind = match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                bail!("cannot write {}: it is a directory", name.display())
            }
            Ok(metadata) if metadata.is_file() && !is_descriptor(path) => {
                // A temporary file could take the place of a file that must not be written.
                OpenOptions::new().write(true).open(path).with_context(cannot_write)?;
                let path = std::fs::canonicalize(path).with_context(cannot_write)?;
                Kind::Replace { path, permissions: Some(metadata.permissions()) }
            }
            Ok(_) => Kind::Direct,
            Err(_) => Kind::Replace {
                path: end_of_links(path).with_context(cannot_write)?,
                permissions: None,
            },
        };
        let output = Output { name, kind };
        if let Kind::Replace { path, permissions: _ } = &output.kind {
            // It is made again when there is something to write, so that a long run that is cut
            // short leaves nothing behind.
            drop(temporary(path).with_context(|| output.cannot_write())?);
            unfinished::finished();
        }
        Ok(output)
    }

    fn cannot_write(&self) -> String {
        match self.kind {
            Kind::Stdout => "cannot write standard output".to_owned(),
            Kind::Direct | Kind::Replace { .. } => format!("cannot write {}", self.name.display()),
        }
    }

    /// Whether what is written appears on a terminal.
    pub fn is_terminal(&self) -> bool {
        match self.kind {
            Kind::Stdout => std::io::stdout().is_terminal(),
            Kind::Direct => OpenOptions::new()
                .append(true)
                .open(&self.name)
                .is_ok_and(|file| file.is_terminal()),
            Kind::Replace { .. } => false,
        }
    }

    /// Writes the whole result.
    ///
    /// # Errors
    ///
    /// Errors of the system, with the path. A file is then as it was before.
    pub fn write(self, contents: &[u8]) -> Result<()> {
        let written = match &self.kind {
            Kind::Stdout => {
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(contents).and_then(|()| stdout.flush())
            }
            // Appending, because `/dev/fd/3` can be a file that has something in it already.
            Kind::Direct => OpenOptions::new()
                .append(true)
                .open(&self.name)
                .and_then(|mut file: File| file.write_all(contents)),
            Kind::Replace { path, permissions } => replace(path, permissions.clone(), contents),
        };
        written.with_context(|| self.cannot_write())
    }

    /// Writes a text. A pipe that is closed is no error: the exit code depends on the results only.
    ///
    /// # Errors
    ///
    /// Those of `write`, except a closed pipe.
    pub fn write_text(self, text: &str) -> Result<()> {
        match self.write(text.as_bytes()) {
            Err(error) if is_broken_pipe(&error) => Ok(()),
            written => written,
        }
    }

    /// Writes a result piece by piece.
    ///
    /// # Errors
    ///
    /// Those of `write`, and what the system says, with the path. A file is then as it was before.
    pub fn write_with(self, write: &mut dyn FnMut(&mut dyn Write) -> Result<()>) -> Result<()> {
        match &self.kind {
            Kind::Stdout => {
                let mut stdout = std::io::stdout().lock();
                write(&mut stdout)?;
                stdout.flush().with_context(|| self.cannot_write())
            }
            Kind::Direct => {
                let file = OpenOptions::new().append(true).open(&self.name);
                write(&mut file.with_context(|| self.cannot_write())?)
            }
            Kind::Replace { path, permissions } => {
                let file = temporary(path).with_context(|| self.cannot_write());
                let written = file.and_then(|file| {
                    let mut file = BufWriter::new(file);
                    write(&mut file)?;
                    let file = file.into_inner().map_err(|error| error.into_error());
                    let file = file.and_then(|file| persist(file, path, permissions.clone()));
                    file.with_context(|| self.cannot_write())
                });
                unfinished::finished();
                written
            }
        }
    }
}

/// Writes text to standard output.
///
/// # Errors
///
/// Errors of the system except a closed pipe.
pub fn print(text: &str) -> Result<()> {
    Output { name: PathBuf::from("-"), kind: Kind::Stdout }.write_text(text)
}

/// Whether a path is another name for an open file, whose own name must not be given away.
fn is_descriptor(path: &Path) -> bool {
    path.starts_with("/dev/fd") || path.starts_with("/proc") || path == Path::new("/dev/stderr")
}

fn replace(path: &Path, permissions: Option<Permissions>, contents: &[u8]) -> std::io::Result<()> {
    let replaced = temporary(path).and_then(|mut file| {
        file.write_all(contents)?;
        persist(file, path, permissions)
    });
    unfinished::finished();
    replaced
}

/// Gives a finished temporary file its name.
fn persist(
    file: NamedTempFile,
    path: &Path,
    permissions: Option<Permissions>,
) -> std::io::Result<()> {
    if let Some(permissions) = permissions {
        file.as_file().set_permissions(permissions)?;
    }
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// The most links that lead from one to the other, as in Linux.
const MAX_LINKS: usize = 40;

/// Where a path leads that is not there: to itself, or where links lead that begin with it.
fn end_of_links(path: &Path) -> std::io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = std::fs::read_link(&path) else { return Ok(path) };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(std::io::Error::other("too many links lead from one to the other"))
}

/// A temporary file in the directory of `path`, with the permissions that a new file gets; until
/// [`unfinished::finished`].
fn temporary(path: &Path) -> std::io::Result<NamedTempFile> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut builder = Builder::new();
    builder.prefix(".clif-merge-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // The system takes away what the user's mask forbids.
        builder.permissions(Permissions::from_mode(0o666));
    }
    unfinished::begin(|| builder.tempfile_in(directory)).map_err(without_path)
}

/// The error without the name of the temporary file, which would only confuse.
fn without_path(error: std::io::Error) -> std::io::Error {
    match error.to_string().split_once(" at path ") {
        Some((message, _)) => std::io::Error::new(error.kind(), message),
        None => error,
    }
}
