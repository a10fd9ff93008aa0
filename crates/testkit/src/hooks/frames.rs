//! Where faults are planted in what is recorded for backtraces.

use inject::{Hook, Put};

/// The hooks, in the order of their lines.
pub const HOOKS: &[Hook] = &[
    Hook {
        file: "src/explain/sites.rs",
        at: &["tail_callees.sort_unstable();"],
        put: Put::Before(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::FrameTailCalls) {
    tail_callees.clear();
}"#,
        ),
    },
    Hook {
        file: "src/explain/sites.rs",
        at: &["let mut places: Vec<(Place, u32)> ="],
        put: Put::Before(
            r#"let behind = u32::from(crate::fault_injection::is(crate::fault_injection::Fault::FrameReturns));
let returns = returns.map(|(place, inside)| (place, inside + behind));"#,
        ),
    },
    Hook {
        file: "src/explain/sites.rs",
        at: &["*at = numbers[original];"],
        put: Put::After(
            r#"if crate::fault_injection::is(crate::fault_injection::Fault::FrameRelation) {
    *at = number;
}"#,
        ),
    },
    Hook {
        file: "src/explain/frames.rs",
        at: &["Running { function, location, callee }", "});"],
        put: Put::Before(
            r#"let callee = match crate::fault_injection::is(crate::fault_injection::Fault::FrameCallees) {
    true => Callee::Unknown,
    false => callee,
};"#,
        ),
    },
];
