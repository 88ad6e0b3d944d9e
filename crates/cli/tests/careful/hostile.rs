//! Traces that were made to use up memory: an error that names the file and the line, never an abort.

use crate::common::{MARGAY, has};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

/// Runs a command with so much virtual memory. It has to fail as for a damaged input, and to name a line.
fn is_refused_with(mib: u64, folder: &Path, args: &[&str], message: &str) {
    let script = format!("ulimit -v {}; exec \"$0\" \"$@\"", mib << 10);
    let mut command = Command::new("sh");
    let output = command.args(["-c", &script, MARGAY]).args(args).current_dir(folder).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(2 | 3)), "{args:?}: {}: {error}", output.status);
    assert!(error.contains(message), "{args:?}: {error}");
}

fn is_refused(folder: &Path, args: &[&str], message: &str) {
    is_refused_with(2048, folder, args, message);
}

/// Writes a file that `zstd` packs into some kilobytes.
fn packed(folder: &Path, name: &str, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) {
    let mut zstd = Command::new("zstd");
    zstd.args(["-q", "-1", "-o", name]).current_dir(folder).stdin(std::process::Stdio::piped());
    let mut child = zstd.spawn().unwrap();
    let mut pipe = BufWriter::with_capacity(1 << 20, child.stdin.take().unwrap());
    write(&mut pipe).unwrap();
    drop(pipe);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_line_without_an_end_is_an_error_of_its_line() {
    if !has("zstd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    packed(folder.path(), "endless.zst", |file| {
        file.write_all(b"==7== Lackey, an example Valgrind tool\n I ")?;
        (0..4096).try_for_each(|_| file.write_all(&[b'7'; 1 << 20]))
    });
    for args in [&["trace", "info", "endless.zst"][..], &["vm", "replay", "-q", "endless.zst"]] {
        is_refused(folder.path(), args, "endless.zst:2: the line is longer than 65536 bytes");
    }
}

#[test]
fn references_that_touch_page_after_page_are_an_error_of_their_record() {
    if !has("zstd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    packed(folder.path(), "pages.vmt.zst", |file| {
        file.write_all(b"VMT1\x0b\x01\x40\0\0\0\0\0\0\0\0\0")?;
        (0..200).try_for_each(|_| file.write_all(&[4; 1 << 20]))
    });
    assert!(folder.path().join("pages.vmt.zst").metadata().unwrap().len() < 34 << 10);
    for args in [&["trace", "info", "pages.vmt.zst"][..], &["vm", "replay", "-q", "pages.vmt.zst"]] {
        is_refused(folder.path(), args, "pages.vmt.zst:1677721");
    }
}

const HEADER: &str = "time_us,op,device,offset_bytes,len_bytes\n";

#[test]
fn requests_that_no_device_could_get_are_an_error_of_their_line() {
    let folder = tempfile::tempdir().unwrap();
    for op in ["read", "write", "trim"] {
        let name = format!("{op}.csv");
        std::fs::write(folder.path().join(&name), format!("{HEADER}0,write,0,0,4096\n1,{op},0,0,1099511627776\n"))
            .unwrap();
        for args in [
            &["trace", "info", &name][..],
            &["compare", "-q", "-s", "greedy", "-p", "m1", &name],
            &["replay", "-q", "--device", "ideal-1gb", &name],
        ] {
            is_refused(
                folder.path(),
                args,
                &format!("{name}:3: a request of 1099511627776 bytes is longer than 4 GiB"),
            );
        }
    }
}

#[test]
fn pages_devices_and_names_without_end_are_an_error_of_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, lines: u64, line: &dyn Fn(u64) -> String| {
        let mut file = BufWriter::new(File::create(folder.path().join(name)).unwrap());
        file.write_all(HEADER.as_bytes()).unwrap();
        (0..lines).for_each(|at| file.write_all(line(at).as_bytes()).unwrap());
    };
    write("pages.csv", 1000, &|at| format!("{at},write,0,{},4294967296\n", at << 32));
    is_refused_with(512, folder.path(), &["trace", "info", "pages.csv"], "pages of 4096 bytes are touched, for which");
    let compare = ["compare", "-q", "-j", "1", "-s", "greedy", "-p", "m1", "pages.csv"];
    is_refused_with(512, folder.path(), &compare, "there is no memory for more");
    write("devices.csv", 70_000, &|at| format!("{at},write,{at},0,512\n"));
    is_refused(folder.path(), &["trace", "info", "devices.csv"], "devices.csv:65538: more than 65536 devices");
    let long = "n".repeat(60_000);
    write("names.csv", 20, &|at| format!("{at},write,{long}{at},0,512\n"));
    is_refused(folder.path(), &["trace", "info", "names.csv"], "names.csv:2: a device is named by 60001 bytes");
}
