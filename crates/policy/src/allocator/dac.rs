use super::PageMark;
use crate::age::Now;
use crate::placement::{Content, Placement, PlacementBuild, Subject, WithPages};
use crate::segments::Segments;
use crate::spec::Row;
use margay_flash::SegmentId;

/// The row of DAC as the MODA paper runs it.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "dac",
    summary: "four regions: a page rises when it is overwritten and falls when it is copied",
    parameters: &[],
    source: "Chiang, Lee, Chang 1999; Baek et al. 2007, sec. 6.5",
    build: |_, _| WithPages::boxed(FileDac { headers_apart: false }),
};

/// The row of DAC with a region for headers.
pub(super) const HEADERS_APART: Row<PlacementBuild> = Row {
    name: "dac-static",
    summary: "dac for data, headers apart",
    parameters: &[],
    source: "Baek et al. 2007, sec. 6.5, with MODA's static property",
    build: |_, _| WithPages::boxed(FileDac { headers_apart: true }),
};

/// Number of regions.
const REGIONS: u8 = 4;

/// DAC without an age threshold: a page rises by one region when it is overwritten, and falls by one when it is copied.
#[derive(Clone, Copy, Debug)]
struct FileDac {
    headers_apart: bool,
}

/// The region of a segment. Data that another allocator placed starts again in region 0.
fn region(segments: &Segments, segment: SegmentId) -> u8 {
    let stream = segments.stream[segment.index()];
    if stream < REGIONS { stream } else { 0 }
}

impl Placement for FileDac {
    type Info = PageMark;

    fn streams(&self) -> u8 {
        REGIONS + u8::from(self.headers_apart)
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(
        &mut self,
        segments: &Segments,
        _: Now,
        subject: Subject,
        old: Option<(SegmentId, PageMark)>,
    ) -> (u8, PageMark) {
        let mark = PageMark::of(subject.content);
        if self.headers_apart && mark.is_header() {
            return (REGIONS, mark);
        }
        (old.map_or(0, |(segment, _)| (region(segments, segment) + 1).min(REGIONS - 1)), mark)
    }

    fn copy(&self, segments: &Segments, victim: SegmentId, _: Now, mark: PageMark, _: u64) -> u8 {
        if self.headers_apart && mark.is_header() {
            return REGIONS;
        }
        region(segments, victim).saturating_sub(1)
    }

    fn recognize(&mut self, content: Content) -> PageMark {
        PageMark::of(content)
    }
}
