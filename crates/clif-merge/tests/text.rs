//! The command line as text: what the program prints, and how it ends, in `cli/*.trycmd`.
//!
//! `TRYCMD=overwrite cargo test -p clif-merge --test text` writes what is printed now.

/// Each file holds the cases of one area; its sentences say what a case pins.
#[test]
fn command_lines_print_what_is_written_down() {
    // Cases name their units relative to this.
    std::env::set_current_dir("tests/cli").expect("the directory of the cases");
    trycmd::TestCases::new()
        .env("COLUMNS", "80")
        .env("NO_COLOR", "1")
        .env("RUST_BACKTRACE", "0")
        .case("*.trycmd");
}
