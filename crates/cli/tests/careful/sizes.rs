//! Sizes that the host cannot hold are refused before anything is written.

use crate::common::{fails, works};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
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
fn an_image_takes_room_on_the_host_as_it_is_written_and_need_not_fit_with_sparse() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("flash.img").display().to_string();
    let room = || fs::metadata(&image).unwrap().blocks() * 512;
    for (command, options) in [(&["format"][..], &[][..]), (&["format"], &["--nor"]), (&["fs", "format"], &[])] {
        works(&[command, &[&image, "--force", "--size", "2G"], options].concat());
        // NOR flash keeps the erase count of each segment in the segment.
        let max = if options.is_empty() { 4 << 20 } else { 128 << 20 };
        assert!(room() < max, "{command:?} {options:?} takes {} bytes", room());
    }
    let free = std::process::Command::new("df").args(["--output=avail", "-B1"]).arg(folder.path()).output().unwrap();
    let free = String::from_utf8(free.stdout).unwrap();
    let free: u64 = free.lines().nth(1).and_then(|line| line.trim().parse().ok()).unwrap();
    let larger = (free + (1 << 30)).to_string();
    let pages = ["--page-bytes", "65536", "--spare-bytes", "1024"];
    let large = [&["format", &image, "--force", "--size", &larger], &pages[..]].concat();
    fails(&large, 1, "with --sparse it is made all the same");
    works(&[&large[..], &["--sparse"]].concat());
    let copy = format!("{image}.copy");
    works(&["check", &image, "--repair", &copy]);
    assert!(room() < 16 << 20, "{} bytes", room());
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
    fails(&["serve", &image, "--run", "true"], 2, "of memory, and this machine has");
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
