//! The units that are measured.

use std::path::PathBuf;

/// The `.clif` files of the directory that `CLIF_MERGE_UNITS` names, or, if it is unset, the sample
/// of the repository.
pub fn units() -> Vec<PathBuf> {
    match std::env::var_os("CLIF_MERGE_UNITS") {
        Some(directory) => {
            let entries = std::fs::read_dir(&directory).expect("CLIF_MERGE_UNITS is a directory");
            let mut units: Vec<PathBuf> = entries
                .map(|entry| entry.expect("readable directory").path())
                .filter(|path| path.extension().is_some_and(|extension| extension == "clif"))
                .collect();
            units.sort();
            units
        }
        None => {
            eprintln!("CLIF_MERGE_UNITS is not set: measuring the sample of the repository");
            vec![crate::root().join("samples/rust-generics.clif")]
        }
    }
}
