use super::{COLD, HEAT, HOT, Pages, Placement, PlacementBuild, Subject, WithPages, heat};
use crate::age::{Clock, Now};
use crate::segments::Segments;
use crate::spec::{Parameter, Row};
use margay_flash::SegmentId;

/// The row of M6.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "m6",
    summary: "fine-grained: a copied page is cold unless its hot degree is above the mean",
    parameters: &[
        Parameter::choice(
            "mean",
            MeanOf::NAMES,
            "how the mean is kept: in O(1), which takes 3 % more erases at 90/10 on the paper's device, or as in the paper in \
             O(pages) per cleaning",
        )
        .always_printed(),
        HEAT,
    ],
    source: "FMS J sec. 4, M6",
    build: |args, exported_pages| {
        let (clock, scale) = args.scale("scale").resolve(exported_pages);
        match args.choice("mean", &MeanOf::ALL) {
            MeanOf::Decay => WithPages::boxed(DecayingFineGrained::new(clock, scale)),
            MeanOf::Exact => WithPages::boxed(FineGrained::new(clock, scale)),
        }
    },
};

/// How M6 computes the mean hot degree of all pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MeanOf {
    /// Hot degrees decay exponentially, so that their sum does too. O(1).
    Decay,
    /// The hot degrees of all pages are added up at each cleaning, as in the paper. O(pages) per cleaning.
    Exact,
}

impl MeanOf {
    const ALL: [Self; 2] = [Self::Decay, Self::Exact];
    const NAMES: &'static [&'static str] = &["decay", "exact"];
}

/// How often a page was updated by the host, and when last.
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

    const HOST_STREAM: Option<u8> = Some(HOT);

    const HEAT_KIND: u8 = heat::UPDATES;

    fn pack(&self, heat: Heat) -> u32 {
        heat.updates
    }

    fn unpack(&mut self, updates: u32, written: Now, _: Now) -> Heat {
        Heat { written: written.on(self.clock), updates }
    }

    fn encode(&self, heat: Heat, _: Now) -> (u64, u32) {
        (heat.written, heat.updates)
    }

    fn decode(&mut self, (written, updates): (u64, u32), _: Now) -> Heat {
        Heat { written, updates }
    }

    fn streams(&self) -> u8 {
        2
    }

    fn write(&mut self, _: &Segments, now: Now, _: Subject, old: Option<(SegmentId, Heat)>) -> (u8, Heat) {
        (HOT, Heat::after_write(old, now.on(self.clock)))
    }

    fn begin_cleaning(&mut self, segments: &Segments, _: SegmentId, now: Now, pages: Pages<'_, Heat>) {
        let now = now.on(self.clock);
        let sum: f64 = pages.valid().map(|heat| heat.hot_degree(now, self.scale)).sum();
        self.mean = sum / segments.total_valid.max(1) as f64;
    }

    fn copy(&self, _: &Segments, _: SegmentId, now: Now, heat: Heat, _: u64) -> u8 {
        if heat.hot_degree(now.on(self.clock), self.scale) > self.mean { HOT } else { COLD }
    }
}

/// M6 with hot degrees that halve every `scale`: the mean of all pages is kept in O(1).
///
/// Differs from [`FineGrained`] in the shape of the decay (exponential, and of every update instead of the count as a
/// whole), which is what makes the sum over all pages a single number. Instead of letting old updates decay, new ones
/// weigh more: 2^((time - origin) / half-life), which ranks pages alike and leaves them untouched as time passes. The
/// origin is moved before weights overflow, which rewrites the information of every page about once in 500 half-lives.
/// 8 bytes per page.
#[derive(Clone, Copy, Debug)]
pub struct DecayingFineGrained {
    clock: Clock,
    per_tick: f64,
    origin: u64,
    latest: f64,
    sum: f64,
    mean: f64,
}

impl DecayingFineGrained {
    /// After this many half-lives the origin is moved.
    const MOVE_AFTER: f64 = 500.0;
    /// Exponent at which weights stop growing: their sum over 2^32 pages is still finite.
    const MAX: f64 = 900.0;

    /// `half_life` is in units of `clock`.
    pub fn new(clock: Clock, half_life: f64) -> Self {
        Self { clock, per_tick: 1.0 / half_life, origin: 0, latest: 0.0, sum: 0.0, mean: 0.0 }
    }
}

impl Placement for DecayingFineGrained {
    type Info = f64;

    const HOST_STREAM: Option<u8> = Some(HOT);

    const HEAT_KIND: u8 = heat::DECAYED;

    fn pack(&self, heat: f64) -> u32 {
        ((heat * libm::exp2(-self.latest)) as f32).to_bits()
    }

    fn unpack(&mut self, bits: u32, written: Now, now: Now) -> f64 {
        // The origin is the present, so every weight is at most 1.
        self.origin = now.on(self.clock);
        let count = f64::from(f32::from_bits(bits));
        let age = now.on(self.clock).saturating_sub(written.on(self.clock)) as f64;
        let heat = count * libm::exp2(-age * self.per_tick);
        let heat = if heat.is_finite() && heat > 0.0 { heat } else { 0.0 };
        self.sum += heat;
        heat
    }

    fn encode(&self, heat: f64, now: Now) -> (u64, u32) {
        let span = now.on(self.clock).saturating_sub(self.origin) as f64;
        ((heat * libm::exp2(-span * self.per_tick)).to_bits(), 0)
    }

    fn decode(&mut self, (bits, _): (u64, u32), now: Now) -> f64 {
        self.origin = now.on(self.clock);
        let heat = f64::from_bits(bits);
        let heat = if heat.is_finite() && heat > 0.0 { heat } else { 0.0 };
        self.sum += heat;
        heat
    }

    fn streams(&self) -> u8 {
        2
    }

    #[inline]
    fn write(&mut self, _: &Segments, now: Now, _: Subject, old: Option<(SegmentId, f64)>) -> (u8, f64) {
        let Some((_, heat)) = old else { return (HOT, 0.0) };
        self.latest = (now.on(self.clock).saturating_sub(self.origin) as f64 * self.per_tick).min(Self::MAX);
        let weight = libm::exp2(self.latest);
        self.sum += weight;
        (HOT, heat + weight)
    }

    fn trimmed(&mut self, _: Now, heat: f64) {
        self.sum = (self.sum - heat).max(0.0);
    }

    fn maintain(&mut self, now: Now, infos: &mut [f64]) {
        if self.latest < Self::MOVE_AFTER {
            return;
        }
        let factor = libm::exp2(-self.latest);
        infos.iter_mut().for_each(|heat| *heat *= factor);
        self.sum *= factor;
        self.origin = now.on(self.clock);
        self.latest = 0.0;
    }

    fn begin_cleaning(&mut self, segments: &Segments, _: SegmentId, _: Now, _: Pages<'_, f64>) {
        self.mean = self.sum / segments.total_valid.max(1) as f64;
    }

    #[inline]
    fn copy(&self, _: &Segments, _: SegmentId, _: Now, heat: f64, _: u64) -> u8 {
        if heat > self.mean { HOT } else { COLD }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_that_grow_rank_as_decaying_counts_do_also_across_a_move_of_the_origin() {
        let (half_life, segments) = (10.0, Segments::new(2, 2, false));
        let mut policy = DecayingFineGrained::new(Clock::Writes, half_life);
        let mut pages = [0.0f64; 2];
        let (mut counts, mut last) = ([0.0f64; 2], 0);
        for (number, writes) in (0..2000).map(|n| n * 7).enumerate() {
            let (page, now) = (usize::from(number % 3 == 0), Now { us: 0, writes });
            let decay = libm::exp2(-((writes - last) as f64) / half_life);
            counts.iter_mut().for_each(|count| *count *= decay);
            (counts[page], last) = (counts[page] + 1.0, writes);
            pages[page] = policy.write(&segments, now, Subject::default(), Some((SegmentId(0), pages[page]))).1;
            policy.maintain(now, &mut pages);
            let scale = libm::exp2(-policy.latest);
            for (heat, count) in pages.iter().zip(counts) {
                assert!((heat * scale - count).abs() < 1e-9, "write {number}: {} for {count}", heat * scale);
            }
            assert!((policy.sum - pages[0] - pages[1]).abs() <= 1e-9 * policy.sum);
        }
        assert!(policy.origin > 0, "the origin has moved");
    }

    #[test]
    fn what_is_kept_on_flash_brings_the_same_ranking_back() {
        let segments = Segments::new(2, 2, false);
        let mut before = DecayingFineGrained::new(Clock::Writes, 50.0);
        let mut pages = [(0.0, 0, Now::default()); 3];
        for writes in 1..=200u64 {
            let (page, now) = ((writes % 7 % 3) as usize, Now { us: 0, writes });
            let heat = before.write(&segments, now, Subject::default(), Some((SegmentId(0), pages[page].0))).1;
            pages[page] = (heat, before.pack(heat), now);
        }
        let now = Now { us: 0, writes: 230 };
        let mut after = DecayingFineGrained::new(Clock::Writes, 50.0);
        let restored = pages.map(|(_, packed, written)| after.unpack(packed, written, now));
        let scale = libm::exp2(-(230.0 / 50.0));
        for ((heat, ..), restored) in pages.iter().zip(restored) {
            assert!((heat * scale / restored - 1.0).abs() < 1e-6, "{heat} {restored}");
        }
        assert!((after.sum - before.sum * scale).abs() < 1e-6);
    }

    #[test]
    fn a_long_rest_overflows_nothing() {
        let segments = Segments::new(2, 2, false);
        let mut policy = DecayingFineGrained::new(Clock::Time, 1.0);
        let now = Now { us: u64::MAX / 2, writes: 1 };
        let (_, heat) = policy.write(&segments, now, Subject::default(), Some((SegmentId(0), 1.0)));
        assert!(heat.is_finite() && policy.sum.is_finite());
        let mut pages = [heat, 1.0];
        policy.maintain(now, &mut pages);
        assert!(pages[0] > 0.5 && pages[1] < 1e-100);
    }
}
