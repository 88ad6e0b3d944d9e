//! `margay advise`, as people use it.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const SMALL: &[&str] = &[
    "advise",
    "hot-cold:90/10",
    "--device",
    "intel-series2plus-24mb",
    "-s",
    "greedy,cat",
    "-p",
    "m1,m4",
    "--over-provisioning",
    "0.15,0.3",
    "--seeds",
    "2",
    "-q",
];

fn margay(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_margay")).args(args).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn advice_is_plain_words_and_every_figure_is_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let kept = ["--years", "5", "--per-day", "100M", "--points", "kept.points"];
    let output = margay(folder.path(), &[SMALL, &kept].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let words = text(&output.stdout);
    assert!(words.contains("Yes: choose ") && words.contains("Not looked at:"), "{words}");
    let lines = || std::fs::read_to_string(folder.path().join("kept.points")).unwrap().lines().count();
    let before = lines();
    let output = margay(folder.path(), &[SMALL, &kept, &["--format", "json", "-o", "advice.json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(lines(), before, "finished runs were run again");
    let json: Value = serde_json::from_slice(&std::fs::read(folder.path().join("advice.json")).unwrap()).unwrap();
    assert_eq!(json["verdict"], "yes");
    assert_eq!(json["text"].as_str().unwrap(), words);
    assert_eq!(json["steps"].as_array().unwrap().len(), 2);
    let no = margay(folder.path(), &[SMALL, &["--years", "5", "--per-day", "1T", "--points", "kept.points"]].concat());
    assert!(text(&no.stdout).contains("No: 5 years cannot be reached"), "{}", text(&no.stdout));
}

#[test]
fn what_is_wrong_with_a_question_is_told() {
    let folder = tempfile::tempdir().unwrap();
    for (args, code, problem) in [
        (&["--years", "5"][..], 2, "--per-day 20G"),
        (&["--years", "0", "--per-day", "1G"], 2, "years = 0"),
        (&["--years", "5", "--per-day", "much"], 2, "much"),
        (&["--years", "5", "--per-day", "1G", "--leveling", "swap"], 2, "leveling"),
        (&["--years", "5", "--per-day", "1G", "--format", "csv"], 2, "plain words"),
        (&["--per-day", "1G"], 2, "--years"),
        (&["--years", "5", "--per-day", "1G", "--seeds", "0"], 2, "--seeds"),
        (&["--years", "5", "--per-day", "1G", "random"], 2, "ask for each by itself"),
        (&["--years", "5", "--per-day", "1G", "--points", "/dev/full"], 1, "no regular file"),
    ] {
        let output = margay(folder.path(), &[SMALL, args].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(problem), "{args:?}: {error}");
    }
    let output = margay(folder.path(), &["advise", "no/such.csv.zst", "--years", "5", "-q"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
}

#[test]
fn a_cluster_needs_the_python_package_and_says_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = ["sweep", "random,writes=2000", "--device", "intel-series2plus-24mb", "--seeds", "1", "-q"];
    let run = |python: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_margay"));
        command.args(sweep).args(["--engine", "dask"]).current_dir(folder.path()).env("MARGAY_PYTHON", python);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(!folder.path().join("sweep.csv").exists());
        assert!(!folder.path().join("sweep.csv.points").exists(), "nothing is left of what was not begun");
        text(&output.stderr)
    };
    let none = run("/no/such/python3");
    assert!(none.contains("/no/such/python3") && none.contains("pip install 'margay[dask]'"), "{none}");
    // A Python without the package.
    let bare = folder.path().join("python");
    std::fs::write(&bare, "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'margay'\" >&2\nexit 1\n").unwrap();
    Command::new("chmod").args(["+x", bare.to_str().unwrap()]).status().unwrap();
    let bare = run(bare.to_str().unwrap());
    assert!(bare.contains("No module named 'margay'") && bare.contains("pip install"), "{bare}");
    let output = margay(folder.path(), &[&sweep[..], &["--scheduler", "tcp://127.0.0.1:1"]].concat());
    assert!(text(&output.stderr).contains("add --engine dask"), "{}", text(&output.stderr));
    assert!(!folder.path().join("sweep.csv.points").exists());
}
