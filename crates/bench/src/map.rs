//! `margay-bench map [TRACE...]`: what it costs that the map is on flash, by the memory that it has: on 1 GiB of NAND that is
//! filled first, under traces whose addresses are folded onto the disk, and under random overwrites.

use margay_flash::Geometry;
use margay_log::Hint;
use margay_media::{Meter, SparseFlash};
use margay_trace::{IoKind, ReadOptions};
use margay_volume::{Disk, FormatOptions, MapOnFlash};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::path::Path;

const SEGMENTS: u32 = 4096;
const PAGES_PER_SEGMENT: u32 = 64;
const PAGE_BYTES: u32 = 4096;
/// Exported pages, of a hundred.
const PERCENT: u32 = 85;
/// Page operations of a run; a trace is repeated until there were as many.
const OPERATIONS: usize = 250_000;
/// Times of an SLC chip, in microseconds.
const READ_US: f64 = 25.0;
const PROGRAM_US: f64 = 200.0;
const ERASE_US: f64 = 1500.0;
/// KiB of memory for the map; 0 stands for the least that there can be.
const MEMORY_KIB: [u64; 5] = [0, 32, 64, 256, 1024];

type Error = Box<dyn std::error::Error>;

/// Page operations, and whether each is a write.
type Load = Vec<(u32, bool)>;

fn geometry() -> Result<Geometry, Error> {
    Ok(Geometry::new(SEGMENTS, PAGES_PER_SEGMENT, PAGE_BYTES)?.with_spare(256))
}

fn random(pages: u32) -> Load {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut below = |limit: u32| ((u128::from(random.next_u64()) * u128::from(limit)) >> 64) as u32;
    (0..OPERATIONS).map(|_| (below(pages), true)).collect()
}

fn trace(path: &Path, pages: u32) -> Result<Load, Error> {
    let mut load = Load::new();
    for request in margay_trace::open(path, &ReadOptions::default())? {
        let request = request?;
        let is_write = match request.kind {
            IoKind::Write => true,
            IoKind::Read => false,
            IoKind::Trim | IoKind::Flush => continue,
        };
        let page = u64::from(PAGE_BYTES);
        let (first, end) = (request.offset_bytes / page, (request.offset_bytes + request.len_bytes).div_ceil(page));
        load.extend((first..end).map(|at| ((at % u64::from(pages)) as u32, is_write)));
        if load.len() >= OPERATIONS {
            break;
        }
    }
    Ok(load)
}

/// Runs a load and prints a row of the table.
fn run_one(name: &str, load: &Load, map: Option<MapOnFlash>) -> Result<(), Error> {
    let defaults = FormatOptions::with_map(map.unwrap_or(MapOnFlash::new(0)));
    let exported_pages = Some((u64::from(SEGMENTS * PAGES_PER_SEGMENT) * u64::from(PERCENT) / 100) as u32);
    let mut options = FormatOptions { exported_pages, map, ..defaults };
    if map.is_some_and(|map| map.memory_bytes == 0) {
        options.map = Some(MapOnFlash::new(margay_volume::min_map_memory_bytes(&geometry()?, &options)?));
    }
    let mut disk = Disk::format(Meter::new(SparseFlash::new(geometry()?)), &options)?;
    let mut page = vec![0; PAGE_BYTES as usize];
    for lpn in 0..disk.superblock().exported_pages {
        disk.write(lpn, &page, Hint::None, 0)?;
    }
    let operations = || load.iter().cycle().take(OPERATIONS);
    // Once to settle, and once to be measured.
    for is_measured in [false, true] {
        if is_measured {
            disk.reset_counters();
        }
        let before = disk.device_mut().operations();
        for (number, (lpn, is_write)) in (1..).zip(operations()) {
            match is_write {
                true => disk.write(*lpn, &page, Hint::None, number * 100)?,
                false => drop(disk.read(*lpn, &mut page)?),
            }
        }
        if is_measured {
            let after = disk.device_mut().operations();
            let ftl = disk.ftl();
            let counters = ftl.log().counters();
            let (held, map) = ftl.map_on_flash().unwrap_or((ftl.memory_bytes(), Default::default()));
            let writes = counters.host_writes.max(1) as f64;
            let us = (after.reads - before.reads) as f64 * READ_US
                + (after.programs - before.programs) as f64 * PROGRAM_US
                + (after.erases - before.erases) as f64 * ERASE_US;
            let kind = if options.map.is_some() { format!("{:.0} KiB", held as f64 / 1024.0) } else { "all".into() };
            let hits = 100.0 * (1.0 - map.misses as f64 / map.lookups.max(1) as f64);
            println!(
                "| {name} | {kind} | {:.0} KiB | {:.3} | {:.3} | {:.3} | {:.3} | {} | {} | {:.0} |",
                ftl.memory_bytes() as f64 / 1024.0,
                counters.programs() as f64 / writes,
                map.writes as f64 / writes,
                map.reads as f64 / OPERATIONS as f64,
                counters.tag_reads as f64 / writes,
                if options.map.is_some() { format!("{hits:.1} %") } else { "".into() },
                counters.max_pages_of_a_write,
                OPERATIONS as f64 * 1e6 / us,
            );
        }
    }
    disk.audit()?;
    Ok(())
}

fn run_all(traces: &[String]) -> Result<(), Error> {
    let pages = (u64::from(SEGMENTS * PAGES_PER_SEGMENT) * u64::from(PERCENT) / 100) as u32;
    println!("1 GiB of NAND, {PERCENT} % exported; cost-benefit + sepgc; {OPERATIONS} page operations after as many\n");
    println!(
        "| load | memory for the map | with what is kept for pages | WA | translation pages written per host write | read per operation | tags read per host write | found in memory | most pages for a write | operations per second |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut loads = vec![("random writes".to_string(), random(pages))];
    for path in traces {
        let path = Path::new(path);
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        loads.push((name.split('.').next().unwrap_or_default().to_string(), trace(path, pages)?));
    }
    for (name, load) in loads.iter().filter(|(_, load)| !load.is_empty()) {
        for kib in MEMORY_KIB {
            run_one(name, load, Some(MapOnFlash::new(kib << 10)))?;
        }
        run_one(name, load, None)?;
    }
    Ok(())
}

pub fn run(traces: &[String]) -> Result<(), String> {
    run_all(traces).map_err(|error| error.to_string())
}
