//! Every program and erase of a script as the moment of a power cut, in every way, and every one of the recovery as
//! the moment of a second.

use crate::Tally;
use margay_media::{PowerCut, RamFlash, Strict, Torn};

/// A campaign with more failures than this is given up.
const MAX_FAILURES: usize = 1000;

/// The device of a trial.
pub(crate) type Device = PowerCut<Strict<RamFlash>>;

/// What survives a power cut, and what must.
pub(crate) trait Subject {
    /// What is known of what the device may hold.
    type Oracle: Clone;

    /// Which one it is.
    fn name(&self) -> String;

    /// A device that was used and stopped, cleanly or not.
    fn base(&self, clean: bool) -> (Device, Self::Oracle);

    /// Mounts, runs the script and stops. False if the power was lost meanwhile.
    fn run(&self, device: &mut Device, oracle: &mut Self::Oracle) -> Result<bool, String>;

    /// Mounts. False if the power was lost meanwhile.
    fn mount(&self, device: &mut Device) -> Result<bool, String>;

    /// Mounts, compares, goes on with more of the same, and compares after that and after another mount.
    fn recover(&self, device: Device, oracle: Self::Oracle) -> Result<(), String>;
}

/// Which cuts are tried: every `stride`-th operation of the script from `seed` on, and for every `second_stride`-th
/// of these every operation of the recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cuts {
    pub seed: u64,
    pub stride: u64,
    pub second_stride: u64,
}

pub(crate) fn enumerate<S: Subject>(subject: &S, cuts: Cuts) -> Tally {
    let mut tally = Tally::default();
    for clean in [false, true] {
        let base = subject.base(clean);
        let mut at = if cuts.stride > 1 { cuts.seed % cuts.stride } else { 0 };
        'cuts: loop {
            for torn in Torn::ALL {
                let name = || format!("{} clean={clean} seed={} cut {at} {torn:?}", subject.name(), cuts.seed);
                let (mut device, mut oracle) = base.clone();
                device.cut_at(at, torn);
                match subject.run(&mut device, &mut oracle) {
                    Ok(true) => break 'cuts,
                    Ok(false) => {}
                    Err(error) => {
                        tally.count(Err(format!("script: {error}")), name);
                        continue;
                    }
                }
                device.power_on();
                let recovered = subject.recover(device.clone(), oracle.clone());
                let failed = recovered.is_err();
                tally.count(recovered, name);
                if !failed && (at / cuts.stride).is_multiple_of(cuts.second_stride) {
                    second_cuts(subject, &device, &oracle, &mut tally, &name);
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

fn second_cuts<S: Subject>(
    subject: &S,
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
            match subject.mount(&mut device) {
                // The recovery ended before it.
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    tally.count(Err(error), name);
                    return;
                }
            }
            device.power_on();
            tally.count(subject.recover(device, oracle.clone()), name);
        }
        if tally.failures.len() > MAX_FAILURES {
            return;
        }
    }
}
