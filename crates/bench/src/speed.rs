use margay_flash::{Geometry, Lpn};
use margay_format::Plain;
use margay_ftl::Ftl;
use margay_log::{Config, Counters, Hint, Policies};
use margay_media::NullFlash;
use margay_policy::Sizing;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::hint::black_box;
use std::time::Instant;

pub const PAGES_PER_SEGMENT: u32 = 256;
const PAGE_BYTES: u32 = 4096;
/// Spare factor of 0.10.
const RHO: f64 = 0.9;

pub fn uniform(generator: &mut Xoshiro256PlusPlus, len: u32) -> u32 {
    ((u128::from(generator.next_u64()) * u128::from(len)) >> 64) as u32
}

/// The floor, in pages per second: a bare loop with the memory traffic of a log without policies. For each page it does
/// one random read-modify-write of the map, one decrement of a valid count, and one store to the inverse map.
fn floor(segments: u32, writes: u64) -> f64 {
    let pages = segments * PAGES_PER_SEGMENT;
    let logical = (f64::from(pages) * RHO) as u32;
    let mut map: Vec<u32> = (0..logical).collect();
    let mut inverse = vec![0u32; pages as usize];
    let mut valid = vec![u32::MAX; segments as usize];
    let mut generator = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut next = 0;
    let started = Instant::now();
    for _ in 0..writes {
        let lpn = uniform(&mut generator, logical);
        let old = std::mem::replace(&mut map[lpn as usize], next);
        valid[(old / PAGES_PER_SEGMENT) as usize] -= 1;
        inverse[next as usize] = lpn;
        next = if next + 1 == pages { 0 } else { next + 1 };
    }
    let seconds = started.elapsed().as_secs_f64();
    black_box((map, inverse, valid));
    writes as f64 / seconds
}

/// A disk under uniform random writes, first warmed up, then measured.
pub struct Uniform {
    pub segments: u32,
    pub warm_up: u64,
    pub writes: u64,
}

pub struct Measured {
    pub counters: Counters,
    pub seconds: f64,
    pub bytes_per_page: f64,
}

impl Uniform {
    pub fn sizing(&self) -> Sizing {
        let exported_pages = (f64::from(self.segments * PAGES_PER_SEGMENT) * RHO) as u32;
        Sizing { segments: self.segments, data_pages: PAGES_PER_SEGMENT, exported_pages, seed: 1 }
    }
}

type Disk = Ftl<Plain<NullFlash>>;

impl Uniform {
    /// Runs the measurement; returns it with the disk.
    pub fn run(self, selection: &str, placement: &str) -> Result<(Measured, Disk), String> {
        let wrong = |error: margay_policy::SpecError| error.to_string();
        let (selection, placement) = (selection.parse().map_err(wrong)?, placement.parse().map_err(wrong)?);
        let policies = Policies::new(selection, placement, self.sizing());
        let pages = self.sizing().exported_pages;
        let geometry = Geometry::new(self.segments, PAGES_PER_SEGMENT, PAGE_BYTES).map_err(|e| e.to_string())?;
        let config = Config { low_water: 2, high_water: 2, ..Config::default() };
        let mut disk =
            Ftl::new(Plain::new(NullFlash::new(geometry)), config, policies, pages, &[]).map_err(|e| e.to_string())?;
        for lpn in 0..pages {
            disk.fill(Lpn(lpn), &[], Hint::None).map_err(|e| e.to_string())?;
        }
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(1);
        for time in 0..self.warm_up {
            disk.write(Lpn(uniform(&mut generator, pages)), &[], Hint::None, time).map_err(|e| e.to_string())?;
        }
        disk.reset_counters();
        let started = Instant::now();
        for time in 0..self.writes {
            let lpn = Lpn(uniform(&mut generator, pages));
            disk.write(lpn, &[], Hint::None, self.warm_up + time).map_err(|e| e.to_string())?;
        }
        let seconds = started.elapsed().as_secs_f64();
        let counters = disk.log().counters().clone();
        let bytes_per_page = disk.memory_bytes() as f64 / f64::from(geometry.pages());
        Ok((Measured { counters, seconds, bytes_per_page }, disk))
    }
}

/// The mean number of tree nodes that exact CAT looks at for each selection. A scan would look at every segment.
fn cat_nodes(segments: u32) -> Result<f64, String> {
    let pages = u64::from(segments) * u64::from(PAGES_PER_SEGMENT);
    let uniform = Uniform { segments, warm_up: pages.max(4_000_000), writes: 2_000_000 };
    let disk = uniform.run("cat", "m1")?.1;
    Ok(disk.log().selection().lookups_per_selection().unwrap_or(f64::NAN))
}

const PAIRS: [(&str, &str); 5] =
    [("greedy", "m1"), ("cost-benefit", "m1"), ("cat", "m1"), ("cat", "m6"), ("greedy", "dac")];

pub fn run(args: &[String]) -> Result<(), String> {
    let sizes: Vec<u32> = if args.is_empty() {
        vec![1, 4, 16, 64]
    } else {
        args.iter()
            .map(|text| text.parse().map_err(|_| format!("'{text}' is not a number of GiB")))
            .collect::<Result<_, _>>()?
    };
    println!("uniform random writes, {PAGES_PER_SEGMENT} pages of 4 KiB per segment, spare factor 0.10");
    println!(
        "{:>6} {:>22} {:>14} {:>14} {:>8} {:>7} {:>7}",
        "GiB", "policy", "M host wr/s", "M programs/s", "floor", "WA", "B/page"
    );
    for gib in sizes {
        let segments = gib
            .checked_mul(1024)
            .filter(|s| *s <= 1 << 23)
            .ok_or(format!("{gib} GiB is larger than a device can be"))?;
        let pages = u64::from(segments) * u64::from(PAGES_PER_SEGMENT);
        let bare = floor(segments, (pages * 2).clamp(20_000_000, 80_000_000));
        println!("{gib:>6} {:>22} {:>14} {:>14.1} {:>8} {:>7} {:>7}", "floor", "", bare / 1e6, "1.00", "", "");
        for (selection, placement) in PAIRS {
            // Above 64 GiB only the plain pair is run, to show that the cost of a write stays the same.
            if gib > 64 && (selection, placement) != ("greedy", "m1") {
                continue;
            }
            let uniform =
                Uniform { segments, warm_up: pages.max(4_000_000), writes: (pages / 2).clamp(4_000_000, 20_000_000) };
            let measured = uniform.run(selection, placement)?.0;
            let programs = measured.counters.programs() as f64 / measured.seconds;
            println!(
                "{gib:>6} {:>22} {:>14.2} {:>14.1} {:>8.2} {:>7.3} {:>7.1}",
                format!("{selection} + {placement}"),
                measured.counters.host_writes as f64 / measured.seconds / 1e6,
                programs / 1e6,
                programs / bare,
                measured.counters.write_amplification().unwrap_or(f64::NAN),
                measured.bytes_per_page
            );
        }
        if gib <= 64 {
            println!(
                "{gib:>6} exact CAT looks at {:.0} tree nodes per selection, of {segments} segments",
                cat_nodes(segments)?
            );
        }
    }
    Ok(())
}
