//! Disks on NAND whose ECC leaves too few spare bytes for tags: capacity, what a flush holds, and what it costs.

use margay_flash::Geometry;
use margay_media::{Meter, RamFlash};
use margay_volume::{Disk, FormatOptions, Hint, OpenOptions};

mod shared;
use shared::SharedFlash;

#[test]
fn a_chip_whose_ecc_leaves_10_spare_bytes_is_used_at_full_capacity_and_holds_what_was_flushed() {
    // 256 MiB in 2 KiB pages with BCH-8.
    let bare = Geometry::new(2048, 64, 2048).unwrap().with_spare(10);
    let limit = |options: &FormatOptions| margay_volume::limit_pages(&bare, options).unwrap();
    let (options, mut pairs) = (FormatOptions::default(), FormatOptions::default());
    pairs.store.pair_pages = true;
    println!("{} and in pairs {} of {} pages can be exported", limit(&options), limit(&pairs), bare.pages());
    assert!(limit(&options) > limit(&pairs) * 19 / 10, "{} pages, in pairs {}", limit(&options), limit(&pairs));
    assert!(f64::from(limit(&options)) > 0.97 * f64::from(bare.pages()), "{} pages", limit(&options));

    let chip = SharedFlash::new(Geometry::new(24, 9, 512).unwrap().with_spare(10));
    let options = FormatOptions { exported_pages: Some(80), ..FormatOptions::default() };
    let mut disk = Disk::format(chip.clone(), &options).unwrap();
    for number in 0..1000u32 {
        disk.write(number * 7 % 80, &[number as u8; 512], Hint::None, number.into()).unwrap();
        if number % 10 == 9 {
            disk.flush().unwrap();
        }
    }
    // What a flush has answered for is there without a stop.
    drop(disk);
    let mut disk = Disk::open(chip, &OpenOptions::default()).unwrap();
    let mut page = [0; 512];
    for number in 920..1000u32 {
        assert!(disk.read(number * 7 % 80, &mut page).unwrap());
        assert_eq!(page, [number as u8; 512], "write {number}");
    }
    disk.audit().unwrap();
}

/// Formats and fills a disk, then writes pages at random with a flush after every `writes_per_flush`. Returns pages programmed per page
/// written, and the most that a write has programmed, and a flush.
fn cost(geometry: Geometry, pair_pages: bool, writes_per_flush: u32) -> (f64, u64, u64) {
    let mut options = FormatOptions::default();
    options.store.pair_pages = pair_pages;
    (options.store.selection, options.placement) = ("greedy".parse().unwrap(), "m1".parse().unwrap());
    let pages = margay_volume::limit_pages(&geometry, &options).unwrap() * 8 / 10;
    options.exported_pages = Some(pages);
    let mut disk = Disk::format(Meter::new(RamFlash::new(geometry)), &options).unwrap();
    let page = vec![7; geometry.page_bytes() as usize];
    let (mut number, mut random) = (0u64, 0x9E37_79B9_7F4A_7C15u64);
    let (mut most, mut most_of_flush, mut began) = (0, 0, (0, 0));
    for write in 0..4 * pages {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let lpn = if write < pages { write } else { ((random >> 33) % u64::from(pages)) as u32 };
        let before = disk.device_mut().operations().programs;
        disk.write(lpn, &page, Hint::None, number).unwrap();
        most = most.max(disk.device_mut().operations().programs - before);
        number += 1;
        if write % writes_per_flush == writes_per_flush - 1 {
            let before = disk.device_mut().operations().programs;
            disk.flush().unwrap();
            most_of_flush = most_of_flush.max(disk.device_mut().operations().programs - before);
        }
        if write == 2 * pages {
            began = (number, disk.device_mut().operations().programs);
        }
    }
    let programs = disk.device_mut().operations().programs - began.1;
    disk.audit().unwrap();
    (programs as f64 / (number - began.0) as f64, most, most_of_flush)
}

#[test]
fn summaries_cost_less_than_pairs_unless_every_write_is_flushed_and_a_write_has_a_bound() {
    let geometry = Geometry::new(256, 64, 2048).unwrap().with_spare(10);
    for writes_per_flush in [1, 16, 256] {
        let (pairs, most_in_pairs, _) = cost(geometry, true, writes_per_flush);
        let (summaries, most, most_of_flush) = cost(geometry, false, writes_per_flush);
        println!(
            "a flush every {writes_per_flush}: {summaries:.2} pages per page written, at most {most} for a write and {most_of_flush} for a flush; in pairs {pairs:.2}, at most {most_in_pairs}"
        );
        assert!(summaries < pairs * if writes_per_flush == 1 { 1.1 } else { 0.7 });
        // Journal pages are counted.
        assert!(most <= 16, "{most}");
    }
}
