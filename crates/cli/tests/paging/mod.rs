//! What programs do with memory, forks above all, with a heap that is mostly on flash.

use crate::common::{MARGAY, has, is_paging_allowed, library, skip, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `program.c`, built; `None` if there is no C compiler.
fn program(folder: &Path) -> Option<PathBuf> {
    if !has("cc") {
        skip("there is no C compiler");
        return None;
    }
    let program = folder.join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/paging/program.c");
    let mut compiler = Command::new("cc");
    let output = compiler.args(["-O1", "-Wall", "-o"]).args([&program, &source]).arg("-lpthread").output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    Some(program)
}

fn vm_run(folder: &Path, options: &[&str], program: &[&str]) -> Output {
    library();
    let mut command = Command::new(MARGAY);
    command.args([&["vm", "run", "--memory", "64M", "--ram", "1M"], options, &["--"], program].concat());
    command.current_dir(folder).env("TMPDIR", folder).output().unwrap()
}

fn is_right(what: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    if !is_paging_allowed(folder.path()) {
        return None;
    }
    let program = program(folder.path())?;
    let output = vm_run(folder.path(), &[], &[program.to_str().unwrap(), what]);
    assert!(output.status.success() && output.stdout == b"right\n", "{what}: {}", text(&output));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left but the program");
    Some(text(&output))
}

#[test]
fn parent_and_forked_child_change_their_heaps_apart() {
    let Some(said) = is_right("both-change") else { return };
    assert!(said.contains("2 processes together"), "{said}");
}

#[test]
fn a_forked_child_that_waits_has_the_heap_of_the_fork_though_its_parent_has_changed_everything() {
    is_right("the-parent-first");
}

#[test]
fn a_daemon_has_its_heap_after_its_parent_has_ended() {
    is_right("the-parent-ends");
}

#[test]
fn a_process_with_threads_and_open_files_forks() {
    is_right("busy");
}

#[test]
fn a_program_that_closes_every_descriptor_keeps_its_heap() {
    is_right("closes-all");
}

#[test]
fn mappings_are_paged_moved_given_up_locked_and_protected() {
    let Some(said) = is_right("mappings") else { return };
    let written = said.split(" pages evicted dirty").next().unwrap().split_whitespace().last().unwrap();
    assert!(written.parse::<u64>().unwrap() > 1000, "{said}");
}

#[test]
fn an_image_that_exec_starts_and_children_have_heaps_on_flash_unless_told_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    if !is_paging_allowed(folder.path()) {
        return;
    }
    let Some(program) = program(folder.path()) else { return };
    let shim = folder.path().join("shim");
    std::fs::write(&shim, format!("#!/bin/sh\nexec {} closes-all\n", program.display())).unwrap();
    let wrapper = format!("{} closes-all; echo after", program.display());
    for (options, command, is_paged) in [
        (&[][..], ["sh", shim.to_str().unwrap(), ""], true),
        (&["--no-children"], ["sh", shim.to_str().unwrap(), ""], true),
        (&[], ["sh", "-c", &wrapper], true),
        (&["--no-children"], ["sh", "-c", &wrapper], false),
    ] {
        let output = vm_run(folder.path(), options, &command);
        let said = text(&output);
        assert!(output.status.success() && output.stdout.starts_with(b"right\n"), "{command:?}: {said}");
        assert_eq!(said.contains(" 0 pages evicted dirty"), !is_paged, "{options:?} {command:?}: {said}");
    }
}

#[test]
fn what_cannot_be_paged_is_named() {
    let folder = tempfile::tempdir().unwrap();
    if !is_paging_allowed(folder.path()) {
        return;
    }
    let said = text(&vm_run(folder.path(), &[], &["env", "-i", "true"]));
    assert!(said.contains("without a report") && said.contains("env"), "{said}");
    let source = folder.path().join("locks.c");
    std::fs::write(
        &source,
        "#include <sys/mman.h>\n#include <unistd.h>\nint main() { return mlockall(MCL_CURRENT) == -1 && _Fork() == -1 ? 0 : 1; }\n",
    )
    .unwrap();
    if !has("cc") {
        skip("there is no C compiler");
        return;
    }
    let built =
        Command::new("cc").args(["-D_GNU_SOURCE", "locks.c", "-o", "locks"]).current_dir(folder.path()).output();
    assert!(built.unwrap().status.success());
    let output = vm_run(folder.path(), &[], &["./locks"]);
    let said = text(&output);
    assert!(output.status.success() && said.contains("locks (process") && said.contains("mlockall"), "{said}");
    assert!(said.contains("_Fork(3)"), "{said}");
}

#[test]
fn programs_print_what_they_print_without_margay() {
    let folder = tempfile::tempdir().unwrap();
    if !is_paging_allowed(folder.path()) {
        return;
    }
    if !has("python3") {
        skip("there is no python3");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/paging-programs.py");
    let mut command = Command::new("python3");
    let output =
        command.arg(script).arg("--quick").env("MARGAY", MARGAY).env("TMPDIR", folder.path()).output().unwrap();
    let said = text(&output);
    assert!(output.status.success() && said.contains("| works |") && !said.contains("FAILS"), "{said}");
}
