//! The program `text-size`: prints how many bytes the section `.text` of a linked image has, for each file a line.
//!
//! It fails if the image has other executable sections, because the bytes of `.text` are not all of its code then.

use anyhow::{Context as _, Result, bail, ensure};
use object::read::elf::{ElfFile64, FileHeader as _, SectionHeader as _};
use object::{Endianness, elf};
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
    let (header, endian) = (file.elf_header(), file.endian());
    ensure!(header.e_type(endian) != elf::ET_REL, "an object, which is not linked yet");
    let mut size = None;
    let sections = file.elf_section_table();
    let names = sections.strings()?;
    for section in sections.iter() {
        let executable = section.sh_flags(endian) & u64::from(elf::SHF_EXECINSTR) != 0;
        let (name, bytes) = (section.name(endian, names)?, section.sh_size(endian));
        match name {
            b".text" => size = Some(bytes),
            _ if executable && bytes > 0 => {
                bail!("code in section {} as well", String::from_utf8_lossy(name))
            }
            _ => {}
        }
    }
    size.context("no section .text")
}
