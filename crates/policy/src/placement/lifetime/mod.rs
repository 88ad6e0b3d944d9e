//! Placement by the lifetimes that pages are expected to have.

mod known;
mod lives;
#[cfg(test)]
mod tests;

use super::{Content, Placement, PlacementBuild, Subject, WithPages, heat};
use crate::age::Now;
use crate::octaves;
use crate::segments::Segments;
use crate::spec::{Parameter, Row};
use alloc::boxed::Box;
use known::{CLASSES, COMPLETE, INCOMPLETE, KINDS, Known, OCTAVES, STATES, UNKNOWN};
use lives::{Lives, place};
use margay_flash::SegmentId;

/// The row of the placement by lifetime.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "lifetime",
    summary: "by the time that a page is expected to live on, learned from pages with the same intervals and age",
    parameters: &[Parameter::number("streams", MAX_STREAMS as u32, 2..=MAX_STREAMS as u32, "max number of streams")],
    source: "docs/design-placement.md",
    build: |args, exported_pages| WithPages::boxed(Lifetime::new(exported_pages, args.number("streams") as u8)),
};

/// The greatest number of streams. They are used from the first on, the more the more segments can be spared.
const MAX_STREAMS: u8 = 6;
/// With so many segments more than the exported pages fill there is one stream more than two. An open segment for pages that
/// could lie elsewhere costs more than it gains where few can be spared.
const SPARE_SEGMENTS: [f64; MAX_STREAMS as usize - 2] = [10.0, 40.0, 160.0, 640.0];
/// A stream takes remaining lives up to this many times those of the stream before.
const RATIO: f64 = 4.0;
/// Lives are learned anew so many times while the host writes the exported capacity once, but not more often than every
/// [`MIN_PERIOD`] writes.
const PERIODS_PER_DEVICE_WRITE: u32 = 16;
const MIN_PERIOD: u32 = 64;
/// What was learned loses a fifth of its weight in each period.
const KEPT: f32 = 0.8;
/// Pages that the lives of all pages are worth for those of an octave, and these for those of a class in it.
const PRIOR_PAGES: f32 = 16.0;

/// Pages that are remembered for a write of the page behind them.
const RECENT: usize = 64;
/// Streams for regular pages, the last ones of all: of lives under [`SHORT`] device writes, and of longer ones.
const REGULAR_STREAMS: u8 = 2;
const SHORT: f64 = 0.5;
/// A regular stream has to fill so many segments while the observations have weight (a third of a device write). An open segment
/// is half empty, and has to be so for the sake of many others.
const FILLED_SEGMENTS: f32 = 8.0;

/// Placement by the expected remaining lifetime, for host writes and for copies.
///
/// Each page has a class: the octave of the mean interval between its writes, and whether the last interval was far from that
/// mean. For each class it is counted how many pages were written and at which age they died (were written again), so that
/// for a page of any class and age the median of its remaining life is known. That decides on the stream, at a write
/// (age 0) and at each copy. A class of which little is known is judged by all pages with such a mean, these by all
/// pages. The number of streams follows from the segments that can be spared.
///
/// Of a file system more is known. A chunk that is not complete is of a class of its own, and what follows from its intervals is
/// forgotten when it is complete. Chunks that were not overwritten die with their file, and many of them together; those that are
/// left then go to a later stream than new ones.
///
/// Pages written in order have classes of their own. Where most of such a class live equally long, as the pages of a log do, they
/// are written to streams of their own, in which whole segments die together.
///
/// Times are host page writes modulo 2^32. 8 bytes per page, 68 KiB of tables. O(1) per page, and a bounded work 16 times per
/// device write. After a power loss intervals and tables begin anew. docs/design-placement.md has the reasons.
#[derive(Clone, Debug)]
struct Lifetime {
    classes: Box<[Lives; CLASSES]>,
    /// The stream of a page by its class and age.
    streams: Box<[[u8; octaves::COUNT]; CLASSES]>,
    exported: f64,
    max_streams: u8,
    /// Intervals are kept in units of 2^this host page writes, so that eight device writes can be told from more.
    shift: u32,
    period: u32,
    learned: u32,
    is_new: bool,
    /// Whether it has seen a page of a file system.
    has_files: bool,
    /// Owners of pages written lately, each at the place that its lowest bits name.
    recent: [u64; RECENT],
}

impl Lifetime {
    fn new(exported_pages: u32, max_streams: u8) -> Self {
        let longest_bits = 64 - (8 * u64::from(exported_pages)).leading_zeros();
        Self {
            classes: Box::new([Lives::NONE; CLASSES]),
            streams: Box::new([[0; octaves::COUNT]; CLASSES]),
            exported: exported_pages.into(),
            max_streams,
            shift: longest_bits.saturating_sub(Known::MEAN_BITS),
            period: (exported_pages / PERIODS_PER_DEVICE_WRITE).max(MIN_PERIOD),
            learned: 0,
            is_new: true,
            has_files: false,
            recent: [u64::MAX - 1; RECENT],
        }
    }

    /// Computes the streams from what was watched, of which a part is then forgotten.
    #[cold]
    fn learn(&mut self, segments: &Segments) {
        let spare = self.spare_segments(segments);
        let mut used = usize::from(self.streams_used(spare));
        let mut regular = [None; CLASSES];
        if spare >= SPARE_SEGMENTS[0] && self.max_streams >= 2 + REGULAR_STREAMS {
            regular = self.regular_streams(segments.data_pages);
        }
        if regular.iter().any(Option::is_some) {
            used = used.min((self.max_streams - REGULAR_STREAMS).into());
        }
        // The device write is in the middle of the scale.
        let bounds: [f64; MAX_STREAMS as usize - 1] = core::array::from_fn(|stream| {
            let factor = libm::pow(RATIO, stream as f64 + 0.5 - used as f64 / 2.0);
            self.exported * factor
        });
        let bounds = &bounds[..used - 1];
        let mut all = Lives::NONE;
        self.classes.iter().for_each(|lives| all.add(lives, 1.0));
        for (octave, streams) in self.streams.chunks_mut(KINDS).enumerate() {
            let classes = &self.classes[octave * KINDS..][..streams.len()];
            let mut near = Lives::NONE;
            classes.iter().for_each(|lives| near.add(lives, 1.0));
            let was_seen = near.written > 0.0;
            // The mean interval says more than the lives of all pages while no such page was seen.
            near.lean_on(&all, PRIOR_PAGES.min(near.written));
            let is_unknown = octave == OCTAVES;
            let usual = if is_unknown {
                4.0 * self.exported
            } else {
                1.4 * octaves::start(2 * octave) * (1u64 << self.shift) as f64
            };
            if !was_seen {
                place(&near, usual, bounds, &mut streams[0]);
                let first = streams[0];
                streams.fill(first);
                continue;
            }
            // The same for all that were not seen.
            let mut unseen = None;
            for (lives, streams) in classes.iter().zip(streams) {
                match unseen.filter(|_| lives.are_none()) {
                    Some(same) => *streams = same,
                    None => {
                        let mut leaning = *lives;
                        leaning.lean_on(&near, PRIOR_PAGES);
                        place(&leaning, usual, bounds, streams);
                        unseen = unseen.or(lives.are_none().then_some(*streams));
                    }
                }
            }
        }
        let complete_or_not = (UNKNOWN..CLASSES).filter(|class| class % STATES >= COMPLETE as usize && used > 2);
        for class in complete_or_not {
            let [new, left @ ..] = &mut self.streams[class];
            *new = (*new).min(used as u8 - 2);
            left.iter_mut().for_each(|stream| *stream = (*stream).max(*new + 1));
        }
        // Copies of regular pages are not among those that were written with them, so they go where others of their remaining life go.
        for (streams, regular) in self.streams.iter_mut().zip(regular) {
            streams[0] = regular.unwrap_or(streams[0]);
        }
        for lives in self.classes.iter_mut() {
            lives.written *= KEPT;
            lives.died.iter_mut().for_each(|died| *died *= KEPT);
        }
    }

    /// The segments that are not filled by what is in use: of a disk all exported pages, as each may be written. A file system
    /// exports all that the device can hold; there free segments count as filled, because they will be, and until
    /// then a stream more would only stay open half empty.
    fn spare_segments(&self, segments: &Segments) -> f64 {
        let data_pages = f64::from(segments.data_pages);
        match self.has_files {
            true => f64::from(segments.in_use) - segments.total_valid as f64 / data_pages,
            false => f64::from(segments.len()) - self.exported / data_pages,
        }
    }

    /// The stream of the pages of each regular class that are written, where it is worth a stream.
    fn regular_streams(&self, data_pages: u32) -> [Option<u8>; CLASSES] {
        let stream_of =
            |lives: &Lives| lives.regular().map(|life| self.max_streams - 1 - u8::from(life >= SHORT * self.exported));
        let mut streams = [None; CLASSES];
        let mut written = [0.0; MAX_STREAMS as usize];
        for class in (0..CLASSES).filter(|class| class % KINDS >= STATES) {
            streams[class] = stream_of(&self.classes[class]);
            streams[class].iter().for_each(|stream| written[usize::from(*stream)] += self.classes[class].written);
        }
        let least = FILLED_SEGMENTS * data_pages as f32;
        streams.map(|stream| stream.filter(|stream| written[usize::from(*stream)] >= least))
    }
}

impl Placement for Lifetime {
    type Info = Known;

    const HEAT_KIND: u8 = heat::WRITTEN;

    fn streams(&self) -> u8 {
        self.max_streams
    }

    fn streams_used(&self, spare_segments: f64) -> u8 {
        let more = SPARE_SEGMENTS.iter().filter(|least| spare_segments >= **least).count();
        self.max_streams.min(2 + more as u8)
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    #[inline]
    fn write(
        &mut self,
        segments: &Segments,
        now: Now,
        subject: Subject,
        old: Option<(SegmentId, Known)>,
    ) -> (u8, Known) {
        let written = now.writes as u32;
        self.has_files |= subject.content != Content::Page;
        if written.wrapping_sub(self.learned) >= self.period || self.is_new {
            (self.learned, self.is_new) = (written, false);
            self.learn(segments);
        }
        let mut known = Known { written, intervals: 0 };
        if let Some((_, old)) = old {
            let age = written.wrapping_sub(old.written);
            self.classes[old.class()].died[octaves::of(age)] += 1.0;
            let is_completed =
                old.state() == INCOMPLETE && matches!(subject.content, Content::Chunk { whole: true, .. });
            if !is_completed {
                known.intervals = old.with(age >> self.shift);
            }
        }
        known.hold(subject.content);
        let before = subject.owner.wrapping_sub(1);
        if self.recent[before as usize % RECENT] == before {
            known.intervals |= Known::IN_ORDER;
        }
        self.recent[subject.owner as usize % RECENT] = subject.owner;
        let class = known.class();
        self.classes[class].written += 1.0;
        (self.streams[class][0], known)
    }

    fn trimmed(&mut self, now: Now, known: Known) {
        let age = (now.writes as u32).wrapping_sub(known.written);
        self.classes[known.class()].died[octaves::of(age)] += 1.0;
    }

    #[inline]
    fn copy(&self, _: &Segments, _: SegmentId, now: Now, known: Known, _: u64) -> u8 {
        let age = (now.writes as u32).wrapping_sub(known.written);
        self.streams[known.class()][octaves::of(age)]
    }

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
