//! Images of other times, of other kinds, and damaged ones.

use margay_flash::{Flash, Geometry, Ppn};
use margay_fs::{AllocatorSpec, NewObject, ObjectKind, ROOT};
use margay_media::{ImageFlash, RamFlash};
use margay_volume::{
    Files, FilesFormatOptions as FormatOptions, FilesOpenOptions as OpenOptions, VolumeError, check_files as check,
    format_files as format, open_files,
};

mod shared;

/// Opens a file system, whatever is wrong with it.
fn open<F: Flash>(device: F, options: &OpenOptions) -> Result<Files<F>, VolumeError> {
    Ok(open_files(device, options)?.files)
}
use shared::SharedFlash;

#[test]
fn a_golden_image_is_still_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/files-1.img.zst");
    let image = zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("flash.img");
    std::fs::write(&file, &image).unwrap();
    let device = ImageFlash::open(&file, false).unwrap();
    let mut fs = open(device, &OpenOptions::default()).unwrap();
    assert!(fs.mount_report().from_checkpoint);
    let found = fs.resolve(b"/dir/file").unwrap();
    assert_eq!((found.size, found.mode, found.links), (5000, 0o640, 2));
    let mut data = vec![0; 5000];
    assert_eq!(fs.read(found.object, 0, &mut data), Ok(5000));
    assert!(data.iter().enumerate().all(|(i, byte)| *byte == (i % 251) as u8));
    assert_eq!(fs.resolve(b"/hard").unwrap().object, found.object);
    assert_eq!(fs.read_link(fs.resolve(b"/soft").unwrap().object).unwrap(), b"dir/file");
    assert_eq!(fs.get_attribute(found.object, b"user.note").unwrap(), b"kept");
    fs.create(ROOT, b"new", &NewObject::FILE).unwrap();
    fs.stop().unwrap();
}

fn small() -> [Geometry; 4] {
    let nand = Geometry::new(20, 8, 512).unwrap().with_spare(160);
    let nor = Geometry::new(20, 10, 512).unwrap().byte_programmable();
    // Without room for the information on pages: pages in pairs.
    [nand, nor, Geometry::new(20, 16, 512).unwrap(), Geometry::new(20, 8, 512).unwrap().with_spare(34)]
}

fn used(geometry: Geometry) -> SharedFlash {
    let chip = SharedFlash::new(geometry);
    let mut options = FormatOptions::default();
    options.store.pair_pages = geometry == small()[2];
    let mut fs = format(chip.clone(), &options).unwrap();
    let folder = fs.create(ROOT, b"folder", &NewObject::DIRECTORY).unwrap().object;
    for number in 0..12u32 {
        let name = [b'a' + number as u8];
        let file = fs.create(if number % 2 == 0 { folder } else { ROOT }, &name, &NewObject::FILE).unwrap().object;
        fs.write(file, u64::from(number) * 300, &[number as u8; 700]).unwrap();
        fs.close(file).unwrap();
    }
    let first = fs.resolve(b"folder/a").unwrap().object;
    fs.link(first, ROOT, b"link").unwrap();
    fs.create(ROOT, b"s", &NewObject { kind: ObjectKind::Symlink, target: b"folder/a", ..NewObject::FILE }).unwrap();
    fs.stop().unwrap();
    chip
}

/// Opens a damaged device in every way and uses it; errors are fine, panics are not.
fn survives(chip: &SharedFlash) {
    for read_only in [true, false] {
        let options = OpenOptions { read_only, accept_losses: true, ..OpenOptions::default() };
        let Ok(mut fs) = open(chip.clone(), &options) else { continue };
        let mut folders = vec![ROOT];
        let mut data = [0; 600];
        while let Some(folder) = folders.pop() {
            for (name, attributes) in fs.list(folder).unwrap() {
                match attributes.kind {
                    ObjectKind::Directory => folders.push(attributes.object),
                    _ => {
                        // What is lost is an error; what it is is not the matter here.
                        let _ = fs.read(attributes.object, 100, &mut data);
                        let _ = fs.write(attributes.object, 300, &data);
                        let _ = fs.unlink(folder, &name);
                    }
                }
            }
        }
        let _ = fs.create(ROOT, b"more", &NewObject::FILE);
        let _ = fs.sync();
        fs.audit().unwrap();
    }
    let _ = check(chip.clone());
}

#[test]
fn no_damage_to_an_image_makes_it_panic() {
    for geometry in small() {
        let base = used(geometry).0.lock().unwrap().clone();
        for page in 0..geometry.pages() {
            for at in (0..512usize).step_by(41) {
                for value in [0x00, 0x5A, 0xFF] {
                    let mut ram: RamFlash = base.clone();
                    ram.page_bytes_mut(Ppn(page))[at] = value;
                    survives(&SharedFlash::of(ram));
                }
            }
        }
    }
}

#[test]
fn a_lost_header_page_is_a_problem_that_is_named_and_the_rest_is_there() {
    let chip = used(small()[0]);
    // Without the checkpoint and the pages of headers that hold most files.
    let report = check(chip.clone()).unwrap();
    assert_eq!((report.files, report.directories, report.links), (12, 2, 1));
    assert!(report.problems.is_empty() && report.has_checkpoint);
    let mut problems = 0;
    for page in 8..160 {
        let mut ram = chip.0.lock().unwrap().clone();
        // Two bits more than a tag or the ECC would mend.
        ram.page_bytes_mut(Ppn(page))[20] ^= 0x18;
        let damaged = check(SharedFlash::of(ram)).unwrap();
        if damaged.problems.is_empty() {
            continue;
        }
        problems += 1;
        let mut ram = chip.0.lock().unwrap().clone();
        ram.page_bytes_mut(Ppn(page))[20] ^= 0x18;
        let lost_headers = damaged.problems.iter().any(|problem| matches!(problem, margay_fs::Problem::Headers { .. }));
        let fs = open(SharedFlash::of(ram), &OpenOptions::default()).unwrap();
        // Only a checkpoint can still know where the rest is.
        assert!(!lost_headers || fs.is_read_only() || fs.mount_report().from_checkpoint);
    }
    assert!(problems >= 10, "{problems}");
}

#[test]
fn other_devices_are_refused_with_their_reason() {
    let blank = SharedFlash::new(small()[0]);
    let message = |error: VolumeError| error.to_string();
    assert!(message(open(blank.clone(), &OpenOptions::default()).unwrap_err()).contains("no margay superblock"));
    let disk = margay_volume::Volume::format(
        blank.clone(),
        &margay_volume::FormatOptions { exported_pages: Some(40), ..margay_volume::FormatOptions::default() },
    );
    disk.unwrap().stop().unwrap();
    assert!(message(open(blank, &OpenOptions::default()).unwrap_err()).contains("holds a disk"));
    let tiny = Geometry::new(4, 8, 512).unwrap().with_spare(160);
    assert!(message(format(SharedFlash::new(tiny), &FormatOptions::default()).unwrap_err()).contains("too few"));
    assert!("moda:m=0".parse::<AllocatorSpec>().is_err());
    assert!("yaffs".parse::<AllocatorSpec>().unwrap_err().to_string().contains("predictive"));
}
