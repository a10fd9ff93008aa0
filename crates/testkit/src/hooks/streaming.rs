//! Where faults are planted in merging of functions that arrive one at a time.

use inject::{Hook, Put};

/// The hooks, in the order of their files.
pub const HOOKS: &[Hook] = &[
    Hook {
        file: "src/corpus/mod.rs",
        at: &[
            "let encoding = self.items[known].encoding;",
            "self.candidates(encoding, || Some(self.own_hash(known))).find(|&candidate| {",
        ],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::StreamedReferences) {
    return self.first(self.items[known].encoding);
}"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["for reference in self.corpus.references(known(function)) {"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::StreamedCallees) {
    continue;
}"#,
        ),
    },
    Hook {
        file: "src/canon/code_digest.rs",
        at: &["packed.clear();"],
        put: Put::Before(
            r#"let mut overlooked = encoding.clone();
if crate::fault_injection::is(crate::fault_injection::Fault::StreamedConstants) {
    overlooked.constants.clear();
}
let encoding = &overlooked;"#,
        ),
    },
    Hook {
        file: "src/streaming/reading.rs",
        at: &["self.symbols.add_tables(func);"],
        put: Put::Instead(
            r#"if !crate::fault_injection::is(crate::fault_injection::Fault::StreamedTables) {
    self.symbols.add_tables(func);
}"#,
        ),
    },
    Hook {
        file: "src/streaming/reading.rs",
        at: &["self.symbols.add_address_uses(func);"],
        put: Put::Instead(
            r#"if !crate::fault_injection::is(crate::fault_injection::Fault::StreamedAddresses) {
    self.symbols.add_address_uses(func);
}"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["self.corpus.symbols.observe_address(symbol, offset != 0);"],
        put: Put::Instead(
            r#"if !crate::fault_injection::is(crate::fault_injection::Fault::StreamedPointers) {
    self.corpus.symbols.observe_address(symbol, offset != 0);
}"#,
        ),
    },
    Hook {
        file: "src/corpus/mod.rs",
        at: &["Target::Class(class) if class == known => SoughtTarget::Member(0),"],
        put: Put::Before(
            r#"Target::Class(class)
    if crate::fault_injection::is(crate::fault_injection::Fault::StreamedItself)
        && self.items[class].encoding == self.items[known].encoding =>
{
    SoughtTarget::Member(0)
}"#,
        ),
    },
    Hook {
        file: "src/corpus/mod.rs",
        at: &["let meets = |_, class| class == candidate || class == known;"],
        put: Put::After(
            r#"let meets = |member, class: KnownIndex| {
    meets(member, class)
        || crate::fault_injection::is(crate::fault_injection::Fault::StreamedItself)
            && self.items[class].encoding == encoding
};"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["self.corpus.define(number, at, &resolved(Node::new(0), attributes));"],
        put: Put::Instead(
            r#"let mut resolved = resolved(Node::new(0), attributes);
if crate::fault_injection::is(crate::fault_injection::Fault::StreamedAddressByClass) {
    resolved.address = resolved.call;
}
self.corpus.define(number, at, &resolved);"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["let own = self.attributes.number(attributes, |attributes| *attributes);"],
        put: Put::Before(
            r#"let mut known = (0..self.attributes.len() as u32).map(|number| *self.attributes.value(number));
let like = known.find(|known| known.linkage == attributes.linkage);
let like = like.filter(|_| crate::fault_injection::is(crate::fault_injection::Fault::StreamedAttributes));
let attributes = &like.unwrap_or(*attributes);"#,
        ),
    },
    Hook {
        file: "src/streaming/reading.rs",
        at: &["let digest = code_digest(encoding, attributes.alignment, packed);"],
        put: Put::Instead(
            r#"let overlooked = crate::fault_injection::is(crate::fault_injection::Fault::StreamedAlignment);
let alignment = if overlooked { 1 } else { attributes.alignment };
let digest = code_digest(encoding, alignment, packed);"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["None => Node::new(numbering.functions + reference.0 as usize),"],
        put: Put::Before(
            r#"None if crate::fault_injection::is(crate::fault_injection::Fault::StreamedImports) && corpus.symbols.item(reference.symbol()).is_none() => {
    Node::new(numbering.functions)
}"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["callees.insert(plan.call_target(function(to)));"],
        put: Put::Instead(
            r#"if !crate::fault_injection::is(crate::fault_injection::Fault::StreamedCalleesAsWritten) {
    callees.insert(plan.call_target(function(to)));
}"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["Caller::Stays => self.corpus.symbols.observe_call(symbol),"],
        put: Put::Instead(
            r#"Caller::Stays if crate::fault_injection::is(crate::fault_injection::Fault::StreamedCalls) => {}
Caller::Stays => self.corpus.symbols.observe_call(symbol),"#,
        ),
    },
    Hook {
        file: "src/apply/mod.rs",
        at: &["let passes = |symbol: &UserExternalName| {"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::RewrittenCallers) {
    return false;
}"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["let digest = digest.unwrap_or_else(|| of_malformed(function.as_u32().into()));"],
        put: Put::After(
            r#"let digest = if crate::fault_injection::is(crate::fault_injection::Fault::StreamedDigest) { [digest[0]; 32] } else { digest };"#,
        ),
    },
    Hook {
        file: "src/streaming/held.rs",
        at: &["self.bodies.body(self.arrived.own[function.index()])"],
        put: Put::Instead(
            r#"let is_own = crate::fault_injection::is(crate::fault_injection::Fault::HeldBody);
self.bodies.body(if is_own { function } else { self.arrived.own[function.index()] })"#,
        ),
    },
    Hook {
        file: "src/streaming/held.rs",
        at: &[
            "State::Compiled => self.compiled == Compiled::MayBeReplaced && candidate.has_partner,",
        ],
        put: Put::Before(
            r#"State::Compiled if crate::fault_injection::is(crate::fault_injection::Fault::ReleasedBody) => true,"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["if self.held.is_held(own) {"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::ReplacedCallees) && self.held.shape(own).is_some() {
    continue;
}"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["plan.set_code(own);"],
        put: Put::Instead(
            r#"let forgotten = crate::fault_injection::is(crate::fault_injection::Fault::HeldCode);
plan.set_code(if forgotten { Vec::new() } else { own });"#,
        ),
    },
];
