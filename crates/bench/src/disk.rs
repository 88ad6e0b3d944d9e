//! `margay-bench disk [LOW_WATER]`: the disk with all metadata on a 24 MiB device in memory, under the load that the peers were
//! measured with: filled, then 192 MiB of 4 KiB overwrites.

use margay_flash::Geometry;
use margay_log::Hint;
use margay_media::{Meter, RamFlash};
use margay_policy::LevelingSpec;
use margay_volume::{Disk, FormatOptions, OpenOptions, StoreOptions, usual_low_water};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const SEGMENTS: u32 = 192;
const PAGES_PER_SEGMENT: u32 = 32;
const PAGE_BYTES: u32 = 4096;
const WRITES: u32 = 49_152;

/// One case: NAND or NOR, how full the disk is, uniform or 90-10, with or without a flush after each write.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub nor: bool,
    pub percent: u32,
    pub hot_cold: bool,
    pub durable: bool,
    /// Cleaning starts when fewer segments are free; `None` for as many as `margay format` chooses.
    pub low_water: Option<u32>,
    pub writes: u32,
}

/// What a case cost.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Bytes programmed in pages and parts of pages, per byte written.
    pub wa: f64,
    /// The same with the bytes in spare areas.
    pub wa_with_spare: f64,
    /// Most KiB programmed in pages for one write, and writes that exceeded the bound.
    pub worst_kib: u64,
    pub forced: u64,
    /// Reads of a mount after a power loss and their bytes in pages, and of one after a clean stop.
    pub mount_reads: u32,
    pub mount_pages: f64,
    pub clean_reads: u32,
    pub clean_pages: f64,
}

type Error = Box<dyn std::error::Error>;

impl Case {
    fn options(&self, geometry: &Geometry, selection: &str, placement: &str) -> Result<FormatOptions, Error> {
        let defaults = FormatOptions::default();
        let store = StoreOptions { selection: selection.parse()?, leveling: LevelingSpec::default(), ..defaults.store };
        let exported_pages = Some(SEGMENTS * PAGES_PER_SEGMENT * self.percent / 100);
        let mut options = FormatOptions { store, placement: placement.parse()?, exported_pages, ..defaults };
        let low_water = self.low_water.map_or_else(|| usual_low_water(geometry, &options), Ok)?;
        (options.store.low_water, options.store.high_water) = (low_water, low_water);
        Ok(options)
    }

    fn run(&self, selection: &str, placement: &str) -> Result<Cost, Error> {
        let case = self;
        let geometry = Geometry::new(SEGMENTS, PAGES_PER_SEGMENT, PAGE_BYTES)?;
        let geometry = if case.nor { geometry.byte_programmable() } else { geometry.with_spare(256) };
        let options = self.options(&geometry, selection, placement)?;
        let mut disk = Disk::format(Meter::new(RamFlash::new(geometry)), &options)?;
        let pages = disk.superblock().exported_pages;
        let mut page = vec![0x5A; PAGE_BYTES as usize];
        for lpn in 0..pages {
            disk.write(lpn, &page, Hint::None, 0)?;
        }
        disk.reset_counters();
        let before = disk.device_mut().operations();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut below = |limit: u32| ((u128::from(random.next_u64()) * u128::from(limit)) >> 64) as u32;
        for number in 0..case.writes {
            let rank = match case.hot_cold {
                false => below(pages),
                true if below(10) > 0 => below(pages / 10),
                true => pages / 10 + below(pages - pages / 10),
            };
            // Hot pages are scattered over the disk by a prime that divides none of the numbers of pages here.
            let lpn = (u64::from(rank) * 7919 % u64::from(pages)) as u32;
            page[..4].copy_from_slice(&number.to_le_bytes());
            disk.write(lpn, &page, Hint::None, u64::from(number) * 1000)?;
            if case.durable {
                disk.flush()?;
            }
        }
        let after = disk.device_mut().operations();
        let (bytes, spare) = (
            after.programmed_bytes - before.programmed_bytes,
            after.programmed_spare_bytes - before.programmed_spare_bytes,
        );
        let written = f64::from(case.writes) * f64::from(PAGE_BYTES);
        let counters = disk.ftl().log().counters();
        let (max_pages, forced) = (counters.max_pages_of_a_write, counters.forced_cleanings);
        let mount = |device: Meter<RamFlash>| -> Result<_, Error> {
            let before = device.operations().read_bytes;
            let mut disk = Disk::open(device, &OpenOptions::default())?;
            let bytes = disk.device_mut().operations().read_bytes - before;
            Ok((disk, bytes as f64 / f64::from(PAGE_BYTES)))
        };
        // As after a power loss.
        let (disk, mount_pages) = mount(disk.into_device())?;
        let mount_reads = disk.mount_report().reads;
        let (device, _) = disk.stop()?;
        let (disk, clean_pages) = mount(device)?;
        let clean_reads = disk.mount_report().reads;
        Ok(Cost {
            wa: bytes as f64 / written,
            wa_with_spare: (bytes + spare) as f64 / written,
            worst_kib: max_pages * u64::from(PAGE_BYTES) / 1024,
            forced,
            mount_reads,
            mount_pages,
            clean_reads,
            clean_pages,
        })
    }
}

/// Runs a case under a pair of policies.
pub fn measure(case: Case, selection: &str, placement: &str) -> Result<Cost, String> {
    case.run(selection, placement).map_err(|error| format!("{case:?}: {error}"))
}

/// One run under callgrind: `disk-count WRITES`.
pub fn count(args: &[String]) -> Result<(), String> {
    let writes = args.first().and_then(|text| text.parse().ok()).ok_or("usage: disk-count WRITES")?;
    let cost = measure(
        Case { nor: false, percent: 75, hot_cold: false, durable: false, low_water: None, writes },
        "greedy",
        "m1",
    )?;
    println!("{}", (cost.wa * f64::from(writes)) as u64);
    Ok(())
}

pub fn run(args: &[String]) -> Result<(), String> {
    let low_water = match args.first() {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| format!("{text}: a number of segments is wanted"))?),
    };
    let best = [("greedy", "m1"), ("lifetime", "lifetime"), ("cat", "m6"), ("cat", "dac"), ("cost-benefit", "m6")];
    println!(
        "24 MiB, segments of 32 pages of 4 KiB, filled, then 192 MiB of 4 KiB overwrites; bytes programmed per byte written"
    );
    println!(
        "{:<5} {:>4} {:<8} {:<7} {:<18} {:>7} {:>7} {:>6} {:>6} {:>14} {:>14}",
        "flash",
        "full",
        "workload",
        "durable",
        "policies",
        "WA",
        "+spare",
        "worst",
        "forced",
        "mount reads",
        "clean reads"
    );
    for nor in [false, true] {
        for percent in [75, 90] {
            for (hot_cold, durable) in [(false, false), (false, true), (true, false)] {
                for (selection, placement) in best.iter().take(if hot_cold { 4 } else { 1 }) {
                    let case = Case { nor, percent, hot_cold, durable, low_water, writes: WRITES };
                    let cost = measure(case, selection, placement)?;
                    println!(
                        "{:<5} {:>3}% {:<8} {:<7} {:<18} {:>7.3} {:>7.3} {:>3}KiB {:>6} {:>5} = {:>4.0} p {:>5} = {:>4.0} p",
                        if nor { "NOR" } else { "NAND" },
                        percent,
                        if hot_cold { "90-10" } else { "uniform" },
                        if durable { "each" } else { "no" },
                        format!("{selection} + {placement}"),
                        cost.wa,
                        cost.wa_with_spare,
                        cost.worst_kib,
                        cost.forced,
                        cost.mount_reads,
                        cost.mount_pages,
                        cost.clean_reads,
                        cost.clean_pages,
                    );
                }
            }
        }
    }
    Ok(())
}
