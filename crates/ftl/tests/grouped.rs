//! Placements that say how long their streams keep segments, with the selection that keeps to it.

use margay_flash::{Geometry, Lpn};
use margay_format::Plain;
use margay_ftl::Ftl;
use margay_log::{Config, Hint, Policies};
use margay_media::NullFlash;
use margay_policy::{Bound, PlacementSpec, SelectionSpec, Sizing};

const SEGMENTS: u32 = 512;

type Disk = Ftl<Plain<NullFlash>>;

/// A full disk of which nine tenths are exported.
fn disk(selection: &str, placement: &str, pages_per_segment: u32, seed: u64) -> Disk {
    let geometry = Geometry::new(SEGMENTS, pages_per_segment, 4096).unwrap();
    let exported_pages = geometry.pages() * 9 / 10;
    let sizing = Sizing { segments: SEGMENTS, data_pages: pages_per_segment, exported_pages, seed };
    let policies = Policies::new(SelectionSpec::known(selection), PlacementSpec::known(placement), sizing);
    let device = Plain::new(NullFlash::new(geometry));
    let mut disk = Ftl::new(device, Config::default(), policies, exported_pages, &[]).unwrap();
    (0..exported_pages).for_each(|lpn| disk.fill(Lpn(lpn), &[], Hint::None).unwrap());
    disk
}

/// Writes to a share of the pages, of which the n-th most popular is written in proportion to 1/n. Returns the write
/// amplification of the last quarter.
fn write_amplification(disk: &mut Disk, share: f64, device_writes: u32) -> f64 {
    let exported = disk.exported_pages();
    let pages = (share * f64::from(exported)) as u32;
    let writes = device_writes * exported;
    let (mut state, mut before) = (88_172_645_463_325_252u64, 0);
    for write in 0..writes {
        if write == writes / 4 * 3 {
            before = disk.log().counters().copies;
        }
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let rank = f64::from(pages).powf((state >> 11) as f64 / (1u64 << 53) as f64) as u32;
        // Popular pages lie anywhere.
        disk.write(Lpn(rank.min(pages - 1) * 5003 % exported), &[], Hint::None, 0).unwrap();
    }
    1.0 + (disk.log().counters().copies - before) as f64 / f64::from(writes - writes / 4 * 3)
}

#[test]
fn midas_finds_sizes_of_groups_and_costs_less_than_to_keep_copies_apart() {
    let mut midas = disk("grouped", "midas", 32, 1);
    let wa = write_amplification(&mut midas, 1.0, 20);
    let bounds = midas.log().placement().bounds().unwrap();
    assert!(bounds.streams.len() > 2, "no model was adopted: {bounds:?}");
    let segments = midas.log().segments();
    for (stream, bound) in (0..).zip(&bounds.streams) {
        let Bound::Segments(max) = bound.bound else { panic!("{bounds:?}") };
        let is_here =
            |i: &usize| segments.stream[*i] == stream && bounds.of(stream, segments.opened_sequence[*i]).is_some();
        let count = (0..SEGMENTS as usize).filter(is_here).count();
        // The open one, and those sealed since the last cleaning.
        assert!(count <= max as usize + 3, "stream {stream}: {count} of {max}");
    }
    let apart = write_amplification(&mut disk("cost-benefit:shape=sqrt", "sepgc", 32, 1), 1.0, 20);
    assert!(wa < 0.93 * apart, "{wa} where SepGC has {apart}");
    midas.audit().unwrap();
}

#[test]
fn dogi_learns_lifetimes_and_costs_less_than_to_keep_copies_apart() {
    let mut dogi = disk("grouped", "dogi", 64, 1);
    let wa = write_amplification(&mut dogi, 0.5, 20);
    let bounds = dogi.log().placement().bounds().unwrap();
    assert!(bounds.streams.len() > 1, "no groups are in use: {bounds:?}");
    let apart = write_amplification(&mut disk("cost-benefit:shape=sqrt", "sepgc", 64, 1), 0.5, 20);
    assert!(wa < 0.95 * apart, "{wa} where SepGC has {apart}");
    dogi.audit().unwrap();
}

#[test]
fn the_seed_decides_what_dogi_draws() {
    let copies = |seed| {
        let mut dogi = disk("grouped", "dogi", 16, seed);
        write_amplification(&mut dogi, 1.0, 6);
        dogi.log().counters().copies
    };
    assert_eq!(copies(1), copies(1));
    assert_ne!(copies(1), copies(2));
}
