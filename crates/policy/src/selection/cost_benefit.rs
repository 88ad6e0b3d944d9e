use super::{OpenBuckets, Selection, SelectionBuild};
use crate::age::{self, AGE, AgeFunction, FMS, Now};
use crate::index::BucketLists;
use crate::segments::{Segments, Sizing};
use crate::spec::{Args, Parameter, Preset, Row};
use alloc::boxed::Box;
use alloc::vec::Vec;
use margay_flash::SegmentId;

/// The row of cost-benefit.
pub(super) const ROW: Row<SelectionBuild> = Row {
    name: "cost-benefit",
    summary: "largest age-weighted gain per copy, f(age) (1 - u) / 2u",
    parameters: &[
        Parameter::choice("age", AgeOf::NAMES, "what age is counted from"),
        age::shape(&["linear", "sqrt", "log"]),
        AGE,
        Parameter::presets(&[FMS, RECENT]),
    ],
    source: "Kawaguchi et al. 1995; FMS J sec. 2",
    build: SelectionBuild {
        new: |args, sizing| {
            let age = AgeFunction::from_args(args, sizing.exported_pages);
            match args.choice("age", &AgeOf::ALL) {
                AgeOf::Opened => Box::new(CostBenefit::new(sizing, age)),
                AgeOf::Invalidated => Box::new(CostBenefitLists::new(sizing, age)),
            }
        },
        scan: Some(scan_key),
    },
};

const RECENT: Preset = Preset {
    name: "recent",
    values: "age=invalidated,shape=log,scale=0.00775d",
    help: "rests a segment that is losing pages; often better where what is hot changes, worse where nothing does",
    is_tried: true,
};

fn scan_key(args: &Args, sizing: Sizing, segments: &Segments, id: SegmentId, now: Now) -> (f64, u64) {
    let age = AgeFunction::from_args(args, sizing.exported_pages);
    let (valid, i) = (segments.valid[id.index()], id.index());
    match args.choice("age", &AgeOf::ALL) {
        AgeOf::Opened => {
            let price = price(valid, segments.data_pages, age.of(segments.age(id, age.clock, now)));
            (price, if valid == 0 { id.0.into() } else { segments.opened_sequence[i] })
        }
        AgeOf::Invalidated => {
            let since = now.on(age.clock).saturating_sub(segments.invalidated(id, age.clock));
            (price(valid, segments.data_pages, age.of(since)), segments.invalidated_sequence[i])
        }
    }
}

/// The event from which cost-benefit counts the age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgeOf {
    /// The opening of the segment.
    Opened,
    /// The last invalidation of a page in it (the text of the papers, read literally).
    Invalidated,
}

impl AgeOf {
    const ALL: [Self; 2] = [Self::Opened, Self::Invalidated];
    const NAMES: &'static [&'static str] = &["opened", "invalidated"];
}

/// 2u / (1 - u): copies per page gained, both read and programmed.
fn cost(valid: u32, data_pages: u32) -> f64 {
    2.0 * f64::from(valid) / f64::from(data_pages - valid)
}

/// The price of cost-benefit: smaller is better. A fully invalid segment is free at any age.
fn price(valid: u32, data_pages: u32, benefit: f64) -> f64 {
    if valid == 0 { 0.0 } else { cost(valid, data_pages) / benefit }
}

fn costs(data_pages: u32) -> Vec<f64> {
    (0..data_pages).map(|valid| cost(valid, data_pages)).collect()
}

/// Cost-benefit: the candidate with the largest f(age) (1 - u) / 2u; u = 0 first.
///
/// Source: Kawaguchi et al. 1995 eq. for the flash file system, J sec. 2; with f(age) = ln(1 + age / 1000 s)
/// and age since the segment was opened the papers' tables are met (spec sec. 3, a fit). Ties: fully invalid
/// segments by number, others by order of opening. O(1) per invalidation and at most O(pages per segment) per
/// selection: the oldest segment of each valid count is known, and counts are passed over once even the
/// oldest candidate of the device could not make them win.
#[derive(Clone, Debug)]
pub struct CostBenefit {
    pub(super) buckets: OpenBuckets,
    age: AgeFunction,
    costs: Vec<f64>,
}

impl CostBenefit {
    /// For a device of the given numbers.
    pub fn new(sizing: Sizing, age: AgeFunction) -> Self {
        Self { buckets: OpenBuckets::new(sizing.segments, sizing.data_pages), age, costs: costs(sizing.data_pages) }
    }
}

impl Selection for CostBenefit {
    fn opened(&mut self, segments: &Segments, segment: SegmentId) {
        self.buckets.opened(segments, segment);
    }

    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        self.buckets.sealed(segments, segment);
    }

    // Into the loop over a run: as a call it costs 20 instructions more per host write.
    #[inline(always)]
    fn invalidated(&mut self, segments: &Segments, segment: SegmentId, valid: u32) {
        self.buckets.invalidated(segments, segment, valid);
    }

    fn taken(&mut self, segments: &Segments, segment: SegmentId) {
        self.buckets.taken(segments, segment);
    }

    fn select(&mut self, segments: &Segments, now: Now) -> Option<SegmentId> {
        if let Some(segment) = self.buckets.first_empty() {
            return Some(segment);
        }
        let oldest = self.buckets.oldest()?;
        let largest_benefit = self.age.of(segments.age(oldest, self.age.clock, now));
        let mut best: Option<(f64, u32)> = None;
        for valid in self.buckets.lowest(segments.data_pages)..segments.data_pages {
            let cost = self.costs[valid as usize];
            if best.is_some_and(|(price, _)| cost / largest_benefit > price) {
                break;
            }
            let Some(column) = self.buckets.first(valid) else { continue };
            let age = segments.age(self.buckets.order.segment(column), self.age.clock, now);
            let price = cost / self.age.of(age);
            if best.is_none_or(|(p, c)| price < p || (price == p && column < c)) {
                best = Some((price, column));
            }
        }
        best.map(|(_, column)| self.buckets.order.segment(column))
    }
}

/// Cost-benefit with the age since the last invalidation (the papers' text, read literally).
///
/// A segment that moves to the list of the next lower valid count has just become the youngest, so appending keeps the
/// lists sorted. Ties: fully invalid segments and others by the order of their last invalidation.
#[derive(Clone, Debug)]
pub struct CostBenefitLists {
    lists: BucketLists,
    age: AgeFunction,
    costs: Vec<f64>,
}

impl CostBenefitLists {
    /// For a device of the given numbers.
    pub fn new(sizing: Sizing, age: AgeFunction) -> Self {
        let lists = BucketLists::new(sizing.data_pages as usize + 1, sizing.segments);
        Self { lists, age, costs: costs(sizing.data_pages) }
    }
}

impl Selection for CostBenefitLists {
    fn needs_invalidations(&self) -> bool {
        true
    }

    fn opened(&mut self, _: &Segments, _: SegmentId) {}

    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        let valid = segments.valid[segment.index()];
        // Segments that leveling filled in part were never invalidated: their numbers decide.
        self.lists.insert(valid, segment, |id| (segments.invalidated_sequence[id.index()], id));
    }

    #[inline]
    fn invalidated(&mut self, _: &Segments, segment: SegmentId, valid: u32) {
        self.lists.remove(valid + 1, segment);
        self.lists.append(valid, segment);
    }

    fn taken(&mut self, segments: &Segments, segment: SegmentId) {
        self.lists.remove(segments.valid[segment.index()], segment);
    }

    fn select(&mut self, segments: &Segments, now: Now) -> Option<SegmentId> {
        let mut best: Option<(f64, u64, SegmentId)> = None;
        for valid in 0..segments.data_pages {
            let Some(segment) = self.lists.first(valid) else { continue };
            if valid == 0 {
                return Some(segment);
            }
            let age = now.on(self.age.clock).saturating_sub(segments.invalidated(segment, self.age.clock));
            let price = self.costs[valid as usize] / self.age.of(age);
            let sequence = segments.invalidated_sequence[segment.index()];
            if best.is_none_or(|(p, s, id)| price < p || (price == p && (sequence, segment) < (s, id))) {
                best = Some((price, sequence, segment));
            }
        }
        best.map(|(_, _, segment)| segment)
    }
}
