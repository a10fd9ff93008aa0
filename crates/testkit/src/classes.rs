//! The classes of a unit from the definition, by brute force.
//!
//! Two functions are equal if their texts are, with every symbol blanked, and if each pair
//! of i-th symbols is one symbol or names equal functions that may replace each other. The greatest
//! relation that satisfies this is found by starting from "all equal texts" and striking out pairs
//! until nothing changes: O(n²) pairs a round, at most n² rounds.
//!
//! It works on Cranelift's own rendering of the functions and shares no code with the library. It
//! finds no equality through renumbering, through the order of operands, or where a branch goes
//! only one way, so it must be given units as they were drawn, not their permuted forms.

use crate::unit::{DataMember, Unit};
use cranelift_codegen::ir::{AliasRegion, Function, Opcode, UserExternalNameRef};
use cranelift_mergefunc::data::{DataObject, DataReloc};
use cranelift_mergefunc::{Addresses, Linkage};

/// Which functions of a unit are equal. Data objects come after them.
pub struct Oracle {
    equal: Vec<Vec<bool>>,
}

impl Oracle {
    /// Whether the functions at two positions of the unit are equal.
    pub fn equal(&self, a: usize, b: usize) -> bool {
        self.equal[a][b]
    }
}

/// A symbol that a function refers to.
#[derive(Debug, PartialEq)]
struct Reference {
    symbol: String,
    called: bool,
    address_taken: bool,
    patchable: bool,
    /// The address that is taken is not that of the symbol but of a place behind it.
    inside: bool,
}

/// A function as text without symbols, and the symbols.
#[derive(Debug, PartialEq)]
struct Blanked {
    text: String,
    references: Vec<Reference>,
}

/// The greatest relation on the functions of `unit` that the definition allows.
pub fn classes(unit: &Unit) -> Oracle {
    let mut blanked: Vec<Blanked> =
        unit.functions.iter().map(|member| blank(&member.body)).collect();
    blanked.extend(unit.data.iter().map(blank_data));
    let mut keys: Vec<u64> = unit.functions.iter().map(|member| member.attributes.key).collect();
    keys.extend(unit.data.iter().map(|member| member.attributes.key));
    let n = blanked.len();
    let mut equal = vec![vec![false; n]; n];
    for a in 0..n {
        for b in 0..n {
            equal[a][b] = keys[a] == keys[b] && blanked[a].text == blanked[b].text;
        }
    }
    loop {
        let struck: Vec<(usize, usize)> = (0..n)
            .flat_map(|a| (0..n).map(move |b| (a, b)))
            .filter(|&(a, b)| equal[a][b])
            .filter(|&(a, b)| {
                let pairs = blanked[a].references.iter().zip(&blanked[b].references);
                !pairs.into_iter().all(|(x, y)| may_replace(unit, x, y, &equal))
            })
            .collect();
        if struck.is_empty() {
            return Oracle { equal };
        }
        for (a, b) in struck {
            equal[a][b] = false;
        }
    }
}

/// Whether one reference may replace the other, if `equal` is right.
fn may_replace(unit: &Unit, x: &Reference, y: &Reference, equal: &[Vec<bool>]) -> bool {
    if x.symbol == y.symbol {
        return true;
    }
    let functions = unit.functions.iter().map(|member| member.symbol().to_string());
    let data = unit.data.iter().map(|member| member.symbol.to_string());
    let names: Vec<String> = functions.chain(data).collect();
    let position = |reference: &Reference| names.iter().position(|name| *name == reference.symbol);
    let (Some(a), Some(b)) = (position(x), position(y)) else {
        return false;
    };
    [a, b].into_iter().all(|at| {
        let Some(member) = unit.functions.get(at) else {
            let attributes = unit.data[at - unit.functions.len()].attributes;
            return !attributes.writable
                && !attributes.tls
                && attributes.linkage != Linkage::Preemptible
                && attributes.addresses == Addresses::Insignificant;
        };
        let attributes = member.attributes;
        // Another definition may preempt the function, or it must stay distinguishable.
        let replaceable = attributes.linkage != Linkage::Preemptible && !attributes.no_merge;
        let own_address = attributes.addresses == Addresses::Significant;
        replaceable
            && !(x.inside || y.inside)
            && !(x.called && x.patchable || y.called && y.patchable)
            && !((x.address_taken || y.address_taken) && own_address)
    }) && equal[a][b]
}

/// A data object as text, and its pointers, which use addresses.
fn blank_data(member: &DataMember) -> Blanked {
    let DataObject { contents, relocations, section } = &member.object;
    let places: Vec<(u32, i64)> =
        relocations.iter().map(|reloc| (reloc.offset, reloc.addend)).collect();
    let reference = |reloc: &DataReloc| Reference {
        symbol: reloc.target.to_string(),
        called: false,
        address_taken: true,
        patchable: false,
        inside: reloc.addend != 0,
    };
    Blanked {
        text: format!("{contents:?} {section:?} {places:?}"),
        references: relocations.iter().map(reference).collect(),
    }
}

fn blank(func: &Function) -> Blanked {
    let rendered = func.to_string();
    let mut regions = Regions { func, used: Vec::new() };
    let mut text = String::new();
    let mut references: Vec<Reference> = Vec::new();
    for line in rendered.lines() {
        // A fact about a symbol.
        let words = line.split_whitespace().filter(|&word| word != "colocated");
        let words: Vec<&str> = words.collect();
        match words[..] {
            // The name comes before the parenthesis.
            ["function", ..] => {
                text.push_str(line.split_once('(').expect("has parameters").1);
            }
            // Which regions there are does not count, but which accesses share one.
            [name, "=", ..] if name.starts_with("region") => continue,
            [_, "=", "symbol", symbol] => {
                let (symbol, offset) = symbol.split_once('+').unwrap_or((symbol, ""));
                // Cranelift renders the symbols of global values by their numbers in the function.
                let number = symbol.strip_prefix("userextname").expect("a user's symbol");
                let number = UserExternalNameRef::from_u32(number.parse().expect("a number"));
                references.push(Reference {
                    symbol: func.params.user_named_funcs()[number].to_string(),
                    called: false,
                    address_taken: true,
                    patchable: false,
                    inside: !offset.is_empty(),
                });
                text.push_str(offset);
            }
            [name, "=", ref flags @ .., symbol, sig] if name.starts_with("fn") => {
                references.push(Reference {
                    symbol: symbol.into(),
                    called: rendered.contains(&format!("call {name}(")),
                    address_taken: rendered
                        .lines()
                        .any(|line| line.ends_with(&format!("func_addr.i64 {name}"))),
                    patchable: flags.contains(&"patchable"),
                    inside: false,
                });
                text.push_str(&format!("{name} {sig} {flags:?}"));
            }
            _ => {
                for word in words {
                    match word.strip_prefix("region") {
                        Some(number) => {
                            let number = number.parse().expect("a number");
                            text.push_str(&regions.render(AliasRegion::from_u32(number)));
                        }
                        None => text.push_str(word),
                    }
                    text.push(' ');
                }
            }
        }
        text.push('\n');
    }
    // Cranelift does not render the flags of atomic operations.
    for inst in func.layout.blocks().flat_map(|block| func.layout.block_insts(block)) {
        let data = &func.dfg.insts[inst];
        if matches!(data.opcode(), Opcode::AtomicRmw | Opcode::AtomicCas) {
            let flags = data.memflags_data(&func.dfg).expect("has flags");
            let behaviour = (flags.trap_code(), flags.explicit_endianness());
            let facts = (flags.aligned(), flags.readonly(), flags.can_move());
            let region = flags.alias_region().map(|region| regions.render(region));
            text.push_str(&format!("{behaviour:?} {facts:?} {region:?}\n"));
        }
    }
    for reference in &references {
        assert!(reference.called || reference.address_taken, "unused in\n{rendered}");
    }
    Blanked { text, references }
}

/// The alias regions that accesses use, in the order of first use.
struct Regions<'a> {
    func: &'a Function,
    used: Vec<AliasRegion>,
}

impl Regions<'_> {
    fn render(&mut self, region: AliasRegion) -> String {
        if !self.used.contains(&region) {
            self.used.push(region);
        }
        let number = self.used.iter().position(|&used| used == region).expect("was added");
        format!("region {number} of {}", self.func.dfg.alias_regions[region].user_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::parse_one;

    #[test]
    fn blanking_leaves_out_symbols_and_numbers_of_regions_only() {
        let parse = |number: u32, regions: &str, callee: &str, region: &str| {
            parse_one(&format!(
                "function u0:{number}(i64) -> i64 tail {{
        {regions}
        sig0 = (i64) -> i64 tail
        fn0 = {callee} sig0
    block0(v0: i64):
        v1 = load.i64 notrap aligned {region} v0+8
        brif v1, block1, block2
    block1 cold:
        v2 = call fn0(v1)
        return v2
    block2:
        v3 = func_addr.i64 fn0
        return v3
    }}"
            ))
        };
        let [one, two] = ["region0 = 1 \"one\"", "region0 = 2 \"two\"\nregion1 = 1 \"one\""];
        let near_miss = blank(&parse(1, two, "u5:5", "region0"));
        let one = parse(1, one, "colocated u0:2", "region0");
        let other = parse(7, two, "u5:5", "region1");
        let (one, other) = (blank(&one), blank(&other));
        assert_eq!(one.text, other.text);
        assert_ne!(one.text, near_miss.text);
        assert_eq!(one.references.len(), 1);
        assert_eq!(
            one.references[0],
            Reference {
                symbol: "u0:2".into(),
                called: true,
                address_taken: true,
                patchable: false,
                inside: false,
            }
        );
        assert_eq!(other.references[0].symbol, "u5:5");
    }
}
