//! What tests with real programs share.
#![allow(dead_code, reason = "a test takes what it needs")]

pub mod mounted;
#[path = "../../../trace/tests/skip/mod.rs"]
mod skip;

pub use skip::{has, skip};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

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

/// The folder of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs the command with so wide a terminal that no text is broken where a test looks for it.
fn margay(args: &[&str]) -> Output {
    Command::new(MARGAY).args(args).env("COLUMNS", "240").current_dir(root()).output().unwrap()
}

/// Runs the command, which has to succeed, and returns its standard output.
pub fn works(args: &[&str]) -> String {
    let output = margay(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs the command, which has to fail with this code and a message that contains this.
pub fn fails(args: &[&str], code: i32, message: &str) {
    let output = margay(args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
    assert!(error.contains(message), "{args:?}: {error}");
}

/// The library that `margay vm run` preloads, built once as the command was.
pub fn library() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(MARGAY).parent().unwrap();
        let profile = if folder.ends_with("release") { "release" } else { "dev" };
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "margay-preload", "--profile", profile, "--target-dir"]);
        let built = build.arg(folder.parent().unwrap()).current_dir(root()).status().unwrap();
        assert!(built.success());
    });
}

/// Whether programs can be run with their heap on flash here; if not, the test is skipped.
pub fn is_paging_allowed(folder: &Path) -> bool {
    library();
    let args = ["vm", "run", "--memory", "1M", "--", "true"];
    let output = Command::new(MARGAY).args(args).current_dir(folder).output().unwrap();
    let error = text(&output);
    if output.status.success() || !error.contains("userfaultfd") {
        return true;
    }
    skip(error);
    false
}
