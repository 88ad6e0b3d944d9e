//! A disk in a file on a host: what the power of the host leaves of it, and calls that fail for a moment.

use margay_flash::{Geometry, Lpn};
use margay_format::Formatted;
use margay_hybrid::{FormatOptions, Hybrid, HybridError, Mapping, Persistence, format, open};
use margay_media::{Cached, Flaky, Loss, RamFlash, Strict};

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
    let options =
        FormatOptions { mapping, persistence, log_blocks: LOG_BLOCKS, logical_pages, uuid: [1; 16], created_s: 0 };
    format(&mut host, &options).unwrap();
    host
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
    host.look_again().unwrap();
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
