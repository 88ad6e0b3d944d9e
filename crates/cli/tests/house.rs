//! The rules of the house: which crate may know which, and how long a file may be.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Lower layers first; a crate may depend on those before it only.
const LAYERS: [&str; 22] = [
    "flash", "media", "policy", "format", "log", "ftl", "hybrid", "vm", "pager", "preload", "fs", "trace", "workload",
    "theory", "lab", "volume", "mount", "trials", "nbd", "serve", "cli", "bench",
];

/// Of those, what a layer must not know although it stands above it.
const FORBIDDEN: [(&str, &[&str]); 14] = [
    ("policy", &["media"]),
    ("format", &["media", "policy"]),
    ("log", &["media"]),
    ("ftl", &["media"]),
    ("hybrid", &["media", "policy", "log", "ftl"]),
    ("vm", &["media", "ftl"]),
    ("pager", &["media", "policy", "log", "ftl"]),
    ("fs", &["media", "ftl", "hybrid", "vm"]),
    ("volume", &["media", "fs"]),
    ("mount", &["media", "ftl", "volume", "lab"]),
    ("nbd", &["flash", "media", "policy", "format", "log", "ftl", "trace", "volume"]),
    ("trace", &["flash", "media", "policy", "log", "ftl", "hybrid", "vm"]),
    ("workload", &["flash", "media", "policy", "log", "ftl", "trace"]),
    ("theory", &["flash", "media", "policy", "log", "ftl", "trace", "workload"]),
];

#[test]
fn dependencies_point_one_way() {
    for (at, name) in LAYERS.iter().enumerate() {
        let manifest = std::fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        let manifest = manifest.split("[dev-dependencies]").next().unwrap();
        let forbidden = FORBIDDEN.iter().find(|(of, _)| of == name).map_or(&[][..], |(_, list)| list);
        for (other_at, other) in LAYERS.iter().enumerate() {
            let uses = manifest.contains(&format!("margay-{other}.workspace"));
            assert!(!uses || other_at < at, "{name} must not depend on {other}");
            assert!(!(uses && forbidden.contains(other)), "{name} must not depend on {other}");
        }
    }
    let crates = std::fs::read_dir(root().join("crates")).unwrap().count();
    assert_eq!(crates, LAYERS.len(), "a new crate has to be given its layer here");
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
