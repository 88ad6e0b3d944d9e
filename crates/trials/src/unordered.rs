//! Cuts the power of a host at every operation of a script, while the file that holds the store is cached: of what was
//! not synced any part reaches the medium. And again at every operation of the recovery.

use crate::device::{Host, TrialDevice, crash, draw, host};
use crate::enumerate::{Cuts, MAX_FAILURES, TrialTarget};
use crate::{Tally, without_panic};
use margay_media::Loss;

/// Bytes of the units in which a host writes: a sector, and a page of its memory.
const UNITS: [usize; 2] = [512, 4096];

/// Up to so many unsynced units every subset of them is tried.
const MAX_ENUMERATED: usize = 3;

/// `losses` different losses are tried for each cut.
pub(crate) fn unordered<S: TrialTarget>(target: &S, cuts: Cuts, losses: usize) -> Tally {
    let mut tally = Tally::default();
    for (clean, unit) in [false, true].into_iter().flat_map(|clean| UNITS.map(|unit| (clean, unit))) {
        let base = target.base(host(target.geometry(), Some(unit)), clean);
        let mut at = cuts.first();
        loop {
            let name = || format!("{} clean={clean} unit={unit} seed={} cut {at}", target.name(), cuts.seed);
            let (mut device, mut oracle) = base.clone();
            device.inner_mut().cut_at(at);
            match target.run(&mut device, &mut oracle) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => tally.count(Err(format!("script: {error}")), name),
            }
            if device.is_off() {
                let mut is_cut_again = cuts.is_cut_again(at);
                let dirty = device.inner().dirty_units();
                for (loss, seed) in ways(dirty, draw(cuts.seed, at), losses) {
                    let name = || format!("{} {loss:?}/{seed:x}", name());
                    let mut device = device.clone();
                    crash(&mut device, loss, seed);
                    let recovered = without_panic(|| target.recover(device.clone(), oracle.clone()));
                    let failed = recovered.is_err();
                    tally.count(recovered, name);
                    tally.add("power cuts of hosts", 1);
                    if !failed && std::mem::take(&mut is_cut_again) {
                        second_cuts(target, &device, &oracle, &mut tally, &name);
                    }
                }
            }
            if tally.failures.len() > MAX_FAILURES {
                return tally;
            }
            at += cuts.stride;
        }
    }
    tally
}

/// Losses to be tried where so many units are not synced, each with a seed: all subsets if there are few, else `count`
/// of all kinds.
fn ways(dirty: usize, seed: u64, count: usize) -> Vec<(Loss, u64)> {
    if dirty <= MAX_ENUMERATED {
        let subsets = (0..1 << dirty).map(|bits| (Loss::Subset(bits), draw(seed, bits)));
        return subsets.chain([(Loss::Versions, seed)]).collect();
    }
    let kinds = [
        Loss::Versions,
        Loss::Units { survive_percent: 50 },
        Loss::Units { survive_percent: 90 },
        Loss::Units { survive_percent: 10 },
        Loss::AllButOne((seed >> 8) as u32 % dirty as u32),
        Loss::OnlyErases,
        Loss::OnlyOne((seed >> 16) as u32 % dirty as u32),
        Loss::OnlySpares,
        Loss::Everything,
        Loss::Nothing,
    ];
    // The first of them always, of the others as many as are wanted, others each time.
    let others = kinds.len() - 1;
    let at = |number: usize| match number {
        0 => kinds[0],
        _ => kinds[1 + (number + seed as usize % others) % others],
    };
    (0..count).map(|number| (at(number), draw(seed, number as u64))).collect()
}

fn second_cuts<S: TrialTarget>(
    target: &S,
    device: &Host,
    oracle: &S::Oracle,
    tally: &mut Tally,
    name: &impl Fn() -> String,
) {
    for at in 0.. {
        let mut device = device.clone();
        device.inner_mut().cut_at(at);
        match target.mount(&mut device) {
            // The recovery ended before it.
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                tally.count(Err(error), || format!("{}, cut {at}", name()));
                return;
            }
        }
        let dirty = device.inner().dirty_units();
        for (loss, seed) in ways(dirty, draw(at, 2), 2) {
            let mut device = device.clone();
            crash(&mut device, loss, seed);
            let name = || format!("{}, cut {at} {loss:?}/{seed:x}", name());
            tally.count(without_panic(|| target.recover(device, oracle.clone())), name);
            tally.add("power cuts of hosts in the recovery", 1);
        }
        if tally.failures.len() > MAX_FAILURES {
            return;
        }
    }
}
