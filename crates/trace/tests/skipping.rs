//! A test that cannot run says so, and fails in CI.

mod skip;

use std::process::{Command, Output};

/// Set where the test below is run as a program of its own, as a test that cannot run.
const AS_ONE_THAT_CANNOT_RUN: &str = "MARGAY_TEST_CANNOT_RUN";

fn run(prepare: impl Fn(&mut Command) -> &mut Command) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.args(["--exact", "a_test_that_cannot_run_says_so_and_fails_in_ci"]);
    prepare(command.env(AS_ONE_THAT_CANNOT_RUN, "1")).output().unwrap()
}

#[test]
fn a_test_that_cannot_run_says_so_and_fails_in_ci() {
    if std::env::var_os(AS_ONE_THAT_CANNOT_RUN).is_some() {
        assert!(!skip::has("no-such-program-as-this"));
        return;
    }
    let output = run(|command| command.env_remove("CI"));
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "SKIPPED: no-such-program-as-this is not installed\n");

    let output = run(|command| command.env("CI", "1"));
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("has to run in CI") && said.contains("no-such-program-as-this"), "{said}");
}
