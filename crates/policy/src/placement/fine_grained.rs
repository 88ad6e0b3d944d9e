use super::{COLD, HOT, Pages, Placement};
use crate::age::{Clock, Now};
use crate::segments::Segments;
use margay_flash::SegmentId;

/// How often and when a page was last updated by the host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Heat {
    /// Time of the last host write, on the policy's clock.
    pub written: u64,
    /// Updates since the first write.
    pub updates: u32,
}

impl Heat {
    pub(super) fn after_write(old: Option<(SegmentId, Self)>, now: u64) -> Self {
        let updates = old.map_or(0, |(_, heat)| heat.updates.saturating_add(1));
        Self { written: now, updates }
    }

    /// updates / (1 + age / scale) (spec sec. 3, reading A; the paper says "update times over age").
    #[inline]
    pub fn hot_degree(self, now: u64, scale: f64) -> f64 {
        f64::from(self.updates) / (1.0 + now.saturating_sub(self.written) as f64 / scale)
    }
}

/// M6, fine-grained separation: a copied page is hot if its hot degree is above the mean over all pages,
/// evaluated once per cleaning.
///
/// Source: J sec. 4, M6, T sec. 3; hot degree = updates / (1 + age / 86400 s) (spec sec. 3, reading A, a fit
/// to the tables). 16 bytes per page, and O(pages of the device) per cleaning: the form for reproducing the
/// papers. [`DecayingFineGrained`] is the one for large devices.
#[derive(Clone, Copy, Debug)]
pub struct FineGrained {
    clock: Clock,
    scale: f64,
    mean: f64,
}

impl FineGrained {
    /// `scale` is in units of `clock`.
    pub fn new(clock: Clock, scale: f64) -> Self {
        Self { clock, scale, mean: 0.0 }
    }
}

impl Placement for FineGrained {
    type Info = Heat;

    fn streams(&self) -> u8 {
        2
    }

    fn write(&mut self, _: &Segments, now: Now, old: Option<(SegmentId, Heat)>) -> (u8, Heat) {
        (HOT, Heat::after_write(old, now.on(self.clock)))
    }

    fn begin_cleaning(&mut self, segments: &Segments, _: SegmentId, now: Now, pages: Pages<'_, Heat>) {
        let now = now.on(self.clock);
        let sum: f64 = pages.valid().map(|heat| heat.hot_degree(now, self.scale)).sum();
        self.mean = sum / segments.total_valid.max(1) as f64;
    }

    fn copy(&self, _: &Segments, _: SegmentId, now: Now, heat: Heat) -> u8 {
        if heat.hot_degree(now.on(self.clock), self.scale) > self.mean { HOT } else { COLD }
    }
}

/// The base-2 logarithm of a sum of updates, each weighted 2^(its time / half-life).
///
/// Weights that grow forward in time rank pages as weights that decay would, and nothing has to be touched
/// as time passes; the logarithm keeps them finite.
#[derive(Clone, Copy, Debug)]
pub struct Decay(f64);

impl Default for Decay {
    fn default() -> Self {
        Self(f64::NEG_INFINITY)
    }
}

impl Decay {
    /// Further apart than this and the smaller term is below the last bit of the larger.
    const NEGLIGIBLE: f64 = 54.0;

    /// log2(2^a + 2^b)
    #[inline]
    fn plus(self, other: f64) -> Self {
        let (large, small) = if self.0 > other { (self.0, other) } else { (other, self.0) };
        if large - small > Self::NEGLIGIBLE || small == f64::NEG_INFINITY {
            return Self(large);
        }
        Self(large + libm::log1p(libm::exp2(small - large)) * core::f64::consts::LOG2_E)
    }

    /// log2(2^a - 2^b), nothing if that is not positive.
    fn minus(self, other: Self) -> Self {
        if other.0 == f64::NEG_INFINITY {
            return self;
        }
        let rest = 1.0 - libm::exp2(other.0 - self.0);
        if rest > 0.0 { Self(self.0 + libm::log2(rest)) } else { Self::default() }
    }
}

/// M6 with hot degrees that halve every `scale`: the mean of all pages is kept in O(1).
///
/// Differs from [`FineGrained`] in the shape of the decay (exponential, and of every update instead of the
/// count as a whole), which is what makes the sum over all pages a single number. 8 bytes per page.
#[derive(Clone, Copy, Debug)]
pub struct DecayingFineGrained {
    clock: Clock,
    per_tick: f64,
    sum: Decay,
    mean: f64,
}

impl DecayingFineGrained {
    /// `half_life` is in units of `clock`.
    pub fn new(clock: Clock, half_life: f64) -> Self {
        Self { clock, per_tick: 1.0 / half_life, sum: Decay::default(), mean: f64::NEG_INFINITY }
    }
}

impl Placement for DecayingFineGrained {
    type Info = Decay;

    fn streams(&self) -> u8 {
        2
    }

    #[inline]
    fn write(&mut self, _: &Segments, now: Now, old: Option<(SegmentId, Decay)>) -> (u8, Decay) {
        let Some((_, heat)) = old else { return (HOT, Decay::default()) };
        let weight = now.on(self.clock) as f64 * self.per_tick;
        self.sum = self.sum.plus(weight);
        (HOT, heat.plus(weight))
    }

    fn trimmed(&mut self, _: Now, heat: Decay) {
        self.sum = self.sum.minus(heat);
    }

    fn begin_cleaning(&mut self, segments: &Segments, _: SegmentId, _: Now, _: Pages<'_, Decay>) {
        self.mean = self.sum.0 - libm::log2(segments.total_valid.max(1) as f64);
    }

    #[inline]
    fn copy(&self, _: &Segments, _: SegmentId, _: Now, heat: Decay) -> u8 {
        if heat.0 > self.mean { HOT } else { COLD }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decayed_sums_rank_as_decaying_counts_do() {
        let half_life = 100.0;
        let times = [0u64, 10, 50, 400, 410, 1000];
        let (mut sum, mut count) = (Decay::default(), 0.0);
        let mut last = 0;
        for t in times {
            count = count * libm::exp2(-((t - last) as f64) / half_life) + 1.0;
            sum = sum.plus(t as f64 / half_life);
            last = t;
            let decayed = libm::exp2(sum.0 - t as f64 / half_life);
            assert!((decayed - count).abs() < 1e-9, "{decayed} {count}");
        }
    }

    #[test]
    fn what_was_added_can_be_taken_away() {
        let mut part = Decay::default();
        part = part.plus(3.0);
        let sum = part.plus(5.0);
        let rest = sum.minus(part);
        assert!((rest.0 - 5.0).abs() < 1e-9);
        assert_eq!(part.minus(part).0, f64::NEG_INFINITY);
    }
}
