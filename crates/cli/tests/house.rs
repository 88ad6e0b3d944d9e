//! The rules of the house: which crate may know which, and how long a file may be.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A crate's line in the list of arrows.
struct Line {
    /// Line of ARCHITECTURE.md, from 1.
    number: usize,
    name: String,
    uses: BTreeSet<String>,
}

/// The list of arrows in ARCHITECTURE.md: `user -> used, used`, or `user -> nothing`.
fn stated() -> Vec<Line> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let numbered = text.lines().enumerate().skip_while(|(_, line)| *line != "```arrows").skip(1);
    let lines = numbered.take_while(|(_, line)| *line != "```").map(|(at, line)| {
        let number = at + 1;
        let (name, uses) = line.split_once(" -> ").unwrap_or_else(|| {
            panic!("ARCHITECTURE.md, line {number}: expected `crate -> crates that it uses`, or `crate -> nothing`")
        });
        let uses = uses.split(", ").filter(|used| *used != "nothing").map(String::from).collect();
        Line { number, name: name.into(), uses }
    });
    let lines: Vec<Line> = lines.collect();
    assert!(!lines.is_empty(), "ARCHITECTURE.md has no list of arrows: a block that starts with ```arrows");
    lines
}

/// What cargo knows of the workspace.
fn metadata() -> Value {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version", "1", "--no-deps", "--offline"]).current_dir(root());
    let output = command.output().unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The crates of the workspace by the names of their folders, and those that each uses but for its tests.
fn actual() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let folder = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        manifest.parent().unwrap().file_name().unwrap().to_str().unwrap().to_string()
    };
    let folders: BTreeMap<&str, String> =
        packages.iter().map(|package| (package["name"].as_str().unwrap(), folder(package))).collect();
    let uses = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        // A normal dependency has no kind; the others are "build" and "dev".
        let kept = all.filter(|dependency| dependency["kind"] != "dev");
        kept.filter_map(|dependency| folders.get(dependency["name"].as_str().unwrap()).cloned()).collect()
    };
    packages.iter().map(|package| (folder(package), uses(package))).collect()
}

#[test]
fn the_arrows_of_the_architecture_are_those_of_the_manifests() {
    let (stated, actual) = (stated(), actual());
    let mut problems = Vec::new();
    let mut above = BTreeSet::new();
    for Line { number, name, uses } in &stated {
        match actual.get(name) {
            None => problems.push(format!("line {number}: there is no crates/{name}: remove the line")),
            Some(found) if found != uses => problems.push(format!(
                "line {number}: crates/{name}/Cargo.toml does not say `{}`. If the manifest is right, the line becomes\n    {}",
                arrow(name, uses, &stated),
                arrow(name, found, &stated)
            )),
            Some(_) => {}
        }
        for used in uses.iter().filter(|used| !above.contains(*used)) {
            problems.push(format!("line {number}: {name} uses {used}, which has to stand in a line above"));
        }
        if !above.insert(name) {
            problems.push(format!("line {number}: {name} has a line already"));
        }
    }
    for (name, uses) in actual.iter().filter(|(name, _)| !above.contains(*name)) {
        let line = arrow(name, uses, &stated);
        problems.push(format!("crates/{name} has no line: add, below the crates that it uses\n    {line}"));
    }
    assert!(problems.is_empty(), "ARCHITECTURE.md, list of arrows:\n{}", problems.join("\n"));
}

/// The line of a crate: what it uses in the order of the lines, crates without a line last.
fn arrow(name: &str, uses: &BTreeSet<String>, lines: &[Line]) -> String {
    let mut names: Vec<&str> = uses.iter().map(String::as_str).collect();
    names.sort_by_key(|name| lines.iter().position(|line| line.name == *name).unwrap_or(lines.len()));
    format!("{name} -> {}", if names.is_empty() { "nothing".into() } else { names.join(", ") })
}

/// The registry refuses a package without these, and one whose dependency has a path and no version.
#[test]
fn every_crate_could_be_published() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        for field in ["description", "license", "readme", "rust_version"] {
            assert!(package[field].as_str().is_some_and(|text| !text.is_empty()), "{name}: no {field} in Cargo.toml");
        }
        for field in ["keywords", "categories"] {
            let count = package[field].as_array().map_or(0, Vec::len);
            assert!((1..=5).contains(&count), "{name}: {count} {field} in Cargo.toml, 1 to 5 are allowed");
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let (path, requirement) = (&dependency["path"], dependency["req"].as_str().unwrap());
            let other = dependency["name"].as_str().unwrap();
            assert!(path.is_null() || requirement != "*", "{name}: {other} has a path and no version");
        }
    }
}

fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

/// A test that cannot run says so in one way, which fails in CI.
#[test]
fn tests_are_skipped_by_one_helper() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    // In two parts, so that this file is no finding.
    let [said, asked] = [["\"SKIP", "PED"], ["\"C", "I\""]].map(|parts| parts.concat());
    let files_that_say_so = files.into_iter().filter(|path| {
        let text = std::fs::read_to_string(path).unwrap();
        text.contains(&said) || text.contains(&asked)
    });
    let helper = root().join("crates/trace/tests/skip/mod.rs").canonicalize().unwrap();
    let test_of_it = root().join("crates/trace/tests/skipping.rs").canonicalize().unwrap();
    let found: Vec<_> = files_that_say_so.map(|path| path.canonicalize().unwrap()).collect();
    assert!(found.contains(&helper), "the helper is elsewhere: {found:?}");
    let others: Vec<_> = found.iter().filter(|path| **path != helper && **path != test_of_it).collect();
    assert!(others.is_empty(), "use crates/trace/tests/skip to skip a test: {others:?}");
}

#[test]
fn files_stay_short_and_only_the_command_prints() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    let mut lengths = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().count();
        assert!(lines <= 1000, "{} has {lines} lines", path.display());
        lengths.push(lines);
        let name = path.display().to_string();
        let may_print =
            ["/cli/", "/bench/", "/tests/", "/fuzz/", "/trials/", "/examples/"].iter().any(|part| name.contains(part));
        assert!(may_print || !text.contains("println!"), "{name} prints");
    }
    lengths.sort_unstable();
    assert!(lengths[lengths.len() / 2] <= 200, "the median file has {} lines", lengths[lengths.len() / 2]);
}
