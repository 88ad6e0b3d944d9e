use margay_flash::{Geometry, Lpn};
use margay_format::Plain;
use margay_ftl::Ftl;
use margay_log::{Config, Hint, Policies};
use margay_media::NullFlash;
use margay_policy::Sizing;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::hint::black_box;
use std::sync::LazyLock;
use std::time::Instant;

pub const PAGES_PER_SEGMENT: u32 = 256;
const PAGE_BYTES: u32 = 4096;
/// Spare factor of 0.10.
const RHO: f64 = 0.9;

pub fn uniform(generator: &mut Xoshiro256PlusPlus, len: u32) -> u32 {
    ((u128::from(generator.next_u64()) * u128::from(len)) >> 64) as u32
}

/// The floor: a bare loop with the memory traffic of a log without policies. For each page it does one random
/// read-modify-write of the map, one decrement of a valid count, and one store to the inverse map.
struct Floor {
    map: Vec<u32>,
    inverse: Vec<u32>,
    valid: Vec<u32>,
    generator: Xoshiro256PlusPlus,
    next: u32,
}

impl Floor {
    fn new(segments: u32) -> Self {
        let pages = segments * PAGES_PER_SEGMENT;
        let logical = (f64::from(pages) * RHO) as u32;
        Self {
            map: (0..logical).collect(),
            inverse: vec![0; pages as usize],
            valid: vec![u32::MAX; segments as usize],
            generator: Xoshiro256PlusPlus::seed_from_u64(1),
            next: 0,
        }
    }

    fn write(&mut self, writes: u64) {
        let (mut generator, mut next) = (self.generator.clone(), self.next);
        let (logical, pages) = (self.map.len() as u32, self.inverse.len() as u32);
        for _ in 0..writes {
            let lpn = uniform(&mut generator, logical);
            let old = std::mem::replace(&mut self.map[lpn as usize], next);
            self.valid[(old / PAGES_PER_SEGMENT) as usize] -= 1;
            self.inverse[next as usize] = lpn;
            next = if next + 1 == pages { 0 } else { next + 1 };
        }
        (self.generator, self.next) = (generator, next);
        black_box(self);
    }
}

type Disk = Ftl<Plain<NullFlash>>;

/// A disk under uniform random writes.
pub struct Uniform {
    pub disk: Disk,
    generator: Xoshiro256PlusPlus,
    pages: u32,
    time: u64,
}

impl Uniform {
    /// A disk that is full.
    pub fn new(segments: u32, selection: &str, placement: &str) -> Result<Self, String> {
        let wrong = |error: margay_policy::SpecError| error.to_string();
        let (selection, placement) = (selection.parse().map_err(wrong)?, placement.parse().map_err(wrong)?);
        let pages = (f64::from(segments * PAGES_PER_SEGMENT) * RHO) as u32;
        let sizing = Sizing { segments, data_pages: PAGES_PER_SEGMENT, exported_pages: pages, seed: 1 };
        let policies = Policies::new(selection, placement, sizing);
        let geometry = Geometry::new(segments, PAGES_PER_SEGMENT, PAGE_BYTES).map_err(|e| e.to_string())?;
        let config = Config { low_water: 2, high_water: 2, ..Config::default() };
        let mut disk =
            Ftl::new(Plain::new(NullFlash::new(geometry)), config, policies, pages, &[]).map_err(|e| e.to_string())?;
        for lpn in 0..pages {
            disk.fill(Lpn(lpn), &[], Hint::None).map_err(|e| e.to_string())?;
        }
        Ok(Self { disk, generator: Xoshiro256PlusPlus::seed_from_u64(1), pages, time: 0 })
    }

    /// Writes so many pages.
    pub fn write(&mut self, writes: u64) -> Result<(), String> {
        let (mut generator, pages, times) = (self.generator.clone(), self.pages, self.time..self.time + writes);
        self.time += writes;
        let mut writes = times.map(|time| (Lpn(uniform(&mut generator, pages)), time));
        while self.disk.write_run(&mut writes).map_err(|e| e.to_string())? {}
        self.generator = generator;
        Ok(())
    }

    /// Pages programmed so far.
    pub fn programs(&self) -> u64 {
        self.disk.log().counters().programs()
    }
}

/// The mean number of tree nodes that exact CAT looks at for each selection. A scan would look at every segment.
fn cat_nodes(segments: u32) -> Result<f64, String> {
    let pages = u64::from(segments) * u64::from(PAGES_PER_SEGMENT);
    let mut uniform = Uniform::new(segments, "cat", "m1")?;
    uniform.write(pages.max(4_000_000) + 2_000_000)?;
    Ok(uniform.disk.log().selection().lookups_per_selection().unwrap_or(f64::NAN))
}

const PAIRS: [(&str, &str); 5] =
    [("greedy", "m1"), ("cost-benefit", "m1"), ("cat", "m1"), ("cat", "m6"), ("greedy", "dac")];

/// Rounds of each measurement, the floor and the disk by turns.
const ROUNDS: usize = 5;

/// Seconds of processor time of this process, or of the clock where the kernel does not say.
fn seconds() -> f64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let ran = std::fs::read_to_string("/proc/self/schedstat").ok();
    let ns = ran.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok()).filter(|ns| *ns > 0);
    ns.map_or_else(|| START.elapsed().as_secs_f64(), |ns| ns as f64 / 1e9)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Measures one pair beside the floor and prints a line. Returns the pages per second of the floor.
fn measure(gib: u32, segments: u32, selection: &str, placement: &str) -> Result<f64, String> {
    let pages = u64::from(segments) * u64::from(PAGES_PER_SEGMENT);
    let (mut floor, mut uniform) = (Floor::new(segments), Uniform::new(segments, selection, placement)?);
    floor.write(pages.max(4_000_000));
    uniform.write(pages.max(4_000_000))?;
    uniform.disk.reset_counters();
    let writes = (pages / 10).clamp(2_000_000, 4_000_000);
    let (mut bare, mut rates, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let pages = 5 * writes;
        let start = seconds();
        floor.write(pages);
        bare.push(pages as f64 / (seconds() - start));
        let (before, start) = (uniform.programs(), seconds());
        uniform.write(writes)?;
        let took = seconds() - start;
        let programs = (uniform.programs() - before) as f64 / took;
        rates.push(writes as f64 / took);
        shares.push(programs / bare[bare.len() - 1]);
    }
    let counters = uniform.disk.log().counters();
    let wa = counters.write_amplification().unwrap_or(f64::NAN);
    let range = |values: &[f64]| values.iter().fold((f64::MAX, 0f64), |(a, b), value| (a.min(*value), b.max(*value)));
    let (low, high) = range(&shares);
    println!(
        "{gib:>6} {:>22} {:>14.2} {:>14.1} {:>20} {wa:>7.3} {:>7.1}",
        format!("{selection} + {placement}"),
        median(&rates) / 1e6,
        median(&rates) * wa / 1e6,
        format!("{:.2} ({low:.2} to {high:.2})", median(&shares)),
        uniform.disk.memory_bytes() as f64 / pages as f64
    );
    Ok(median(&bare))
}

pub fn run(args: &[String]) -> Result<(), String> {
    let sizes: Vec<u32> = args.iter().filter_map(|text| text.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![1, 4, 16, 64] } else { sizes };
    let wanted: Vec<(&str, &str)> = args.iter().filter_map(|text| text.split_once('+')).collect();
    let is_known = |text: &String| text.parse::<u32>().is_ok() || text.contains('+');
    if let Some(wrong) = args.iter().find(|text| !is_known(text)) {
        return Err(format!("'{wrong}' is neither a number of GiB nor SELECTION+PLACEMENT"));
    }
    println!(
        "uniform random writes, {PAGES_PER_SEGMENT} pages of 4 KiB per segment, spare factor 0.10; medians of {ROUNDS} rounds by turns with the floor, processor time"
    );
    println!(
        "{:>6} {:>22} {:>14} {:>14} {:>20} {:>7} {:>7}",
        "GiB", "policy", "M host wr/s", "M programs/s", "of the floor", "WA", "B/page"
    );
    for gib in sizes {
        let segments = gib
            .checked_mul(1024)
            .filter(|s| *s <= 1 << 23)
            .ok_or(format!("{gib} GiB is larger than a device can be"))?;
        // Above 64 GiB only the plain pair is run, to show that the cost of a write stays the same.
        let pairs = match wanted.as_slice() {
            [] if gib > 64 => &PAIRS[..1],
            [] => &PAIRS[..],
            wanted => wanted,
        };
        let mut bare = Vec::new();
        for (selection, placement) in pairs {
            bare.push(measure(gib, segments, selection, placement)?);
        }
        println!("{gib:>6} {:>22} {:>14} {:>14.1} {:>20}", "floor", "", median(&bare) / 1e6, "1.00");
        if gib <= 64 && wanted.is_empty() {
            println!(
                "{gib:>6} exact CAT looks at {:.0} tree nodes per selection, of {segments} segments",
                cat_nodes(segments)?
            );
        }
    }
    Ok(())
}
