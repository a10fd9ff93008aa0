//! Links and runs object files of programs, many at once.

use crate::checked::checked;
use crate::incremental::{Finding, Image, Program, Statistics, Units, compare, main_of, objects};
use crate::tools::{Kind, Toolchain, Workshop};

pub struct Linker {
    workshop: Workshop,
    tools: Toolchain,
}

impl Linker {
    /// In a directory of its own, which `name` is a part of the name of.
    pub fn new(tools: Toolchain, name: &str) -> Linker {
        Linker { workshop: Workshop::new(&format!("linked-{name}")), tools }
    }

    /// The programs whose flushes are units, as their objects were made: what they do linked with
    /// these flags, and what they do as one plain object each.
    ///
    /// # Errors
    ///
    /// Programs that cannot be linked or run, or that differ.
    ///
    /// # Panics
    ///
    /// If a plain program cannot be linked or run.
    pub fn check_units(
        &self,
        units: &[(String, &Units<'_>)],
        kind: Kind,
        flags: &[&str],
    ) -> Result<(), String> {
        let image = if kind == Kind::Shared { Image::Shared } else { Image::Program };
        let mut files: [Vec<String>; 2] = Default::default();
        for (prefix, units) in units {
            let (plain, merged) = (std::slice::from_ref(&units.plain), &units.merged[..]);
            for (files, (objects, which)) in
                files.iter_mut().zip([(plain, "plain"), (merged, "unit")])
            {
                for (at, object) in objects.iter().enumerate() {
                    let file = format!("{which}{prefix}{at}.o");
                    self.workshop.write(&file, object);
                    files.push(file);
                }
            }
        }
        let programs: Vec<(&str, &Program)> =
            units.iter().map(|(prefix, units)| (prefix.as_str(), units.program)).collect();
        self.workshop.write("main.c", main_of(&programs, image));
        self.workshop.run(self.tools.gcc, &["-w", "-O0", "-fPIE", "-c", "main.c", "-o", "main.o"]);
        let printed = files.map(|files| {
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            let flags = [&["-w"], flags].concat();
            self.workshop.link_and_run(&self.tools, (kind, "main"), "main.o", &files, &flags)
        });
        let [plain, merged] = printed;
        let plain = plain.unwrap_or_else(|said| panic!("the plain programs: {said}"));
        let differ = compare(&programs, image, [&plain, &merged?]);
        match differ.first() {
            None => Ok(()),
            Some((at, finding)) => Err(format!("program {at}: {finding}")),
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
                made = Some(objects(program, &prefix, self.tools.triple, statistics)?);
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
        self.workshop.run(self.tools.gcc, &["-w", "-O0", "-fPIE", "-c", "main.c", "-o", "main.o"]);
        let printed = files.map(|files| {
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            self.workshop.link_and_run(&self.tools, (kind, "main"), "main.o", &files, &["-w"])
        });
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
                findings.push((0, Finding::new(format!("cannot be linked or run: {said}"))));
                return findings;
            }
        };
        let differ = compare(&linked, image, printed);
        findings.extend(differ.into_iter().map(|(at, finding)| (numbers[at].0, finding)));
        findings
    }
}
