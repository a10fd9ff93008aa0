//! The names of functions and data objects: those of the text, their symbols, and what their source
//! calls them.
//!
//! Names such as `%f` become symbols of a namespace that the unit does not use. A symbol such as
//! `u0:1502` says nothing to a person; where the text says what the source calls it, as Wasmtime
//! does in a comment above each function, that name is kept as well, demangled where it is mangled
//! (Rust, C++). Such names are for people: two functions may have one, and nothing depends on them.

use crate::data::Name;
use cranelift_codegen::ir::{
    ExternalName, FuncRef, Function, GlobalValueData, UserExternalName, UserFuncName,
};
use cranelift_codegen::print_errors::pretty_verifier_error;
use cranelift_codegen::verifier::VerifierErrors;
use cranelift_mergefunc::cranelift_codegen;
use std::collections::{HashMap, HashSet};

/// A name as a person writes it: whole, or its end behind a `::`, or a pattern.
#[derive(Debug)]
pub struct Wanted<'a> {
    name: &'a str,
    pattern: Option<globset::GlobMatcher>,
}

/// How well a name fits what a person wants: the least fits best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// It is the name.
    Whole,
    /// It ends so, behind `::`.
    End,
    /// It matches the pattern.
    Pattern,
}

impl<'a> Wanted<'a> {
    /// The name that a person wrote. An invalid pattern matches nothing as a pattern.
    pub fn new(name: &'a str) -> Wanted<'a> {
        let pattern = globset::Glob::new(name).ok().filter(|_| name.contains(['*', '?']));
        Wanted { name, pattern: pattern.map(|pattern| pattern.compile_matcher()) }
    }

    /// Whether a name of the source, mangled or not, fits, and how well.
    pub fn fits(&self, name: &str) -> Option<Fit> {
        if name == self.name {
            return Some(Fit::Whole);
        }
        if name.strip_suffix(self.name).is_some_and(|before| before.ends_with("::")) {
            return Some(Fit::End);
        }
        let pattern = self.pattern.as_ref();
        pattern.is_some_and(|pattern| pattern.is_match(name)).then_some(Fit::Pattern)
    }
}

/// Names such as `%f`, and their symbols.
#[derive(Clone, Debug, Default)]
pub struct Names {
    namespace: u32,
    texts: Vec<String>,
    by_text: HashMap<String, u32>,
    /// Names of functions in the source, as the text says them. A name is demangled when it is
    /// asked for: most runs print no names, and demangling all of a large unit takes as long as
    /// reading a part of it.
    source: HashMap<UserExternalName, String>,
    /// Of functions that have no name, one that has, and whether it calls them.
    related: HashMap<UserExternalName, (Relation, UserExternalName)>,
}

/// How a function without a name is related to one that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Calls,
    CalledBy,
}

/// A function that more functions without a name call says nothing of them.
const MAX_CALLERS: usize = 16;

/// How the comments begin that name functions.
const COMMENT: &str = "Intermediate Representation of function <";

/// The name in a comment such as Wasmtime writes above each function,
/// `;; Intermediate Representation of function <wasm[0]::function[12]::name>:`.
pub(crate) fn in_comment(comment: &str) -> Option<&str> {
    let (_, name) = comment.split_once(COMMENT)?;
    let (name, _) = name.rsplit_once('>')?;
    // Its numbers are those of its symbol.
    let name = numbered(name, "wasm").unwrap_or(name);
    let name = numbered(name, "function").unwrap_or(name);
    Some(name).filter(|name| !name.is_empty())
}

/// The text after `word[N]::`, or after `word[N]` at the end.
fn numbered<'a>(name: &'a str, word: &str) -> Option<&'a str> {
    let rest = name.strip_prefix(word)?.strip_prefix('[')?;
    let (number, rest) = rest.split_once(']')?;
    let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    let rest = if rest.is_empty() { Some(rest) } else { rest.strip_prefix("::") };
    rest.filter(|_| is_number)
}

/// A name as a person knows it: demangled if it is of Rust (v0 or legacy) or of C++, without the
/// hash of a crate or of an instance. Of a mangled name that was cut off, as Wasmtime does behind
/// 100 characters, it is the identifiers that are left, and `…`.
pub fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if name.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
        && let Ok(text) = symbol.demangle()
    {
        return text;
    }
    cut_off(name).unwrap_or_else(|| name.to_owned())
}

/// The identifiers of a mangled name of Rust that was cut off, if it is one.
fn cut_off(name: &str) -> Option<String> {
    let mut rest = name.strip_prefix("_R").or(name.strip_prefix("_ZN"))?;
    let mut identifiers: Vec<&str> = Vec::new();
    while let Some(first) = rest.chars().next() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            let (length, tail) = rest.split_at(digits);
            let length: usize = length.parse().ok()?;
            let Some(identifier) = tail.get(..length) else {
                break;
            };
            identifiers.push(identifier);
            rest = &tail[length..];
        } else if let ('s' | 'B', Some((number, tail))) = (first, rest[1..].split_once('_'))
            && number.bytes().all(|digit| digit.is_ascii_alphanumeric())
        {
            // A number in base 62: of a crate or an instance, or of a place before.
            rest = tail;
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    (!identifiers.is_empty()).then(|| identifiers.join("::") + "…")
}

/// The family of a demangled name: without what differs between instances of one generic function.
/// Arguments in angle brackets become `_`, and parameters in parentheses are left out:
/// `core::ptr::drop_in_place::<T>` and all others are `core::ptr::drop_in_place::<_>`,
/// `<Vec<u8> as Drop>::drop` is `<_ as Drop>::drop`.
pub fn family(name: &str) -> String {
    let mut family = String::new();
    let (mut angles, mut parentheses) = (0_u32, 0_u32);
    // Whether the outermost angle bracket is that of `<T as Trait>::f`, which begins a path.
    let mut is_path = false;
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let at_start = family.is_empty();
        match first {
            _ if rest.starts_with("->") => {
                if angles + parentheses == 0 {
                    family.push_str("->");
                }
                rest = &rest[2..];
                continue;
            }
            '<' if parentheses == 0 => {
                angles += 1;
                if angles == 1 {
                    is_path = at_start;
                    family.push_str("<_");
                }
            }
            '>' if parentheses == 0 && angles > 0 => {
                angles -= 1;
                if angles == 0 {
                    family.push('>');
                }
            }
            '(' if angles == 0 => parentheses += 1,
            ')' if angles == 0 && parentheses > 0 => parentheses -= 1,
            ' ' if angles == 1 && is_path && rest.starts_with(" as ") => {
                // The trait is what the instances have in common.
                let end = end_of_trait(&rest[4..]);
                family.push_str(" as ");
                family.push_str(&self::family(&rest[4..4 + end]));
                rest = &rest[4 + end..];
                continue;
            }
            _ if angles + parentheses == 0 => family.push(first),
            _ => {}
        }
        rest = &rest[first.len_utf8()..];
    }
    family
}

/// Where the angle bracket closes that is open at the beginning of a text.
fn end_of_trait(text: &str) -> usize {
    let mut depth = 0_u32;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if at > 0 && text.as_bytes()[at - 1] == b'-' => {}
            b'>' if depth == 0 => return at,
            b'>' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

impl Names {
    /// No names yet: they will be symbols of this namespace.
    pub(crate) fn new(namespace: u32) -> Names {
        Names { namespace, ..Names::default() }
    }

    /// The name of a symbol in the text.
    pub fn display(&self, symbol: &UserExternalName) -> String {
        match self.text_of(symbol) {
            Some(text) => format!("%{text}"),
            None => symbol.to_string(),
        }
    }

    fn text_of(&self, symbol: &UserExternalName) -> Option<&str> {
        let text = self.texts.get(symbol.index as usize)?;
        (symbol.namespace == self.namespace).then_some(text)
    }

    /// The symbol of a name that the text has.
    pub(crate) fn symbol(&self, text: &str) -> UserExternalName {
        UserExternalName::new(self.namespace, self.by_text[text])
    }

    /// The symbol of a name that the text has.
    pub fn symbol_of(&self, name: &Name) -> UserExternalName {
        match name {
            Name::Text(text) => self.symbol(text),
            Name::User(symbol) => symbol.clone(),
        }
    }

    /// Records what the source calls a function.
    pub(crate) fn learn(&mut self, symbol: &UserExternalName, raw: &str) {
        self.source.insert(symbol.clone(), raw.to_owned());
    }

    /// The name of a function in the source, demangled, if that is known.
    pub fn of_source(&self, symbol: &UserExternalName) -> Option<String> {
        self.source.get(symbol).map(|raw| demangled(raw))
    }

    /// Finds, for each function that only has a number, one with a name that it calls, or else one
    /// that calls it: of those that it calls, the one that fewest such functions call, and the
    /// first of these. Functions of WebAssembly whose names were stripped are recognised by that,
    /// so no function is taken that many call, nor a trampoline.
    pub(crate) fn relate(&mut self, functions: &[(&UserExternalName, &Function)]) {
        let is_numbered = |symbol: &UserExternalName| {
            self.text_of(symbol).is_none() && !self.source.contains_key(symbol)
        };
        let numbered = functions.iter().map(|&(symbol, _)| symbol);
        let numbered: HashSet<_> = numbered.filter(|&symbol| is_numbered(symbol)).collect();
        // All functions have names, as a rule, or none has.
        if numbered.is_empty() || self.source.is_empty() {
            return;
        }
        let mut callers: HashMap<&UserExternalName, usize> = HashMap::new();
        for (_, func) in functions.iter().filter(|(caller, _)| numbered.contains(caller)) {
            func.params
                .user_named_funcs()
                .values()
                .for_each(|it| *callers.entry(it).or_default() += 1);
        }
        let is_trampoline = |symbol: &UserExternalName| {
            self.source.get(symbol).is_some_and(|raw| raw.contains("_trampoline["))
        };
        let mut related = HashMap::new();
        for &(caller, func) in functions {
            let callees = || func.params.user_named_funcs().values();
            if numbered.contains(caller) {
                let named = callees().filter(|it| !is_numbered(it) && callers[it] <= MAX_CALLERS);
                // A callee says more of a function than a caller.
                if let Some(callee) = named.min_by_key(|it| callers[it]) {
                    related.insert(caller.clone(), (Relation::Calls, callee.clone()));
                }
            } else if !is_trampoline(caller) {
                for callee in callees().filter(|it| numbered.contains(it)) {
                    let new = || (Relation::CalledBy, caller.clone());
                    related.entry(callee.clone()).or_insert_with(new);
                }
            }
        }
        self.related = related;
    }

    /// Of a function that only has a number: `calls NAME`, or `called by NAME`, if that is known.
    pub fn relation(&self, symbol: &UserExternalName) -> Option<String> {
        let (relation, other) = self.related.get(symbol)?;
        let other = self.of_source(other).unwrap_or_else(|| self.display(other));
        let relation = match relation {
            Relation::Calls => "calls",
            Relation::CalledBy => "called by",
        };
        Some(format!("{relation} {other}"))
    }

    /// A comment that says what the source calls a function, as it is read; empty if that is not
    /// known.
    pub(crate) fn comment(&self, symbol: &UserExternalName) -> String {
        let name = self.source.get(symbol);
        name.map_or(String::new(), |raw| format!(";; {COMMENT}{raw}>:\n"))
    }

    /// The name of a symbol for a person: that in the text, and what the source calls it, or whom
    /// it calls or is called by, if that is known.
    pub fn describe(&self, symbol: &UserExternalName) -> String {
        let name = self.display(symbol);
        match self.of_source(symbol).or_else(|| self.relation(symbol)) {
            Some(source) => format!("{name} ({source})"),
            None => name,
        }
    }

    /// All names of a symbol: that in the text, and what the source calls it, mangled and not.
    pub fn all(&self, symbol: &UserExternalName) -> Vec<String> {
        let mut names = vec![self.display(symbol)];
        if let Some(raw) = self.source.get(symbol) {
            names.push(raw.clone());
            names.push(demangled(raw));
        }
        names.dedup();
        names
    }

    /// The symbols that a person means by `name`, ascending: one that the text calls so (`%f`, `f`,
    /// `u0:1`), or all that the source calls so, or whose source names end so behind `::`, or match
    /// it as a pattern.
    pub fn find(&self, name: &str) -> Vec<UserExternalName> {
        if let Some(symbol) = self.parse(name) {
            return vec![symbol];
        }
        let wanted = Wanted::new(name);
        let ranked = self.source.iter();
        let ranked: Vec<(Fit, &UserExternalName)> = ranked
            .filter_map(|(symbol, raw)| {
                Some((
                    wanted.fits(raw).into_iter().chain(wanted.fits(&demangled(raw))).min()?,
                    symbol,
                ))
            })
            .collect();
        let best = ranked.iter().map(|&(rank, _)| rank).min();
        let meant = ranked.into_iter().filter(|&(rank, _)| Some(rank) == best);
        let mut meant: Vec<UserExternalName> = meant.map(|(_, symbol)| symbol.clone()).collect();
        meant.sort_unstable_by_key(|symbol| (symbol.namespace, symbol.index));
        meant
    }

    /// The symbol that a person means by `name`: `%f`, `f` or `u0:1`.
    pub fn parse(&self, name: &str) -> Option<UserExternalName> {
        let text = name.strip_prefix('%').unwrap_or(name);
        if let Some(&index) = self.by_text.get(text) {
            return Some(UserExternalName::new(self.namespace, index));
        }
        let (namespace, index) = name.strip_prefix('u')?.split_once(':')?;
        Some(UserExternalName::new(namespace.parse().ok()?, index.parse().ok()?))
    }

    /// Adds a name that the text does not have.
    pub fn add(&mut self, text: String) -> UserExternalName {
        let index = self.texts.len() as u32;
        self.by_text.insert(text.clone(), index);
        self.texts.push(text);
        UserExternalName::new(self.namespace, index)
    }

    /// Gives a symbol that was added another name.
    pub fn rename(&mut self, symbol: &UserExternalName, text: String) {
        let named = &mut self.texts[symbol.index as usize];
        self.by_text.remove(named);
        self.by_text.insert(text.clone(), symbol.index);
        *named = text;
    }

    /// Whether `text` is a name of the unit.
    pub fn contains(&self, text: &str) -> bool {
        self.by_text.contains_key(text)
    }

    /// A copy of `func` as the text writes it.
    pub fn restore(&self, func: &Function) -> Function {
        let mut func = func.clone();
        if let UserFuncName::User(symbol) = &func.name
            && let Some(text) = self.text_of(symbol)
        {
            func.name = UserFuncName::testcase(text);
        }
        rename(&mut func, |symbol| self.text_of(symbol).map(ExternalName::testcase));
        func
    }

    /// The text of `func` with what the verifier says of it.
    pub fn draw(&self, func: &Function, errors: VerifierErrors) -> String {
        let drawn = pretty_verifier_error(&self.restore(func), None, errors);
        // The last line counts the errors, and says that something was aborted.
        let listing = drawn.trim_end().rsplit_once("\n\n; ").map(|(listing, _)| listing);
        listing.unwrap_or(&drawn).trim_end().to_owned()
    }
}

/// Gives external user names of `func` other names.
fn rename(func: &mut Function, new: impl Fn(&UserExternalName) -> Option<ExternalName>) {
    let names = func.params.user_named_funcs().clone();
    let new = |name: &ExternalName| match name {
        ExternalName::User(name_ref) => new(&names[*name_ref]),
        ExternalName::TestCase(_) | ExternalName::LibCall(_) | ExternalName::KnownSymbol(_) => None,
    };
    for index in 0..func.dfg.ext_funcs.len() {
        let callee = &mut func.dfg.ext_funcs[FuncRef::from_u32(index as u32)];
        if let Some(name) = new(&callee.name) {
            callee.name = name;
        }
    }
    for gv in func.global_values.values_mut() {
        if let GlobalValueData::Symbol { name, .. } = gv
            && let Some(new) = new(name)
        {
            *name = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_wasmtime_name_functions() {
        let comment = |name: &str| format!(";; Intermediate Representation of function <{name}>:");
        for (name, expected) in [
            ("wasm[0]::function[12]::add", Some("add")),
            ("wasm[0]::function[12]::<T as U>::f", Some("<T as U>::f")),
            ("wasm[0]::function[12]", None),
            ("wasm[0]::array_to_wasm_trampoline[3]", Some("array_to_wasm_trampoline[3]")),
            ("plain", Some("plain")),
        ] {
            assert_eq!(in_comment(&comment(name)), expected, "{name}");
        }
        assert_eq!(in_comment("; another comment <f>"), None);
    }

    #[test]
    fn mangled_names_are_demangled() {
        for (name, expected) in [
            ("_ZN4core3ptr4read17h0123456789abcdefE", "core::ptr::read"),
            ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backEOi",
                "std::vector<int, std::allocator<int> >::push_back(int&&)",
            ),
            ("main", "main"),
            // Cut off.
            (
                "_RNvMsd_NtNtNtCs6UVglvESt6O_5alloc11collections5btree4nodeINtB5_7NodeRefNtNtB5_6mar",
                "alloc::collections::btree::node::NodeRef…",
            ),
        ] {
            assert_eq!(demangled(name), expected);
        }
    }

    #[test]
    fn instances_of_one_function_are_one_family() {
        for (name, expected) in [
            ("core::ptr::drop_in_place::<alloc::vec::Vec<u8>>", "core::ptr::drop_in_place::<_>"),
            (
                "<alloc::vec::Vec<u8> as core::ops::drop::Drop>::drop",
                "<_ as core::ops::drop::Drop>::drop",
            ),
            ("<u8 as core::convert::From<bool>>::from", "<_ as core::convert::From<_>>::from"),
            ("<alloc::raw_vec::RawVec<u8>>::grow_one", "<_>::grow_one"),
            (
                "std::vector<int, std::allocator<int> >::push_back(int&&)",
                "std::vector<_>::push_back",
            ),
            (
                "<fn(u8) -> u8 as core::ops::function::FnOnce<(u8,)>>::call_once",
                "<_ as core::ops::function::FnOnce<_>>::call_once",
            ),
            ("main", "main"),
        ] {
            assert_eq!(family(name), expected);
        }
    }

    #[test]
    fn a_person_finds_functions_by_any_of_their_names() {
        let mut names = Names::new(7);
        let symbols = [0, 1, 2].map(|index| UserExternalName::new(0, index));
        names.learn(&symbols[0], "_ZN4core3ptr4read17h0123456789abcdefE");
        names.learn(&symbols[1], "other::read");
        names.learn(&symbols[2], "write");
        let find = |name: &str| -> Vec<u32> {
            names.find(name).into_iter().map(|symbol| symbol.index).collect()
        };
        assert_eq!(find("u0:2"), [2]);
        assert_eq!(find("write"), [2]);
        assert_eq!(find("core::ptr::read"), [0]);
        assert_eq!(find("_ZN4core3ptr4read17h0123456789abcdefE"), [0]);
        assert_eq!(find("ptr::read"), [0]);
        assert_eq!(find("read"), [0, 1]);
        assert_eq!(find("*::read"), [0, 1]);
        assert_eq!(find("ead"), [0; 0]);
        assert_eq!(names.describe(&symbols[0]), "u0:0 (core::ptr::read)");
        assert_eq!(names.describe(&UserExternalName::new(0, 9)), "u0:9");
    }

    /// Functions of WebAssembly whose names were stripped were numbers in every list.
    #[test]
    fn a_numbered_function_is_known_by_one_with_a_name() {
        let calls = |own: u32, callee: u32| {
            let text = format!("function u0:{own}() {{ fn0 = u0:{callee}() block0: return }}");
            cranelift_reader::parse_functions(&text).unwrap().remove(0)
        };
        let symbols: Vec<_> = (0..40).map(|index| UserExternalName::new(0, index)).collect();
        // Named 1 calls 0; 0 calls 2, which calls named 3; 4 is called by a trampoline, 5; all
        // behind these call named 6, which says nothing of them.
        let mut functions = vec![calls(0, 2), calls(1, 0), calls(2, 3), calls(3, 3), calls(4, 4)];
        functions.extend([calls(5, 4), calls(6, 6)]);
        functions.extend((7..40).map(|index| calls(index, 6)));
        let mut names = Names::new(7);
        names.learn(&symbols[1], "caller");
        names.learn(&symbols[3], "callee");
        names.learn(&symbols[5], "array_to_wasm_trampoline[4]");
        names.learn(&symbols[6], "builtin");
        names.relate(&symbols.iter().zip(&functions).collect::<Vec<_>>());
        let described: Vec<String> = symbols.iter().map(|it| names.describe(it)).collect();
        let known = ["called by caller", "caller", "calls callee", "callee"];
        for (number, known) in known.into_iter().enumerate() {
            assert_eq!(described[number], format!("u0:{number} ({known})"));
        }
        assert_eq!(described[4], "u0:4");
        assert_eq!(described[7..], Vec::from_iter((7..40).map(|number| format!("u0:{number}"))));
    }
}
