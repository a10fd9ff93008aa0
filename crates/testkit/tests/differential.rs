//! Merged and unmerged units run with the same inputs, and must behave the same.
//!
//! The host (`crates/testkit/src/host`) runs them; `testkit::differential` compares. A host that
//! cannot distinguish two outcomes proves nothing, so it is tested first: it must observe every
//! kind of outcome, and must notice every planted difference.

#[path = "differential/commands.rs"]
mod commands;
#[path = "differential/differing.rs"]
mod differing;
#[path = "differential/generated.rs"]
mod generated;
#[path = "differential/outcomes.rs"]
mod outcomes;
#[path = "differential/planted.rs"]
mod planted;
#[path = "differential/real.rs"]
mod real;
#[path = "differential/templates.rs"]
mod templates;
#[path = "differential/units.rs"]
mod units;
#[path = "differential/varied.rs"]
mod varied;
