//! `margay-bench disk`: the disk with all metadata on a 24 MiB device in memory, under the load that the peers were
//! measured with: filled, then 192 MiB of 4 KiB overwrites.

use margay_flash::{Flash, Geometry, Lpn};
use margay_format::{Anchor, ClientKind, Formatted, Layout, Record, Superblock};
use margay_ftl::{Ftl, OwnPages, load};
use margay_log::{Config, Hint, Policies};
use margay_media::{Meter, RamFlash};
use margay_policy::{LevelingSpec, PlacementSpec, SelectionSpec, Sizing};
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

struct Run {
    case: Case,
    selection: SelectionSpec,
    placement: PlacementSpec,
    superblock: Superblock,
    config: Config,
}

type Error = Box<dyn std::error::Error>;

impl Run {
    fn formatted<F: Flash>(&self, device: F) -> Result<Formatted<F>, Error> {
        let own = OwnPages::new(self.superblock.exported_pages, PAGE_BYTES);
        Ok(Formatted::new(device, own.owners().into(), self.superblock.encode()?)?)
    }

    fn policies(&self) -> Policies {
        let Superblock { geometry, exported_pages, .. } = self.superblock;
        let data_pages = self.config.data_pages(&geometry);
        let sizing = Sizing { segments: SEGMENTS, data_pages, exported_pages, seed: 1 };
        Policies::new(self.selection, self.placement, sizing)
    }

    fn run(&self) -> Result<Cost, Error> {
        let (case, pages) = (self.case, self.superblock.exported_pages);
        let mut device = self.formatted(Meter::new(RamFlash::new(self.superblock.geometry)))?;
        let mut anchor = Anchor::default();
        device.write_anchor(&mut anchor, &self.superblock, &Record::InUse)?;
        let encoded = self.superblock.encode()?;
        let mut disk = Ftl::new(device, self.config, self.policies(), pages, &encoded)?;
        let mut page = vec![0x5A; PAGE_BYTES as usize];
        for lpn in 0..pages {
            disk.write(Lpn(lpn), &page, Hint::None, 0)?;
        }
        disk.reset_counters();
        let before = disk.log().device().device().operations();
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
            disk.write(Lpn(lpn), &page, Hint::None, u64::from(number) * 1000)?;
            if case.durable {
                disk.flush()?;
            }
        }
        let after = disk.log().device().device().operations();
        let (bytes, spare) = (
            after.programmed_bytes - before.programmed_bytes,
            after.programmed_spare_bytes - before.programmed_spare_bytes,
        );
        let written = f64::from(case.writes) * f64::from(PAGE_BYTES);
        let (max_pages, forced) = (disk.log().counters().max_pages_of_a_write, disk.log().counters().forced_cleanings);
        // The disk is dropped without a stop, as after a power loss.
        let mut device = disk.into_device().into_device();
        let mount = |device: Meter<RamFlash>| -> Result<_, Error> {
            let before = device.operations();
            let mut store = self.formatted(device)?;
            let loaded = load(&mut store, &self.superblock, true)?;
            let reads = loaded.report.reads;
            let bytes = store.device().operations().read_bytes - before.read_bytes;
            let mounted = Ftl::mount(store, &self.superblock, self.config, self.policies(), loaded, false)?;
            Ok((mounted, reads, bytes as f64 / f64::from(PAGE_BYTES)))
        };
        let ((mut disk, mut anchor), mount_reads, mount_pages) = mount(device)?;
        disk.stop(&mut anchor, &self.superblock)?;
        device = disk.into_device().into_device();
        let (_, clean_reads, clean_pages) = mount(device)?;
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
    let geometry = Geometry::new(SEGMENTS, PAGES_PER_SEGMENT, PAGE_BYTES).map_err(|error| error.to_string())?;
    let geometry = if case.nor { geometry.byte_programmable() } else { geometry.with_spare(256) };
    let exported_pages = SEGMENTS * PAGES_PER_SEGMENT * case.percent / 100;
    let layout = Layout::new(&geometry, exported_pages.into()).map_err(|error| error.to_string())?;
    let config = Config {
        header_pages: layout.header_pages,
        summary_pages: layout.summary_pages,
        reserved_segments: layout.reserved_segments,
        max_pages_per_write: 16,
        low_water: 2,
        high_water: 2,
        read_only_stream: true,
        leveling: LevelingSpec::default(),
    };
    let superblock = Superblock {
        geometry,
        client: ClientKind::Disk,
        exported_pages,
        uuid: [0; 16],
        created_s: 0,
        compatible: 0,
        read_only_compatible: 0,
        incompatible: 0,
        low_water: 2,
        high_water: 2,
        max_pages_per_write: 16,
        selection: selection.into(),
        placement: placement.into(),
        leveling: "none".into(),
        read_only_ranges: Vec::new(),
    };
    let wrong = |error: margay_policy::SpecError| error.to_string();
    let (selection, placement) = (selection.parse().map_err(wrong)?, placement.parse().map_err(wrong)?);
    let run = Run { case, selection, placement, superblock, config };
    run.run().map_err(|error| format!("{case:?}: {error}"))
}

/// One run under callgrind: `disk-count WRITES`.
pub fn count(args: &[String]) -> Result<(), String> {
    let writes = args.first().and_then(|text| text.parse().ok()).ok_or("usage: disk-count WRITES")?;
    let cost = measure(Case { nor: false, percent: 75, hot_cold: false, durable: false, writes }, "greedy", "m1")?;
    println!("{}", (cost.wa * f64::from(writes)) as u64);
    Ok(())
}

pub fn run() -> Result<(), String> {
    let best = [("greedy", "m1"), ("cat", "m6"), ("cat", "dac"), ("cost-benefit", "m6")];
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
                    let case = Case { nor, percent, hot_cold, durable, writes: WRITES };
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
