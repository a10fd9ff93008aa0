//! Properties of every text, whatever is in it.
//!
//! A text that is refused is refused with the file and the line. One that is accepted is printed
//! and read back as the same unit; it is merged, checked and printed, and merging the printed unit
//! changes nothing. No text ends the program by a panic, but for those of Cranelift's reader and
//! verifier, which the program contains.
//!
//! Nothing is compiled, and nothing that Cranelift's verifier accepts is doubted.

use crate::isa;
use crate::support::clif_files;
use clif_unit::contain::{contain, intercepted};
use clif_unit::data::parse::MAX_FILL;
use clif_unit::emit_text::{emit, emit_unmerged};
use clif_unit::pass::{self, Merged};
use clif_unit::unit::{Defaults, Reading, Source, Unit, parse_unit};
use clif_unit::verify::Verifier;
use clif_unit::{check, data, text};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_mergefunc::data::Contents;
use cranelift_mergefunc::{
    Addresses, Attributes, Compare, Linkage, Options, Policy, Similar, Target, cranelift_codegen,
};
use cranelift_mergefunc_canonical::panic_is_contained;
use std::sync::OnceLock;

/// The name of the text, which begins every error.
const NAME: &str = "unit.clif";

/// Panics if a property does not hold for `text`.
pub fn check(text: &str) {
    static HOOK: OnceLock<()> = OnceLock::new();
    HOOK.get_or_init(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !intercepted(&info.to_string()) && !panic_is_contained() {
                before(info);
            }
        }));
    });
    let unit = read(text, Defaults::default());
    let Some(unit) = unit else { return };
    check_memory(&unit, text);
    let free = defaults(Linkage::Local, Addresses::Insignificant, Addresses::Insignificant);
    let others = [
        free,
        defaults(Linkage::Preemptible, Addresses::Insignificant, Addresses::Significant),
        defaults(Linkage::Hidden, Addresses::Significant, Addresses::Insignificant),
    ];
    let printed = print(text, &unit);
    assert_eq!(printed, emit_unmerged(&unit), "without a plan");
    check_printed(&unit, &printed, others);
    let free = read(text, free).expect("only the defaults differ");
    check_printed(&free, &print(text, &free), others);

    for (unit, isa) in [(&unit, isa("x86_64")), (&free, isa("aarch64"))] {
        for aliases in [false, true] {
            let target = Target::of(&**isa);
            for policy in [Policy::Off, Policy::Size] {
                let similar = Similar { policy, ..Similar::default() };
                let compare = Compare { every_function: true, ..Compare::default() };
                let options = Options { aliases, target, compare, similar, ..Options::default() };
                check_merged(unit, &options, isa);
            }
        }
    }
}

/// The defaults where a text has no directive: for functions, and for data objects.
fn defaults(linkage: Linkage, addresses: Addresses, data_addresses: Addresses) -> Defaults {
    let functions = Attributes { linkage, addresses, ..Attributes::default() };
    Defaults { functions, data_addresses }
}

/// A text that was printed is the same unit whatever the defaults are, those of the unit that was
/// printed or any others; and printed again it is the same text.
fn check_printed(unit: &Unit, printed: &str, others: impl IntoIterator<Item = Defaults>) {
    for defaults in std::iter::once(Defaults::default()).chain(others) {
        let again = read_back(printed, defaults);
        assert_same(unit, &again);
        assert_eq!(print(printed, &again), printed, "printed again");
    }
}

/// The unit of a text, if it is one.
fn read(text: &str, defaults: Defaults) -> Option<Unit> {
    let source = Source { name: NAME.to_owned(), text: text.to_owned() };
    match parse_unit(&[source], Reading { defaults, ..Reading::plain(verifier()) }) {
        Ok(unit) => Some(unit),
        Err(error) => {
            check_place(&format!("{error:#}"), text);
            None
        }
    }
}

/// The verifier of the program's default target.
fn verifier() -> &'static Verifier {
    static VERIFIER: OnceLock<Verifier> = OnceLock::new();
    VERIFIER.get_or_init(Verifier::without_target)
}

/// The text of a unit of which nothing is merged. `text` is that from which it was read.
fn print(text: &str, unit: &Unit) -> String {
    // A function with duplicates loses facts even if it is kept, so here no two functions are
    // equal.
    let mut apart = read(text, Defaults::default()).expect("it was read before");
    apart.given.iter_mut().for_each(|given| given.attributes.no_merge = true);
    for (key, data) in (0..).zip(&mut apart.data) {
        data.attributes.key = key;
    }
    let options = Options::default();
    match pass::plan(&apart, &options) {
        Ok((plan, names)) => emit(unit, &pass::apply(unit, plan, names)),
        Err(error) => panic!("a unit that was read cannot be planned: {error:#}"),
    }
}

/// The unit of a text that we printed.
fn read_back(text: &str, defaults: Defaults) -> Unit {
    let source = Source { name: NAME.to_owned(), text: text.to_owned() };
    match parse_unit(&[source], Reading { defaults, ..Reading::plain(verifier()) }) {
        Ok(unit) => unit,
        Err(error) => panic!("{error:#}\nin what was printed:\n{text}"),
    }
}

/// An error says where.
fn check_place(error: &str, text: &str) {
    let rest = error.strip_prefix(NAME).unwrap_or_else(|| panic!("no file: {error}"));
    if rest.starts_with(": no functions") {
        return;
    }
    let digits = rest.strip_prefix(':').unwrap_or_default();
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let line: Option<usize> = digits[..end].parse().ok();
    let lines = text.split('\n').count();
    assert!(line.is_some_and(|line| (1..=lines).contains(&line)), "of {lines} lines: {error}");
}

/// A short text takes little memory: a bounded number of bytes for each word that asks for zeros.
fn check_memory(unit: &Unit, text: &str) {
    let bytes = unit.data.iter().map(|data| match &data.object.contents {
        Contents::Zeros(_) => 0,
        Contents::Bytes(bytes) => bytes.len(),
    });
    let bytes: usize = bytes.sum();
    let most = text.matches("zero").count() * MAX_FILL as usize + text.len();
    assert!(bytes <= most, "{bytes} bytes of data in a text of {}", text.len());
}

fn merge(unit: &Unit, options: &Options<'_>) -> Merged {
    match pass::merge(unit, options) {
        Ok(merged) => merged,
        Err(error) => panic!("a unit that was read cannot be merged: {error:#}"),
    }
}

fn check_merged(unit: &Unit, options: &Options<'_>, isa: &OwnedTargetIsa) {
    let merged = merge(unit, options);
    if let Err(error) = check::proof(unit, &merged, options) {
        panic!("{error:#}");
    }
    // The verifier has not seen the functions with this ISA, and may panic at what it sees.
    if let Ok(Err(error)) = contain(|| check::check(unit, &merged, options, &**isa)) {
        panic!("{error:#}");
    }
    let printed = emit(unit, &merged);
    // If nothing is left, there is no unit any more.
    let again = read_back(&printed, Defaults::default());
    // Which similar functions share a body depends on the other functions of the unit.
    if options.similar.policy == Policy::Off {
        let twice = emit(&again, &merge(&again, options));
        assert_eq!(twice, printed, "merging the merged unit changes it");
    }
}

/// The same functions and data objects, in the same order and with the same attributes.
fn assert_same(one: &Unit, other: &Unit) {
    assert_eq!(one.functions.len(), other.functions.len());
    for at in 0..one.functions.len() {
        let [text, again] =
            [one, other].map(|unit| text::of(&unit.names.restore(&unit.functions[at])));
        let [given, given_again] = [one, other].map(|unit| &unit.given[at]);
        // A thunk or an alias is printed as a call of its target.
        if given.became.is_none() {
            assert_eq!(text, again);
        }
        let name = |unit: &Unit, symbol| unit.names.display(symbol);
        assert_eq!(name(one, &given.symbol), name(other, &given_again.symbol));
        assert_eq!(given.attributes, given_again.attributes, "{text}");
        let became = [(one, given), (other, given_again)].map(|(unit, given)| {
            given.became.as_ref().map(|(kind, target)| (*kind, name(unit, target)))
        });
        assert_eq!(became[0], became[1]);
    }
    assert_eq!(one.data.len(), other.data.len());
    for (given, given_again) in one.data.iter().zip(&other.data) {
        let print = |unit: &Unit, data| data::print(data, &|name| unit.names.display(name));
        assert_eq!(print(one, given), print(other, given_again));
        assert_eq!(given.object.contents, given_again.object.contents);
        assert_eq!(given.attributes, given_again.attributes);
    }
}

/// An ISA with all that instructions ask for.
fn isa(name: &'static str) -> &'static OwnedTargetIsa {
    static ISAS: [OnceLock<OwnedTargetIsa>; 2] = [OnceLock::new(), OnceLock::new()];
    ISAS[usize::from(name == "aarch64")].get_or_init(|| isa::of(name, &isa::ANY_INSTRUCTION))
}

/// The texts of all filetests, in the order of their paths.
pub fn filetests() -> Vec<String> {
    let paths = clif_files(&crate::root().join("filetests"));
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

#[cfg(test)]
mod tests {
    use super::{check, filetests};
    use crate::support::Rng;
    use crate::text_mutation::mutated;
    use arbitrary::Unstructured;

    /// The fuzz target `text` for a moment: see `crates/testkit/tests/fuzzing.rs`.
    #[test]
    fn texts_that_were_changed() {
        let all = filetests();
        let random = |u: &mut Unstructured<'_>| {
            let text = u.choose(&all)?;
            let text = mutated(text, u)?;
            // The message of a panic that is not contained has only its location.
            let failed = Failed(text);
            check(&failed.0);
            std::mem::forget(failed);
            Ok(())
        };
        if std::env::var_os("ARBTEST_BUDGET_MS").is_some() {
            return arbtest::arbtest(random).size_min(256).size_max(4096).run();
        }
        // As they stand, and changed.
        all.iter().step_by(5).for_each(|text| check(text));
        for seed in 0..40 {
            let bytes = Rng::new(seed).bytes(512);
            // Too few bytes are no failure.
            let _ = random(&mut Unstructured::new(&bytes));
        }
    }

    /// Prints the text at which something panicked.
    struct Failed(String);

    impl Drop for Failed {
        fn drop(&mut self) {
            eprintln!("{}", self.0);
        }
    }
}
