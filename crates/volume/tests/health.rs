//! What a device says of its life: from the endurance that it was formatted with, its erases and what hosts have written.

use margay_flash::{Flash, Geometry};
use margay_media::{Faults, RamFlash};
use margay_policy::PlacementSpec;
use margay_volume::{
    Disk, FilesFormatOptions, FormatOptions, Health, Hint, History, OpenOptions, StoreOptions, format_files, history,
};

const DAY_S: u64 = 86_400;
const CREATED_S: u64 = 1_700_000_000;

fn disk(endurance_erases: u32) -> Disk<Faults<RamFlash>> {
    let chip = Faults::new(RamFlash::new(Geometry::new(64, 16, 512).unwrap().with_spare(64)), 0);
    let store = StoreOptions { endurance_erases, created_s: CREATED_S, ..FormatOptions::default().store };
    let placement = PlacementSpec::known("m1");
    let options = FormatOptions { store, placement, exported_pages: Some(700), ..FormatOptions::default() };
    Disk::format(chip, &options).unwrap()
}

fn write(disk: &mut Disk<Faults<RamFlash>>, pages: u32) {
    for number in 0..pages {
        disk.write(number * 7 % 700, &[number as u8; 512], Hint::None, number.into()).unwrap();
    }
}

fn health(disk: &Disk<Faults<RamFlash>>, age_s: u64) -> Health {
    let log = disk.ftl().log();
    Health::new(disk.superblock(), log.segments(), log.now().writes, log.seq(), CREATED_S + age_s)
}

#[test]
fn half_of_the_erases_is_half_of_the_life_and_what_is_left_lasts_as_long_as_what_is_gone() {
    let mut disk = disk(200);
    let new = health(&disk, DAY_S);
    assert!(new.used_ratio.unwrap() < 0.02);
    assert_eq!((new.bytes_left, new.seconds_left), (None, None), "nothing was written yet");
    while health(&disk, DAY_S).used_ratio.unwrap() < 0.5 {
        write(&mut disk, 700);
    }
    let half = health(&disk, 10 * DAY_S);
    let written = disk.ftl().log().now().writes * 512;
    let share = half.bytes_left.unwrap() as f64 / written as f64;
    assert!((0.85..1.1).contains(&share), "{share} of what was written before: {half:?}");
    let days = half.seconds_left.unwrap() / DAY_S as f64;
    assert!((8.5..11.0).contains(&days), "{days}");
    let (min, mean, max) = half.erases;
    assert!(f64::from(min) <= mean && mean <= f64::from(max) && max > 0);
    assert!(half.max_used_ratio.unwrap() >= half.used_ratio.unwrap());
}

#[test]
fn without_an_endurance_nothing_is_said_of_what_is_left() {
    let mut disk = disk(0);
    write(&mut disk, 2000);
    let known = health(&disk, DAY_S);
    assert_eq!((known.endurance_erases, known.used_ratio, known.bytes_left), (None, None, None));
    assert!(known.erases.2 > 0);
}

#[test]
fn the_endurance_is_known_at_every_later_opening() {
    let mut disk = disk(3000);
    write(&mut disk, 2000);
    let (chip, _) = disk.stop().unwrap();
    let disk = Disk::open(chip, &OpenOptions::default()).unwrap();
    assert_eq!(health(&disk, DAY_S).endurance_erases, Some(3000));
    // After a power cut too.
    let chip = disk.into_device();
    let disk = Disk::open(chip, &OpenOptions { read_only: true, ..OpenOptions::default() }).unwrap();
    assert_eq!(disk.superblock().endurance_erases, 3000);
}

#[test]
fn segments_that_fail_are_a_part_of_the_reserve() {
    let mut disk = disk(3000);
    let before = disk.reserve_segments();
    assert!((8..20).contains(&before), "{before} of 64 segments, of which 44 hold what is exported");
    disk.device_mut().fail_program(100);
    disk.device_mut().fail_program(400);
    write(&mut disk, 3000);
    assert_eq!((health(&disk, DAY_S).retired_segments, disk.reserve_segments()), (2, before - 2));
}

/// Erases of the segments of what is formatted on a device, by way of their history.
fn erases<F: Flash>(device: &mut F) -> Vec<u32> {
    history(device).unwrap().erases
}

fn options(before: History) -> FormatOptions {
    let store = StoreOptions { erases: before.erases, endurance_erases: 500, ..FormatOptions::default().store };
    FormatOptions {
        store,
        placement: PlacementSpec::known("m1"),
        exported_pages: Some(700),
        ..FormatOptions::default()
    }
}

#[test]
fn a_device_that_is_formatted_again_keeps_its_erases_and_loses_them_to_no_power_cut() {
    let shape = Geometry::new(64, 16, 512).unwrap();
    for geometry in [shape.with_spare(64), shape.byte_programmable()] {
        let mut disk = Disk::format(RamFlash::new(geometry), &options(History::default())).unwrap();
        for number in 0..20_000u32 {
            disk.write(number * 7 % 700, &[number as u8; 512], Hint::None, number.into()).unwrap();
        }
        let (mut chip, _) = disk.stop().unwrap();
        let before = history(&mut chip).unwrap();
        assert_eq!((before.erases.len(), before.endurance_erases), (64, 500));
        assert!(before.erases[1..].iter().all(|erases| *erases >= 3), "{:?}", before.erases);
        let sum = |erases: &[u32]| erases.iter().map(|erases| u64::from(*erases)).sum::<u64>();

        let disk = Disk::format(chip, &options(before.clone())).unwrap();
        let (mut chip, _) = disk.stop().unwrap();
        let after = erases(&mut chip);
        let is_on = |(before, after): (&u32, &u32)| (before + 1..=before + 3).contains(after);
        assert!(before.erases.iter().zip(&after).all(is_on), "{geometry:?}: {:?} {after:?}", before.erases);

        // Of segments that were not used since, what a power cut leaves is their sum.
        let mut disk = Disk::open(chip, &OpenOptions::default()).unwrap();
        for number in 0..100 {
            disk.write(number, &[1; 512], Hint::None, number.into()).unwrap();
        }
        let mut chip = disk.into_device();
        let (cut, whole) = (sum(&erases(&mut chip)), sum(&after));
        assert!(cut + 64 >= whole && cut <= whole + 64, "{geometry:?}: {cut} of {whole}");

        // As a file system as well.
        let before = erases(&mut chip);
        let store = StoreOptions { erases: before.clone(), ..FilesFormatOptions::default().store };
        let files = FilesFormatOptions { store, ..FilesFormatOptions::default() };
        format_files(&mut chip, &files).unwrap().stop().unwrap();
        let after = erases(&mut chip);
        assert!(before.iter().zip(&after).all(is_on), "{geometry:?}: {before:?} {after:?}");
    }
}

#[test]
fn more_bad_segments_than_the_export_leaves_room_for_are_refused_with_what_would_fit() {
    let chip = |bad: u32| {
        let mut chip = Faults::new(RamFlash::new(Geometry::new(64, 16, 512).unwrap().with_spare(64)), 0);
        (10..10 + u64::from(bad)).for_each(|erase| chip.fail_erase(erase));
        chip
    };
    let with = |pages: u32| FormatOptions { exported_pages: Some(pages), ..options(History::default()) };
    let mut chip_of_twelve = chip(12);
    let error = Disk::format(&mut chip_of_twelve, &with(800)).unwrap_err().to_string();
    assert!(error.contains("12 segments are marked bad") && error.contains("--export"), "{error}");
    assert!(Disk::open(&mut chip_of_twelve, &OpenOptions::default()).is_err(), "it is not formatted");
    let bytes: u32 = error.split("export ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let mut disk = Disk::format(&mut chip_of_twelve, &with(bytes / 512)).unwrap();
    for number in 0..5 * bytes / 512 {
        disk.write(number % (bytes / 512), &[number as u8; 512], Hint::None, number.into()).unwrap();
    }
    assert!(Disk::format(chip(12), &with(bytes / 512 + 1)).is_err());
    assert!(Disk::format(chip(2), &with(800)).is_ok());
}
