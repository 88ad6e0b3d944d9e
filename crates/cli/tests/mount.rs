//! The mounted file system under real programs. `scripts/test.sh` installs them; without FUSE or one of them the tests
//! say that they were skipped, and in CI that is a failure.

mod common;
#[path = "mount/kernel.rs"]
mod kernel;

use common::mounted::Image;
use common::{MARGAY, has, has_fuse, run, text};
use margay_policy::AllocatorSpec;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A source tree that every build of margay has at hand: the C library of zstd.
fn source_tree() -> PathBuf {
    let registry = home().join("registry/src");
    let crates =
        std::fs::read_dir(&registry).unwrap().flat_map(|index| std::fs::read_dir(index.unwrap().path()).unwrap());
    let found = crates.map(|entry| entry.unwrap().path()).find(|path| {
        path.file_name().unwrap().to_string_lossy().starts_with("zstd-sys-") && path.join("zstd/lib/zstd.h").exists()
    });
    found.expect("cargo has unpacked zstd-sys to build margay").join("zstd/lib")
}

fn home() -> PathBuf {
    std::env::var_os("CARGO_HOME")
        .map_or_else(|| Path::new(&std::env::var_os("HOME").unwrap()).join(".cargo"), PathBuf::from)
}

#[test]
fn a_source_tree_is_unpacked_and_built_and_is_there_after_kill_9() {
    if !has_fuse() || !has("cc") || !has("tar") {
        return;
    }
    let image = Image::new(&["--size", "64M"]);
    let mounted = image.mount(&[]);
    let tree = source_tree();
    mounted.sh(&format!("tar -C {} -cf - . | tar -xf - && diff -r {0} .", tree.display()));
    mounted.sh("for f in common/*.c compress/*.c decompress/*.c; do cc -O0 -DZSTD_DISABLE_ASM -c $f -o $(basename $f .c).o; done; ar rcs libzstd.a *.o");
    std::fs::write(
        image.folder().join("main.c"),
        "#include <stdio.h>\n#include \"zstd.h\"\nint main(void) { char b[200]; printf(\"%d\\n\", !ZSTD_isError(ZSTD_compress(b, 200, \"margay margay\", 13, 3))); }\n",
    )
    .unwrap();
    assert_eq!(mounted.sh("cc main.c libzstd.a -o main && ./main && sync ."), "1\n");
    let sums = mounted.sh("find . -type f | sort | xargs sha256sum");
    mounted.kill();
    image.check();
    let mounted = image.mount(&[]);
    assert_eq!(mounted.sh("find . -type f | sort | xargs sha256sum"), sums);
    assert_eq!(mounted.sh("./main"), "1\n");
    mounted.unmount();
    image.check();
}

#[test]
fn committed_rows_and_git_objects_survive_kill_9_in_the_middle() {
    if !has_fuse() || !has("sqlite3") || !has("git") {
        return;
    }
    let image = Image::new(&["--size", "64M"]);
    let mut rows = 0;
    for round in 0..3 {
        let kept: &[&str] = if round == 1 { &["--write-back"] } else { &[] };
        let mounted = image.mount(&[&["--commit", "1"], kept].concat());
        let folder = image.folder();
        let log = image.dir.path().join("committed");
        // Each number is printed once its transaction is committed; without `extra` SQLite does not sync the removal
        // of its journal, and the last one may be rolled back. It does not see that it cannot sync because nothing is mounted
        // any more, which asking for the free space does.
        let script = format!(
            "cd {} && [ -d repo ] || git init -q repo; sqlite3 t.db 'create table if not exists t(a integer primary key, b text)'; i={rows}; while :; do i=$((i+1)); sqlite3 t.db \"pragma synchronous=extra; insert into t values($i, hex(randomblob(300)))\" && stat -f . && echo $i >> {}; echo $i > repo/f$((i%7)); git -C repo add . && git -C repo -c user.name=m -c user.email=m@m -c core.fsync=all commit -qm $i && h=$(git -C repo rev-parse HEAD) && echo $h >> {}.git; done",
            folder.display(),
            log.display(),
            log.display()
        );
        let mut work =
            Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(1500 + 400 * round));
        mounted.kill();
        work.kill().unwrap();
        work.wait().unwrap();
        let committed: usize = std::fs::read_to_string(&log).unwrap().lines().last().unwrap().parse().unwrap();
        assert!(committed > rows, "the workload got nowhere");
        let heads = std::fs::read_to_string(log.with_extension("git")).unwrap();
        let head = heads.lines().last().unwrap();
        image.check();
        let mounted = image.mount(&[]);
        assert_eq!(mounted.sh("sqlite3 t.db 'pragma integrity_check'"), "ok\n");
        rows = mounted.sh("sqlite3 t.db 'select max(a) from t'").trim().parse().unwrap();
        assert!(rows >= committed, "{rows} rows, {committed} were committed");
        mounted.sh(&format!(
            "find repo/.git -name '*.lock' -delete && git -C repo cat-file -e {} && git -C repo fsck --strict",
            head
        ));
        mounted.sh("git -C repo reset -q --hard");
        mounted.unmount();
    }
    image.check();
}

#[test]
fn holes_of_files_take_no_room_and_programs_find_them() {
    if !has_fuse() || !has("python3") || !has("fallocate") {
        return;
    }
    let image = Image::new(&["--size", "8M"]);
    let mounted = image.mount(&[]);
    // Single bytes 1 MiB from each other, which filled the device after 134 of them.
    let pieces = "python3 -c '
import os
fd = os.open(\"sparse\", os.O_RDWR | os.O_CREAT)
size = lambda: os.fstat(fd).st_size
if size() == 0: [os.pwrite(fd, b\"x\", i << 20) for i in range(1000)]
os.fsync(fd)
at, pieces = 0, []
while at < size():
    data = os.lseek(fd, at, os.SEEK_DATA); at = os.lseek(fd, data, os.SEEK_HOLE); pieces.append((data, at))
assert pieces == [(i << 20, min((i << 20) + 4096, size())) for i in range(1000)], pieces
print(len(pieces), os.fstat(fd).st_blocks // 8, all(os.pread(fd, 2, i << 20)[:1] == b\"x\" for i in range(1000)))'";
    assert_eq!(mounted.sh(pieces), "1000 1000 True\n");
    mounted.kill();
    image.check();
    let mounted = image.mount(&[]);
    assert_eq!(mounted.sh(pieces), "1000 1000 True\n");
    mounted.sh("rm sparse; head -c 1000000 /dev/urandom > f; cp f ../f; sync f");
    let punch = "fallocate -p -o 5000 -l 500000";
    assert_eq!(mounted.sh(&format!("{punch} f; {punch} ../f; cmp f ../f; stat -c '%s %b' f")), "1000000 992\n");
    let zero = "fallocate -z -o 700000 -l 400000";
    assert_eq!(mounted.sh(&format!("{zero} f; {zero} ../f; cmp f ../f; stat -c '%s %b' f")), "1100000 400\n");
    let refused = Command::new("fallocate").args(["-l", "10000"]).arg(image.folder().join("g")).output().unwrap();
    assert!(text(&refused).contains("not supported"), "{}", text(&refused));
    mounted.sh("sync f");
    mounted.kill();
    image.check();
    let mounted = image.mount(&[]);
    mounted.sh("cmp f ../f; cp --sparse=auto f g; cmp f g; truncate -s 60G h; rm f g h");
    mounted.unmount();
    image.check();
}

#[test]
fn a_full_file_system_can_be_tidied_up_and_its_room_is_free_at_once() {
    if !has_fuse() || !has("python3") {
        return;
    }
    let image = Image::new(&["--size", "8M"]);
    let mounted = image.mount(&[]);
    let used = mounted.sh("python3 -c '
import os
free = lambda: os.statvfs(\".\").f_bfree
before = free()
for i in range(500): open(\"small%d\" % i, \"w\").write(\"x\")
fd = os.open(\"large\", os.O_CREAT | os.O_WRONLY)
try:
    while True: os.write(fd, bytes(4096))
except OSError as error: assert error.errno == 28, error
os.close(fd)
assert free() == 0
for i in range(250): os.rename(\"small%d\" % i, \"renamed%d\" % i)
for name in os.listdir(\".\"): os.unlink(name)
print(before - free())
fd = os.open(\"large\", os.O_CREAT | os.O_WRONLY)
for i in range(free() - 1): os.write(fd, bytes(4096))'");
    assert!(used.trim().parse::<u32>().unwrap() <= 3, "{used}");
    mounted.unmount();
    image.check();
}

#[test]
fn with_sync_names_every_answered_operation_on_names_survives_kill_9() {
    if !has_fuse() {
        return;
    }
    let image = Image::new(&["--size", "8M"]);
    let mut expected = vec![".".to_owned()];
    let last =
        ["touch new", "mkdir new", "ln old new", "ln -s old new", "mkfifo new", "mv old new", "rm old", "rmdir dir"];
    for last in last {
        let mounted = image.mount(&["--sync-names", "--commit", "86400"]);
        assert_eq!(mounted.sh("find . | sort").lines().collect::<Vec<_>>(), expected);
        expected = mounted
            .sh(&format!("rm -rf ./*; mkdir dir; touch old; {last}; find . | sort"))
            .lines()
            .map(str::to_owned)
            .collect();
        mounted.kill();
        image.check();
    }
}

#[test]
fn sqlite_in_its_default_journal_mode_loses_no_commit_with_sync_names() {
    if !has_fuse() || !has("python3") {
        return;
    }
    let script = common::root().join("scripts/journal-modes.py");
    let output = Command::new(script).args([MARGAY, "4", "DELETE"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn pjdfstest_finds_no_fault() {
    if !has_fuse() || !has("pjdfstest") {
        return;
    }
    for options in [["--allow-other"].as_slice(), &["--allow-other", "--write-back"]] {
        pjdfstest(options);
    }
}

fn pjdfstest(options: &[&str]) {
    let image = Image::new(&["--size", "64M"]);
    let mounted = image.mount(options);
    let config = image.dir.path().join("pjdfstest.toml");
    let users = r#"entries = [["nobody", "nogroup"], ["daemon", "daemon"], ["games", "games"]]"#;
    std::fs::write(
        &config,
        format!("[settings]\nnaptime = 0.01\nallow_remount = false\n[features]\n[dummy_auth]\n{users}\n"),
    )
    .unwrap();
    // Users have to get to the mount.
    run("chmod", &["755", &image.dir.path().display().to_string()]);
    mounted.sh("chmod 777 .");
    let report = Command::new("pjdfstest")
        .args(["-c", &config.display().to_string(), "-p", &image.folder().display().to_string()])
        .output()
        .unwrap();
    let report = text(&report);
    let summary = report.lines().find(|line| line.starts_with("Summary")).unwrap_or(&report);
    assert!(summary.contains(" 0 failed"), "{report}");
    let passed: u32 = summary.split(" passed").next().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(passed >= 340, "{summary}");
    mounted.unmount();
    image.check();
}

#[test]
fn fsx_finds_no_fault_with_any_allocator() {
    if !has_fuse() || !has("fsx") {
        return;
    }
    let runs = AllocatorSpec::made_for_files().map(|allocator| (allocator.name(), [].as_slice()));
    let usual = [("lifetime", [].as_slice()), ("lifetime", ["--write-back"].as_slice())];
    for (seed, (allocator, options)) in (1..).zip(runs.chain(usual)) {
        let image = Image::new(&["--size", "8M", "--page-bytes", "2048", "--pages-per-segment", "32", "-a", allocator]);
        let mounted = image.mount(options);
        let artefacts = image.dir.path().display().to_string();
        let file = image.folder().join("file").display().to_string();
        let report = run("fsx", &["-S", &seed.to_string(), "-N", "3000", "-P", &artefacts, &file]);
        assert!(report.contains("A-OK"), "{report}");
        mounted.unmount();
        image.check();
    }
}

#[test]
fn errors_have_the_numbers_that_programs_expect() {
    if !has_fuse() {
        return;
    }
    let image = Image::new(&["--size", "4M", "--page-bytes", "2048", "--pages-per-segment", "16"]);
    let mounted = image.mount(&[]);
    let errno = |result: std::io::Result<()>| result.unwrap_err().raw_os_error().unwrap();
    let folder = image.folder();
    let write = |name: &str, bytes: usize| std::fs::write(folder.join(name), vec![7; bytes]);
    assert_eq!(errno(write("big", 8 << 20)), 28, "ENOSPC");
    std::fs::remove_file(folder.join("big")).unwrap();
    assert_eq!(errno(write(&"n".repeat(256), 1)), 36, "ENAMETOOLONG");
    std::fs::create_dir_all(folder.join("a/b")).unwrap();
    assert_eq!(errno(std::fs::remove_dir(folder.join("a"))), 39, "ENOTEMPTY");
    assert_eq!(errno(std::fs::rename(folder.join("a"), folder.join("a/b/c"))), 22, "EINVAL");
    write("f", 3 << 20).unwrap();
    mounted.unmount();
    let mounted = image.mount(&["--read-only"]);
    assert_eq!(errno(write("g", 1)), 30, "EROFS");
    assert_eq!(std::fs::read(folder.join("f")).unwrap(), vec![7; 3 << 20]);
    mounted.unmount();
    image.check();
}

#[test]
fn a_signal_unmounts_cleanly_and_metrics_are_written() {
    if !has_fuse() {
        return;
    }
    let image = Image::new(&["--size", "16M"]);
    let metrics = image.dir.path().join("metrics.prom");
    let mut mounted = image.mount(&["--commit", "1", "--metrics", &metrics.display().to_string()]);
    mounted.sh("head -c 1000000 /dev/urandom > f; mkdir d; echo text > d/g; sleep 1.5");
    let text = std::fs::read_to_string(&metrics).unwrap();
    assert!(text.contains("margay_fs_uniformity") && text.contains("margay_fs_bytes_written_total 1000005"), "{text}");
    run("kill", &["-TERM", &mounted.child.id().to_string()]);
    assert!(mounted.child.wait().unwrap().success());
    let state = run(MARGAY, &["fs", "stat", &image.path()]);
    assert!(state.contains("from the checkpoint of a clean stop"), "{state}");
    assert_eq!(run(MARGAY, &["fs", "get", &image.path(), "d/g"]), "text\n");
}

#[test]
fn files_go_in_and_out_without_a_mount() {
    let image = Image::new(&["--size", "16M", "-a", "moda:m=3,lifetime=50"]);
    let path = image.path();
    let tree = image.dir.path().join("tree");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    std::fs::write(tree.join("one"), "1".repeat(10_000)).unwrap();
    std::fs::write(tree.join("sub/two"), "22").unwrap();
    std::os::unix::fs::symlink("one", tree.join("link")).unwrap();
    run(MARGAY, &["fs", "put", &path, &tree.display().to_string(), "/copy"]);
    let listed = run(MARGAY, &["fs", "ls", "-R", &path]);
    for name in [" copy\n", " copy/one\n", " copy/sub/two\n", " copy/link -> one\n"] {
        assert!(listed.contains(name), "{name} in {listed}");
    }
    assert_eq!(run(MARGAY, &["fs", "get", &path, "copy/one"]), "1".repeat(10_000));
    assert!(run(MARGAY, &["fs", "stat", &path, "copy/one"]).contains("class unclassified"));
    run(MARGAY, &["fs", "rm", "-r", &path, "copy/sub"]);
    assert!(!run(MARGAY, &["fs", "ls", "-R", &path]).contains("two"));
    let failed = Command::new(MARGAY).args(["fs", "get", &path, "nothing"]).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed).contains("nothing: no such file or directory"), "{}", text(&failed));
    let disk = Command::new(MARGAY).args(["check", &path]).output().unwrap();
    assert!(text(&disk).contains("file system"), "{}", text(&disk));
    image.check();
}
