//! A disk whose newest page has the last number that the format knows (FORMAT.md, "Edges").

use margay_flash::{FlashError, Geometry, Lpn, Ppn, SegmentId};
use margay_format::{
    Anchor, ClientKind, Formatted, PageInfo, PageKind, Record, SegmentInfo, Store, Superblock, U48_MAX,
};
use margay_ftl::{Ftl, FtlError, MountError, OwnPages, load};
use margay_log::{Config, Hint, LogError, Policies};
use margay_media::{RamFlash, Strict};
use margay_policy::{PlacementSpec, SelectionSpec, Sizing};

const PAGE_BYTES: u32 = 512;
const PAGES: u32 = 60;

type Chip = Strict<RamFlash>;

fn chips() -> [Geometry; 2] {
    let nand = Geometry::new(16, 8, PAGE_BYTES).unwrap().with_spare(160);
    let nor = Geometry::new(16, 10, PAGE_BYTES).unwrap().byte_programmable();
    [nand, nor]
}

fn superblock(geometry: Geometry) -> Superblock {
    Superblock { uuid: [9; 16], ..Superblock::new(geometry, ClientKind::Disk, PAGES) }
}

fn formatted<F: margay_flash::Flash>(device: F, geometry: Geometry) -> (Formatted<F>, Config) {
    let own = OwnPages::new(PAGES, PAGE_BYTES);
    let device = Formatted::new(device, own.owners().into(), superblock(geometry).encode().unwrap()).unwrap();
    let layout = device.layout();
    let config = Config {
        header_pages: layout.header_pages,
        summary_pages: layout.summary_pages,
        reserved_segments: layout.reserved_segments,
        max_pages_per_write: 8,
        low_water: 2,
        high_water: 2,
        ..Config::default()
    };
    (device, config)
}

fn policies(config: &Config, geometry: &Geometry) -> Policies {
    let data_pages = config.data_pages(geometry);
    let sizing = Sizing { segments: geometry.segments(), data_pages, exported_pages: PAGES, seed: 1 };
    Policies::new(SelectionSpec::known("greedy"), PlacementSpec::known("m1"), sizing)
}

/// A disk with pages 0 to 19 of `1`, which lost its power after page 3 was written once more, as `2`, with this number
/// and time.
fn device_whose_newest_page_has(geometry: Geometry, seq: u64, time_us: u64) -> Chip {
    let (mut device, config) = formatted(Strict::new(RamFlash::new(geometry)), geometry);
    let superblock = superblock(geometry);
    device.write_anchor(&mut Anchor::default(), &superblock, &Record::InUse).unwrap();
    let encoded = superblock.encode().unwrap();
    let mut disk = Ftl::new(device, config, policies(&config, &geometry), PAGES, &encoded).unwrap();
    for lpn in 0..20 {
        disk.write(Lpn(lpn), &[1; PAGE_BYTES as usize], Hint::None, 5).unwrap();
    }
    let last = SegmentId(geometry.segments() - 1);
    let mut device = disk.into_device();
    device.begin(last, SegmentInfo::default()).unwrap();
    let page = PageInfo { owner: 3, seq, version: 21, time_us, ..PageInfo::default() };
    let at = Ppn(geometry.first_page(last).0 + config.header_pages);
    device.program_kind(PageKind::Data, at, &[2; PAGE_BYTES as usize], page).unwrap();
    device.into_device()
}

/// Mounts a device. That of a failed mount is gone with it, so it is a copy.
fn mount(chip: &Chip, geometry: Geometry, read_only: bool) -> Result<Ftl<Formatted<Chip>>, MountError> {
    let (mut device, config) = formatted(chip.clone(), geometry);
    let superblock = superblock(geometry);
    let loaded = load(&mut device, &superblock, true)?;
    assert!(!loaded.report.from_checkpoint);
    let policies = policies(&config, &geometry);
    Ftl::mount(device, &superblock, config, policies, loaded, read_only).map(|(disk, _)| disk)
}

fn check_pages(disk: &mut Ftl<Formatted<Chip>>) {
    for lpn in 0..20 {
        let mut page = [0; PAGE_BYTES as usize];
        assert!(disk.read(Lpn(lpn), &mut page).unwrap().is_some());
        assert_eq!(page, [if lpn == 3 { 2 } else { 1 }; PAGE_BYTES as usize], "page {lpn}");
    }
    disk.audit().unwrap();
}

fn is_spent(error: &FtlError) -> bool {
    matches!(error, FtlError::Log(LogError::Flash(FlashError::NumbersSpent { .. })))
}

#[test]
fn the_page_with_the_last_number_is_the_newest_and_the_disk_can_be_read() {
    for geometry in chips() {
        let chip = device_whose_newest_page_has(geometry, U48_MAX, 6);
        let mut disk = mount(&chip, geometry, true).unwrap();
        assert_eq!(disk.log().seq(), U48_MAX);
        check_pages(&mut disk);
    }
}

#[test]
fn a_mount_for_writing_that_has_no_number_left_is_refused_and_changes_no_page() {
    for geometry in chips() {
        let mut chip = device_whose_newest_page_has(geometry, U48_MAX, 6);
        let (mut device, config) = formatted(&mut chip, geometry);
        let superblock = superblock(geometry);
        let loaded = load(&mut device, &superblock, true).unwrap();
        let error = Ftl::mount(device, &superblock, config, policies(&config, &geometry), loaded, false);
        let Err(MountError::Ftl(error)) = error.map(drop) else { panic!("it cannot be written to") };
        assert!(is_spent(&error), "{error}");
        assert!(error.to_string().contains("copy the data elsewhere and format it anew"), "{error}");
        check_pages(&mut mount(&chip, geometry, true).unwrap());
    }
}

#[test]
fn the_last_numbers_are_used_and_what_was_written_with_them_is_found_again() {
    for geometry in chips() {
        let chip = device_whose_newest_page_has(geometry, U48_MAX - 6, 6);
        let mut disk = mount(&chip, geometry, false).unwrap();
        let mut written = 0;
        let error = loop {
            match disk.write(Lpn(40 + written), &[3; PAGE_BYTES as usize], Hint::None, 7) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(is_spent(&error) && (1..=6).contains(&written), "{written} pages, {error}");
        // What is not on flash is not said to be there.
        disk.trim(Lpn(0), 8).unwrap();
        assert!(is_spent(&disk.flush().unwrap_err()));
        let mut found = mount(&disk.into_device().into_device(), geometry, true).unwrap();
        check_pages(&mut found);
        for lpn in 40..60 {
            assert_eq!(found.is_mapped(Lpn(lpn)), lpn < 40 + written, "page {lpn}");
        }
    }
}

#[test]
fn after_the_last_time_the_clock_stands_still() {
    for geometry in chips() {
        let chip = device_whose_newest_page_has(geometry, 1000, U48_MAX);
        let mut disk = mount(&chip, geometry, false).unwrap();
        assert_eq!(disk.log().now().us, U48_MAX);
        for step in 0..300u64 {
            disk.write(Lpn(30 + (step % 20) as u32), &[3; PAGE_BYTES as usize], Hint::None, U48_MAX + step).unwrap();
        }
        disk.flush().unwrap();
        assert!(disk.log().counters().erases > 10);
        assert!(disk.log().segments().opened_us.iter().all(|opened| *opened <= U48_MAX));
        let mut found = mount(&disk.into_device().into_device(), geometry, true).unwrap();
        assert_eq!(found.log().now().us, U48_MAX);
        check_pages(&mut found);
    }
}
