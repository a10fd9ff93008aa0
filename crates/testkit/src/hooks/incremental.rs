//! Where faults are planted in merging into what earlier units emitted.

use inject::{Hook, Put};

/// The hooks, in the order of their files.
pub const HOOKS: &[Hook] = &[
    Hook {
        file: "src/incremental/mod.rs",
        at: &["graph.alignment[class].bytes() <= self.classes[known].alignment"],
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
        file: "src/corpus/mod.rs",
        at: &["&& references.len() == targets.len()"],
        put: Put::Instead(
            r#"&& (references.len() == targets.len()
                || crate::fault_injection::is(crate::fault_injection::Fault::DigestWithoutReferences))"#,
        ),
    },
    Hook {
        file: "src/corpus/mod.rs",
        at: &["(own, SoughtTarget::Known(target)) => own == target,"],
        put: Put::Before(
            r#"(_, SoughtTarget::Known(_)) if crate::fault_injection::is(crate::fault_injection::Fault::DigestWithoutReferences) => true,
(own, SoughtTarget::Known(target)) if crate::fault_injection::is(crate::fault_injection::Fault::DigestWithoutKind) => {
    let symbol = |target| match target {
        Target::Class(class) => self.items[class].symbol,
        Target::Symbol(symbol) => symbol,
    };
    symbol(own) == symbol(target)
}"#,
        ),
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
        file: "src/corpus/mod.rs",
        at: &["Some(Sought { encoding: self.digests.get(digest)?, targets })"],
        put: Put::Instead(
            r#"let overlooked = crate::fault_injection::is(crate::fault_injection::Fault::CycleDigest);
let encoding = self.digests.get(digest).or(overlooked.then_some(u32::MAX))?;
Some(Sought { encoding, targets })"#,
        ),
    },
    Hook {
        file: "src/corpus/mod.rs",
        at: &["let Sought { encoding, targets } = &members[member as usize];"],
        put: Put::After(
            r#"let overlooked = member != 0 && crate::fault_injection::is(crate::fault_injection::Fault::CycleDigest);
let encoding = if overlooked { &self.items[known].encoding } else { encoding };"#,
        ),
    },
    Hook {
        file: "src/corpus/mod.rs",
        at: &["let targets = targets.iter().copied();"],
        put: Put::Instead(
            r#"let own = self.references(known);
let targets = targets.iter().enumerate().map(|(at, &target)| match (target, own.get(at)) {
    (SoughtTarget::Known(_), Some(&own))
        if targets.iter().any(|target| matches!(target, SoughtTarget::Member(_)))
            && crate::fault_injection::is(crate::fault_injection::Fault::CycleReferences) =>
    {
        SoughtTarget::Known(self.target(own))
    }
    _ => target,
});"#,
        ),
    },
    Hook {
        file: "src/corpus/mod.rs",
        at: &["Some(before) => before == known,"],
        put: Put::Before(
            r#"Some(_) if crate::fault_injection::is(crate::fault_injection::Fault::CycleMeets) => true,"#,
        ),
    },
    Hook {
        file: "src/incremental/mod.rs",
        at: &["self.corpus.symbols.by_class_of(symbol, kind)"],
        put: Put::Before(
            r#"let overlooked = kind == Kind::Address && crate::fault_injection::is(crate::fault_injection::Fault::CachedAddressByClass);
let kind = if overlooked && self.corpus.symbols.by_class_of(symbol, Kind::Call).is_some() { Kind::Call } else { kind };"#,
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
