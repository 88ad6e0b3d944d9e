//! The disk on chips in memory: round trips, power cuts, what a host makes of it, and the adapters.

use embedded_storage::nor_flash::{
    ErrorType, NorFlash, NorFlashErrorKind, ReadNorFlash, check_erase, check_read, check_write,
};
use embedded_storage::{ReadStorage, Storage};
use margay_flash::{Flash, FlashError, Geometry, Lpn};
use margay_format::{ClientKind, Formatted, OwnPages, TAGS_NAME_PLACE};
use margay_ftl::{Ftl, FtlError};
use margay_log::{Hint, LogError};
use margay_media::{Call, Effect, Flaky, PowerCut, RamFlash, Strict, Torn};
use margay_micro::{
    ByteDisk, DiskError, NorFlashDevice, NorShapeError, SmallDisk, config, max_pages, policies, superblock,
};
use margay_volume::{Disk, OpenOptions};

const UUID: [u8; 16] = *b"margay-micro-uid";

/// NOR flash as a driver shows it: words of so many bytes, each programmed once; 4 KiB erased at a time.
#[derive(Debug)]
struct Nor<const WORD: usize> {
    bytes: Vec<u8>,
    /// Programs and erases until the power fails in the middle of one.
    left: Option<u32>,
}

impl<const WORD: usize> Nor<WORD> {
    fn new(kib: usize) -> Self {
        Self { bytes: vec![0x5A; kib * 1024], left: None }
    }

    fn powered(&mut self, len: usize) -> (usize, Result<(), NorFlashErrorKind>) {
        match &mut self.left {
            None => (len, Ok(())),
            Some(0) => (0, Err(NorFlashErrorKind::Other)),
            Some(left) => {
                *left -= 1;
                if *left == 0 { (len / 2, Err(NorFlashErrorKind::Other)) } else { (len, Ok(())) }
            }
        }
    }
}

impl<const WORD: usize> ErrorType for Nor<WORD> {
    type Error = NorFlashErrorKind;
}

impl<const WORD: usize> ReadNorFlash for Nor<WORD> {
    const READ_SIZE: usize = WORD;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), NorFlashErrorKind> {
        check_read(self, offset, bytes.len())?;
        bytes.copy_from_slice(&self.bytes[offset as usize..][..bytes.len()]);
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.bytes.len()
    }
}

impl<const WORD: usize> NorFlash for Nor<WORD> {
    const WRITE_SIZE: usize = WORD;
    const ERASE_SIZE: usize = 4096;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), NorFlashErrorKind> {
        check_erase(self, from, to)?;
        let (done, result) = self.powered((to - from) as usize);
        self.bytes[from as usize..][..done].fill(0xFF);
        result
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), NorFlashErrorKind> {
        check_write(self, offset, bytes.len())?;
        let (done, result) = self.powered(bytes.len());
        let cells = &mut self.bytes[offset as usize..][..bytes.len()];
        if self.left.is_none() {
            // The trait allows one write of a word between two erases.
            assert!(cells.iter().all(|cell| *cell == 0xFF), "offset {offset} is written a second time");
        }
        cells[..done].copy_from_slice(&bytes[..done]);
        result
    }
}

fn formatted<const WORD: usize>(kib: usize) -> ByteDisk<NorFlashDevice<Nor<WORD>>> {
    let device = NorFlashDevice::new(Nor::new(kib), 512, 16 * 1024).unwrap();
    let pages = max_pages(device.geometry()).unwrap();
    ByteDisk::new(SmallDisk::format(device, pages, UUID).unwrap())
}

/// The flash without what was in memory.
fn cut_off<const WORD: usize>(disk: ByteDisk<NorFlashDevice<Nor<WORD>>>) -> Nor<WORD> {
    let mut flash = disk.into_disk().into_device().into_flash();
    flash.left = None;
    flash
}

fn mounted<const WORD: usize>(flash: Nor<WORD>) -> ByteDisk<NorFlashDevice<Nor<WORD>>> {
    ByteDisk::new(SmallDisk::mount(NorFlashDevice::new(flash, 512, 16 * 1024).unwrap()).unwrap())
}

#[test]
fn a_storage_on_any_nor_flash_keeps_bytes_of_any_range_over_a_power_cut_and_a_stop() {
    keeps_bytes_on_words_of::<1>();
    keeps_bytes_on_words_of::<4>();
    keeps_bytes_on_words_of::<16>();
}

fn keeps_bytes_on_words_of<const WORD: usize>() {
    let mut disk = formatted::<WORD>(512);
    let capacity = ReadStorage::capacity(&disk);
    assert_eq!(capacity, 779 * 512);
    let mut model = vec![0; capacity];
    let mut state = 1u32;
    let mut below = move |limit: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % limit
    };
    for round in 0..3 {
        for number in 0..1500 {
            let (at, len) = (below(capacity - 1600), 1 + below(1600));
            let bytes: Vec<u8> = (0..len).map(|byte| (byte + number + round) as u8).collect();
            Storage::write(&mut disk, at as u32, &bytes).unwrap();
            model[at..at + len].copy_from_slice(&bytes);
        }
        disk.flush().unwrap();
        disk = if round == 1 {
            let (device, has_checkpoint) = disk.into_disk().stop().unwrap();
            assert!(has_checkpoint);
            mounted(device.into_flash())
        } else {
            mounted(cut_off(disk))
        };
        let mut found = vec![1; capacity];
        ReadStorage::read(&mut disk, 0, &mut found).unwrap();
        assert!(found == model, "round {round}");
    }
    let end = capacity as u32 - 1;
    let error = Storage::write(&mut disk, end, &[1, 2]).unwrap_err();
    assert!(matches!(error, DiskError::PastEnd { .. }), "{error}");
    let error = ReadStorage::read(&mut disk, end, &mut [0; 2]).unwrap_err();
    assert!(error.to_string().contains("past the end of the disk"), "{error}");
}

#[test]
fn a_nor_flash_whose_units_or_segments_do_not_fit_is_refused_with_its_numbers() {
    let error = NorFlashDevice::new(Nor::<4>::new(64), 512, 6 * 1024).unwrap_err();
    assert_eq!(error, NorShapeError::Segment { segment_bytes: 6144, page_bytes: 512, erase_bytes: 4096 });
    assert!(error.to_string().contains("4096 bytes that are erased at a time"), "{error}");
    let error = NorFlashDevice::new(Nor::<32>::new(64), 512, 16 * 1024).unwrap_err();
    assert_eq!(error, NorShapeError::Unit { write_bytes: 32, read_bytes: 32 });
    for (page_bytes, segment_bytes) in [(0, 4096), (512, 0), (500, 4096), (8192, 4096)] {
        assert!(NorFlashDevice::new(Nor::<4>::new(64), page_bytes, segment_bytes).is_err());
    }
    assert!(matches!(NorFlashDevice::new(Nor::<4>::new(4), 512, 4096), Err(NorShapeError::Geometry(_))));
    let device = NorFlashDevice::new(Nor::<4>::new(64), 512, 16 * 1024).unwrap();
    assert!(matches!(SmallDisk::mount(device), Err(DiskError::NotFormatted(_))));
}

#[test]
fn a_host_opens_what_a_microcontroller_formatted_and_gives_it_back() {
    let nor = Geometry::new(32, 32, 1024).unwrap().byte_programmable();
    let nand = Geometry::new(64, 16, 512).unwrap().with_spare(64);
    for geometry in [nor, nand] {
        let page_bytes = geometry.page_bytes() as usize;
        let pages = max_pages(&geometry).unwrap();
        let mut small = SmallDisk::format(Strict::new(RamFlash::new(geometry)), pages, UUID).unwrap();
        (0..pages).for_each(|lpn| small.write(lpn, &vec![lpn as u8; page_bytes]).unwrap());
        let mut host = Disk::open(small.stop().unwrap().0, &OpenOptions::default()).unwrap();
        assert_eq!(host.superblock().incompatible, TAGS_NAME_PLACE, "as FORMAT.md says of every device formatted now");
        let mut page = vec![0; page_bytes];
        for lpn in 0..pages {
            assert!(host.read(lpn, &mut page).unwrap() && page == vec![lpn as u8; page_bytes]);
        }
        for round in 0..3u32 {
            (0..pages).for_each(|lpn| host.write(lpn, &vec![(lpn + round) as u8; page_bytes], Hint::None, 0).unwrap());
        }
        let mut small = SmallDisk::mount(host.stop().unwrap().0).unwrap();
        for lpn in 0..pages {
            assert!(small.read(lpn, &mut page).unwrap() && page == vec![(lpn + 2) as u8; page_bytes]);
        }
        small.audit().unwrap();
    }
}

/// Every power cut takes the rest of the segment that was being filled.
#[test]
fn hundreds_of_power_cuts_with_few_writes_in_between_lose_nothing() {
    let nor = Geometry::new(32, 32, 1024).unwrap().byte_programmable();
    let nand = Geometry::new(32, 16, 512).unwrap().with_spare(64);
    for geometry in [nor, nand] {
        let pages = geometry.pages() / 5 * 4;
        assert!(pages <= max_pages(&geometry).unwrap());
        let mut versions = vec![0u8; pages as usize];
        let page_bytes = geometry.page_bytes() as usize;
        let mut flash = PowerCut::new(Strict::new(RamFlash::new(geometry)));
        let mut disk = SmallDisk::format(&mut flash, pages, UUID).unwrap();
        for lpn in 0..pages * 2 {
            let lpn = lpn * 7 % pages;
            versions[lpn as usize] = versions[lpn as usize].wrapping_add(1);
            disk.write(lpn, &vec![versions[lpn as usize]; page_bytes]).unwrap();
        }
        drop(disk);
        let mut lpn = 0;
        for cut in 0..300u64 {
            flash.cut_at(cut * 7 % 41, Torn::Half);
            let mut page = vec![0; page_bytes];
            let power_lost = |error: &DiskError| {
                matches!(error, DiskError::Disk(FtlError::Log(LogError::Flash(FlashError::PowerLost))))
                    || error.to_string().contains("lost its power")
            };
            match SmallDisk::mount(&mut flash) {
                Ok(mut disk) => loop {
                    lpn = (lpn + 13) % pages;
                    let next = versions[lpn as usize].wrapping_add(1);
                    match disk.write(lpn, &vec![next; page_bytes]) {
                        Ok(()) => versions[lpn as usize] = next,
                        Err(error) => {
                            assert!(power_lost(&error), "cut {cut}: {error}");
                            break;
                        }
                    }
                },
                // In the mount itself.
                Err(error) => assert!(power_lost(&error), "cut {cut}: {error}"),
            }
            flash.power_on();
            let mut disk = SmallDisk::mount(&mut flash).unwrap();
            for at in 0..pages {
                let version = versions[at as usize];
                assert!(disk.read(at, &mut page).unwrap(), "cut {cut}, page {at}");
                let is_torn = at == lpn && page == vec![version.wrapping_add(1); page_bytes];
                assert!(is_torn || page == vec![version; page_bytes], "cut {cut}, page {at}, not version {version}");
                if is_torn {
                    versions[at as usize] = page[0];
                }
            }
            disk.audit().unwrap();
        }
    }
}

/// Whoever formats what holds no disk must not be told so by a bus that failed once.
#[test]
fn a_mount_that_meets_an_error_of_the_chip_says_so_and_not_that_there_is_no_disk() {
    let nor = Geometry::new(16, 16, 512).unwrap().byte_programmable();
    let nand = Geometry::new(16, 16, 512).unwrap().with_spare(64);
    for geometry in [nor, nand] {
        let mut flash = Flaky::new(RamFlash::new(geometry));
        let mut disk = SmallDisk::format(&mut flash, 100, UUID).unwrap();
        (0..150).for_each(|lpn| disk.write(lpn % 100, &[lpn as u8; 512]).unwrap());
        drop(disk);
        for call in [Call::Read, Call::Program, Call::Erase] {
            for number in 0.. {
                let mut failing = flash.clone();
                failing.fail(call, number..number + 1, Effect::NotDone, 5);
                let error = SmallDisk::mount(&mut failing).err();
                assert!(
                    matches!(error, None | Some(DiskError::Disk(_) | DiskError::Mount(_))),
                    "{call:?} {number}: {error:?}"
                );
                if failing.errors() == 0 {
                    break;
                }
                failing.heal();
                let mut disk = SmallDisk::mount(&mut failing).unwrap();
                let mut page = [0; 512];
                for lpn in 0..100 {
                    let version = if lpn < 50 { lpn + 100 } else { lpn } as u8;
                    assert!(disk.read(lpn, &mut page).unwrap() && page == [version; 512], "{call:?} {number}: {lpn}");
                }
            }
        }
    }
}

#[test]
fn a_disk_with_features_that_only_a_later_version_may_write_is_read_and_left_as_it_is() {
    let geometry = Geometry::new(16, 16, 512).unwrap().with_spare(64);
    let mut later = superblock(&geometry, ClientKind::Disk, 100, UUID);
    later.read_only_compatible = 1;
    let owners = OwnPages::of(&later).owners();
    let store = Formatted::new(RamFlash::new(geometry), owners.into(), later.encode().unwrap()).unwrap();
    let config = config(store.layout());
    let (mut ftl, _) = Ftl::format(store, &later, config, policies(&later, &config)).unwrap();
    ftl.write(Lpn(7), &[7; 512], Hint::None, 0).unwrap();
    let mut flash = Flaky::new(ftl.into_device().into_device());
    let mut disk = SmallDisk::mount(&mut flash).unwrap();
    let mut page = [0; 512];
    assert!(disk.read(7, &mut page).unwrap() && page == [7; 512]);
    for refused in [disk.write(7, &page), disk.trim(7), disk.flush(), disk.idle(8).map(drop), disk.end().map(drop)] {
        assert!(matches!(refused, Err(DiskError::ReadOnly)), "{refused:?}");
    }
    drop(disk);
    assert_eq!((flash.calls(Call::Program), flash.calls(Call::Erase)), (0, 0));
}
