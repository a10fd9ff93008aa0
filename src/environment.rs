//! The limit of merges that the environment of the process asks for.
//!
//! An embedder that calls [`merge_limit_from_env`] can be bisected without being built again. The library itself
//! never reads the environment.

use alloc::string::{String, ToString};
use core::fmt;
use std::env;

/// The name of the environment variable that [`merge_limit_from_env`] reads.
pub const MERGE_LIMIT_VARIABLE: &str = "CRANELIFT_MERGEFUNC_MERGE_LIMIT";

/// The value of the environment variable is no number of merges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeLimitError {
    value: String,
}

impl fmt::Display for MergeLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MERGE_LIMIT_VARIABLE} is no number of merges: '{}'", self.value)
    }
}

impl core::error::Error for MergeLimitError {}

/// The number of merges that the environment variable [`MERGE_LIMIT_VARIABLE`] allows; `None` if it is not set. For
/// [`Options::merge_limit`](crate::Options::merge_limit) and `ModuleOptions::merge_limit`, in embedders that are
/// bisected, such as by `clif-merge bisect --env`.
///
/// # Errors
///
/// If the variable is set to something else than a number. A bisection that ignores that would find a wrong merge.
pub fn merge_limit_from_env() -> Result<Option<u32>, MergeLimitError> {
    let Some(value) = env::var_os(MERGE_LIMIT_VARIABLE) else {
        return Ok(None);
    };
    let value = value.to_string_lossy();
    value.parse().map(Some).map_err(|_| MergeLimitError { value: value.to_string() })
}

#[cfg(test)]
mod tests {
    use super::{MERGE_LIMIT_VARIABLE, merge_limit_from_env};
    use alloc::string::ToString as _;
    use std::env;
    use std::process::Command;

    /// What the child process of the other test does.
    #[test]
    #[ignore = "run by the_limit_is_read, with an environment"]
    fn child() {
        let expected = match env::var("EXPECTED_LIMIT").as_deref() {
            Ok("error") => None,
            Ok("none") => Some(None),
            Ok(limit) => Some(Some(limit.parse().unwrap())),
            Err(_) => return,
        };
        let found = merge_limit_from_env();
        assert!(found.as_ref().err().is_none_or(|error| error.to_string().ends_with("'x'")));
        assert_eq!(found.ok(), expected);
    }

    /// A test cannot change the environment of its own process.
    #[test]
    fn the_limit_is_read() {
        for (value, expected) in [(Some("3"), "3"), (Some("x"), "error"), (None, "none")] {
            let mut command = Command::new(env::current_exe().unwrap());
            command.args(["--exact", "environment::tests::child", "--ignored"]);
            command.env_remove(MERGE_LIMIT_VARIABLE).env("EXPECTED_LIMIT", expected);
            command.envs(value.map(|value| (MERGE_LIMIT_VARIABLE, value)));
            let output = command.output().unwrap();
            let text = std::string::String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{expected}: {text}");
        }
    }
}
