//! The disk on files and in memory: what was measured is what runs.

use margay_flash::{Flash, Geometry, Lpn, Ppn};
use margay_format::{Formatted, Plain};
use margay_ftl::{Ftl, OwnPages};
use margay_log::{Config, Hint, Policies};
use margay_media::{ImageFlash, NullFlash, Operation, RamFlash, Recorder};
use margay_policy::{PlacementSpec, SelectionSpec, Sizing};
use margay_volume::{
    Disk, FilesFormatOptions, FormatOptions, OpenOptions, Volume, VolumeError, check, format_files, limit_pages,
};

use std::path::Path;

mod shared;
use shared::SharedFlash;

fn nand() -> Geometry {
    Geometry::new(64, 16, 512).unwrap().with_spare(160)
}

/// Runs a workload on a device without payload and on an image, and compares every program and erase. Returns the
/// number of erases.
fn programs_and_erases_alike(sizing: Sizing, config: Config, policies: impl Fn() -> Policies) -> usize {
    let pages = sizing.exported_pages;
    let null = Plain::new(Recorder::new(NullFlash::new(nand())));
    let mut null = Ftl::new(null, config, policies(), pages, &[]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = ImageFlash::create(&dir.path().join("image"), nand()).unwrap().without_sync();
    let owners = OwnPages::new(pages, 512).owners().into();
    let image = Formatted::new(Recorder::new(file), owners, [0; margay_format::SUPERBLOCK_BYTES]).unwrap();
    let mut image = Ftl::new(image, config, policies(), pages, &[]).unwrap();
    let mut random = 88_172_645_463_325_252u64;
    for number in 0..6000u64 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let lpn = if random % 10 < 8 { random >> 8 & 63 } else { (random >> 8) % u64::from(pages) };
        let (lpn, hint) = (Lpn(lpn as u32), if random.is_multiple_of(97) { Hint::ReadOnly } else { Hint::None });
        if random % 53 == 1 {
            null.trim(lpn, number * 1000).unwrap();
            image.trim(lpn, number * 1000).unwrap();
        } else {
            null.write(lpn, &[], hint, number * 1000).unwrap();
            image.write(lpn, &[number as u8; 512], hint, number * 1000).unwrap();
        }
        if random % 101 == 2 {
            null.flush().unwrap();
            image.flush().unwrap();
        }
    }
    image.audit().unwrap();
    let (measured, ran) = (null.log().device().device().operations(), image.log().device().device().operations());
    let differ = measured.iter().zip(ran).position(|(measured, ran)| measured != ran);
    assert_eq!(differ, None, "the first difference");
    assert_eq!(measured.len(), ran.len());
    ran.iter().filter(|operation| matches!(operation, Operation::Erase(_))).count()
}

#[test]
fn every_policy_programs_and_erases_alike_on_the_null_device_and_on_an_image() {
    let config = Config {
        reserved_segments: 1,
        max_pages_per_write: 16,
        low_water: 2,
        high_water: 2,
        read_only_stream: true,
        leveling: "threshold:spread=10".parse().unwrap(),
        ..Config::default()
    };
    let sizing = Sizing { segments: 64, data_pages: 16, exported_pages: 800, seed: 3 };
    for selection in SelectionSpec::all() {
        for placement in PlacementSpec::all().filter(|placement| !placement.is_oracle()) {
            let erases = programs_and_erases_alike(sizing, config, || Policies::new(selection, placement, sizing));
            assert!(erases > 200, "{selection} + {placement}: {erases} erases");
        }
    }
}

fn options() -> FormatOptions {
    FormatOptions { exported_pages: Some(700), ..FormatOptions::default() }
}

#[test]
fn bytes_that_cross_pages_are_read_back_also_after_stop_and_after_a_power_cut() {
    let chip = SharedFlash::new(nand());
    let mut volume = Volume::format(chip.clone(), &options()).unwrap();
    let text: Vec<u8> = (0..3000u32).map(|i| (i * 7) as u8).collect();
    volume.write(1000, &text, Hint::None).unwrap();
    volume.trim(1536, 512, true).unwrap();
    let mut expected = text.clone();
    expected[536..1048].fill(0);
    let read = |volume: &mut Volume| {
        let mut bytes = vec![0; 3000];
        volume.read(1000, &mut bytes).unwrap();
        bytes
    };
    assert!(read(&mut volume) == expected);
    volume.flush().unwrap();
    assert!(volume.stop().unwrap(), "there is room for a checkpoint");
    let mut volume = Volume::open(chip.clone(), &OpenOptions::default()).unwrap();
    assert!(volume.mount_report().from_checkpoint);
    assert!(read(&mut volume) == expected);
    // No stop: as after a power cut.
    drop(volume);
    let mut volume = Volume::open(chip.clone(), &OpenOptions::default()).unwrap();
    assert!(!volume.mount_report().from_checkpoint);
    assert!(read(&mut volume) == expected);
    drop(volume);
    let report = check(chip).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn what_cannot_be_done_is_refused_with_the_reason() {
    let chip = SharedFlash::new(nand());
    let missing = Volume::open(chip.clone(), &OpenOptions::default()).unwrap_err();
    assert_eq!(missing.to_string(), "there is no margay superblock");
    let too_large = FormatOptions { exported_pages: Some(1020), ..options() };
    let error = Volume::format(chip.clone(), &too_large).unwrap_err().to_string();
    assert!(error.starts_with("522240 bytes cannot be exported: the device holds 524288 bytes"), "{error}");
    let oracle = FormatOptions { placement: PlacementSpec::known("fk"), ..options() };
    let error = Volume::format(chip.clone(), &oracle).unwrap_err().to_string();
    assert!(error.starts_with("the placement 'fk:classes=8' is an oracle"), "{error}");
    let mut volume = Volume::format(chip.clone(), &options()).unwrap();
    let error = volume.write(700 * 512 - 1, &[1, 2], Hint::None).unwrap_err();
    assert_eq!(error.to_string(), "bytes 358399 to 358401 are past the end of the disk (358400 bytes)");
    volume.write(0, b"kept", Hint::None).unwrap();
    volume.stop().unwrap();
    let oracle = OpenOptions { placement: Some(PlacementSpec::known("fk")), ..OpenOptions::default() };
    assert!(matches!(Volume::open(chip.clone(), &oracle), Err(VolumeError::Oracle { .. })));
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    let mut volume = Volume::open(chip, &read_only).unwrap();
    assert!(matches!(volume.write(0, b"x", Hint::None), Err(VolumeError::ReadOnly)));
    let mut bytes = [0; 4];
    volume.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"kept");
}

#[test]
fn half_the_capacity_is_given_up_only_if_that_was_asked_for() {
    // Its segments have too few pages for summaries.
    let bare = Geometry::new(256, 8, 512).unwrap().with_spare(16);
    let chip = SharedFlash::new(bare);
    chip.0.lock().unwrap().page_bytes_mut(Ppn(40)).fill(0x11);
    let refused = [
        Volume::format(chip.clone(), &FormatOptions::default()).map(drop),
        format_files(chip.clone(), &FilesFormatOptions::default()).map(drop),
        margay_volume::limit_pages(&bare, &FormatOptions::default()).map(drop),
    ];
    for error in refused.map(|result| result.unwrap_err().to_string()) {
        assert!(error.contains("there are 16 usable bytes in the spare area of a page, which takes 32"), "{error}");
        assert!(error.contains("--pair-pages"), "{error}");
    }
    // Nothing was lost by asking.
    assert!(chip.0.lock().unwrap().page_bytes_mut(Ppn(40)).iter().all(|byte| *byte == 0x11));

    let mut options = FormatOptions::default();
    options.store.pair_pages = true;
    let mut volume = Volume::format(chip.clone(), &options).unwrap();
    assert!(volume.capacity_bytes() > bare.bytes() * 2 / 5 && volume.capacity_bytes() < bare.bytes() / 2);
    volume.write(0, b"kept", Hint::None).unwrap();
    volume.stop().unwrap();
    // Opening needs no option, and reads what was written.
    let mut bytes = [0; 4];
    Volume::open(chip, &OpenOptions::default()).unwrap().read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"kept");

    // A device that has room for the information does not lose anything by the option.
    let limit = |options: &FormatOptions| margay_volume::limit_pages(&nand(), options).unwrap();
    assert_eq!(limit(&options), limit(&FormatOptions::default()));
}

#[test]
fn spare_areas_with_room_for_short_tags_need_no_pairs_and_what_was_formatted_in_pairs_stays_so() {
    let old = Geometry::new(64, 32, 512).unwrap().with_spare(31);
    let new = Geometry::new(64, 32, 512).unwrap().with_spare(32);
    let mut options = FormatOptions::default();
    options.store.pair_pages = true;
    let whole = margay_volume::limit_pages(&nand(), &options).unwrap() * new.pages() / nand().pages();
    let limit = |geometry: &Geometry| margay_volume::limit_pages(geometry, &options).unwrap();
    assert!(limit(&old) <= whole / 2 && limit(&new) >= whole, "{} and {} of {whole}", limit(&old), limit(&new));

    // As earlier versions have formatted a chip with a spare area of this size.
    let chip = SharedFlash::new(old);
    let mut volume = Volume::format(chip.clone(), &options).unwrap();
    volume.write(0, &[7; 5 * 512], Hint::None).unwrap();
    for is_stopped in [false, true] {
        if is_stopped {
            volume.stop().unwrap();
        } else {
            volume.flush().unwrap();
        }
        for damaged in [false, true] {
            let mut wider = RamFlash::new(new);
            for ppn in (0..old.pages()).map(Ppn) {
                let mut page = [0; 512];
                chip.clone().read(ppn, &mut page, &mut []).unwrap();
                wider.page_bytes_mut(ppn)[..512].copy_from_slice(&page);
            }
            if damaged {
                wider.page_bytes_mut(Ppn(0))[..512].fill(0);
            }
            let mut volume = Volume::open(wider, &OpenOptions::default()).unwrap();
            let mut bytes = [0; 5 * 512];
            volume.read(0, &mut bytes).unwrap();
            assert_eq!(bytes, [7; 5 * 512], "stopped {is_stopped}, damaged {damaged}");
            volume.write(512, &[8; 512], Hint::None).unwrap();
            volume.stop().unwrap();
        }
        volume = Volume::open(chip.clone(), &OpenOptions::default()).unwrap();
    }
}

#[test]
fn a_segment_that_is_read_too_often_is_rewritten_if_that_was_asked_for() {
    for max_segment_reads in [0, 20] {
        let chip = SharedFlash::new(nand());
        Disk::format(chip.clone(), &options()).unwrap().stop().unwrap();
        let mut disk = Disk::open(chip, &OpenOptions { max_segment_reads, ..OpenOptions::default() }).unwrap();
        let mut page = [0; 512];
        (0..64).for_each(|lpn| disk.write(lpn, &[7; 512], Hint::None, 0).unwrap());
        for _ in 0..50 {
            disk.read(0, &mut page).unwrap();
            disk.idle(64).unwrap();
        }
        // Where it is then is still being filled.
        assert_eq!(disk.ftl().log().rewritten_segments(), u64::from(max_segment_reads > 0));
        assert_eq!(page, [7; 512]);
    }
}

#[test]
fn a_device_of_24_mib_exports_nine_tenths_of_its_capacity() {
    let geometry = Geometry::new(192, 32, 4096).unwrap();
    for geometry in [geometry.with_spare(256), geometry.byte_programmable()] {
        for placement in PlacementSpec::all().filter(|placement| !placement.is_oracle()) {
            let options = FormatOptions { placement, ..FormatOptions::default() };
            let limit = margay_volume::limit_pages(&geometry, &options).unwrap();
            assert!(limit >= 5529, "{placement}: {limit} pages");
        }
    }
}

#[test]
fn a_full_disk_stands_trims_and_overwrites() {
    let chip = SharedFlash::new(nand());
    let limit = margay_volume::limit_pages(&nand(), &FormatOptions::default()).unwrap();
    let full = FormatOptions { exported_pages: Some(limit), ..options() };
    let mut volume = Volume::format(chip, &full).unwrap();
    let bytes = volume.capacity_bytes();
    for round in 0..3u8 {
        for at in (0..bytes).step_by(512) {
            volume.write(at, &[round; 512], Hint::None).unwrap();
        }
    }
    for at in (0..bytes).step_by(4096) {
        volume.trim(at, 512, false).unwrap();
        volume.flush().unwrap();
    }
    volume.audit().unwrap();
}

#[test]
fn another_policy_can_be_chosen_when_it_is_opened() {
    let chip = SharedFlash::new(nand());
    let mut volume = Volume::format(chip.clone(), &options()).unwrap();
    for number in 0..3000u64 {
        volume.write(number * 37 % 700 * 512, &number.to_le_bytes(), Hint::None).unwrap();
    }
    volume.stop().unwrap();
    for placement in ["m1", "dac", "m5", "m6"] {
        let other = OpenOptions {
            placement: Some(placement.parse().unwrap()),
            selection: Some("greedy".parse().unwrap()),
            ..OpenOptions::default()
        };
        let mut volume = Volume::open(chip.clone(), &other).unwrap();
        for number in 0..2000u64 {
            volume.write(number * 41 % 700 * 512 + 8, &number.to_le_bytes(), Hint::None).unwrap();
        }
        volume.audit().unwrap();
        volume.stop().unwrap();
    }
}

#[test]
fn every_page_that_is_programmed_is_counted_and_the_next_start_knows_of_it() {
    let nor = Geometry::new(64, 16, 512).unwrap().byte_programmable();
    for geometry in [nand(), nor] {
        let mut device = Recorder::new(RamFlash::new(geometry));
        let (mut before, mut random) = (None, 7u64);
        for start in 0..3u64 {
            device.clear();
            let mut disk = match start {
                0 => Disk::format(device, &FormatOptions { exported_pages: Some(560), ..options() }).unwrap(),
                _ => Disk::open(device, &OpenOptions::default()).unwrap(),
            };
            let log = disk.ftl().log();
            if let Some(before) = before {
                let found = (log.now().writes, log.seq(), log.segments().total_erases);
                assert_eq!(found, before, "start {start}");
            }
            for number in 0..3000u64 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let lpn = (random >> 33) as u32 % 560;
                match number % 50 {
                    7 => disk.trim(lpn, number).unwrap(),
                    8 => disk.flush().unwrap(),
                    9 => drop(disk.idle(16).unwrap()),
                    _ => disk.write(lpn, &[number as u8; 512], Hint::None, number).unwrap(),
                }
            }
            assert!(disk.end().unwrap(), "there is room for a checkpoint");
            let anchor = geometry.pages_per_segment() * u32::from(!geometry.is_byte_programmable());
            let is_counted = |operation: &&Operation| matches!(operation, Operation::Program(ppn) if ppn.0 >= anchor);
            let programs = disk.device_mut().operations().iter().filter(is_counted).count() as u64;
            let (log, counters) = (disk.ftl().log(), disk.ftl().log().counters());
            assert_eq!(log.programs(), programs, "start {start} on {geometry:?}");
            let headers = log.config().header_pages;
            if headers == 0 {
                assert_eq!(counters.programs(), programs);
            }
            assert!(counters.copies > 500 && counters.metadata_pages > 10, "{counters:?}");
            assert!(counters.idle_copies > 0 && counters.idle_copies < counters.copies, "{counters:?}");
            before = Some((log.now().writes, log.seq(), log.segments().total_erases));
            device = disk.into_device();
        }
    }
}

/// Images that must stay readable: the first version; the same with tags that name their places; with a checkpoint that
/// does not list what is not there; with short tags; with tags in summaries.
const GOLDEN: [&str; 5] =
    ["format-1", "format-1-places", "format-1-short", "format-1-short-tags", "format-1-summaries"];

#[test]
fn golden_images_are_still_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let golden = |name: &str| folder.join(format!("{name}.img.zst"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("flash.img");
    if std::env::var_os("MARGAY_WRITE_GOLDEN").is_some() {
        let geometry = Geometry::new(32, 16, 4096).unwrap().with_spare(10);
        let device = ImageFlash::create(&file, geometry).unwrap();
        let options = FormatOptions { exported_pages: Some(256), ..FormatOptions::default() };
        let mut volume = Volume::format(device, &options).unwrap();
        let bytes: Vec<_> = (0..4096).map(|i| (i % 251) as u8).collect();
        volume.write(8192, &bytes, Hint::None).unwrap();
        volume.write(16384, &bytes, Hint::None).unwrap();
        volume.trim(16384, 4096, false).unwrap();
        volume.stop().unwrap();
        let image = zstd::encode_all(std::fs::File::open(&file).unwrap(), 19).unwrap();
        std::fs::write(golden(GOLDEN[GOLDEN.len() - 1]), image).unwrap();
    }
    for name in GOLDEN {
        let image = zstd::decode_all(std::fs::File::open(golden(name)).unwrap()).unwrap();
        std::fs::write(&file, &image).unwrap();
        let device = ImageFlash::open(&file, false).unwrap();
        let mut volume = Volume::open(device, &OpenOptions::default()).unwrap();
        assert!(volume.mount_report().from_checkpoint);
        let mut bytes = vec![0; 4096];
        volume.read(8192, &mut bytes).unwrap();
        assert!(bytes.iter().enumerate().all(|(i, byte)| *byte == (i % 251) as u8), "{name}");
        volume.read(16384, &mut bytes[..4096]).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0), "{name}: it was trimmed");
    }
}

#[test]
fn a_page_put_in_the_place_of_its_successor_is_an_error_and_never_read() {
    let geometry = Geometry::new(16, 8, 512).unwrap().with_spare(160);
    let (mut tried, mut older_read) = (0, 0);
    for is_stopped in [true, false] {
        let chip = SharedFlash::new(geometry);
        let options = FormatOptions { exported_pages: Some(48), ..FormatOptions::default() };
        let mut volume = Volume::format(chip.clone(), &options).unwrap();
        for number in 0..60u8 {
            volume.write(u64::from(number % 20) * 512, &[number; 512], Hint::None).unwrap();
        }
        volume.flush().unwrap();
        if is_stopped {
            volume.stop().unwrap();
        }
        let mut page = [0; 512];
        let place = |content: u8| {
            let mut device = chip.clone();
            let mut page = [0; 512];
            (0..geometry.pages()).map(Ppn).find(|ppn| {
                device.read(*ppn, &mut page, &mut []).unwrap();
                page == [content; 512]
            })
        };
        for lpn in 0..20u8 {
            let (Some(old), Some(new)) = (place(lpn + 20), place(lpn + 40)) else { continue };
            let mut damaged = chip.0.lock().unwrap().clone();
            let bytes = damaged.page_bytes_mut(old).to_vec();
            damaged.page_bytes_mut(new).copy_from_slice(&bytes);
            let Ok(mut volume) = Volume::open(SharedFlash::of(damaged), &OpenOptions::default()) else { continue };
            tried += 1;
            let is_older = volume.read(u64::from(lpn) * 512, &mut page).is_ok() && page != [lpn + 40; 512];
            // After a power cut, the last page of a segment can be one that was programmed just then.
            let may_be_torn = !is_stopped && (new.0 % 8 == 7 || lpn == 19);
            older_read += u32::from(is_older && !may_be_torn);
        }
    }
    assert!(tried > 10, "{tried}");
    assert_eq!(older_read, 0, "of {tried}");
}

/// Opens a damaged device in every way and uses it; errors are fine, panics are not.
fn survives(chip: &SharedFlash) {
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    let mut bytes = vec![0; 512];
    for options in [read_only, OpenOptions::default()] {
        let Ok(mut volume) = Volume::open(chip.clone(), &options) else { continue };
        for at in (0..volume.capacity_bytes() - 512).step_by(3 * 512) {
            // Unreadable pages are errors; what they are is not the matter here.
            let _ = volume.read(at, &mut bytes);
            let _ = volume.write(at, &bytes, Hint::None);
        }
        let _ = volume.flush();
    }
    let _ = check(chip.clone());
}

/// Pages that lie one behind the other are read in one go; what is wrong with one of them is found all the same.
#[test]
fn a_long_read_finds_the_damaged_page_among_whole_ones() {
    let dir = tempfile::tempdir().unwrap();
    let (path, geometry) = (dir.path().join("image"), Geometry::new(16, 16, 512).unwrap().with_spare(160));
    let options = FormatOptions { exported_pages: Some(120), ..FormatOptions::default() };
    let mut volume = Volume::format(ImageFlash::create(&path, geometry).unwrap(), &options).unwrap();
    let content: Vec<u8> = (0..100 * 512u32).map(|at| (at / 7 + at / 512) as u8).collect();
    volume.write(0, &content, Hint::None).unwrap();
    volume.write(40 * 512 + 100, &content[40 * 512 + 100..][..3000], Hint::None).unwrap();
    volume.hold(true).unwrap();
    volume.write(90 * 512, &content[90 * 512..95 * 512], Hint::None).unwrap();
    let before = volume.status().counters.host_reads;
    let mut bytes = vec![0; 120 * 512];
    volume.read(0, &mut bytes).unwrap();
    assert!(bytes[..content.len()] == content && bytes[content.len()..].iter().all(|byte| *byte == 0));
    assert_eq!(volume.status().counters.host_reads - before, 100, "each page is counted once");
    for (offset, len) in [(1, 5 * 512), (511, 1024), (7 * 512 + 3, 80 * 512), (89 * 512, 11 * 512)] {
        volume.read(offset, &mut bytes[..len]).unwrap();
        assert!(bytes[..len] == content[offset as usize..][..len], "{len} bytes from {offset}");
    }
    volume.stop().unwrap();

    // What the file has of page 20, without its inversion.
    let mut file = std::fs::read(&path).unwrap();
    let wanted: Vec<u8> = content[20 * 512..21 * 512].iter().map(|byte| !byte).collect();
    let at = file.windows(512).position(|window| window == wanted).unwrap();
    file[at + 300] ^= 0x10;
    std::fs::write(&path, &file).unwrap();
    let mut volume = Volume::open(ImageFlash::open(&path, false).unwrap(), &OpenOptions::default()).unwrap();
    let error = volume.read(0, &mut bytes).unwrap_err().to_string();
    assert!(error.contains("checksum") || error.contains("damaged"), "{error}");
    assert!(bytes[..20 * 512] == content[..20 * 512], "what lies before it");
    volume.read(21 * 512, &mut bytes[..70 * 512]).unwrap();
    assert!(bytes[..70 * 512] == content[21 * 512..91 * 512]);
}

#[test]
fn no_damage_to_an_image_makes_it_panic() {
    for geometry in [
        Geometry::new(16, 8, 512).unwrap().with_spare(160),
        Geometry::new(16, 10, 512).unwrap().byte_programmable(),
        Geometry::new(16, 16, 512).unwrap(),
        Geometry::new(16, 8, 512).unwrap().with_spare(34),
        Geometry::new(20, 9, 512).unwrap().with_spare(10),
    ] {
        let chip = SharedFlash::new(geometry);
        let mut options = FormatOptions { exported_pages: Some(48), ..FormatOptions::default() };
        options.store.pair_pages = geometry.spare_bytes() == 0;
        let mut volume = Volume::format(chip.clone(), &options).unwrap();
        for number in 0..300u64 {
            volume.write(number * 29 % 48 * 512, &number.to_le_bytes(), Hint::None).unwrap();
        }
        volume.trim(0, 5 * 512, true).unwrap();
        volume.stop().unwrap();
        let whole = chip.0.lock().unwrap().clone();
        let mut random = 0x9E37_79B9_7F4A_7C15u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for _ in 0..1500 {
            let mut damaged = whole.clone();
            for _ in 0..=next() % 6 {
                let page = damaged.page_bytes_mut(Ppn((next() % u64::from(geometry.pages())) as u32));
                let (at, len) = (next() as usize % page.len(), 1 + next() as usize % 40);
                let value = [0, 0xFF, next() as u8][next() as usize % 3];
                let end = page.len().min(at + len);
                page[at..end].fill(value);
            }
            *chip.0.lock().unwrap() = damaged;
            survives(&chip);
        }
        // Pages that lie: whole ones in places where they do not belong.
        for _ in 0..500 {
            let mut mixed = whole.clone();
            for _ in 0..8 {
                let (from, to) = (next() % u64::from(geometry.pages()), next() % u64::from(geometry.pages()));
                let page = mixed.page_bytes_mut(Ppn(from as u32)).to_vec();
                mixed.page_bytes_mut(Ppn(to as u32)).copy_from_slice(&page);
            }
            *chip.0.lock().unwrap() = mixed;
            survives(&chip);
        }
    }
}

#[test]
fn small_devices_are_formatted_with_fewer_streams_and_the_limit_is_reached_exactly() {
    let format = |segments: u32, exported_pages: Option<u32>| {
        let geometry = Geometry::new(segments, 64, 512).unwrap().with_spare(64);
        let options = FormatOptions { exported_pages, ..FormatOptions::default() };
        (limit_pages(&geometry, &options), Disk::format(RamFlash::new(geometry), &options))
    };
    for (segments, placement) in [(64, "lifetime:streams=3"), (128, "lifetime:streams=6")] {
        let disk = format(segments, None).1.unwrap();
        assert_eq!(disk.superblock().placement, placement, "{segments} segments");
    }
    let limit = format(24, None).0.unwrap();
    let disk = format(24, Some(limit)).1.unwrap();
    assert_eq!((disk.superblock().placement.as_str(), disk.superblock().exported_pages), ("lifetime:streams=2", limit));
    assert!(matches!(format(24, Some(limit + 1)).1, Err(VolumeError::TooLarge { .. })));
}

#[test]
fn a_device_of_another_shape_without_its_anchor_is_told_from_one_that_was_never_formatted() {
    let mut old = RamFlash::new(nand());
    Disk::format(&mut old, &FormatOptions { exported_pages: Some(600), ..FormatOptions::default() }).unwrap();
    // Its first segment is bad, and the driver shows more segments than before.
    let mut chip = RamFlash::new(Geometry::new(128, 16, 512).unwrap().with_spare(160));
    let (mut page, mut spare) = ([0; 512], [0; 160]);
    for ppn in (16..1024).map(Ppn) {
        old.read(ppn, &mut page, &mut spare).unwrap();
        if page.iter().chain(&spare).any(|byte| *byte != 0xFF) {
            chip.program(ppn, &page, &spare).unwrap();
        }
    }
    let error = Disk::open(&mut chip, &OpenOptions::default()).unwrap_err().to_string();
    assert!(error.contains("64 segments of 16 pages") && error.contains("128 segments of 16 pages"), "{error}");
    let mut new = RamFlash::new(nand());
    let error = Disk::open(&mut new, &OpenOptions::default()).unwrap_err().to_string();
    assert!(error.contains("no margay superblock"), "{error}");
}
