//! Arguments that several subcommands share, and what they mean.
//!
//! Each group is flattened into the options of the subcommands that need it. The group is
//! turned into plain data here; nothing is read or written but the unit.

use crate::canonical::canonicalize;
use crate::exit::usage;
use crate::input::{Files, Sources};
use crate::jobs::Jobs;
use crate::progress::ProgressLine;
use anyhow::Result;
use clap::ValueEnum;
use clif_unit::directives::{parse_addresses, parse_linkage};
use clif_unit::error::with_lines;
use clif_unit::header::Headers;
use clif_unit::isa::{self, Setting, parse_setting, parse_target};
use clif_unit::marks::{Marks, Pattern, parse_pattern, read_patterns};
use clif_unit::sources::Source;
use clif_unit::unit::{self, Reading, Unit};
use clif_unit::verify::Verifier;
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa, TargetIsa};
use cranelift_mergefunc::thunk::CallThunks;
use cranelift_mergefunc::{
    Addresses, Attributes, Callees, Compare, Instructions, Linkage, Options, Policy, Similar,
    Target, cranelift_codegen,
};
use std::path::PathBuf;
use target_lexicon::Triple;

/// Where the unit comes from, and the defaults where no directive applies.
#[derive(Debug, clap::Args)]
pub struct Input {
    /// CLIF files, directories of .clif files, a WebAssembly module or component, or '-' for
    /// standard input; together they are one unit
    ///
    /// WebAssembly (.wasm, or .wat as text) is translated by Wasmtime, without optimisation.
    #[arg(required = true, value_name = "IN")]
    pub paths: Vec<PathBuf>,

    #[command(flatten)]
    pub defaults: Defaults,
}

/// The defaults where no directive applies.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Defaults without directives")]
pub struct Defaults {
    /// The linkage of functions that have no 'linkage' directive: export, hidden, local or
    /// preemptible [default: export; of WebAssembly: local, except its exports]
    ///
    /// export: visible outside the linked image. hidden: visible to other units of the image.
    /// local: visible in this unit only. preemptible: visible outside, and another definition may
    /// take its place.
    #[arg(
        long,
        value_name = "LINKAGE",
        value_parser = linkage,
    )]
    pub linkage: Option<Linkage>,

    /// Whether the addresses of functions that have no 'addresses' directive are compared:
    /// significant or insignificant [default: significant; of WebAssembly: insignificant]
    ///
    /// A function whose address is significant keeps one of its own. If addresses are
    /// not compared, 'insignificant' lets more functions merge completely.
    #[arg(
        long,
        value_name = "ADDRESSES",
        value_parser = addresses,
    )]
    pub addresses: Option<Addresses>,

    /// Functions that are exported, whatever --linkage says: a pattern of names, such as 'u0:12' or
    /// '%api_*'; may be repeated
    ///
    /// In a pattern, '*' matches any text, '?' one character, '[a-z]' one of several, '{a,b}' one
    /// of several texts, and a backslash before any of them that character itself. A pattern has to
    /// match a whole name, and at least one function. A 'linkage' directive of a function, or of
    /// all functions below it (';@ defaults'), takes precedence.
    #[arg(long, value_name = "PATTERN", value_parser = exported)]
    pub export: Vec<Pattern>,

    /// A file of patterns for --export, one on each line; lines that begin with '#' are comments
    #[arg(long, value_name = "FILE")]
    pub export_file: Vec<PathBuf>,

    /// Functions that code outside of the unit calls, such as those in a table: a pattern of names;
    /// may be repeated
    ///
    /// They keep their symbols, as those with the directive 'externally-called' do.
    #[arg(long, value_name = "PATTERN", value_parser = externally_called)]
    pub externally_called: Vec<Pattern>,

    /// A file of patterns for --externally-called
    #[arg(long, value_name = "FILE")]
    pub externally_called_file: Vec<PathBuf>,

    /// Whether the addresses of data objects that have no 'addresses' attribute are compared:
    /// significant or insignificant
    #[arg(
        long,
        value_name = "ADDRESSES",
        default_value = "significant",
        value_parser = addresses,
    )]
    pub data_addresses: Addresses,
}

/// Reads the value of `--linkage`.
pub fn linkage(text: &str) -> Result<Linkage, String> {
    parse_linkage(text).map_err(|error| error.to_string())
}

/// Reads the value of `--addresses` and `--data-addresses`.
pub fn addresses(text: &str) -> Result<Addresses, String> {
    parse_addresses(text).map_err(|error| error.to_string())
}

/// Reads the value of `--export`.
fn exported(text: &str) -> Result<Pattern, String> {
    parse_pattern("--export", text)
}

/// Reads the value of `--externally-called`.
fn externally_called(text: &str) -> Result<Pattern, String> {
    parse_pattern("--externally-called", text)
}

impl Defaults {
    /// The marks of functions by their names.
    fn marks(&self) -> Result<Marks> {
        let all = |patterns: &[Pattern], files: &[PathBuf]| -> Result<Vec<Pattern>> {
            let mut all = patterns.to_vec();
            for file in files {
                all.append(&mut read_patterns(file)?);
            }
            Ok(all)
        };
        Marks::new(
            all(&self.export, &self.export_file)?,
            all(&self.externally_called, &self.externally_called_file)?,
        )
    }
}

impl Input {
    /// Reads the files of the unit. Its texts can name its target, for which a module among them is
    /// to be translated.
    ///
    /// # Errors
    ///
    /// Paths that cannot be read, and more than one module.
    pub fn open(&self) -> Result<Files> {
        if self.paths.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
            return Err(usage("standard input can be read only once"));
        }
        Files::read(&self.paths)
    }

    /// Reads the unit from its texts, on the threads of `jobs`. Functions that are not valid for
    /// every target are verified for that of `isa`.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, with path and line.
    pub fn read(
        &self,
        sources: &Sources,
        isa: &dyn TargetIsa,
        jobs: &Jobs,
        general: &General,
    ) -> Result<Unit> {
        let mut marks = self.defaults.marks()?;
        let Defaults { linkage, addresses, data_addresses, .. } = self.defaults;
        let defaults = |otherwise: Attributes| Attributes {
            linkage: linkage.unwrap_or(otherwise.linkage),
            addresses: addresses.unwrap_or(otherwise.addresses),
            ..otherwise
        };
        sources.mark(&mut marks, defaults);
        let functions = defaults(Attributes::default());
        let defaults = unit::Defaults { functions, data_addresses };
        let verifier = Verifier::new(isa);
        let call_conv = CallConv::Fast;
        let parallel = jobs.count() > 1;
        let reading = Reading { defaults, marks, call_conv, verifier: &verifier, parallel };
        let mut progress = ProgressLine::new("reading", 0, general.quiet);
        jobs.run(|| unit::parse_unit_with(&sources.texts, reading, &mut progress))
    }
}

/// How functions are merged.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Merging")]
pub struct Pass {
    /// Compare every function, even one whose size no other function has
    ///
    /// Finds functions that differ only in unused entities, and takes longer.
    #[arg(long)]
    pub walk_all: bool,

    /// How every function is changed before it is compared
    #[arg(long, value_enum, value_name = "HOW", default_value_t = How::None)]
    pub canonicalize: How,

    /// Do not merge functions that differ in debug information
    ///
    /// Source locations, debug tags, value labels and keys of stack slots.
    #[arg(long)]
    pub compare_debug_info: bool,

    /// Perform only the first N merges
    ///
    /// Merges are counted in the order of the names of the merged functions. 'clif-merge bisect'
    /// finds the merge that breaks a program.
    #[arg(long, value_name = "N")]
    pub merge_limit: Option<u32>,

    /// Which functions that differ only in constants and callees are merged, too
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = SimilarPolicy::Balanced)]
    pub similar: SimilarPolicy,

    /// How functions that differ in their callees are merged
    #[arg(long, value_enum, value_name = "HOW", default_value_t = CalleeParameters::Indirect)]
    pub callees: CalleeParameters,

    /// How functions that differ in few instructions are merged
    #[arg(long, value_enum, value_name = "HOW", default_value_t = DifferingInstructions::Select)]
    pub instructions: DifferingInstructions,

    /// Keep the symbol of every function that is merged with similar ones
    #[arg(long)]
    pub keep_symbols: bool,

    /// Pass extra arguments in integer registers and on the stack only
    ///
    /// For code that must not touch floating-point registers, such as that of a kernel.
    #[arg(long)]
    pub integer_registers_only: bool,

    /// Check the result: an independent proof of every merge, and Cranelift's verifier; takes
    /// longer
    ///
    /// If something is wrong, nothing is written, and the exit code is 4: report it as a bug.
    #[arg(long)]
    pub verify: bool,
}

/// The values of `--canonicalize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum How {
    /// Nothing: functions are compared as they are
    None,
    /// Cranelift's optimisations and rules of clif-merge; slower, and rarely finds more
    Optimize,
}

/// The values of `--similar`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SimilarPolicy {
    /// None
    Off,
    /// Those that save an eighth of their bytes, without new calls through pointers in loops
    Balanced,
    /// Those that save a 32nd of their bytes
    Size,
}

impl SimilarPolicy {
    /// The policy of the pass.
    pub fn policy(self) -> Policy {
        match self {
            SimilarPolicy::Off => Policy::Off,
            SimilarPolicy::Balanced => Policy::Balanced,
            SimilarPolicy::Size => Policy::Size,
        }
    }
}

/// The values of `--callees`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CalleeParameters {
    /// They are not merged
    None,
    /// A function that takes a case number and dispatches among direct calls
    Dispatch,
    /// A function that takes the address of the callee, or dispatches, whichever is smaller
    Indirect,
}

/// The values of `--instructions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DifferingInstructions {
    /// They are not merged
    None,
    /// A function that takes a selector and branches where they differ
    Select,
}

impl Pass {
    /// Does to the functions of a unit what is done before they are compared.
    pub fn prepare(&self, unit: &mut Unit, isa: &dyn TargetIsa) {
        match self.canonicalize {
            How::None => {}
            How::Optimize => canonicalize(unit, isa),
        }
    }

    /// The options of a run for `isa`. `aliases` is whether the result can have aliases.
    pub fn options<'a>(&self, isa: &'a dyn TargetIsa, aliases: bool) -> Options<'a> {
        let compare = Compare {
            debug_info: self.compare_debug_info,
            // The tables of canonical bodies have gaps.
            every_function: self.walk_all || self.canonicalize == How::Optimize,
        };
        let mut options = Options { compare, ..Options::default() };
        options.target = Target::of(isa);
        options.target.call_thunks = Some(CallThunks::of(isa));
        options.similar = Similar {
            policy: self.similar.policy(),
            callees: match self.callees {
                CalleeParameters::None => Callees::None,
                CalleeParameters::Dispatch => Callees::Dispatch,
                CalleeParameters::Indirect => Callees::Indirect,
            },
            instructions: match self.instructions {
                DifferingInstructions::None => Instructions::None,
                DifferingInstructions::Select => Instructions::Select,
            },
            keep_symbols: self.keep_symbols,
            integer_registers_only: self.integer_registers_only,
        };
        options.aliases = aliases;
        options.merge_limit = self.merge_limit;
        options
    }
}

/// Cranelift's settings.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Code generation")]
pub struct Settings {
    /// A Cranelift setting, shared or of the target; may be repeated
    ///
    /// 'opt_level=speed', 'is_pic=true' and 'preserve_frame_pointers=true' are the defaults. NAME
    /// alone switches a setting on.
    #[arg(long = "set", value_name = "NAME[=VALUE]", value_parser = parse_setting)]
    pub settings: Vec<Setting>,
}

/// The target of code generation.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Code generation")]
struct TargetArg {
    /// The target of the code: x86_64, aarch64, or a triple such as aarch64-apple-darwin
    ///
    /// Without this option, it is the first 'target' that the unit names before its first function,
    /// and x86_64 if it names none. 'set' lines there hold like --set. A unit that contradicts the
    /// command line is an error.
    #[arg(long, value_name = "TARGET", value_parser = parse_target)]
    target: Option<Triple>,
}

/// The targets of code that is measured, and their settings.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Code generation")]
pub struct Targets {
    /// The targets of measured code: x86_64, aarch64, or a triple such as aarch64-apple-darwin; may
    /// be repeated
    ///
    /// 'set' lines in front of the first function of the unit hold like --set. A unit that
    /// contradicts the command line, or that names only other targets, is an error.
    #[arg(
        long = "target",
        value_name = "TARGET",
        default_values = ["x86_64", "aarch64"],
        value_delimiter = ',',
        value_parser = parse_target,
    )]
    targets: Vec<Triple>,

    #[command(flatten)]
    settings: Settings,
}

impl Targets {
    /// The targets under the settings, of the command line and of the unit, in the order in which
    /// they were named.
    ///
    /// # Errors
    ///
    /// Settings that no target has, a target that is named twice, and a unit that contradicts the
    /// command line or is for none of the targets.
    pub fn isas(&self, sources: &[Source]) -> Result<Vec<OwnedTargetIsa>> {
        let given = &self.settings.settings;
        for (at, triple) in self.targets.iter().enumerate() {
            if self.targets[..at].contains(triple) {
                return Err(usage(format!("the target {triple} is named twice")));
            }
        }
        // Errors of the command line are reported first.
        isa::build_all(&self.targets, given)?;
        let settings = Headers::of(sources)
            .and_then(|headers| headers.settings(&self.targets, given))
            .map_err(|error| with_lines(error, sources))?;
        isa::build_all(&self.targets, &settings)
    }
}

/// The options that subcommands for one target have in common.
#[derive(Debug, clap::Args)]
pub struct Common {
    #[command(flatten)]
    pub pass: Pass,
    #[command(flatten)]
    target: TargetArg,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    pub general: General,
}

impl Common {
    /// The target under the settings, of the command line and of the unit.
    ///
    /// # Errors
    ///
    /// Settings that the target does not have, and a unit that contradicts the command line.
    pub fn isa(&self, sources: &[Source]) -> Result<OwnedTargetIsa> {
        let given = &self.settings.settings;
        if let Some(target) = &self.target.target {
            // Errors of the command line are reported first.
            isa::build([target.clone()], given)?;
        }
        let of_unit = || {
            let headers = Headers::of(sources)?;
            let target = headers.target(self.target.target.as_ref())?;
            let settings = headers.settings(std::slice::from_ref(&target), given)?;
            Ok((target, settings))
        };
        let (target, settings) = of_unit().map_err(|error| with_lines(error, sources))?;
        let [isa] = isa::build([target], &settings)?;
        Ok(isa)
    }

    /// Reads a unit for one target, on the threads of `jobs`.
    ///
    /// # Errors
    ///
    /// Those of [`Common::isa`], and what cannot be read or translated, with path and line.
    pub fn read(&self, input: &Input, jobs: &Jobs) -> Result<ReadUnit> {
        let files = input.open()?;
        let isa = self.isa(files.texts())?;
        let sources = files.translate(&*isa, jobs, &self.general)?;
        let mut unit = input.read(&sources, &*isa, jobs, &self.general)?;
        self.pass.prepare(&mut unit, &*isa);
        Ok(ReadUnit { isa, texts: sources.texts, unit })
    }
}

/// A unit that was read for one target.
pub struct ReadUnit {
    /// The target.
    pub isa: OwnedTargetIsa,
    /// The texts that the unit was read from.
    pub texts: Vec<Source>,
    /// The unit.
    pub unit: Unit,
}

/// How many messages are printed in addition to the result.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "General")]
pub struct General {
    /// Say nothing but errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Say more about what was done
    #[arg(short, long)]
    pub verbose: bool,
}

impl General {
    /// Says something on standard error, unless the user wants quiet.
    pub fn say(&self, text: &str) {
        if !self.quiet {
            use std::io::Write as _;
            // A closed standard error is no reason to stop working.
            let _ = writeln!(anstream::stderr(), "{text}");
        }
    }
}
