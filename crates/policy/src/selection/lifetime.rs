use super::{Selection, SelectionBuild};
use crate::age::Now;
use crate::index::{BucketBits, MinTree};
use crate::octaves;
use crate::segments::{Segments, Sizing, State};
use crate::spec::Row;
use alloc::boxed::Box;
use alloc::vec::Vec;
use margay_flash::SegmentId;

/// The row of the selection by lifetime.
pub(super) const ROW: Row<SelectionBuild> = Row {
    name: "lifetime",
    summary: "least gained by waiting: few valid pages, of which few will die soon as learned of their stream and age",
    parameters: &[],
    source: "docs/design-placement.md",
    build: SelectionBuild { new: |_, sizing| Box::new(Lifetime::new(sizing)), scan: None },
};

/// Rates are learned anew so many times while the host writes the exported capacity once, but not more often than every
/// [`MIN_PERIOD`] writes, nor so often that looking at all segments would cost more than the writes between.
const PERIODS_PER_DEVICE_WRITE: u64 = 32;
const MIN_PERIOD: u64 = 64;
/// What was learned loses a tenth of its weight in each period.
const KEPT: f32 = 0.9;
/// Deaths that the mean rate of a stream is worth where the rate at an age is not known.
const PRIOR_DEATHS: f32 = 8.0;
/// How many half octaves of age the outlook spans.
const OUTLOOK: usize = 3;
/// No valid count.
const NEW: u32 = u32::MAX;

/// The segments of one stream: how long their pages live.
#[derive(Clone, Debug)]
struct Stream {
    /// Pages that died, by the age of their segment.
    deaths: [f32; octaves::COUNT],
    /// Pages times host page writes that were watched, likewise.
    exposure: [f32; octaves::COUNT],
    /// Share of the valid pages that dies per host page write from this age on.
    rate: [f32; octaves::COUNT],
}

impl Stream {
    fn new(rate: f32) -> Self {
        let zeros = [0.0; octaves::COUNT];
        Self { deaths: zeros, exposure: zeros, rate: [rate; octaves::COUNT] }
    }

    /// Computes the rates from what was watched, of which a part is then forgotten.
    fn learn(&mut self) {
        let deaths: f32 = self.deaths.iter().sum();
        let exposure: f32 = self.exposure.iter().sum();
        let Some(last) = self.exposure.iter().rposition(|pages| *pages > 0.0) else { return };
        let mean = (deaths + 0.5) / exposure;
        let at = |age: usize| (self.deaths[age] + PRIOR_DEATHS) / (self.exposure[age] + PRIOR_DEATHS / mean);
        let hazards: [f32; octaves::COUNT] = core::array::from_fn(|age| if age > last { mean } else { at(age) });
        for age in 0..octaves::COUNT {
            self.rate[age] = outlook(&hazards, age);
        }
        let all = self.deaths.iter_mut().chain(&mut self.exposure);
        all.for_each(|entry| *entry *= KEPT);
    }
}

/// The largest share of pages per host page write that dies from the middle of a half octave of age until the end of it or
/// of one that follows. Who waits can choose how long.
fn outlook(hazards: &[f32; octaves::COUNT], age: usize) -> f32 {
    let middle = 1.2 * octaves::start(age) as f32;
    let (mut alive, mut from, mut most) = (1.0, middle, 0.0f32);
    for (number, hazard) in hazards.iter().enumerate().skip(age).take(OUTLOOK) {
        let end = octaves::start(number + 1) as f32;
        let x = hazard * (end - from);
        // Little more than e^-x.
        alive /= 1.0 + x + 0.5 * x * x;
        most = most.max((1.0 - alive) / (end - middle));
        from = end;
    }
    most
}

/// The selection by lifetime: the candidate with the smallest h u / (1 - u + u ln u), where u is the share of its pages that
/// is valid and h the rate at which they are going to die; u = 0 first.
///
/// If a segment's pages die at a constant rate h, it has to be cleaned when h u / (1 - u + u ln u) falls to the price of
/// space, which is the same for all segments: so is WA least (docs/design-placement.md). The rate is learned of each
/// stream by age: how many of the pages that were valid in segments of this age died. For a segment it is the largest mean rate
/// over the next ages, so that a segment whose pages are all about to die is left alone. Rates are learned again every 32nd
/// of a device write, and a segment's key is brought up to date then and when a page of it dies. Segments
/// with more erases than the mean are a little dearer. Ties: the lowest number. O(1) per invalidation, usually; O(segments) per
/// learning, which is O(1) per host write.
#[derive(Clone, Debug)]
struct Lifetime {
    keys: MinTree<u64>,
    empty: BucketBits,
    /// By segment: the rate with which [`Lifetime::costs`] is multiplied.
    rates: Vec<f32>,
    /// By segment: valid pages when rates were learned last, or when it was sealed since.
    watched: Vec<u32>,
    streams: Vec<Stream>,
    costs: Vec<f32>,
    period: u64,
    learned: u64,
}

impl Lifetime {
    fn new(sizing: Sizing) -> Self {
        let Sizing { segments, data_pages, exported_pages, .. } = sizing;
        let cost = |valid: u32| {
            let u = f64::from(valid) / f64::from(data_pages);
            (u / (1.0 - u + u * libm::log(u))) as f32
        };
        Self {
            keys: MinTree::new(segments as usize),
            empty: BucketBits::new(1, segments as usize),
            rates: alloc::vec![1.0; segments as usize],
            watched: alloc::vec![NEW; segments as usize],
            streams: Vec::new(),
            costs: (0..data_pages).map(|valid| if valid == 0 { 0.0 } else { cost(valid) }).collect(),
            period: (u64::from(exported_pages) / PERIODS_PER_DEVICE_WRITE).max(MIN_PERIOD),
            learned: 0,
        }
    }

    #[inline]
    fn key(&self, segment: SegmentId, valid: u32) -> u64 {
        u64::from((self.costs[valid as usize] * self.rates[segment.index()]).to_bits())
    }

    /// The rate of a sealed segment, by its stream and age.
    fn rate(&self, segments: &Segments, segment: SegmentId, now: u64) -> f32 {
        let age = now.saturating_sub(segments.opened_writes[segment.index()]).min(u32::MAX.into()) as u32;
        let rate = self.streams[usize::from(segments.stream[segment.index()])].rate[octaves::of(age)];
        // Segments are worn evenly in the end; a tenth of the mean more is worth a tenth of the price of space.
        let mean = (segments.total_erases / u64::from(segments.len()) + 16) as f32;
        rate * (segments.erases[segment.index()] as f32 + 16.0) / mean
    }

    fn learn(&mut self, segments: &Segments, now: u64) {
        let span = now - self.learned;
        // After a mount, or before the device was full, nothing was watched for so long.
        let is_watched = span <= PERIODS_PER_DEVICE_WRITE * self.period;
        self.learned = now;
        for segment in segments.ids() {
            let i = segment.index();
            if segments.state[i] != State::Sealed {
                continue;
            }
            let (before, valid) = (self.watched[i], segments.valid[i]);
            if is_watched && before != NEW && before >= valid {
                let age = (now - span / 2).saturating_sub(segments.opened_writes[i]);
                let stream = &mut self.streams[usize::from(segments.stream[i])];
                let age = octaves::of(age.min(u32::MAX.into()) as u32);
                stream.deaths[age] += (before - valid) as f32;
                stream.exposure[age] += (before + valid) as f32 * 0.5 * span as f32;
            }
            self.watched[i] = valid;
        }
        self.streams.iter_mut().for_each(Stream::learn);
        for segment in segments.ids().filter(|id| segments.state[id.index()] == State::Sealed) {
            let valid = segments.valid[segment.index()];
            self.rates[segment.index()] = self.rate(segments, segment, now);
            if valid > 0 && valid < segments.data_pages {
                self.keys.set(segment.index(), self.key(segment, valid));
            }
        }
    }
}

impl Selection for Lifetime {
    fn opened(&mut self, segments: &Segments, segment: SegmentId) {
        let streams = usize::from(segments.stream[segment.index()]) + 1;
        if self.streams.len() < streams {
            let rate = 1.0 / (PERIODS_PER_DEVICE_WRITE * self.period) as f32;
            self.streams.resize(streams, Stream::new(rate));
        }
    }

    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        let (i, valid) = (segment.index(), segments.valid[segment.index()]);
        // After a mount it may be of a stream that was not opened since.
        self.opened(segments, segment);
        self.watched[i] = valid;
        self.rates[i] = self.rate(segments, segment, self.learned.max(segments.opened_writes[i]));
        if valid == 0 {
            self.empty.set(0, segment.0);
        } else if valid < segments.data_pages {
            self.keys.set(i, self.key(segment, valid));
        }
    }

    #[inline]
    fn invalidated(&mut self, _: &Segments, segment: SegmentId, valid: u32) {
        if valid == 0 {
            self.keys.set(segment.index(), u64::MAX);
            self.empty.set(0, segment.0);
        } else {
            self.keys.lower(segment.index(), self.key(segment, valid));
        }
    }

    fn taken(&mut self, segments: &Segments, segment: SegmentId) {
        self.watched[segment.index()] = NEW;
        if segments.valid[segment.index()] == 0 {
            self.empty.clear(0, segment.0);
        } else {
            self.keys.set(segment.index(), u64::MAX);
        }
    }

    fn select(&mut self, segments: &Segments, now: Now) -> Option<SegmentId> {
        if now.writes >= self.learned + self.period {
            self.learn(segments, now.writes);
        }
        if let Some(segment) = self.empty.first(0) {
            return Some(SegmentId(segment));
        }
        self.keys.first().map(|segment| SegmentId(segment as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u32 = 100;

    /// A device of sealed segments, the first half of stream 0, the others of stream 1, all opened at write 0.
    fn device(segments: u32) -> (Lifetime, Segments) {
        let sizing = Sizing { segments, data_pages: PAGES, exported_pages: segments * PAGES, seed: 1 };
        let (mut policy, mut account) = (Lifetime::new(sizing), Segments::new(segments, PAGES, false));
        for id in account.ids() {
            account.valid[id.index()] = PAGES;
            account.stream[id.index()] = u8::from(id.0 >= segments / 2);
            account.state[id.index()] = State::Sealed;
            policy.opened(&account, id);
            policy.sealed(&account, id);
        }
        (policy, account)
    }

    fn kill(policy: &mut Lifetime, segments: &mut Segments, segment: u32, pages: u32) {
        for _ in 0..pages {
            segments.valid[segment as usize] -= 1;
            policy.invalidated(segments, SegmentId(segment), segments.valid[segment as usize]);
        }
    }

    fn at(writes: u64) -> Now {
        Now { us: 0, writes }
    }

    #[test]
    fn a_segment_whose_stream_dies_quickly_waits_while_one_whose_stream_lives_on_is_cleaned_with_more_valid_pages() {
        let (mut policy, mut segments) = device(64);
        kill(&mut policy, &mut segments, 40, 1);
        // Pages of stream 0 die in every period, those of stream 1 do not.
        for period in 1..10 {
            (0..32).for_each(|segment| kill(&mut policy, &mut segments, segment, 5));
            assert!(policy.select(&segments, at(period * policy.period)).is_some());
        }
        kill(&mut policy, &mut segments, 50, 30);
        kill(&mut policy, &mut segments, 7, 2);
        assert!(segments.valid[7] < segments.valid[50]);
        assert_eq!(policy.select(&segments, at(9 * policy.period + 1)), Some(SegmentId(50)));
        // Of one stream and age, the one with the fewest valid pages.
        kill(&mut policy, &mut segments, 60, 31);
        assert_eq!(policy.select(&segments, at(9 * policy.period + 2)), Some(SegmentId(60)));
        // One without valid pages costs nothing.
        kill(&mut policy, &mut segments, 7, 53);
        assert_eq!(policy.select(&segments, at(9 * policy.period + 3)), Some(SegmentId(7)));
    }

    #[test]
    fn what_happened_before_a_mount_is_not_counted_as_time_without_deaths() {
        let (mut policy, mut segments) = device(8);
        let before = policy.clone();
        kill(&mut policy, &mut segments, 0, 1);
        policy.select(&segments, at(1 << 40));
        assert_eq!(policy.streams[0].exposure, before.streams[0].exposure);
        policy.select(&segments, at((1 << 40) + policy.period));
        assert!(policy.streams[0].exposure.iter().sum::<f32>() > 0.0);
    }

    #[test]
    fn of_two_segments_alike_the_one_with_fewer_erases_is_cleaned() {
        let (mut policy, mut segments) = device(8);
        segments.erases = alloc::vec![50, 60, 60, 60, 60, 60, 40, 60];
        segments.total_erases = 450;
        (4..8).for_each(|segment| kill(&mut policy, &mut segments, segment, 40));
        assert_eq!(policy.select(&segments, at(policy.period)), Some(SegmentId(6)));
    }

    #[test]
    fn the_outlook_sees_that_all_pages_are_about_to_die() {
        let mut hazards = [1e-6; octaves::COUNT];
        let quiet = outlook(&hazards, 20);
        hazards[22] = 1.0;
        assert!(outlook(&hazards, 20) > 100.0 * quiet);
        assert!(outlook(&hazards, 23) < 1.1e-6, "and no more once that age is over");
    }
}
