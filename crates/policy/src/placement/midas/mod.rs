//! MiDAS: groups in a chain, whose number and sizes a model chooses.

mod intervals;
mod model;
mod search;
#[cfg(test)]
mod tests;

use super::{Pages, Placement, PlacementBuild, Subject, WithPages, heat};
use crate::age::Now;
use crate::bounds::{Bound, Bounds, StreamBound, Tail};
use crate::segments::{Segments, State};
use crate::spec::{Parameter, Row};
use intervals::Intervals;
use margay_flash::SegmentId;
use model::{Hot, MAX_GROUPS, Prediction, Room};
use search::Search;

/// The row of MiDAS.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "midas",
    summary: "a chain of groups, each a queue of a size that a model chooses; made for the selection grouped",
    parameters: &[Parameter::number("groups", 8, 3..=MAX_GROUPS as u32, "max number of groups, each a stream")],
    source: "Oh et al., FAST 2024",
    build: |args, exported_pages| WithPages::boxed(Midas::new(args.number("groups") as u8, exported_pages)),
};

/// The stream of pages that are written again and again.
const HOT: u8 = 0;
/// The stream of all other host writes.
const FIRST: u8 = 1;
/// A page with this counter is hot.
const MAX_COUNTER: u32 = 3;
/// Streams of a tail that is not modelled: by number of copies.
const PARTS: u8 = 4;
/// Free segments that no group can hold.
const KEPT_FREE: u32 = 4;
/// Length of an epoch in writes of all pages of the flash.
const EPOCH: u64 = 4;
/// Max number of times that an epoch is doubled.
const MAX_DOUBLED: u32 = 4;
/// A group is not what the model expected if this much more of it is valid.
const TOLERANCE: f64 = 0.10;
/// Share of the epoch after which a model is compared with what happened.
const CHECK_AFTER: f64 = 0.3;
/// Cleanings that should have gained more than a few segments.
const MAX_CLEANINGS: u32 = 25;
/// Data that is never written again counts only above this share of the device.
const MIN_COLD: f64 = 0.20;
/// Host writes between two slices of a search, and choices tried in a slice (some 0.1 ms).
const SLICE: (u64, u32) = (16, 32);

/// What is kept of a page: host page writes when the host wrote it, modulo 2^32, of which the last two bits are
/// the counter instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Info(u32);

impl Info {
    fn new(now: Now, counter: u32) -> Self {
        Self(now.writes as u32 & !MAX_COUNTER | counter)
    }

    /// Host page writes since the host wrote the page.
    fn age(self, now: Now) -> u32 {
        (now.writes as u32 & !MAX_COUNTER).wrapping_sub(self.0 & !MAX_COUNTER)
    }

    fn counter(self) -> u32 {
        self.0 & MAX_COUNTER
    }
}

/// A mean that is being taken.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
}

/// What is measured over an epoch.
#[derive(Clone, Debug)]
struct Epoch {
    start: u64,
    end: u64,
    intervals: Intervals,
    hot_writes: u64,
    copies: u64,
    /// Share of the pages of hot victims that were valid.
    hot_valid: Mean,
}

impl Epoch {
    /// Counts the life of a page that ends now, if it began in this epoch.
    #[inline]
    fn count(&mut self, info: Info, now: Now) {
        let age = info.age(now);
        if u64::from(age) < now.writes - self.start {
            self.intervals.count(age);
        }
    }
}

/// A model that is in use, and what happened since.
#[derive(Clone, Debug)]
struct Model {
    prediction: Prediction,
    /// Share of the pages of victims that were valid, by group.
    valid: [Mean; MAX_GROUPS],
    since: u64,
    /// When it is compared next; `None` until every group was cleaned.
    check: Option<u64>,
}

/// MiDAS, migration-based data placement with adaptive group number and size configuration.
///
/// Source: Oh et al., "MIDAS: minimizing write amplification in log-structured systems through adaptive group number and
/// size configuration", FAST 2024, and its public simulator. Groups form a chain: a hot one, then 1, 2 and so on; host writes go
/// to the hot group if the 2-bit counter of the page is full, else to group 1; what is valid of a victim goes to the next
/// group, and the last one keeps its own. All but the last are queues of a fixed size ([`Placement::bounds`]); the last one is
/// cleaned by cost-benefit with the square root of the age. The intervals between writes of a page, counted over an epoch
/// (four writes of the flash, from two device writes on), give the write amplification of any choice of sizes, of
/// which a search finds a good one. A group of which 0.10 more is valid than predicted is merged with all later ones into a tail
/// of four streams by number of copies, which is also how it starts, and starts anew after a mount.
///
/// Readings: all pages are counted, not one in a hundred, because a small device has too few; a bin is a quarter of a segment,
/// and longer if that would give over 2^16; intervals that the ends of the epoch cut are made up for exactly; the hot group
/// grows until one more segment would take under 0.5 % of the writes; the share of hot traffic that the model takes for
/// measured is that of the shortest intervals; data never written again takes its space with it; sizes over 64 segments are
/// tried in steps of a 32nd; the margins of 50 segments are 2.4 % of the device. No more groups are open than half of the spare
/// segments. With another selection than `grouped` the queues are not kept, and this is the chain alone.
///
/// Memory: 4 bytes per page; 64 bytes per segment for the histogram, and 400 while a search is under way. Time is host
/// page writes: a search tries 32 choices every 16 host writes. 450 instructions per host write of the whole engine where greedy + m1
/// has 275 and three times the copies (docs/placements.md).
#[derive(Clone, Debug)]
struct Midas {
    streams: u8,
    exported_pages: u32,
    /// Host page writes at the first write seen, and then the next one at which something is due.
    started: Option<u64>,
    due: u64,
    bounds: Bounds,
    /// The last group: its stream, or the first of its streams.
    last: u8,
    /// Number of streams of the last group.
    parts: u8,
    /// Max number of groups on this device.
    max_groups: u8,
    hot_segments: u32,
    /// Pages overwritten within this many writes after their segment was sealed become hotter.
    hot_age: u64,
    hot_ages: Mean,
    window_end: u64,
    epoch: Option<Epoch>,
    /// How often the length of an epoch was doubled.
    doubled: u32,
    /// A search, and the write amplification that its result has to beat.
    search: Option<(Search, f64)>,
    model: Option<Model>,
    /// Models that were wrong early, one after the other.
    wrong: u32,
    /// Cleanings, and host page writes when they were begun to be counted.
    burst: (u32, u64),
}

impl Midas {
    fn new(streams: u8, exported_pages: u32) -> Self {
        Self {
            streams,
            exported_pages,
            started: None,
            due: 0,
            bounds: Bounds { streams: [].into(), tail: Tail::CostBenefit, version: 0 },
            last: FIRST,
            parts: 1,
            max_groups: 2,
            hot_segments: 1,
            hot_age: exported_pages.into(),
            hot_ages: Mean::default(),
            window_end: 0,
            epoch: None,
            doubled: 0,
            search: None,
            model: None,
            wrong: 0,
            burst: (0, 0),
        }
    }

    fn epoch_writes(&self, segments: &Segments) -> u64 {
        let writes = (u64::from(segments.len()) * u64::from(segments.data_pages) * EPOCH) << self.doubled;
        writes.min(1 << 31)
    }

    /// Does what is due after so many host writes.
    #[cold]
    fn work(&mut self, segments: &Segments, now: Now) {
        let device = u64::from(self.exported_pages);
        let Some(started) = self.started else {
            self.started = Some(now.writes);
            let used = self.exported_pages / segments.data_pages.max(1);
            let spare = segments.len().saturating_sub(used);
            self.max_groups = (spare / 2).clamp(2, self.streams.into()) as u8;
            self.merge_from(FIRST);
            self.window_end = now.writes + device;
            self.due = self.window_end;
            return;
        };
        if now.writes >= self.window_end {
            self.adapt_hot_age();
            self.window_end = now.writes + self.hot_age.max(1);
        }
        if let Some((mut search, wa)) = self.search.take() {
            if !search.step(SLICE.1) {
                self.search = Some((search, wa));
            } else if let Some(prediction) = search.best()
                && prediction.groups > 2
                && wa >= prediction.wa
            {
                self.adopt(prediction, segments, now);
            }
        }
        match &self.epoch {
            Some(epoch) if now.writes >= epoch.end => self.end_epoch(segments, now),
            None if now.writes >= started + 2 * device => self.start_epoch(segments, now),
            _ => {}
        }
        let epoch = self.epoch.as_ref().map_or(started + 2 * device, |epoch| epoch.end);
        let search = if self.search.is_some() { now.writes + SLICE.0 } else { u64::MAX };
        self.due = self.window_end.min(epoch).min(search);
    }

    fn adapt_hot_age(&mut self) {
        if let Some(measured) = core::mem::take(&mut self.hot_ages).value() {
            let old = self.hot_age as f64;
            self.hot_age = if measured >= 2.0 * old { 1.5 * old } else { (measured + old) / 2.0 } as u64;
        }
    }

    fn start_epoch(&mut self, segments: &Segments, now: Now) {
        let writes = self.epoch_writes(segments);
        self.epoch = Some(Epoch {
            start: now.writes,
            end: now.writes + writes,
            intervals: Intervals::new(writes, segments.data_pages / 4),
            hot_writes: 0,
            copies: 0,
            hot_valid: Mean::default(),
        });
    }

    /// Begins a search with what was measured, if it can be relied on, and the next epoch.
    fn end_epoch(&mut self, segments: &Segments, now: Now) {
        let Some(epoch) = self.epoch.take() else { return };
        let writes = (now.writes - epoch.start) as f64;
        let (traffic, valid) = match epoch.hot_valid.value() {
            Some(valid) => (epoch.hot_writes as f64 / writes, valid),
            None => (0.01, 0.05),
        };
        let in_tail = |id: &SegmentId| {
            let (stream, opened) = (segments.stream[id.index()], segments.opened_sequence[id.index()]);
            segments.state[id.index()] == State::Sealed && self.bounds.of(stream, opened).is_none()
        };
        let (mut tail, mut whole) = (0.0, 0.0);
        for id in segments.ids().filter(in_tail) {
            tail += 1.0;
            whole += f64::from(u8::from(segments.valid[id.index()] == segments.data_pages));
        }
        let distribution = epoch.intervals.distribution(segments.data_pages);
        let max_valid = if self.hot_segments > 1 { 0.18 } else { 0.30 };
        if valid > max_valid || tail == 0.0 || distribution.is_empty() {
            self.doubled = (self.doubled + 1).min(MAX_DOUBLED);
            return self.start_epoch(segments, now);
        }
        let unused = segments.state.iter().filter(|state| matches!(state, State::Reserved | State::Bad)).count() as u32;
        let cold = whole - 0.05 * tail;
        let room = Room {
            segments: segments.len().saturating_sub(unused + KEPT_FREE),
            data_pages: segments.data_pages,
            used: segments.total_valid as f64 / f64::from(segments.data_pages),
            cold: if cold >= MIN_COLD * f64::from(segments.len()) { cold } else { 0.0 },
        };
        let is_measured = valid > 0.10 || traffic < 0.15;
        let hot = Hot { segments: self.hot_segments, traffic, valid, time: distribution.quantile(traffic) };
        let wa = 1.0 + epoch.copies as f64 / writes;
        let search = Search::new(distribution, room, is_measured.then_some(hot), self.max_groups.into());
        self.search = Some((search, wa));
        self.start_epoch(segments, now);
    }

    /// Takes over sizes of groups. What is over them, oldest first, goes to the last group.
    fn adopt(&mut self, prediction: Prediction, segments: &Segments, now: Now) {
        let before = self.last;
        let next = 1 + segments.opened_sequence.iter().max().copied().unwrap_or_default();
        self.last = prediction.groups as u8 - 1;
        self.parts = 1;
        self.hot_segments = prediction.segments[0];
        let old = core::mem::take(&mut self.bounds.streams);
        for stream in 0..self.last {
            let size = prediction.segments[usize::from(stream)];
            let max = size.saturating_sub(if stream == FIRST { 2 } else { 1 });
            let since = if stream > before { next } else { old.get(usize::from(stream)).map_or(0, |old| old.since) };
            let since = self.newest(segments, stream, max, since);
            self.bounds.streams.push(StreamBound { bound: Bound::Segments(max), since });
        }
        self.bounds.version += 1;
        self.model = Some(Model { prediction, valid: Default::default(), since: now.writes, check: None });
    }

    /// The number of the opening from which on `max` segments of a stream were opened, beside the open one.
    fn newest(&self, segments: &Segments, stream: u8, max: u32, since: u64) -> u64 {
        let is_here = |id: &SegmentId| {
            let i = id.index();
            segments.state[i] == State::Sealed && segments.stream[i] == stream && segments.opened_sequence[i] >= since
        };
        let mut opened: alloc::vec::Vec<_> =
            segments.ids().filter(is_here).map(|id| segments.opened_sequence[id.index()]).collect();
        opened.sort_unstable_by(|a, b| b.cmp(a));
        match max.checked_sub(1) {
            _ if opened.len() <= max as usize => since,
            Some(last) => opened[last as usize],
            None => opened[0] + 1,
        }
    }

    /// Merges this group and all later ones into a tail without a model.
    fn merge_from(&mut self, group: u8) {
        self.last = group.max(FIRST);
        self.parts = PARTS.min(self.max_groups.saturating_sub(self.last)).max(1);
        self.model = None;
        if group == HOT || self.bounds.streams.is_empty() {
            self.hot_segments = 1;
            self.bounds.streams.resize(1, StreamBound::default());
            self.bounds.streams[0].bound = Bound::Segments(1);
        }
        self.bounds.streams.truncate(usize::from(self.last));
        self.bounds.version += 1;
    }

    /// The group that a segment belongs to.
    fn group_of(&self, segments: &Segments, segment: SegmentId) -> u8 {
        let (stream, opened) = (segments.stream[segment.index()], segments.opened_sequence[segment.index()]);
        if self.bounds.of(stream, opened).is_some() { stream } else { self.last }
    }

    /// The counter of a page that is overwritten. What cleaning did to it is known from the stream that it lies in.
    #[inline]
    fn counter(&self, segments: &Segments, segment: SegmentId, info: Info, now: Now) -> u32 {
        let i = segment.index();
        let counter = info.counter();
        match segments.stream[i] {
            HOT => (counter + 1).min(MAX_COUNTER),
            FIRST => {
                let counter = if counter == MAX_COUNTER { 1 } else { counter };
                let age = if segments.state[i] == State::Open { 0 } else { now.writes - segments.sealed_writes[i] };
                if age <= self.hot_age { counter + 1 } else { counter.saturating_sub(1) }
            }
            _ if counter == MAX_COUNTER => 0,
            _ => counter.saturating_sub(1),
        }
    }

    /// Compares the model with what happened once every group was cleaned, and gives it up where it is wrong.
    fn check(&mut self, segments: &Segments, now: Now) {
        let length = self.epoch_writes(segments);
        let after = (length as f64 * CHECK_AFTER) as u64;
        let Some(model) = &mut self.model else { return };
        let groups = model.prediction.groups;
        if model.check.is_none() {
            if model.valid[..groups].iter().all(|mean| mean.count > 0) {
                model.check = Some(now.writes + after);
            }
            return;
        }
        if model.check.is_none_or(|check| now.writes < check) {
            return;
        }
        model.check = Some(now.writes + after);
        let is_wrong = |group: &usize| {
            model.valid[*group].value().is_some_and(|valid| valid > model.prediction.valid[*group] + TOLERANCE)
        };
        let Some(group) = (0..groups).find(is_wrong) else {
            self.wrong = 0;
            return;
        };
        self.wrong = if now.writes - model.since < length / 2 { self.wrong + 1 } else { 0 };
        if self.wrong == 2 {
            self.wrong = 0;
            self.doubled = (self.doubled + 1).min(MAX_DOUBLED);
        }
        self.merge_from(group as u8);
    }
}

impl Placement for Midas {
    type Info = Info;

    const ONE_STREAM_PER_VICTIM: bool = true;

    const HEAT_KIND: u8 = heat::WRITTEN;

    fn streams(&self) -> u8 {
        self.streams
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(&mut self, segments: &Segments, now: Now, _: Subject, old: Option<(SegmentId, Info)>) -> (u8, Info) {
        if now.writes >= self.due {
            self.work(segments, now);
        }
        // Nothing becomes hot within the first device write.
        let is_warm = self.started.is_some_and(|started| now.writes > started + u64::from(self.exported_pages));
        let counter = match old {
            Some((segment, info)) if is_warm => self.counter(segments, segment, info, now),
            _ => 0,
        };
        let stream = if counter >= MAX_COUNTER { HOT } else { FIRST };
        if let Some(epoch) = &mut self.epoch {
            if let Some((_, info)) = old {
                epoch.count(info, now);
            }
            epoch.hot_writes += u64::from(stream == HOT);
        }
        (stream, Info::new(now, counter))
    }

    fn trimmed(&mut self, now: Now, info: Info) {
        if let Some(epoch) = &mut self.epoch {
            epoch.count(info, now);
        }
    }

    fn begin_cleaning(&mut self, segments: &Segments, victim: SegmentId, now: Now, _: Pages<'_, Info>) {
        let group = usize::from(self.group_of(segments, victim));
        let valid = segments.valid[victim.index()];
        let share = f64::from(valid) / f64::from(segments.data_pages);
        if let Some(epoch) = &mut self.epoch {
            epoch.copies += u64::from(valid);
            if group == usize::from(HOT) {
                epoch.hot_valid.add(share);
            }
        }
        if group == usize::from(HOT) {
            self.hot_ages.add((now.writes - segments.sealed_writes[victim.index()]) as f64);
        }
        if let Some(model) = &mut self.model {
            model.valid[group].add(share);
            self.check(segments, now);
        }
        // So many cleanings for so few writes gain nothing.
        if now.writes - self.burst.1 >= 2 * u64::from(segments.data_pages) {
            self.burst = (0, now.writes);
        }
        self.burst.0 += 1;
        if self.burst.0 > MAX_CLEANINGS && self.last > FIRST {
            self.burst = (0, now.writes);
            self.merge_from(FIRST);
        }
    }

    fn copy(&self, segments: &Segments, victim: SegmentId, _: Now, _: Info, _: u64) -> u8 {
        let stream = segments.stream[victim.index()];
        if self.group_of(segments, victim) < self.last {
            stream + 1
        } else {
            let part = stream.clamp(self.last, self.last + self.parts - 1);
            (part + 1).min(self.last + self.parts - 1)
        }
    }

    fn pack(&self, info: Info) -> u32 {
        // Other placements read the tag as a time.
        info.0 & !MAX_COUNTER
    }

    fn unpack(&mut self, written: u32, _: Now, _: Now) -> Info {
        Info(written & !MAX_COUNTER)
    }

    fn encode(&self, info: Info, _: Now) -> (u64, u32) {
        (0, info.0)
    }

    fn decode(&mut self, (_, info): (u64, u32), _: Now) -> Info {
        Info(info)
    }

    fn bounds(&self) -> Option<&Bounds> {
        Some(&self.bounds)
    }
}
