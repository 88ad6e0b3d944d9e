//! Images of hybrid-mapped disks: what is written is recovered, and an image of today's format stays readable.

use margay_flash::{Geometry, Lpn, Ppn};
use margay_format::{FindError, SUPERBLOCK_BYTES, Superblock, SuperblockError};
use margay_hybrid::{FormatOptions, Mapping, NoCache, OpenError, Persistence, format, open};
use margay_media::{ImageFlash, RamFlash};
use std::path::{Path, PathBuf};

const PAGES: u32 = 20;
const PAGE_BYTES: usize = 512;

fn options(persistence: Persistence) -> FormatOptions {
    FormatOptions {
        mapping: Mapping::Fast { sequential: true, leave_open: false },
        persistence,
        log_blocks: 3,
        logical_pages: Some(PAGES),
        uuid: [0x6D; 16],
        created_s: 1_700_000_000,
    }
}

/// Page by page the number of the write that it holds.
fn history() -> (Vec<(u32, u32)>, Vec<Option<u32>>) {
    let lpns = (0..8).chain([17, 3, 3, 9]).chain(8..14).chain((0..40).map(|n| n * 7 % 19));
    let writes: Vec<_> = lpns.zip(0u32..).collect();
    let mut pages = vec![None; PAGES as usize];
    writes.iter().for_each(|(lpn, number)| pages[*lpn as usize] = Some(*number));
    (writes, pages)
}

fn content(lpn: u32, number: u32) -> [u8; PAGE_BYTES] {
    let mut page = [lpn as u8; PAGE_BYTES];
    page[..4].copy_from_slice(&number.to_le_bytes());
    page
}

fn make(path: &Path, persistence: Persistence) {
    let geometry = Geometry::new(9, 8, PAGE_BYTES as u32).unwrap().with_spare(64);
    let mut store = format(ImageFlash::create(path, geometry).unwrap(), &options(persistence)).unwrap();
    for (lpn, number) in history().0 {
        store.write(Lpn(lpn), &content(lpn, number), &mut NoCache).unwrap();
    }
    store.sync().unwrap();
}

fn check(path: &Path) {
    let mut store = open(ImageFlash::open(path, false).unwrap()).unwrap();
    assert_eq!((store.config().logical_pages, store.config().log_blocks), (PAGES, 3));
    for (lpn, number) in (0..).zip(history().1) {
        let mut page = [0; PAGE_BYTES];
        let found = store.read(Lpn(lpn), &mut page).unwrap();
        assert_eq!(found.map(|_| page), number.map(|number| content(lpn, number)), "page {lpn}");
    }
    store.audit().unwrap();
}

/// Images that must stay readable: version 1 of the image file; version 2, with a mark; the same since erases wait until
/// what replaces the erased pages is durable; the same with tags that name their places. The last one is that of today.
const GOLDEN: [&str; 4] = ["hybrid-1", "hybrid-2", "hybrid-2-erases-wait", "hybrid-2-places"];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.img.zst"))
}

#[test]
fn the_golden_image_is_read_and_would_be_written_the_same_today() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("today.img");
    make(&path, Persistence::Persistent);
    let bytes = std::fs::read(&path).unwrap();
    let today = GOLDEN[GOLDEN.len() - 1];
    if std::env::var_os("MARGAY_WRITE_GOLDEN").is_some() {
        std::fs::write(golden(today), zstd::encode_all(&bytes[..], 19).unwrap()).unwrap();
    }
    let kept = |name| zstd::decode_all(&std::fs::read(golden(name)).unwrap()[..]).unwrap();
    assert!(kept(today) == bytes, "the format has changed: raise its version");
    for name in GOLDEN {
        let old = folder.path().join(format!("{name}.img"));
        std::fs::write(&old, kept(name)).unwrap();
        check(&old);
        check(&old);
    }
}

#[test]
fn a_swap_store_is_empty_when_it_is_opened_and_other_images_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("swap.img");
    make(&path, Persistence::Volatile);
    let mut store = open(ImageFlash::open(&path, false).unwrap()).unwrap();
    let mut page = [0; PAGE_BYTES];
    assert!((0..PAGES).all(|lpn| store.read(Lpn(lpn), &mut page).unwrap().is_none()));
    // It can be used again at once: nothing of before is in the way.
    store.write(Lpn(5), &content(5, 1), &mut NoCache).unwrap();
    assert!(store.read(Lpn(5), &mut page).unwrap().is_some() && page == content(5, 1));
    let blank = folder.path().join("blank.img");
    let geometry = Geometry::new(9, 8, PAGE_BYTES as u32).unwrap().with_spare(64);
    let error = open(ImageFlash::create(&blank, geometry).unwrap()).unwrap_err();
    assert!(matches!(error, OpenError::Find(_)), "{error}");
}

#[test]
fn a_store_with_features_that_only_a_later_version_may_write_is_not_opened_because_opening_writes() {
    let geometry = Geometry::new(9, 8, PAGE_BYTES as u32).unwrap().with_spare(64);
    let mut flash = RamFlash::new(geometry);
    format(&mut flash, &options(Persistence::Persistent)).unwrap();
    let page = flash.page_bytes_mut(Ppn(0));
    let later = Superblock { read_only_compatible: 1, ..Superblock::decode(page).unwrap() };
    page[..SUPERBLOCK_BYTES].copy_from_slice(&later.encode().unwrap());
    let refused = open(flash).err();
    assert!(
        matches!(refused, Some(OpenError::Find(FindError::Superblock(SuperblockError::UnknownFeatures { bits: 1 })))),
        "{refused:?}"
    );
}
