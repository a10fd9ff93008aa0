//! Where faults are planted in content-addressed bodies, and in bodies that sharing maps name.

use inject::{Hook, Put};

/// The hooks, in the order of their files.
pub const HOOKS: &[Hook] = &[
    Hook {
        file: "src/content/digest.rs",
        at: &["hasher.update(name.as_bytes());"],
        put: Put::Instead(
            r#"if !crate::fault_injection::is(crate::fault_injection::Fault::ContentName) {
    hasher.update(name.as_bytes());
}"#,
        ),
    },
    Hook {
        file: "src/content/digest.rs",
        at: &["hasher.update(&[0]).update(digests[*to as usize].as_bytes());"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::ContentCallee) {
    continue;
}"#,
        ),
    },
    Hook {
        file: "src/content/digest.rs",
        at: &["*hasher.update(cycle.as_bytes()).update(digest).finalize().as_bytes()"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::ContentCycle) {
    return *hasher.update(digest).finalize().as_bytes();
}"#,
        ),
    },
    Hook {
        file: "src/content/mod.rs",
        at: &["hasher.update(&code_digest(encoding, entry.alignment(), packed));"],
        put: Put::Instead(
            r#"let overlooked = crate::fault_injection::is(crate::fault_injection::Fault::ContentAlignment);
let alignment = if overlooked { 1 } else { entry.alignment() };
hasher.update(&code_digest(encoding, alignment, packed));"#,
        ),
    },
    Hook {
        file: "src/content/mod.rs",
        at: &["tables(&body, &mut hasher);"],
        put: Put::Instead(
            r#"if !crate::fault_injection::is(crate::fault_injection::Fault::ContentTables) {
    tables(&body, &mut hasher);
}"#,
        ),
    },
    Hook {
        file: "src/content/mod.rs",
        at: &[
            "let keeps_symbol =",
            "must_keep_symbol(attributes, uses, ReplacedBy::Equal).filter(|_| !is_added);",
        ],
        put: Put::After(
            r#"let keeps_symbol = keeps_symbol.filter(|_| !crate::fault_injection::is(crate::fault_injection::Fault::ContentKeepsNoSymbol));"#,
        ),
    },
    Hook {
        file: "src/content/mod.rs",
        at: &["for (function, to, disposition) in merged {"],
        put: Put::After(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::ContentFollowers) {
    break;
}"#,
        ),
    },
    Hook {
        file: "src/content/mod.rs",
        at: &["(reference.kind == Kind::Call || to.keeps_symbol.is_none()).then_some(at)"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::ContentAddress) {
    return Some(at);
}"#,
        ),
    },
    Hook {
        file: "src/content/mod.rs",
        at: &["linkage == Linkage::Local", "&& match kind {"],
        put: Put::Instead(
            r#"(linkage == Linkage::Local || crate::fault_injection::is(crate::fault_injection::Fault::ContentVisible))
    && match kind {"#,
        ),
    },
    Hook {
        file: "src/content/mod.rs",
        at: &["for function in mismatched_thunks(plan, bodies) {"],
        put: Put::After(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::ContentMismatched) {
    break;
}"#,
        ),
    },
    Hook {
        file: "src/parameterise/shared/share.rs",
        at: &["let extra = argument_plan.arguments(table, row, at);"],
        put: Put::Instead(
            r#"let passed = match crate::fault_injection::is(crate::fault_injection::Fault::SharedArguments) {
    true => rows[0],
    false => row,
};
let extra = argument_plan.arguments(table, passed, at);"#,
        ),
    },
    Hook {
        file: "src/parameterise/workbench.rs",
        at: &["self.uses.add_address(self.plan, symbol);"],
        put: Put::Instead(
            r#"if !crate::fault_injection::is(crate::fault_injection::Fault::RowsPassed) {
    self.uses.add_address(self.plan, symbol);
}"#,
        ),
    },
];
