use super::requests::Requests;
use super::{Placement, PlacementBuild, Subject, WithPages};
use crate::age::Now;
use crate::segments::Segments;
use crate::spec::{Parameter, Row};
use alloc::vec::Vec;
use core::ops::Range;
use margay_flash::SegmentId;

/// The row of ETI.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "eti",
    summary: "by extents: host writes to extents of pages that are often written apart from the others, copies by themselves",
    parameters: &[
        Parameter::number("extents", 1024, 1..=65_536, "max number of extents"),
        Parameter::number(
            "period",
            4096,
            1..=1_000_000_000,
            "host requests after which counts are halved and extents merged",
        ),
    ],
    source: "Shafaei, Desnoyers and Fitzpatrick, HotStorage 2016",
    build: |args, _| WithPages::boxed(Eti::new(args.number("extents"), args.number("period"))),
};

/// Host writes to hot extents.
const HOT: u8 = 0;
/// All other host writes.
const COLD: u8 = 1;
/// Copies.
const COPIED: u8 = 2;
/// An extent is hot from this count on.
const HOT_FROM: u8 = 4;
/// Counts stop here.
const MAX_COUNT: u8 = 15;

/// Neighbouring owners with one count. It ends where the next extent begins.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Extent {
    first: u64,
    count: u8,
}

/// ETI, extent-based temperature identification: a table of extents of logical pages, each with a count of requests.
///
/// Source: Shafaei, Desnoyers and Fitzpatrick, "Write amplification reduction in flash-based SSDs through extent-based
/// temperature identification", HotStorage 2016. A request adds 1 to the count, max 15, of every extent that it covers,
/// and splits those that it covers in part while there is room in the table; every `period` requests counts are halved,
/// and neighbours of equal count, or both under 4, become one with the count of the first. Readings: requests are pages
/// that follow each other at one time, and count when the next one begins; a split that would exceed the table is not
/// made at all, while public code exceeds it by one. The table starts empty after a mount. Keeps nothing per page, 16
/// bytes per extent; O(log extents) per host write, O(extents) where a request ends.
#[derive(Clone, Debug)]
struct Eti {
    /// In ascending order; the first begins at 0, the last has no end.
    extents: Vec<Extent>,
    max_extents: usize,
    period: u32,
    requests: Requests,
    /// Requests since counts were halved.
    counted: u32,
}

impl Eti {
    fn new(max_extents: u32, period: u32) -> Self {
        let max_extents = max_extents as usize;
        let mut extents = Vec::with_capacity(max_extents);
        extents.push(Extent { first: 0, count: 0 });
        Self { extents, max_extents, period, requests: Requests::default(), counted: 0 }
    }

    /// The place of the extent of an owner.
    fn find(&self, owner: u64) -> usize {
        self.extents.partition_point(|extent| extent.first <= owner) - 1
    }

    fn end(&self, at: usize) -> u64 {
        self.extents.get(at + 1).map_or(u64::MAX, |next| next.first)
    }

    /// Counts a request to these owners.
    fn count(&mut self, request: Range<u64>) {
        self.counted += 1;
        if self.counted >= self.period {
            self.counted = 0;
            self.decay();
        }
        let mut from = request.start;
        while from < request.end {
            let at = self.find(from);
            let (Extent { first, count }, end) = (self.extents[at], self.end(at));
            let to = request.end.min(end);
            let (before, after) = (usize::from(first < from), usize::from(to < end));
            if count < MAX_COUNT && self.extents.len() + before + after <= self.max_extents {
                if after == 1 {
                    self.extents.insert(at + 1, Extent { first: to, count });
                }
                if before == 1 {
                    self.extents.insert(at + 1, Extent { first: from, count });
                }
                self.extents[at + before].count += 1;
            }
            from = end;
        }
    }

    fn decay(&mut self) {
        self.extents.iter_mut().for_each(|extent| extent.count /= 2);
        self.extents.dedup_by(|next, kept| kept.count == next.count || kept.count.max(next.count) < HOT_FROM);
    }
}

impl Placement for Eti {
    type Info = ();

    const ONE_STREAM_PER_VICTIM: bool = true;

    fn streams(&self) -> u8 {
        COPIED + 1
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(&mut self, _: &Segments, now: Now, subject: Subject, _: Option<(SegmentId, ())>) -> (u8, ()) {
        if let Some(request) = self.requests.write(now, subject.owner).filter(|request| !request.is_empty()) {
            self.count(request);
        }
        let count = self.extents[self.find(subject.owner)].count;
        (if count >= HOT_FROM { HOT } else { COLD }, ())
    }

    fn copy(&self, _: &Segments, _: SegmentId, _: Now, (): (), _: u64) -> u8 {
        COPIED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(policy: &Eti) -> Vec<(u64, u8)> {
        policy.extents.iter().map(|extent| (extent.first, extent.count)).collect()
    }

    #[test]
    fn requests_split_extents_and_halving_merges_those_that_are_alike() {
        let mut policy = Eti::new(5, 1000);
        policy.count(100..200);
        assert_eq!(table(&policy), [(0, 0), (100, 1), (200, 0)]);
        policy.count(150..250);
        assert_eq!(table(&policy), [(0, 0), (100, 1), (150, 2), (200, 1), (250, 0)]);
        policy.count(0..50);
        assert_eq!(policy.extents.len(), 5, "there is no room for another");
        policy.count(0..200);
        assert_eq!(table(&policy), [(0, 1), (100, 2), (150, 3), (200, 1), (250, 0)], "whole extents need none");
        (0..20).for_each(|_| policy.count(150..200));
        assert_eq!(policy.extents[2].count, 15);
        policy.decay();
        assert_eq!(table(&policy), [(0, 0), (150, 7), (200, 0)]);
        policy.decay();
        assert_eq!(table(&policy), [(0, 0)], "7 halves to 3, which is cold");
    }

    #[test]
    fn an_extent_is_hot_from_its_fourth_request_on_until_halved() {
        let mut policy = Eti::new(1024, 8);
        let segments = Segments::new(4, 8, false);
        let mut write = |us, owner| {
            let subject = Subject { owner, ..Subject::default() };
            policy.write(&segments, Now { us, writes: 0 }, subject, None).0
        };
        for us in 1..=4 {
            assert_eq!([write(us, 7), write(us, 8)], [COLD; 2], "a request counts when it has ended");
        }
        assert_eq!([write(5, 8), write(5, 9)], [HOT, COLD]);
        // Five requests were counted; 7 has four of them, 8 gets another two.
        assert_eq!(write(6, 8), HOT);
        assert_eq!([write(7, 7), write(8, 7)], [HOT; 2]);
        assert_eq!(write(9, 7), COLD, "the eighth halves all");
        assert_eq!(policy.copy(&segments, SegmentId(0), Now::default(), (), 0), COPIED);
    }
}
