//! The common part of generators and oracles: parsing, verifying, planning two functions as one
//! unit, random choices.
//!
//! Nothing here decides whether two functions are equal.

use crate::isa;
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_codegen::verify_function;
use cranelift_mergefunc::check::may_replace;
use cranelift_mergefunc::explain::Encoding;
use cranelift_mergefunc::{
    Addresses, Attributes, Compare, FunctionIndex, Linkage, Merger, Options, Plan,
};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The functions of a text in Cranelift's IR format.
#[track_caller]
pub fn parse(text: &str) -> Vec<Function> {
    match cranelift_reader::parse_functions(text) {
        Ok(functions) => functions,
        Err(error) => {
            let line = text.lines().nth(error.location.line_number.saturating_sub(1));
            panic!("{error}: {}", line.unwrap_or_default())
        }
    }
}

/// The only function of a text.
#[track_caller]
pub fn parse_one(text: &str) -> Function {
    let mut functions = parse(text);
    assert_eq!(functions.len(), 1, "one function in\n{text}");
    functions.remove(0)
}

/// The text of a function of one `i64` that is worth sharing. `header` is what it declares, in
/// lines, and `first` what stands at its beginning and defines `v1`; the rest is always the same.
pub fn long_function(name: &str, header: &str, first: &str) -> String {
    let rounds = (2..40).map(|at| {
        let product = 100 + at;
        format!("    v{product} = imul v{at}, v0\n    v{} = rotl v{product}, v0\n", at + 1)
    });
    let rounds: String = rounds.collect();
    format!(
        "function {name}(i64) -> i64 system_v {{
{header}block0(v0: i64):
    {first}
    v2 = bxor v0, v1
{rounds}    return v40
}}
"
    )
}

/// Applies the rules with which this crate goes on after Cranelift's optimiser, and nothing else,
/// to a function. Returns whether anything changed.
pub fn apply_rules(func: &mut Function) -> bool {
    cranelift_mergefunc_canonical::apply_rules(func)
}

/// The canonical body of a function, or the function as it is, if there is none.
pub fn canonical_body(func: &Function, isa: &dyn TargetIsa) -> Function {
    cranelift_mergefunc_canonical::canonical_body(func, isa).unwrap_or_else(|| func.clone())
}

/// An ISA of the host that optimises, with every setting that some instruction asks for. The
/// verifier needs it to look at `get_pinned_reg` and its like.
pub fn any_isa() -> &'static dyn TargetIsa {
    static ISA: OnceLock<OwnedTargetIsa> = OnceLock::new();
    let isa = ISA.get_or_init(|| {
        isa::of(isa::HOST, &[&isa::ANY_INSTRUCTION[..], &[("opt_level", "speed")]].concat())
    });
    &**isa
}

/// The first error of Cranelift's verifier in a function.
pub fn verifier_error(func: &Function) -> Option<String> {
    verify_function(func, any_isa()).err().map(|errors| errors.to_string())
}

/// Panics unless Cranelift's verifier accepts the function.
#[track_caller]
pub fn verify(func: &Function) {
    if let Some(error) = verifier_error(func) {
        panic!("{error}\n{func}");
    }
}

/// Options with which every function is walked, so that functions that would be prefiltered by the
/// counts of their tables are compared, too.
pub fn walk_all() -> Options<'static> {
    Options {
        compare: Compare { every_function: true, ..Compare::default() },
        ..Options::default()
    }
}

/// Attributes of a function that may be eliminated: local, with an insignificant address.
pub fn free() -> Attributes {
    Attributes {
        linkage: Linkage::Local,
        addresses: Addresses::Insignificant,
        ..Attributes::default()
    }
}

/// Symbols that no function of the tests refers to by chance.
pub fn test_symbol(index: u32) -> UserExternalName {
    UserExternalName::new(1000, index)
}

/// The encoding of a function on its own, which must have one.
#[track_caller]
pub fn encode(func: &Function, options: &Options<'_>) -> Encoding {
    Encoding::of(func, options).unwrap_or_else(|| panic!("has no encoding:\n{func}"))
}

/// The checker's record of a function. `None` for a function that the verifier refuses.
pub fn trace(func: &Function) -> Option<([u8; 32], String)> {
    cranelift_mergefunc::internals::trace(func, &walk_all())
}

/// Plans the functions as one unit, under symbols that none of them refers to.
pub fn plan_of(functions: &[Function], options: Options<'_>) -> (Plan, Vec<FunctionIndex>) {
    let mut merger = Merger::new(options);
    let indices = functions
        .iter()
        .zip(0..)
        .map(|(func, index)| merger.add(test_symbol(index), func, free()).expect("is added"))
        .collect();
    let mut bodies: &[Function] = functions;
    (merger.plan(&mut bodies), indices)
}

/// Whether a unit of just these two functions has them in one class.
pub fn same_class(a: &Function, b: &Function, options: Options<'_>) -> bool {
    let functions = [a.clone(), b.clone()];
    let (plan, indices) = plan_of(&functions, options);
    plan.entry(indices[0]).class() == plan.entry(indices[1]).class()
}

/// The CLIF texts below a folder, sorted.
pub fn clif_files(folder: &Path) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder);
        for entry in entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("is listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "clif") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Panics unless the two functions are equal by every view that the library has of equality.
#[track_caller]
pub fn assert_equal(a: &Function, b: &Function, what: &str) {
    let options = walk_all();
    assert_eq!(encode(a, &options), encode(b, &options), "{what}:\n{a}\n{b}");
    assert!(same_class(a, b, options), "{what}: one class\n{a}\n{b}");
    for (kept, original) in [(a, b), (b, a)] {
        let mismatch =
            may_replace(kept, original, &options).map_err(|refutation| refutation.mismatch);
        assert_eq!(mismatch, Ok(()), "{what}\n{kept}\n{original}");
    }
}

/// Panics if the two functions are equal by any view that the library has of equality.
#[track_caller]
pub fn assert_different(a: &Function, b: &Function, what: &str) {
    let options = walk_all();
    let equal = Encoding::of(a, &options) == Encoding::of(b, &options);
    assert!(!equal, "{what}: equal encodings\n{a}\n{b}");
    assert!(!same_class(a, b, options), "{what}: one class\n{a}\n{b}");
    for (kept, original) in [(a, b), (b, a)] {
        let proved = may_replace(kept, original, &options).is_ok();
        assert!(!proved, "{what}: the checker takes one for the other\n{kept}\n{original}");
    }
}

/// A small generator of random numbers (SplitMix64) for choices that need not be visible to a
/// fuzzer. Never fails, and gives the same on every host.
pub struct Rng(u64);

impl Rng {
    /// The generator that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// True in all but one of `n` times.
    pub fn but_one_in(&mut self, n: usize) -> bool {
        !self.one_in(n)
    }

    /// One of `items`, which must not be empty.
    pub fn choose<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// Input for a property, the same for the same seed.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        std::iter::repeat_with(|| self.word()).flat_map(u64::to_le_bytes).take(len).collect()
    }
}
