//! A check can fail, and a repair copies what can be read and says what it gives up.

use crate::common::{MARGAY, fails, text, works};
use margay_flash::{Ppn, SegmentId};
use margay_media::{ImageError, ImageFlash};
use margay_volume::{OpenOptions, Volume, dump_segment, find};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PAGE: u64 = 4096;
/// Bytes of a page with its spare area.
const STRIDE: u64 = 4096 + 256;
const PAGES: u64 = 600;

fn content(lpn: u64) -> Vec<u8> {
    (0..PAGE).map(|at| (lpn * 31 + at * (lpn % 7 + 1)) as u8).collect()
}

/// Opens an image. A program that another test is just starting has the files of this process, with their locks, until it
/// runs.
fn open(image: &str) -> Volume {
    let device = (0..500).find_map(|_| match ImageFlash::open(Path::new(image), false) {
        Err(ImageError::InUse) => {
            std::thread::sleep(Duration::from_millis(10));
            None
        }
        result => Some(result),
    });
    Volume::open(device.unwrap().unwrap(), &OpenOptions::default()).unwrap()
}

/// A disk whose first pages were written, and some trimmed after that; then some were written again. Without a stop.
fn disk(folder: &Path) -> String {
    let image = folder.join("disk.img").display().to_string();
    works(&["format", &image, "--size", "16M", "-p", "m1"]);
    let mut volume = open(&image);
    let write = |volume: &mut Volume, lpn| volume.write(lpn * PAGE, &content(lpn), Default::default()).unwrap();
    (0..PAGES).for_each(|lpn| write(&mut volume, lpn));
    volume.trim(100 * PAGE, 50 * PAGE, false).unwrap();
    volume.flush().unwrap();
    (0..30).for_each(|lpn| write(&mut volume, lpn));
    volume.flush().unwrap();
    image
}

/// The pages on flash: place, owner and sequence number.
fn pages(image: &str) -> (u64, Vec<(Ppn, u64, u64)>) {
    let mut device = ImageFlash::open(Path::new(image), true).unwrap();
    let superblock = find(&mut device).unwrap();
    let segments = (0..superblock.geometry.segments()).map(SegmentId);
    let dumped = segments.flat_map(|segment| dump_segment(&mut device, &superblock, segment).unwrap().pages);
    let tagged = dumped.filter_map(|page| page.tag.ok().map(|tag| (page.ppn, tag.page.owner, tag.page.seq)));
    (superblock.exported_pages.into(), tagged.collect())
}

/// Overwrites the data of a page, and with `tag` its spare area.
fn damage(image: &str, ppn: Ppn, tag: bool) {
    let file = File::options().write(true).open(image).unwrap();
    let len = if tag { STRIDE } else { PAGE };
    file.write_all_at(&vec![0x5A; len as usize], 4096 + u64::from(ppn.0) * STRIDE).unwrap();
}

/// Where the latest version of a page is.
fn place(image: &str, owner: u64) -> Ppn {
    let latest = pages(image).1.into_iter().filter(|page| page.1 == owner).max_by_key(|page| page.2);
    latest.expect("it was written").0
}

fn read(image: &str, lpn: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE as usize];
    open(image).read(lpn * PAGE, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_repaired_copy_of_a_disk_has_all_that_can_be_read_and_the_rest_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let image = disk(folder.path());
    let out = folder.path().join("out.img").display().to_string();
    works(&["check", &image]);
    for lpn in [40, 300] {
        damage(&image, place(&image, lpn), false);
    }
    let before = fs::read(&image).unwrap();
    fails(&["check", &image], 1, "2 problems (see above); nothing was changed; `margay check");
    let output = Command::new(MARGAY).args(["check", &image, "--repair", &out]).output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("given up: page 40 of the disk (bytes 163840 to 167935)"), "{said}");
    assert!(said.contains("given up: page 300 of the disk") && said.contains("2 things were given up"), "{said}");
    assert!(fs::read(&image).unwrap() == before, "the image was changed");
    fails(&["check", &image, "--repair", &out], 2, "--force");
    assert!(works(&["check", &out]).ends_with("clean\n"));
    let lines = |image: &str| works(&["info", image]).lines().take(5).map(String::from).collect::<Vec<_>>();
    assert_eq!(lines(&out), lines(&image), "the copy has another shape, other policies or another name");
    for lpn in 0..PAGES {
        let is_zero = lpn == 40 || lpn == 300 || (100..150).contains(&lpn);
        let expected = if is_zero { vec![0; PAGE as usize] } else { content(lpn) };
        if lpn % 13 == 0 || is_zero {
            assert!(read(&out, lpn) == expected, "page {lpn}");
        }
    }
    // In place: the repaired image takes the place of the damaged one.
    let inode = fs::metadata(&image).unwrap().ino();
    fails(&["check", &image, "--repair-in-place"], 1, "2 things were given up");
    assert_ne!(fs::metadata(&image).unwrap().ino(), inode);
    assert!(works(&["check", &image, "--repair-in-place"]).ends_with("there is nothing to repair\n"));
    assert!(read(&image, 41) == content(41));
}

#[test]
fn a_damaged_page_is_a_problem_unless_a_power_cut_can_have_torn_it() {
    let folder = tempfile::tempdir().unwrap();
    let image = disk(folder.path());
    let whole = fs::read(&image).unwrap();
    let (exported, mut found) = pages(&image);
    found.sort_by_key(|page| page.2);
    // The page that was programmed last.
    damage(&image, found.last().unwrap().0, true);
    let said = works(&["check", &image]);
    assert!(said.contains("torn page") && said.contains("nothing flushed was on it"), "{said}");
    assert!(said.ends_with("clean\n"), "{said}");
    // A page of the map of trims, behind which others were programmed.
    fs::write(&image, &whole).unwrap();
    let own = found.iter().filter(|page| page.1 >= exported).collect::<Vec<_>>();
    let mut failed = 0;
    for (ppn, _, _) in &own {
        fs::write(&image, &whole).unwrap();
        damage(&image, *ppn, false);
        let output = Command::new(MARGAY).args(["check", &image]).output().unwrap();
        let said = text(&output);
        let is_listed = said.contains("damaged page");
        assert_eq!(output.status.success(), !is_listed, "{said}");
        failed += usize::from(is_listed);
    }
    assert!(failed > 0, "no damage of {} pages of the disk's own was seen", own.len());
}

#[test]
fn a_repaired_copy_of_files_has_every_name_and_says_which_bytes_are_zeros() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let image = at("files.img").display().to_string();
    works(&["fs", "format", &image, "--size", "8M"]);
    let tree = at("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    let bytes: Vec<u8> = (0..50_000u32).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 20) as u8).collect();
    for name in ["whole", "a/damaged", "a/b/deep"] {
        fs::write(tree.join(name), &bytes[..bytes.len() - name.len() * 1000]).unwrap();
    }
    std::os::unix::fs::symlink("a/b/deep", tree.join("link")).unwrap();
    works(&["fs", "put", &image, &tree.display().to_string()]);
    // The same bytes are in three files: the second page of one of them.
    let device = ImageFlash::open(Path::new(&image), true).unwrap();
    let opened =
        margay_volume::open_files(device, &margay_volume::FilesOpenOptions { read_only: true, ..Default::default() });
    let files = opened.unwrap().files;
    let object = files.resolve(b"tree/a/damaged").unwrap().object;
    let ppn = files.place(object, 1).unwrap();
    drop(files);
    let listed = works(&["fs", "ls", "-R", &image]);
    damage(&image, ppn, false);
    fails(&["fs", "check", &image], 1, "1 problem (see above)");
    let out = at("out.img").display().to_string();
    let output = Command::new(MARGAY).args(["fs", "check", &image, "--repair", &out]).output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("given up: /tree/a/damaged: bytes 4096 to 8191 of 41000"), "{said}");
    assert!(works(&["fs", "check", &out]).contains("\nclean"));
    assert_eq!(works(&["fs", "ls", "-R", &out]), listed);
    let get = |name: &str| Command::new(MARGAY).args(["fs", "get", &out, name]).output().unwrap().stdout;
    assert!(get("tree/whole") == bytes[..45_000] && get("tree/a/b/deep") == bytes[..42_000]);
    let mut expected = bytes[..41_000].to_vec();
    expected[4096..8192].fill(0);
    assert!(get("tree/a/damaged") == expected);
    fails(&["fs", "check", &image, "--repair-in-place"], 1, "1 thing was given up");
    assert_eq!(works(&["fs", "ls", "-R", &image]), listed);
}
