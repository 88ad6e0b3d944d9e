use super::{Selection, SelectionBuild};
use crate::age::Now;
use crate::segments::{Segments, Sizing};
use crate::spec::{Args, Row};
use alloc::boxed::Box;
use margay_flash::SegmentId;

/// The row of cost-hotness.
pub(super) const ROW: Row<SelectionBuild> = Row {
    name: "cost-hotness",
    summary: "SFS: largest gain per copy and hotness, (1 - u) / (u x hotness)",
    parameters: &[],
    source: "Min, Kim, Cho, Lee and Eom, FAST 2012",
    build: SelectionBuild {
        new: |_, _| Box::new(CostHotness),
        scan: Some(|_: &Args, _: Sizing, segments, id, now| key(segments, id, now)),
    },
};

/// The smallest is the victim.
fn key(segments: &Segments, id: SegmentId, now: Now) -> (f64, u64) {
    let valid = segments.valid[id.index()];
    if valid == 0 {
        return (0.0, id.0.into());
    }
    let cost = f64::from(valid) / f64::from(segments.data_pages - valid);
    (cost * segments.hotness(id, now), segments.opened_sequence[id.index()])
}

/// Cost-hotness: the candidate with the largest (1 - u) / (u x hotness); u = 0 first.
///
/// Source: Min, Kim, Cho, Lee and Eom, "SFS: random write considered harmful in solid state drives", FAST 2012. The
/// hotness of a segment is that of its valid pages, [`Segments::hotness`], which the placement `sfs` keeps. With other
/// placements a segment counts as written once when it was opened, which makes it cost-benefit with the age as it is.
/// Ties: fully invalid segments by number, others by order of opening. Counts never fade, so on stationary skewed data
/// hot segments get ever dearer than cold ones, until cold ones are cleaned for a single page: there cost-benefit
/// cleans for far less beside `sfs`. O(1) in host writes, O(segments) per selection.
#[derive(Clone, Copy, Debug)]
struct CostHotness;

impl Selection for CostHotness {
    fn opened(&mut self, _: &Segments, _: SegmentId) {}
    fn sealed(&mut self, _: &Segments, _: SegmentId) {}
    fn invalidated(&mut self, _: &Segments, _: SegmentId, _: u32) {}
    fn invalidated_run(&mut self, _: &Segments, _: &[(SegmentId, u32)]) {}
    fn taken(&mut self, _: &Segments, _: SegmentId) {}

    fn select(&mut self, segments: &Segments, now: Now) -> Option<SegmentId> {
        let candidates = segments.ids().filter(|id| segments.is_candidate(*id));
        let keys = candidates.map(|id| (key(segments, id, now), id));
        keys.min_by(|(a, _), (b, _)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))).map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::{PageSums, State};

    #[test]
    fn gain_is_weighed_against_copies_and_hotness() {
        let mut segments = Segments::new(3, 10, false);
        let now = Now { us: 0, writes: 1000 };
        for (i, (valid, writes, age)) in [(5, 10, 500), (8, 8, 4000), (6, 60, 600)].into_iter().enumerate() {
            segments.state[i] = State::Sealed;
            segments.valid[i] = valid;
            let pages = u64::from(valid);
            segments.sums.push(PageSums { pages, writes, written: pages * 1000 - age });
        }
        // 5 / 5 x 10 / 500 = 0.02; 8 / 2 x 8 / 4000 = 0.008; 6 / 4 x 60 / 600 = 0.15.
        assert_eq!(CostHotness.select(&segments, now), Some(SegmentId(1)));
        segments.valid[2] = 0;
        assert_eq!(CostHotness.select(&segments, now), Some(SegmentId(2)));
        segments.state[2] = State::Free;
        // Without sums: 5 / 5 / 900 against 8 / 2 / 1000.
        segments.sums.clear();
        segments.opened_writes[0] = 100;
        assert_eq!(CostHotness.select(&segments, now), Some(SegmentId(0)));
    }
}
