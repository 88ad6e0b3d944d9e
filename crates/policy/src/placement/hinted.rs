use super::{Placement, PlacementBuild, Subject, WithPages};
use crate::age::Now;
use crate::segments::Segments;
use crate::spec::{Parameter, Row};
use margay_flash::SegmentId;

/// The row of hinted.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "hinted",
    summary: "by the stream that the host names with each write, as devices with placement handles (FDP) do",
    parameters: &[
        Parameter::number(
            "handles",
            4,
            1..=32,
            "number of the host's streams; a write that names none, or another one, goes to the first",
        ),
        Parameter::choice(
            "isolation",
            &["persistent", "initial"],
            "whether the copies of each stream have a stream of their own, or all copies share one",
        ),
    ],
    source: "NVMe 2.1 base specification, flexible data placement",
    build: |args, _| {
        let is_persistent = args.choice("isolation", &[true, false]);
        WithPages::boxed(Hinted { handles: args.number("handles") as u8, is_persistent })
    },
};

/// Placement by the host's own streams, in the two forms of reclaim unit handles of FDP (flexible data placement).
///
/// Source: NVMe base specification 2.1, where a reclaim unit is a segment. Host writes of a handle go to a stream of the handle.
/// Persistently isolated handles have another stream each for copies, so that data of two handles never meets in a segment;
/// initially isolated ones share one stream for all copies. The handle of a copy is known from its segment. Keeps nothing
/// per page. O(1).
#[derive(Clone, Copy, Debug)]
struct Hinted {
    handles: u8,
    is_persistent: bool,
}

impl Placement for Hinted {
    type Info = ();

    const ONE_STREAM_PER_VICTIM: bool = true;
    const SEES_STREAMS: bool = true;

    fn streams(&self) -> u8 {
        self.handles + if self.is_persistent { self.handles } else { 1 }
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(&mut self, _: &Segments, _: Now, subject: Subject, _: Option<(SegmentId, ())>) -> (u8, ()) {
        (subject.stream().filter(|stream| *stream < self.handles).unwrap_or(0), ())
    }

    fn copy(&self, segments: &Segments, victim: SegmentId, _: Now, (): (), _: u64) -> u8 {
        let stream = segments.stream[victim.index()];
        self.handles + if self.is_persistent { stream % self.handles } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Hint;

    #[test]
    fn handles_have_their_own_segments_and_share_those_of_copies_or_not() {
        let mut policy = Hinted { handles: 3, is_persistent: true };
        let mut segments = Segments::new(8, 8, false);
        let now = Now::default();
        for (hint, stream) in [(Hint::None, 0), (Hint::Stream(1), 1), (Hint::Stream(2), 2), (Hint::Stream(3), 0)] {
            let subject = Subject { hint, ..Subject::default() };
            assert_eq!(policy.write(&segments, now, subject, None).0, stream, "{hint:?}");
        }
        let shared = Hinted { is_persistent: false, ..policy };
        for (stream, copies) in [(0, 3), (1, 4), (2, 5), (3, 3), (4, 4), (5, 5)] {
            segments.stream[1] = stream;
            assert_eq!(policy.copy(&segments, SegmentId(1), now, (), 0), copies, "from stream {stream}");
            assert_eq!(shared.copy(&segments, SegmentId(1), now, (), 0), 3);
        }
        assert_eq!((policy.streams(), shared.streams()), (6, 4));
    }
}
