//! Traces of several devices by the command: names, choice, what each costs, a trace of each.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

fn margay(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_margay")).args(args).current_dir(folder).output().unwrap()
}

fn works(folder: &Path, args: &[&str]) -> String {
    let output = margay(folder, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A trace of MSR of two hosts, of which one has two disks.
fn trace(folder: &Path) {
    let mut text = String::new();
    for at in 0..30_000u64 {
        let (device, pages) = [("usr,0", 300), ("usr,1", 900), ("hm,0", 40)][(at % 3) as usize];
        let page = (at * at + 7 * at) % pages;
        writeln!(text, "{},{device},Write,{},4096,1", 128_166_372_003_061_629 + at * 100, page * 4096).unwrap();
    }
    std::fs::write(folder.join("t.csv"), text).unwrap();
}

#[test]
fn devices_of_a_trace_are_listed_chosen_told_apart_and_split_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    trace(at);
    let info = works(at, &["trace", "info", "t.csv"]);
    assert!(info.contains("device usr_1") && info.contains("device hm_0"), "{info}");
    assert!(works(at, &["trace", "head", "t.csv", "-n", "3"]).contains("usr_1"));
    assert!(works(at, &["trace", "info", "t.csv", "--trace-device", "usr"]).contains("20000 writes"));

    let replay = ["replay", "t.csv", "-q", "--repeat", "3", "-f", "json"];
    let whole: serde_json::Value = serde_json::from_str(&works(at, &replay)).unwrap();
    let tenants = whole["tenants"].as_array().unwrap();
    let names: Vec<_> = tenants.iter().map(|row| row["device"].as_str().unwrap()).collect();
    assert_eq!(names, ["usr_0", "usr_1", "hm_0"]);
    let sum = |key: &str| tenants.iter().map(|row| row[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("host_writes"), whole["row"]["host_writes"].as_u64()), (90_000, Some(90_000)));
    assert_eq!(Some(sum("copies")), whole["row"]["copies"].as_u64());
    let table = works(at, &["replay", "t.csv", "-q"]);
    assert!(table.contains("of all copies") && table.contains("hm_0"), "{table}");
    let one = works(at, &["replay", "t.csv", "-q", "--trace-device", "hm_0"]);
    assert!(!one.contains("of all copies"), "one device is no tenant of others: {one}");

    let split = works(at, &["trace", "split", "t.csv", "volumes"]);
    assert!(split.contains("10000 requests to usr_0"), "{split}");
    assert!(works(at, &["trace", "info", "volumes/hm_0.mgt"]).contains("10000 writes"));

    let wrong = margay(at, &["replay", "t.csv", "-q", "--trace-device", "prxy"]);
    let error = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!((wrong.status.code(), wrong.stdout.len()), (Some(3), 0), "{error}");
    assert!(error.contains("no request goes to a device 'prxy'; the trace has usr_0, usr_1, hm_0"), "{error}");
}
