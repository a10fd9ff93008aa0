//! Laws: what must hold for every function and every unit, whatever they contain.
//!
//! Each law is one test, named after what it states; the modules are grouped by law. Random input
//! comes from `units` (whole units of functions) and `permute` (another form of one function),
//! systematic input from `formats.clif` and the mutators. Where a law states the right result and
//! not only a relation between two results, `oracle` computes it from the definition.
//!
//! `ARBTEST_SEED` repeats a failure of a random test; `ARBTEST_BUDGET_MS=60000` searches for
//! longer.

#[path = "laws/alignment.rs"]
mod alignment;
#[path = "laws/application.rs"]
mod application;
#[path = "laws/call_thunks.rs"]
mod call_thunks;
#[path = "laws/checker.rs"]
mod checker;
#[path = "laws/classes.rs"]
mod classes;
#[path = "laws/content.rs"]
mod content;
#[path = "laws/data.rs"]
mod data;
#[path = "laws/differences.rs"]
mod differences;
#[path = "laws/dispatch.rs"]
mod dispatch;
#[path = "laws/documents.rs"]
mod documents;
#[path = "laws/eliminated.rs"]
mod eliminated;
#[path = "laws/embedder.rs"]
mod embedder;
#[path = "laws/facts.rs"]
mod facts;
#[path = "laws/folding.rs"]
mod folding;
#[path = "laws/frames.rs"]
mod frames;
#[path = "laws/generator.rs"]
mod generator;
#[path = "laws/imports.rs"]
mod imports;
#[path = "laws/incremental.rs"]
mod incremental;
#[path = "laws/irrelevant.rs"]
mod irrelevant;
#[path = "laws/layout.rs"]
mod layout;
#[path = "laws/limits.rs"]
mod limits;
#[path = "laws/malformed.rs"]
mod malformed;
#[path = "laws/may_replace.rs"]
mod may_replace;
#[path = "laws/merge_cache.rs"]
mod merge_cache;
#[path = "laws/order.rs"]
mod order;
#[path = "laws/permutations.rs"]
mod permutations;
#[path = "laws/phases.rs"]
mod phases;
#[path = "laws/predictions.rs"]
mod predictions;
#[path = "laws/refusals.rs"]
mod refusals;
#[path = "laws/refused_plans.rs"]
mod refused_plans;
#[path = "laws/rules.rs"]
mod rules;
#[path = "laws/sensitivity.rs"]
mod sensitivity;
#[path = "laws/sentences.rs"]
mod sentences;
#[path = "laws/similar.rs"]
mod similar;
#[path = "laws/sizes.rs"]
mod sizes;
#[path = "laws/statistics.rs"]
mod statistics;
#[path = "laws/streaming.rs"]
mod streaming;
#[path = "laws/support.rs"]
mod support;
#[path = "laws/thunk_machine.rs"]
mod thunk_machine;
#[path = "laws/thunk_registers.rs"]
mod thunk_registers;
#[path = "laws/thunk_values.rs"]
mod thunk_values;
