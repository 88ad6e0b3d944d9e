//! Placements that say how long their streams keep segments, with the selection that keeps to it.

use margay_flash::{Geometry, Lpn};
use margay_format::Plain;
use margay_ftl::Ftl;
use margay_log::{Config, Hint, Policies};
use margay_media::NullFlash;
use margay_policy::{Bound, PlacementSpec, SelectionSpec, Sizing};

const SEGMENTS: u32 = 512;
const PAGES_PER_SEGMENT: u32 = 32;
const EXPORTED: u32 = SEGMENTS * PAGES_PER_SEGMENT * 9 / 10;

type Disk = Ftl<Plain<NullFlash>>;

fn disk(selection: &str, placement: &str) -> Disk {
    let geometry = Geometry::new(SEGMENTS, PAGES_PER_SEGMENT, 4096).unwrap();
    let sizing = Sizing { segments: SEGMENTS, data_pages: PAGES_PER_SEGMENT, exported_pages: EXPORTED, seed: 1 };
    let policies = Policies::new(SelectionSpec::known(selection), PlacementSpec::known(placement), sizing);
    let device = Plain::new(NullFlash::new(geometry));
    let mut disk = Ftl::new(device, Config::default(), policies, EXPORTED, &[]).unwrap();
    (0..EXPORTED).for_each(|lpn| disk.fill(Lpn(lpn), &[], Hint::None).unwrap());
    disk
}

/// Pages of which the n-th most popular is written in proportion to 1/n, from a generator with a seed.
struct Zipf {
    state: u64,
}

impl Zipf {
    fn next(&mut self) -> u32 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let share = (self.state >> 11) as f64 / (1u64 << 53) as f64;
        let rank = f64::from(EXPORTED).powf(share) as u32;
        // Popular pages lie anywhere.
        (rank.min(EXPORTED - 1) * 5003) % EXPORTED
    }
}

/// Write amplification of the last `writes` of `all`.
fn write_amplification(disk: &mut Disk, all: u32, writes: u32) -> f64 {
    let mut zipf = Zipf { state: 88172645463325252 };
    let mut before = 0;
    for write in 0..all {
        if write == all - writes {
            before = disk.log().counters().copies;
        }
        disk.write(Lpn(zipf.next()), &[], Hint::None, 0).unwrap();
    }
    1.0 + (disk.log().counters().copies - before) as f64 / f64::from(writes)
}

#[test]
fn midas_finds_sizes_of_groups_and_costs_less_than_to_keep_copies_apart() {
    let mut midas = disk("grouped", "midas");
    let wa = write_amplification(&mut midas, 20 * EXPORTED, 5 * EXPORTED);
    let bounds = midas.log().placement().bounds().unwrap();
    assert!(bounds.streams.len() > 2, "no model was adopted: {bounds:?}");
    let segments = midas.log().segments();
    for (stream, bound) in bounds.streams.iter().enumerate() {
        let Bound::Segments(max) = bound.bound else { panic!("{bounds:?}") };
        let is_here = |i: &usize| {
            usize::from(segments.stream[*i]) == stream
                && bounds.of(stream as u8, segments.opened_sequence[*i]).is_some()
        };
        let count = (0..SEGMENTS as usize).filter(is_here).count();
        // The open one, and those sealed since the last cleaning.
        assert!(count <= max as usize + 3, "stream {stream}: {count} of {max}");
    }
    let apart = write_amplification(&mut disk("cost-benefit:shape=sqrt", "sepgc"), 20 * EXPORTED, 5 * EXPORTED);
    assert!(wa < 0.93 * apart, "{wa} where SepGC has {apart}");
    midas.audit().unwrap();
}
