use crate::setup::{Disk, run};
use crate::{Oracle, Setup, Step, Tally, script};
use margay_flash::FlashError;
use margay_format::Anchor;
use margay_ftl::{FtlError, MountError};
use margay_log::LogError;
use margay_media::{PowerCut, RamFlash, Strict, Torn};
use margay_policy::{Placement, Selection, Visitor, visit};

/// A campaign with more failures than this is given up.
const MOST_FAILURES: usize = 1000;

type Device = PowerCut<Strict<RamFlash>>;

/// Cuts the power at every `stride`-th program and erase of a script, in every way, and then, for every
/// `second_stride`-th of these, at every operation of the recovery, in every way. After each, the disk must hold
/// what was acknowledged, stand three times as many overwrites, and hold them too.
pub fn power_cuts(setup: &Setup, seed: u64, len: usize, stride: u64, second_stride: u64) -> Tally {
    visit(setup.selection, setup.placement, setup.sizing(), Campaign { setup, seed, len, stride, second_stride })
}

struct Campaign<'a> {
    setup: &'a Setup,
    seed: u64,
    len: usize,
    stride: u64,
    second_stride: u64,
}

fn is_power_lost(error: &FtlError) -> bool {
    *error == FtlError::Log(LogError::Flash(FlashError::PowerLost))
}

/// A mounted disk with its anchor, if the power lasted.
type Mounted<'d, S, P> = Option<(Disk<&'d mut Device, S, P>, Anchor)>;

fn mount<'d, S: Selection, P: Placement>(
    setup: &Setup,
    device: &'d mut Device,
    policies: &impl Fn() -> (S, P),
) -> Result<Mounted<'d, S, P>, String> {
    let (selection, placement) = policies();
    match setup.mount(device, selection, placement) {
        Ok(mounted) => Ok(Some(mounted)),
        Err(MountError::Ftl(error)) if is_power_lost(&error) => Ok(None),
        Err(error) => Err(format!("mount: {error}")),
    }
}

/// A device that was filled and stopped, cleanly or not.
fn base<S: Selection, P: Placement>(
    setup: &Setup,
    policies: &impl Fn() -> (S, P),
    seed: u64,
    clean: bool,
) -> (Device, Oracle) {
    let mut device = PowerCut::new(Strict::new(RamFlash::new(setup.geometry)));
    let mut oracle = Oracle::new(setup.pages());
    let (selection, placement) = policies();
    let (mut disk, mut anchor) = setup.format(&mut device, selection, placement).expect("format");
    let mut steps: Vec<_> = (0..setup.pages()).map(|lpn| Step::Write(lpn, lpn % 8 == 7)).collect();
    steps.extend(script(setup.pages(), 200, seed ^ 0xBA5E));
    steps.push(Step::Flush);
    run(&mut disk, &mut oracle, &steps).expect("filling");
    if clean {
        disk.stop(&mut anchor, &setup.superblock).expect("stop");
    }
    drop(disk);
    device.power_on();
    (device, oracle)
}

struct Trial<'a, Make> {
    setup: &'a Setup,
    policies: &'a Make,
    base: &'a (Device, Oracle),
    steps: &'a [Step],
    seed: u64,
}

/// What a first cut led to.
enum First {
    /// The script ended before it.
    NotReached,
    /// The device and the oracle at the cut.
    Cut(Box<(Device, Oracle)>),
}

impl<S: Selection, P: Placement, Make: Fn() -> (S, P)> Trial<'_, Make> {
    /// Runs the script until the power is cut.
    fn first(&self, at: u64, torn: Torn) -> Result<First, String> {
        let (mut device, mut oracle) = self.base.clone();
        device.cut_at(at, torn);
        if let Some((mut disk, mut anchor)) = mount(self.setup, &mut device, self.policies)? {
            match run(&mut disk, &mut oracle, self.steps).and_then(|()| disk.stop(&mut anchor, &self.setup.superblock))
            {
                Ok(_) => return Ok(First::NotReached),
                Err(error) if is_power_lost(&error) => {}
                Err(error) => return Err(format!("script: {error}")),
            }
        }
        device.power_on();
        Ok(First::Cut(Box::new((device, oracle))))
    }

    /// Recovers, perhaps with another cut, and goes on.
    fn recover(&self, (mut device, mut oracle): (Device, Oracle), second: Option<(u64, Torn)>) -> Result<bool, String> {
        let mut reached = true;
        if let Some((at, torn)) = second {
            device.cut_at(at, torn);
            reached = mount(self.setup, &mut device, self.policies)?.is_none();
            if !reached && !device.is_off() {
                // The recovery ended before it.
                return Ok(false);
            }
            device.power_on();
        }
        let Some((mut disk, _)) = mount(self.setup, &mut device, self.policies)? else {
            return Err("the power is on and was lost".into());
        };
        oracle.check(&mut disk).map_err(|error| format!("after recovery, {error}"))?;
        disk.audit().map_err(|error| format!("after recovery, {error}"))?;
        let more = script(self.setup.pages(), 3 * self.setup.pages() as usize, self.seed ^ 0x0DD);
        run(&mut disk, &mut oracle, &more).map_err(|error| format!("overwriting: {error}"))?;
        oracle.check(&mut disk).map_err(|error| format!("after overwriting, {error}"))?;
        disk.audit().map_err(|error| format!("after overwriting, {error}"))?;
        disk.flush().map_err(|error| format!("the last flush: {error}"))?;
        drop(disk);
        device.power_on();
        let Some((mut disk, _)) = mount(self.setup, &mut device, self.policies)? else {
            return Err("the power is on and was lost".into());
        };
        oracle.check(&mut disk).map_err(|error| format!("after the second mount, {error}"))?;
        Ok(reached)
    }
}

impl Campaign<'_> {
    fn run<S: Selection, P: Placement, Make: Fn() -> (S, P)>(&self, policies: &Make) -> Tally {
        let mut tally = Tally::default();
        let steps = script(self.setup.pages(), self.len, self.seed);
        for clean in [false, true] {
            let base = base(self.setup, policies, self.seed, clean);
            let trial = Trial { setup: self.setup, policies, base: &base, steps: &steps, seed: self.seed };
            let mut at = if self.stride > 1 { self.seed % self.stride } else { 0 };
            'cuts: loop {
                for torn in Torn::ALL {
                    let name = || {
                        format!(
                            "{:?} {} clean={clean} seed={} cut {at} {torn:?}",
                            self.setup.chip, self.setup.placement, self.seed
                        )
                    };
                    let state = match trial.first(at, torn) {
                        Ok(First::NotReached) => break 'cuts,
                        Ok(First::Cut(state)) => state,
                        Err(error) => {
                            tally.count(Err(error), name);
                            if tally.failures.len() > MOST_FAILURES {
                                return tally;
                            }
                            continue;
                        }
                    };
                    let recovered = trial.recover((*state).clone(), None).map(drop);
                    let failed = recovered.is_err();
                    tally.count(recovered, name);
                    if failed {
                        continue;
                    }
                    if !(at / self.stride).is_multiple_of(self.second_stride) {
                        continue;
                    }
                    for second_at in 0.. {
                        let mut reached = false;
                        for second_torn in Torn::ALL {
                            match trial.recover((*state).clone(), Some((second_at, second_torn))) {
                                Ok(false) => break,
                                result => {
                                    reached = true;
                                    let name = || format!("{}, cut {second_at} {second_torn:?}", name());
                                    tally.count(result.map(drop), name);
                                }
                            }
                        }
                        if !reached || tally.failures.len() > MOST_FAILURES {
                            break;
                        }
                    }
                }
                at += self.stride;
            }
        }
        tally
    }
}

impl Visitor for Campaign<'_> {
    type Output = Tally;

    fn visit<S: Selection + Clone + Send + 'static, P: Placement<Info: Send> + Clone + Send + 'static>(
        self,
        selection: S,
        placement: P,
    ) -> Tally {
        self.run(&|| (selection.clone(), placement.clone()))
    }
}
