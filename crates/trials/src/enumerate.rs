//! Cuts the power of a chip at every program and erase of a script, in every way that [`Torn`] models, and cuts it a
//! second time at every program and erase of the recovery.

use crate::Tally;
use crate::device::{Chip, TrialDevice, chip, draw};
use margay_flash::Geometry;
use margay_media::Torn;

/// A campaign ends early once it has seen more failures than this.
pub(crate) const MAX_FAILURES: usize = 1000;

/// A store that is tried: how it is used, how it is mounted again after a power cut, and what must be on it then.
pub(crate) trait TrialTarget {
    /// The contents that the device may hold after a cut.
    type Oracle: Clone;

    /// What decides about everything that is drawn.
    fn seed(&self) -> u64;

    /// A name for messages.
    fn name(&self) -> String;

    /// The shape of the device.
    fn geometry(&self) -> Geometry;

    /// Uses a blank device, and stops cleanly or leaves it as after a kill; with the contents it may hold.
    fn base<D: TrialDevice>(&self, device: D, clean: bool) -> (D, Self::Oracle);

    /// Mounts, runs the script and stops. False if the power was lost meanwhile.
    fn run<D: TrialDevice>(&self, device: &mut D, oracle: &mut Self::Oracle) -> Result<bool, String>;

    /// Mounts. False if the power was lost meanwhile.
    fn mount<D: TrialDevice>(&self, device: &mut D) -> Result<bool, String>;

    /// Mounts a device whose power is on, and compares; `when` is for messages.
    fn check<D: TrialDevice>(&self, device: &mut D, oracle: &mut Self::Oracle, when: &str) -> Result<(), String>;

    /// Mounts, goes on with more operations, compares, and syncs; on a device that is cached come operations that are not
    /// synced.
    fn go_on<D: TrialDevice>(&self, device: &mut D, oracle: &mut Self::Oracle) -> Result<(), String>;

    /// Mounts, compares with the oracle, goes on with more operations, and compares after them and after another mount.
    fn recover<D: TrialDevice>(&self, mut device: D, mut oracle: Self::Oracle) -> Result<(), String> {
        self.check(&mut device, &mut oracle, "after recovery")?;
        if device.is_cached() {
            // What was read after the recovery is there for good.
            device.lose_power(self.seed());
            self.check(&mut device, &mut oracle, "after another power cut")?;
        }
        self.go_on(&mut device, &mut oracle)?;
        device.lose_power(self.seed() ^ 1);
        self.check(&mut device, &mut oracle, "after the second mount")
    }
}

/// Which cuts are tried: every `stride`-th operation of the script, starting at `seed` modulo `stride`; after about one
/// in `second_stride` of these cuts also every operation of the recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cuts {
    pub seed: u64,
    pub stride: u64,
    pub second_stride: u64,
}

impl Cuts {
    /// The operation that is cut first.
    pub fn first(&self) -> u64 {
        if self.stride > 1 { self.seed % self.stride } else { 0 }
    }

    /// Whether the recovery from the cut at this operation is cut, too. Neither parity nor period is left out.
    pub fn is_cut_again(&self, at: u64) -> bool {
        draw(self.seed, at).is_multiple_of(self.second_stride)
    }
}

pub(crate) fn enumerate<S: TrialTarget>(target: &S, cuts: Cuts) -> Tally {
    let mut tally = Tally::default();
    for clean in [false, true] {
        let base = target.base(chip(target.geometry()), clean);
        let mut at = cuts.first();
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
                tally.add("power cuts of chips", 1);
                if !failed && cuts.is_cut_again(at) {
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
    device: &Chip,
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
            tally.add("power cuts of chips in the recovery", 1);
        }
        if tally.failures.len() > MAX_FAILURES {
            return;
        }
    }
}
