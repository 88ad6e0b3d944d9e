use super::{CostBenefit, Selection, SelectionBuild};
use crate::age::{AgeFunction, Clock, Now, Scale, Shape};
use crate::bounds::{Bound, Tail};
use crate::segments::{Segments, Sizing, State};
use crate::spec::Row;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::{vec, vec::Vec};
use margay_flash::SegmentId;

/// The row of grouped.
pub(super) const ROW: Row<SelectionBuild> = Row {
    name: "grouped",
    summary: "the oldest of the first stream over the bound that the placement gives (midas, dogi), else (1 - u) sqrt(age) / u",
    parameters: &[],
    source: "MiDAS (Oh et al., FAST 2024), DOGI (FAST 2026)",
    build: SelectionBuild { new: |_, sizing| Box::new(Grouped::new(sizing)), scan: None },
};

/// The segment is in no stream's queue.
const TAIL: u8 = u8::MAX;

/// Victims by bounds that the placement publishes ([`crate::Bounds`]): the oldest segment of the first stream that has more
/// sealed segments than its bound, or whose oldest is older than its bound; if there is none, the best of the tail by the
/// rule that comes with the bounds.
///
/// Source: the victims of MiDAS (FAST 2024) and of DOGI (FAST 2026). With a placement that publishes nothing all segments are
/// the tail, and this is cost-benefit with the square root of the age since a segment was opened. A segment
/// that is due and has no invalid page passes to the tail instead, which costs no copies. Segments with a bound are cleaned
/// before they are due only if the tail has no candidate: the oldest one of the last stream that has one. Ties of the tail:
/// those of cost-benefit; for fewest valid the lowest number among fully invalid segments, then the segment opened first.
/// O(1) per invalidation; O(segments) when the bounds change.
#[derive(Clone, Debug)]
struct Grouped {
    /// Which segments of the tail are candidates.
    tail: CostBenefit,
    /// Sealed segments by stream, those with a bound alone, oldest first.
    queues: Vec<VecDeque<SegmentId>>,
    /// The queue that a segment is in.
    home: Vec<u8>,
    /// Version of the bounds by which the segments are divided.
    version: u64,
}

impl Grouped {
    fn new(sizing: Sizing) -> Self {
        let age = AgeFunction::new(Shape::Sqrt, Scale::Writes(1.0), sizing.exported_pages);
        let home = vec![TAIL; sizing.segments as usize];
        Self { tail: CostBenefit::new(sizing, age), queues: Vec::new(), home, version: 0 }
    }

    fn is_in_tail(&self, segment: SegmentId) -> bool {
        self.home[segment.index()] == TAIL
    }

    /// Puts a sealed segment, which is in neither, into the queue of its stream or into the tail.
    fn enter(&mut self, segments: &Segments, segment: SegmentId) {
        let i = segment.index();
        let stream = segments.stream[i];
        if segments.bounds.of(stream, segments.opened_sequence[i]).is_some() {
            self.home[i] = stream;
            let queue = &mut self.queues[usize::from(stream)];
            // Only after a cleaning that had to fill a segment of another stream is it not the youngest.
            let is_older = |id: &SegmentId| segments.opened_sequence[id.index()] < segments.opened_sequence[i];
            let at = queue.iter().rposition(is_older).map_or(0, |at| at + 1);
            queue.insert(at, segment);
        } else {
            self.home[i] = TAIL;
            self.tail.sealed(segments, segment);
        }
    }

    /// Divides all sealed segments by the bounds that hold now.
    #[cold]
    fn divide(&mut self, segments: &Segments) {
        self.version = segments.bounds.version;
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.queues.resize_with(segments.bounds.streams.len(), VecDeque::new);
        let is_sealed = |id: &SegmentId| segments.state[id.index()] == State::Sealed;
        let mut sealed: Vec<_> = segments.ids().filter(is_sealed).collect();
        sealed.sort_unstable_by_key(|id| segments.opened_sequence[id.index()]);
        for id in sealed {
            if self.is_in_tail(id) {
                self.tail.buckets.remove(segments, id);
            }
            self.enter(segments, id);
        }
    }

    /// The oldest segment of the first stream over its bound.
    fn due(&mut self, segments: &Segments, now: Now) -> Option<SegmentId> {
        for stream in 0..self.queues.len() {
            while let Some(oldest) = self.queues[stream].front().copied() {
                let is_due = match segments.bounds.streams[stream].bound {
                    Bound::None => false,
                    Bound::Segments(max) => self.queues[stream].len() > max as usize,
                    Bound::Age(max) => segments.age(oldest, Clock::Writes, now) > max,
                };
                if !is_due {
                    break;
                }
                if segments.is_candidate(oldest) {
                    return Some(oldest);
                }
                self.queues[stream].pop_front();
                self.home[oldest.index()] = TAIL;
                self.tail.sealed(segments, oldest);
            }
        }
        None
    }

    fn best_of_tail(&mut self, segments: &Segments, now: Now) -> Option<SegmentId> {
        match segments.bounds.tail {
            Tail::CostBenefit => self.tail.select(segments, now),
            Tail::FewestValid => {
                let buckets = &mut self.tail.buckets;
                let fewest = buckets.lowest(segments.data_pages);
                let oldest = || buckets.first(fewest).map(|column| buckets.order.segment(column));
                buckets.first_empty().or_else(|| if fewest < segments.data_pages { oldest() } else { None })
            }
        }
    }
}

impl Selection for Grouped {
    fn opened(&mut self, segments: &Segments, segment: SegmentId) {
        self.home[segment.index()] = TAIL;
        if self.tail.buckets.opened(segments, segment) {
            for id in self.queues.iter().flatten() {
                self.tail.buckets.remove(segments, *id);
            }
        }
    }

    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        if self.version == segments.bounds.version {
            self.enter(segments, segment);
        } else {
            // It is put where it belongs by the next selection.
            self.tail.sealed(segments, segment);
        }
    }

    #[inline]
    fn invalidated(&mut self, segments: &Segments, segment: SegmentId, valid: u32) {
        if self.is_in_tail(segment) {
            self.tail.invalidated(segments, segment, valid);
        }
    }

    fn taken(&mut self, segments: &Segments, segment: SegmentId) {
        let home = core::mem::replace(&mut self.home[segment.index()], TAIL);
        if home == TAIL {
            return self.tail.taken(segments, segment);
        }
        self.tail.buckets.order.release(segment);
        let queue = &mut self.queues[usize::from(home)];
        let at = queue.iter().position(|id| *id == segment);
        at.map(|at| queue.remove(at));
    }

    fn select(&mut self, segments: &Segments, now: Now) -> Option<SegmentId> {
        if self.version != segments.bounds.version {
            self.divide(segments);
        }
        let chosen = self.due(segments, now).or_else(|| self.best_of_tail(segments, now));
        let is_candidate = |id: &&SegmentId| segments.is_candidate(**id);
        chosen.or_else(|| self.queues.iter().rev().find_map(|queue| queue.iter().find(is_candidate).copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{Bounds, StreamBound};
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    const SEGMENTS: u32 = 24;
    const PAGES: u32 = 4;

    /// The same rule by scans of all segments. `passed` holds those that were due without an invalid page.
    fn scan(segments: &Segments, now: Now, passed: &mut BTreeSet<SegmentId>) -> Option<SegmentId> {
        let bounds = &segments.bounds;
        let opened = |id: &SegmentId| segments.opened_sequence[id.index()];
        let sealed: Vec<_> = segments.ids().filter(|id| segments.state[id.index()] == State::Sealed).collect();
        let bound = |id: &SegmentId| bounds.of(segments.stream[id.index()], opened(id));
        for stream in 0..bounds.streams.len() as u8 {
            loop {
                let is_here = |id: &&SegmentId| segments.stream[id.index()] == stream && bound(id).is_some();
                let queue: Vec<_> = sealed.iter().filter(is_here).filter(|id| !passed.contains(id)).collect();
                let Some(oldest) = queue.iter().min_by_key(|id| opened(id)) else { break };
                let is_due = match bounds.streams[usize::from(stream)].bound {
                    Bound::None => false,
                    Bound::Segments(max) => queue.len() > max as usize,
                    Bound::Age(max) => now.writes - segments.opened_writes[oldest.index()] > max,
                };
                if !is_due {
                    break;
                }
                if segments.is_candidate(**oldest) {
                    return Some(**oldest);
                }
                passed.insert(**oldest);
            }
        }
        let candidates = || sealed.iter().copied().filter(|id| segments.is_candidate(*id));
        let price = |id: &SegmentId| {
            let valid = f64::from(segments.valid[id.index()]);
            let age = (now.writes - segments.opened_writes[id.index()]) as f64;
            let order = if valid == 0.0 { id.0.into() } else { opened(id) };
            match bounds.tail {
                Tail::FewestValid => (valid, order),
                Tail::CostBenefit if valid == 0.0 => (0.0, order),
                Tail::CostBenefit => (2.0 * valid / (f64::from(PAGES) - valid) / libm::sqrt(age), order),
            }
        };
        let tail = candidates().filter(|id| bound(id).is_none() || passed.contains(id));
        let best = tail.min_by(|a, b| price(a).partial_cmp(&price(b)).expect("no price is NaN"));
        best.or_else(|| candidates().max_by_key(|id| (segments.stream[id.index()], u64::MAX - opened(id))))
    }

    fn bound() -> impl Strategy<Value = StreamBound> {
        let bound =
            prop_oneof![Just(Bound::None), (0u32..5).prop_map(Bound::Segments), (1u64..200).prop_map(Bound::Age)];
        (bound, prop_oneof![Just(0), 0u64..60]).prop_map(|(bound, since)| StreamBound { bound, since })
    }

    proptest! {
        #[test]
        fn victims_are_those_of_a_scan_while_bounds_change(
            steps in prop::collection::vec((0u8..4, any::<u32>()), 1..400),
            all_bounds in prop::collection::vec((prop::collection::vec(bound(), 0..4), any::<bool>()), 1..6),
        ) {
            let sizing = Sizing { segments: SEGMENTS, data_pages: PAGES, exported_pages: 60, seed: 1 };
            let (mut segments, mut grouped) = (Segments::new(SEGMENTS, PAGES, false), Grouped::new(sizing));
            let (mut passed, mut openings, mut now) = (BTreeSet::new(), 0, Now::default());
            for (what, number) in steps {
                now.writes += 5;
                let pick = |state: State| {
                    let all: Vec<_> = segments.ids().filter(|id| segments.state[id.index()] == state).collect();
                    (!all.is_empty()).then(|| all[number as usize % all.len()])
                };
                if what == 0 && let Some(id) = pick(State::Free) {
                    let i = id.index();
                    openings += 1;
                    (segments.opened_sequence[i], segments.opened_writes[i]) = (openings, now.writes);
                    (segments.stream[i], segments.valid[i]) = ((number / 7 % 5) as u8, PAGES);
                    segments.state[i] = State::Open;
                    grouped.opened(&segments, id);
                    segments.state[i] = State::Sealed;
                    segments.valid[i] -= number / 64 % 2;
                    grouped.sealed(&segments, id);
                } else if what == 1 && let Some(id) = pick(State::Sealed) {
                    if segments.valid[id.index()] > 0 {
                        segments.valid[id.index()] -= 1;
                        grouped.invalidated(&segments, id, segments.valid[id.index()]);
                    }
                } else if what == 2 && let Some(id) = pick(State::Sealed) {
                    let chosen = if number % 3 == 0 { Some(id) } else { grouped.select(&segments, now) };
                    if number % 3 != 0 {
                        prop_assert_eq!(chosen, scan(&segments, now, &mut passed));
                    }
                    if let Some(id) = chosen {
                        grouped.taken(&segments, id);
                        passed.remove(&id);
                        segments.state[id.index()] = State::Free;
                    }
                } else if number % 8 == 0 {
                    let (streams, greedy) = all_bounds[number as usize / 8 % all_bounds.len()].clone();
                    let tail = if greedy { Tail::FewestValid } else { Tail::CostBenefit };
                    segments.bounds = Bounds { streams, tail, version: segments.bounds.version + 1 };
                    passed.clear();
                }
            }
        }
    }

    #[test]
    fn without_bounds_it_is_cost_benefit_with_the_square_root_of_the_age() {
        let sizing = Sizing { segments: 3, data_pages: PAGES, exported_pages: 8, seed: 1 };
        let (mut segments, mut grouped) = (Segments::new(3, PAGES, false), Grouped::new(sizing));
        for (i, valid) in [3, 2, 2].into_iter().enumerate() {
            (segments.opened_sequence[i], segments.opened_writes[i]) = (i as u64, 100 * i as u64);
            (segments.stream[i], segments.valid[i]) = (i as u8, valid);
            segments.state[i] = State::Sealed;
            grouped.opened(&segments, SegmentId(i as u32));
            grouped.sealed(&segments, SegmentId(i as u32));
        }
        let mut at = |writes| grouped.select(&segments, Now { us: 0, writes });
        // 1/3 sqrt(1000) is under sqrt(900); 1/3 sqrt(101) is over sqrt(1).
        assert_eq!(at(1000), Some(SegmentId(1)));
        assert_eq!(at(101), Some(SegmentId(0)));
    }
}
