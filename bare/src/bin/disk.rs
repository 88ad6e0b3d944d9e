//! A disk on a chip: formatted, overwritten many times, stopped and mounted, cut off at many points and mounted, and read each
//! time. In use it must allocate nothing.
#![no_std]
#![no_main]
extern crate alloc;

use alloc::string::String;
use alloc::{format, vec};
use margay_bare::chip::{self, Chip, PAGE_BYTES};
use margay_bare::{Random, Row, check_nothing_allocated, heap, text};
use margay_flash::{Flash, FlashError, Geometry};
use margay_ftl::FtlError;
use margay_log::LogError;
use margay_micro::{DiskError, SmallDisk};

margay_bare::entry!(run);

/// Power cuts on the smallest chip.
const CUTS: u32 = 60;

type Disk<'a, 'b> = SmallDisk<&'a mut Chip<'b>>;

/// 80 % of the chip is exported.
fn exported_pages(geometry: &Geometry) -> u32 {
    geometry.pages() / 5 * 4
}

/// Fails unless it is mounted from a checkpoint, or by looking into every segment, as it should be.
fn mount<'a, 'b>(chip: &'a mut Chip<'b>, from_checkpoint: bool) -> Result<Disk<'a, 'b>, String> {
    let disk = SmallDisk::mount(chip).map_err(text)?;
    match disk.mount_report().from_checkpoint == from_checkpoint {
        true => Ok(disk),
        false => Err(format!("mounted from a checkpoint: {}, not as expected", !from_checkpoint)),
    }
}

/// Overwrites random pages, as many as there are, and trims one in eight.
fn overwrite(disk: &mut Disk<'_, '_>, versions: &mut [u16], seed: u32) -> Result<(), String> {
    let (mut random, before) = (Random::new(seed), heap::allocations());
    for _ in 0..versions.len() {
        let lpn = random.below(versions.len() as u32);
        if random.below(8) == 0 {
            versions[lpn as usize] = 0;
            disk.trim(lpn).map_err(text)?;
            continue;
        }
        versions[lpn as usize] = seed as u16;
        disk.write(lpn, &content(lpn, seed as u16)).map_err(text)?;
    }
    disk.flush().map_err(text)?;
    while disk.idle(8).map_err(text)? {}
    check_nothing_allocated(before, "writing, trimming, flushing and cleaning")
}

fn check(disk: &mut Disk<'_, '_>, versions: &[u16]) -> Result<(), String> {
    let (mut page, before) = ([0; PAGE_BYTES], heap::allocations());
    for (lpn, version) in (0..).zip(versions) {
        let found = disk.read(lpn, &mut page).map_err(text)?;
        if found != (*version > 0) || (found && page != content(lpn, *version)) {
            return Err(format!("page {lpn} does not hold its version {version}: found {found}"));
        }
    }
    check_nothing_allocated(before, "reading")?;
    disk.audit().map_err(text)
}

fn content(lpn: u32, version: u16) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    Random::new(lpn << 16 ^ u32::from(version)).fill(&mut page);
    page
}

/// Writes until the power fails in the middle of an operation; then what was written before is there, and of the page that was
/// being written the old or the new version.
fn cut_and_mount(chip: &mut Chip<'_>, versions: &mut [u16], cut: u32) -> Result<(), String> {
    let mut random = Random::new(1000 + cut);
    let mut disk = SmallDisk::mount(&mut *chip).map_err(text)?;
    disk.device_mut().cut_after(1 + random.below(60));
    let torn = loop {
        let lpn = random.below(versions.len() as u32);
        let version = 1000 + cut as u16;
        match disk.write(lpn, &content(lpn, version)) {
            Ok(()) => versions[lpn as usize] = version,
            Err(DiskError::Disk(FtlError::Log(LogError::Flash(FlashError::PowerLost)))) => break (lpn, version),
            Err(error) => return Err(text(error)),
        }
    };
    drop(disk);
    chip.power_on();
    let mut disk = mount(chip, false)?;
    let (lpn, version) = torn;
    let mut page = [0; PAGE_BYTES];
    if disk.read(lpn, &mut page).map_err(text)? && page == content(lpn, version) {
        versions[lpn as usize] = version;
    }
    check(&mut disk, versions)
}

fn run() -> Result<(), String> {
    let memory = chip::take().expect("nobody else asks for the memory");
    for mib in [1, 16] {
        let chip = &mut Chip::new(memory, mib);
        let exported = exported_pages(chip.geometry());
        let mut versions = vec![0; exported as usize];
        let mut row = Row::start();
        let mut disk = SmallDisk::format(&mut *chip, exported, *b"margay-bare-demo").map_err(text)?;
        for seed in 1..4 {
            overwrite(&mut disk, &mut versions, seed)?;
        }
        row.end(0);
        check(&mut disk, &versions)?;
        row.resume();
        disk.end().map_err(text)?;
        row.end(1);
        drop(disk);
        let mut disk = mount(chip, true)?;
        row.end(2);
        check(&mut disk, &versions)?;
        overwrite(&mut disk, &mut versions, 4)?;
        // The power is cut.
        drop(disk);
        row.end(3);
        let mut disk = mount(chip, false)?;
        row.end(3);
        check(&mut disk, &versions)?;
        drop(disk);
        if mib == 1 {
            (0..CUTS).try_for_each(|cut| {
                cut_and_mount(chip, &mut versions, cut).map_err(|error| format!("power cut {cut}: {error}"))
            })?;
        }
        row.print("disk", mib);
    }
    Ok(())
}
