//! Calls of a device that fail for a moment, and syncs that fail: the errors that a store may give then, and what its
//! host may rely on all the same.

use crate::device::{Host, TrialDevice, crash, draw, host, reopen};
use crate::enumerate::{MAX_FAILURES, TrialTarget};
use crate::{Tally, without_panic};
use margay_flash::FlashError;
use margay_media::{Call, Effect, Lie, Loss};

/// Numbers of errors of the operating system: no room, input/output.
const CODES: [i32; 2] = [28, 5];
/// How the error of a mount begins that works but takes something for lost.
pub(crate) const FOUND_PROBLEM: &str = "the mount found a problem";
/// How many calls fail in a row.
const BURSTS: [u64; 4] = [1, 2, 5, 20];

/// Why a store refused something.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// The error of the device that it names.
    pub device: Option<FlashError>,
    /// It says that it is open for reading only.
    pub is_read_only: bool,
    /// In words.
    pub text: String,
}

/// How the host uses the store while calls fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manners {
    /// How often a step that fails is tried again.
    pub retries: u32,
    /// It stops the store cleanly at the end, or tries to.
    pub stops: bool,
}

/// Looks on while calls fail, and says which errors are in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    /// Calls that have failed until now.
    errors: u64,
    failed_syncs: u64,
    /// The store said that it takes no more writes until it is opened again.
    pub is_stopped: bool,
    /// Steps that the store refused.
    pub refusals: u64,
}

fn errors(host: &mut Host) -> u64 {
    host.inner_mut().inner_mut().errors() + host.inner().syncs().1
}

impl Watch {
    pub fn new(host: &mut Host) -> Self {
        Self { errors: errors(host), failed_syncs: host.inner().syncs().1, is_stopped: false, refusals: 0 }
    }

    /// What a step gave; `None` if it was refused. An error is in order if a call failed during the step, or if the
    /// store had stopped writing after one.
    pub fn judge<T>(&mut self, host: &mut Host, result: Result<T, Refusal>) -> Result<Option<T>, String> {
        let now = errors(host);
        let has_failed = now > std::mem::replace(&mut self.errors, now);
        let refusal = match result {
            Ok(value) => return Ok(Some(value)),
            Err(refusal) => refusal,
        };
        self.refusals += 1;
        match refusal.device {
            Some(FlashError::Io { .. }) if has_failed => Ok(None),
            Some(FlashError::Stopped) if now > 0 => {
                self.is_stopped = true;
                Ok(None)
            }
            None if refusal.is_read_only && now > 0 => {
                self.is_stopped = true;
                Ok(None)
            }
            _ if has_failed => Err(format!("an error of a call became: {}", refusal.text)),
            _ => Err(format!("refused although no call failed: {}", refusal.text)),
        }
    }

    /// A flush was `Ok`, which it must not be once a sync of a cached device has failed.
    pub fn flushed(&self, host: &Host) -> Result<(), String> {
        use margay_flash::Flash;
        if host.is_cached() && host.inner().syncs().1 > self.failed_syncs {
            return Err("a flush returned Ok although a sync had failed since the store was opened".into());
        }
        Ok(())
    }
}

/// Tries a step, again if it fails. `None` if it was refused to the end.
pub(crate) fn insist<S, T>(
    store: &mut S,
    watch: &mut Watch,
    retries: u32,
    host: impl Fn(&mut S) -> &mut Host,
    mut step: impl FnMut(&mut S) -> Result<T, Refusal>,
) -> Result<Option<T>, String> {
    for _ in 0..=retries {
        let result = step(store);
        if let Some(value) = watch.judge(host(store), result)? {
            return Ok(Some(value));
        }
        if watch.is_stopped {
            break;
        }
    }
    Ok(None)
}

/// A store that is tried with calls that fail.
pub(crate) trait Troubled: TrialTarget {
    /// Mounts, runs the script and flushes while calls fail; then none fails any more, and all is compared with what
    /// the oracle allows. The oracle knows then what a flush that returned `Ok` covers.
    fn suffer(
        &self,
        device: &mut Host,
        oracle: &mut Self::Oracle,
        watch: &mut Watch,
        manners: Manners,
    ) -> Result<(), String>;

    /// Writes three times the capacity to a device on which everything may be overwritten.
    fn endure(&self, _device: &mut Host) -> Result<(), String> {
        Ok(())
    }
}

/// What fails.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Calls { call: Call, at: u64, burst: u64, effect: Effect, code: i32 },
    Syncs { at: u64, times: u64, lie: Lie },
}

/// How the life ends in which calls failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stop,
    Kill,
    Crash(Loss),
}

/// Which calls fail: every `stride`-th of each kind, each in `tries` different ways.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Troubles {
    pub seed: u64,
    pub stride: u64,
    pub tries: u64,
}

/// Lets calls fail on a chip, and on a file that a host caches.
pub(crate) fn trouble<S: Troubled>(target: &S, troubles: Troubles) -> Tally {
    let mut tally = trouble_on(target, troubles, false);
    tally.merge(trouble_on(target, troubles, true));
    tally
}

fn trouble_on<S: Troubled>(target: &S, troubles: Troubles, is_cached: bool) -> Tally {
    let mut tally = Tally::default();
    let blank = host(target.geometry(), is_cached.then_some(4096));
    let base = target.base(blank, false);
    let (mut device, mut oracle) = base.clone();
    let before = Call::ALL.map(|call| device.inner_mut().inner_mut().calls(call));
    let manners = Manners { retries: 0, stops: false };
    let mut watch = Watch::new(&mut device);
    if let Err(error) = target.suffer(&mut device, &mut oracle, &mut watch, manners) {
        tally.count(Err(error), || format!("{} without a fault", target.name()));
        return tally;
    }
    let counts = Call::ALL.map(|call| device.inner_mut().inner_mut().calls(call) - before[call as usize]);
    for call in Call::ALL {
        // There are fewer of these.
        let stride =
            if matches!(call, Call::Erase | Call::Sync) { troubles.stride.div_ceil(8) } else { troubles.stride };
        for at in (troubles.seed % stride..counts[call as usize]).step_by(stride as usize) {
            for number in 0..troubles.tries {
                let seed = draw(troubles.seed ^ (call as u64) << 48, at << 8 | number);
                let fault = if call == Call::Sync && is_cached && number % 2 == 1 {
                    let times = [1, u64::MAX][(seed >> 8) as usize % 2];
                    Fault::Syncs { at, times, lie: [Lie::Error, Lie::ErrorAndDrop][(seed >> 10) as usize % 2] }
                } else {
                    let effect = Effect::ALL[(seed >> 8) as usize % 3];
                    let burst = BURSTS[(seed >> 16) as usize % 4];
                    Fault::Calls { call, at, burst, effect, code: CODES[(seed >> 24) as usize % 2] }
                };
                let end = match (seed >> 32) % 3 {
                    0 => End::Stop,
                    1 if is_cached => End::Crash(Loss::Versions),
                    _ => End::Kill,
                };
                let manners = Manners { retries: [0, 3][(seed >> 40) as usize % 2], stops: end == End::Stop };
                let result = without_panic(|| trial(target, base.clone(), fault, manners, end, seed, &mut tally));
                tally.count(result, || {
                    let kind = if is_cached { "file of a host" } else { "chip" };
                    let (name, retries) = (target.name(), manners.retries);
                    format!("{name}, {kind}, seed={} {fault:?}, {retries} retries, {end:?}/{seed:x}", troubles.seed)
                });
                if tally.failures.len() > MAX_FAILURES {
                    return tally;
                }
            }
        }
    }
    tally
}

fn trial<S: Troubled>(
    target: &S,
    (mut device, mut oracle): (Host, S::Oracle),
    fault: Fault,
    manners: Manners,
    end: End,
    seed: u64,
    tally: &mut Tally,
) -> Result<(), String> {
    match fault {
        Fault::Calls { call, at, burst, effect, code } => {
            device.inner_mut().inner_mut().fail(call, at..at + burst, effect, code);
            tally.add(["failing reads", "failing programs", "failing erases", "failing syncs"][call as usize], 1);
        }
        Fault::Syncs { at, times, lie } => {
            device.inner_mut().fail_sync(at, times, lie);
            tally.add(if lie == Lie::Error { "failing syncs" } else { "failing syncs that drop what was dirty" }, 1);
        }
    }
    let mut watch = Watch::new(&mut device);
    let result = target.suffer(&mut device, &mut oracle, &mut watch, manners);
    tally.add("errors returned to the host", watch.refusals);
    tally.add("stores that stopped writing until they were opened again", u64::from(watch.is_stopped));
    result?;
    match end {
        End::Stop | End::Kill => device.next_life(),
        End::Crash(loss) => crash(&mut device, loss, seed),
    }
    let after = |error| format!("opened again, {error}");
    target.recover(device.clone(), oracle).map_err(after)?;
    target.endure(&mut device).map_err(after)
}

impl Watch {
    /// A mount failed, which is in order if a call failed meanwhile.
    pub fn failed_mount(&mut self, host: &mut Host, tries: u32, error: String) -> Result<(), String> {
        let now = errors(host);
        if now == std::mem::replace(&mut self.errors, now) {
            return Err(format!("mounting fails although no call failed: {error}"));
        }
        if error.starts_with(FOUND_PROBLEM) {
            return Err(format!("a failing call is taken for a loss: {error}"));
        }
        self.refusals += 1;
        self.failed_syncs = host.inner().syncs().1;
        if tries >= 3 {
            host.inner_mut().inner_mut().heal();
        }
        reopen(host);
        Ok(())
    }
}
