//! The low-water mark that disks are formatted with, and the bound on a write's work that it is for.

use margay_flash::Geometry;
use margay_media::RamFlash;
use margay_volume::{Disk, FormatOptions, Hint, may_exceed_bound, usual_low_water};

fn options(selection: &str, placement: &str) -> FormatOptions {
    let mut options = FormatOptions { placement: placement.parse().unwrap(), ..FormatOptions::default() };
    options.store.selection = selection.parse().unwrap();
    options
}

#[test]
fn one_segment_more_is_kept_free_than_the_placement_fills_at_a_time_where_there_is_room() {
    let nand = |segments, pages| Geometry::new(segments, pages, 4096).unwrap().with_spare(128);
    for (segments, pages, placement, expected) in [
        (8192, 64, "lifetime", 7),
        (4096, 64, "lifetime", 6),
        (1024, 256, "lifetime", 5),
        (192, 32, "lifetime", 4),
        (4096, 64, "lifetime:streams=3", 4),
        (4096, 64, "m1", 2),
        (4096, 64, "sepgc", 3),
        (4096, 64, "sfr:streams=32", 8),
        (32, 64, "lifetime", 2),
    ] {
        let low_water = usual_low_water(&nand(segments, pages), &options("greedy", placement)).unwrap();
        assert_eq!(low_water, expected, "{placement} on {segments} segments of {pages} pages");
    }
}

#[test]
fn a_nearly_full_disk_with_several_streams_keeps_its_bound_with_the_usual_mark_and_not_with_two() {
    let geometry = Geometry::new(192, 32, 512).unwrap().with_spare(128);
    for (selection, placement) in [("lifetime", "lifetime"), ("cat", "dac")] {
        let usual = usual_low_water(&geometry, &options(selection, placement)).unwrap();
        for low_water in [2, usual] {
            let mut options = options(selection, placement);
            (options.store.low_water, options.store.high_water) = (low_water, low_water);
            let mut disk = Disk::format(RamFlash::new(geometry), &options).unwrap();
            let pages = disk.superblock().exported_pages;
            let (mut seed, page) = (1u64, vec![7; 512]);
            let mut draw = |limit: u32| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((seed >> 33) % u64::from(limit)) as u32
            };
            for number in 0..pages * 8 {
                let lpn = match number < pages {
                    true => number,
                    // Nine of ten writes go to a tenth of the pages.
                    false if draw(10) > 0 => draw(pages / 10) * 10,
                    false => draw(pages),
                };
                disk.write(lpn, &page, Hint::None, u64::from(number)).unwrap();
            }
            let (most, bound) = (disk.ftl().log().counters().max_pages_of_a_write, options.store.max_pages_per_write);
            assert_eq!(most > u64::from(bound), low_water == 2, "{placement}, {low_water}: {most} pages for a write");
            assert_eq!(may_exceed_bound(disk.superblock()).unwrap(), low_water == 2);
        }
    }
}
