//! Formatting, mounting and stopping disks on devices with faults.

use margay_flash::{Geometry, Lpn, ReadStatus, SegmentId};
use margay_format::{ClientKind, Formatted, Layout, OwnPages, Superblock};
use margay_ftl::{Ftl, load};
use margay_log::{Config, Hint, Policies};
use margay_media::{Faults, RamFlash};
use margay_policy::{PlacementSpec, SelectionSpec, Sizing};

type Device = Faults<RamFlash>;
type Disk = Ftl<Formatted<Device>>;

const PAGE_BYTES: u32 = 512;

struct Setup {
    config: Config,
    superblock: Superblock,
}

impl Setup {
    fn new(geometry: Geometry) -> Self {
        let layout = Layout::new(&geometry, 100).unwrap();
        let config = Config {
            header_pages: layout.header_pages,
            reserved_segments: layout.reserved_segments,
            max_pages_per_write: 8,
            low_water: 2,
            high_water: 2,
            ..Config::default()
        };
        let exported_pages = config.limit_pages(&geometry, 5).unwrap() / 2;
        let superblock = Superblock { uuid: [9; 16], ..Superblock::new(geometry, ClientKind::Disk, exported_pages) };
        Self { config, superblock }
    }

    fn formatted(&self, device: Device) -> Formatted<Device> {
        let owners = OwnPages::of(&self.superblock).owners();
        Formatted::new(device, owners.into(), self.superblock.encode().unwrap()).unwrap()
    }

    fn policies(&self) -> Policies {
        let Superblock { geometry, exported_pages, .. } = self.superblock;
        let data_pages = self.config.data_pages(&geometry);
        let sizing = Sizing { segments: geometry.segments(), data_pages, exported_pages, seed: 1 };
        Policies::new(SelectionSpec::known("greedy"), PlacementSpec::known("m1"), sizing)
    }

    fn pages(&self) -> u32 {
        self.superblock.exported_pages
    }

    fn mount(&self, mut device: Formatted<Device>, by_checkpoint: bool) -> Disk {
        let loaded = load(&mut device, &self.superblock, by_checkpoint).unwrap();
        assert_eq!((loaded.report.from_checkpoint, loaded.report.retired_segments), (by_checkpoint, 1));
        Ftl::mount(device, &self.superblock, self.config, self.policies(), loaded, false).unwrap().0
    }
}

fn page(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(PAGE_BYTES as usize / 4)
}

fn geometries() -> [Geometry; 2] {
    let geometry = Geometry::new(24, 8, PAGE_BYTES).unwrap();
    [geometry.with_spare(128), Geometry::new(24, 16, PAGE_BYTES).unwrap().byte_programmable()]
}

fn write_and_read_everything(disk: &mut Disk, pages: u32, round: u32) {
    for lpn in 0..pages {
        disk.write(Lpn(lpn), &page(lpn ^ round), Hint::None, 0).unwrap();
    }
    disk.flush().unwrap();
    disk.audit().unwrap();
    let mut read = page(0);
    for lpn in 0..pages {
        disk.read(Lpn(lpn), &mut read).unwrap();
        assert_eq!(read, page(lpn ^ round), "page {lpn}");
    }
}

#[test]
fn a_segment_that_cannot_be_erased_is_retired_when_the_device_is_formatted() {
    for geometry in geometries() {
        let setup = Setup::new(geometry);
        let mut device = Faults::new(RamFlash::new(geometry), 0);
        device.fail_erase(3);
        let failing = SegmentId(setup.config.reserved_segments + 3);
        let (mut disk, mut anchor) =
            Ftl::format(setup.formatted(device), &setup.superblock, setup.config, setup.policies()).unwrap();
        assert_eq!(disk.retired_segments(), [failing]);
        write_and_read_everything(&mut disk, setup.pages(), 0);
        assert!(disk.stop(&mut anchor, &setup.superblock).unwrap());
        let device = disk.into_device().into_device();
        for by_checkpoint in [true, false] {
            let mut disk = setup.mount(setup.formatted(device.clone()), by_checkpoint);
            assert_eq!(disk.retired_segments(), [failing]);
            write_and_read_everything(&mut disk, setup.pages(), 77);
            assert_eq!(disk.into_device().into_device().bad_segments(), 1, "nothing else failed");
        }
    }
}

#[test]
fn a_disk_that_does_not_fit_is_refused_before_anything_is_erased() {
    for geometry in geometries() {
        let setup = Setup::new(geometry);
        let device = setup.formatted(Faults::new(RamFlash::new(geometry), 0));
        let (mut disk, mut anchor) = Ftl::format(device, &setup.superblock, setup.config, setup.policies()).unwrap();
        write_and_read_everything(&mut disk, setup.pages(), 0);
        assert!(disk.stop(&mut anchor, &setup.superblock).unwrap());
        let mut device = disk.into_device().into_device();
        let erases = device.operations().1;
        let too_large = Superblock { exported_pages: geometry.pages(), ..setup.superblock.clone() };
        let lent = Formatted::new(&mut device, 1000, too_large.encode().unwrap()).unwrap();
        assert!(Ftl::format(lent, &too_large, setup.config, setup.policies()).is_err());
        assert_eq!(device.operations().1, erases);
    }
}

#[test]
fn a_page_that_the_ecc_had_to_correct_is_rewritten_in_idle_time() {
    for geometry in geometries() {
        let setup = Setup::new(geometry);
        let device = setup.formatted(Faults::new(RamFlash::new(geometry), 4));
        let (mut disk, _) = Ftl::format(device, &setup.superblock, setup.config, setup.policies()).unwrap();
        write_and_read_everything(&mut disk, setup.pages(), 0);
        while disk.idle_step(8).unwrap() {}
        let hard = disk.place(Lpn(5)).unwrap();
        disk.device_mut().device_mut().flip_bits(hard, 2);
        let mut read = page(0);
        assert_eq!(disk.read(Lpn(5), &mut read), Ok(Some(ReadStatus::Corrected)));
        assert_eq!(disk.place(Lpn(5)), Some(hard), "not before idle time");
        assert_eq!(disk.idle_step(8), Ok(true));
        assert_ne!(disk.place(Lpn(5)), Some(hard));
        assert_eq!(disk.read(Lpn(5), &mut read), Ok(Some(ReadStatus::Clean)));
        assert_eq!(read, page(5));
        disk.audit().unwrap();
    }
}
