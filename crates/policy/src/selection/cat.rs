use super::{Selection, SelectionBuild};
use crate::age::{self, AGE, AgeFunction, FMS, Now};
use crate::index::{AgeTree, BucketBits, OpenOrder};
use crate::segments::{Segments, Sizing, State};
use crate::spec::{Args, Parameter, Row};
use alloc::boxed::Box;
use alloc::vec::Vec;
use margay_flash::SegmentId;

/// The row of CAT.
pub(super) const ROW: Row<SelectionBuild> = Row {
    name: "cat",
    summary: "cost, age and times of erasure: smallest u / (1 - u) x (erases + 1) / f(age)",
    parameters: &[age::shape(&["sqrt", "linear", "log"]), AGE, Parameter::presets(&[FMS])],
    source: "Chiang and Chang 1999 (FMS J sec. 3)",
    build: SelectionBuild {
        new: |args, sizing| Box::new(Cat::new(sizing, AgeFunction::from_args(args, sizing.exported_pages))),
        scan: Some(scan_key),
    },
};

fn scan_key(args: &Args, sizing: Sizing, segments: &Segments, id: SegmentId, now: Now) -> (f64, u64) {
    let function = AgeFunction::from_args(args, sizing.exported_pages);
    let (valid, i) = (segments.valid[id.index()], id.index());
    let benefit = function.of(segments.age(id, function.clock, now));
    let price = price(valid, segments.data_pages, segments.erases[i], benefit);
    (price, if valid == 0 { id.0.into() } else { segments.opened_sequence[i] })
}

/// CAT, cost age times: the candidate with the smallest u / (1 - u) x 1 / f(age) x (erases + 1); u = 0 first.
///
/// Source: J sec. 3 (cleaning cost, age, times of erasure), f as an age transformation; age since the segment
/// was opened (spec sec. 3, reading A: f(age) = ln(1 + age / 1000 s), a fit to the tables). Ties: fully
/// invalid segments by number, others by order of opening.
///
/// Of the three quantities only the age changes without an event, so u / (1 - u) x (erases + 1) is kept as a
/// weight in a tree in order of opening, and subtrees that cannot win are passed over ([`AgeTree`]). Exact for
/// every age function offered; usually one comparison per invalidation. There is no bound below a scan for
/// the selection: if weights fall with the age just as f does, every segment could win. `make bench` prints
/// the nodes looked at.
#[derive(Clone, Debug)]
pub struct Cat {
    order: OpenOrder,
    tree: AgeTree,
    empty: BucketBits,
    age: AgeFunction,
    ratios: Vec<f64>,
    selections: u64,
    looked_at: u64,
}

fn ratio(valid: u32, data_pages: u32) -> f64 {
    f64::from(valid) / f64::from(data_pages - valid)
}

/// The price of CAT: smaller is better. A fully invalid segment is free.
fn price(valid: u32, data_pages: u32, erases: u32, benefit: f64) -> f64 {
    if valid == 0 { 0.0 } else { ratio(valid, data_pages) * (f64::from(erases) + 1.0) / benefit }
}

impl Cat {
    /// The policy for a device of the given size.
    pub fn new(sizing: Sizing, age: AgeFunction) -> Self {
        let order = OpenOrder::new(sizing.segments);
        let tree = AgeTree::new(order.columns(), &age);
        let ratios = (0..sizing.data_pages).map(|valid| ratio(valid, sizing.data_pages)).collect();
        let empty = BucketBits::new(1, sizing.segments as usize);
        Self { order, tree, empty, age, ratios, selections: 0, looked_at: 0 }
    }

    fn put(&mut self, segments: &Segments, segment: SegmentId, valid: u32) {
        if valid == 0 {
            self.empty.set(0, segment.0);
        } else if valid < segments.data_pages {
            self.lower(segments, segment, valid);
        }
    }

    #[inline(always)]
    fn lower(&mut self, segments: &Segments, segment: SegmentId, valid: u32) {
        let erases = segments.erases[segment.index()];
        let weight = self.ratios[valid as usize] * (f64::from(erases) + 1.0);
        self.tree.lower(self.order.column(segment), weight);
    }
}

impl Selection for Cat {
    fn opened(&mut self, segments: &Segments, segment: SegmentId) {
        if self.order.open(segment) {
            self.tree.clear();
            for id in self.order.iter().filter(|id| *id != segment) {
                self.tree.open(self.order.column(id), segments.opened(id, self.age.clock));
            }
            for id in segments.ids().filter(|id| segments.state[id.index()] == State::Sealed) {
                self.put(segments, id, segments.valid[id.index()]);
            }
        }
        self.tree.open(self.order.column(segment), segments.opened(segment, self.age.clock));
    }

    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        self.put(segments, segment, segments.valid[segment.index()]);
    }

    #[inline]
    fn invalidated(&mut self, segments: &Segments, segment: SegmentId, valid: u32) {
        if valid == 0 {
            self.tree.remove(self.order.column(segment));
            self.empty.set(0, segment.0);
        } else {
            self.lower(segments, segment, valid);
        }
    }

    fn invalidated_run(&mut self, segments: &Segments, run: &[(SegmentId, u32)]) {
        for (segment, valid) in run {
            match valid {
                0 => self.invalidated(segments, *segment, 0),
                _ => self.lower(segments, *segment, *valid),
            }
        }
    }

    fn taken(&mut self, segments: &Segments, segment: SegmentId) {
        if segments.valid[segment.index()] == 0 {
            self.empty.clear(0, segment.0);
        } else {
            self.tree.remove(self.order.column(segment));
        }
        self.order.release(segment);
    }

    fn select(&mut self, _: &Segments, now: Now) -> Option<SegmentId> {
        if let Some(segment) = self.empty.first(0) {
            return Some(SegmentId(segment));
        }
        let (column, looked_at) = self.tree.minimum(now.on(self.age.clock), &self.age);
        self.selections += 1;
        self.looked_at += u64::from(looked_at);
        column.map(|column| self.order.segment(column))
    }

    fn lookups_per_selection(&self) -> Option<f64> {
        Some(self.looked_at as f64 / self.selections.max(1) as f64)
    }
}
