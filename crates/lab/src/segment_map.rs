//! How the segments looked over a run, for pictures of it: what each holds, and how worn it is.

use crate::disk::MeasuredDisk;
use crate::recorder::halve;
use margay_policy::State;

/// The greatest number of bands.
const BANDS: usize = 256;
/// The greatest number of moments kept. When there are more, every second one is dropped.
const MOMENTS: usize = 128;
/// The stream of a band whose first segment holds no data.
const NO_STREAM: u8 = u8::MAX;

/// The segments at one moment, in bands of neighbours: a segment each on devices of no more than 256 segments.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentMap {
    /// Host page writes so far.
    pub host_writes: u64,
    /// Mean erase count of the segments of each band.
    pub erases: Vec<f32>,
    /// Valid pages / data pages of each band.
    pub valid: Vec<f32>,
    /// The stream for which the first segment of each band was last opened; 255 if it holds no data.
    pub streams: Vec<u8>,
}

impl SegmentMap {
    fn of(disk: &MeasuredDisk) -> Self {
        let segments = disk.log().segments();
        let of_band = segments.erases.len().div_ceil(BANDS).max(1);
        let mean = |sum: u64, of: usize| (sum as f64 / of as f64) as f32;
        let holds_data =
            |segment: usize| matches!(segments.state[segment], State::Open | State::Sealed | State::Victim);
        let data_pages = segments.data_pages.max(1) as usize;
        let firsts = || (0..segments.erases.len()).step_by(of_band);
        let valid = |first: usize| {
            let band = first..segments.valid.len().min(first + of_band);
            let pages = band.clone().filter(|segment| holds_data(*segment)).map(|segment| segments.valid[segment]);
            mean(pages.map(u64::from).sum(), band.len() * data_pages)
        };
        let erases = |band: &[u32]| mean(band.iter().copied().map(u64::from).sum(), band.len());
        Self {
            host_writes: disk.log().counters().host_writes,
            erases: segments.erases.chunks(of_band).map(erases).collect(),
            valid: firsts().map(valid).collect(),
            streams: firsts().map(|s| if holds_data(s) { segments.stream[s] } else { NO_STREAM }).collect(),
        }
    }
}

/// Takes the maps of a run: about as many as are kept, at even distances.
#[derive(Debug)]
pub(crate) struct SegmentMaps {
    maps: Vec<SegmentMap>,
    every: u32,
    since: u32,
}

impl SegmentMaps {
    pub fn new() -> Self {
        Self { maps: Vec::new(), every: 1, since: 0 }
    }

    /// Looks at the disk at a sample.
    pub fn look(&mut self, disk: &MeasuredDisk) {
        self.since += 1;
        if self.since < self.every {
            return;
        }
        self.since = 0;
        if self.maps.len() == MOMENTS {
            halve(&mut self.maps, 0);
            self.every *= 2;
        }
        self.maps.push(SegmentMap::of(disk));
    }

    /// The maps, the end of the run among them.
    pub fn finish(mut self, disk: &MeasuredDisk) -> Vec<SegmentMap> {
        let writes = disk.log().counters().host_writes;
        if self.maps.last().is_none_or(|map| map.host_writes < writes) {
            self.maps.push(SegmentMap::of(disk));
        }
        self.maps
    }
}
