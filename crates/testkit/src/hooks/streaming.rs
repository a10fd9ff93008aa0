//! Where faults are planted in merging of functions that arrive one at a time.

use crate::inject::{Hook, Put};

/// The hooks, in the order of their files.
pub const HOOKS: &[Hook] = &[
    Hook {
        file: "src/streaming/mod.rs",
        at: &["let [of_a, of_b] = [a, b].map(|function| self.references(function));"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::StreamedReferences) {
    return self.functions[a.index()].encoding == self.functions[b.index()].encoding;
}"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["for reference in self.references(function) {"],
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
        file: "src/streaming/mod.rs",
        at: &["self.symbols.add_tables(func);"],
        put: Put::Instead(
            r#"if !crate::fault_injection::is(crate::fault_injection::Fault::StreamedTables) {
    self.symbols.add_tables(func);
}"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["self.symbols.add_address_uses(func);"],
        put: Put::Instead(
            r#"if !crate::fault_injection::is(crate::fault_injection::Fault::StreamedAddresses) {
    self.symbols.add_address_uses(func);
}"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["self.symbols.observe_address(symbol, offset != 0);"],
        put: Put::Instead(
            r#"if !crate::fault_injection::is(crate::fault_injection::Fault::StreamedPointers) {
    self.symbols.observe_address(symbol, offset != 0);
}"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["Some(to) if to == function => Target::Itself,"],
        put: Put::Before(
            r#"Some(to)
    if crate::fault_injection::is(crate::fault_injection::Fault::StreamedItself)
        && self.of(to).encoding == self.of(function).encoding =>
{
    Target::Itself
}"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["Kind::Address => address.is_some(),"],
        put: Put::Before(
            r#"Kind::Address if crate::fault_injection::is(crate::fault_injection::Fault::StreamedAddressByClass) => call.is_some(),"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["if all.get(*last as usize).is_none_or(|last| last.attributes != attributes) {"],
        put: Put::Before(
            r#"let like = |known: &&Attributed| known.attributes.linkage == attributes.linkage;
let like = all.iter().find(like).filter(|_| crate::fault_injection::is(crate::fault_injection::Fault::StreamedAttributes));
let attributes = like.map_or(attributes, |known| known.attributes);"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["code_digest(&self.encoding, attributes.alignment, &mut self.packed)"],
        put: Put::Instead(
            r#"let overlooked = crate::fault_injection::is(crate::fault_injection::Fault::StreamedAlignment);
let alignment = if overlooked { 1 } else { attributes.alignment };
code_digest(&self.encoding, alignment, &mut self.packed)"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["None => Node::new(numbering.functions + reference.0 as usize),"],
        put: Put::Before(
            r#"None if crate::fault_injection::is(crate::fault_injection::Fault::StreamedImports) && self.symbols.function(reference.symbol()).is_none() => {
    Node::new(numbering.functions)
}"#,
        ),
    },
    Hook {
        file: "src/streaming/mod.rs",
        at: &["compiled.callees.insert(plan.call_target(to));"],
        put: Put::Instead(
            r#"if !crate::fault_injection::is(crate::fault_injection::Fault::StreamedCalleesAsWritten) {
    compiled.callees.insert(plan.call_target(to));
}"#,
        ),
    },
    Hook {
        file: "src/streaming/digests.rs",
        at: &["let Digests { digests, numbers } = self;"],
        put: Put::Before(
            r#"let digest = &if crate::fault_injection::is(crate::fault_injection::Fault::StreamedDigest) { [digest[0]; 32] } else { *digest };"#,
        ),
    },
    Hook {
        file: "src/streaming/held.rs",
        at: &["self.bodies.body((self.equal)(function))"],
        put: Put::Instead(
            r#"let is_own = crate::fault_injection::is(crate::fault_injection::Fault::HeldBody);
self.bodies.body(if is_own { function } else { (self.equal)(function) })"#,
        ),
    },
];
