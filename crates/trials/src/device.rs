//! The devices of the campaigns: a chip whose power is cut, and a file on a host whose calls fail and whose unsynced
//! writes may be lost in part.

use margay_flash::{Flash, Geometry};
use margay_media::{Cached, Flaky, Loss, PowerCut, RamFlash, Strict};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A pseudo-random number that depends on both.
pub(crate) fn draw(seed: u64, number: u64) -> u64 {
    Xoshiro256PlusPlus::seed_from_u64(seed ^ number.rotate_left(32)).next_u64()
}

/// What a store of a campaign is on.
pub(crate) trait TrialDevice: Flash + Clone {
    /// Whether the power is off.
    fn is_off(&self) -> bool;

    /// The program that used it has ended, or the power is on again after a cut; nothing is lost.
    fn next_life(&mut self);

    /// The power goes, and is on again: of what was not synced something is lost that `seed` draws.
    fn lose_power(&mut self, seed: u64);
}

/// A chip.
pub(crate) type Chip = PowerCut<Strict<RamFlash>>;

/// A blank chip.
pub(crate) fn chip(geometry: Geometry) -> Chip {
    PowerCut::new(Strict::new(RamFlash::new(geometry)))
}

impl TrialDevice for Chip {
    fn is_off(&self) -> bool {
        Self::is_off(self)
    }

    fn next_life(&mut self) {
        self.power_on();
    }

    fn lose_power(&mut self, _: u64) {
        self.power_on();
    }
}

/// A file on a host, or a chip whose calls may fail for a moment if it writes through.
pub(crate) type Host = Strict<Cached<Flaky<RamFlash>>>;

/// A blank file that is cached in units of so many bytes, or a chip without a cache if there is no unit.
pub(crate) fn host(geometry: Geometry, unit_bytes: Option<usize>) -> Host {
    let flaky = Flaky::new(RamFlash::new(geometry));
    Strict::new(match unit_bytes {
        Some(unit_bytes) => Cached::new(flaky, unit_bytes),
        None => Cached::new(flaky, 4096).write_through(),
    })
}

/// What a crash of the host leaves.
pub(crate) fn crash(host: &mut Host, loss: Loss, seed: u64) {
    host.inner_mut().crash(loss, seed);
    host.inner_mut().inner_mut().heal();
    host.look_again();
}

/// The process ends and another one opens the file; calls go on failing.
pub(crate) fn reopen(host: &mut Host) {
    host.inner_mut().reopen();
    host.look_again();
}

impl TrialDevice for Host {
    fn is_off(&self) -> bool {
        self.inner().is_off()
    }

    fn next_life(&mut self) {
        reopen(self);
        self.inner_mut().inner_mut().heal();
    }

    fn lose_power(&mut self, seed: u64) {
        crash(self, Loss::Versions, seed);
    }
}
