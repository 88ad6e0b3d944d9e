//! A disk in a file on a host: what the power of the host leaves of it, and calls that fail for a moment.

use margay_flash::{FlashError, Geometry, Lpn};
use margay_format::Formatted;
use margay_hybrid::{FormatOptions, Hybrid, HybridError, Mapping, NoCache, Persistence, format, open};
use margay_media::{Cached, Call, Effect, Faults, Flaky, Loss, RamFlash, Strict};

const PAGES: u32 = 20;
const PAGE_BYTES: usize = 512;
const LOG_BLOCKS: u32 = 3;
const MAPPINGS: [&str; 4] = ["bast", "fast", "fast:sequential=no", "fast:open=yes"];

type Host = Strict<Cached<Flaky<RamFlash>>>;
type Disk<'d> = Hybrid<Formatted<&'d mut Host>>;

fn geometries() -> [Geometry; 2] {
    let geometry = |segments| Geometry::new(segments, 8, PAGE_BYTES as u32).unwrap();
    [geometry(10).with_spare(256), geometry(9).byte_programmable()]
}

fn formatted(geometry: Geometry, mapping: &str, is_cached: bool) -> Host {
    let cached = Cached::new(Flaky::new(RamFlash::new(geometry)), 512);
    let mut host = Strict::new(if is_cached { cached } else { cached.write_through() });
    let (persistence, logical_pages) = (Persistence::Persistent, Some(PAGES));
    let mapping: Mapping = mapping.parse().unwrap();
    format(&mut host, &options(mapping, persistence, logical_pages)).unwrap();
    host
}

fn options(mapping: Mapping, persistence: Persistence, logical_pages: Option<u32>) -> FormatOptions {
    FormatOptions { mapping, persistence, log_blocks: LOG_BLOCKS, logical_pages, uuid: [1; 16], created_s: 0 }
}

/// Numbers that look random.
fn draws(seed: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(seed.wrapping_mul(2_654_435_761) | 1), |n| {
        Some(n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223))
    })
    .map(|n| n >> 12)
}

fn write(disk: &mut Disk<'_>, lpn: u32, number: u32) -> Result<(), HybridError> {
    let mut page = [lpn as u8; PAGE_BYTES];
    page[..4].copy_from_slice(&number.to_le_bytes());
    disk.write_alone(Lpn(lpn), &page)
}

/// Page by page the number that was written.
fn contents(disk: &mut Disk<'_>) -> Vec<Option<u32>> {
    disk.audit().unwrap();
    let number = |lpn: u32| {
        let mut page = [0; PAGE_BYTES];
        disk.read(Lpn(lpn), &mut page).unwrap()?;
        assert!(page[4..].iter().all(|byte| *byte == lpn as u8), "page {lpn} holds what was never written to it");
        Some(u32::from_le_bytes(page[..4].try_into().unwrap()))
    };
    (0..PAGES).map(number).collect()
}

fn crash(host: &mut Host, loss: Loss, seed: u64) {
    host.inner_mut().crash(loss, seed);
    host.look_again();
}

#[test]
fn after_a_host_has_lost_its_power_the_disk_is_as_it_was_after_some_write_since_the_last_flush() {
    let losses = [Loss::Versions, Loss::Units { survive_percent: 50 }, Loss::OnlyErases, Loss::OnlySpares];
    for (geometry, mapping) in geometries().into_iter().flat_map(|shape| MAPPINGS.map(|mapping| (shape, mapping))) {
        for seed in 0..60 {
            let mut host = formatted(geometry, mapping, true);
            let mut disk = open(&mut host).unwrap();
            let mut states = vec![vec![None; PAGES as usize]];
            for (number, draw) in (0..).zip(draws(seed)).take(60 + seed as usize) {
                write(&mut disk, draw % PAGES, number).unwrap();
                let mut state = states[states.len() - 1].clone();
                state[(draw % PAGES) as usize] = Some(number);
                states.push(state);
                if draw % 37 == 0 {
                    disk.sync().unwrap();
                    states.drain(..states.len() - 1);
                }
            }
            drop(disk);
            crash(&mut host, losses[seed as usize % losses.len()], seed.into());
            let mut disk = open(&mut host).unwrap();
            let found = contents(&mut disk);
            assert!(states.contains(&found), "{mapping} {seed}: {found:?} was never so");
            // What was found is there for good, and the disk can be written on.
            drop(disk);
            crash(&mut host, Loss::Versions, seed.into());
            let mut disk = open(&mut host).unwrap();
            assert_eq!(contents(&mut disk), found, "{mapping} {seed}");
            for lpn in 0..PAGES {
                write(&mut disk, lpn, 1000 + lpn).unwrap();
            }
            disk.sync().unwrap();
            drop(disk);
            crash(&mut host, Loss::Everything, 0);
            let all: Vec<_> = (0..PAGES).map(|lpn| Some(1000 + lpn)).collect();
            assert_eq!(contents(&mut open(&mut host).unwrap()), all, "{mapping} {seed}");
        }
    }
}

/// Writes until the disk takes it, a few times at the most.
fn write_again(disk: &mut Disk<'_>, lpn: u32, number: u32) {
    let mut result = Ok(());
    for _ in 0..5 {
        result = write(disk, lpn, number);
        match result {
            Ok(()) => return,
            Err(HybridError::Flash(FlashError::Io { .. })) => disk.audit().unwrap(),
            Err(_) => break,
        }
    }
    panic!("page {lpn} cannot be written: {result:?}");
}

/// All kinds of devices and mappings.
fn setups() -> impl Iterator<Item = (Geometry, &'static str, bool)> {
    let mappings = |geometry| MAPPINGS.map(|mapping| (geometry, mapping));
    let cached = |(geometry, mapping)| [(geometry, mapping, false), (geometry, mapping, true)];
    geometries().into_iter().flat_map(mappings).flat_map(cached)
}

fn flaky<'a>(disk: &'a mut Disk<'_>) -> &'a mut Flaky<RamFlash> {
    disk.store_mut().device_mut().inner_mut().inner_mut()
}

#[test]
fn a_call_that_fails_for_a_moment_loses_no_page_and_no_segment() {
    let faults = [Call::Read, Call::Program, Call::Erase].map(|call| Effect::ALL.map(|effect| (call, effect))).concat();
    for (geometry, mapping, is_cached) in setups() {
        for (call, effect) in faults.iter().copied() {
            for at in (0..).step_by(7) {
                let what = format!("{mapping} {is_cached} {call:?} {effect:?} {at}");
                let mut host = formatted(geometry, mapping, is_cached);
                let mut disk = open(&mut host).unwrap();
                let mut expected = vec![None; PAGES as usize];
                for (number, draw) in (0..).zip(draws(3)).take(110) {
                    if number == 30 {
                        flaky(&mut disk).fail(call, at..at + 1 + at % 3, effect, 28);
                    }
                    write_again(&mut disk, draw % PAGES, number);
                    expected[(draw % PAGES) as usize] = Some(number);
                }
                let is_reached = flaky(&mut disk).errors() > 0;
                flaky(&mut disk).heal();
                assert_eq!(contents(&mut disk), expected, "{what}");
                disk.sync().unwrap();
                assert_eq!(disk.counters().retired_segments, 0, "{what}");
                drop(disk);
                crash(&mut host, Loss::Everything, 0);
                assert_eq!(contents(&mut open(&mut host).unwrap()), expected, "{what}");
                if !is_reached {
                    break;
                }
            }
        }
    }
}

#[test]
fn erases_that_fail_now_and_then_lose_no_page_and_no_segment() {
    // More segments than are needed: the same may fail three times.
    let geometry = Geometry::new(12, 8, PAGE_BYTES as u32).unwrap().with_spare(256);
    let mut host = formatted(geometry, "fast", true);
    let mut disk = open(&mut host).unwrap();
    let mut expected = vec![None; PAGES as usize];
    let mut failing = 0;
    for (number, draw) in (0..).zip(draws(5)).take(600) {
        // Every third erase fails.
        let erases = flaky(&mut disk).calls(Call::Erase);
        if erases.is_multiple_of(3) && erases > failing {
            failing = erases;
            flaky(&mut disk).fail(Call::Erase, 0..1, Effect::HalfDone, 5);
        }
        write_again(&mut disk, draw % PAGES, number);
        expected[(draw % PAGES) as usize] = Some(number);
    }
    flaky(&mut disk).heal();
    assert!(flaky(&mut disk).errors() > 20);
    assert_eq!(contents(&mut disk), expected);
}

#[test]
fn a_page_of_a_swap_store_whose_write_failed_is_an_error_until_it_is_written() {
    let geometry = Geometry::new(10, 8, PAGE_BYTES as u32).unwrap().with_spare(256);
    let mut host = Strict::new(Cached::new(Flaky::new(RamFlash::new(geometry)), 512).write_through());
    let options = options(Mapping::Bast, Persistence::Volatile, Some(PAGES));
    let mut disk = format(&mut host, &options).unwrap();
    write(&mut disk, 3, 1).unwrap();
    flaky(&mut disk).fail(Call::Program, 0..1, Effect::NotDone, 28);
    assert_eq!(write(&mut disk, 3, 2), Err(FlashError::Io { code: 28 }.into()));
    let mut page = [0; PAGE_BYTES];
    assert_eq!(disk.read(Lpn(3), &mut page), Err(HybridError::NotWritten { lpn: Lpn(3) }));
    write(&mut disk, 3, 2).unwrap();
    assert_eq!(contents(&mut disk)[3], Some(2));
    // A page that there was no copy of is none either.
    flaky(&mut disk).fail(Call::Program, 0..1, Effect::NotDone, 28);
    assert!(write(&mut disk, 4, 3).is_err());
    assert_eq!(disk.read(Lpn(4), &mut page), Ok(None));
    disk.discard(Lpn(3), &mut NoCache).unwrap();
    assert_eq!(disk.read(Lpn(3), &mut page), Ok(None));
}

#[test]
fn a_mount_does_not_use_a_segment_again_that_was_retired() {
    for mapping in MAPPINGS {
        for at in 0..25 {
            // Two segments more than are needed.
            let geometry = Geometry::new(12, 8, PAGE_BYTES as u32).unwrap().with_spare(256);
            let mut device = Faults::new(Strict::new(RamFlash::new(geometry)), 4);
            let options = options(mapping.parse().unwrap(), Persistence::Persistent, Some(PAGES));
            let mut disk = format(&mut device, &options).unwrap();
            disk.store_mut().device_mut().fail_program(at);
            let mut retired = Vec::new();
            let mut expected = vec![None; PAGES as usize];
            for life in 0..4 {
                if life == 2 {
                    // Another segment fails while the list is there.
                    disk.store_mut().device_mut().fail_program(at);
                }
                for (number, draw) in (life * 200..).zip(draws(life + 1)).take(200) {
                    let mut page = [1; PAGE_BYTES];
                    page[..4].copy_from_slice(&number.to_le_bytes());
                    disk.write_alone(Lpn(draw % PAGES), &page).unwrap();
                    expected[(draw % PAGES) as usize] = Some(number);
                }
                disk.sync().unwrap();
                disk.audit().unwrap();
                retired = disk.retired_segments().to_vec();
                assert_eq!(retired.len(), if life < 2 { 1 } else { 2 }, "{mapping} {at} {life}");
                drop(disk);
                disk = open(&mut device).unwrap();
                assert_eq!(disk.retired_segments(), retired, "{mapping} {at} {life}");
                assert_eq!(disk.mount_report().retired_segments as usize, retired.len());
                disk.audit().unwrap();
                for (lpn, number) in (0..).zip(&expected) {
                    let mut page = [0; PAGE_BYTES];
                    let found = disk.read(Lpn(lpn), &mut page).unwrap();
                    let found = found.map(|_| u32::from_le_bytes(page[..4].try_into().unwrap()));
                    assert_eq!(found, *number, "{mapping} {at} {life} page {lpn}");
                }
            }
            assert_eq!(retired.len(), 2);
        }
    }
}

#[test]
fn a_store_that_is_worn_out_says_of_all_segments_that_have_failed_how_many_they_are_after_a_mount_too() {
    let geometry = Geometry::new(14, 8, PAGE_BYTES as u32).unwrap().with_spare(256);
    let mut device = Faults::new(Strict::new(RamFlash::new(geometry)), 4);
    let options = options("bast".parse().unwrap(), Persistence::Persistent, Some(PAGES));
    let mut disk = format(&mut device, &options).unwrap();
    let write = |disk: &mut Hybrid<Formatted<&mut Faults<_>>>| {
        draws(7).take(400).try_for_each(|draw| disk.write_alone(Lpn(draw % PAGES), &[1; PAGE_BYTES]))
    };
    disk.store_mut().device_mut().fail_erase(0);
    write(&mut disk).unwrap();
    drop(disk);
    disk = open(&mut device).unwrap();
    (0..13).for_each(|at| disk.store_mut().device_mut().fail_erase(at));
    let error = write(&mut disk).unwrap_err();
    let retired_segments = disk.retired_segments().len() as u32;
    assert_eq!(error, HybridError::WornOut { retired_segments });
    assert_eq!(retired_segments, 1 + disk.counters().retired_segments, "one had failed before the mount");
}
