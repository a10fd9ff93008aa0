//! Directives: what CLIF cannot say of a function, in comments of one form.
//!
//! A line `;@ linkage=local pinned` right above `function` holds for that function. Words are
//! separated by spaces; several lines may stand above one function; a word may not be repeated.
//! A line `;@ defaults linkage=local` holds for everything below it in its text that has no such directive.
//! Anything that is not understood is an error, with line and column.

use anyhow::{Result, bail};
use cranelift_mergefunc::{Addresses, Attributes, DataAttributes, Linkage};

/// Begins every directive line.
pub const PREFIX: &str = ";@";

/// What the directives above one function say.
#[derive(Clone, Debug, Default)]
pub struct Directives {
    linkage: Option<Linkage>,
    addresses: Option<Addresses>,
    address_taken: bool,
    externally_called: bool,
    key: Option<u64>,
    alignment: Option<u32>,
    pinned: bool,
    no_merge: bool,
    hot: bool,
    /// The function is a jump to the function of this name.
    pub thunk: Option<String>,
    /// The function's symbol is an alias: its address is that of the function of this name.
    pub alias: Option<String>,
}

impl Directives {
    /// The attributes, where `defaults` hold for what was not said.
    pub fn attributes(&self, defaults: Attributes) -> Attributes {
        let Directives {
            linkage,
            addresses,
            address_taken,
            externally_called,
            key,
            alignment,
            pinned,
            no_merge,
            hot,
            thunk,
            alias,
        } = self;
        // A function that is already a thunk or an alias stays one. A reference to it equals no reference
        // to another function: it did not when the thunk or alias was made, so that merging a merged unit
        // changes nothing.
        let settled = thunk.is_some() || alias.is_some();
        Attributes {
            linkage: linkage.unwrap_or(defaults.linkage),
            addresses: addresses.unwrap_or(defaults.addresses),
            address_taken: *address_taken || defaults.address_taken,
            externally_called: *externally_called || defaults.externally_called,
            key: key.unwrap_or(defaults.key),
            alignment: alignment.unwrap_or(defaults.alignment),
            pinned: *pinned || defaults.pinned || settled,
            no_merge: *no_merge || defaults.no_merge || settled,
            hot: *hot || defaults.hot,
        }
    }

    /// Adds what one directive line says. `line` is without its line end.
    ///
    /// # Errors
    ///
    /// The column (from 1, in characters) and what is wrong there.
    pub fn add_line(&mut self, line: &str) -> Result<(), (usize, String)> {
        each_word(line, 0, |word| self.add(word))
    }

    /// Takes what `;@ defaults` says where nothing was said of the function itself.
    pub fn fill_in(&mut self, defaults: &TextDefaults) {
        let TextDefaults { linkage, addresses, data_addresses: _ } = defaults;
        self.linkage = self.linkage.or(*linkage);
        self.addresses = self.addresses.or(*addresses);
    }

    fn add(&mut self, word: &str) -> Result<()> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        match (name, value) {
            ("linkage", Some(value)) => once(&mut self.linkage, name, parse_linkage(value)?),
            ("addresses", Some(value)) => once(&mut self.addresses, name, parse_addresses(value)?),
            ("key", Some(value)) => once(&mut self.key, name, parse_number(value)?),
            ("align", Some(value)) => once(&mut self.alignment, name, parse_alignment(value)?),
            ("thunk", Some(value)) => once(&mut self.thunk, name, parse_name(value)?),
            ("alias", Some(value)) => once(&mut self.alias, name, parse_name(value)?),
            ("address-taken", None) => flag(&mut self.address_taken, name),
            ("externally-called", None) => flag(&mut self.externally_called, name),
            ("pinned", None) => flag(&mut self.pinned, name),
            ("no-merge", None) => flag(&mut self.no_merge, name),
            ("hot", None) => flag(&mut self.hot, name),
            ("linkage" | "addresses" | "key" | "align" | "thunk" | "alias", None) => {
                bail!("directive '{name}' needs a value: '{name}=...'")
            }
            ("address-taken" | "externally-called" | "pinned" | "no-merge" | "hot", Some(_)) => {
                bail!("directive '{name}' takes no value")
            }
            _ => bail!(
                "unknown directive '{name}'; there are linkage, addresses, address-taken, \
                 externally-called, key, align, pinned, no-merge, hot, thunk, alias"
            ),
        }
    }
}

/// What `;@ defaults` says, which holds whatever the command line says.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextDefaults {
    linkage: Option<Linkage>,
    addresses: Option<Addresses>,
    /// For data objects.
    pub data_addresses: Option<Addresses>,
}

/// The first word of a line of defaults.
pub const DEFAULTS: &str = "defaults";

impl TextDefaults {
    /// Takes what one line says; what it does not say stays as it was. `line` is without its line
    /// end.
    ///
    /// # Errors
    ///
    /// The column (from 1, in characters) and what is wrong there.
    pub fn add_line(&mut self, line: &str) -> Result<(), (usize, String)> {
        let mut said = TextDefaults::default();
        each_word(line, 1, |word| said.add(word))?;
        let TextDefaults { linkage, addresses, data_addresses } = said;
        self.linkage = linkage.or(self.linkage);
        self.addresses = addresses.or(self.addresses);
        self.data_addresses = data_addresses.or(self.data_addresses);
        Ok(())
    }

    fn add(&mut self, word: &str) -> Result<()> {
        match word.split_once('=') {
            Some((name @ "linkage", value)) => once(&mut self.linkage, name, parse_linkage(value)?),
            Some((name @ "addresses", value)) => {
                once(&mut self.addresses, name, parse_addresses(value)?)
            }
            Some((name @ "data-addresses", value)) => {
                once(&mut self.data_addresses, name, parse_addresses(value)?)
            }
            _ => bail!("unknown default '{word}'; there are linkage=, addresses=, data-addresses="),
        }
    }
}

/// Hands out the words of a directive line behind the first `skip` ones.
fn each_word(
    line: &str,
    skip: usize,
    mut take: impl FnMut(&str) -> Result<()>,
) -> Result<(), (usize, String)> {
    let start = line.find(PREFIX).expect("a directive line") + PREFIX.len();
    let mut rest = &line[start..];
    for at in 0.. {
        rest = rest.trim_start();
        let column = line[..line.len() - rest.len()].chars().count() + 1;
        if rest.is_empty() {
            if at <= skip {
                return Err((start, "an empty directive".to_owned()));
            }
            break;
        }
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        if at >= skip {
            take(&rest[..end]).map_err(|error| (column, error.to_string()))?;
        }
        rest = &rest[end..];
    }
    Ok(())
}

/// The largest alignment that a directive may ask for, in bytes.
const MAX_ALIGNMENT: u32 = 1 << 16;

/// A linkage by its name.
pub fn parse_linkage(text: &str) -> Result<Linkage> {
    match Linkage::ALL.into_iter().find(|linkage| linkage.name() == text) {
        Some(linkage) => Ok(linkage),
        None => bail!("unknown linkage '{text}'; there are export, hidden, local, preemptible"),
    }
}

/// Address significance by its name.
pub fn parse_addresses(text: &str) -> Result<Addresses> {
    match Addresses::ALL.into_iter().find(|addresses| addresses.name() == text) {
        Some(addresses) => Ok(addresses),
        None => bail!("unknown word '{text}'; addresses are significant or insignificant"),
    }
}

/// An alignment in bytes.
pub fn parse_alignment(text: &str) -> Result<u32> {
    match u32::try_from(parse_number(text)?) {
        Ok(bytes) if bytes.is_power_of_two() && bytes <= MAX_ALIGNMENT => Ok(bytes),
        _ => bail!("alignment '{text}' is not a power of two from 1 to {MAX_ALIGNMENT}"),
    }
}

/// A decimal or hexadecimal number.
pub fn parse_number(text: &str) -> Result<u64> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    match parsed {
        Ok(number) if !text.starts_with('+') => Ok(number),
        _ => bail!("'{text}' is not a number from 0 to 2^64 - 1"),
    }
}

fn parse_name(text: &str) -> Result<String> {
    match text.len() > 1 && text.starts_with(['%', 'u']) {
        true => Ok(text.to_owned()),
        false => bail!("'{text}' is not the name of a function, such as %f or u0:1"),
    }
}

/// Takes a value that may be given only once.
pub fn once<T>(slot: &mut Option<T>, name: &str, value: T) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => bail!("'{name}' is repeated"),
    }
}

/// Takes a word that may be given only once.
pub fn flag(slot: &mut bool, name: &str) -> Result<()> {
    match std::mem::replace(slot, true) {
        false => Ok(()),
        true => bail!("'{name}' is repeated"),
    }
}

/// The line that begins a text: the defaults for functions and data objects without directives. These are
/// always the defaults of the tool and not of the run; and they are written, so that the text means the same
/// under any command line. `functions` and `data` are whether the text has functions and data objects.
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
        false => format!("{PREFIX} {DEFAULTS} {}\n", words.join(" ")),
    }
}

/// The directive line for `attributes` below [`defaults_line`], and for a function that became a thunk or an
/// alias; empty if all attributes are the defaults.
pub fn line_for(attributes: Attributes, became: Option<(&str, &str)>) -> String {
    let defaults = Attributes::default();
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
    } = attributes;
    let mut words = Vec::new();
    if linkage != defaults.linkage {
        words.push(format!("linkage={}", linkage.name()));
    }
    if addresses != defaults.addresses {
        words.push(format!("addresses={}", addresses.name()));
    }
    if address_taken {
        words.push("address-taken".to_owned());
    }
    if externally_called {
        words.push("externally-called".to_owned());
    }
    if key != defaults.key {
        words.push(format!("key={key}"));
    }
    if alignment != defaults.alignment {
        words.push(format!("align={alignment}"));
    }
    // A thunk or an alias is pinned and not merged by being one.
    if pinned && became.is_none() {
        words.push("pinned".to_owned());
    }
    if no_merge && became.is_none() {
        words.push("no-merge".to_owned());
    }
    if hot {
        words.push("hot".to_owned());
    }
    if let Some((kind, target)) = became {
        words.push(format!("{kind}={target}"));
    }
    match words.is_empty() {
        true => String::new(),
        false => format!("{PREFIX} {}\n", words.join(" ")),
    }
}
