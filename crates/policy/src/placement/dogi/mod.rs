//! DOGI: groups by lifetimes that a small network predicts.

mod groups;
mod network;
pub(super) mod nodap;
#[cfg(test)]
mod tests;
mod training;

use super::{Pages, Placement, PlacementBuild, Subject, WithPages, heat};
use crate::age::Now;
use crate::bounds::{Bound, Bounds, StreamBound, Tail};
use crate::segments::{Segments, State};
use crate::spec::{Parameter, Row};
use alloc::{vec, vec::Vec};
use groups::{Facts, Groups};
use margay_flash::SegmentId;
use network::{CLASSES, Input};
use training::{Learner, Trained};

/// The row of DOGI.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "dogi",
    summary: "groups by the lifetime that a small network predicts, with bounds on it; made for the selection grouped",
    parameters: &[
        Parameter::number("groups", 8, 4..=12, "max number of groups, each a stream"),
        Parameter::choice("tail", Tail::NAMES, "how grouped cleans the last group and the frozen one"),
    ],
    source: "DOGI, FAST 2026",
    build: |args, exported_pages| {
        let tail = args.choice("tail", &Tail::ALL);
        WithPages::boxed(Dogi::new(args.number("groups") as u8, tail, exported_pages))
    },
};

const HOT: u8 = 0;
/// Before the first training: host writes, and pages copied once and more often.
const COLD: u8 = 1;
const COPIED: u8 = 2;
const COPIED_AGAIN: u8 = 3;

/// Lifetimes in device writes: the upper bound of the first class, the others are each twice as long.
const FIRST_CLASS: f64 = 0.01;
/// Hot pages live less than this at the start, and the step by which that is changed.
const HOT_LIFE: f64 = 0.0064;
const HOT_STEP: f64 = 0.0021;
/// After so many device writes it is looked whether a step has helped.
const HOT_WINDOW: f64 = 0.32;
/// A change of the write amplification that counts.
const CHANGE: f64 = 0.05;
/// Groups that cost so many times what was paid without them are given up.
const WORSE: f64 = 1.2;
/// A bit of the map of recent writes of a page stands for so many device writes.
const MAP_WINDOW: f64 = 1.28;
/// Pages that were not written for so long are frozen when they are copied.
const FROZEN_AFTER: f64 = 6.4;
/// Segments that no group can hold.
const KEPT_FREE: u32 = 4;
/// Pages whose writes are counted together.
const CHUNK_PAGES: u64 = 512;
/// Steps of an estimate in a device write.
const ESTIMATE_STEPS: u64 = 128;
/// The class of a page that was written to the hot group or before there was a network.
const NO_CLASS: u8 = 15;

/// What is kept of a page, in 64 bits: host page writes when it was written, modulo 2^32; the map of its recent writes; its
/// predicted class; and the number of the sample that was taken of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Info(u64);

impl Info {
    fn new(now: Now, map: u8, class: u8, sample: u32) -> Self {
        let written = u64::from(now.writes as u32);
        Self(written | u64::from(map) << 32 | u64::from(class) << 40 | u64::from(sample) << 44)
    }

    fn written(self) -> u32 {
        self.0 as u32
    }

    fn age(self, now: Now) -> u32 {
        (now.writes as u32).wrapping_sub(self.written())
    }

    fn map(self) -> u8 {
        (self.0 >> 32) as u8
    }

    fn class(self) -> u8 {
        (self.0 >> 40) as u8 & NO_CLASS
    }

    fn sample(self) -> u32 {
        (self.0 >> 44) as u32
    }
}

/// DOGI: groups by lifetimes that a network of 1,610 weights predicts.
///
/// Source: DOGI, FAST 2026. A host write whose page lived shorter than a limit goes to the hot group; of all others a network
/// (6-32-32-10) predicts the class of lifetimes, from 1 % of a device write on, each twice as long. Neighbouring classes
/// share a group where a model of the flow between groups expects that to cost least; a group's segments are due at the age
/// of its longest class ([`Placement::bounds`]). A page that is copied first goes to the group for the life that its class has left,
/// then from group to group; one that was not written for long is frozen. The limit of the hot group follows the write
/// amplification.
///
/// Time is host page writes. All lengths of the paper (200 thousand to 200 million pages on 128 GB) are shares of the device:
/// the hot limit 0.0064 device writes with steps of 0.0021, compared every 0.32; training every 0.83; maps of recent writes in
/// steps of 1.28; frozen after 6.4. Training is spread evenly over half of the time until the next one, a batch at a time (0.1 to
/// 0.3 ms), so that no host write waits for more. The network begins anew after a mount.
///
/// Readings: one of 32 writes is sampled, and kept until the page is overwritten or the place is needed, when it counts with twice
/// the age reached; batches of 8 to 128, so that small devices make enough steps; a copy is a page's first if its
/// segment was opened before it was written; frozen is by age instead of flags that are cleared from time to time;
/// before the first training, or while under 10 % are predicted right, there are two streams for host writes and two for
/// copies, cleaned by cost-benefit. No more groups are open than half of the spare segments. With another selection than
/// `grouped` the bounds are not kept.
///
/// Differences from the paper: the last group and the frozen one are cleaned by cost-benefit unless `tail=fewest-valid` says as
/// published, which costs more (docs/placements.md); the space that is valid in a group is computed from the lives of
/// its classes, and a group has its open segment beside it; and groups that cost 1.2 times what was
/// paid without them are given up until a later training. Without the last a wrong model could cost a WA of 16 for long,
/// because a group keeps its invalid pages until they are due.
///
/// Memory: 8 bytes per page; samples 2.5 bytes per exported page. 3,270 instructions per host write of the whole engine, half of them
/// for training, where greedy + m1 has 275 (docs/placements.md).
#[derive(Clone, Debug)]
struct Dogi {
    streams: u8,
    tail: Tail,
    exported_pages: u32,
    seed: u64,
    bounds: Bounds,
    /// What classes and groups are; `None` before the first training.
    groups: Option<Placed>,
    /// What hot pages live less than.
    hot_limit: u64,
    windows: Windows,
    learner: Option<Learner>,
    /// Writes of neighbouring pages.
    chunks: Vec<u32>,
    previous: u64,
    started: Option<u64>,
    due: u64,
    counted: Counted,
    copies: u64,
    trust: Trust,
}

/// A configuration of groups in use.
#[derive(Clone, Copy, Debug)]
struct Placed {
    groups: Groups,
    /// The group for what a page of each class has left when it is copied first.
    after_copy: [u8; CLASSES],
}

/// Whether configurations are worth what they cost.
#[derive(Clone, Copy, Debug, Default)]
struct Trust {
    /// The write amplification without groups.
    without: Option<f64>,
    /// Windows since groups were taken into use or given up.
    windows: u32,
    /// How often they were given up, and how many more trainings are passed over.
    given_up: u32,
    passed_over: u32,
}

/// When what is looked at next.
#[derive(Clone, Copy, Debug, Default)]
struct Windows {
    hot_end: u64,
    map_end: u64,
    /// Number of the map's window.
    map: u32,
    /// Copies at the start of the window of the hot limit, and the write amplification of the one before.
    copies: u64,
    wa: Option<f64>,
}

/// What was counted since the last configuration.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    hot: u64,
    all: u64,
    hot_victims: f64,
    hot_valid: f64,
}

/// Upper bounds of the classes in host writes.
fn class_bounds(exported_pages: u32) -> [f64; CLASSES] {
    let mut bounds = core::array::from_fn(|class| FIRST_CLASS * f64::from(exported_pages) * f64::from(1 << class));
    bounds[CLASSES - 1] = f64::INFINITY;
    bounds
}

impl Dogi {
    fn new(streams: u8, tail: Tail, exported_pages: u32) -> Self {
        let chunks = u64::from(exported_pages).div_ceil(CHUNK_PAGES);
        Self {
            streams,
            tail,
            exported_pages,
            seed: 0,
            bounds: Bounds { streams: Vec::new(), tail: Tail::CostBenefit, version: 0 },
            groups: None,
            hot_limit: 1,
            windows: Windows::default(),
            learner: None,
            chunks: vec![0; chunks as usize],
            previous: 0,
            started: None,
            due: 0,
            counted: Counted::default(),
            copies: 0,
            trust: Trust::default(),
        }
    }

    /// Device writes in host page writes, at least one.
    fn device_writes(&self, times: f64) -> u64 {
        ((times * f64::from(self.exported_pages)) as u64).max(1)
    }

    fn frozen(&self) -> u8 {
        self.streams - 1
    }

    /// Does what is due after so many host writes.
    #[cold]
    fn work(&mut self, segments: &Segments, now: Now) {
        if self.started.is_none() {
            self.started = Some(now.writes);
            self.hot_limit = self.device_writes(HOT_LIFE);
            self.windows.hot_end = now.writes + self.device_writes(HOT_WINDOW);
            self.windows.map_end = now.writes + self.device_writes(MAP_WINDOW);
            self.learner =
                Some(Learner::new(self.seed, self.exported_pages, class_bounds(self.exported_pages), now.writes));
            self.fall_back();
        }
        if now.writes >= self.windows.hot_end {
            self.adapt_hot_limit();
            self.windows.hot_end = now.writes + self.device_writes(HOT_WINDOW);
        }
        if now.writes >= self.windows.map_end {
            self.windows.map += 1;
            self.windows.map_end = now.writes + self.device_writes(MAP_WINDOW);
            self.chunks.iter_mut().for_each(|writes| *writes /= 2);
        }
        let Some(learner) = &mut self.learner else { return };
        let ready = learner.work(now.writes);
        self.due = self.windows.hot_end.min(self.windows.map_end).min(learner.due);
        match ready {
            Some(Trained::Wrong) => self.fall_back(),
            Some(Trained::Lives(lives)) => {
                let facts = self.facts(segments, lives);
                self.counted = Counted::default();
                if let Some(learner) = &mut self.learner {
                    learner.choose(facts);
                }
            }
            Some(Trained::Groups(..)) if self.trust.passed_over > 0 => {
                self.trust.passed_over -= 1;
                self.fall_back();
            }
            Some(Trained::Groups(groups, lives)) => self.adopt(groups, &lives, segments),
            None => {}
        }
    }

    fn facts(&self, segments: &Segments, lives: Vec<(u8, f32)>) -> Facts {
        let unused = segments.state.iter().filter(|state| matches!(state, State::Reserved | State::Bad)).count() as u32;
        let counted = &self.counted;
        let spare = segments.len().saturating_sub(self.exported_pages / segments.data_pages.max(1));
        Facts {
            segments: segments.len().saturating_sub(unused + KEPT_FREE).into(),
            used: segments.total_valid as f64 / f64::from(segments.data_pages),
            data_pages: segments.data_pages.into(),
            hot_traffic: counted.hot as f64 / counted.all.max(1) as f64,
            hot_bound: self.hot_limit as f64,
            hot_valid: if counted.hot_victims > 0.0 { counted.hot_valid / counted.hot_victims } else { 0.05 },
            bounds: class_bounds(self.exported_pages),
            lives,
            // No more are open than half of the spare segments.
            max_groups: usize::from(self.streams - 2).min((spare as usize / 2).saturating_sub(2)).max(1),
        }
    }

    fn adapt_hot_limit(&mut self) {
        let written = self.device_writes(HOT_WINDOW) as f64;
        let wa = 1.0 + (self.copies - self.windows.copies) as f64 / written;
        self.windows.copies = self.copies;
        let step = self.device_writes(HOT_STEP);
        self.trust.windows += 1;
        if self.groups.is_none() {
            self.trust.without = Some(wa);
        } else if self.trust.windows > 1 && self.trust.without.is_some_and(|without| wa > WORSE * without) {
            self.trust.given_up += 1;
            self.trust.passed_over = self.trust.given_up;
            self.fall_back();
        }
        // What happens while a fresh device fills or groups change says nothing of the limit.
        let is_settled = self.groups.is_some() && self.trust.windows > 1;
        if let Some(before) = self.windows.wa.replace(wa).filter(|_| is_settled) {
            if wa < before * (1.0 - CHANGE) {
                self.hot_limit += step;
            } else if wa > before * (1.0 + CHANGE) {
                self.hot_limit = self.hot_limit.saturating_sub(step).max(step);
            }
            self.bound_hot();
        }
    }

    /// Says of the hot group how long it keeps segments.
    fn bound_hot(&mut self) {
        let since = self.bounds.streams.first().map_or(0, |hot| hot.since);
        self.bounds.streams.resize(self.bounds.streams.len().max(1), StreamBound::default());
        self.bounds.streams[0] = StreamBound { bound: Bound::Age(self.hot_limit), since };
        self.bounds.version += 1;
    }

    /// Two streams for host writes and two for copies.
    fn fall_back(&mut self) {
        if self.groups.take().is_some() {
            self.trust.windows = 0;
        }
        if let Some(learner) = &mut self.learner {
            learner.forget();
        }
        self.bounds.streams.truncate(1);
        self.bounds.tail = Tail::CostBenefit;
        self.bound_hot();
        self.counted = Counted::default();
    }

    fn adopt(&mut self, groups: Groups, lives: &[(u8, f32)], segments: &Segments) {
        let next = 1 + segments.opened_sequence.iter().max().copied().unwrap_or_default();
        let old = core::mem::take(&mut self.bounds.streams);
        for stream in 0..groups.count {
            let bound = match stream {
                HOT => self.hot_limit,
                _ => groups.bounds[usize::from(stream) - 1] as u64,
            };
            // What was in the tail stays in it.
            let since = old.get(usize::from(stream)).map_or(next, |old| old.since);
            self.bounds.streams.push(StreamBound { bound: Bound::Age(bound), since });
        }
        self.bounds.tail = self.tail;
        self.bounds.version += 1;
        let after_copy = core::array::from_fn(|class| {
            let group = groups.of_class[class];
            let bound = groups.bounds[usize::from(group) - 1];
            let beyond = |life: &&(u8, f32)| usize::from(life.0) == class && f64::from(life.1) > bound;
            let (sum, count) = lives
                .iter()
                .filter(beyond)
                .fold((0.0, 0.0), |(sum, count), (_, life)| (sum + f64::from(*life) - bound, count + 1.0));
            let covers = |left: f64| {
                groups.bounds.iter().position(|bound| *bound >= left).map_or(groups.count, |at| at as u8 + 1)
            };
            if count > 0.0 { covers(sum / count) } else { (group + 1).min(groups.count) }
        });
        if self.groups.replace(Placed { groups, after_copy }).is_none() {
            self.trust.windows = 0;
        }
    }

    /// What the network is told of a page that is written.
    fn input(&self, owner: u64, old: Option<Info>, now: Now) -> Input {
        let estimate =
            old.map_or(255, |old| (u64::from(old.age(now)) * ESTIMATE_STEPS / u64::from(self.exported_pages)).min(255));
        let map = old.map_or(0, |old| self.map_now(old, now));
        [
            owner as f32,
            self.previous as f32,
            map.count_ones() as f32,
            map.into(),
            self.chunks[self.chunk(owner)] as f32,
            estimate as f32,
        ]
    }

    fn chunk(&self, owner: u64) -> usize {
        (owner / CHUNK_PAGES) as usize % self.chunks.len()
    }

    /// The map of recent writes of a page, the present window highest.
    fn map_now(&self, info: Info, now: Now) -> u8 {
        // How many windows have begun since it was written.
        let window = self.device_writes(MAP_WINDOW);
        let since_begin = now.writes + window - self.windows.map_end.min(now.writes + window);
        let age = u64::from(info.age(now));
        let passed = if age < since_begin { 0 } else { 1 + (age - since_begin) / window };
        if passed < 8 { info.map() >> passed } else { 0 }
    }

    /// The group that a segment belongs to.
    fn group_of(&self, segments: &Segments, segment: SegmentId, last: u8) -> u8 {
        let (stream, opened) = (segments.stream[segment.index()], segments.opened_sequence[segment.index()]);
        if self.bounds.of(stream, opened).is_some() { stream } else { last }
    }
}

impl Placement for Dogi {
    type Info = Info;

    const HEAT_KIND: u8 = heat::WRITTEN;

    fn streams(&self) -> u8 {
        self.streams
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    fn write(&mut self, segments: &Segments, now: Now, subject: Subject, old: Option<(SegmentId, Info)>) -> (u8, Info) {
        if now.writes >= self.due {
            self.work(segments, now);
        }
        let old = old.map(|(_, info)| info);
        let life = old.map_or(u32::MAX, |old| old.age(now));
        let map = old.map_or(0, |old| self.map_now(old, now)) | 0x80;
        let is_warm = self.started.is_some_and(|started| now.writes > started + u64::from(self.exported_pages));
        self.counted.all += 1;
        let chunk = self.chunk(subject.owner);
        self.chunks[chunk] = self.chunks[chunk].saturating_add(1);
        let (mut stream, mut class, mut sample) = (HOT, NO_CLASS, 0);
        if is_warm && u64::from(life) < self.hot_limit {
            self.counted.hot += 1;
        } else {
            stream = COLD;
            let wants = self.learner.as_mut().is_some_and(Learner::wants_sample);
            if wants || self.groups.is_some() {
                let input = self.input(subject.owner, old, now);
                if let Some(learner) = &mut self.learner {
                    if let (Some(placed), Some(predicted)) = (&self.groups, learner.class(&input)) {
                        class = predicted;
                        stream = placed.groups.of_class[usize::from(class)];
                    }
                    if wants {
                        sample = learner.sample(input, now.writes);
                    }
                }
            }
        }
        if let (Some(learner), Some(old)) = (&mut self.learner, old) {
            learner.ended(old.sample(), old.written(), life);
        }
        self.previous = subject.owner;
        (stream, Info::new(now, map, class, sample))
    }

    fn trimmed(&mut self, now: Now, info: Info) {
        if let Some(learner) = &mut self.learner {
            learner.ended(info.sample(), info.written(), info.age(now));
        }
    }

    fn begin_cleaning(&mut self, segments: &Segments, victim: SegmentId, _: Now, _: Pages<'_, Info>) {
        let valid = segments.valid[victim.index()];
        self.copies += u64::from(valid);
        if self.group_of(segments, victim, self.frozen()) == HOT {
            self.counted.hot_victims += 1.0;
            self.counted.hot_valid += f64::from(valid) / f64::from(segments.data_pages);
        }
    }

    fn copy(&self, segments: &Segments, victim: SegmentId, now: Now, info: Info, _: u64) -> u8 {
        let age = info.age(now);
        // A page that was copied is in a segment opened after it was written.
        let opened = (segments.opened_writes[victim.index()] as u32).wrapping_sub(info.written());
        let is_first = opened == 0 || opened > u32::MAX / 2;
        let Some(placed) = &self.groups else { return if is_first { COPIED } else { COPIED_AGAIN } };
        if u64::from(age) >= self.device_writes(FROZEN_AFTER) {
            return self.frozen();
        }
        let last = placed.groups.count;
        match placed.after_copy.get(usize::from(info.class())) {
            Some(group) if is_first => *group,
            _ => (self.group_of(segments, victim, last) + 1).min(last),
        }
    }

    fn pack(&self, info: Info) -> u32 {
        info.written()
    }

    fn unpack(&mut self, written: u32, _: Now, _: Now) -> Info {
        Info(u64::from(written) | u64::from(NO_CLASS) << 40)
    }

    fn encode(&self, info: Info, _: Now) -> (u64, u32) {
        (info.map().into(), info.written())
    }

    fn decode(&mut self, (map, written): (u64, u32), now: Now) -> Info {
        Info(self.unpack(written, now, now).0 | (map & 0xff) << 32)
    }

    fn bounds(&self) -> Option<&Bounds> {
        Some(&self.bounds)
    }
}
