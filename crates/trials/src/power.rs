use crate::device::{Host, TrialDevice};
use crate::enumerate::{Cuts, TrialTarget, enumerate};
use crate::setup::run;
use crate::trouble::{Manners, Troubled, Troubles, Watch, trouble};
use crate::unordered::unordered;
use crate::{Oracle, Setup, Step, Tally, pages, script};
use margay_flash::{FlashError, Geometry};
use margay_volume::{Disk, VolumeError};

/// Cuts the power at every `stride`-th program and erase of a script, in every way, and then, for every
/// `second_stride`-th of these, at every operation of the recovery, in every way. After each, the disk must hold
/// what was acknowledged, stand three times as many overwrites, and hold them too.
pub fn power_cuts(setup: &Setup, seed: u64, len: usize, stride: u64, second_stride: u64) -> Tally {
    let cuts = Cuts { seed, stride, second_stride };
    let steps = script(setup.pages(), len, seed);
    enumerate(&Trial { setup, steps, seed }, cuts)
}

/// The same on a file that a host caches, with `losses` different losses for each cut. The disk must be as it was at some
/// moment since the last flush that returned `Ok`, and stay so.
pub fn host_power_cuts(setup: &Setup, seed: u64, len: usize, stride: u64, second_stride: u64, losses: usize) -> Tally {
    let cuts = Cuts { seed, stride, second_stride };
    let steps = script(setup.pages(), len, seed);
    unordered(&Trial { setup, steps, seed }, cuts, losses)
}

/// Lets every `stride`-th read, program, erase and sync of a script fail for a moment, each in `tries` different ways, on a
/// chip and on a file that a host caches; what a flush that returned `Ok` covers must be there, live, after a clean stop,
/// a kill, and a power cut, and the disk must go on.
pub fn disk_troubles(setup: &Setup, seed: u64, len: usize, stride: u64, tries: u64) -> Tally {
    let steps = script(setup.pages(), len, seed);
    let trial = Trial { setup, steps, seed };
    trouble(&trial, Troubles { seed, stride, tries })
}

/// A disk that is tried.
pub(crate) struct Trial<'a> {
    pub setup: &'a Setup,
    pub steps: Vec<Step>,
    pub seed: u64,
}

pub(crate) fn is_power_lost(error: &VolumeError) -> bool {
    error.of_device() == Some(FlashError::PowerLost)
}

impl Trial<'_> {
    /// The mounted disk, if the power lasted.
    fn mounted<'d, D: TrialDevice>(&self, device: &'d mut D) -> Result<Option<Disk<&'d mut D>>, String> {
        match self.setup.mount(device) {
            Ok(mounted) => Ok(Some(mounted)),
            Err(error) if is_power_lost(&error) => Ok(None),
            Err(error) => Err(format!("mount: {error}")),
        }
    }
}

impl TrialTarget for Trial<'_> {
    type Oracle = Oracle;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn name(&self) -> String {
        format!("{:?} {}", self.setup.chip, self.setup.options.placement)
    }

    fn geometry(&self) -> Geometry {
        self.setup.geometry
    }

    fn base<D: TrialDevice>(&self, mut device: D, clean: bool) -> (D, Oracle) {
        let setup = self.setup;
        let is_cached = setup.chip.needs_flush(device.is_cached());
        let mut oracle = Oracle::new(setup.pages()).cached(is_cached);
        if is_cached {
            oracle = oracle.in_order();
        }
        let mut disk = setup.format(&mut device).expect("format");
        let mut steps: Vec<_> = (0..setup.pages()).map(|lpn| Step::Write(lpn, lpn % 8 == 7)).collect();
        steps.extend(script(setup.pages(), 200, self.seed ^ 0xBA5E));
        steps.push(Step::Flush);
        run(&mut disk, &mut oracle, &steps).expect("filling");
        if clean {
            disk.stop().expect("stop");
        } else {
            drop(disk);
        }
        device.next_life();
        (device, oracle)
    }

    fn run<D: TrialDevice>(&self, device: &mut D, oracle: &mut Oracle) -> Result<bool, String> {
        let Some(mut disk) = self.mounted(device)? else { return Ok(false) };
        match run(&mut disk, oracle, &self.steps).and_then(|()| disk.stop()) {
            Ok(_) => Ok(true),
            Err(error) if is_power_lost(&error) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    fn mount<D: TrialDevice>(&self, device: &mut D) -> Result<bool, String> {
        let lasted = self.mounted(device)?.is_some();
        Ok(lasted && !device.is_off())
    }

    fn check<D: TrialDevice>(&self, device: &mut D, oracle: &mut Oracle, when: &str) -> Result<(), String> {
        let Some(mut disk) = self.mounted(device)? else { return Err("the power is on and was lost".into()) };
        oracle.check(&mut disk).map_err(|error| format!("{when}, {error}"))?;
        disk.audit().map_err(|error| format!("{when}, {error}"))
    }

    fn go_on<D: TrialDevice>(&self, device: &mut D, oracle: &mut Oracle) -> Result<(), String> {
        let is_cached = self.setup.chip.needs_flush(device.is_cached());
        let pages = self.setup.pages();
        let Some(mut disk) = self.mounted(device)? else { return Err("the power is on and was lost".into()) };
        let more = script(pages, 3 * pages as usize, self.seed ^ 0x0DD);
        run(&mut disk, oracle, &more).map_err(|error| format!("overwriting: {error}"))?;
        oracle.clone().check(&mut disk).map_err(|error| format!("after overwriting, {error}"))?;
        disk.audit().map_err(|error| format!("after overwriting, {error}"))?;
        disk.flush().map_err(|error| format!("the last flush: {error}"))?;
        oracle.all_durable();
        if is_cached {
            let unsynced = script(pages, 10, self.seed ^ 0xADD);
            run(&mut disk, oracle, &unsynced).map_err(|error| format!("writing after the last flush: {error}"))?;
        }
        Ok(())
    }
}

impl Troubled for Trial<'_> {
    fn suffer(
        &self,
        device: &mut Host,
        oracle: &mut Oracle,
        watch: &mut Watch,
        manners: Manners,
    ) -> Result<(), String> {
        *oracle = oracle.clone().in_any_order();
        let mut tries = 0;
        let mut disk = loop {
            match self.setup.mount(&mut *device) {
                Ok(disk) => break disk,
                Err(error) => watch.failed_mount(device, tries, error.to_string())?,
            }
            tries += 1;
        };
        pages::suffer(&mut disk, oracle, &self.steps, watch, manners)?;
        if manners.stops {
            let stopped = disk.stop().map(drop).map_err(pages::refused);
            if watch.judge(device, stopped)?.is_some() {
                watch.flushed(device)?;
                oracle.all_durable();
            }
        }
        Ok(())
    }
}
