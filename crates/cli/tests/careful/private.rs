//! The heap of a program is nobody else's business.

use crate::common::{MARGAY, fails, is_paging_allowed, library, text};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn vm_run(folder: &Path, options: &[&str], program: &[&str]) -> Output {
    library();
    let mut command = Command::new(MARGAY);
    command.args([&["vm", "run", "--memory", "16M", "--ram", "1M"], options, &["--"], program].concat());
    command.current_dir(folder).env("TMPDIR", folder).output().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// Files without a name, and with a mode that lets others read them, that a process has open.
fn heap_of(process: u32) -> fs::Metadata {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let files = descriptors.filter_map(|entry| fs::metadata(entry.unwrap().path()).ok());
    files.filter(|found| found.is_file() && found.len() > 16 << 20).max_by_key(fs::Metadata::len).expect("a heap file")
}

#[test]
fn the_heap_is_in_a_file_without_a_name_that_only_its_owner_can_read() {
    let folder = tempfile::tempdir().unwrap();
    if !is_paging_allowed(folder.path()) {
        return;
    }
    for store in [&[][..], &["--store", "heap.img"]] {
        let mut command = Command::new(MARGAY);
        command.args(["vm", "run", "--memory", "16M", "--ram", "1M"]).args(store);
        // The process is the program itself, which says when it runs.
        command.args(["--", "sh", "-c", "echo $$; read line"]).current_dir(folder.path()).env("TMPDIR", folder.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let heap = heap_of(line.trim().parse().unwrap());
        assert_eq!((heap.mode() & 0o777, heap.nlink()), (0o600, 0), "{store:?}");
        let seen = names(folder.path()).into_iter().filter(|name| name.ends_with(".img")).count();
        assert_eq!(seen, 0, "{:?}", names(folder.path()));
        // Killed, it leaves nothing that could be read.
        child.kill().unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(names(folder.path()).iter().all(|name| !name.contains("heap")), "{:?}", names(folder.path()));
    }
}

#[test]
fn the_room_that_the_heap_took_is_said_and_the_file_is_kept_only_when_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    if !is_paging_allowed(folder.path()) {
        return;
    }
    let output = vm_run(folder.path(), &[], &["sort", "/dev/null"]);
    let said = text(&output);
    assert!(said.contains("margay: disk: ") && said.contains("MiB, in ") && said.contains("given back"), "{said}");
    assert_eq!(names(folder.path()), [""; 0], "nothing is left in the folder");
    let output = vm_run(folder.path(), &["--store", "heap.img", "--keep"], &["sort", "/dev/null"]);
    assert!(text(&output).contains("heap.img, kept"), "{}", text(&output));
    let mode = fs::metadata(folder.path().join("heap.img")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_store_is_never_made_of_a_file_that_exists_or_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    if !is_paging_allowed(folder.path()) {
        return;
    }
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("document"), "of the user").unwrap();
    fails(&["vm", "run", "--store", &at("document"), "--", "true"], 2, "--force");
    assert_eq!(fs::read_to_string(at("document")).unwrap(), "of the user");
    crate::common::works(&["format", &at("disk.img"), "--size", "16M"]);
    let before = fs::read(at("disk.img")).unwrap();
    let replace = format!("{MARGAY} vm run --store {0} --force -- true; cmp {0} {1}", at("disk.img"), at("copy"));
    fs::write(at("copy"), &before).unwrap();
    let served = Command::new(MARGAY).args(["serve", &at("disk.img"), "--run", &replace]).output().unwrap();
    assert!(text(&served).contains("another process uses it"), "{}", text(&served));
    assert!(folder.path().join("disk.img").exists());
    let output = vm_run(folder.path(), &["--store", &at("document"), "--force"], &["sort", "/dev/null"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(!folder.path().join("document").exists(), "it was replaced, and removed at the end");
}
