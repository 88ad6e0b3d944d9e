use super::{Placement, PlacementBuild, Subject, WithPages};
use crate::age::{Clock, Now, Scale};
use crate::segments::Segments;
use crate::spec::{Parameter, Preset, Row};
use margay_flash::SegmentId;

/// The row of DAC.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "dac",
    summary: "dynamic data clustering: pages move between regions as they are updated and copied",
    parameters: &[
        Parameter::number("regions", 4, 1..=64, "number of regions"),
        Parameter::scale("threshold", Scale::DeviceWrites(0.5), "age of a segment from which its pages move down"),
        Parameter::presets(&[Preset {
            name: "wide",
            values: "regions=8,threshold=4d",
            help: "tells more temperatures apart, which serves wide spreads of them, such as those of real traces",
            is_tried: true,
        }]),
    ],
    source: "Chiang, Lee and Chang 1999",
    build: |args, exported_pages| {
        WithPages::boxed(Dac::new(args.number("regions") as u8, args.scale("threshold"), exported_pages))
    },
};

/// DAC, dynamic data clustering: regions from cold (0) to hot; a page moves up when it is updated soon after it was
/// written, and down when it is copied late.
///
/// Source: Chiang, Lee, Chang 1999 "Using data clustering to improve cleaning performance for flash memory";
/// spec sec. 3. New data starts in region 0; an update goes one region up if the segment of the superseded
/// copy was opened less than `threshold` ago; cleaning moves a page one region down if its segment was opened
/// at least `threshold` ago. Each region opens its segment on first use. Keeps nothing per page. O(1).
#[derive(Clone, Copy, Debug)]
pub struct Dac {
    regions: u8,
    clock: Clock,
    threshold: u64,
}

impl Dac {
    /// `regions` regions, for a device that exports `exported_pages` pages.
    pub fn new(regions: u8, threshold: Scale, exported_pages: u32) -> Self {
        let (clock, threshold) = threshold.resolve(exported_pages);
        Self { regions, clock, threshold: threshold as u64 }
    }

    fn is_young(&self, segments: &Segments, segment: SegmentId, now: Now) -> bool {
        segments.age(segment, self.clock, now) < self.threshold
    }

    /// The region of a segment. Data of other streams (read-only) starts again in region 0.
    fn region(&self, segments: &Segments, segment: SegmentId) -> u8 {
        let stream = segments.stream[segment.index()];
        if stream < self.regions { stream } else { 0 }
    }
}

impl Placement for Dac {
    type Info = ();

    const ONE_STREAM_PER_VICTIM: bool = true;

    fn streams(&self) -> u8 {
        self.regions
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    #[inline]
    fn write(&mut self, segments: &Segments, now: Now, _: Subject, old: Option<(SegmentId, ())>) -> (u8, ()) {
        let Some((segment, ())) = old else { return (0, ()) };
        let region = self.region(segments, segment);
        let up = u8::from(self.is_young(segments, segment, now) && region + 1 < self.regions);
        (region + up, ())
    }

    #[inline]
    fn copy(&self, segments: &Segments, victim: SegmentId, now: Now, (): (), _: u64) -> u8 {
        let region = self.region(segments, victim);
        if self.is_young(segments, victim, now) { region } else { region.saturating_sub(1) }
    }
}
