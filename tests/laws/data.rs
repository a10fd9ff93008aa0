//! Laws: classes of data objects and functions together are exactly the greatest fixpoint.
//!
//! Functions and data objects are nodes of one graph here, so functions are nothing but lists of
//! references and are not drawn with the generator.

use crate::refused_plans::{data_member, unit};
use crate::support::{parse_one, random};
use arbitrary::{Result, Unstructured};
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_mergefunc::data::{Contents, DataAttributes, DataIndex, DataObject, DataReloc};
use cranelift_mergefunc::{
    Addresses, Attributes, Bodies, Compare, Disposition, FunctionIndex, Linkage, Merger, Options,
    Plan, Reason,
};
use std::collections::BTreeSet;

/// A function or a data object: a kind, and the targets of its references.
#[derive(Clone, Debug)]
struct Node {
    symbol: UserExternalName,
    kind: u8,
    /// Indices of nodes.
    targets: Vec<usize>,
    attributes: DataAttributes,
    is_data: bool,
}

impl Node {
    /// Whether a reference to it equals a reference to an equal object or function.
    fn by_class(&self) -> bool {
        let DataAttributes { linkage, addresses, writable, tls, .. } = self.attributes;
        linkage != Linkage::Preemptible
            && addresses == Addresses::Insignificant
            && !writable
            && !tls
    }

    fn function(&self, nodes: &[Node]) -> Function {
        let mut text = format!("function {}() -> i64 tail {{\n", self.symbol);
        for (number, &target) in self.targets.iter().enumerate() {
            text.push_str(&format!("    gv{number} = symbol {}\n", nodes[target].symbol));
        }
        text.push_str(&format!("block0:\n    v0 = iconst.i64 {}\n", self.kind));
        for number in 0..self.targets.len() {
            let [symbol, sum, before] = [2 * number + 1, 2 * number + 2, 2 * number];
            text.push_str(&format!(
                "    v{symbol} = symbol_value.i64 gv{number}\n    v{sum} = bxor v{before}, v{symbol}\n"
            ));
        }
        text.push_str(&format!("    return v{}\n}}\n", 2 * self.targets.len()));
        parse_one(&text)
    }

    fn data(&self, nodes: &[Node]) -> DataObject {
        let reloc = |(place, &target): (usize, &usize)| DataReloc {
            offset: 8 * place as u32,
            target: nodes[target].symbol.clone(),
            addend: 0,
        };
        let mut bytes = vec![0; 8 * self.targets.len()];
        bytes.push(self.kind);
        DataObject {
            contents: Contents::Bytes(bytes),
            relocations: self.targets.iter().enumerate().map(reloc).collect(),
            section: None,
        }
    }
}

struct Unit {
    nodes: Vec<Node>,
    functions: Vec<Function>,
    data: Vec<DataObject>,
    options: Options<'static>,
}

impl Bodies for &Unit {
    fn body(&mut self, function: FunctionIndex) -> &Function {
        &self.functions[function.as_u32() as usize]
    }

    fn data(&mut self, data: DataIndex) -> Option<&DataObject> {
        Some(&self.data[data.as_u32() as usize])
    }
}

impl Unit {
    fn random(u: &mut Unstructured<'_>) -> Result<Unit> {
        let count: usize = u.int_in_range(2..=9)?;
        let arity: [usize; 4] = [0, u.int_in_range(0..=2)?, u.int_in_range(0..=2)?, 1];
        let free = u.arbitrary::<bool>()?;
        let mut nodes = Vec::new();
        for index in 0..count {
            let kind = u.int_in_range(0..=3)?;
            let is_data = u.arbitrary()?;
            let mut targets = Vec::new();
            for _ in 0..arity[usize::from(kind)] {
                targets.push(u.int_in_range(0..=count - 1)?);
            }
            let attributes = match free {
                true => DataAttributes {
                    linkage: Linkage::Local,
                    addresses: Addresses::Insignificant,
                    ..DataAttributes::default()
                },
                false => DataAttributes {
                    linkage: *u.choose(&Linkage::ALL)?,
                    addresses: *u.choose(&Addresses::ALL)?,
                    writable: is_data && u.ratio(1, 8)?,
                    tls: is_data && u.ratio(1, 8)?,
                    pinned: u.ratio(1, 8)?,
                    externally_used: u.ratio(1, 8)?,
                    key: u64::from(u.ratio(1, 8)?),
                    alignment: *u.choose(&[1, 8, 64])?,
                },
            };
            let symbol = UserExternalName::new(u32::from(is_data), index as u32);
            nodes.push(Node { symbol, kind, targets, attributes, is_data });
        }
        let functions = nodes.iter().filter(|node| !node.is_data);
        let functions = functions.map(|node| node.function(&nodes)).collect();
        let data = nodes.iter().filter(|node| node.is_data).map(|node| node.data(&nodes)).collect();
        let options = Options {
            compare: Compare { every_function: true, ..Compare::default() },
            aliases: u.arbitrary()?,
            ..Options::default()
        };
        Ok(Unit { nodes, functions, data, options })
    }

    fn plan(&self) -> Plan {
        let mut merger = Merger::new(self.options);
        let (mut functions, mut data) = (self.functions.iter(), self.data.iter());
        for node in &self.nodes {
            let symbol = node.symbol.clone();
            let given = node.attributes;
            if node.is_data {
                let object = data.next().expect("one for each");
                merger.add_data(symbol, object, given).expect("is added");
            } else {
                let attributes = Attributes {
                    linkage: given.linkage,
                    addresses: given.addresses,
                    pinned: given.pinned,
                    externally_called: given.externally_used,
                    key: given.key,
                    ..Attributes::default()
                };
                let func = functions.next().expect("one for each");
                merger.add(symbol, func, attributes).expect("is added");
            }
        }
        let mut bodies = self;
        merger.plan(&mut bodies)
    }

    fn class(&self, plan: &Plan, node: &Node) -> u32 {
        match node.is_data {
            true => plan.data_entry(plan.data(&node.symbol).expect("of the unit")).class(),
            false => plan.entry(plan.function(&node.symbol).expect("of the unit")).class(),
        }
    }

    /// The greatest relation, by striking out pairs until nothing changes.
    fn equal(&self) -> Vec<Vec<bool>> {
        let n = self.nodes.len();
        let equal_nodes = |a: &Node, b: &Node| {
            // Data that cannot merge is not compared.
            let compared = !a.is_data || a.by_class() && b.by_class();
            compared
                && (a.is_data, a.kind, a.targets.len(), a.attributes.key)
                    == (b.is_data, b.kind, b.targets.len(), b.attributes.key)
        };
        let mut equal: Vec<Vec<bool>> = (0..n)
            .map(|a| {
                (0..n).map(|b| a == b || equal_nodes(&self.nodes[a], &self.nodes[b])).collect()
            })
            .collect();
        loop {
            let stands = |a: usize, b: usize| {
                let pairs = self.nodes[a].targets.iter().zip(&self.nodes[b].targets);
                pairs.into_iter().all(|(&x, &y)| {
                    let by_class = self.nodes[x].by_class() && self.nodes[y].by_class();
                    x == y || by_class && equal[x][y]
                })
            };
            let struck: Vec<(usize, usize)> = (0..n)
                .flat_map(|a| (0..n).map(move |b| (a, b)))
                .filter(|&(a, b)| a != b && equal[a][b] && !stands(a, b))
                .collect();
            if struck.is_empty() {
                return equal;
            }
            for (a, b) in struck {
                equal[a][b] = false;
            }
        }
    }
}

#[test]
fn classes_of_functions_and_data_are_the_greatest_fixpoint() {
    random(|u| {
        let unit = Unit::random(u)?;
        let (plan, equal) = (unit.plan(), unit.equal());
        for (a, first) in unit.nodes.iter().enumerate() {
            for (b, second) in unit.nodes.iter().enumerate() {
                let one_class = unit.class(&plan, first) == unit.class(&plan, second);
                assert_eq!(one_class, equal[a][b], "{first:?}\n{second:?}");
            }
        }
        Ok(())
    });
}

#[test]
fn data_loses_no_name_address_or_alignment() {
    random(|u| {
        let unit = Unit::random(u)?;
        let plan = unit.plan();
        for (_, entry) in plan.data_entries() {
            let node = unit.nodes.iter().find(|node| node.symbol == *entry.symbol());
            let node = node.expect("of the unit");
            let DataAttributes { linkage, pinned, externally_used, alignment, .. } =
                node.attributes;
            assert!(entry.alignment() >= alignment);
            let to = match entry.disposition() {
                Disposition::Keep => continue,
                Disposition::Redirect { to } => {
                    assert!(linkage == Linkage::Local && !externally_used, "{}", node.symbol);
                    assert_eq!(plan.address_symbol(&node.symbol), plan.data_entry(to).symbol());
                    to
                }
                Disposition::Alias { to } => {
                    assert!(unit.options.aliases);
                    assert_eq!(plan.address_symbol(&node.symbol), &node.symbol);
                    to
                }
                Disposition::Thunk { to: _ } => panic!("data has no thunks"),
            };
            assert!(node.by_class() && !pinned);
            let representative = plan.data_entry(to);
            assert_eq!(representative.disposition(), Disposition::Keep);
            assert_eq!(representative.reason(), Reason::Representative);
            assert_eq!(representative.class(), entry.class());
            assert!(representative.alignment() >= alignment);
        }
        Ok(())
    });
}

#[test]
fn the_generator_reaches_every_reason_of_data() {
    // On fixed input, so that what it reaches is the same in every run.
    let mut reasons = BTreeSet::new();
    for seed in 0..400 {
        let bytes = crate::support::Rng::new(seed).bytes(4096);
        let unit = Unit::random(&mut Unstructured::new(&bytes)).expect("enough input");
        reasons.extend(unit.plan().data_entries().map(|(_, entry)| entry.reason()));
    }
    let expected = [
        Reason::Different,
        Reason::ReferencesDiffer,
        Reason::Representative,
        Reason::Pinned,
        Reason::EqualsNotMerged,
        Reason::AddressInsignificant,
        Reason::Preemptible,
        Reason::Writable,
        Reason::ThreadLocal,
        Reason::AddressSignificant,
        Reason::NoAlias,
    ];
    for reason in expected {
        assert!(reasons.contains(&reason), "{reason} is not reached, but {reasons:?}");
    }
}

#[test]
fn the_order_of_pointers_in_a_description_does_not_matter() {
    let symbols = [UserExternalName::new(1, 0), UserExternalName::new(1, 1)];
    let outside = |index| UserExternalName::new(5, index);
    let reloc = |offset, index| DataReloc { offset, target: outside(index), addend: 4 };
    let object = |relocations| DataObject {
        contents: Contents::Bytes(vec![0; 16]),
        relocations,
        section: None,
    };
    let unit = Unit {
        nodes: Vec::new(),
        functions: Vec::new(),
        data: vec![object(vec![reloc(0, 1), reloc(8, 2)]), object(vec![reloc(8, 2), reloc(0, 1)])],
        options: Options::default(),
    };
    let mut merger = Merger::new(unit.options);
    let attributes = DataAttributes {
        linkage: Linkage::Local,
        addresses: Addresses::Insignificant,
        ..DataAttributes::default()
    };
    for (symbol, data) in symbols.iter().zip(&unit.data) {
        merger.add_data(symbol.clone(), data, attributes).expect("is added");
    }
    let mut bodies = &unit;
    let plan = merger.plan(&mut bodies);
    assert_eq!(plan.stats().merged.data_objects, 1);
    assert_eq!(plan.stats().merged.data_bytes, 16);
}

/// The encodings of a bucket are not all kept if that takes too much memory: then hashes are
/// computed first, and functions with equal hashes are compared.
#[test]
fn a_bucket_that_is_too_large_to_keep_is_grouped_the_same() {
    let insignificant = DataAttributes {
        linkage: Linkage::Local,
        addresses: Addresses::Insignificant,
        ..DataAttributes::default()
    };
    let grouped = |size: u64| {
        let member = |at: u32, points_to: u32| {
            let mut member = data_member(at, 0, insignificant);
            member.object.contents = Contents::Zeros(size);
            let target = UserExternalName::new(7, points_to);
            member.object.relocations = vec![DataReloc { offset: 8, target, addend: 0 }];
            member
        };
        let mut unit = unit("");
        unit.options.merge_limit = None;
        // Of four classes, two of them of more than one.
        unit.data = (0..).zip([3, 1, 2, 1, 4, 3, 1]).map(|(at, to)| member(at, to)).collect();
        let plan = unit.plan();
        plan.data_entries()
            .map(|(_, entry)| (entry.class(), entry.disposition()))
            .collect::<Vec<_>>()
    };
    let small = grouped(64);
    let classes: Vec<u32> = small.iter().map(|&(class, _)| class).collect();
    assert_eq!(classes, [0, 1, 2, 1, 3, 0, 1]);
    assert_eq!(small, grouped(16 << 20));
}
