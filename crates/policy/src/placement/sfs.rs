use super::{Heat, Pages, Placement, PlacementBuild, STREAMS, Subject, WithPages, heat};
use crate::age::{Clock, Now};
use crate::segments::{PageSums, Segments, State};
use crate::spec::Row;
use alloc::{vec, vec::Vec};
use margay_flash::SegmentId;

/// The row of SFS.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "sfs",
    summary: "by hotness, writes per time since the last write: pages go to the nearest of the centers of all segments' hotness",
    parameters: &[STREAMS],
    source: "Min, Kim, Cho, Lee and Eom, FAST 2012",
    build: |args, _| WithPages::boxed(Sfs::new(args.number("streams") as u8)),
};

/// Rounds of k-means at each cleaning.
const ROUNDS: u32 = 3;

/// SFS: pages of about one hotness share segments, where hotness is the number of host writes over the time since the
/// last one.
///
/// Source: Min, Kim, Cho, Lee and Eom, "SFS: random write considered harmful in solid state drives", FAST 2012. Before
/// the copies of each victim, the hotness of all sealed segments (writes of their valid pages over the sum of their
/// ages) is clustered by three rounds of k-means, which go on from the last centers; host writes and copies go to the
/// nearest center, a new page to the hottest. It comes with the selection `cost-hotness`, whose description says when
/// another one cleans for less. Readings: time is host page writes; distances are plain differences, as in public code;
/// a cluster without a segment has the center 0. Centers start anew after a mount. 16 bytes per page, 56 per segment;
/// O(streams), O(segments x streams) per cleaning.
#[derive(Clone, Debug)]
struct Sfs {
    /// From hot to cold.
    centers: Vec<f64>,
    /// Memory for sums and numbers of the segments of each cluster.
    clusters: Vec<(f64, u32)>,
    /// Memory for the hotness of the sealed segments.
    hotness: Vec<f64>,
}

impl Sfs {
    fn new(streams: u8) -> Self {
        Self { centers: vec![0.0; streams.into()], clusters: vec![(0.0, 0); streams.into()], hotness: Vec::new() }
    }

    /// The nearest center, of equals the coldest.
    fn nearest(centers: &[f64], hotness: f64) -> usize {
        let mut best = (f64::INFINITY, 0);
        for (at, center) in centers.iter().enumerate().rev() {
            let distance = libm::fabs(center - hotness);
            if distance < best.0 {
                best = (distance, at);
            }
        }
        best.1
    }

    fn hotness(heat: Heat, now: Now) -> f64 {
        (f64::from(heat.updates) + 1.0) / now.writes.saturating_sub(heat.written) as f64
    }

    /// Clusters the segments of `hotness`.
    fn find_centers(&mut self) {
        let Self { centers, clusters, hotness } = self;
        if hotness.is_empty() {
            return;
        }
        if hotness.len() <= centers.len() {
            centers.iter_mut().zip(hotness.iter().cycle()).for_each(|(center, hotness)| *center = *hotness);
        } else {
            for _ in 0..ROUNDS {
                clusters.fill((0.0, 0));
                for hotness in hotness.iter() {
                    let (sum, segments) = &mut clusters[Self::nearest(centers, *hotness)];
                    *sum += hotness;
                    *segments += 1;
                }
                let mean = |(sum, segments): &(f64, u32)| sum / f64::from((*segments).max(1));
                centers.iter_mut().zip(clusters.iter()).for_each(|(center, cluster)| *center = mean(cluster));
            }
        }
        centers.sort_by(|a, b| b.total_cmp(a));
    }
}

impl Placement for Sfs {
    type Info = Heat;

    const HEAT_KIND: u8 = heat::UPDATES;

    const SUMS: bool = true;

    fn streams(&self) -> u8 {
        self.centers.len() as u8
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(&mut self, _: &Segments, now: Now, _: Subject, old: Option<(SegmentId, Heat)>) -> (u8, Heat) {
        let hotness = old.map_or(f64::INFINITY, |(_, heat)| Self::hotness(heat, now));
        (Self::nearest(&self.centers, hotness) as u8, Heat::after_write(old, now.on(Clock::Writes)))
    }

    fn begin_cleaning(&mut self, segments: &Segments, _: SegmentId, now: Now, _: Pages<'_, Heat>) {
        self.hotness.clear();
        let sealed = segments.ids().filter(|id| segments.state[id.index()] == State::Sealed);
        // A segment written at this very moment would draw a center to infinity.
        self.hotness.extend(sealed.map(|id| segments.hotness(id, now)).filter(|hotness| hotness.is_finite()));
        self.find_centers();
    }

    fn copy(&self, _: &Segments, _: SegmentId, now: Now, heat: Heat, _: u64) -> u8 {
        Self::nearest(&self.centers, Self::hotness(heat, now)) as u8
    }

    fn sums_of(heat: Heat) -> PageSums {
        PageSums { pages: 1, writes: u64::from(heat.updates) + 1, written: heat.written }
    }

    fn pack(&self, heat: Heat) -> u32 {
        heat.updates
    }

    fn unpack(&mut self, updates: u32, written: Now, _: Now) -> Heat {
        Heat { written: written.writes, updates }
    }

    fn encode(&self, heat: Heat, _: Now) -> (u64, u32) {
        (heat.written, heat.updates)
    }

    fn decode(&mut self, (written, updates): (u64, u32), _: Now) -> Heat {
        Heat { written, updates }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_rounds_find_the_centers_and_pages_go_to_the_nearest() {
        let mut policy = Sfs::new(3);
        // The centers 0, 0, 0 become 0, 0, 4 (all segments join the last of equals), then 0, 1, 6 (1 and 1 are nearer
        // to 0 than to 4; 2 is as near to both and joins the last), then 0, 7 / 4, 13.
        policy.hotness = [1.0, 1.0, 2.0, 3.0, 13.0].into();
        policy.find_centers();
        assert_eq!(policy.centers, [13.0, 1.75, 0.0]);
        let segments = Segments::new(4, 8, false);
        let mut write = |writes, old: Option<Heat>| {
            let old = old.map(|heat| (SegmentId(0), heat));
            policy.write(&segments, Now { us: 0, writes }, Subject::default(), old)
        };
        assert_eq!(write(100, None), (0, Heat { written: 100, updates: 0 }), "a new page is hot");
        // 40 writes, the last 4 ago: 10, nearest to 13. 4 writes, the last 4 ago: 1, nearest to 1.75. One 1000 ago:
        // nearest to 0.
        assert_eq!(write(104, Some(Heat { written: 100, updates: 39 })), (0, Heat { written: 104, updates: 40 }));
        assert_eq!(write(104, Some(Heat { written: 100, updates: 3 })).0, 1);
        assert_eq!(write(1100, Some(Heat { written: 100, updates: 0 })).0, 2);
    }

    #[test]
    fn few_segments_are_centers_themselves() {
        let mut policy = Sfs::new(4);
        policy.find_centers();
        assert_eq!(policy.centers, [0.0; 4], "there is none");
        policy.hotness = [0.5, 0.25, 2.0].into();
        policy.find_centers();
        assert_eq!(policy.centers, [2.0, 0.5, 0.5, 0.25]);
    }
}
