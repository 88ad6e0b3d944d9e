//! Sizes that the host cannot hold are refused before anything is written.

use crate::common::{fails, works};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

#[test]
fn a_device_that_fits_neither_the_disk_nor_the_memory_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("flash.img").display().to_string();
    let started = Instant::now();
    for command in [&["format"][..], &["fs", "format"]] {
        let large = |options: &[&'static str]| [command, &[&image[..]], options].concat();
        fails(&large(&["--size", "50T", "--page-bytes", "1048576"]), 1, "and the disk that it is to be on has");
        // 2^32 - 1 pages of 4 KiB.
        fails(&large(&["--size", "15.99T"]), 2, "of memory, and this machine has");
    }
    assert!(started.elapsed() < Duration::from_secs(20), "it takes {:?} to say no", started.elapsed());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_image_that_the_memory_cannot_hold_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("flash.img").display().to_string();
    works(&["format", &image, "--size", "16M"]);
    // The header says 2^26 segments of 64 pages of 4 KiB and 256 bytes; the file is a hole.
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&((1u32 << 26) - 1).to_le_bytes(), 8).unwrap();
    if file.set_len(4096 + (1 << 32) * 4352).is_err() {
        // The largest file of some file systems is smaller; then no such image can exist there.
        return;
    }
    let started = Instant::now();
    for command in [&["info"][..], &["check"], &["dump"], &["fs", "check"], &["fs", "ls"]] {
        fails(&[command, &[&image]].concat(), 2, "of memory, and this machine has");
    }
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_read_only_range_has_to_lie_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("flash.img").display().to_string();
    fails(&["format", &image, "--size", "16M", "--read-only-range", "0+100G"], 2, "does not lie on the disk");
    assert!(!fs::exists(&image).unwrap());
    works(&["format", &image, "--size", "16M", "--read-only-range", "0+1M"]);
    let serve = |range| ["serve", &image, "--run", "true", "--read-only-range", range];
    fails(&serve("0+100G"), 2, "does not lie on the disk");
    fails(&serve("16M+4K"), 2, "does not lie on the disk");
    works(&serve("1M+8M"));
}
