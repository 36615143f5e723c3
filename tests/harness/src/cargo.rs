//! Cargo, run by a program that cargo runs.

use std::env;
use std::process::Command;

/// The starts of variables that cargo sets for the program that it runs, or that let a test runner tell times. With any
/// of these variables, build scripts would run anew, and all that depends on them would be built anew, here and by the
/// next cargo outside.
const LEFT_OUT: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "RUSTC_BOOTSTRAP"];

/// The packages and features that all builds of this project have, so that nothing is built twice.
const SAME_PACKAGES: [&str; 6] =
    ["--workspace", "--exclude", "lockson-book", "--exclude", "lockson-compare", "--all-features"];

/// Runs a cargo command about this workspace, built as by `make test`.
pub fn cargo(command: &str) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    for (name, _) in env::vars_os() {
        if LEFT_OUT.iter().any(|start| name.to_string_lossy().starts_with(start)) {
            cargo.env_remove(name);
        }
    }
    cargo.arg(command).args(SAME_PACKAGES);
    cargo
}
