//! Which rows of the table a person wants.

use super::{Decision, Kind};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clif_unit::names::Wanted;
use cranelift_mergefunc::Reason;
use cranelift_mergefunc::explain::Rule;

/// The filter of rows. Of several values of one option one must fit, and of several options all.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Filters")]
pub struct Filter {
    /// Only functions and data objects of this name: %f, f, what the source calls it, the end of
    /// that behind '::', or a pattern with '*' and '?'
    #[arg(long = "function", value_name = "NAME")]
    functions: Vec<String>,

    /// Only the class of this number
    #[arg(long = "class", value_name = "N")]
    classes: Vec<u32>,

    /// Only decisions of this reason, or whose first difference has this rule; --help lists all
    #[arg(long = "rule", value_name = "ID", hide_possible_values = true, value_parser = ids())]
    rules: Vec<String>,

    /// Only decisions of this kind
    #[arg(long = "kind", value_enum, value_name = "KIND")]
    kinds: Vec<Kind>,

    /// Only decisions about at least N bytes before merging
    #[arg(long, value_name = "N", default_value_t = 0)]
    min_bytes: u64,
}

/// The ids of all reasons and rules.
fn ids() -> PossibleValuesParser {
    let reasons = Reason::ALL.map(|reason| (reason.id(), reason.explanation()));
    let rules = Rule::ALL.map(|rule| (rule.id(), rule.explanation()));
    let all = reasons.into_iter().chain(rules);
    PossibleValuesParser::new(all.map(|(id, help)| PossibleValue::new(id).help(help)))
}

impl Filter {
    /// The rows that fit, in their order.
    pub fn apply<'a>(&self, decisions: &'a [Decision]) -> Vec<&'a Decision> {
        let Filter { functions, classes, rules, kinds, min_bytes } = self;
        let wanted: Vec<Wanted<'_>> = functions.iter().map(|name| Wanted::new(name)).collect();
        let is_named = |decision: &Decision| {
            let bare = decision.name.trim_start_matches('%');
            let names = [Some(&*decision.name), Some(bare), decision.source_name.as_deref()];
            names.into_iter().flatten().any(|name| wanted.iter().any(|w| w.fits(name).is_some()))
        };
        let has_rule = |decision: &Decision| {
            let resembles = decision.resembles.as_ref();
            let difference = resembles.and_then(|resembled| resembled.rule.as_ref());
            rules.contains(&decision.outcome.rule)
                || difference.is_some_and(|rule| rules.contains(rule))
        };
        let fits = |decision: &&Decision| {
            (functions.is_empty() || is_named(decision))
                && (classes.is_empty() || classes.contains(&decision.class))
                && (rules.is_empty() || has_rule(decision))
                && (kinds.is_empty() || kinds.contains(&decision.kind))
                && decision.bytes_before >= *min_bytes
        };
        decisions.iter().filter(fits).collect()
    }
}
