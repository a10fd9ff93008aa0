//! Laws.
#[test]
fn stub() {}
