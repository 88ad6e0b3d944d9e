//! What tests with real programs share.
#![allow(dead_code, reason = "a test takes what it needs")]

#[path = "../../../trace/tests/skip/mod.rs"]
mod skip;

pub use skip::{has, skip};
use std::path::Path;
use std::process::{Command, Output};

pub const MARGAY: &str = env!("CARGO_BIN_EXE_margay");

/// Whether file systems can be mounted by FUSE; without that the test is skipped.
pub fn has_fuse() -> bool {
    let found = Path::new("/dev/fuse").exists();
    if !found {
        skip("there is no /dev/fuse");
    }
    found && has("fusermount3")
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
