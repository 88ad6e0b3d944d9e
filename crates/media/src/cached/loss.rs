/// What a crash loses of the units that were written since the last sync that returned `Ok`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// None of them reached the medium.
    Everything,
    /// All of them reached it.
    Nothing,
    /// Each reached it as last written with this probability in percent, independently.
    Units {
        /// The probability that a unit reached the medium.
        survive_percent: u8,
    },
    /// Each is what it was at any time since the sync: before it was written, or after any write to it.
    Versions,
    /// One alone reached it: this one, counted from 0 in the order of addresses.
    OnlyOne(u32),
    /// All reached it but this one.
    AllButOne(u32),
    /// Erases reached it, and nothing that was written before or after them.
    OnlyErases,
    /// Units reached it that hold part of a spare area.
    OnlySpares,
    /// The units reached it whose bit is set, the first unit being the lowest bit.
    Subset(u64),
}

/// What a failing sync does with what was to be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// It stays to be written by a later sync.
    Error,
    /// It is read as before, but no later sync writes it, as on Linux after a failed write-back.
    ErrorAndDrop,
}

/// What one unit held at a time since the last sync.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub bytes: Box<[u8]>,
    /// It was written by an erase.
    pub is_erase: bool,
}

/// A unit that was written since the last sync.
#[derive(Clone, Debug, Default)]
pub(super) struct Unit {
    pub versions: Vec<Version>,
    /// A sync gave it up; a later write makes it one to be written again.
    pub is_dropped: bool,
}

/// A pseudo-random number that depends on both.
pub(super) fn mix(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// Which of the units that were written one is.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnitAt {
    /// Its number on the device.
    pub unit: u64,
    /// Its number among those that were written, counted from 0.
    pub number: usize,
    /// The highest such number.
    pub last: usize,
    /// It holds a byte of a spare area.
    pub has_spare: bool,
}

impl Unit {
    /// What a crash leaves of the unit's new content: one of its versions, or `None` for what was on the medium.
    pub fn survivor(&self, at: UnitAt, loss: Loss, seed: u64) -> Option<&[u8]> {
        let newest = self.versions.len() - 1;
        let draw = mix(seed, at.unit);
        let version = match loss {
            _ if self.is_dropped => None,
            Loss::Everything => None,
            Loss::Nothing => Some(newest),
            Loss::Units { survive_percent } => (draw % 100 < survive_percent.into()).then_some(newest),
            Loss::Versions => (draw % (newest as u64 + 2)).checked_sub(1).map(|version| version as usize),
            Loss::OnlyOne(one) => (at.number == at.last.min(one as usize)).then_some(newest),
            Loss::AllButOne(one) => (at.number != at.last.min(one as usize)).then_some(newest),
            Loss::OnlyErases => self.versions.iter().rposition(|version| version.is_erase),
            Loss::OnlySpares => at.has_spare.then_some(newest),
            Loss::Subset(bits) => (at.number >= 64 || bits >> at.number & 1 == 1).then_some(newest),
        };
        version.map(|version| &*self.versions[version].bytes)
    }
}

/// The mark of a device, in a unit of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark {
    /// A crash cannot take it.
    durable: Option<u64>,
    /// Those set since the last sync.
    set: Vec<Option<u64>>,
    /// A sync gave them up.
    is_dropped: bool,
}

impl Mark {
    /// As it is read.
    pub fn now(&self) -> Option<u64> {
        self.set.last().copied().unwrap_or(self.durable)
    }

    pub fn set(&mut self, mark: Option<u64>) {
        self.set.push(mark);
        self.is_dropped = false;
    }

    /// How many were set since the last sync.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// A sync was `Ok` that began when so many were set.
    pub fn save(&mut self, count: usize) {
        if !self.is_dropped
            && let Some(newest) = self.set.drain(..count).next_back()
        {
            self.durable = newest;
        }
    }

    /// A sync has dropped what was set.
    pub fn drop_set(&mut self) {
        self.is_dropped = !self.set.is_empty();
    }

    /// The process ends: what was dropped is gone.
    pub fn reopen(&mut self) {
        if std::mem::take(&mut self.is_dropped) {
            self.set.clear();
        }
    }

    pub fn crash(&mut self, loss: Loss, seed: u64) {
        self.reopen();
        let draw = mix(seed, u64::MAX);
        let last = self.set.len();
        let left = match loss {
            Loss::Everything | Loss::OnlyOne(_) | Loss::OnlyErases | Loss::OnlySpares => 0,
            Loss::Nothing | Loss::AllButOne(_) => last,
            Loss::Units { survive_percent } => last * usize::from(draw % 100 < survive_percent.into()),
            Loss::Versions => (draw % (last as u64 + 1)) as usize,
            Loss::Subset(_) => last * (draw % 2) as usize,
        };
        self.set.truncate(left);
        self.save(left);
    }
}
