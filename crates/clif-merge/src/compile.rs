//! `clif-merge compile`: the merged unit as a native object file.
//!
//! Reads a unit, merges, compiles what is left, writes the object. It does not link.

use crate::args::{Common, Input, ReadUnit};
use crate::check::check;
use crate::codegen::{Refused, RefusedBody, check_settings};
use crate::emit_object::{Frames, Outcome, Request, Time, emit};
use crate::exit::{Exit, usage};
use crate::jobs::JobsArg;
use crate::locate::UnitMap;
use crate::merge::{Counts, details, eprint_table, summary};
use crate::output::Output;
use crate::summarize::{name_of, summary_of};
use crate::table::{percent, thousands};
use anyhow::{Context as _, Result, anyhow};
use clif_unit::pass;
use clif_unit::unit::Unit;
use cranelift_mergefunc::Options;
use cranelift_mergefunc::across::ContentAddressing;
use cranelift_mergefunc::units::{FileAt, SharingMap};
use cranelift_mergefunc_module::{ModuleOptions, ModuleStats};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use target_lexicon::BinaryFormat;

/// Merge functions and make an object file of what is left
///
/// A function %f gets the symbol 'f', one called u0:5 the symbol 'u0:5'. References to what the unit
/// does not define become undefined symbols. The object has no debug information, and unwind information only
/// with --unwind.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", crate::exit::HELP))]
pub struct Opts {
    #[command(flatten)]
    input: Input,

    /// Where to write the object file; '-' is standard output, unless that is a terminal
    #[arg(short, long, value_name = "OUT.o")]
    output: PathBuf,

    /// Print a table on standard error: the disposition of each function, and the reason
    #[arg(short = 'D', long)]
    dispositions: bool,

    /// Never give two symbols one address: use thunks instead
    #[arg(long, help_heading = "Merging")]
    no_alias: bool,

    #[command(flatten)]
    sharing: Sharing,

    /// Write a summary of the unit as well, for the map of the next build
    ///
    /// Where most of a program stays the same from build to build, 'combine' can take the summaries of the build before:
    /// a map that is stale costs bytes only. Then no unit is read twice.
    #[arg(long, value_name = "OUT.summary", help_heading = "Merging", conflicts_with = "no_merge")]
    summary: Option<PathBuf>,

    /// Write which functions share which code, for 'locate'
    ///
    /// It is JSON: each function by its symbol, its disposition, and the symbol of the code that replaces it. The object
    /// gets a file symbol with the name of the unit.
    #[arg(long, value_name = "OUT.json", conflicts_with = "no_merge")]
    merge_map: Option<PathBuf>,

    /// The name of the unit in the summary and the merge map, unique in the program; by default, the name of the output file
    /// without its extension
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Write unwind information, for ELF objects that are linked at fixed addresses
    ///
    /// It refers to functions by absolute addresses, which linkers do not accept in position-independent
    /// programs and libraries.
    #[arg(long, help_heading = "Code generation")]
    unwind: bool,

    /// Compile the unit as it is, for comparison
    #[arg(long, help_heading = "Merging", conflicts_with_all = ["dispositions", "no_alias"])]
    no_merge: bool,

    #[command(flatten)]
    jobs: JobsArg,
    #[command(flatten)]
    common: Common,
}

/// Whether function bodies are shared with other units.
#[derive(Debug, clap::Args)]
struct Sharing {
    /// Emit functions that other units may have as well under digests of their contents, so that linkers keep one of them
    ///
    /// They go into COMDAT groups (ELF, COFF) or become weak definitions (Mach-O); a function whose symbol must stay
    /// jumps there. No linker needs to fold identical code. Compile all units of a program with it.
    #[arg(long, help_heading = "Merging", conflicts_with_all = ["no_merge", "merge_limit"])]
    content_addressed: bool,

    /// Share function bodies with other units as a map says that 'combine' made; implies --content-addressed
    ///
    /// The map is not trusted: whatever is wrong with it, it can cost bytes only. What does not fit the unit is ignored.
    #[arg(long, value_name = "MAP", help_heading = "Merging", conflicts_with_all = ["no_merge", "merge_limit"])]
    map: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  clif-merge compile unit.clif -o unit.o
  clif-merge compile --target aarch64 --set opt_level=none unit.clif -o unit.o
  clif-merge compile --target x86_64-pc-windows-msvc unit.clif -o unit.obj
  clif-merge compile -v unit.clif -o unit.o      also say how many bytes it saves
  clif-merge compile -v --no-merge unit.clif -o unit.o      how long it takes without merging";

/// Merges, compiles and writes.
///
/// # Errors
///
/// What cannot be read, compiled or written, and with `--verify` what is wrong with the result.
pub fn run(opts: Opts) -> Result<ExitCode> {
    let Opts {
        input,
        output,
        dispositions,
        no_alias,
        sharing: Sharing { content_addressed, map },
        summary: unit_summary,
        merge_map,
        name,
        unwind,
        no_merge,
        jobs,
        common,
    } = opts;
    let content_addressed = content_addressed || map.is_some();
    let name = match name {
        None if unit_summary.is_some() || merge_map.is_some() => Some(name_of(&output)?),
        name => name,
    };
    let functions_of = name.clone().filter(|_| merge_map.is_some());
    let unit_summary = unit_summary.as_deref().map(Output::check).transpose()?;
    let output = Output::check(&output)?;
    let merge_map = merge_map.as_deref().map(Output::check).transpose()?;
    if output.is_terminal() {
        return Err(usage("an object file is not written to a terminal; use -o FILE"));
    }
    let jobs = jobs.start()?;
    let ReadUnit { isa, texts, unit } = common.read(&input, &jobs)?;
    // With settings that are wrong for the format, Cranelift makes wrong code.
    for (function, func) in unit.functions.iter().enumerate() {
        check_settings(func, &*isa)
            .map_err(|error| Refused { function, error }.into_error(&unit, &texts, &*isa))?;
    }
    let mut options = common.pass.options(&*isa, !no_alias);
    let map = map.as_deref().map(open_map).transpose()?.map(Arc::new);
    options.content_addressing =
        content_addressed.then(|| ContentAddressing::of(&*isa).with_map(map.as_deref()));
    if common.pass.verify && !no_merge {
        let merged = pass::merge(&unit, &options)?;
        check(&unit, &merged, &options, &*isa, &common.general)?;
    }
    let unit_summary = match unit_summary.zip(name) {
        None => None,
        Some((output, name)) => {
            Some((output, summary_of(&unit, &options, &*isa, name)?.to_bytes()))
        }
    };
    let elf = isa.triple().binary_format == BinaryFormat::Elf;
    if unwind && !elf {
        return Err(usage("--unwind is for ELF objects only"));
    }
    let options = (!no_merge).then(|| ModuleOptions {
        // Frames are found by the merge map.
        backtraces: functions_of.is_some(),
        ..module_options(&options)
    });
    let request =
        Request { options, map, unwind, dispositions, functions_of: functions_of.clone() };
    let object = emit(&unit, request, &isa, &jobs);
    let object = object.map_err(|error| match error.downcast::<Refused>() {
        Ok(refused) => refused.into_error(&unit, &texts, &*isa),
        Err(error) => match error.downcast::<RefusedBody>() {
            Ok(refused) => refused.into_error(&unit, &texts, &*isa),
            Err(error) => error,
        },
    })?;
    let mut messages = Vec::new();
    if let Some(Outcome { stats, pass, rows, functions: _, frames }) = &object.merged {
        messages.push(summary(&counts(&unit, stats)));
        if common.general.verbose {
            messages.push(details(pass));
            let before = stats.code_bytes.saturating_add_signed(stats.saved_code_bytes);
            // What parameterised bodies replace is not compiled.
            let about = if stats.new_bodies > 0 { "about " } else { "" };
            messages.push(format!(
                "{about}{} bytes of code without merging: {about}{:.2}% saved",
                thousands(before),
                percent(stats.saved_code_bytes as f64, before as f64),
            ));
            if stats.saved_data_bytes > 0 {
                messages.push(format!("{} bytes of data saved", thousands(stats.saved_data_bytes)));
            }
        }
        if let Some(rows) = rows {
            eprint_table(rows);
        }
        if let Some(Frames { written: _, compact_bytes }) = frames {
            messages.push(format!(
                "{} bytes of frame table for an engine: {:.2}% of the code",
                thousands(*compact_bytes),
                percent(*compact_bytes as f64, object.code_bytes as f64),
            ));
        }
    }
    if common.general.verbose {
        messages.push(format!("{} bytes of code", thousands(object.code_bytes)));
        let seconds = |time: Duration| format!("{:.3} s", time.as_secs_f64());
        let Time { wall, cpu } = object.time;
        let cpu = cpu.map_or(String::new(), |cpu| format!(" ({} of CPU)", seconds(cpu)));
        let memory = peak_memory()
            .map_or(String::new(), |bytes| format!("; peak memory {} KiB", thousands(bytes >> 10)));
        let jobs = plural(jobs.count(), "job");
        messages
            .push(format!("defined and finished in {}{cpu} with {jobs}{memory}", seconds(wall)));
    }
    if let Some((output, bytes)) = unit_summary {
        output.write(&bytes)?;
    }
    if let (Some(output), Some(unit)) = (merge_map, functions_of) {
        let merged = object.merged.map(|merged| (merged.functions, merged.frames));
        let (functions, frames) = merged.unwrap_or_default();
        let frames = frames.map(|frames| frames.written);
        let text = UnitMap::new(unit, functions.unwrap_or_default(), frames).to_json()?;
        output.write(text.as_bytes())?;
    }
    // Last: where there is an object, there is all that was asked for.
    output.write(&object.bytes)?;
    for message in messages {
        common.general.say(&message);
    }
    Ok(Exit::Done.into())
}

/// The options of the module that correspond to `options`.
fn module_options(options: &Options<'_>) -> ModuleOptions {
    let Options {
        compare,
        target: _,
        aliases,
        similar,
        interposition: _,
        prove,
        content_addressing,
        merge_limit,
    } = *options;
    ModuleOptions {
        compare,
        aliases,
        similar,
        prove,
        content_addressed: content_addressing.is_some(),
        merge_limit,
        ..ModuleOptions::default()
    }
}

fn counts(unit: &Unit, stats: &ModuleStats) -> Counts {
    Counts {
        functions: unit.functions.len(),
        redirected: stats.redirects,
        aliases: stats.aliases,
        thunks: stats.thunks,
        new_bodies: stats.new_bodies,
        data_objects: unit.data.len(),
        merged_data_objects: stats.merged_data_objects,
    }
}

/// A count of things.
pub fn plural(count: usize, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        _ => format!("{count} {thing}s"),
    }
}

/// The most memory that this process had at any time, in bytes, where the system reports it.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// Opens a sharing map.
fn open_map(path: &Path) -> Result<SharingMap<'static>> {
    let file = FileAt::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    SharingMap::open(file).map_err(|error| anyhow!("{}: {error}", path.display()))
}
