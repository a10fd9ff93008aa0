//! Where faults are planted in merging into what earlier units emitted.

use crate::inject::{Hook, Put};

/// The hooks, in the order of their files.
pub const HOOKS: &[Hook] = &[
    Hook {
        file: "src/incremental/mod.rs",
        at: &["graph.alignment[class as usize].bytes() <= self.classes[cache].alignment"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::AlignmentAcrossUnits) {
    return true;
}"#,
        ),
    },
    Hook {
        file: "src/incremental/mod.rs",
        at: &["self.classes[class].bodies.iter().find(|body| body.alignment >= alignment)"],
        put: Put::Before(
            r#"let overlooked = crate::fault_injection::is(crate::fault_injection::Fault::AlignmentAcrossUnits);
let alignment = if overlooked { 1 } else { alignment };"#,
        ),
    },
    Hook {
        file: "src/incremental/mod.rs",
        at: &["let mut hasher = blake3::Hasher::new();", "hasher.update(digest);"],
        put: Put::Before(r#"let references = &*crate::fault_injection::references(references);"#),
    },
    Hook {
        file: "src/incremental/eliminated.rs",
        at: &["let patchable = callee.patchable;"],
        put: Put::Before(
            r#"let mismatched = crate::fault_injection::is_mismatched(mismatched, called, own);"#,
        ),
    },
    Hook {
        file: "src/incremental/eliminated.rs",
        at: &["for gv in func.global_values.values() {"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::SymbolValueForgotten) {
    return;
}"#,
        ),
    },
    Hook {
        file: "src/incremental/eliminated.rs",
        at: &["let (disposition, reason) = match function.alias {"],
        put: Put::Before(
            r#"let late = late && !crate::fault_injection::is(crate::fault_injection::Fault::LateThunkForgotten);"#,
        ),
    },
    Hook {
        file: "src/incremental/eliminated.rs",
        at: &[
            "let (arguments, signature) = (&function.substitute.arguments, &function.signature);",
        ],
        put: Put::After(
            r#"let arguments = &crate::fault_injection::by_later_units(arguments.clone());"#,
        ),
    },
    Hook {
        file: "src/incremental/mod.rs",
        at: &["if *digest != graph.digest(class as usize) || !self.fits(graph, class, cache) {"],
        put: Put::Instead(
            r#"let overlooked = class != first && crate::fault_injection::is(crate::fault_injection::Fault::CycleDigest);
if *digest != graph.digest(class as usize) && !overlooked || !self.fits(graph, class, cache) {"#,
        ),
    },
    Hook {
        file: "src/incremental/mod.rs",
        at: &["Target::ExternalNode(_) => return None,"],
        put: Put::Before(
            r#"Target::ExternalNode(_) if crate::fault_injection::is(crate::fault_injection::Fault::CycleReferences) => continue,"#,
        ),
    },
    Hook {
        file: "src/incremental/mod.rs",
        at: &["Some(_) => return None,"],
        put: Put::Before(
            r#"Some(_) if crate::fault_injection::is(crate::fault_injection::Fault::CycleMeets) => {}"#,
        ),
    },
    Hook {
        file: "src/incremental/mod.rs",
        at: &[
            "Some(Known { class, calls, addresses }) => match if call { *calls } else { *addresses }",
        ],
        put: Put::Before(
            r#"Some(Known { class, calls: true, .. }) if crate::fault_injection::is(crate::fault_injection::Fault::CachedAddressByClass) => {
    self.class_external_node(*class)
}"#,
        ),
    },
    Hook {
        file: "src/incremental/eliminated.rs",
        at: &["for func_ref in address_uses(func) {"],
        put: Put::After(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::EliminatedAddressTaken) {
    break;
}"#,
        ),
    },
    Hook {
        file: "src/incremental/eliminated.rs",
        at: &["if eliminated.contains(symbol) {"],
        put: Put::Instead(
            r#"if eliminated.contains(symbol) && !crate::fault_injection::is(crate::fault_injection::Fault::EliminatedPointer) {"#,
        ),
    },
    Hook {
        file: "src/incremental/eliminated.rs",
        at: &["let has_thunk = eliminated.late_thunks.contains(&symbol);"],
        put: Put::After(
            r#"let has_thunk = has_thunk && !crate::fault_injection::is(crate::fault_injection::Fault::LateThunkTwice);"#,
        ),
    },
    Hook {
        file: "src/pass.rs",
        at: &["record.retain_kept(&plan);"],
        put: Put::Instead(
            r#"if !crate::fault_injection::is(crate::fault_injection::Fault::EliminatedBodyRemembered) {
    record.retain_kept(&plan);
}"#,
        ),
    },
    Hook {
        file: "src/decide/incremental.rs",
        at: &["&& entry.attributes().linkage != Linkage::Preemptible"],
        put: Put::Instead(
            r#"&& (entry.attributes().linkage != Linkage::Preemptible || crate::fault_injection::is(crate::fault_injection::Fault::PreemptibleRemembered))"#,
        ),
    },
];
