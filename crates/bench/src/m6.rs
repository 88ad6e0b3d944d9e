use crate::speed::uniform;
use margay_flash::{Geometry, Lpn};
use margay_format::Plain;
use margay_ftl::Ftl;
use margay_log::{Config, Hint, Policies};
use margay_media::NullFlash;
use margay_policy::{PlacementSpec, SelectionSpec, Sizing};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const SEGMENTS: u32 = 192;
const DATA_PAGES: u32 = 31;
const PAGES: u32 = 5245;
const WRITES: u32 = 49_152;

/// The FMS device under hot-and-cold writes, to count erases.
struct HotCold {
    seed: u64,
    hot_percent: u32,
}

impl HotCold {
    fn run(&self, selection: SelectionSpec, placement: PlacementSpec) -> Result<u64, String> {
        let sizing = Sizing { segments: SEGMENTS, data_pages: DATA_PAGES, exported_pages: PAGES, seed: self.seed };
        let policies = Policies::new(selection, placement, sizing);
        let geometry = Geometry::new(SEGMENTS, DATA_PAGES + 1, 4096).map_err(|e| e.to_string())?;
        let config = Config { header_pages: 1, reserved_segments: 1, ..Config::default() };
        let mut disk =
            Ftl::new(Plain::new(NullFlash::new(geometry)), config, policies, PAGES, &[]).map_err(|e| e.to_string())?;
        for lpn in 0..PAGES {
            disk.fill(Lpn(lpn), &[], Hint::None).map_err(|e| e.to_string())?;
        }
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let hot = PAGES * (100 - self.hot_percent) / 100;
        for number in 0..WRITES {
            let is_hot = generator.next_u64() % 100 < u64::from(self.hot_percent);
            let rank = if is_hot { uniform(&mut generator, hot) } else { hot + uniform(&mut generator, PAGES - hot) };
            // Hot pages are scattered by a multiplier that shares no factor with the number of pages.
            let lpn = (u64::from(rank) * 2654 % u64::from(PAGES)) as u32;
            let time_us = u64::from(number) * 24_609_375;
            disk.write(Lpn(lpn), &[], Hint::None, time_us).map_err(|e| e.to_string())?;
        }
        Ok(disk.log().counters().erases)
    }
}

pub fn run() -> Result<(), String> {
    println!("erases on the FMS device, CAT, mean of 8 seeds: M6 with the exact mean against the O(1) one");
    println!("{:>9} {:>10} {:>10} {:>10}", "locality", "exact", "decay", "difference");
    for hot_percent in [60, 70, 80, 90, 95] {
        let mean = |placement: &str| -> Result<f64, String> {
            let mut sum = 0;
            for seed in 0..8 {
                let selection = "cat:preset=fms,scale=1000s".parse().map_err(|error| format!("{error}"))?;
                let placement = placement.parse().map_err(|error| format!("{error}"))?;
                sum += HotCold { seed, hot_percent }.run(selection, placement)?;
            }
            Ok(sum as f64 / 8.0)
        };
        let (exact, decay) = (mean("m6:mean=exact,scale=86400s")?, mean("m6:mean=decay,scale=86400s")?);
        let difference = 100.0 * (decay / exact - 1.0);
        println!(
            "{:>9} {exact:>10.1} {decay:>10.1} {difference:>+9.2} %",
            format!("{hot_percent}/{}", 100 - hot_percent)
        );
    }
    Ok(())
}
