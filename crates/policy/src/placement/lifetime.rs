use super::{Pages, Placement, PlacementBuild, Subject, WithPages, heat};
use crate::age::Now;
use crate::octaves;
use crate::segments::Segments;
use crate::spec::Row;
use alloc::boxed::Box;
use margay_flash::SegmentId;

/// The row of the placement by lifetime.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "lifetime",
    summary: "by the time that a page is expected to live on, learned from pages with the same intervals and age",
    parameters: &[],
    source: "docs/design-placement.md",
    build: |_, exported_pages| WithPages::boxed(Lifetime::new(exported_pages)),
};

/// Streams, from pages that will die soon to those that will not.
const STREAMS: u8 = 6;
/// A stream takes remaining lives up to this many times those of the stream before.
const RATIO: f64 = 4.0;
/// The first stream takes remaining lives below this part of the time in which the host writes the exported capacity.
const SHORTEST: f64 = 1.0 / 32.0;
/// Lives are learned anew so many times while the host writes the exported capacity once.
const PERIODS_PER_DEVICE_WRITE: u32 = 16;
const MIN_PERIOD: u32 = 64;
/// What was learned loses a fifth of its weight in each period.
const KEPT: f32 = 0.8;
/// Deaths from which on what was learned is trusted.
const ENOUGH: f32 = 2.0;

/// Classes of pages, by the octave of the mean interval between their writes. The last is of pages without a known interval.
const CLASSES: usize = 33;
const UNKNOWN: usize = CLASSES - 1;

/// What is known of a page.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Host page writes when the host wrote it, modulo 2^32.
    written: u32,
    /// The mean interval between its writes in host page writes, times 4, and the number of intervals up to 3. 0 if none is
    /// known.
    intervals: u32,
}

impl Known {
    fn class(self) -> usize {
        if self.intervals == 0 { UNKNOWN } else { 31 - (self.intervals >> 2 | 1).leading_zeros() as usize }
    }

    /// The intervals with one more.
    fn with(self, interval: u32) -> u32 {
        let (mean, count) = (self.intervals >> 2, self.intervals & 3);
        // A quarter of each new one: a plain mean of the first four, with the third counted like the fourth.
        let shift = if count == 0 { 0 } else { count.min(2) };
        let mean = mean as i32 + ((interval as i32 - mean as i32) >> shift);
        (mean.max(1) as u32) << 2 | (count + 1).min(3)
    }
}

/// How long pages of one class live.
#[derive(Clone, Copy, Debug)]
struct Lives {
    /// Pages that the host wrote.
    written: f32,
    /// Those of them that died, by their age.
    died: [f32; octaves::COUNT],
    /// The stream of a page of each age.
    stream: [u8; octaves::COUNT],
}

/// Placement by the expected remaining lifetime, for host writes and for copies.
#[derive(Clone, Debug)]
struct Lifetime {
    classes: Box<[Lives; CLASSES]>,
    exported: f64,
    period: u32,
    learned: u32,
}

impl Lifetime {
    fn new(exported_pages: u32) -> Self {
        let none = Lives { written: 0.0, died: [0.0; octaves::COUNT], stream: [0; octaves::COUNT] };
        let mut policy = Self {
            classes: Box::new([none; CLASSES]),
            exported: exported_pages.into(),
            period: (exported_pages / PERIODS_PER_DEVICE_WRITE).max(MIN_PERIOD),
            learned: 0,
        };
        policy.learn();
        policy
    }

    fn stream(&self, remaining: f64) -> u8 {
        let mut limit = SHORTEST * self.exported;
        for stream in 0..STREAMS - 1 {
            if remaining < limit {
                return stream;
            }
            limit *= RATIO;
        }
        STREAMS - 1
    }

    #[cold]
    fn learn(&mut self) {
        for class in 0..CLASSES {
            let usual = if class == UNKNOWN { 4.0 * self.exported } else { 1.4 * octaves::start(2 * class) };
            let lives = self.classes[class];
            let streams = core::array::from_fn(|age| self.stream(remaining(&lives, age, usual)));
            let lives = &mut self.classes[class];
            lives.stream = streams;
            lives.written *= KEPT;
            lives.died.iter_mut().for_each(|died| *died *= KEPT);
        }
    }
}

/// The mean remaining life, in host page writes, of an exponential distribution that has the median of the pages of this age.
/// `usual` if too little is known.
fn remaining(lives: &Lives, age: usize, usual: f64) -> f64 {
    let all: f32 = lives.died.iter().sum();
    let immortal = (lives.written - all).max(0.0);
    let mut left = immortal + lives.died[age..].iter().sum::<f32>();
    if left < ENOUGH {
        return usual;
    }
    let half = left / 2.0;
    let Some(last) = (age..octaves::COUNT).find(|number| {
        left -= lives.died[*number];
        left <= half
    }) else {
        return f64::INFINITY;
    };
    let part = 1.0 - (half - left) / lives.died[last].max(1e-9);
    let (from, to) = (octaves::start(last), octaves::start(last + 1));
    let start = octaves::start(age);
    let now = if last == age { start } else { 1.2 * start };
    (from + (to - from) * f64::from(part) - now).max(0.05 * start) / core::f64::consts::LN_2
}

impl Placement for Lifetime {
    type Info = Known;

    const HEAT_KIND: u8 = heat::WRITTEN;

    fn streams(&self) -> u8 {
        STREAMS
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(&mut self, _: &Segments, now: Now, _: Subject, old: Option<(SegmentId, Known)>) -> (u8, Known) {
        let written = now.writes as u32;
        if written.wrapping_sub(self.learned) >= self.period {
            self.learned = written;
            self.learn();
        }
        let mut known = Known { written, intervals: 0 };
        if let Some((_, old)) = old {
            let age = written.wrapping_sub(old.written);
            self.classes[old.class()].died[octaves::of(age)] += 1.0;
            known.intervals = old.with(age.min(u32::MAX >> 3));
        }
        let lives = &mut self.classes[known.class()];
        lives.written += 1.0;
        (lives.stream[0], known)
    }

    fn copy(&self, _: &Segments, _: SegmentId, now: Now, known: Known, _: u64) -> u8 {
        let age = (now.writes as u32).wrapping_sub(known.written);
        self.classes[known.class()].stream[octaves::of(age)]
    }

    fn begin_cleaning(&mut self, _: &Segments, _: SegmentId, _: Now, _: Pages<'_, Known>) {}

    fn pack(&self, known: Known) -> u32 {
        known.written
    }

    fn unpack(&mut self, written: u32, _: Now, _: Now) -> Known {
        Known { written, intervals: 0 }
    }

    fn encode(&self, known: Known, _: Now) -> (u64, u32) {
        (known.written.into(), known.intervals)
    }

    fn decode(&mut self, (written, intervals): (u64, u32), _: Now) -> Known {
        Known { written: written as u32, intervals }
    }
}
