//! How a test says that it cannot run here. The only way to do so: the tests of other crates take this file by its path,
//! and `crates/cli/tests/house.rs` looks for others.
#![allow(dead_code, reason = "a test takes what it needs")]

use std::fmt::Display;
use std::io::Write;
use std::process::Command;

/// Says that a test cannot run here, and why; the caller returns. In CI every test has to run, so there it panics.
pub fn skip(why: impl Display) {
    // `eprintln!` would be heard only of tests that fail.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
    assert!(std::env::var_os("CI").is_none(), "every test has to run in CI, and this one cannot: {why}");
}

/// Whether a program is installed; without it the test is skipped.
pub fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output().unwrap().status.success();
    if !found {
        skip(format_args!("{program} is not installed"));
    }
    found
}
