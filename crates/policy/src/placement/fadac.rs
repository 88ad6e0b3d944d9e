use super::requests::Requests;
use super::{Placement, PlacementBuild, STREAMS, Subject, WithPages, heat};
use crate::age::Now;
use crate::segments::Segments;
use crate::spec::Row;
use margay_flash::SegmentId;

/// The row of FADaC.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "fadac",
    summary: "fading average: pages by their count of writes less copies, in steps of ten times a fading average",
    parameters: &[STREAMS],
    source: "Kremer and Brinkmann, SYSTOR 2019",
    build: |args, _| WithPages::boxed(Fadac::new(args.number("streams") as u8)),
};

/// FADaC, a self-adapting classifier of data by a fading average.
///
/// Source: Kremer and Brinkmann, "FADaC: a self-adapting data classifier for flash memory", SYSTOR 2019. The count of a
/// page rises by 1 with each host write and falls by 1 with each copy; its stream is the smallest l with count <= A x
/// 10^l, the last for all above, so 0 is the coldest. A, the fading average, changes by (length of the request - A) /
/// valid pages with each request. Readings: requests are pages that follow each other at one time, and change A when
/// the next one begins; A is 1 where nothing else is known, which is its end value where all requests are pages. After
/// a mount a page has the count of its last host write, unless there is a checkpoint. 4 bytes per page. O(streams).
#[derive(Clone, Debug)]
struct Fadac {
    streams: u8,
    average: f64,
    requests: Requests,
}

impl Fadac {
    fn new(streams: u8) -> Self {
        Self { streams, average: 1.0, requests: Requests::default() }
    }

    fn level(&self, count: u32) -> u8 {
        let (mut bound, mut level) = (self.average, 0);
        while f64::from(count) > bound && level + 1 < self.streams {
            bound *= 10.0;
            level += 1;
        }
        level
    }
}

impl Placement for Fadac {
    /// Host writes less copies.
    type Info = u32;

    fn streams(&self) -> u8 {
        self.streams
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(&mut self, segments: &Segments, now: Now, subject: Subject, old: Option<(SegmentId, u32)>) -> (u8, u32) {
        if let Some(request) = self.requests.write(now, subject.owner).filter(|request| !request.is_empty()) {
            let pages = (request.end - request.start) as f64;
            self.average += (pages - self.average) / segments.total_valid.max(1) as f64;
        }
        let count = old.map_or(0, |(_, count)| count).saturating_add(1);
        (self.level(count), count)
    }

    fn copy(&self, _: &Segments, _: SegmentId, _: Now, count: u32, _: u64) -> u8 {
        self.level(self.copied(count))
    }

    fn copied(&self, count: u32) -> u32 {
        count.saturating_sub(1)
    }

    number_for_a_page!(heat::UPDATES);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_rise_with_writes_and_fall_with_copies_in_steps_of_ten() {
        let mut policy = Fadac::new(4);
        let segments = Segments::new(4, 8, false);
        let mut count = None;
        let levels: alloc::vec::Vec<u8> = (0..1002u64)
            .map(|n| {
                let now = Now { us: n, writes: n };
                let old = count.map(|count| (SegmentId(0), count));
                let (level, next) = policy.write(&segments, now, Subject::default(), old);
                count = Some(next);
                level
            })
            .collect();
        assert_eq!([0, 1, 9, 10, 99, 100, 1001].map(|n: usize| levels[n]), [0, 1, 1, 2, 2, 3, 3]);
        let copy = |count| policy.copy(&segments, SegmentId(0), Now::default(), count, 0);
        assert_eq!([0, 2, 11, 12, 101, 102].map(copy), [0, 0, 1, 2, 2, 3]);
        assert_eq!((policy.copied(7), policy.copied(0)), (6, 0));
    }

    #[test]
    fn the_average_follows_the_length_of_requests() {
        let mut policy = Fadac::new(6);
        let mut segments = Segments::new(4, 8, false);
        segments.total_valid = 10;
        for owner in 0..8 {
            policy.write(&segments, Now { us: 3, writes: owner }, Subject { owner, ..Subject::default() }, None);
        }
        assert_eq!(policy.average, 1.0, "the request has not ended");
        policy.write(&segments, Now { us: 4, writes: 9 }, Subject::default(), None);
        assert_eq!(policy.average, 1.0 + (8.0 - 1.0) / 10.0);
    }
}
