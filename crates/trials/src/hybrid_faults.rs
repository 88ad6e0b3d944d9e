//! Bad segments, bit errors and damaged metadata under hybrid-mapped disks.

use crate::faults::LifeEnd;
use crate::hybrid::{PAGE_BYTES, PAGES, check, options, ram, run, steps};
use crate::{Chip, Oracle, Step, Tally};
use margay_flash::{Flash, FlashError, Geometry, Lpn, Ppn};
use margay_format::{Formatted, Layout, shown_geometry};
use margay_hybrid::{Hybrid, HybridError, Mapping, OpenError, format, open};
use margay_media::{Damage, Faults, RamFlash, Strict};

/// Bits that the ECC of the trials corrects.
const ECC_BITS: u32 = 4;

type Device = Faults<Strict<RamFlash>>;
type Disk<'d> = Hybrid<Formatted<&'d mut Device>>;

fn text<T>(what: &str, result: Result<T, impl std::fmt::Display>) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {error}"))
}

fn device(chip: Chip, spare_segments: u32) -> Device {
    Faults::new(ram(chip, spare_segments), ECC_BITS)
}

fn every_page() -> impl Iterator<Item = Step> {
    (0..PAGES).map(|lpn| Step::Write(lpn, false))
}

/// Whether a page is lost, and not the whole disk.
fn is_unreadable(error: &HybridError) -> bool {
    use FlashError::{Corrupt, Lost, Uncorrectable};
    matches!(error, HybridError::Flash(Uncorrectable { .. } | Lost { .. } | Corrupt { .. }))
}

/// Checks every page that can be read. Returns those that cannot.
fn check_readable<F: Flash>(
    disk: &mut Hybrid<Formatted<F>>,
    oracle: &mut Oracle,
    when: &str,
) -> Result<Vec<u32>, String> {
    text(when, disk.audit())?;
    let read = |lpn, page: &mut [u8]| match disk.read(lpn, page) {
        Ok(found) => Ok(Some(found.is_some())),
        Err(error) if is_unreadable(&error) => Ok(None),
        Err(error) => Err(error.to_string()),
    };
    text(when, oracle.check_readable_pages(PAGE_BYTES, read))
}

/// Lets every `stride`-th program and every `stride`-th erase of a script fail, with a second failure soon after, on
/// a device with two spare segments: the disk must go on, and hold everything after a mount too.
pub fn hybrid_bad_segments(chip: Chip, mapping: Mapping, seed: u64, len: usize, stride: u64) -> Tally {
    let mut tally = Tally::default();
    let steps = steps(len, seed);
    type Fail = fn(&mut Device, u64);
    let kinds: [(&str, Fail); 2] =
        [("program", |device, at| device.fail_program(at)), ("erase", |device, at| device.fail_erase(at))];
    for (kind, fail) in kinds {
        for second in [None, Some(1), Some(5)] {
            for at in (0..).step_by(stride as usize) {
                let mut reached = false;
                let trial = || -> Result<(), String> {
                    let mut device = device(chip, 2);
                    let mut oracle = Oracle::new(PAGES);
                    let mut disk = format(&mut device, &options(mapping)).map_err(|error| error.to_string())?;
                    drop(disk);
                    let before = device.operations();
                    fail(&mut device, at);
                    if let Some(second) = second {
                        fail(&mut device, at + second);
                    }
                    for (life, when) in ["first mount", "second mount", "third mount"].into_iter().enumerate() {
                        disk = open(&mut device).map_err(|error| format!("{when}: {error}"))?;
                        check(&mut disk, &mut oracle, when)?;
                        if life < 2 {
                            run(&mut disk, &mut oracle, &steps).map_err(|error| format!("{when}: {error}"))?;
                            check(&mut disk, &mut oracle, when)?;
                        }
                        drop(disk);
                    }
                    let after = device.operations();
                    let done = if kind == "program" { after.0 - before.0 } else { after.1 - before.1 };
                    reached = done > at;
                    Ok(())
                };
                let mut trial = trial;
                let result = trial();
                let failed = result.is_err();
                tally.count(result, || format!("{chip:?} {mapping} {kind} {at}, then {second:?}"));
                if !reached && !failed || tally.failures.len() > 100 {
                    break;
                }
            }
        }
    }
    tally
}

/// Wears a device out: writes until it refuses, in many lives that end by kills if the seed is even; then, and after a
/// mount, everything must be readable.
pub fn hybrid_wear_out(chip: Chip, mapping: Mapping, seed: u64) -> Tally {
    let mut tally = Tally::default();
    let result = wear_out_trial(chip, mapping, seed);
    tally.count(result, || format!("{chip:?} {mapping} worn out, seed {seed}"));
    tally
}

fn wear_out_trial(chip: Chip, mapping: Mapping, seed: u64) -> Result<(), String> {
    let mut device = device(chip, 2);
    device.wear_out_after(12);
    let mut oracle = Oracle::new(PAGES);
    let mut disk = text("format", format(&mut device, &options(mapping)))?;
    let mut round = 0;
    let error = loop {
        if let Err(error) = run(&mut disk, &mut oracle, &steps(100, seed << 10 | round)) {
            break error;
        }
        if LifeEnd::after(round, seed) != LifeEnd::GoesOn {
            drop(disk);
            disk = text("mount after a kill", open(&mut device))?;
            check(&mut disk, &mut oracle, &format!("life {round}"))?;
        }
        round += 1;
        if round == 1000 {
            return Err("it never wore out".into());
        }
    };
    if !matches!(error, HybridError::WornOut { .. }) {
        return Err(format!("refused with: {error}"));
    }
    check(&mut disk, &mut oracle.clone(), "worn out")?;
    drop(disk);
    for when in ["worn out, after a mount", "worn out, after two mounts"] {
        let mut disk = text(when, open(&mut device))?;
        check(&mut disk, &mut oracle, when)?;
        text(when, disk.sync())?;
    }
    Ok(())
}

/// Bit errors in data that is in use: as many as the ECC corrects change nothing; with one more the page is an error,
/// also after merges have moved it and after a mount, until it is written anew. Every other page stays as it was.
pub fn hybrid_bit_errors(chip: Chip, mapping: Mapping, seed: u64) -> Tally {
    let mut tally = Tally::default();
    for lpn in 0..PAGES {
        for bits in [1, ECC_BITS, ECC_BITS + 1] {
            let result = bit_error_trial(chip, mapping, seed, lpn, bits);
            tally.count(result, || format!("{chip:?} {mapping} page {lpn} with {bits} flipped bits"));
        }
    }
    tally
}

fn bit_error_trial(chip: Chip, mapping: Mapping, seed: u64, lpn: u32, bits: u32) -> Result<(), String> {
    let mut device = device(chip, 0);
    let mut oracle = Oracle::new(PAGES);
    let mut disk = text("format", format(&mut device, &options(mapping)))?;
    let before: Vec<_> = every_page().chain(steps(60, seed)).chain([Step::Write(lpn, false)]).collect();
    text("script", run(&mut disk, &mut oracle, &before))?;
    let ppn = disk.place(Lpn(lpn)).ok_or("a page that was written has a place")?;
    disk.store_mut().device_mut().flip_bits(chip.data_page(ppn), bits);
    let is_lost = bits > ECC_BITS;
    let others: Vec<_> = steps(200, seed ^ 5)
        .into_iter()
        .filter(|step| !is_lost || !matches!(step, Step::Write(other, _) if *other == lpn))
        .collect();
    let expected = if is_lost { vec![lpn] } else { Vec::new() };
    let expect_lost = |disk: &mut Disk<'_>, oracle: &mut Oracle, when: &str| {
        let lost = check_readable(disk, oracle, when)?;
        if lost == expected { Ok(()) } else { Err(format!("{when}: pages {lost:?} cannot be read, not {expected:?}")) }
    };
    expect_lost(&mut disk, &mut oracle, "at once")?;
    text("writing others", run(&mut disk, &mut oracle, &others))?;
    expect_lost(&mut disk, &mut oracle, "after writing others")?;
    drop(disk);
    let mut disk = text("mount", open(&mut device))?;
    expect_lost(&mut disk, &mut oracle, "after a mount")?;
    text("writing it anew", run(&mut disk, &mut oracle, &[Step::Write(lpn, false), Step::Flush]))?;
    check(&mut disk, &mut oracle, "after writing it anew")?;
    drop(disk);
    check(&mut text("mount", open(&mut device))?, &mut oracle, "after the second mount")
}

/// A device that was used, not stopped, and what is on it: with every page written and merges behind it, or begun.
fn used(chip: Chip, mapping: Mapping, seed: u64, is_full: bool) -> (Device, Oracle) {
    let mut device = device(chip, 0);
    let mut oracle = Oracle::new(PAGES);
    let mut disk = format(&mut device, &options(mapping)).expect("format");
    let mut script: Vec<_> = every_page().filter(|_| is_full).collect();
    script.extend(steps(if is_full { 200 } else { 30 }, seed));
    script.push(Step::Flush);
    run(&mut disk, &mut oracle, &script).expect("script");
    drop(disk);
    (device, oracle)
}

/// Makes every `stride`-th page of the chip unreadable, with its tag, while the disk is not in use: the page it holds
/// is an error. Where a power cut might have left the same, and only there, it may be an older version, and the disk
/// says so. No other page changes, and the disk can be written over and mounted again.
pub fn hybrid_unreadable_pages(chip: Chip, mapping: Mapping, seed: u64, stride: usize) -> Tally {
    let mut tally = Tally::default();
    for is_full in [false, true] {
        let (device, oracle) = used(chip, mapping, seed, is_full);
        let geometry = *device.geometry();
        let header_pages = layout(&geometry).header_pages;
        let is_data = |ppn: &Ppn| geometry.page_in_segment(*ppn) >= header_pages;
        for ppn in (0..geometry.pages()).map(Ppn).filter(is_data).skip(seed as usize % stride).step_by(stride) {
            for bits in [ECC_BITS, ECC_BITS + 1] {
                let mut damaged = device.clone();
                damaged.flip_bits(ppn, bits);
                let has_superblock = ppn == Ppn(0) && chip != Chip::Nor;
                let result = match open(&mut damaged) {
                    // There is one copy of it.
                    Err(OpenError::Find(_)) if has_superblock && bits > ECC_BITS => Ok(None),
                    Err(error) => Err(format!("mount: {error}")),
                    Ok(disk) => unreadable_trial(disk, oracle.clone(), seed, usize::from(bits > ECC_BITS)),
                };
                let result = result.and_then(|oracle| match oracle {
                    Some(mut oracle) => check(&mut text("mount", open(&mut damaged))?, &mut oracle, "mounted again"),
                    None => Ok(()),
                });
                tally
                    .count(result, || format!("{chip:?} {mapping} full={is_full} page {ppn} with {bits} flipped bits"));
            }
        }
    }
    tally
}

/// Checks a disk of which so many pages are unreadable, and writes it over.
fn unreadable_trial(
    mut disk: Disk<'_>,
    mut oracle: Oracle,
    seed: u64,
    max_unreadable: usize,
) -> Result<Option<Oracle>, String> {
    let doubtful = disk.mount_report().doubtful_programs as usize;
    if doubtful > max_unreadable {
        return Err(format!("{doubtful} programs are doubtful, {max_unreadable} pages are unreadable"));
    }
    let older = older_pages(&mut disk, &oracle)?;
    if older.len() > doubtful {
        return Err(format!("{older:?} are older, and {doubtful} programs are doubtful"));
    }
    older.iter().for_each(|(lpn, version)| oracle.went_back(*lpn, *version));
    let lost = check_readable(&mut disk, &mut oracle, "after a mount")?;
    if lost.len() + older.len() > max_unreadable {
        return Err(format!("pages {lost:?} were lost and {older:?} are older"));
    }
    text("writing", run(&mut disk, &mut oracle, &steps(100, seed ^ 7)))?;
    let still = check_readable(&mut disk, &mut oracle, "after writing")?;
    if still.iter().any(|lpn| !lost.contains(lpn)) {
        return Err(format!("pages {still:?} were lost by writing"));
    }
    let everything: Vec<_> = every_page().chain([Step::Flush]).collect();
    text("writing everything", run(&mut disk, &mut oracle, &everything))?;
    check(&mut disk, &mut oracle, "after writing everything")?;
    Ok(Some(oracle))
}

/// Pages that are older than the last write, and their versions. Whether they hold what they should is not checked.
fn older_pages(disk: &mut Disk<'_>, oracle: &Oracle) -> Result<Vec<(u32, Option<u64>)>, String> {
    let mut older = Vec::new();
    let mut page = [0; PAGE_BYTES];
    for lpn in 0..PAGES {
        let version = match disk.read(Lpn(lpn), &mut page) {
            Ok(found) => found.map(|_| u64::from_le_bytes(page[..8].try_into().expect("8 bytes"))),
            Err(error) if is_unreadable(&error) => continue,
            Err(error) => return Err(error.to_string()),
        };
        if version < oracle.newest(lpn) {
            older.push((lpn, version));
        }
    }
    Ok(older)
}

/// Flips, one after the other, every `stride`-th bit of what the format keeps beside data, and mounts: nothing may
/// be lost or wrong.
pub fn hybrid_metadata_flips(chip: Chip, mapping: Mapping, seed: u64, stride: usize) -> Tally {
    let mut tally = Tally::default();
    for is_full in [false, true] {
        let (device, oracle) = used(chip, mapping, seed, is_full);
        let bits = metadata_bits(chip, device.geometry());
        for (ppn, bit) in bits.skip(seed as usize % stride).step_by(stride) {
            let mut damaged = device.clone();
            damaged.page_bytes_mut(ppn)[bit / 8] ^= 1 << (bit % 8);
            let mut oracle = oracle.clone();
            let result =
                text("mount", open(&mut damaged)).and_then(|mut disk| check(&mut disk, &mut oracle, "after a mount"));
            tally.count(result, || format!("{chip:?} {mapping} full={is_full} bit {bit} of page {ppn}"));
        }
    }
    tally
}

fn layout(geometry: &Geometry) -> Layout {
    Layout::new(&shown_geometry(geometry), PAGES.into()).expect("the layout fits")
}

/// Page by page the bits of a chip that hold no data of the host.
fn metadata_bits(chip: Chip, geometry: &Geometry) -> impl Iterator<Item = (Ppn, usize)> {
    let (geometry, layout) = (*geometry, layout(geometry));
    let page_bits = geometry.page_bytes() as usize * 8;
    let end = page_bits + geometry.spare_bytes() as usize * 8;
    (0..geometry.pages()).map(Ppn).flat_map(move |ppn| {
        let is_metadata = geometry.page_in_segment(ppn) < layout.header_pages
            || chip == Chip::Pairs && ppn.0 % 2 == 1
            || geometry.segment_of(ppn).0 < layout.reserved_segments;
        (if is_metadata { 0 } else { page_bits }..end).map(move |bit| (ppn, bit))
    })
}
