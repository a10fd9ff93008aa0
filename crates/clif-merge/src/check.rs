//! `--verify`: what the check of a merged unit says, and that its failure is a bug of this program.

use crate::args::General;
use crate::exit::bug;
use crate::table::thousands;
use anyhow::Result;
use clif_unit::pass::Merged;
use clif_unit::unit::Unit;
use cranelift_codegen::isa::TargetIsa;
use cranelift_mergefunc::check::Proof;
use cranelift_mergefunc::{Options, cranelift_codegen};

/// Checks `merged`, which was made of `unit` under `options`, and says what was checked if the user
/// wants more.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn check(
    unit: &Unit,
    merged: &Merged,
    options: &Options<'_>,
    isa: &dyn TargetIsa,
    general: &General,
) -> Result<()> {
    let Proof { merged, rewritten, related, data, .. } =
        clif_unit::check::check(unit, merged, options, isa).map_err(bug)?;
    let [merged, rewritten, related, data] =
        [merged, rewritten, related, data].map(|count| thousands(count as u64));
    if general.verbose {
        general.say(&format!(
            "proved: {merged} functions merged, {rewritten} rewritten, {related} called in place of others, {data} data \
             objects merged"
        ));
    }
    Ok(())
}
