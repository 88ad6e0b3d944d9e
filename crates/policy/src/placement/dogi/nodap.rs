//! NoDaP: the groups of DOGI for pages whose lives are known.

use super::groups::{Facts, Groups, MERGES};
use super::network::CLASSES;
use super::{KEPT_FREE, class_bounds};
use crate::age::Now;
use crate::bounds::{Bound, Bounds, StreamBound, Tail};
use crate::placement::fk::Death;
use crate::placement::{Placement, PlacementBuild, Subject, WithPages};
use crate::segments::Segments;
use crate::spec::{Parameter, Row};
use alloc::vec::Vec;
use margay_flash::SegmentId;

/// The row of NoDaP.
pub(in crate::placement) const ROW: Row<PlacementBuild> = Row {
    name: "nodap",
    summary: "oracle, only in the laboratory: groups as of dogi, by the remaining life that is known; made for the selection grouped",
    parameters: &[
        Parameter::number("groups", 8, 2..=10, "max number of groups, each a stream"),
        Parameter::choice("tail", Tail::NAMES, "how grouped cleans the last group"),
    ],
    source: "DOGI, FAST 2026 (NoDaP)",
    build: |args, exported_pages| {
        let tail = args.choice("tail", &Tail::ALL);
        WithPages::boxed(NoDaP::new(args.number("groups") as u8, tail, exported_pages))
    },
};

/// Lives that groups are computed from, and how often in a device write they are computed.
const SAMPLES: u32 = 8192;
const CHOICES_PER_DEVICE_WRITE: u32 = 2;
/// One more group has to lower the write amplification that is expected by this part.
const GAIN: f64 = 0.05;

/// NoDaP, the oracle that DOGI was compared with: host writes and copies go to the first group whose bound covers the
/// remaining life of the page, which is known.
///
/// Source: DOGI, FAST 2026. Bounds are chosen as DOGI chooses them, but from real lives instead of predictions: of all ways to merge ten
/// classes of lives (up to 1 % of a device write, each twice as long as the one before) the one of which the model of the
/// flow between groups expects the least write amplification, with two groups first, and one more while that gains
/// 5 %. A group's segments are due at the age of its bound ([`Placement::bounds`]); with another selection than `grouped` that is not
/// kept.
///
/// Readings: bounds are chosen anew twice per device write from 8,192 lives of the last one; the last group is cleaned by
/// cost-benefit unless `tail=fewest-valid` says as published; no more groups are open than half of the spare segments; there is
/// neither a hot nor a frozen group. 8 bytes per page, 32 KiB for lives. O(groups) per page.
#[derive(Clone, Debug)]
struct NoDaP {
    streams: u8,
    tail: Tail,
    exported_pages: u32,
    bounds: Bounds,
    /// Bounds of the groups in host page writes; the last one is infinite. Before the first choice, half a device write.
    covers: Vec<f64>,
    /// The last lives sampled, in host page writes, the oldest of them at `oldest`.
    lives: Vec<f32>,
    oldest: usize,
    due: u64,
}

impl NoDaP {
    fn new(streams: u8, tail: Tail, exported_pages: u32) -> Self {
        let covers = alloc::vec![0.5 * f64::from(exported_pages), f64::INFINITY];
        let (bounds, lives) = (Bounds::default(), Vec::new());
        Self { streams, tail, exported_pages, bounds, covers, lives, oldest: 0, due: 0 }
    }

    fn group(&self, remaining: f64) -> u8 {
        self.covers.iter().position(|bound| *bound >= remaining).unwrap_or(self.covers.len() - 1) as u8
    }

    /// Keeps one of so many lives that the samples are of one device write.
    fn sample(&mut self, writes: u64, life: f64) {
        if !writes.is_multiple_of(u64::from(self.exported_pages.div_ceil(SAMPLES))) {
            return;
        }
        if self.lives.len() < SAMPLES as usize {
            self.lives.push(life as f32);
        } else {
            self.lives[self.oldest] = life as f32;
            self.oldest = (self.oldest + 1) % self.lives.len();
        }
    }

    /// Chooses groups from the lives that were sampled.
    #[cold]
    fn choose(&mut self, segments: &Segments, now: Now) {
        let is_first = self.due == 0;
        self.due = now.writes + u64::from(self.exported_pages / CHOICES_PER_DEVICE_WRITE).max(1);
        if is_first || self.lives.is_empty() {
            return;
        }
        let bounds = class_bounds(self.exported_pages);
        let class = |life: f32| bounds.iter().position(|bound| f64::from(life) <= *bound).unwrap_or(CLASSES - 1) as u8;
        let spare = segments.len().saturating_sub(self.exported_pages / segments.data_pages.max(1));
        // Facts have room for a hot group, which there is none of.
        let mut facts = Facts {
            segments: f64::from(segments.len().saturating_sub(KEPT_FREE)) + 3.0,
            used: segments.total_valid as f64 / f64::from(segments.data_pages),
            data_pages: segments.data_pages.into(),
            hot_traffic: 0.0,
            hot_bound: 0.0,
            hot_valid: 0.0,
            bounds,
            lives: self.lives.iter().map(|life| (class(*life), *life)).collect(),
            max_groups: 1,
        };
        let table = facts.table();
        let mut best: Option<Groups> = None;
        for groups in 1..=usize::from(self.streams).min(spare as usize / 2).max(1) {
            facts.max_groups = groups;
            let feasible = (0..MERGES).filter_map(|merge| facts.groups(&table, merge));
            let Some(next) = feasible.reduce(|a, b| if b.wa < a.wa { b } else { a }) else { continue };
            let gains = best.is_none_or(|best| next.wa < best.wa * (1.0 - GAIN));
            if !gains && groups > 2 {
                break;
            }
            best = best.filter(|best| best.wa <= next.wa).or(Some(next));
        }
        if let Some(groups) = best {
            self.adopt(&groups.bounds[..usize::from(groups.count)], segments);
        }
    }

    fn adopt(&mut self, covers: &[f64], segments: &Segments) {
        let next = 1 + segments.opened_sequence.iter().max().copied().unwrap_or_default();
        let old = core::mem::take(&mut self.bounds.streams);
        for (stream, bound) in covers[..covers.len() - 1].iter().enumerate() {
            // What was in the tail stays in it.
            let since = old.get(stream).map_or(next, |old| old.since);
            self.bounds.streams.push(StreamBound { bound: Bound::Age(*bound as u64), since });
        }
        self.bounds.tail = self.tail;
        self.bounds.version += 1;
        self.covers = covers.to_vec();
    }
}

impl Placement for NoDaP {
    type Info = Death;

    const IS_ORACLE: bool = true;

    fn streams(&self) -> u8 {
        self.streams
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(&mut self, segments: &Segments, now: Now, subject: Subject, _: Option<(SegmentId, Death)>) -> (u8, Death) {
        if now.writes >= self.due {
            self.choose(segments, now);
        }
        let death = Death::of(subject, now);
        let remaining = death.remaining(now) as f64;
        self.sample(now.writes, remaining);
        (self.group(remaining), death)
    }

    fn copy(&self, _: &Segments, _: SegmentId, now: Now, death: Death, _: u64) -> u8 {
        self.group(death.remaining(now) as f64)
    }

    fn bounds(&self) -> Option<&Bounds> {
        Some(&self.bounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Hint;

    const EXPORTED: u32 = 10_000;

    /// A device of 140 segments of 100 pages, all of them written, with pages that live for 50 and for 40,000 writes in turn.
    fn run() -> (NoDaP, Segments) {
        let mut policy = NoDaP::new(8, Tail::CostBenefit, EXPORTED);
        let mut segments = Segments::new(140, 100, false);
        segments.total_valid = EXPORTED.into();
        for writes in 1..3 * u64::from(EXPORTED) {
            let lifetime = if writes % 2 == 0 { 50 } else { 40_000 };
            let subject = Subject { hint: Hint::Lifetime(lifetime), ..Subject::default() };
            policy.write(&segments, Now { us: 0, writes }, subject, None);
        }
        (policy, segments)
    }

    #[test]
    fn groups_are_chosen_by_the_lives_and_the_last_has_no_bound() {
        let (policy, segments) = run();
        let short = policy.group(50.0);
        assert_eq!((short, policy.group(40_000.0)), (0, policy.covers.len() as u8 - 1));
        assert!(policy.covers.len() > 1 && policy.covers[0] < 40_000.0, "{:?}", policy.covers);
        let published = policy.bounds().unwrap();
        assert_eq!(published.streams.len(), policy.covers.len() - 1);
        assert_eq!(published.of(0, 1), Some(Bound::Age(policy.covers[0] as u64)));
        assert_eq!(published.of(policy.covers.len() as u8 - 1, 1), None);
        assert!(segments.bounds.streams.is_empty(), "only the engine copies them");
    }

    #[test]
    fn a_copy_goes_where_its_remaining_life_is_covered_and_what_is_not_foretold_to_the_last_group() {
        let (mut policy, segments) = run();
        let last = policy.covers.len() as u8 - 1;
        let at = |writes| Now { us: 0, writes };
        let subject = Subject { hint: Hint::Lifetime(40_000), ..Subject::default() };
        let (group, death) = policy.write(&segments, at(30_000), subject, None);
        let copy = |policy: &NoDaP, writes| policy.copy(&segments, SegmentId(0), at(writes), death, 0);
        assert_eq!((group, copy(&policy, 30_001), copy(&policy, 69_990), copy(&policy, 80_000)), (last, last, 0, 0));
        assert_eq!(policy.write(&segments, at(30_001), Subject::default(), None).0, last);
    }
}
