//! Targets and Cranelift settings, from the command line to a `TargetIsa`.
//!
//! The two short names `x86_64` and `aarch64` mean ELF on Linux; every other target is a
//! triple, as Cranelift reads it. Which architectures there are is up to the features of
//! `cranelift-codegen` that this program is built with.

use crate::error::usage;
use anyhow::Result;
use cranelift_codegen::isa::{self, Builder, LookupError, OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable, Flags, SetError};
use cranelift_mergefunc::cranelift_codegen;
use std::fmt;
use std::str::FromStr as _;
use target_lexicon::{Architecture, BinaryFormat, Triple};

/// The short names of targets, and their triples.
const SHORT: [(&str, &str); 2] =
    [("x86_64", "x86_64-unknown-linux-gnu"), ("aarch64", "aarch64-unknown-linux-gnu")];

/// The settings that hold where `--set` does not say otherwise.
///
/// The verifier is off because every function was verified when it was read. A tail call on x86-64
/// needs frame pointers.
const DEFAULTS: [(&str, &str); 4] = [
    ("opt_level", "speed"),
    ("is_pic", "true"),
    ("preserve_frame_pointers", "true"),
    ("enable_verifier", "false"),
];

/// Defaults that depend on the object format.
fn defaults_of(triple: &Triple) -> &'static [(&'static str, &'static str)] {
    match (triple.binary_format, triple.architecture) {
        (BinaryFormat::Elf, _) => &[("tls_model", "elf_gd")],
        (BinaryFormat::Macho, _) => &[("tls_model", "macho")],
        // A table of addresses is reached in a way that the object writer does not know.
        (BinaryFormat::Coff, Architecture::Aarch64(_)) => {
            &[("tls_model", "coff"), ("is_pic", "false")]
        }
        (BinaryFormat::Coff, _) => &[("tls_model", "coff")],
        _ => &[],
    }
}

/// A Cranelift setting as the command line gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name, shared or of one architecture.
    pub name: String,
    /// The value; without one, the setting is switched on.
    pub value: Option<String>,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { name, value } = self;
        match value {
            None => write!(f, "{name}"),
            Some(value) => write!(f, "{name}={value}"),
        }
    }
}

/// Reads `NAME` or `NAME=VALUE`.
pub fn parse_setting(text: &str) -> Result<Setting, String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    match name.is_empty() {
        true => Err("a setting is NAME or NAME=VALUE".to_owned()),
        false => Ok(Setting { name: name.to_owned(), value }),
    }
}

/// Reads a short name or a triple of a target that this program can compile for.
pub fn parse_target(text: &str) -> Result<Triple, String> {
    let long = SHORT.iter().find(|(short, _)| *short == text).map_or(text, |(_, long)| long);
    let hint = "use x86_64, aarch64 or a triple such as aarch64-apple-darwin";
    let triple = Triple::from_str(long).map_err(|error| format!("{error}; {hint}"))?;
    match isa::lookup(triple.clone()) {
        Ok(_) => Ok(triple),
        Err(LookupError::SupportDisabled | LookupError::Unsupported) => {
            Err(format!("there is no back end for {}; {hint}", triple.architecture))
        }
    }
}

/// The target of one of the short names.
pub fn short(name: &str) -> Triple {
    parse_target(name).expect("a short name")
}

/// The name of the architecture of a target in messages.
pub fn name_of(isa: &dyn TargetIsa) -> &'static str {
    match isa.name() {
        "x64" => "x86_64",
        name => name,
    }
}

/// The name of a target in reports: its short name if it has one, or else its triple.
pub fn title_of(isa: &dyn TargetIsa) -> String {
    let triple = isa.triple().to_string();
    let short = SHORT.iter().find(|(_, long)| *long == triple);
    short.map_or(triple, |(short, _)| (*short).to_owned())
}

/// An ISA for each target, all under the same settings. A setting of one architecture holds for
/// the targets that know it.
///
/// # Errors
///
/// A setting that none of the targets knows, and a value that it cannot have.
pub fn build<const N: usize>(
    targets: [Triple; N],
    given: &[Setting],
) -> Result<[OwnedTargetIsa; N]> {
    let isas = build_all(&targets, given)?;
    Ok(isas.try_into().unwrap_or_else(|_| unreachable!("one ISA for each target")))
}

/// [`build`] for any number of targets.
///
/// # Errors
///
/// Those of [`build`].
pub fn build_all(targets: &[Triple], given: &[Setting]) -> Result<Vec<OwnedTargetIsa>> {
    let mut builders: Vec<(&Triple, settings::Builder, Builder)> = Vec::new();
    for triple in targets {
        let builder = isa::lookup(triple.clone()).map_err(|error| usage(error.to_string()))?;
        let mut shared = settings::builder();
        for (name, value) in DEFAULTS.iter().chain(defaults_of(triple)) {
            shared.set(name, value).expect("a default setting");
        }
        builders.push((triple, shared, builder));
    }
    for setting in given {
        let mut known = false;
        for (_, shared, builder) in &mut builders {
            known |= apply(shared, setting)? || apply(builder, setting)?;
        }
        if !known {
            return Err(usage(format!(
                "unknown setting '{}': neither a shared setting of Cranelift nor one of the target",
                setting.name,
            )));
        }
    }
    let mut isas = Vec::new();
    for (triple, shared, builder) in builders {
        let isa = builder
            .finish(Flags::new(shared))
            .map_err(|error| usage(format!("no code can be made for {triple}: {error}")))?;
        isas.push(isa);
    }
    Ok(isas)
}

/// `isa` with the settings of these names switched on, shared or of its own; `None` if it cannot
/// have one of them.
pub fn with(isa: &dyn TargetIsa, switched_on: &[&str]) -> Option<OwnedTargetIsa> {
    let mut builder = isa::lookup(isa.triple().clone()).ok()?;
    let mut shared = settings::builder();
    for value in isa.flags().iter() {
        shared.set(value.name, &value.value_string()).ok()?;
    }
    for value in isa.isa_flags() {
        builder.set(value.name, &value.value_string()).ok()?;
    }
    for name in switched_on {
        shared.enable(name).or_else(|_| builder.enable(name)).ok()?;
    }
    builder.finish(Flags::new(shared)).ok()
}

/// The settings that have to be switched on, and are off for `isa`, so that `works`: as few as one
/// can come to by leaving out one after the other. Empty if none has to be, `None` if no such
/// settings help.
///
/// There is no list of what needs what: settings are tried, first all extensions of the instruction
/// set together, without which the back end refuses instructions, and then each shared setting. So
/// `works` is asked as often as there are settings.
pub fn missing(
    isa: &dyn TargetIsa,
    works: &mut dyn FnMut(&dyn TargetIsa) -> bool,
) -> Option<Vec<&'static str>> {
    let mut try_with = |names: &[&'static str]| with(isa, names).is_some_and(|isa| works(&*isa));
    if try_with(&[]) {
        return Some(Vec::new());
    }
    let off = |value: &settings::Value| value.as_bool() == Some(false);
    let mut extensions: Vec<&'static str> =
        isa.isa_flags().iter().filter(|value| off(value)).map(|value| value.name).collect();
    if try_with(&extensions) {
        // Later extensions tend to imply earlier ones, so they are left out first.
        for at in (0..extensions.len()).rev() {
            let name = extensions.remove(at);
            if !try_with(&extensions) {
                extensions.insert(at, name);
            }
        }
        return Some(extensions);
    }
    let mut shared = isa.flags().iter().filter(off).map(|value| value.name);
    shared.find(|name| try_with(&[name])).map(|name| vec![name])
}

/// Checks that one of the targets can have a setting.
///
/// # Errors
///
/// Why not.
pub fn check_setting(targets: &[Triple], setting: &Setting) -> Result<()> {
    let mut result = Ok(());
    for target in targets {
        result = build([target.clone()], std::slice::from_ref(setting)).map(drop);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Makes a setting in one group of settings. Returns whether the group has it.
///
/// # Errors
///
/// A value that it cannot have.
pub fn apply(group: &mut dyn Configurable, setting: &Setting) -> Result<bool> {
    let Setting { name, value } = setting;
    let result = match value {
        Some(value) => group.set(name, value),
        None => group.enable(name),
    };
    match result {
        Ok(()) => Ok(true),
        Err(SetError::BadName(_)) => Ok(false),
        Err(SetError::BadType) if value.is_none() => {
            Err(usage(format!("setting '{name}' needs a value: {name}=...")))
        }
        Err(error @ (SetError::BadType | SetError::BadValue(_))) => {
            Err(usage(format!("setting '{name}': {error}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{SHORT, Setting, build, parse_setting, parse_target, short};

    #[test]
    fn short_names_are_targets() {
        for (name, _) in SHORT {
            assert!(build([short(name)], &[]).is_ok());
        }
    }

    #[test]
    fn unknown_targets_are_errors() {
        for text in ["", "x87", "riscv64-unknown-linux-gnu", "wasm32-unknown-unknown"] {
            assert!(parse_target(text).is_err(), "{text}");
        }
    }

    #[test]
    fn settings_are_checked() {
        let with = |text| {
            build(
                [short("x86_64"), short("aarch64")],
                &[parse_setting(text)?.clone()].map(|setting: Setting| setting),
            )
            .map(drop)
            .map_err(|error| error.to_string())
        };
        assert_eq!(with("opt_level=none"), Ok(()));
        assert_eq!(with("has_sse41"), Ok(()));
        assert_eq!(with("use_bti=true"), Ok(()));
        assert!(with("no_such").unwrap_err().contains("unknown setting"));
        assert!(with("opt_level").unwrap_err().contains("needs a value"));
        assert!(with("opt_level=fast").unwrap_err().contains("opt_level"));
        assert!(with("=1").is_err());
    }
}
