use super::{Placement, PlacementBuild, Subject, WithPages};
use crate::age::Now;
use crate::segments::Segments;
use crate::spec::{Parameter, Preset, Row};
use margay_flash::SegmentId;

/// The row of FK.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "fk",
    summary: "oracle, only in the laboratory: by the remaining life of each page, known from a pass over the workload before the run",
    parameters: &[
        Parameter::number("classes", 8, 1..=64, "number of classes of remaining life"),
        Parameter::choice(
            "widths",
            &["doubling", "equal"],
            "whether each class is twice as long as the one before, or all are as long as a segment has pages",
        ),
        Parameter::presets(&[Preset {
            name: "paper",
            values: "classes=6,widths=equal",
            help: "as SepBIT was compared with",
            is_tried: false,
        }]),
    ],
    source: "Wang et al., FAST 2022 (FK, future knowledge)",
    build: |args, _| {
        let is_doubling = args.choice("widths", &[true, false]);
        WithPages::boxed(FutureKnowledge { classes: args.number("classes") as u8, is_doubling })
    },
};

/// FK, future knowledge: the class of a page is the number of whole segments that the host will write before it writes the
/// page again (equal widths), the last class having no end. With doubling widths class n begins at 2^n - 1 segments: few open segments then tell
/// lives of very different length apart, on devices of many small segments too.
///
/// Source: Wang, Yang, Lee et al., "Separating data via block invalidation time inference for write amplification reduction in
/// log-structured storage", FAST 2022, where it bounds what inference can reach with six classes. Host writes and copies are
/// placed alike: the remaining life of a copy is the time of the host's last write, plus the life foretold then, less the time
/// now. Pages that nothing is foretold of are in the last class. 8 bytes per page. O(1).
#[derive(Clone, Copy, Debug)]
struct FutureKnowledge {
    classes: u8,
    is_doubling: bool,
}

/// The host page write with which a page dies; never, if nothing is foretold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Death(u64);

impl Default for Death {
    fn default() -> Self {
        Self(u64::MAX)
    }
}

impl Death {
    /// The death of a page that is written now.
    pub(super) fn of(subject: Subject, now: Now) -> Self {
        subject.lifetime().map_or(Self::default(), |writes| Self(now.writes + u64::from(writes)))
    }

    /// Host page writes until then.
    pub(super) fn remaining(self, now: Now) -> u64 {
        self.0.saturating_sub(now.writes)
    }
}

impl FutureKnowledge {
    fn class(&self, segments: &Segments, now: Now, death: Death) -> u8 {
        let remaining = death.remaining(now) / u64::from(segments.data_pages);
        let class = if self.is_doubling { u64::from((remaining.saturating_add(1)).ilog2()) } else { remaining };
        class.min(u64::from(self.classes - 1)) as u8
    }
}

impl Placement for FutureKnowledge {
    type Info = Death;

    const IS_ORACLE: bool = true;

    fn streams(&self) -> u8 {
        self.classes
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(&mut self, segments: &Segments, now: Now, subject: Subject, _: Option<(SegmentId, Death)>) -> (u8, Death) {
        let death = Death::of(subject, now);
        (self.class(segments, now, death), death)
    }

    fn copy(&self, segments: &Segments, _: SegmentId, now: Now, death: Death, _: u64) -> u8 {
        self.class(segments, now, death)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Hint;

    #[test]
    fn the_class_is_the_remaining_life_in_segments_of_a_write_and_of_its_copies() {
        let mut policy = FutureKnowledge { classes: 6, is_doubling: false };
        let segments = Segments::new(4, 8, false);
        let at = |writes| Now { us: 0, writes };
        for (lifetime, class) in [(0, 0), (7, 0), (8, 1), (39, 4), (40, 5), (4000, 5), (u32::MAX, 5)] {
            let subject = Subject { hint: Hint::Lifetime(lifetime), ..Subject::default() };
            assert_eq!(policy.write(&segments, at(100), subject, None).0, class, "{lifetime} writes");
        }
        assert_eq!(policy.write(&segments, at(100), Subject::default(), None).0, 5, "nothing is foretold");
        let doubling = FutureKnowledge { is_doubling: true, ..policy };
        for (lifetime, class) in
            [(0, 0), (7, 0), (8, 1), (23, 1), (24, 2), (55, 2), (56, 3), (247, 4), (248, 5), (u64::MAX, 5)]
        {
            assert_eq!(doubling.class(&segments, at(0), Death(lifetime)), class, "{lifetime} writes");
        }
        let subject = Subject { hint: Hint::Lifetime(24), ..Subject::default() };
        let (class, death) = policy.write(&segments, at(100), subject, None);
        assert_eq!(class, 3);
        for (now, class) in [(100, 3), (101, 2), (116, 1), (117, 0), (124, 0)] {
            assert_eq!(policy.copy(&segments, SegmentId(0), at(now), death, 0), class, "at {now}");
        }
    }
}
