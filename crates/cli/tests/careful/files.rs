//! Files that are written: never over others, whole or not at all.

use crate::common::{MARGAY, fails, has, root, run, works};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SAMPLE: &str = "samples/sqlite-messages.mgt";
const REFERENCES: &str = "samples/sort.vmt.zst";
const DOCUMENT: &[u8] = b"a document of the user";

#[test]
fn no_command_overwrites_a_file_without_force() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let image = at("disk.img");
    works(&["format", &image, "--size", "16M"]);
    let files = at("files.img");
    works(&["fs", "format", &files, "--size", "4M"]);
    let source = at("source");
    fs::write(&source, "what is copied").unwrap();
    works(&["fs", "put", &files, &source, "f"]);
    let sample = root().join(SAMPLE).display().to_string();
    let pages = at("man");
    fs::create_dir(&pages).unwrap();
    let commands: [(&str, &[&str]); 12] = [
        ("r.json", &["replay", "random,writes=100", "-q", "-f", "json", "-o", "FILE"]),
        ("r.svg", &["replay", "random,writes=100", "-q", "--plot", "FILE"]),
        ("c.csv", &["compare", &sample, "-q", "-s", "greedy", "-p", "m1", "-f", "csv", "-o", "FILE"]),
        ("c.png", &["compare", &sample, "-q", "-s", "greedy", "-p", "m1", "--plot", "FILE"]),
        ("v.csv", &["vm", "replay", REFERENCES, "-q", "-s", "du-gc", "--cache", "1M", "-f", "csv", "-o", "FILE"]),
        ("g.mgt", &["generate", "random,writes=10", "FILE"]),
        ("t.mgt", &["trace", "convert", &sample, "FILE"]),
        ("t.vmt", &["trace", "convert", REFERENCES, "FILE"]),
        ("get", &["fs", "get", &files, "f", "FILE"]),
        ("host.mgt", &["serve", &image, "--run", "true", "--record", "FILE"]),
        ("man/margay-fs.1", &["man", &pages]),
        (
            "comparisons.csv",
            &[
                "reproduce",
                "lda-gc",
                "-q",
                "--tables-only",
                "--trace",
                REFERENCES,
                "--cache",
                "1M",
                "--folder",
                "FOLDER",
            ],
        ),
    ];
    for (name, args) in commands {
        let file = at(name);
        fs::write(&file, DOCUMENT).unwrap();
        let here = folder.path().display().to_string();
        let args: Vec<&str> = args
            .iter()
            .map(|arg| {
                if *arg == "FILE" {
                    &file
                } else if *arg == "FOLDER" {
                    &here
                } else {
                    *arg
                }
            })
            .collect();
        let started = Instant::now();
        fails(&args, 2, "--force");
        assert!(started.elapsed() < Duration::from_secs(60), "{args:?} is refused only after the work");
        assert_eq!(fs::read(&file).unwrap(), DOCUMENT, "{args:?} overwrote a file");
        works(&[&args[..], &["--force"]].concat());
        assert_ne!(fs::read(&file).unwrap(), DOCUMENT, "{args:?} with --force");
    }
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with('.')), "{left:?}");
}

#[test]
fn standard_output_is_written_on_wherever_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    let generate = ["generate", "random,writes=50", "--format", "csv", "/dev/stdout"];
    let out = fs::File::create(&path).unwrap();
    assert!(Command::new(MARGAY).args(generate).stdout(out).status().unwrap().success());
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text, works(&generate));
    assert!(text.starts_with("time_us,op,") && text.matches(",write,").count() == 50, "{text}");
}

#[test]
fn metrics_are_written_over_metrics_only() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    works(&["fs", "format", &at("files.img"), "--size", "4M"]);
    fs::write(at("document"), DOCUMENT).unwrap();
    fails(&["mount", &at("files.img"), &at("mnt"), "--metrics", &at("document")], 2, "holds no metrics of margay");
    assert_eq!(fs::read(at("document")).unwrap(), DOCUMENT);
}

/// Files of a folder that are not hidden.
fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.collect()
}

#[test]
fn a_format_that_is_killed_leaves_no_image() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("flash.img");
    for command in [&["format"][..], &["fs", "format"]] {
        for kill_after in [0, 50, 200] {
            let mut child = Command::new(MARGAY)
                .args(command)
                .arg(&image)
                .args(["--size", "2G"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(kill_after));
            child.kill().unwrap();
            if child.wait().unwrap().success() {
                fs::remove_file(&image).unwrap();
            }
            assert_eq!(names(folder.path()), [""; 0], "{command:?}, killed after {kill_after} ms");
        }
    }
}

#[test]
fn formatting_again_keeps_the_shape_unless_another_is_asked_for_and_replaces_images_only() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("flash.img").display().to_string();
    works(&["format", &image, "--size", "8M", "--pages-per-segment", "32"]);
    let shape = || works(&["info", &image]).lines().nth(1).unwrap().to_string();
    let first = shape();
    fails(&["format", &image], 2, "--force");
    works(&["format", &image, "--force"]);
    assert_eq!(shape(), first);
    works(&["format", &image, "--force", "--size", "32M"]);
    assert!(shape().contains(" 128 segments of 64 pages"), "{}", shape());
    fs::write(&image, DOCUMENT).unwrap();
    fails(&["format", &image, "--force"], 3, "not a flash image");
    assert_eq!(fs::read(&image).unwrap(), DOCUMENT);
}

#[test]
fn a_capture_that_does_not_come_to_its_end_leaves_no_trace_under_its_name() {
    if !has("valgrind") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let markers = tempfile::tempdir().unwrap();
    let start = |name: &str, program: &[&str]| {
        let mut command = Command::new(MARGAY);
        command.args(["trace", "capture", "-q", "-o", name, "--"]).args(program).current_dir(folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // A program that says when it runs, and then waits for a line.
    let start_waiting = |name: &str| {
        let marker = markers.path().join(name);
        let child = start(name, &["sh", "-c", &format!("touch {}; read line", marker.display())]);
        let started = Instant::now();
        while !marker.exists() {
            assert!(started.elapsed() < Duration::from_secs(120), "the program does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        child
    };
    let mut killed = start_waiting("killed.vmt.zst");
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(names(folder.path()), [""; 0]);
    let mut stopped = start_waiting("stopped.vmt");
    let input = stopped.stdin.take();
    run("kill", &["-INT", &stopped.id().to_string()]);
    let output = stopped.wait_with_output().unwrap();
    drop(input);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("stopped.vmt.partial has the"), "{said}");
    assert_eq!(names(folder.path()), ["stopped.vmt.partial"]);
    let crashed = start("crashed.vmt", &["sh", "-c", "kill -9 $$"]);
    let output = crashed.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!folder.path().join("crashed.vmt").exists());
}
