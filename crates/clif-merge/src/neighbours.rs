//! Which functions of a unit resemble another one most: those with its signature that are equal to
//! it at most places.
//!
//! For a person who asks why a function has no equal one. It decides nothing, and knows no names.

use cranelift_codegen::ir::Function;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::explain::place_hashes;
use cranelift_mergefunc::{FunctionIndex, Options, Plan, cranelift_codegen};

/// A function that resembles another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    pub function: FunctionIndex,
    /// Places (header parts, blocks, instructions) at which the two are equal, counted from the
    /// beginning. References to functions of the unit count as equal.
    pub equal: usize,
    /// Places of the longer of the two.
    pub places: usize,
}

/// The functions of a unit with the signature of `function` that resemble it most, best first, at
/// most `limit` of them. The function itself is not among them; functions of its class are.
///
/// Walks every function with the same signature. Functions that the verifier refuses are left out,
/// and if it refuses `function` itself, there are none.
pub fn nearest(
    plan: &Plan,
    function: FunctionIndex,
    functions: &[Function],
    options: &Options<'_>,
    limit: usize,
) -> Vec<Neighbour> {
    let hashes = |at: FunctionIndex| place_hashes(plan, (at, &functions[at.index()]), options);
    let Some(own) = hashes(function) else {
        return Vec::new();
    };
    let signature = &functions[function.index()].signature;
    let others = (0..functions.len()).map(FunctionIndex::new);
    let others = others
        .filter(|&other| other != function && functions[other.index()].signature == *signature);
    let mut neighbours: Vec<Neighbour> = others
        .filter_map(|other| {
            let hashes = hashes(other)?;
            let equal = own.iter().zip(&hashes).filter(|(a, b)| a == b).count();
            Some(Neighbour { function: other, equal, places: own.len().max(hashes.len()) })
        })
        .collect();
    // a/b > c/d without rounding; then by symbol, so that the order of functions does not matter.
    let symbol = |neighbour: &Neighbour| {
        let symbol = plan.entry(neighbour.function).symbol();
        (symbol.namespace, symbol.index)
    };
    neighbours.sort_by(|a, b| {
        let product = |equal: usize, places: usize| equal as u128 * places as u128;
        let by_ratio = product(b.equal, a.places).cmp(&product(a.equal, b.places));
        by_ratio.then_with(|| symbol(a).cmp(&symbol(b)))
    });
    neighbours.truncate(limit);
    neighbours
}

#[cfg(test)]
mod tests {
    use super::{Neighbour, nearest};
    use clif_unit::unit::{Reading, Source, parse_unit};
    use clif_unit::verify::Verifier;
    use cranelift_mergefunc::{Attributes, FunctionIndex, Merger, Options};

    /// Whoever asks what resembles a function sees those of its class first, and then those with
    /// most in common.
    #[test]
    fn the_most_equal_come_first_and_other_signatures_not_at_all() {
        let function = |name: &str, ty: &str, code: &str| {
            format!(
                "function %{name}({ty}) -> {ty} fast {{\nblock0(v0: {ty}):\n{code}    return v0\n}}\n"
            )
        };
        let [add, multiply] = ["    v1 = iadd v0, v0\n", "    v2 = imul v0, v0\n"];
        let text = function("a", "i64", add)
            + &function("far", "i64", &format!("    v1 = isub v0, v0\n{multiply}"))
            + &function("near", "i64", &format!("{add}{multiply}"))
            + &function("other", "i32", add)
            + &function("equal", "i64", add);
        let sources = [Source { name: "t".to_owned(), text }];
        let verifier = Verifier::without_target();
        let unit = parse_unit(&sources, Reading::plain(&verifier)).unwrap();
        let options = Options::default();
        let mut merger = Merger::new(options);
        for func in &unit.functions {
            let symbol = func.name.get_user().unwrap().clone();
            merger.add(symbol, func, Attributes::default()).unwrap();
        }
        let plan = merger.plan(&mut &unit.functions[..]);
        let near = |at: u32, limit| {
            let at = FunctionIndex::from_u32(at);
            let found = nearest(&plan, at, &unit.functions, &options, limit);
            found.iter().map(|it| (it.function.as_u32(), it.equal)).collect::<Vec<_>>()
        };
        let all = near(0, 9);
        assert_eq!(all.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [4, 2, 1], "{all:?}");
        let Neighbour { equal, places, .. } =
            nearest(&plan, FunctionIndex::from_u32(0), &unit.functions, &options, 1)[0];
        assert_eq!(equal, places);
        assert_eq!(near(0, 2), all[..2]);
        assert_eq!(near(3, 9), []);
    }
}
