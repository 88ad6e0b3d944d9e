//! What tests with real programs share.

use std::process::{Command, Output};

pub const MARGAY: &str = env!("CARGO_BIN_EXE_margay");

/// Whether a program is there; in CI it has to be.
pub fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success();
    if !found {
        eprintln!("SKIPPED: {program} is not installed");
        assert!(std::env::var_os("CI").is_none(), "{program} is missing in CI");
    }
    found
}

pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs a program that has to succeed, and returns what it printed.
pub fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", text(&output));
    text(&output)
}
