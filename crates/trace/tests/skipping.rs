//! A test that cannot run says so, and fails in CI.

mod skip;

use std::process::{Command, Output};

#[test]
#[ignore = "no test: the tests below run it as a program of its own, which fails or says that it is skipped"]
fn one_that_cannot_run() {
    if !skip::has("no-such-program-as-this") {
        return;
    }
    panic!("it is installed");
}

fn run(prepare: impl Fn(&mut Command) -> &mut Command) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    prepare(command.args(["--exact", "one_that_cannot_run", "--ignored"])).output().unwrap()
}

#[test]
fn a_test_that_cannot_run_says_so_although_it_passes() {
    let output = run(|command| command.env_remove("CI"));
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "SKIPPED: no-such-program-as-this is not installed\n");
}

#[test]
fn a_test_that_cannot_run_fails_in_ci() {
    let output = run(|command| command.env("CI", "1"));
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("has to run in CI") && said.contains("no-such-program-as-this"), "{said}");
}
