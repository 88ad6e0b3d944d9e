use crate::enumerate::{Cuts, Device, TrialTarget, enumerate};
use crate::setup::run;
use crate::{DiskStep, Oracle, Setup, Tally, script};
use margay_flash::FlashError;
use margay_media::{PowerCut, RamFlash, Strict};
use margay_volume::{Disk, VolumeError};

/// Cuts the power at every `stride`-th program and erase of a script, in every way, and then, for every
/// `second_stride`-th of these, at every operation of the recovery, in every way. After each, the disk must hold
/// what was acknowledged, stand three times as many overwrites, and hold them too.
pub fn power_cuts(setup: &Setup, seed: u64, len: usize, stride: u64, second_stride: u64) -> Tally {
    let cuts = Cuts { seed, stride, second_stride };
    let steps = script(setup.pages(), len, seed);
    enumerate(&Trial { setup, steps, seed }, cuts)
}

struct Trial<'a> {
    setup: &'a Setup,
    steps: Vec<DiskStep>,
    seed: u64,
}

pub(crate) fn is_power_lost(error: &VolumeError) -> bool {
    error.of_device() == Some(FlashError::PowerLost)
}

impl Trial<'_> {
    /// The mounted disk, if the power lasted.
    fn mounted<'d>(&self, device: &'d mut Device) -> Result<Option<Disk<&'d mut Device>>, String> {
        match self.setup.mount(device) {
            Ok(mounted) => Ok(Some(mounted)),
            Err(error) if is_power_lost(&error) => Ok(None),
            Err(error) => Err(format!("mount: {error}")),
        }
    }
}

impl TrialTarget for Trial<'_> {
    type Oracle = Oracle;

    fn name(&self) -> String {
        format!("{:?} {}", self.setup.chip, self.setup.options.placement)
    }

    fn base(&self, clean: bool) -> (Device, Oracle) {
        let setup = self.setup;
        let mut device = PowerCut::new(Strict::new(RamFlash::new(setup.geometry)));
        let mut oracle = Oracle::new(setup.pages());
        let mut disk = setup.format(&mut device).expect("format");
        let mut steps: Vec<_> = (0..setup.pages()).map(|lpn| DiskStep::Write(lpn, lpn % 8 == 7)).collect();
        steps.extend(script(setup.pages(), 200, self.seed ^ 0xBA5E));
        steps.push(DiskStep::Flush);
        run(&mut disk, &mut oracle, &steps).expect("filling");
        if clean {
            disk.stop().expect("stop");
        } else {
            drop(disk);
        }
        device.power_on();
        (device, oracle)
    }

    fn run(&self, device: &mut Device, oracle: &mut Oracle) -> Result<bool, String> {
        let Some(mut disk) = self.mounted(device)? else { return Ok(false) };
        match run(&mut disk, oracle, &self.steps).and_then(|()| disk.stop()) {
            Ok(_) => Ok(true),
            Err(error) if is_power_lost(&error) => Ok(false),
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
        oracle.check(&mut disk).map_err(|error| format!("after recovery, {error}"))?;
        disk.audit().map_err(|error| format!("after recovery, {error}"))?;
        let more = script(self.setup.pages(), 3 * self.setup.pages() as usize, self.seed ^ 0x0DD);
        run(&mut disk, &mut oracle, &more).map_err(|error| format!("overwriting: {error}"))?;
        oracle.check(&mut disk).map_err(|error| format!("after overwriting, {error}"))?;
        disk.audit().map_err(|error| format!("after overwriting, {error}"))?;
        disk.flush().map_err(|error| format!("the last flush: {error}"))?;
        drop(disk);
        device.power_on();
        let Some(mut disk) = self.mounted(&mut device)? else { return Err(on.into()) };
        oracle.check(&mut disk).map_err(|error| format!("after the second mount, {error}"))
    }
}
