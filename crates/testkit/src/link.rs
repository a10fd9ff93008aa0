//! Links and runs object files of programs, many at once.

use crate::checked::checked;
use crate::incremental::{Finding, Image, Program, Statistics, compare, main_of, objects};
use crate::tools::{Workshop, need};
use std::process::Command;

/// How object files become a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Static,
    Pie,
    Shared,
}

pub struct Linker {
    workshop: Workshop,
    triple: &'static str,
    gcc: &'static str,
    run: &'static [&'static str],
}

impl Linker {
    /// `name` is that of the test, which has a directory of its own.
    pub fn x86_64(name: &str) -> Linker {
        need("gcc");
        Linker {
            workshop: Workshop::new(&format!("over-time-{name}")),
            triple: "x86_64-unknown-linux-gnu",
            gcc: "gcc",
            run: &[],
        }
    }

    pub fn aarch64() -> Linker {
        need("aarch64-linux-gnu-gcc");
        need("qemu-aarch64");
        Linker {
            workshop: Workshop::new("over-time-aarch64"),
            triple: "aarch64-unknown-linux-gnu",
            gcc: "aarch64-linux-gnu-gcc",
            run: &["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"],
        }
    }

    /// The differences between the plain and the merged programs, by number.
    pub fn check(
        &self,
        programs: &[&Program],
        kind: Kind,
        statistics: &mut Statistics,
    ) -> Vec<(usize, Finding)> {
        let image = if kind == Kind::Shared { Image::Shared } else { Image::Program };
        let mut findings = Vec::new();
        let mut numbers = Vec::new();
        let mut files: [Vec<String>; 2] = [Vec::new(), Vec::new()];
        for (number, program) in programs.iter().enumerate() {
            let prefix = format!("p{number}_");
            let mut made = None;
            let result = checked(program, &mut |program| {
                made = Some(objects(program, &prefix, self.triple, statistics)?);
                Ok(())
            });
            match (result, made) {
                (Ok(()), Some(objects)) => {
                    for ((files, object), which) in
                        files.iter_mut().zip(objects).zip(["plain", "merged"])
                    {
                        let file = format!("{which}{number}.o");
                        self.workshop.write(&file, object);
                        files.push(file);
                    }
                    numbers.push((number, prefix));
                }
                (Err(finding), _) => findings.push((number, finding)),
                (Ok(()), None) => unreachable!("there are objects or a finding"),
            }
        }
        if numbers.is_empty() {
            return findings;
        }
        let linked: Vec<(&str, &Program)> =
            numbers.iter().map(|(number, prefix)| (prefix.as_str(), programs[*number])).collect();
        self.workshop.write("main.c", main_of(&linked, image));
        self.workshop.run(self.gcc, &["-w", "-O0", "-fPIE", "-c", "main.c", "-o", "main.o"]);
        let printed = [0, 1].map(|which| self.link_and_run(&files[which], kind));
        let printed = match &printed {
            [Ok(plain), Ok(merged)] => [plain.as_str(), merged],
            [Err(said), _] => panic!("the plain programs: {said}"),
            // Finds out which one of them.
            [Ok(_), Err(_)] if programs.len() > 1 => {
                let single = programs.iter().enumerate().flat_map(|(number, program)| {
                    let findings = self.check(&[program], kind, &mut Statistics::default());
                    findings.into_iter().map(move |(_, finding)| (number, finding))
                });
                return single.collect();
            }
            [Ok(_), Err(said)] => {
                findings.push((0, Finding::new(format!("cannot be linked: {said}"))));
                return findings;
            }
        };
        let differ = compare(&linked, image, printed);
        findings.extend(differ.into_iter().map(|(at, finding)| (numbers[at].0, finding)));
        findings
    }

    /// The output of the program, or the error of the linker.
    fn link_and_run(&self, files: &[String], kind: Kind) -> Result<String, String> {
        let mut link: Vec<&str> = match kind {
            Kind::Static => vec!["-static", "main.o", "-o", "main"],
            Kind::Pie => vec!["-pie", "main.o", "-o", "main"],
            Kind::Shared => vec!["-shared", "-o", "libunit.so"],
        };
        link.extend(files.iter().map(String::as_str));
        self.link(&link)?;
        if kind == Kind::Shared {
            let rpath = "-Wl,-rpath,$ORIGIN";
            self.link(&["-pie", "-rdynamic", "main.o", "libunit.so", rpath, "-o", "main"])?;
        }
        let program = self.workshop.path("main");
        let program = program.to_str().expect("a path that is text");
        let command: Vec<&str> = self.run.iter().copied().chain([program]).collect();
        Ok(self.workshop.run(command[0], &command[1..]))
    }

    fn link(&self, arguments: &[&str]) -> Result<(), String> {
        let mut command = Command::new(self.gcc);
        let output = command.args(arguments).current_dir(self.workshop.path("")).output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", self.gcc));
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(said.into_owned()) }
    }
}
