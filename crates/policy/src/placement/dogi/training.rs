//! Samples of host writes, and the training of the network on them, in slices.

use super::groups::{Facts, Groups, MERGES, Table};
use super::network::{CLASSES, INPUTS, Input, Network, Weights};
use alloc::boxed::Box;
use alloc::{vec, vec::Vec};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// One of so many host writes is sampled.
const SAMPLED: u32 = 32;
/// Device writes from one training to the next.
const PERIOD: f64 = 0.83;
/// Rounds over the samples.
const ROUNDS: usize = 10;
/// One of so many samples is kept from training, to see what was learned.
const HELD_OUT: usize = 10;
/// Fewer samples are not worth a training.
const MIN_SAMPLES: usize = 128;
/// Share of the held-out samples that has to be predicted right.
const MIN_RIGHT: f64 = 0.10;
/// Predictions checked, and merges of classes tried, in a slice.
const SLICE: usize = 64;
/// Writes between slices that are no training.
const PAUSE: u64 = 4;
/// Samples over which the means of inputs are taken.
const MEAN_OF: f32 = 4096.0;

/// A sample whose page was not overwritten yet.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    input: Input,
    /// Host page writes when it was taken, modulo 2^32.
    written: u32,
    is_open: bool,
}

/// A sample whose page was overwritten.
#[derive(Clone, Copy, Debug)]
struct Known {
    input: Input,
    life: u32,
}

/// A network with the scale of its inputs.
#[derive(Clone, Debug)]
struct Classifier {
    weights: Box<Weights>,
    scale: Scale,
}

/// Means of inputs, and what they are multiplied with.
#[derive(Clone, Copy, Debug, Default)]
struct Scale {
    mean: Input,
    factor: Input,
}

impl Scale {
    #[inline]
    fn of(&self, input: &Input) -> Input {
        core::array::from_fn(|i| (input[i] - self.mean[i]) * self.factor[i])
    }
}

/// What a slice of work has come to.
#[derive(Clone, Debug)]
pub(super) enum Trained {
    /// Too few are predicted right.
    Wrong,
    /// What the network predicts of samples held out, and how long they lived: for [`Learner::choose`].
    Lives(Vec<(u8, f32)>),
    /// The best groups, and these samples.
    Groups(Groups, Vec<(u8, f32)>),
}

/// What is done at present.
#[derive(Clone, Debug)]
enum Phase {
    Collect,
    Train { batches: u32, batch: u32, every: u64 },
    Check { next: usize, right: u32, lives: Vec<(u8, f32)> },
    Choose { facts: Box<Facts>, table: Box<Table>, merge: u32, best: Option<Groups> },
}

/// Takes samples, and trains the network on them.
#[derive(Clone, Debug)]
pub(super) struct Learner {
    /// Host page writes at which [`Learner::work`] is due.
    pub due: u64,
    /// The next training begins.
    next_period: u64,
    period: u64,
    bounds: [f64; CLASSES],
    network: Network,
    /// The scale that the network is trained with.
    scale: Scale,
    /// The network in use.
    classifier: Option<Classifier>,
    pending: Vec<Pending>,
    next_pending: usize,
    known: Vec<Known>,
    next_known: usize,
    max_known: usize,
    until_sample: u32,
    mean: Input,
    square: Input,
    taken: f32,
    phase: Phase,
}

impl Learner {
    /// For a device of so many exported pages, with classes of these upper bounds.
    pub fn new(seed: u64, exported_pages: u32, bounds: [f64; CLASSES], now: u64) -> Self {
        let period = ((PERIOD * f64::from(exported_pages)) as u64).max(1);
        // The number of a place has 20 bits, and 0 is none.
        let places = (exported_pages as usize / 16).clamp(64, 600_000);
        Self {
            due: now + period,
            next_period: now + period,
            period,
            bounds,
            network: Network::new(Xoshiro256PlusPlus::seed_from_u64(seed)),
            scale: Scale::default(),
            classifier: None,
            pending: vec![Pending::default(); places],
            next_pending: 0,
            known: Vec::new(),
            next_known: 0,
            max_known: (exported_pages as usize / 64).clamp(256, 300_000),
            until_sample: SAMPLED,
            mean: [0.0; INPUTS],
            square: [0.0; INPUTS],
            taken: 0.0,
            phase: Phase::Collect,
        }
    }

    /// The class that the network in use predicts.
    #[inline]
    pub fn class(&self, input: &Input) -> Option<u8> {
        self.classifier.as_ref().map(|known| known.weights.class(&known.scale.of(input)))
    }

    /// Forgets the network in use.
    pub fn forget(&mut self) {
        self.classifier = None;
    }

    /// Whether the next write is a sample.
    #[inline]
    pub fn wants_sample(&mut self) -> bool {
        self.until_sample -= 1;
        self.until_sample == 0
    }

    /// Keeps a sample until its page is overwritten. Returns its number, which is not 0.
    pub fn sample(&mut self, input: Input, writes: u64) -> u32 {
        self.until_sample = SAMPLED;
        self.taken = (self.taken + 1.0).min(MEAN_OF);
        for (i, x) in input.iter().enumerate() {
            self.mean[i] += (x - self.mean[i]) / self.taken;
            self.square[i] += (x * x - self.square[i]) / self.taken;
        }
        let at = self.next_pending;
        self.next_pending = (at + 1) % self.pending.len();
        let old = self.pending[at];
        if old.is_open {
            // Its page has lived for this long already.
            self.keep(old.input, (writes as u32).wrapping_sub(old.written).saturating_mul(2));
        }
        self.pending[at] = Pending { input, written: writes as u32, is_open: true };
        at as u32 + 1
    }

    /// The page of a sample has died.
    #[inline]
    pub fn ended(&mut self, sample: u32, written: u32, life: u32) {
        let Some(at) = (sample as usize).checked_sub(1) else { return };
        // The place may hold another sample by now.
        if let Some(pending) = self.pending.get_mut(at).filter(|pending| pending.is_open && pending.written == written)
        {
            pending.is_open = false;
            let input = pending.input;
            self.keep(input, life);
        }
    }

    fn keep(&mut self, input: Input, life: u32) {
        let known = Known { input, life };
        if self.known.len() < self.max_known {
            self.known.push(known);
        } else {
            self.known[self.next_known] = known;
            self.next_known = (self.next_known + 1) % self.max_known;
        }
    }

    fn class_of(&self, life: u32) -> u8 {
        self.bounds.iter().take(CLASSES - 1).filter(|bound| f64::from(life) > **bound).count() as u8
    }

    /// Does a slice of what is to be done after so many host writes.
    pub fn work(&mut self, writes: u64) -> Option<Trained> {
        if writes < self.due {
            return None;
        }
        let mut result = None;
        match &mut self.phase {
            Phase::Collect => {
                if writes >= self.next_period {
                    self.next_period = writes + self.period;
                    self.begin();
                }
            }
            Phase::Train { batches, batch, every } => {
                *batches -= 1;
                let (is_over, batch, every) = (*batches == 0, *batch, *every);
                self.train(batch);
                self.due = writes + every;
                if is_over {
                    self.phase = Phase::Check { next: HELD_OUT - 1, right: 0, lives: Vec::new() };
                }
                return None;
            }
            Phase::Check { .. } => result = self.check(),
            Phase::Choose { .. } => result = self.try_merges(),
        }
        self.due = if matches!(self.phase, Phase::Collect) { self.next_period } else { writes + PAUSE };
        result
    }

    fn begin(&mut self) {
        if self.known.len() < MIN_SAMPLES {
            return;
        }
        self.scale.mean = self.mean;
        self.scale.factor = core::array::from_fn(|i| {
            let deviation = libm::sqrtf((self.square[i] - self.mean[i] * self.mean[i]).max(0.0));
            if deviation > 0.0 { 1.0 / deviation } else { 0.0 }
        });
        let count = self.known.len() * (HELD_OUT - 1) / HELD_OUT;
        let batch = (count / 200).clamp(8, 128);
        let batches = (ROUNDS * count / batch).max(1);
        let every = (self.period / 2 / batches as u64).max(1);
        self.phase = Phase::Train { batches: batches as u32, batch: batch as u32, every };
    }

    fn train(&mut self, batch: u32) {
        for _ in 0..batch {
            let mut at = self.network.below(self.known.len() as u32) as usize;
            at -= usize::from(at % HELD_OUT == HELD_OUT - 1);
            let known = self.known[at];
            let class = self.class_of(known.life);
            self.network.learn(&self.scale.of(&known.input), class);
        }
        self.network.step(batch);
    }

    fn check(&mut self) -> Option<Trained> {
        let Phase::Check { mut next, mut right, mut lives } = core::mem::replace(&mut self.phase, Phase::Collect)
        else {
            return None;
        };
        for _ in 0..SLICE {
            let Some(known) = self.known.get(next) else {
                if f64::from(right) < MIN_RIGHT * lives.len() as f64 || lives.is_empty() {
                    return Some(Trained::Wrong);
                }
                return Some(Trained::Lives(lives));
            };
            let class = self.network.weights().class(&self.scale.of(&known.input));
            right += u32::from(class == self.class_of(known.life));
            lives.push((class, known.life as f32));
            next += HELD_OUT;
        }
        self.phase = Phase::Check { next, right, lives };
        None
    }

    /// Begins to look for the best groups.
    pub fn choose(&mut self, facts: Facts) {
        let table = Box::new(facts.table());
        self.phase = Phase::Choose { facts: Box::new(facts), table, merge: 0, best: None };
        self.due = 0;
    }

    fn try_merges(&mut self) -> Option<Trained> {
        let Phase::Choose { facts, table, merge, best } = &mut self.phase else { return None };
        for _ in 0..SLICE {
            if let Some(groups) = facts.groups(table, *merge)
                && best.is_none_or(|best| (groups.wa, groups.count) < (best.wa, best.count))
            {
                *best = Some(groups);
            }
            *merge += 1;
        }
        if *merge < MERGES {
            return None;
        }
        let (best, lives) = (*best, core::mem::take(&mut facts.lives));
        self.phase = Phase::Collect;
        let best = best?;
        self.classifier = Some(Classifier { weights: Box::new(*self.network.weights()), scale: self.scale });
        Some(Trained::Groups(best, lives))
    }
}
