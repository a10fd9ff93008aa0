//! The program `text-size`: prints how many bytes the section `.text` of a linked image has, for
//! each file a line.
//!
//! It fails if the image has other executable sections, because the bytes of `.text` are not all of
//! its code then.

use anyhow::{Context as _, Result, bail, ensure};
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectKind, ObjectSection as _, SectionKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        eprintln!("usage: text-size IMAGE…");
        return ExitCode::from(2);
    }
    for path in paths {
        match size(&path) {
            Ok(size) => println!("{size}"),
            Err(error) => {
                eprintln!("error: {}: {error:#}", path.display());
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn size(path: &Path) -> Result<u64> {
    let bytes = std::fs::read(path)?;
    let file = ElfFile64::<Endianness>::parse(&*bytes).context("not an ELF file of 64 bits")?;
    ensure!(file.kind() != ObjectKind::Relocatable, "an object, which is not linked yet");
    let mut size = None;
    for section in file.sections() {
        match (section.name()?, section.kind()) {
            (".text", _) => size = Some(section.size()),
            (name, SectionKind::Text) if section.size() > 0 => bail!("code in {name} as well"),
            _ => {}
        }
    }
    size.context("no section .text")
}
