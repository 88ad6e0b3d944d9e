use crate::device::draw;
use crate::setup::run;
use crate::{Chip, Oracle, Setup, Step, Tally, script};
use margay_flash::Ppn;
use margay_ftl::FtlError;
use margay_media::{Damage, Faults, RamFlash, Strict};
use margay_volume::VolumeError;

type Device = Faults<Strict<RamFlash>>;

/// Bits that the ECC of the trials corrects.
const ECC_BITS: u32 = 4;

fn device(setup: &Setup) -> Device {
    Faults::new(Strict::new(RamFlash::new(setup.geometry)), ECC_BITS)
}

fn steps(setup: &Setup, seed: u64, len: usize) -> Vec<Step> {
    let mut steps: Vec<_> = (0..setup.pages()).map(|lpn| Step::Write(lpn, lpn % 8 == 7)).collect();
    steps.extend(script(setup.pages(), len, seed));
    steps.push(Step::Flush);
    steps
}

fn text<T>(what: &str, result: Result<T, impl std::fmt::Display>) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {error}"))
}

/// Lets every `stride`-th program and every `stride`-th erase of a script fail, one after the other and, for
/// each, with a second failure soon after: the disk must go on, and hold everything after a mount too.
pub fn bad_segments(setup: &Setup, seed: u64, len: usize, stride: u64) -> Tally {
    BadSegments { setup, seed, len, stride }.run()
}

struct BadSegments<'a> {
    setup: &'a Setup,
    seed: u64,
    len: usize,
    stride: u64,
}

impl BadSegments<'_> {
    fn trial(&self, fail: impl Fn(&mut Device)) -> Result<(u64, u64), String> {
        let setup = self.setup;
        let mut device = device(setup);
        fail(&mut device);
        let mut oracle = Oracle::new(setup.pages());
        let mut disk = match setup.format(&mut device) {
            // What failed while it was formatted left no room; then nothing may be on the device that says it is formatted.
            Err(VolumeError::TooManyBad { .. }) => {
                return match setup.mount(&mut device) {
                    Err(VolumeError::NotFormatted(_)) => Ok(device.operations()),
                    Err(error) => Err(format!("after a refused format: {error}")),
                    Ok(_) => Err("a device whose format was refused can be mounted".into()),
                };
            }
            disk => text("format", disk)?,
        };
        text("script", run(&mut disk, &mut oracle, &steps(setup, self.seed, self.len)))?;
        text("audit", disk.audit())?;
        oracle.check(&mut disk)?;
        let retired = disk.ftl().retired_segments().len();
        text("stop", disk.stop())?;
        let operations = device.operations();
        for what in ["mount after the stop", "mount without a stop"] {
            let mut disk = text(what, setup.mount(&mut device))?;
            text(what, disk.audit())?;
            oracle.check(&mut disk).map_err(|error| format!("{what}: {error}"))?;
            if disk.ftl().retired_segments().len() < retired {
                return Err(format!(
                    "{what}: {} of {retired} retired segments are known",
                    disk.ftl().retired_segments().len()
                ));
            }
            let more = script(setup.pages(), setup.pages() as usize, self.seed ^ 9);
            text(what, run(&mut disk, &mut oracle, &more))?;
            text(what, disk.flush())?;
            oracle.all_durable();
            oracle.check(&mut disk).map_err(|error| format!("{what}: {error}"))?;
        }
        Ok(operations)
    }
}

impl BadSegments<'_> {
    fn run(self) -> Tally {
        let mut tally = Tally::default();
        let (programs, erases) = match self.trial(|_| {}) {
            Ok(operations) => operations,
            Err(error) => {
                tally.count(Err(error), || "without a fault".into());
                return tally;
            }
        };
        let name = |kind: &str, at: u64, second: u64| {
            format!(
                "{:?} {} seed={} {kind} {at} fails, and one {second} later",
                self.setup.chip, self.setup.options.placement, self.seed
            )
        };
        for second in [0, 1, 5] {
            for at in (0..programs).step_by(self.stride as usize) {
                let result = self.trial(|device| {
                    device.fail_program(at);
                    device.fail_program(at + second);
                });
                tally.count(result.map(drop), || name("program", at, second));
            }
            for at in (0..erases).step_by(self.stride.div_ceil(4) as usize) {
                let result = self.trial(|device| {
                    device.fail_erase(at);
                    device.fail_erase(at + second);
                });
                tally.count(result.map(drop), || name("erase", at, second));
            }
        }
        tally
    }
}

/// Wears a device out: writes until it refuses; then, and after a mount, everything must be readable. With an even seed
/// it is used for many lives, which end by a clean stop or by a kill.
pub fn wear_out(setup: &Setup, seed: u64) -> Tally {
    WearOut { setup, seed }.run()
}

/// How a life of a device that wears out ends before its work does: by a stop, by a kill, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LifeEnd {
    Stop,
    Kill,
    GoesOn,
}

impl LifeEnd {
    /// The one after a round of work.
    pub fn after(round: u64, seed: u64) -> Self {
        let draw = (round ^ seed << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61;
        match draw {
            0 | 1 if seed.is_multiple_of(2) => Self::Stop,
            2..=4 if seed.is_multiple_of(2) => Self::Kill,
            _ => Self::GoesOn,
        }
    }
}

struct WearOut<'a> {
    setup: &'a Setup,
    seed: u64,
}

impl WearOut<'_> {
    fn trial(&self) -> Result<(), String> {
        let setup = self.setup;
        let mut device = device(setup);
        device.wear_out_after(12);
        let mut oracle = Oracle::new(setup.pages()).cached(setup.chip.needs_flush(false));
        let mut disk = text("format", setup.format(&mut device))?;
        let mut round = 0;
        let error = loop {
            let end = LifeEnd::after(round, self.seed);
            let mut steps = steps(setup, round ^ self.seed, 500);
            if end == LifeEnd::Kill {
                // It comes before the flush.
                steps.truncate(steps.len() - 1 - (round % 7) as usize);
            }
            if let Err(error) = run(&mut disk, &mut oracle, &steps) {
                break error;
            }
            match end {
                LifeEnd::Stop => match disk.end() {
                    Ok(_) => {
                        oracle.all_durable();
                        drop(disk);
                        disk = text("mount after a stop", setup.mount(&mut device))?;
                    }
                    Err(error) => break error,
                },
                LifeEnd::Kill => {
                    drop(disk);
                    disk = text("mount after a kill", setup.mount(&mut device))?;
                }
                LifeEnd::GoesOn => {}
            }
            if end != LifeEnd::GoesOn {
                oracle.check(&mut disk).map_err(|error| format!("life {round}, {end:?}: {error}"))?;
                text("audit", disk.audit())?;
            }
            round += 1;
            if round == 1000 {
                return Err("it never wore out".into());
            }
        };
        // The last mount may have found it worn out.
        if !matches!(error, VolumeError::ReadOnly | VolumeError::Ftl(FtlError::WornOut { .. })) {
            return Err(format!("refused with: {error}"));
        }
        // Trims that were not flushed may be undone by the mount.
        oracle.clone().check(&mut disk)?;
        text("audit", disk.audit())?;
        drop(disk);
        for what in ["a mount", "a stop after it"] {
            let mut disk = text(what, setup.mount(&mut device))?;
            oracle.check(&mut disk).map_err(|error| format!("after {what}, {error}"))?;
            match disk.end() {
                // With summaries it takes a page to make durable what the mount itself has written.
                Err(VolumeError::Ftl(FtlError::WornOut { .. })) if setup.chip == Chip::Summaries => {}
                end => drop(text("the last stop", end)?),
            }
        }
        Ok(())
    }
}

impl WearOut<'_> {
    fn run(self) -> Tally {
        let mut tally = Tally::default();
        let result = self.trial();
        tally.count(result, || {
            format!("{:?} {} worn out, seed {}", self.setup.chip, self.setup.options.placement, self.seed)
        });
        tally
    }
}

/// Uses a chip with long segments for many lives, each of which ends by a kill, while programs and erases fail: each life must find
/// what there was at some moment since the last flush.
pub fn kills(setup: &Setup, seed: u64) -> Tally {
    let mut tally = Tally::default();
    tally.count(killed_lives(setup, seed), || {
        format!("{:?} {} killed, seed {seed}", setup.chip, setup.options.placement)
    });
    tally
}

fn killed_lives(setup: &Setup, seed: u64) -> Result<(), String> {
    let mut device = device(setup);
    let mut oracle = Oracle::new(setup.pages()).cached(setup.chip.needs_flush(false)).in_order();
    let mut disk = text("format", setup.format(&mut device))?;
    text("filling", run(&mut disk, &mut oracle, &steps(setup, seed, 0)))?;
    for life in 0..40 {
        let draw = draw(seed, life);
        if life == 3 || life == 17 {
            disk.device_mut().fail_program(draw % 400);
        }
        if life == 9 {
            disk.device_mut().fail_erase(draw % 7);
        }
        let len = 100 + (draw >> 16) as usize % 700;
        text("script", run(&mut disk, &mut oracle, &script(setup.pages(), len, draw)))?;
        if life % 10 == 9 {
            text("stop", disk.end())?;
            oracle.all_durable();
        }
        drop(disk);
        disk = text("mount", setup.mount(&mut device))?;
        oracle.check(&mut disk).map_err(|error| format!("life {life}: {error}"))?;
        disk.audit().map_err(|error| format!("life {life}: {error}"))?;
    }
    Ok(())
}

fn is_unreadable(error: &VolumeError) -> bool {
    matches!(error, VolumeError::Ftl(error) if margay_ftl::is_unreadable(error))
}

/// Bit errors in data: below the ECC's strength every page is read and rewritten in idle time; above it the page
/// is an error, never wrong data, and can be written anew.
pub fn bit_errors(setup: &Setup, seed: u64) -> Tally {
    BitErrors { setup, seed }.run()
}

struct BitErrors<'a> {
    setup: &'a Setup,
    seed: u64,
}

impl BitErrors<'_> {
    fn trial(&self, lpn: u32, bits: u32) -> Result<(), String> {
        let setup = self.setup;
        let mut device = device(setup);
        let mut oracle = Oracle::new(setup.pages());
        let mut disk = text("format", setup.format(&mut device))?;
        text("script", run(&mut disk, &mut oracle, &steps(setup, self.seed, 100)))?;
        text("write", run(&mut disk, &mut oracle, &[Step::Write(lpn, false), Step::Flush]))?;
        let ppn = disk.place(lpn).map_err(|error| error.to_string())?.ok_or("a page that was written has a place")?;
        disk.device_mut().flip_bits(setup.chip.data_page(ppn), bits);
        let mut page = vec![0; setup.geometry.page_bytes() as usize];
        let read = disk.read(lpn, &mut page);
        if bits <= ECC_BITS {
            text("a correctable read", read)?;
            text("idle", run(&mut disk, &mut oracle, &[Step::Idle]))?;
            if disk.place(lpn).map_err(|error| error.to_string())? == Some(ppn) {
                return Err("a page that was hard to read was not rewritten".into());
            }
        } else {
            if !read.is_err_and(|error| is_unreadable(&error)) {
                return Err("an unreadable page was read".into());
            }
            // The cleaner moves it about; it stays an error.
            let others: Vec<_> = script(setup.pages(), 400, self.seed ^ 5)
                .into_iter()
                .filter(|step| matches!(step, Step::Write(other, _) if *other != lpn))
                .collect();
            text("writing others", run(&mut disk, &mut oracle, &others))?;
            if !disk.read(lpn, &mut page).is_err_and(|error| is_unreadable(&error)) {
                return Err("a lost page was read after it was moved".into());
            }
            text("writing it anew", run(&mut disk, &mut oracle, &[Step::Write(lpn, false), Step::Flush]))?;
        }
        oracle.check(&mut disk)?;
        text("audit", disk.audit())
    }
}

impl BitErrors<'_> {
    fn run(self) -> Tally {
        let mut tally = Tally::default();
        for lpn in 0..self.setup.pages() {
            for bits in [1, ECC_BITS, ECC_BITS + 1] {
                let result = self.trial(lpn, bits);
                tally.count(result, || format!("{:?} page {lpn} with {bits} flipped bits", self.setup.chip));
            }
        }
        tally
    }
}

/// Flips, one after the other, every `stride`-th bit of what the format keeps beside data, and mounts: nothing may
/// be lost or wrong.
pub fn metadata_flips(setup: &Setup, seed: u64, stride: usize) -> Tally {
    MetadataFlips { setup, seed, stride }.run()
}

struct MetadataFlips<'a> {
    setup: &'a Setup,
    seed: u64,
    stride: usize,
}

impl MetadataFlips<'_> {
    fn run(self) -> Tally {
        let (setup, mut tally) = (self.setup, Tally::default());
        let geometry = setup.geometry;
        let page_bits = geometry.page_bytes() as usize * 8;
        for clean in [false, true] {
            let mut device = Strict::new(RamFlash::new(geometry));
            let mut oracle = Oracle::new(setup.pages());
            let mut disk = setup.format(&mut device).expect("format");
            run(&mut disk, &mut oracle, &steps(setup, self.seed, 300)).expect("script");
            let config = *disk.ftl().log().config();
            if clean {
                disk.stop().expect("stop");
            } else {
                drop(disk);
            }
            let mut bits = Vec::new();
            for ppn in 0..geometry.pages() {
                let is_metadata = geometry.page_in_segment(Ppn(ppn)) < config.header_pages
                    || setup.chip == Chip::Pairs && ppn % 2 == 1
                    || geometry.segment_of(Ppn(ppn)).0 < config.reserved_segments;
                let first = if is_metadata { 0 } else { page_bits };
                let end = page_bits + geometry.spare_bytes() as usize * 8;
                bits.extend((first..end).map(|bit| (Ppn(ppn), bit)));
            }
            for (ppn, bit) in bits.into_iter().skip(self.seed as usize % self.stride).step_by(self.stride) {
                let mut damaged = device.clone();
                damaged.page_bytes_mut(ppn)[bit / 8] ^= 1 << (bit % 8);
                let mut oracle = oracle.clone();
                let result = text("mount", setup.mount(&mut damaged)).and_then(|mut disk| oracle.check(&mut disk));
                tally.count(result, || format!("{:?} clean={clean} bit {bit} of page {ppn}", setup.chip));
            }
        }
        tally
    }
}
