//! What a file system takes of its device, and gives back.

use margay_flash::Geometry;
use margay_fs::{FsError, NewObject, ROOT, RenameFlags};
use margay_media::{ImageFlash, RamFlash};
use margay_volume::{Files, FilesFormatOptions, FilesOpenOptions, check_files, format_files, open_files};
use std::path::Path;

fn formatted(segments: u32) -> Files<RamFlash> {
    let geometry = Geometry::new(segments, 32, 4096).unwrap().with_spare(256);
    format_files(RamFlash::new(geometry), &FilesFormatOptions::default()).unwrap()
}

/// As after a power cut.
fn again(files: Files<RamFlash>) -> Files<RamFlash> {
    files.audit().unwrap();
    let mut device = files.into_device().into_device();
    assert_eq!(check_files(&mut device).unwrap().problems, []);
    let files = open_files(device, &FilesOpenOptions::default()).unwrap().files;
    files.audit().unwrap();
    files
}

fn name(number: u32) -> Vec<u8> {
    format!("file {number}").into_bytes()
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[test]
fn bytes_far_from_each_other_take_a_page_each_and_a_few_for_all_holes() {
    let mut files = formatted(64);
    let before = files.room().free_pages;
    let file = files.create(ROOT, b"sparse", &NewObject::FILE).unwrap().object;
    let count = 1000;
    for number in 0..count {
        assert_eq!(files.write(file, number << 20, &[number as u8 | 1]), Ok(1));
    }
    files.sync().unwrap();
    let taken = before - files.room().free_pages;
    // A page of holes for 127 MiB of the file, and the page with its header.
    assert!(taken <= count + 9 + 1, "{taken} pages for {count} bytes");
    let mut files = again(files);
    assert_eq!(before - files.room().free_pages, taken);
    let mut page = [7; 4097];
    for number in 0..count {
        assert_eq!(
            files.seek_data(file, (number << 20) + 5000),
            Ok((number + 1 < count).then_some((number + 1) << 20))
        );
        files.read(file, number << 20, &mut page).unwrap();
        assert!(page[0] == number as u8 | 1 && is_zero(&page[1..4096]));
    }
    files.truncate(file, 60 << 30).unwrap();
    assert_eq!(before - files.room().free_pages, taken);
    files.truncate(file, 0).unwrap();
    files.sync().unwrap();
    assert!(before - files.room().free_pages <= 1);
}

#[test]
fn a_punched_hole_gives_its_room_back_at_once_and_stays_after_a_power_cut() {
    let mut files = formatted(32);
    let file = files.create(ROOT, b"f", &NewObject::FILE).unwrap().object;
    for version in 1..=3u8 {
        // Older copies of every chunk are left on flash.
        files.write(file, 0, &[version; 100 * 4096]).unwrap();
        files.sync().unwrap();
    }
    let before = files.room().free_pages;
    // Every second page, so that the header cannot list the holes.
    (0..100).step_by(2).for_each(|chunk| files.punch_hole(file, chunk * 4096, 4096).unwrap());
    assert!(files.room().free_pages >= before + 49);
    files.punch_hole(file, 4096 + 100, 50).unwrap();
    files.fsync(file, true).unwrap();
    let mut files = again(files);
    let mut data = vec![0; 100 * 4096];
    assert_eq!(files.read(file, 0, &mut data), Ok(data.len()));
    for (chunk, page) in data.chunks(4096).enumerate() {
        match chunk {
            chunk if chunk % 2 == 0 => assert!(is_zero(page), "chunk {chunk}"),
            1 => assert!(page[..100] == [3; 100] && is_zero(&page[100..150]) && page[150..] == [3; 4096 - 150]),
            _ => assert!(page == [3; 4096]),
        }
    }
    // Filled again and grown, it needs nothing for holes any more.
    files.write(file, 0, &vec![9; 100 * 4096]).unwrap();
    files.sync().unwrap();
    assert!(files.room().free_pages + 1 >= before);
}

#[test]
fn what_a_hole_replaced_does_not_come_back_when_segments_are_erased_before_a_power_cut() {
    let geometry = Geometry::new(24, 16, 512).unwrap().with_spare(128);
    for seed in 0..40u64 {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut below = |limit: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % limit
        };
        let mut files = format_files(RamFlash::new(geometry), &FilesFormatOptions::default()).unwrap();
        let file = files.create(ROOT, b"f", &NewObject::FILE).unwrap().object;
        let other = files.create(ROOT, b"other", &NewObject::FILE).unwrap().object;
        files.write(other, 0, &[200; 120 * 512]).unwrap();
        let mut version = 0;
        let mut held = [0; 40];
        for _ in 0..4 {
            for _ in 0..60 {
                let chunk = below(40);
                version = version % 190 + 1;
                held[chunk as usize] = version;
                files.write(file, chunk * 512, &[version; 512]).unwrap();
                files.write(other, below(120) * 512, &[201; 512]).unwrap();
            }
            files.sync().unwrap();
            let first = below(20);
            files.punch_hole(file, first * 512, 20 * 512).unwrap();
            // No header changes: only the erasing of segments asks for what was punched to be on flash.
            for _ in 0..below(200) {
                files.write(other, below(120) * 512, &[202; 512]).unwrap();
            }
            files = open_files(files.into_device().into_device(), &FilesOpenOptions::default()).unwrap().files;
            let mut page = [0; 512];
            for chunk in 0..40u64 {
                page.fill(0);
                files.read(file, chunk * 512, &mut page).unwrap();
                let is_punched = (first..first + 20).contains(&chunk) && is_zero(&page);
                assert!(
                    is_punched || page == [held[chunk as usize]; 512],
                    "seed {seed}: chunk {chunk} holds {}",
                    page[0]
                );
                held[chunk as usize] = page[0];
            }
        }
    }
}

#[test]
fn a_file_can_have_as_many_holes_as_pages_beside_attributes_that_fill_its_header() {
    let mut files = formatted(32);
    let file = files.create(ROOT, b"f", &NewObject::FILE).unwrap().object;
    files.set_attribute(file, b"user.large", &[b'v'; 3500]).unwrap();
    for number in 0..300 {
        files.write(file, number * 8192, b"x").unwrap();
    }
    files.rename(ROOT, b"f", ROOT, &[b'n'; 255], RenameFlags::default()).unwrap();
    files.sync().unwrap();
    let files = again(files);
    assert_eq!(files.resolve(&[b'n'; 255]).unwrap().pages, 300);
    assert_eq!(files.get_attribute(file, b"user.large").unwrap().len(), 3500);
}

#[test]
fn header_pages_are_given_back_when_their_files_are_gone() {
    let mut files = formatted(64);
    files.sync().unwrap();
    let before = files.room().free_pages;
    for round in 0..5 {
        for number in 0..3000 {
            files.create(ROOT, &name(number), &NewObject::FILE).unwrap();
        }
        files.sync().unwrap();
        assert!(files.room().free_pages + 60 < before, "headers take pages");
        (0..3000).for_each(|number| files.unlink(ROOT, &name(number)).unwrap());
        // At once: the last header page that changed is not written yet.
        assert!(files.room().free_pages + 2 >= before, "round {round}: {} of {before}", files.room().free_pages);
        files.sync().unwrap();
        files = again(files);
        assert!(files.list(ROOT).unwrap().is_empty());
        assert!(files.room().free_pages + 1 >= before, "round {round}: {} of {before}", files.room().free_pages);
    }
    assert!(files.header_pages() <= 2);
}

#[test]
fn names_are_changed_and_removed_on_a_full_device_and_what_they_took_is_free_at_once() {
    let mut files = formatted(32);
    files.sync().unwrap();
    let before = files.room().free_pages;
    let count = 400;
    for number in 0..count {
        let file = files.create(ROOT, &name(number), &NewObject::FILE).unwrap().object;
        files.write(file, 0, b"a little").unwrap();
        files.close(file).unwrap();
    }
    let large = files.create(ROOT, b"large", &NewObject::FILE).unwrap().object;
    let error = loop {
        let end = files.attributes(large).unwrap().size;
        if let Err(error) = files.write(large, end, &[1; 4096]) {
            break error;
        }
    };
    assert_eq!(error, FsError::NoSpace);
    assert_eq!(files.room().free_pages, 0);
    files.create(ROOT, b"folder", &NewObject::DIRECTORY).unwrap_err();
    for number in 0..count {
        let new = format!("a name that is longer than the old one {number}").into_bytes();
        files.rename(ROOT, &name(number), ROOT, &new, RenameFlags::default()).unwrap();
    }
    files.sync().unwrap();
    let mut files = again(files);
    for (name, _) in files.list(ROOT).unwrap() {
        files.unlink(ROOT, &name).unwrap();
    }
    assert!(files.room().free_pages + 2 >= before, "{} of {before}", files.room().free_pages);
    // What is said to be free can be written.
    let file = files.create(ROOT, b"new", &NewObject::FILE).unwrap().object;
    let free = files.room().free_pages as usize - 1;
    assert_eq!(files.write(file, 0, &vec![5; free * 4096]), Ok(free * 4096));
    files.sync().unwrap();
    again(files);
}

#[test]
fn a_golden_image_with_pages_of_holes_is_still_read() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/files-1-holes.img.zst");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash.img");
    if std::env::var_os("MARGAY_WRITE_GOLDEN").is_some() && !golden.exists() {
        let geometry = Geometry::new(24, 16, 512).unwrap().with_spare(128);
        let mut files =
            format_files(ImageFlash::create(&path, geometry).unwrap(), &FilesFormatOptions::default()).unwrap();
        let file = files.create(ROOT, b"holes", &NewObject::FILE).unwrap().object;
        for number in 0..40 {
            files.write(file, number * 1024, &[number as u8 + 1; 512]).unwrap();
        }
        files.punch_hole(file, 4096, 512).unwrap();
        for number in 0..40 {
            files.create(ROOT, &name(number), &NewObject::FILE).unwrap();
        }
        (0..40).for_each(|number| files.unlink(ROOT, &name(number)).unwrap());
        files.sync().unwrap();
        drop(files);
        std::fs::write(&golden, zstd::encode_all(&std::fs::read(&path).unwrap()[..], 19).unwrap()).unwrap();
    }
    std::fs::write(&path, zstd::decode_all(std::fs::File::open(&golden).unwrap()).unwrap()).unwrap();
    assert_eq!(check_files(ImageFlash::open(&path, true).unwrap()).unwrap().problems, []);
    let device = ImageFlash::open(&path, false).unwrap();
    let mut files = open_files(device, &FilesOpenOptions::default()).unwrap().files;
    assert_eq!(files.list(ROOT).unwrap().len(), 1);
    let found = files.resolve(b"holes").unwrap();
    assert_eq!((found.size, found.pages), (39 * 1024 + 512, 39));
    let mut data = vec![0; found.size as usize];
    files.read(found.object, 0, &mut data).unwrap();
    for (chunk, page) in data.chunks(512).enumerate() {
        let expected = if chunk % 2 == 1 || chunk == 8 { 0 } else { chunk as u8 / 2 + 1 };
        assert!(page.iter().all(|byte| *byte == expected), "chunk {chunk}");
    }
    files.stop().unwrap();
}
