//! From files to the table of decisions, for one target, without taking times.

use super::{Decision, Planned, decisions};
use crate::args::{Common, Input, ReadUnit};
use crate::check::check;
use crate::jobs::JobsArg;
use crate::measure;
use anyhow::Result;
use clif_unit::isa;
use clif_unit::listings::Listings;
use clif_unit::pass;

/// The table of a unit.
#[derive(Debug)]
pub struct Decided {
    /// The target that it is for.
    pub target: String,
    /// The table.
    pub decisions: Vec<Decision>,
}

/// Reads, merges and measures a unit. With `aliases`, symbols may share an address.
///
/// # Errors
///
/// What cannot be read, and with `--verify` what is wrong with the result.
pub fn decide(input: &Input, common: &Common, aliases: bool, jobs: JobsArg) -> Result<Decided> {
    let general = &common.general;
    let jobs = jobs.start()?;
    let ReadUnit { isa, texts, unit } = common.read(input, &jobs)?;
    let options = common.pass.options(&*isa, aliases);
    let merged = pass::merge(&unit, &options)?;
    if common.pass.verify {
        check(&unit, &merged, &options, &*isa, general)?;
    }
    let sizes = measure::sizes(&unit, &merged, &*isa, &jobs, general.quiet);
    let planned = Planned {
        unit: &unit,
        listings: &Listings::of(&texts),
        plan: &merged.plan,
        names: &merged.names,
        options: &options,
        sizes: &sizes,
    };
    let decisions = decisions(&planned, &jobs);
    Ok(Decided { target: isa::title_of(&*isa), decisions })
}
