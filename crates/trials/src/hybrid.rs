//! The same campaigns on hybrid-mapped disks.

use crate::enumerate::{Cuts, Device, TrialTarget, enumerate};
use crate::oracle::content;
use crate::{Chip, DiskStep, Oracle, Tally, script};
use margay_flash::{Flash, FlashError, Lpn};
use margay_format::Formatted;
use margay_hybrid::{FormatOptions, Hybrid, HybridError, Mapping, OpenError, Persistence, format, open};
use margay_media::{PowerCut, RamFlash, Strict};

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

/// Writes and flushes; a hybrid-mapped disk has no trims. Every fifth write begins a run from the start of a block.
pub(crate) fn steps(len: usize, seed: u64) -> Vec<DiskStep> {
    let mut steps = Vec::new();
    for step in script(PAGES, len, seed) {
        match step {
            DiskStep::Write(lpn, _) if lpn % 5 == 0 => {
                let first = lpn / 8 * 8;
                steps.extend((first..PAGES.min(first + 3 + lpn % 6)).map(|lpn| DiskStep::Write(lpn, false)));
            }
            DiskStep::Write(..) | DiskStep::Flush => steps.push(step),
            DiskStep::Trim(..) | DiskStep::Idle => {}
        }
    }
    steps
}

pub(crate) fn options(mapping: Mapping) -> FormatOptions {
    let (persistence, logical_pages) = (Persistence::Persistent, Some(PAGES));
    FormatOptions { mapping, persistence, log_blocks: LOG_BLOCKS, logical_pages, uuid: [1; 16], created_s: 0 }
}

/// `spare` segments more than needed.
pub(crate) fn ram(chip: Chip, spare: u32) -> Strict<RamFlash> {
    let reserved = if chip == Chip::Nor { 0 } else { 1 };
    Strict::new(RamFlash::new(chip.geometry(PAGES.div_ceil(8) + LOG_BLOCKS + 2 + reserved + spare, 8)))
}

pub(crate) fn run<F: Flash>(
    disk: &mut Hybrid<Formatted<F>>,
    oracle: &mut Oracle,
    steps: &[DiskStep],
) -> Result<(), HybridError> {
    let mut page = [0; PAGE_BYTES];
    for step in steps {
        match *step {
            DiskStep::Write(lpn, _) => {
                let version = oracle.attempt(lpn);
                content(lpn, version, &mut page);
                disk.write_alone(Lpn(lpn), &page)?;
                oracle.durable(lpn);
            }
            _ => disk.sync()?,
        }
    }
    Ok(())
}

pub(crate) fn check<F: Flash>(disk: &mut Hybrid<Formatted<F>>, oracle: &mut Oracle, when: &str) -> Result<(), String> {
    disk.audit().map_err(|error| format!("{when}, {error}"))?;
    let read = |lpn, page: &mut [u8]| disk.read(lpn, page).map(|found| found.is_some()).map_err(|e| e.to_string());
    oracle.check_pages(PAGE_BYTES, read).map_err(|error| format!("{when}, {error}"))
}

struct Trial {
    chip: Chip,
    mapping: Mapping,
    steps: Vec<DiskStep>,
    seed: u64,
}

impl Trial {
    fn mounted<'d>(&self, device: &'d mut Device) -> Result<Option<Hybrid<Formatted<&'d mut Device>>>, String> {
        match open(device) {
            Ok(disk) => Ok(Some(disk)),
            Err(OpenError::Hybrid(HybridError::Flash(FlashError::PowerLost))) => Ok(None),
            Err(error) => Err(format!("mount: {error}")),
        }
    }
}

impl TrialTarget for Trial {
    type Oracle = Oracle;

    fn name(&self) -> String {
        format!("{:?} {}", self.chip, self.mapping)
    }

    fn base(&self, clean: bool) -> (Device, Oracle) {
        let mut device = PowerCut::new(ram(self.chip, 0));
        let mut oracle = Oracle::new(PAGES);
        let mut disk = format(&mut device, &options(self.mapping)).expect("format");
        // Clean: every page was written; else some never were.
        let all = (0..PAGES).map(|lpn| DiskStep::Write(lpn, false));
        let mut before: Vec<_> = if clean { all.collect() } else { Vec::new() };
        before.extend(steps(if clean { 200 } else { 20 }, self.seed ^ 0xBA5E));
        run(&mut disk, &mut oracle, &before).expect("filling");
        drop(disk);
        device.power_on();
        (device, oracle)
    }

    fn run(&self, device: &mut Device, oracle: &mut Oracle) -> Result<bool, String> {
        let Some(mut disk) = self.mounted(device)? else { return Ok(false) };
        match run(&mut disk, oracle, &self.steps) {
            Ok(()) => Ok(true),
            Err(HybridError::Flash(FlashError::PowerLost)) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    fn mount(&self, device: &mut Device) -> Result<bool, String> {
        let lasted = self.mounted(device)?.is_some();
        Ok(lasted && !device.is_off())
    }

    fn recover(&self, mut device: Device, mut oracle: Oracle) -> Result<(), String> {
        let on = "the power is on and was lost";
        let Some(mut disk) = self.mounted(&mut device)? else { return Err(on.into()) };
        check(&mut disk, &mut oracle, "after recovery")?;
        let more = steps(3 * PAGES as usize, self.seed ^ 0x0DD);
        run(&mut disk, &mut oracle, &more).map_err(|error| format!("overwriting: {error}"))?;
        check(&mut disk, &mut oracle, "after overwriting")?;
        drop(disk);
        device.power_on();
        let Some(mut disk) = self.mounted(&mut device)? else { return Err(on.into()) };
        check(&mut disk, &mut oracle, "after the second mount")
    }
}
