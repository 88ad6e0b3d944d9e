//! Cuts the power at every program and erase of a script, in every way that [`Torn`] models, and cuts it a second time
//! at every program and erase of the recovery.

use crate::Tally;
use margay_media::{PowerCut, RamFlash, Strict, Torn};

/// A campaign ends early once it has seen more failures than this.
const MAX_FAILURES: usize = 1000;

/// The device of a trial.
pub(crate) type Device = PowerCut<Strict<RamFlash>>;

/// A store that is tried: how it is used, how it is mounted again after a power cut, and what must be on it then.
pub(crate) trait TrialTarget {
    /// The contents that the device may hold after a cut.
    type Oracle: Clone;

    /// A name for messages.
    fn name(&self) -> String;

    /// A device that was used, and then stopped cleanly or left as after a kill, with the contents it may hold.
    fn base(&self, clean: bool) -> (Device, Self::Oracle);

    /// Mounts, runs the script and stops. False if the power was lost meanwhile.
    fn run(&self, device: &mut Device, oracle: &mut Self::Oracle) -> Result<bool, String>;

    /// Mounts. False if the power was lost meanwhile.
    fn mount(&self, device: &mut Device) -> Result<bool, String>;

    /// Mounts, compares with the oracle, goes on with more operations, and compares after them and after another mount.
    fn recover(&self, device: Device, oracle: Self::Oracle) -> Result<(), String>;
}

/// Which cuts are tried: every `stride`-th operation of the script, starting at `seed` modulo `stride`; after every
/// `second_stride`-th of these cuts also every operation of the recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cuts {
    pub seed: u64,
    pub stride: u64,
    pub second_stride: u64,
}

pub(crate) fn enumerate<S: TrialTarget>(target: &S, cuts: Cuts) -> Tally {
    let mut tally = Tally::default();
    for clean in [false, true] {
        let base = target.base(clean);
        let mut at = if cuts.stride > 1 { cuts.seed % cuts.stride } else { 0 };
        'cuts: loop {
            for torn in Torn::ALL {
                let name = || format!("{} clean={clean} seed={} cut {at} {torn:?}", target.name(), cuts.seed);
                let (mut device, mut oracle) = base.clone();
                device.cut_at(at, torn);
                match target.run(&mut device, &mut oracle) {
                    Ok(true) => break 'cuts,
                    Ok(false) => {}
                    Err(error) => {
                        tally.count(Err(format!("script: {error}")), name);
                        continue;
                    }
                }
                device.power_on();
                let recovered = target.recover(device.clone(), oracle.clone());
                let failed = recovered.is_err();
                tally.count(recovered, name);
                if !failed && (at / cuts.stride).is_multiple_of(cuts.second_stride) {
                    second_cuts(target, &device, &oracle, &mut tally, &name);
                }
                if tally.failures.len() > MAX_FAILURES {
                    return tally;
                }
            }
            at += cuts.stride;
        }
    }
    tally
}

fn second_cuts<S: TrialTarget>(
    target: &S,
    device: &Device,
    oracle: &S::Oracle,
    tally: &mut Tally,
    name: &impl Fn() -> String,
) {
    for at in 0.. {
        for torn in Torn::ALL {
            let mut device = device.clone();
            device.cut_at(at, torn);
            let name = || format!("{}, cut {at} {torn:?}", name());
            match target.mount(&mut device) {
                // The recovery ended before it.
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    tally.count(Err(error), name);
                    return;
                }
            }
            device.power_on();
            tally.count(target.recover(device, oracle.clone()), name);
        }
        if tally.failures.len() > MAX_FAILURES {
            return;
        }
    }
}
