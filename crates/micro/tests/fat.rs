//! FAT on the disk: made by one crate, cut off from power, and read by two.

use embedded_sdmmc::{Mode, TimeSource, Timestamp, VolumeIdx, VolumeManager};
use fatfs::{FatType, FileSystem, FormatVolumeOptions, FsOptions, format_volume};
use margay_flash::{Flash, Geometry};
use margay_media::{PowerCut, RamFlash, Strict, Torn};
use margay_micro::{ByteDisk, SharedDisk, SmallDisk};
use std::io::{Error, Read, Result, Seek, SeekFrom, Write};

type Chip = PowerCut<Strict<RamFlash>>;

/// 8 MiB of NAND.
fn chip() -> Chip {
    PowerCut::new(Strict::new(RamFlash::new(Geometry::new(64, 64, 2048).unwrap().with_spare(128))))
}

const FILES: u32 = 24;

/// The sector at which the only partition begins.
const FIRST_SECTOR: u32 = 16;

/// A partition of the disk as `fatfs` wants it.
struct Partition {
    disk: ByteDisk<Chip>,
    at: u64,
}

impl Partition {
    fn new(disk: ByteDisk<Chip>) -> Self {
        Self { disk, at: 0 }
    }

    fn len_bytes(&self) -> u64 {
        self.disk.capacity_bytes() - u64::from(FIRST_SECTOR) * 512
    }

    fn offset(&self) -> u64 {
        u64::from(FIRST_SECTOR) * 512 + self.at
    }
}

impl Read for Partition {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let len = bytes.len().min((self.len_bytes() - self.at) as usize);
        let offset = self.offset();
        self.disk.read_at(offset, &mut bytes[..len]).map_err(Error::other)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl Write for Partition {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let len = bytes.len().min((self.len_bytes() - self.at) as usize);
        let offset = self.offset();
        self.disk.write_at(offset, &bytes[..len]).map_err(Error::other)?;
        self.at += len as u64;
        Ok(len)
    }

    fn flush(&mut self) -> Result<()> {
        self.disk.flush().map_err(Error::other)
    }
}

impl Seek for Partition {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.len_bytes().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.filter(|at| *at <= self.len_bytes()).ok_or_else(|| Error::other("past the end"))?;
        Ok(self.at)
    }
}

/// A table with one partition of FAT16 that takes all that is behind it.
fn write_partition_table(disk: &mut ByteDisk<Chip>) {
    let mut sector = [0; 512];
    let sectors = (disk.capacity_bytes() / 512) as u32 - FIRST_SECTOR;
    sector[446 + 4] = 0x06;
    sector[446 + 8..][..4].copy_from_slice(&FIRST_SECTOR.to_le_bytes());
    sector[446 + 12..][..4].copy_from_slice(&sectors.to_le_bytes());
    sector[510..].copy_from_slice(&[0x55, 0xAA]);
    disk.write_at(0, &sector).unwrap();
}

fn content(file: u32, version: u32) -> Vec<u8> {
    let len = 700 + file * 911;
    (0..len).map(|byte| (byte * 7 + file * 31 + version) as u8).collect()
}

fn name(file: u32) -> String {
    format!("FILE{file}.BIN")
}

/// Writes all files, and says how many are complete: the others failed because the power did.
fn write_files(partition: &mut Partition, version: u32) -> u32 {
    let fs = FileSystem::new(partition, FsOptions::new()).unwrap();
    let folder = fs.root_dir().create_dir("DATA").unwrap();
    let mut complete = 0;
    for file in 0..FILES {
        let write = || -> Result<()> {
            let mut opened = folder.create_file(&name(file))?;
            opened.truncate()?;
            opened.write_all(&content(file, version))?;
            opened.flush()
        };
        if write().is_err() {
            break;
        }
        complete += 1;
    }
    complete
}

fn read_file(partition: &mut Partition, path: &str) -> Vec<u8> {
    let fs = FileSystem::new(partition, FsOptions::new()).unwrap();
    let mut bytes = Vec::new();
    fs.root_dir().open_file(path).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

struct Clock;

impl TimeSource for Clock {
    fn get_timestamp(&self) -> Timestamp {
        Timestamp { year_since_1970: 56, zero_indexed_month: 0, zero_indexed_day: 0, hours: 0, minutes: 0, seconds: 0 }
    }
}

#[test]
fn files_on_fat_are_whole_after_a_power_cut_for_both_crates_that_read_them() {
    let geometry = *chip().geometry();
    let mut disk = ByteDisk::new(SmallDisk::format(chip(), geometry.pages() / 5 * 4, *b"margay-fat-tests").unwrap());
    write_partition_table(&mut disk);
    let mut partition = Partition::new(disk);
    // Small clusters make it FAT16, which both know.
    format_volume(&mut partition, FormatVolumeOptions::new().bytes_per_cluster(512).fat_type(FatType::Fat16)).unwrap();
    partition.at = 0;
    assert_eq!(write_files(&mut partition, 1), FILES);

    let mut before = 1;
    for (number, operations) in [100, 431, 777, 1200].into_iter().enumerate() {
        let version = 2 + number as u32;
        partition.disk.disk_mut().device_mut().cut_at(operations, Torn::Half);
        partition.at = 0;
        let complete = write_files(&mut partition, version);
        assert!(complete < FILES, "the power did not fail in time");
        let mut chip = partition.disk.into_disk().into_device();
        chip.power_on();
        partition = Partition::new(ByteDisk::new(SmallDisk::mount(chip).unwrap()));
        for file in (0..FILES).filter(|file| *file != complete) {
            partition.at = 0;
            let expected = content(file, if file < complete { version } else { before });
            let found = read_file(&mut partition, &format!("DATA/{}", name(file)));
            assert!(found == expected, "power cut {number}: file {file} of {complete} complete ones");
        }
        // What FAT itself lost of the file that was being written is made good, so that all are of one version.
        partition.at = 0;
        assert_eq!(write_files(&mut partition, version), FILES);
        before = version;
    }

    let volumes: VolumeManager<_, _> = VolumeManager::new(SharedDisk::new(partition.disk), Clock);
    {
        let volume = volumes.open_volume(VolumeIdx(0)).unwrap();
        let root = volume.open_root_dir().unwrap();
        let folder = root.open_dir("DATA").unwrap();
        for file in 0..FILES {
            let opened = folder.open_file_in_dir(name(file).as_str(), Mode::ReadOnly).unwrap();
            let mut found = vec![0; opened.length() as usize];
            let mut len = 0;
            while !opened.is_eof() {
                len += opened.read(&mut found[len..]).unwrap();
            }
            assert!(found == content(file, before), "file {file}");
        }
        let new = root.open_file_in_dir("NEW.TXT", Mode::ReadWriteCreate).unwrap();
        new.write(b"by the other crate").unwrap();
        new.flush().unwrap();
    }
    let (shared, _) = volumes.free();
    let (chip, _) = shared.into_disk().into_disk().stop().unwrap();
    let mut partition = Partition::new(ByteDisk::new(SmallDisk::mount(chip).unwrap()));
    assert_eq!(read_file(&mut partition, "NEW.TXT"), b"by the other crate");
}
