//! Directives: what CLIF cannot say of a function, in comments of one form.
//!
//! A line `;@ linkage=local pinned` right above `function` holds for that function. Words are
//! separated by spaces; several lines may stand above one function; a word may not be repeated.
//! A line `;@ defaults linkage=local` holds for everything below it in its text that has no such
//! directive. How they are read is for `words`; this module gives and prints attributes.

pub use crate::words::{PREFIX, parse_addresses, parse_linkage};

use crate::words::Said;
use cranelift_mergefunc::Attributes;
use cranelift_mergefunc::data::DataAttributes;

/// The attributes of a function, where `defaults` hold for what was not said.
pub fn attributes(said: &Said, defaults: Attributes) -> Attributes {
    // A function that is already a thunk or an alias stays one. A reference to it equals no
    // reference to another function: it did not when the thunk or alias was made, so that merging a
    // merged unit changes nothing.
    let settled = said.thunk.is_some() || said.alias.is_some();
    Attributes {
        linkage: said.linkage.unwrap_or(defaults.linkage),
        addresses: said.addresses.unwrap_or(defaults.addresses),
        address_taken: said.has("address-taken") || defaults.address_taken,
        externally_called: said.has("externally-called") || defaults.externally_called,
        key: said.key.unwrap_or(defaults.key),
        alignment: said.alignment.unwrap_or(defaults.alignment),
        pinned: said.has("pinned") || defaults.pinned || settled,
        no_merge: said.has("no-merge") || defaults.no_merge || settled,
        hot: said.has("hot") || defaults.hot,
        identical_only: said.has("identical-only") || defaults.identical_only,
    }
}

/// The line that begins a text: the defaults for functions and data objects without directives.
/// These are always the defaults of the tool and not of the run; and they are written, so that the
/// text means the same under any command line. `functions` and `data` are whether the text has
/// functions and data objects.
pub fn defaults_line(functions: bool, data: bool) -> String {
    let Attributes { linkage, addresses, .. } = Attributes::default();
    let mut words = Vec::new();
    if functions {
        words.push(format!("linkage={}", linkage.name()));
        words.push(format!("addresses={}", addresses.name()));
    }
    if data {
        words.push(format!("data-addresses={}", DataAttributes::default().addresses.name()));
    }
    match words.is_empty() {
        true => String::new(),
        false => format!("{PREFIX} defaults {}\n", words.join(" ")),
    }
}

/// The directive line for `attributes` below [`defaults_line`], and for a function that became a
/// thunk or an alias; empty if all attributes are the defaults.
pub fn line_for(attributes: Attributes, became: Option<(&str, &str)>) -> String {
    line_below(Attributes::default(), attributes, became)
}

/// The directive line below defaults of another linkage and other addresses.
pub fn line_below(
    defaults: Attributes,
    attributes: Attributes,
    became: Option<(&str, &str)>,
) -> String {
    let Attributes {
        linkage,
        addresses,
        address_taken,
        externally_called,
        key,
        alignment,
        pinned,
        no_merge,
        hot,
        identical_only,
    } = attributes;
    let words = [
        (linkage != defaults.linkage).then(|| format!("linkage={}", linkage.name())),
        (addresses != defaults.addresses).then(|| format!("addresses={}", addresses.name())),
        address_taken.then(|| "address-taken".to_owned()),
        externally_called.then(|| "externally-called".to_owned()),
        (key != defaults.key).then(|| format!("key={key}")),
        (alignment != defaults.alignment).then(|| format!("align={alignment}")),
        // A thunk or an alias is pinned and not merged by being one.
        (pinned && became.is_none()).then(|| "pinned".to_owned()),
        (no_merge && became.is_none()).then(|| "no-merge".to_owned()),
        hot.then(|| "hot".to_owned()),
        identical_only.then(|| "identical-only".to_owned()),
        became.map(|(kind, target)| format!("{kind}={target}")),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    match words.is_empty() {
        true => String::new(),
        false => format!("{PREFIX} {}\n", words.join(" ")),
    }
}
