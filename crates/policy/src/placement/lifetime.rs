use super::{Content, Placement, PlacementBuild, Subject, WithPages, heat};
use crate::age::Now;
use crate::octaves;
use crate::segments::Segments;
use crate::spec::{Parameter, Row};
use alloc::boxed::Box;
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
/// Pages that have to be left of an age for their remaining life to be known.
const ENOUGH: f32 = 2.0;

/// Classes of pages for each octave of their mean interval: the last interval was about the mean, under half of it, over
/// twice as long; and chunks of files that are not complete. Of pages without a known interval: pages of a disk, headers of a
/// file system, complete chunks, and again those that are not.
const STATES: usize = 4;
const HEADERS: u32 = 1;
const COMPLETE: u32 = 2;
const INCOMPLETE: u32 = 3;
/// With the same for pages that were written in order, after the page before them.
const KINDS: usize = 2 * STATES;
/// Octaves of intervals.
const OCTAVES: usize = Known::MEAN_BITS as usize;
/// The first class of pages without a known interval.
const UNKNOWN: usize = OCTAVES * KINDS;
const CLASSES: usize = UNKNOWN + KINDS;

/// Pages that are remembered for a write of the page behind them.
const RECENT: usize = 64;
/// Streams for regular pages, the last ones of all: of lives under [`SHORT`] device writes, and of longer ones.
const REGULAR_STREAMS: u8 = 2;
const SHORT: f64 = 0.5;
/// Pages written in order are regular if so large a part of them lives equally long, within an octave. Of pages that die by
/// chance a quarter does.
const REGULAR_SHARE: f32 = 0.6;
/// A regular stream has to fill so many segments while the observations have weight (a third of a device write). An open segment
/// is half empty, and has to be so for the sake of many others.
const FILLED_SEGMENTS: f32 = 8.0;
/// Pages of a class that have to be seen before they are taken for regular.
const SEEN_PAGES: f32 = 32.0;

/// What is known of a page.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Host page writes when the host wrote it, modulo 2^32.
    written: u32,
    /// From the highest bit: the mean interval between its writes in units of [`Lifetime::shift`] ([`Known::MEAN_BITS`], the
    /// lowest of which says instead that it was written in order), its state ([`STATES`], 2 bits), the number of intervals up to
    /// 15 (4 bits). The mean is 0 if no interval is known.
    intervals: u32,
}

impl Known {
    const COUNT_BITS: u32 = 4;
    const STATE_BITS: u32 = 2;
    const MEAN_BITS: u32 = 32 - Self::COUNT_BITS - Self::STATE_BITS;

    const IN_ORDER: u32 = 1 << (Self::COUNT_BITS + Self::STATE_BITS);

    fn mean(self) -> u32 {
        (self.intervals & !Self::IN_ORDER) >> (32 - Self::MEAN_BITS)
    }

    fn count(self) -> u32 {
        self.intervals & ((1 << Self::COUNT_BITS) - 1)
    }

    fn state(self) -> u32 {
        self.intervals >> Self::COUNT_BITS & ((1 << Self::STATE_BITS) - 1)
    }

    /// Notes what the page holds, where that says more than intervals.
    fn hold(&mut self, content: Content) {
        let state = match content {
            Content::Chunk { whole: false, .. } => INCOMPLETE,
            Content::Chunk { .. } if self.count() == 0 => COMPLETE,
            Content::Headers { .. } if self.count() == 0 => HEADERS,
            _ => return,
        };
        self.intervals |= state << Self::COUNT_BITS;
    }

    #[inline]
    fn class(self) -> usize {
        let in_order = usize::from(self.intervals & Self::IN_ORDER != 0);
        let octave = 31 - (self.mean() | 1).leading_zeros() as usize;
        let octave = if self.count() == 0 { OCTAVES } else { octave };
        octave * KINDS + in_order * STATES + self.state() as usize
    }

    /// The intervals with one more, of a page that was not written in order: the mean of the first, then a mean in which older
    /// ones fade, each new one having a sixteenth.
    #[inline]
    fn with(self, interval: u32) -> u32 {
        let interval = interval.min((1 << Self::MEAN_BITS) - 1);
        let (mean, count) = (self.mean(), self.count());
        let shift = 32 - count.leading_zeros();
        let trend = if count == 0 { 0 } else { u32::from(interval < mean / 2) | u32::from(interval > 2 * mean) << 1 };
        let mean = (mean as i32 + ((interval as i32 - mean as i32) >> shift)).max(0) as u32;
        mean << (32 - Self::MEAN_BITS) & !Self::IN_ORDER | trend << Self::COUNT_BITS | (count + 1).min(15)
    }
}

/// Pages and how long they live.
#[derive(Clone, Copy, Debug)]
struct Lives {
    /// Pages that the host wrote.
    written: f32,
    /// Those of them that died, by their age.
    died: [f32; octaves::COUNT],
}

impl Lives {
    const NONE: Self = Self { written: 0.0, died: [0.0; octaves::COUNT] };

    fn are_none(&self) -> bool {
        self.written == 0.0 && self.died.iter().all(|died| *died == 0.0)
    }

    fn add(&mut self, other: &Self, weight: f32) {
        self.written += weight * other.written;
        self.died.iter_mut().zip(&other.died).for_each(|(died, more)| *died += weight * more);
    }

    /// Adds so many pages of a larger group that these belong to, by which they are judged while they are few.
    fn lean_on(&mut self, group: &Self, pages: f32) {
        if group.written > 0.0 {
            self.add(group, (pages / group.written).min(1.0));
        }
    }

    /// The life that most of them have, in host page writes, if it is nearly the same for most.
    fn regular(&self) -> Option<f64> {
        if self.written < SEEN_PAGES {
            return None;
        }
        let within_octave = |age: usize| self.died[age] + self.died[age + 1];
        let ages = 0..octaves::COUNT - 1;
        let usual = ages.fold(0, |most, age| if within_octave(age) > within_octave(most) { age } else { most });
        // More deaths than writes: those are of pages written together, long ago.
        let all = self.written.max(self.died.iter().sum());
        (within_octave(usual) > REGULAR_SHARE * all).then(|| octaves::start(usual))
    }
}

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
/// Times are host page writes modulo 2^32. 8 bytes per page, 68 KiB of tables. O(1) per page, and a bounded work 16 times per device write. After a power loss intervals and
/// tables begin anew. docs/design-placement.md has the reasons.
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
        let used = 2 + SPARE_SEGMENTS.iter().filter(|least| spare >= **least).count();
        let mut used = used.min(self.max_streams.into());
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

/// The stream for each age: the first whose bound is above the remaining life. That is, in host page writes, the mean of the
/// exponential distribution with the median of the pages that are left at this age; `usual` if too few are.
fn place(lives: &Lives, usual: f64, bounds: &[f64], streams: &mut [u8; octaves::COUNT]) {
    // Pages that live longer than each age, and in the end those that were not seen to die.
    let mut left = [0.0; octaves::COUNT + 1];
    left[octaves::COUNT] = (lives.written - lives.died.iter().sum::<f32>()).max(0.0);
    for age in (0..octaves::COUNT).rev() {
        left[age] = left[age + 1] + lives.died[age];
    }
    let mut last = 0;
    for (age, stream) in streams.iter_mut().enumerate() {
        let (start, half) = (octaves::start(age), left[age] / 2.0);
        last = last.max(age);
        while last < octaves::COUNT && left[last + 1] > half {
            last += 1;
        }
        let remaining = if left[age] < ENOUGH {
            usual.max(1.2 * start)
        } else if last == octaves::COUNT {
            f64::INFINITY
        } else {
            let part = f64::from((left[last] - half) / lives.died[last].max(1e-9)).clamp(0.0, 1.0);
            let (from, to) = (octaves::start(last), octaves::start(last + 1));
            let now = if last == age { start } else { 1.2 * start };
            (from + (to - from) * part - now).max(0.05 * start) / core::f64::consts::LN_2
        };
        *stream = bounds.iter().filter(|bound| remaining >= **bound).count() as u8;
    }
}

impl Placement for Lifetime {
    type Info = Known;

    const HEAT_KIND: u8 = heat::WRITTEN;

    fn streams(&self) -> u8 {
        self.max_streams
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

#[cfg(test)]
mod tests {
    use super::*;

    const EXPORTED: u32 = 10_000;

    fn device() -> (Lifetime, Segments) {
        // 50 segments more than the exported pages fill: five streams.
        (Lifetime::new(EXPORTED, MAX_STREAMS), Segments::new(150, 100, false))
    }

    /// Writes pages with these intervals for some device writes; returns what is known of each page then.
    fn run(policy: &mut Lifetime, segments: &Segments, intervals: &[u64]) -> alloc::vec::Vec<Known> {
        let mut pages = alloc::vec![None; intervals.len()];
        for writes in 1..6 * u64::from(EXPORTED) {
            for (page, interval) in pages.iter_mut().zip(intervals) {
                if writes.is_multiple_of(*interval) {
                    let old = page.map(|known| (SegmentId(0), known));
                    *page = Some(policy.write(segments, Now { us: 0, writes }, Subject::default(), old).1);
                }
            }
        }
        pages.into_iter().flatten().collect()
    }

    fn copy(policy: &Lifetime, segments: &Segments, known: Known, age: u32) -> u8 {
        policy.copy(segments, SegmentId(0), Now { us: 0, writes: u64::from(known.written + age) }, known, 0)
    }

    #[test]
    fn pages_with_long_intervals_go_to_later_streams_than_those_with_short_ones() {
        let (mut policy, segments) = device();
        let groups = [50, 3100, 20_000].map(|first| (first..first + 40).collect::<alloc::vec::Vec<u64>>());
        let known = run(&mut policy, &segments, &groups.concat());
        let streams = known.iter().map(|known| policy.streams[known.class()][0]).collect::<alloc::vec::Vec<_>>();
        assert!(streams.chunks(40).all(|group| group.iter().all(|stream| *stream == group[0])), "{streams:?}");
        assert!(streams[0] < streams[40] && streams[40] < streams[80], "{streams:?}");
    }

    #[test]
    fn a_copy_of_a_page_that_is_about_to_be_written_goes_to_an_earlier_stream_than_a_young_one_and_one_overdue_to_a_late_one()
     {
        let (mut policy, segments) = device();
        let many = (0..40).map(|page| 3100 + page).collect::<alloc::vec::Vec<_>>();
        let known = run(&mut policy, &segments, &many)[0];
        let [young, due, overdue] = [10, 3000, 50_000].map(|age| copy(&policy, &segments, known, age));
        assert!(due < young && young < overdue, "{young} {due} {overdue}");
    }

    #[test]
    fn new_pages_that_are_trimmed_after_a_short_life_are_written_to_an_early_stream() {
        let (mut policy, segments) = device();
        let mut pages = alloc::collections::VecDeque::new();
        let at = |writes| Now { us: 0, writes };
        for writes in 1..2 * u64::from(EXPORTED) {
            // Files of other pages each time, none of which is overwritten.
            let subject = Subject { owner: 5 * writes, ..Subject::default() };
            pages.push_back(policy.write(&segments, at(writes), subject, None));
            if pages.len() > 200 {
                policy.trimmed(at(writes), pages.pop_front().unwrap().1);
            }
        }
        assert!(pages.iter().all(|(stream, _)| *stream == 0), "{pages:?}");
    }

    fn chunk(whole: bool) -> Content {
        Content::Chunk { object: 1, chunk: 0, whole }
    }

    #[test]
    fn what_the_end_of_a_file_was_written_for_is_forgotten_when_it_is_complete() {
        let (mut policy, segments) = device();
        let mut write = |writes, whole, old: Option<Known>| {
            let subject = Subject { owner: 7, content: chunk(whole), ..Subject::default() };
            let old = old.map(|known| (SegmentId(0), known));
            policy.write(&segments, Now { us: 0, writes }, subject, old).1
        };
        let first = write(100, false, None);
        let second = write(200, false, Some(first));
        assert_eq!((second.mean(), second.count(), second.state()), (100, 1, INCOMPLETE));
        let complete = write(300, true, Some(second));
        assert_eq!((complete.count(), complete.class()), (0, UNKNOWN + COMPLETE as usize));
        let overwritten = write(500, true, Some(complete));
        assert_eq!((overwritten.mean(), overwritten.count()), (200, 1));
    }

    #[test]
    fn what_is_left_of_files_goes_to_a_later_stream_than_new_ones() {
        let segments = Segments { in_use: 150, ..Segments::new(150, 100, false) };
        let mut policy = Lifetime::new(EXPORTED, MAX_STREAMS);
        let mut pages = alloc::collections::VecDeque::new();
        let at = |writes| Now { us: 0, writes };
        let (mut new, mut left) = (MAX_STREAMS, 0);
        for writes in 1..4 * u64::from(EXPORTED) {
            let subject = Subject { owner: 5 * writes, content: chunk(true), ..Subject::default() };
            let (stream, known) = policy.write(&segments, at(writes), subject, None);
            (new, left) = (stream, copy(&policy, &segments, known, 50));
            pages.push_back(known);
            // One of each two dies at once, whatever its age, so that age says nothing.
            if pages.len() > 1000 {
                let dying = (writes * 7919 % 1000) as usize;
                policy.trimmed(at(writes), pages.swap_remove_back(dying).unwrap());
            }
        }
        assert!(left > new, "{new} {left}");
    }

    #[test]
    fn a_file_system_has_as_many_streams_as_what_is_in_use_leaves_segments_once_all_have_been_used() {
        let mut policy = Lifetime::new(EXPORTED, MAX_STREAMS);
        policy.has_files = true;
        let mut segments = Segments::new(100, 100, false);
        (segments.in_use, segments.total_valid) = (30, 2900);
        assert_eq!(policy.spare_segments(&segments), 1.0, "70 are free");
        segments.in_use = 98;
        assert_eq!(policy.spare_segments(&segments), 69.0);
        policy.has_files = false;
        assert_eq!(policy.spare_segments(&segments), 0.0, "all pages of a disk may be written");
    }

    #[test]
    fn there_are_two_streams_where_few_segments_can_be_spared_and_more_where_many_can() {
        for (spare, streams) in [(5, 2), (12, 3), (50, 4), (200, 5), (700, 6)] {
            let segments = Segments::new(100 + spare, 100, false);
            let mut policy = Lifetime::new(EXPORTED, MAX_STREAMS);
            let lives = [1, 200, 700, 3000, 11_000, 45_000];
            run(&mut policy, &segments, &lives);
            let last = *policy.streams.iter().flatten().max().unwrap();
            assert_eq!(last + 1, streams, "{spare} segments");
        }
    }

    #[test]
    fn the_mean_interval_follows_and_the_trend_says_that_the_last_one_was_far_from_it() {
        let mut known = Known::default();
        assert_eq!(known.class(), UNKNOWN);
        for _ in 0..40 {
            known.intervals = known.with(1000);
        }
        assert_eq!((known.mean(), known.class()), (1000, 9 * KINDS));
        let (short, long) = (known.with(100), known.with(u32::MAX));
        let class = |intervals| Known { written: 0, intervals }.class() % STATES;
        assert_eq!((class(short), class(long)), (1, 2));
        assert!((900..1000).contains(&Known { written: 0, intervals: short }.mean()));
    }

    /// Writes a log over the first half of the pages, and, as often, pages of the other half: each in turn too, but in an order
    /// without neighbours. Returns the streams of the last writes of the log, and of the others.
    fn log_and_others(policy: &mut Lifetime, segments: &Segments) -> [alloc::vec::Vec<u8>; 2] {
        let mut pages = alloc::vec![None; EXPORTED as usize];
        let mut streams = [const { alloc::vec::Vec::new() }; 2];
        for writes in 1..8 * u64::from(EXPORTED) {
            let (half, turn) = (u64::from(EXPORTED) / 2, writes / 2);
            let is_log = writes % 2 == 0;
            let page = if is_log { turn % half } else { half + turn * 1237 % half };
            let subject = Subject { owner: page, ..Subject::default() };
            let old = pages[page as usize].map(|known| (SegmentId(0), known));
            let (stream, known) = policy.write(segments, Now { us: 0, writes }, subject, old);
            pages[page as usize] = Some(known);
            if writes > 7 * u64::from(EXPORTED) {
                streams[usize::from(!is_log)].push(stream);
            }
        }
        streams
    }

    #[test]
    fn a_log_has_a_stream_of_its_own_beside_pages_that_live_as_long() {
        let (mut policy, segments) = device();
        let [log, others] = log_and_others(&mut policy, &segments);
        // A few times the page before was forgotten, or came before a page of the others by chance.
        let apart = |streams: &[u8]| streams.iter().filter(|stream| **stream == MAX_STREAMS - REGULAR_STREAMS).count();
        assert!(apart(&log) * 10 > log.len() * 9, "{} of {}", apart(&log), log.len());
        assert!(apart(&others) * 20 < others.len(), "{} of {}", apart(&others), others.len());
    }

    #[test]
    fn a_log_has_no_stream_of_its_own_where_few_segments_can_be_spared_or_few_streams_are_allowed() {
        for (segments, streams) in [(105, MAX_STREAMS), (150, 3)] {
            let mut policy = Lifetime::new(EXPORTED, streams);
            let [log, others] = log_and_others(&mut policy, &Segments::new(segments, 100, false));
            assert_eq!(log[1..], others[1..log.len()], "{segments} segments, {streams} streams");
        }
    }

    #[test]
    fn pages_written_together_long_ago_are_not_taken_for_regular() {
        let mut lives = Lives { written: 100.0, ..Lives::NONE };
        lives.died[20] = 45.0;
        lives.died[21] = 45.0;
        assert_eq!(lives.regular(), Some(octaves::start(20)));
        assert_eq!(Lives { written: 200.0, ..lives }.regular(), None, "many live longer");
        assert_eq!(Lives { written: 20.0, ..lives }.regular(), None, "few were written");
        lives.died[12..19].fill(20.0);
        assert_eq!(lives.regular(), None);
    }

    #[test]
    fn what_is_known_of_a_page_survives_a_checkpoint_and_of_its_tag_the_time_of_its_write() {
        let (mut policy, _) = device();
        let known = Known { written: 77, intervals: 1234 << 6 | 17 };
        let now = Now { us: 5, writes: 100 };
        let encoded = policy.encode(known, now);
        let decoded = policy.decode(encoded, now);
        assert_eq!((decoded.written, decoded.intervals), (77, 1234 << 6 | 17));
        let tag = policy.pack(known);
        let unpacked = policy.unpack(tag, now, now);
        assert_eq!((unpacked.written, unpacked.class()), (77, UNKNOWN));
    }
}
