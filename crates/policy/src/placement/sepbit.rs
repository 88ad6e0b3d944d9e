use super::{Pages, Placement, PlacementBuild, Subject, WithPages, heat};
use crate::age::{Clock, Now};
use crate::segments::Segments;
use crate::spec::Row;
use margay_flash::SegmentId;

/// The row of SepBIT.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "sepbit",
    summary: "by estimated lifetime: host writes by the age of what they supersede, copies by the age of the page",
    parameters: &[],
    source: "Wang et al., FAST 2022",
    build: |_, _| WithPages::boxed(SepBit::default()),
};

/// Host writes that supersede a page written recently: they will die soon, too.
const SHORT: u8 = 0;
/// All other host writes.
const LONG: u8 = 1;
/// Copies from segments of [`SHORT`].
const SURVIVED: u8 = 2;
/// Copies from all others, younger than each of these multiples of the mean lifetime; the oldest have one class more.
const AGES: [u64; 2] = [4, 16];
/// The mean lifetime is that of this many segments.
const SEGMENTS: u64 = 16;

/// SepBIT, separation by estimated block invalidation time: six classes.
///
/// Source: Wang, Yang, Lee et al., "Separating data via block invalidation time inference for write amplification reduction in
/// log-structured storage", FAST 2022. A host write is short-lived if the page that it supersedes lived for less than the
/// mean lifetime of the last 16 segments of short-lived pages that were cleaned, and less than there are valid pages; a copy is
/// classed by the time since the host wrote the page. Lifetimes are in host page writes; until 16 segments were cleaned
/// after the start, or after a mount, the mean is infinite. The paper keeps recent writes in a queue to save memory; here each page
/// knows its last write, so that the comparison is exact: 4 bytes per page, times modulo 2^32 writes. O(1).
#[derive(Clone, Copy, Debug, Default)]
struct SepBit {
    /// The mean lifetime; `None` if it is not known yet.
    mean: Option<u64>,
    /// Sum of the lifetimes of the segments cleaned since it was computed.
    sum: u64,
    /// Number of these segments.
    cleaned: u64,
}

impl SepBit {
    /// Host page writes since the host wrote a page.
    fn age(now: Now, written: u32) -> u64 {
        u64::from((now.writes as u32).wrapping_sub(written))
    }
}

impl Placement for SepBit {
    /// Host page writes when the host wrote the page, modulo 2^32.
    type Info = u32;

    fn streams(&self) -> u8 {
        SURVIVED + 1 + AGES.len() as u8 + 1
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(&mut self, segments: &Segments, now: Now, _: Subject, old: Option<(SegmentId, u32)>) -> (u8, u32) {
        let limit = self.mean.unwrap_or(u64::MAX).min(segments.total_valid);
        let is_short = old.is_some_and(|(_, written)| Self::age(now, written) < limit);
        (if is_short { SHORT } else { LONG }, now.writes as u32)
    }

    fn begin_cleaning(&mut self, segments: &Segments, victim: SegmentId, now: Now, _: Pages<'_, u32>) {
        if segments.stream[victim.index()] != SHORT {
            return;
        }
        self.sum += segments.age(victim, Clock::Writes, now);
        self.cleaned += 1;
        if self.cleaned == SEGMENTS {
            *self = Self { mean: Some(self.sum / SEGMENTS), sum: 0, cleaned: 0 };
        }
    }

    fn copy(&self, segments: &Segments, victim: SegmentId, now: Now, written: u32, _: u64) -> u8 {
        if segments.stream[victim.index()] == SHORT {
            return SURVIVED;
        }
        let is_older = |times: &&u64| self.mean.is_some_and(|mean| Self::age(now, written) >= *times * mean);
        SURVIVED + 1 + AGES.iter().filter(is_older).count() as u8
    }

    number_for_a_page!(heat::WRITTEN);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_the_ages_in_mean_lifetimes_of_short_lived_segments() {
        let mut policy = SepBit::default();
        let mut segments = Segments::new(4, 8, false);
        segments.total_valid = 1000;
        segments.stream[1] = LONG;
        let at = |writes| Now { us: 0, writes };
        let write = |policy: &mut SepBit, segments: &Segments, now, written: Option<u32>| {
            policy.write(segments, at(now), Subject::default(), written.map(|written| (SegmentId(0), written))).0
        };
        assert_eq!(write(&mut policy, &segments, 500, None), LONG, "nothing is known of a new page");
        assert_eq!(write(&mut policy, &segments, 999, Some(0)), SHORT, "the mean is infinite at the start");
        assert_eq!(write(&mut policy, &segments, 1000, Some(0)), LONG, "older than all valid pages together");
        assert_eq!(policy.copy(&segments, SegmentId(1), at(1 << 31), 0, 0), SURVIVED + 1);
        // Segments that lived for 90 to 105 writes; those of other classes do not count.
        for lifetime in 90..106 {
            assert_eq!(policy.mean, None);
            let (short, long) = (Pages::new(&[], &[]), Pages::new(&[], &[]));
            policy.begin_cleaning(&segments, SegmentId(0), at(lifetime), short);
            policy.begin_cleaning(&segments, SegmentId(1), at(7), long);
        }
        assert_eq!(policy.mean, Some(97));
        for (age, class) in [(0, SHORT), (96, SHORT), (97, LONG), (900, LONG)] {
            assert_eq!(write(&mut policy, &segments, 2000, Some(2000 - age)), class, "{age} writes");
        }
        for (age, class) in [(0, 3), (4 * 97 - 1, 3), (4 * 97, 4), (16 * 97 - 1, 4), (16 * 97, 5)] {
            assert_eq!(policy.copy(&segments, SegmentId(1), at(5000), 5000 - age, 0), class, "{age} writes");
            assert_eq!(policy.copy(&segments, SegmentId(0), at(5000), 5000 - age, 0), SURVIVED);
        }
        let late = at((1 << 32) + 10);
        assert_eq!(SepBit::age(late, u32::MAX - 9), 20, "times are kept modulo 2^32");
    }
}
