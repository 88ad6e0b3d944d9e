use super::{Placement, PlacementBuild, STREAMS, Subject, WithPages, heat};
use crate::age::Now;
use crate::segments::Segments;
use crate::spec::Row;
use alloc::vec::Vec;
use margay_flash::SegmentId;

/// The row of WARCIP.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "warcip",
    summary: "host writes to the cluster whose mean rewrite interval is nearest, copies by themselves",
    parameters: &[STREAMS],
    source: "Yang, Pei and Yang, SYSTOR 2019",
    build: |args, _| WithPages::boxed(Warcip::new(args.number("streams") as u8)),
};

/// The stream of copies.
const COPIED: u8 = 0;
/// Clusters are split and merged whenever this many segments of host writes were filled.
const SEGMENTS: u32 = 256;

/// Host writes of about the same rewrite interval.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cluster {
    stream: u8,
    /// Mean interval, in host page writes.
    center: f64,
    /// Writes since a segment of it was begun: the weight of the mean.
    in_segment: u32,
    /// Writes since clusters were last split or merged.
    writes: u64,
}

/// WARCIP, write amplification reduction by clustering I/O pages: K-means of the rewrite interval, on line.
///
/// Source: Yang, Pei and Yang, "WARCIP: write amplification reduction by clustering I/O pages", SYSTOR 2019. A host
/// write joins the cluster of the nearest mean interval since the page was last written and moves that mean, which
/// starts to weigh anew with each segment; new pages have the interval 0. Every 256 segments of host writes a cluster
/// with over half of the writes is split, if a stream is left; if none is, the first one with less than a segment of
/// writes is given up once its segment is full. A page that was copied is punished: the time from its last write to its
/// copy is added to its next interval. Readings: intervals are in host page writes; the time of a copy is when its
/// segment was opened; a new cluster begins half-way between the split one and the next lower mean (or 0). Clusters
/// start anew after a mount. 4 bytes per page, times modulo 2^32 writes. O(streams).
#[derive(Clone, Debug)]
struct Warcip {
    streams: u8,
    clusters: Vec<Cluster>,
    /// Segments filled since clusters were last split or merged.
    filled: u32,
    /// The stream of the cluster to be given up.
    unwanted: Option<u8>,
}

impl Warcip {
    fn new(streams: u8) -> Self {
        let cluster = |stream| Cluster { stream, center: 0.0, in_segment: 0, writes: 0 };
        Self { streams, clusters: (COPIED + 1..streams).map(cluster).collect(), filled: 0, unwanted: None }
    }

    /// The interval of a page that is written again, with its penalty.
    fn interval(segments: &Segments, now: Now, segment: SegmentId, written: u32) -> u64 {
        let age = u64::from((now.writes as u32).wrapping_sub(written));
        let since_copy = now.writes.saturating_sub(segments.opened_writes[segment.index()]);
        let is_copy = segments.stream[segment.index()] == COPIED;
        age + if is_copy { age.saturating_sub(since_copy) } else { 0 }
    }

    /// Finds the cluster of an interval, of equals the last, and moves its mean.
    fn join(&mut self, interval: u64, data_pages: u32) -> u8 {
        let interval = interval as f64;
        let distance = |cluster: &Cluster| libm::fabs(cluster.center - interval);
        let mut nearest = self.clusters.len() - 1;
        for at in (0..nearest).rev() {
            if distance(&self.clusters[at]) < distance(&self.clusters[nearest]) {
                nearest = at;
            }
        }
        let cluster = &mut self.clusters[nearest];
        let weight = f64::from(cluster.in_segment);
        cluster.center = (cluster.center * weight + interval) / (weight + 1.0);
        cluster.in_segment += 1;
        cluster.writes += 1;
        let stream = cluster.stream;
        if cluster.in_segment >= data_pages {
            cluster.in_segment = 0;
            self.fill_segment(nearest, data_pages);
        }
        stream
    }

    fn fill_segment(&mut self, at: usize, data_pages: u32) {
        if self.unwanted == Some(self.clusters[at].stream) {
            self.clusters.remove(at);
            self.unwanted = None;
        }
        self.filled += 1;
        if self.filled == SEGMENTS {
            self.filled = 0;
            self.split_or_merge(data_pages);
        }
    }

    fn split_or_merge(&mut self, data_pages: u32) {
        let total: u64 = self.clusters.iter().map(|cluster| cluster.writes).sum();
        let large = self.clusters.iter().position(|cluster| cluster.writes > total / 2);
        let unused = (COPIED + 1..self.streams).find(|stream| self.clusters.iter().all(|c| c.stream != *stream));
        if let (Some(at), Some(stream)) = (large, unused) {
            let center = self.clusters[at].center;
            let below = self.clusters.iter().map(|c| c.center).filter(|other| *other < center).fold(0.0, f64::max);
            self.clusters.insert(at, Cluster { stream, center: (below + center) / 2.0, in_segment: 0, writes: 0 });
        } else if self.unwanted.is_none() && self.clusters.len() > 1 {
            let small = self.clusters.iter().find(|cluster| cluster.writes < data_pages.into());
            self.unwanted = small.map(|cluster| cluster.stream);
        }
        self.clusters.iter_mut().for_each(|cluster| cluster.writes = 0);
    }
}

impl Placement for Warcip {
    /// Host page writes when the host wrote the page, modulo 2^32.
    type Info = u32;

    const ONE_STREAM_PER_VICTIM: bool = true;

    fn streams(&self) -> u8 {
        self.streams
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(&mut self, segments: &Segments, now: Now, _: Subject, old: Option<(SegmentId, u32)>) -> (u8, u32) {
        let interval = old.map_or(0, |(segment, written)| Self::interval(segments, now, segment, written));
        (self.join(interval, segments.data_pages), now.writes as u32)
    }

    fn copy(&self, _: &Segments, _: SegmentId, _: Now, _: u32, _: u64) -> u8 {
        COPIED
    }

    number_for_a_page!(heat::WRITTEN);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_join_the_nearest_mean_and_move_it() {
        let mut policy = Warcip::new(4);
        let means = |policy: &Warcip| policy.clusters.iter().map(|cluster| cluster.center).collect::<Vec<_>>();
        assert_eq!(policy.join(1000, 100), 3, "of equals the last");
        assert_eq!(policy.join(100, 100), 2);
        assert_eq!(policy.join(10, 100), 1);
        assert_eq!(means(&policy), [10.0, 100.0, 1000.0]);
        assert_eq!(policy.join(400, 100), 2);
        assert_eq!(means(&policy), [10.0, 250.0, 1000.0]);
        assert_eq!(policy.join(700, 100), 3);
        assert_eq!(means(&policy), [10.0, 250.0, 850.0]);
    }

    #[test]
    fn a_mean_begins_anew_with_each_segment() {
        let mut policy = Warcip::new(2);
        for _ in 0..4 {
            policy.join(1000, 4);
        }
        policy.join(8, 4);
        assert_eq!(policy.clusters[0].center, 8.0);
    }

    #[test]
    fn a_page_that_was_copied_has_a_longer_interval() {
        let mut segments = Segments::new(4, 8, false);
        segments.stream[1] = 2;
        (segments.opened_writes[0], segments.opened_writes[1]) = (400, 400);
        let at = Now { us: 0, writes: 1000 };
        assert_eq!(Warcip::interval(&segments, at, SegmentId(1), 100), 900, "the host wrote it there");
        assert_eq!(
            Warcip::interval(&segments, at, SegmentId(0), 100),
            900 + 300,
            "copied at 400, 300 after it was written"
        );
        assert_eq!(Warcip::interval(&segments, at, SegmentId(0), 500), 500, "placed there for want of room");
    }

    #[test]
    fn a_cluster_of_half_of_the_writes_is_split_and_one_of_few_given_up() {
        let mut policy = Warcip::new(4);
        for interval in [1000, 100, 10] {
            policy.join(interval, 4);
        }
        // 256 segments of the middle one: no stream is left for a split, and the first of the others has few writes.
        for _ in 0..256 * 4 - 1 {
            policy.join(100, 4);
        }
        assert_eq!((policy.unwanted, policy.clusters.len()), (Some(1), 3));
        for _ in 0..3 {
            policy.join(10, 4);
        }
        assert_eq!((policy.unwanted, policy.clusters.len()), (None, 2), "its segment is full");
        for _ in 0..256 * 4 {
            policy.join(100, 4);
        }
        let split = policy.clusters.iter().find(|cluster| cluster.stream == 1);
        assert_eq!(split.map(|cluster| cluster.center), Some(50.0));
    }
}
