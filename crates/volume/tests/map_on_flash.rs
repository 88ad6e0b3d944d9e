//! Disks whose maps are on flash: what they hold, in how much memory, with how much work.

use margay_flash::{Geometry, Lpn, Ppn};
use margay_format::{OwnPages, PageInfo, SegmentInfo, Store as _};
use margay_media::{Meter, RamFlash, Strict};
use margay_volume::{
    Disk, FormatOptions, Hint, MapOnFlash, OpenOptions, VolumeError, check, limit_pages, min_map_memory_bytes,
    repair_disk,
};
use proptest::prelude::*;

const PAGE_BYTES: u32 = 512;

type Chip = Strict<RamFlash>;

fn nand(segments: u32) -> Geometry {
    Geometry::new(segments, 8, PAGE_BYTES).unwrap().with_spare(128)
}

fn nor(segments: u32) -> Geometry {
    Geometry::new(segments, 10, PAGE_BYTES).unwrap().byte_programmable()
}

/// Options of a disk with a map of `more_bytes` above the least.
fn options(geometry: &Geometry, placement: &str, entries: u32, percent: u32, more_bytes: u64) -> FormatOptions {
    let map = |memory_bytes| MapOnFlash { memory_bytes, entries: Some(entries) };
    let mut options = FormatOptions::with_map(map(0));
    options.placement = placement.parse().unwrap();
    options.exported_pages = Some(limit_pages(geometry, &options).unwrap() * percent / 100);
    options.map = Some(map(min_map_memory_bytes(geometry, &options).unwrap() + more_bytes));
    options
}

fn page(lpn: u32, version: u32) -> Vec<u8> {
    [lpn, version].map(u32::to_le_bytes).concat().repeat(PAGE_BYTES as usize / 8)
}

fn format(geometry: Geometry, options: &FormatOptions) -> Disk<Chip> {
    Disk::format(Strict::new(RamFlash::new(geometry)), options).unwrap()
}

fn check_all(disk: &mut Disk<Chip>, oracle: &[Option<u32>]) {
    let mut read = page(0, 0);
    for (lpn, version) in (0..).zip(oracle) {
        assert_eq!(disk.is_mapped(lpn), version.is_some(), "page {lpn}");
        assert_eq!(disk.read(lpn, &mut read).unwrap(), version.is_some());
        if let Some(version) = version {
            assert_eq!(read, page(lpn, *version), "page {lpn}");
        }
    }
    disk.audit().unwrap();
}

fn draw(seed: &mut u64, limit: u32) -> u32 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*seed >> 33) % u64::from(limit)) as u32
}

#[derive(Clone, Debug)]
enum Step {
    Write(u32, u32),
    Trim(u32, u32),
    Read(u32),
    Idle,
    Crash,
    Stop,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0u32..1000, 1u32..30).prop_map(|(lpn, count)| Step::Write(lpn, count)),
        3 => (0u32..1000, 1u32..20).prop_map(|(lpn, count)| Step::Trim(lpn, count)),
        3 => (0u32..1000).prop_map(Step::Read),
        1 => Just(Step::Idle),
        1 => Just(Step::Crash),
        1 => Just(Step::Stop),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]
    #[test]
    fn a_disk_with_its_map_on_flash_is_an_array_of_pages(
        steps in steps(),
        is_nor in any::<bool>(),
        placement in prop_oneof![Just("m1"), Just("sepgc"), Just("dac")],
        entries in 3u32..40,
        percent in 50u32..100,
        more_bytes in 0u64..2000,
    ) {
        let geometry = if is_nor { nor(26) } else { nand(26) };
        let options = options(&geometry, placement, entries, percent, more_bytes);
        let pages = options.exported_pages.unwrap();
        let mut disk = format(geometry, &options);
        let mut oracle = vec![None; pages as usize];
        let mut version = 0;
        for step in steps {
            match step {
                Step::Write(first, count) => for lpn in (first..first + count).map(|lpn| lpn % pages) {
                    version += 1;
                    disk.write(lpn, &page(lpn, version), Hint::None, 0).unwrap();
                    oracle[lpn as usize] = Some(version);
                }
                Step::Trim(first, count) => for lpn in (first..first + count).map(|lpn| lpn % pages) {
                    disk.trim(lpn, 0).unwrap();
                    oracle[lpn as usize] = None;
                }
                Step::Read(lpn) => {
                    let (lpn, mut read) = (lpn % pages, page(0, 0));
                    let found = disk.read(lpn, &mut read).unwrap().then_some(read);
                    prop_assert_eq!(found, oracle[lpn as usize].map(|version| page(lpn, version)));
                }
                Step::Idle => while disk.idle(3).unwrap() {},
                Step::Crash | Step::Stop => {
                    disk.flush().unwrap();
                    let chip = match step {
                        Step::Stop => disk.stop().unwrap().0,
                        _ => disk.into_device(),
                    };
                    disk = Disk::open(chip, &OpenOptions::default()).unwrap();
                    check_all(&mut disk, &oracle);
                }
            }
        }
        check_all(&mut disk, &oracle);
    }
}

#[test]
fn a_write_programs_no_more_pages_than_its_bound_translation_pages_included() {
    let mut exceeded = Vec::new();
    for (placement, percent, more_bytes) in [("m1", 75, 0), ("m1", 75, 6000), ("m1", 60, 6000), ("sepgc", 70, 6000)] {
        let geometry = Geometry::new(128, 16, PAGE_BYTES).unwrap().with_spare(256);
        let options = options(&geometry, placement, 60, percent, more_bytes);
        let pages = options.exported_pages.unwrap();
        let mut disk = format(geometry, &options);
        let bound = u64::from(options.store.max_pages_per_write);
        let (mut seed, mut worst, mut more) = (1, 0, 0);
        for number in 0..pages * 12 {
            let lpn = if number < pages { number } else { draw(&mut seed, pages) };
            let before = disk.ftl().log().programs();
            disk.write(lpn, &page(lpn, number), Hint::None, 0).unwrap();
            let work = disk.ftl().log().programs() - before;
            worst = worst.max(work);
            more += u32::from(work > bound);
        }
        let (ftl, name) = (disk.ftl(), format!("{placement}, {percent} %, {more_bytes} bytes more"));
        let (_, map) = ftl.map_on_flash().unwrap();
        assert!(map.writes > u64::from(pages) / 4, "{name}: translation pages are written: {map:?}");
        if worst > bound {
            exceeded.push(format!(
                "{name}: {worst} pages, {more} writes, {} cleanings forced",
                ftl.log().counters().forced_cleanings
            ));
        }
        disk.audit().unwrap();
    }
    assert!(exceeded.is_empty(), "{exceeded:#?}");
}

#[test]
fn the_map_keeps_to_its_memory() {
    let geometry = Geometry::new(256, 16, PAGE_BYTES).unwrap().with_spare(256);
    let mut in_memory = 0;
    for more_bytes in [6000, 10_000, 20_000] {
        let options = options(&geometry, "sepgc", 60, 75, more_bytes);
        let (pages, limit) = (options.exported_pages.unwrap(), options.map.unwrap().memory_bytes);
        let mut disk = format(geometry, &options);
        let mut seed = 1;
        for number in 0..pages * 4 {
            let lpn = draw(&mut seed, pages);
            disk.write(lpn, &page(lpn, number), Hint::None, 0).unwrap();
            if number % 7 == 0 {
                disk.trim(draw(&mut seed, pages), 0).unwrap();
            }
            let (held, _) = disk.ftl().map_on_flash().unwrap();
            // Beside it there is room for what a victim may hold, and what describes a page that is cached.
            assert!(held <= limit + 16 * 12 + 64 * (limit / 240), "{held} bytes, and {limit} were asked for");
        }
        let (_, map) = disk.ftl().map_on_flash().unwrap();
        assert!(in_memory == 0 || map.reads < in_memory, "more memory, fewer reads: {map:?}");
        in_memory = map.reads;
        // Nothing is kept for pages of flash but those of the segment that is being cleaned.
        let rest = disk.ftl().memory_bytes() - disk.ftl().map_on_flash().unwrap().0;
        assert!(rest <= 16 * (4 + 8) + 16 + u64::from(PAGE_BYTES), "{rest} bytes beside the map");
    }
}

/// Where the translation pages of a disk are.
fn translation_pages(disk: &mut Disk<Chip>) -> Vec<Ppn> {
    let superblock = disk.superblock().clone();
    let own = OwnPages::of(&superblock);
    let chip = disk.device_mut();
    let formatted = margay_format::Formatted::new(chip, own.owners().into(), superblock.encode().unwrap()).unwrap();
    let mut formatted = formatted;
    let is_translation = |owner: u64| (own.trims(0).0.into()..u64::from(own.owners())).contains(&owner);
    let pages = (0..superblock.geometry.pages()).map(Ppn);
    pages
        .filter(|ppn| {
            margay_format::Store::owner_of(&mut formatted, *ppn).is_ok_and(|owner| owner.is_some_and(is_translation))
        })
        .collect()
}

#[test]
fn translation_pages_that_cannot_be_read_are_made_again_from_the_tags() {
    let geometry = nand(40);
    let options = options(&geometry, "m1", 12, 70, 0);
    let pages = options.exported_pages.unwrap();
    for (is_stopped, ruins_tags) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut disk = format(geometry, &options);
        let (mut oracle, mut seed) = (vec![None; pages as usize], 3);
        for version in 0..pages * 5 {
            let lpn = draw(&mut seed, pages);
            disk.write(lpn, &page(lpn, version), Hint::None, 0).unwrap();
            oracle[lpn as usize] = Some(version);
        }
        disk.flush().unwrap();
        let places = translation_pages(&mut disk);
        assert!(places.len() > 10);
        let mut chip = if is_stopped { disk.stop().unwrap().0 } else { disk.into_device() };
        for ppn in places {
            let bytes = margay_media::Damage::page_bytes_mut(&mut chip, ppn);
            let at = if ruins_tags { PAGE_BYTES as usize } else { 0 };
            bytes[at..at + 40].iter_mut().for_each(|byte| *byte ^= 0x55);
        }
        let mut disk = Disk::open(chip, &OpenOptions::default()).unwrap();
        check_all(&mut disk, &oracle);
        // And it goes on, copying what cannot be read.
        for version in pages * 5..pages * 12 {
            let lpn = draw(&mut seed, pages);
            disk.write(lpn, &page(lpn, version), Hint::None, 0).unwrap();
            oracle[lpn as usize] = Some(version);
        }
        check_all(&mut disk, &oracle);
        if is_stopped {
            assert!(disk.ftl().map_on_flash().unwrap().1.rebuilt > 0);
        }
    }
}

/// Makes the translation pages of a disk unreadable.
fn ruin_map(disk: &mut Disk<Chip>) {
    for ppn in translation_pages(disk) {
        let bytes = margay_media::Damage::page_bytes_mut(disk.device_mut(), ppn);
        bytes[..40].iter_mut().for_each(|byte| *byte ^= 0x55);
    }
}

#[test]
fn when_the_map_is_lost_in_the_middle_of_life_only_trims_may_be_undone() {
    let geometry = nand(40);
    let options = options(&geometry, "m1", 12, 70, 0);
    let pages = options.exported_pages.unwrap();
    let mut undone = 0;
    for seed in 1..8 {
        let mut disk = format(geometry, &options);
        let (mut oracle, mut trimmed, mut seed) = (vec![None; pages as usize], vec![false; pages as usize], seed);
        for version in 0..pages * 12 {
            let lpn = draw(&mut seed, pages);
            if draw(&mut seed, 5) == 0 {
                disk.trim(lpn, 0).unwrap();
                (oracle[lpn as usize], trimmed[lpn as usize]) = (None, true);
            } else {
                disk.write(lpn, &page(lpn, version), Hint::None, 0).unwrap();
                (oracle[lpn as usize], trimmed[lpn as usize]) = (Some(version), false);
            }
            // The last time shortly before the end.
            if draw(&mut seed, pages * 2) == 0 || version == pages * 12 - 30 {
                ruin_map(&mut disk);
            }
        }
        assert!(disk.ftl().map_on_flash().unwrap().1.rebuilt > 0);
        let mut read = page(0, 0);
        for (lpn, version) in (0..).zip(&oracle) {
            let is_there = disk.read(lpn, &mut read).unwrap();
            match version {
                Some(version) => assert!(is_there && read == page(lpn, *version), "page {lpn}"),
                None if is_there => {
                    assert!(trimmed[lpn as usize] && read[..4] == lpn.to_le_bytes(), "page {lpn}");
                    undone += 1;
                }
                None => {}
            }
        }
        disk.audit().unwrap();
    }
    assert!(undone > 0, "no trim was undone: the test does not test what it should");
}

#[test]
fn translation_pages_that_were_made_up_end_in_errors_at_worst() {
    let geometry = nand(40);
    let options = options(&geometry, "m1", 12, 70, 0);
    let pages = options.exported_pages.unwrap();
    let mut wrong = 0;
    for kind in 0..6 {
        let mut disk = format(geometry, &options);
        let mut seed = 9;
        for version in 0..pages * 3 {
            let lpn = draw(&mut seed, pages);
            disk.write(lpn, &page(lpn, version), Hint::None, 0).unwrap();
        }
        let some = (0..pages).find_map(|lpn| disk.place(lpn).unwrap()).unwrap();
        let superblock = disk.superblock().clone();
        let own = OwnPages::of(&superblock);
        let seq = disk.ftl().log().seq();
        let free = disk.ftl().log().free_list().next().unwrap();
        let mut chip = disk.into_device();
        let superblock = superblock.encode().unwrap();
        let mut store = margay_format::Formatted::new(&mut chip, own.owners().into(), superblock).unwrap();
        let info = SegmentInfo { erases: 3, ..SegmentInfo::default() };
        store.erase(free, info).unwrap();
        store.begin(free, info).unwrap();
        let first = geometry.first_page(free).0;
        let mut data = vec![0; PAGE_BYTES as usize];
        for at in 0..6 {
            let entry = |number: u32| match kind {
                0 => some.0,
                1 => first + at,
                2 => geometry.pages() + number,
                3 => number % 8,
                4 => draw(&mut seed.clone(), geometry.pages()) + number,
                _ => some.0 + number % 8,
            };
            margay_format::encode_translation(at, seq + u64::from(at), (0..12).map(entry), &mut data);
            let page = PageInfo { owner: own.trims(at).0.into(), seq: seq + 1 + u64::from(at), ..PageInfo::default() };
            store.program(Ppn(first + at), &data, page).unwrap();
        }
        drop(store);
        let Ok(mut disk) = Disk::open(chip, &OpenOptions::default()) else { continue };
        let mut read = page(0, 0);
        for version in 0..pages * 6 {
            let lpn = draw(&mut seed, pages);
            wrong += u32::from(disk.read(lpn, &mut read).is_err());
            let _ = disk.write(lpn, &page(lpn, version), Hint::None, 0);
            let _ = disk.idle(4);
        }
        // What was written since counts, whatever was there before.
        for lpn in 0..pages {
            let _ = disk.trim(lpn, 0);
            if disk.write(lpn, &page(lpn, 1), Hint::None, 0).is_ok() {
                assert!(disk.read(lpn, &mut read).unwrap() && read == page(lpn, 1), "kind {kind}, page {lpn}");
            }
        }
        let _ = disk.stop();
    }
    assert!(wrong > 0, "the disk made no difference between such maps and its own");
}

#[test]
fn entries_that_name_pages_of_a_segment_that_was_erased_since_are_those_of_trimmed_pages() {
    let geometry = nand(40);
    let options = options(&geometry, "m1", 12, 70, 0);
    let pages = options.exported_pages.unwrap();
    let mut disk = format(geometry, &options);
    let (mut oracle, mut seed) = (vec![None; pages as usize], 5);
    for version in 0..pages * 3 {
        let lpn = if version < pages { version } else { draw(&mut seed, pages / 2) };
        disk.write(lpn, &page(lpn, version), Hint::None, 0).unwrap();
        oracle[lpn as usize] = Some(version);
    }
    disk.flush().unwrap();
    // As if all that is in the segment had been trimmed, without room for the translation pages before its erase.
    let segment = geometry.segment_of(disk.place(pages - 1).unwrap().unwrap());
    for lpn in 0..pages {
        if disk.place(lpn).unwrap().is_some_and(|ppn| geometry.segment_of(ppn) == segment) {
            oracle[lpn as usize] = None;
        }
    }
    assert!(oracle.contains(&None));
    let mut chip = disk.into_device();
    margay_flash::Flash::erase(&mut chip, segment).unwrap();
    let mut disk = Disk::open(chip, &OpenOptions::default()).unwrap();
    disk.audit().unwrap();
    let (mut read, mut unmapped) = (page(0, 0), 0);
    for lpn in (0..pages).filter(|lpn| oracle[*lpn as usize].is_none()) {
        // An earlier version may be on flash still, as after any trim that was not flushed.
        if disk.read(lpn, &mut read).unwrap() {
            assert_eq!(read[..4], lpn.to_le_bytes());
            disk.trim(lpn, 0).unwrap();
        } else {
            unmapped += 1;
        }
    }
    assert!(unmapped > 0);
    check_all(&mut disk, &oracle);
    for version in 0..pages * 4 {
        let lpn = draw(&mut seed, pages);
        disk.write(lpn, &page(lpn, version), Hint::None, 0).unwrap();
        oracle[lpn as usize] = Some(version);
    }
    check_all(&mut disk, &oracle);
}

#[test]
fn a_page_whose_tag_cannot_be_read_does_not_keep_the_cleaner_from_going_on() {
    let geometry = nand(40);
    let options = options(&geometry, "m1", 12, 70, 0);
    let pages = options.exported_pages.unwrap();
    let mut disk = format(geometry, &options);
    for lpn in 0..pages {
        disk.write(lpn, &page(lpn, 1), Hint::None, 0).unwrap();
    }
    let lost = [5, 40, pages - 20];
    for lpn in lost {
        let ppn = disk.place(lpn).unwrap().unwrap();
        margay_media::Damage::page_bytes_mut(disk.device_mut(), ppn)[PAGE_BYTES as usize..].fill(0x5A);
    }
    let mut seed = 7;
    let mut oracle = vec![1; pages as usize];
    for version in 0..pages * 12 {
        let lpn = draw(&mut seed, pages);
        if !lost.contains(&lpn) {
            disk.write(lpn, &page(lpn, version), Hint::None, 0).unwrap();
            oracle[lpn as usize] = version;
        }
    }
    disk.audit().unwrap();
    assert!(disk.ftl().log().counters().lost_pages >= 3, "each was moved, and says that it is lost");
    let mut read = page(0, 0);
    for (lpn, version) in (0..).zip(oracle) {
        let found = disk.read(lpn, &mut read);
        match lost.contains(&lpn) {
            true => assert!(matches!(found, Err(VolumeError::Ftl(_))), "page {lpn}: {found:?}"),
            false => assert_eq!((found.unwrap(), &read), (true, &page(lpn, version)), "page {lpn}"),
        }
    }
    // Whoever writes them again has them again.
    for lpn in lost {
        disk.write(lpn, &page(lpn, 9), Hint::None, 0).unwrap();
        assert!(disk.read(lpn, &mut read).unwrap());
        assert_eq!(read, page(lpn, 9));
    }
    disk.audit().unwrap();
}

#[test]
fn a_start_from_a_clean_stop_reads_no_translation_page() {
    let geometry = Geometry::new(256, 16, PAGE_BYTES).unwrap().with_spare(256);
    let options = options(&geometry, "m1", 60, 75, 0);
    let pages = options.exported_pages.unwrap();
    let mut disk = Disk::format(Meter::new(RamFlash::new(geometry)), &options).unwrap();
    for lpn in 0..pages {
        disk.write(lpn, &page(lpn, 1), Hint::None, 0).unwrap();
    }
    let (chip, has_checkpoint) = disk.stop().unwrap();
    assert!(has_checkpoint);
    let disk = Disk::open(chip, &OpenOptions::default()).unwrap();
    assert!(disk.mount_report().from_checkpoint);
    let groups = OwnPages::of(disk.superblock()).groups();
    let by_checkpoint = disk.mount_report().reads;
    let disk = Disk::open(disk.into_device(), &OpenOptions::default()).unwrap();
    assert!(!disk.mount_report().from_checkpoint);
    assert!(by_checkpoint < 60 && disk.mount_report().reads > by_checkpoint + 2 * groups, "{by_checkpoint}");
}

#[test]
fn what_a_map_on_flash_cannot_have_is_refused_with_a_way_out() {
    let geometry = nand(40);
    let fits = options(&geometry, "m1", 12, 70, 0);
    let least = fits.map.unwrap().memory_bytes;
    let refused = |options: &FormatOptions| Disk::format(RamFlash::new(geometry), options).unwrap_err().to_string();
    let small =
        FormatOptions { map: Some(MapOnFlash { memory_bytes: least - 1, ..fits.map.unwrap() }), ..fits.clone() };
    assert!(refused(&small).contains(&format!("at least {least}")), "{}", refused(&small));
    let keeps = FormatOptions { placement: "lifetime".parse().unwrap(), ..small };
    let keeps = FormatOptions { map: Some(MapOnFlash::new(1 << 20)), exported_pages: Some(100), ..keeps };
    assert!(refused(&keeps).contains("choose one that does not, such as m1"), "{}", refused(&keeps));
    let chip = Disk::format(RamFlash::new(geometry), &fits).unwrap().into_device();
    let other = OpenOptions { placement: Some("m6".parse().unwrap()), ..OpenOptions::default() };
    assert!(Disk::open(chip, &other).unwrap_err().to_string().contains("choose one that does not"));
}

#[test]
fn a_check_and_a_repair_know_disks_with_their_maps_on_flash() {
    let geometry = nand(40);
    let options = options(&geometry, "m1", 12, 70, 0);
    let pages = options.exported_pages.unwrap();
    let mut disk = format(geometry, &options);
    let mut oracle = vec![None; pages as usize];
    for lpn in (0..pages).filter(|lpn| lpn % 3 > 0) {
        disk.write(lpn, &page(lpn, 1), Hint::None, 0).unwrap();
        oracle[lpn as usize] = Some(1);
    }
    let (mut chip, _) = disk.stop().unwrap();
    let report = check(&mut chip).unwrap();
    assert!(report.is_clean() && report.has_checkpoint, "{report:?}");
    assert_eq!(report.mapped_pages as usize, oracle.iter().flatten().count());
    let repaired = repair_disk(&mut chip, Strict::new(RamFlash::new(geometry))).unwrap();
    let mut disk = Disk::open(repaired.device, &OpenOptions::default()).unwrap();
    assert_eq!(disk.superblock().map_entries, 12);
    check_all(&mut disk, &oracle);
    assert!(disk.place(pages).is_err() && disk.place(Lpn(0).0).is_ok());
}
