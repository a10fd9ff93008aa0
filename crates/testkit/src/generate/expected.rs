//! The known classes of a generated unit, from how it was made.
//!
//! The definition is that of `classes`: the greatest relation in which two functions are equal if
//! their bodies are, and if their i-th references are to the same symbol or to equal functions that
//! may replace each other. Here bodies are equal because they are copies, and differ because they
//! were made to. For some it is not known; so there are two relations, one in which all of these
//! are equal and one in which none are. Where both agree, the answer is known.

use cranelift_codegen::ir::Inst;

/// The identity of a function or a data object, as far as equality goes.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The group, and 0 or the number of the near miss.
    pub body: (u32, u32),
    /// Whether a near miss certainly differs from the body of its group.
    pub certain: bool,
    /// The only instruction of a near miss that differs, if others are where they were.
    pub site: Option<Inst>,
    /// Whether some references may not count, because nothing goes there.
    pub folds: bool,
    /// A property that must be equal, too.
    pub key: u64,
    /// Whether a call may be redirected to an equal function.
    pub replaceable: bool,
    /// Whether an address may be that of an equal function or object.
    pub by_address: bool,
    /// In the same order in all nodes of a body.
    pub references: Vec<Reference>,
}

/// A symbol of the unit that is referred to.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    /// Whether it is a data object.
    pub data: bool,
    pub index: u32,
    pub called: bool,
    pub address: bool,
    pub patchable: bool,
    /// Whether it is an address in a function, and not that of it.
    pub inside: bool,
}

/// The known relation of two functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// They must be in one class.
    Equal,
    /// They must not.
    Different,
    /// Nothing.
    Unknown,
}

/// The known classes of the functions of a unit.
#[derive(Clone, Debug)]
pub struct Expected {
    relations: Vec<Vec<Relation>>,
    /// See [`Expected::do_the_same`].
    same: Vec<Vec<bool>>,
}

impl Expected {
    /// The known relation of two functions, by their positions in the unit.
    pub fn relation(&self, a: usize, b: usize) -> Relation {
        self.relations[a][b]
    }

    /// Whether two functions may behave equally, although symbols or addresses that they use may
    /// not replace each other where they can be observed. Functions for which this is false differ
    /// in what they compute.
    pub fn do_the_same(&self, a: usize, b: usize) -> bool {
        self.same[a][b]
    }
}

fn bodies(a: &Node, b: &Node) -> Relation {
    let near = [a, b].map(|node| node.body.1 != 0);
    if a.body == b.body {
        Relation::Equal
    } else if a.key != b.key {
        Relation::Different
    } else if a.site.is_some() && b.site.is_some() && a.site != b.site {
        // At either place one of them is as in the body of the group.
        Relation::Different
    } else if near == [true, true] || near[0] && !a.certain || near[1] && !b.certain {
        // Two changes of the same body can be one change. Near misses of different groups differ in
        // what can be changed.
        Relation::Unknown
    } else {
        Relation::Different
    }
}

/// The relation of the first `functions` nodes; the others are data objects.
pub(super) fn solve(nodes: &[Node], functions: usize) -> Expected {
    let most = fixpoint(nodes, functions, Rule::Most);
    let least = fixpoint(nodes, functions, Rule::Least);
    let relation = |a: usize, b: usize| match (least[a][b], most[a][b]) {
        (true, _) => Relation::Equal,
        (false, false) => Relation::Different,
        (false, true) => Relation::Unknown,
    };
    let row = |a: usize| (0..functions).map(|b| relation(a, b)).collect();
    Expected {
        relations: (0..functions).map(row).collect(),
        same: fixpoint(nodes, functions, Rule::Loose),
    }
}

/// Which nodes count as equal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Those that certainly are equal.
    Least,
    /// Those that may be equal.
    Most,
    /// As `Most`, and any reference may go to an equal function or object.
    Loose,
}

/// The greatest relation.
fn fixpoint(nodes: &[Node], functions: usize, rule: Rule) -> Vec<Vec<bool>> {
    let n = nodes.len();
    let most = rule != Rule::Least;
    let mut equal = vec![vec![false; n]; n];
    for a in 0..n {
        for b in 0..n {
            equal[a][b] = a == b
                || nodes[a].key == nodes[b].key
                    && match bodies(&nodes[a], &nodes[b]) {
                        Relation::Equal => true,
                        Relation::Different => false,
                        Relation::Unknown => most,
                    };
        }
    }
    loop {
        let mut changed = false;
        let before = equal.clone();
        for a in 0..n {
            for b in 0..n {
                // Of bodies that only may be equal, it is not known which reference is which.
                let known = nodes[a].body == nodes[b].body && !(most && nodes[a].folds);
                if equal[a][b] && a != b && known {
                    let pairs = nodes[a].references.iter().zip(&nodes[b].references);
                    let all = pairs
                        .into_iter()
                        .all(|(x, y)| may_replace(nodes, functions, rule, x, y, &before));
                    equal[a][b] = all;
                    changed |= !all;
                }
            }
        }
        if !changed {
            return equal;
        }
    }
}

/// Whether one reference may replace the other.
fn may_replace(
    nodes: &[Node],
    functions: usize,
    rule: Rule,
    x: &Reference,
    y: &Reference,
    equal: &[Vec<bool>],
) -> bool {
    if (x.data, x.index) == (y.data, y.index) {
        return true;
    }
    let at = |reference: &Reference| {
        reference.index as usize + if reference.data { functions } else { 0 }
    };
    let (a, b) = (at(x), at(y));
    let replaceable = |node: &Node, reference: &Reference| {
        (!reference.called || node.replaceable && !reference.patchable)
            && (!reference.address
                || node.by_address && (reference.data || node.replaceable) && !reference.inside)
    };
    let both = rule == Rule::Loose || replaceable(&nodes[a], x) && replaceable(&nodes[b], y);
    both && equal[a][b]
}
