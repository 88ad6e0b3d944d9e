//! The same campaigns on hybrid-mapped disks.

use crate::device::{Host, TrialDevice};
use crate::enumerate::{Cuts, TrialTarget, enumerate};
use crate::oracle::content;
use crate::trouble::{Manners, Troubled, Troubles, Watch, trouble};
use crate::unordered::unordered;
use crate::{Chip, Oracle, Step, Tally, pages, script};
use margay_flash::{Flash, FlashError, Geometry, Lpn};
use margay_format::Formatted;
use margay_hybrid::{FormatOptions, Hybrid, HybridError, Mapping, OpenError, Persistence, format, open};
use margay_media::{RamFlash, Strict};

pub(crate) const PAGE_BYTES: usize = 512;
const LOG_BLOCKS: u32 = 3;
/// Two data blocks and a half.
pub(crate) const PAGES: u32 = 20;

/// Cuts the power as [`crate::power_cuts`] does.
pub fn hybrid_power_cuts(
    chip: Chip,
    mapping: Mapping,
    seed: u64,
    len: usize,
    stride: u64,
    second_stride: u64,
) -> Tally {
    let steps = steps(len, seed);
    enumerate(&Trial { chip, mapping, steps, seed }, Cuts { seed, stride, second_stride })
}

/// Cuts the power as [`crate::host_power_cuts`] does; each page by itself is as it was at some time since the last flush.
pub fn hybrid_host_power_cuts(
    chip: Chip,
    mapping: Mapping,
    seed: u64,
    len: usize,
    stride: u64,
    second_stride: u64,
    losses: usize,
) -> Tally {
    let steps = steps(len, seed);
    unordered(&Trial { chip, mapping, steps, seed }, Cuts { seed, stride, second_stride }, losses)
}

/// Lets calls fail for a moment as [`crate::disk_troubles`] does.
pub fn hybrid_troubles(chip: Chip, mapping: Mapping, seed: u64, len: usize, stride: u64, tries: u64) -> Tally {
    let trial = Trial { chip, mapping, steps: steps(len, seed), seed };
    trouble(&trial, Troubles { seed, stride, tries })
}

/// Writes and flushes; a hybrid-mapped disk has no trims. Every fifth write begins a run from the start of a block.
pub(crate) fn steps(len: usize, seed: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    for step in script(PAGES, len, seed) {
        match step {
            Step::Write(lpn, _) if lpn % 5 == 0 => {
                let first = lpn / 8 * 8;
                steps.extend((first..PAGES.min(first + 3 + lpn % 6)).map(|lpn| Step::Write(lpn, false)));
            }
            Step::Write(..) | Step::Flush => steps.push(step),
            Step::Trim(..) | Step::Idle => {}
        }
    }
    steps
}

pub(crate) fn options(mapping: Mapping) -> FormatOptions {
    let (persistence, logical_pages) = (Persistence::Persistent, Some(PAGES));
    FormatOptions { mapping, persistence, log_blocks: LOG_BLOCKS, logical_pages, uuid: [1; 16], created_s: 0 }
}

/// `spare` segments more than needed.
fn geometry(chip: Chip, spare: u32) -> Geometry {
    let reserved = if chip == Chip::Nor { 0 } else { 1 };
    chip.geometry(PAGES.div_ceil(8) + LOG_BLOCKS + 2 + reserved + spare, 8)
}

/// `spare` segments more than needed.
pub(crate) fn ram(chip: Chip, spare: u32) -> Strict<RamFlash> {
    Strict::new(RamFlash::new(geometry(chip, spare)))
}

pub(crate) fn run<F: Flash>(
    disk: &mut Hybrid<Formatted<F>>,
    oracle: &mut Oracle,
    steps: &[Step],
) -> Result<(), HybridError> {
    let mut page = [0; PAGE_BYTES];
    for step in steps {
        match *step {
            Step::Write(lpn, _) => {
                let version = oracle.attempt(lpn);
                content(lpn, version, &mut page);
                disk.write_alone(Lpn(lpn), &page)?;
                oracle.written(lpn);
            }
            _ => {
                disk.sync()?;
                oracle.all_durable();
            }
        }
    }
    Ok(())
}

pub(crate) fn check<F: Flash>(disk: &mut Hybrid<Formatted<F>>, oracle: &mut Oracle, when: &str) -> Result<(), String> {
    disk.audit().map_err(|error| format!("{when}, {error}"))?;
    let read = |lpn, page: &mut [u8]| disk.read(lpn, page).map(|found| found.is_some()).map_err(|e| e.to_string());
    oracle.check_pages(PAGE_BYTES, read).map_err(|error| format!("{when}, {error}"))
}

/// A hybrid-mapped disk that is tried.
pub(crate) struct Trial {
    pub chip: Chip,
    pub mapping: Mapping,
    pub steps: Vec<Step>,
    pub seed: u64,
}

impl Trial {
    fn mounted<'d, D: TrialDevice>(&self, device: &'d mut D) -> Result<Option<Hybrid<Formatted<&'d mut D>>>, String> {
        match open(device) {
            Ok(disk) => Ok(Some(disk)),
            Err(OpenError::Hybrid(HybridError::Flash(FlashError::PowerLost))) => Ok(None),
            Err(error) => Err(format!("mount: {error}")),
        }
    }
}

impl TrialTarget for Trial {
    type Oracle = Oracle;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn name(&self) -> String {
        format!("{:?} {}", self.chip, self.mapping)
    }

    fn geometry(&self) -> Geometry {
        geometry(self.chip, 0)
    }

    fn base<D: TrialDevice>(&self, mut device: D, clean: bool) -> (D, Oracle) {
        let mut oracle = Oracle::new(PAGES).cached(device.is_cached());
        let mut disk = format(&mut device, &options(self.mapping)).expect("format");
        // Clean: every page was written; else some never were.
        let all = (0..PAGES).map(|lpn| Step::Write(lpn, false));
        let mut before: Vec<_> = if clean { all.collect() } else { Vec::new() };
        before.extend(steps(if clean { 200 } else { 20 }, self.seed ^ 0xBA5E));
        before.push(Step::Flush);
        run(&mut disk, &mut oracle, &before).expect("filling");
        drop(disk);
        device.next_life();
        (device, oracle)
    }

    fn run<D: TrialDevice>(&self, device: &mut D, oracle: &mut Oracle) -> Result<bool, String> {
        let Some(mut disk) = self.mounted(device)? else { return Ok(false) };
        match run(&mut disk, oracle, &self.steps) {
            Ok(()) => Ok(true),
            Err(HybridError::Flash(FlashError::PowerLost)) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    fn mount<D: TrialDevice>(&self, device: &mut D) -> Result<bool, String> {
        let lasted = self.mounted(device)?.is_some();
        Ok(lasted && !device.is_off())
    }

    fn check<D: TrialDevice>(&self, device: &mut D, oracle: &mut Oracle, when: &str) -> Result<(), String> {
        let Some(mut disk) = self.mounted(device)? else { return Err("the power is on and was lost".into()) };
        check(&mut disk, oracle, when)
    }

    fn go_on<D: TrialDevice>(&self, device: &mut D, oracle: &mut Oracle) -> Result<(), String> {
        let is_cached = device.is_cached();
        let Some(mut disk) = self.mounted(device)? else { return Err("the power is on and was lost".into()) };
        let more = steps(3 * PAGES as usize, self.seed ^ 0x0DD);
        run(&mut disk, oracle, &more).map_err(|error| format!("overwriting: {error}"))?;
        check(&mut disk, &mut oracle.clone(), "after overwriting")?;
        disk.sync().map_err(|error| format!("the last flush: {error}"))?;
        oracle.all_durable();
        if is_cached {
            let unsynced = steps(10, self.seed ^ 0xADD);
            run(&mut disk, oracle, &unsynced).map_err(|error| format!("writing after the last flush: {error}"))?;
        }
        Ok(())
    }
}

impl Troubled for Trial {
    fn suffer(
        &self,
        device: &mut Host,
        oracle: &mut Oracle,
        watch: &mut Watch,
        manners: Manners,
    ) -> Result<(), String> {
        let mut tries = 0;
        let mut disk = loop {
            match open(&mut *device) {
                Ok(disk) => break disk,
                Err(error) => watch.failed_mount(device, tries, error.to_string())?,
            }
            tries += 1;
        };
        pages::suffer(&mut disk, oracle, &self.steps, watch, manners)
    }
}
