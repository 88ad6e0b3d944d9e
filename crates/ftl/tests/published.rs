//! Placements against behaviour that was published for them, on small devices and workloads made for it.

use margay_flash::{Geometry, Lpn};
use margay_format::Plain;
use margay_ftl::Ftl;
use margay_log::{Config, Hint, Policies};
use margay_media::NullFlash;
use margay_policy::{PageSums, PlacementSpec, SelectionSpec, Sizing};

const SEGMENTS: u32 = 256;
const PAGES_PER_SEGMENT: u32 = 64;
/// 12 % of over-provisioning.
const EXPORTED: u32 = SEGMENTS * PAGES_PER_SEGMENT * 100 / 112;

type Disk = Ftl<Plain<NullFlash>>;

fn disk(selection: &str, placement: &str) -> Disk {
    let sizing = Sizing { segments: SEGMENTS, data_pages: PAGES_PER_SEGMENT, exported_pages: EXPORTED, seed: 1 };
    let policies = Policies::new(SelectionSpec::known(selection), PlacementSpec::known(placement), sizing);
    let device = Plain::new(NullFlash::new(Geometry::new(SEGMENTS, PAGES_PER_SEGMENT, 4096).unwrap()));
    let mut disk = Ftl::new(device, Config::default(), policies, EXPORTED, &[]).unwrap();
    (0..EXPORTED).for_each(|lpn| disk.fill(Lpn(lpn), &[], Hint::None).unwrap());
    disk
}

/// Requests, each the first page and the number of pages, of a generator that draws numbers below another.
type Requests = fn(&mut dyn FnMut(u32) -> u32) -> (u32, u32);

/// Write amplification over the last four of eight device writes.
fn wa(selection: &str, placement: &str, requests: Requests) -> f64 {
    let mut disk = disk(selection, placement);
    let mut state = 1u64;
    let mut draw = |below: u32| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (((state >> 32) * u64::from(below)) >> 32) as u32
    };
    let (mut written, mut us) = (0, 0);
    while written < 8 * EXPORTED {
        let (first, pages) = requests(&mut draw);
        us += 1;
        for lpn in first..first + pages {
            disk.write(Lpn(lpn % EXPORTED), &[], Hint::None, us).unwrap();
            written += 1;
            if written == 4 * EXPORTED {
                disk.reset_counters();
            }
        }
    }
    let counters = disk.log().counters();
    1.0 + counters.copies as f64 / counters.host_writes as f64
}

/// 90 % of the writes go to a tenth of the pages, which lie at random.
fn hot_and_cold(draw: &mut dyn FnMut(u32) -> u32) -> (u32, u32) {
    let hot = EXPORTED / 10;
    let page = if draw(10) < 9 { draw(hot) } else { hot + draw(EXPORTED - hot) };
    // A prime, so that every page has a place of its own.
    ((u64::from(page) * 7_919 % u64::from(EXPORTED)) as u32, 1)
}

/// The same, with the hot pages in a row, in requests of four pages.
fn hot_extent(draw: &mut dyn FnMut(u32) -> u32) -> (u32, u32) {
    let hot = EXPORTED / 40;
    let at = if draw(10) < 9 { 2000 + draw(hot) } else { draw(EXPORTED / 4) };
    (at * 4, 4)
}

/// Rank 1 / x of Zipf's law with exponent 1, at random places.
fn zipf(draw: &mut dyn FnMut(u32) -> u32) -> (u32, u32) {
    let uniform = f64::from(draw(u32::MAX)) / f64::from(u32::MAX);
    let rank = (f64::from(EXPORTED).powf(uniform) as u32 - 1).min(EXPORTED - 1);
    ((u64::from(rank) * 7_919 % u64::from(EXPORTED)) as u32, 1)
}

/// The first placement costs less than the share `ratio` of what the other one costs.
#[track_caller]
fn costs_less(selection: &str, placement: &str, ratio: f64, other: &str, requests: Requests) {
    let (own, others) = (wa(selection, placement, requests), wa(selection, other, requests));
    assert!(own < ratio * others, "{selection}: {placement} {own:.3}, {other} {others:.3}");
}

#[test]
fn sfs_separates_zipf_better_than_copies_apart() {
    costs_less("greedy", "sfs", 0.9, "sepgc", zipf);
    costs_less("cost-benefit:shape=sqrt", "sfs", 0.9, "sepgc", zipf);
}

#[test]
fn multilog_separates_zipf_better_than_copies_apart() {
    costs_less("greedy", "multilog", 0.95, "sepgc", zipf);
}

#[test]
fn the_selection_of_multilog_gives_separated_data_the_room_that_it_is_worth() {
    let (multilog, greedy) = (wa("multilog", "dac", hot_and_cold), wa("greedy", "dac", hot_and_cold));
    assert!(multilog < 0.6 * greedy, "multilog {multilog:.3}, greedy {greedy:.3}");
    // margay model separated-hot-cold spare=0.107 r=0.9 f=0.1
    let separated_pools = 2.221;
    assert!(multilog < 1.2 * separated_pools, "{multilog:.3}");
}

#[test]
fn eti_separates_hot_extents_better_than_copies_apart() {
    costs_less("greedy", "eti", 0.96, "sepgc", hot_extent);
    costs_less("cost-benefit:shape=sqrt", "eti", 0.95, "sepgc", hot_extent);
}

#[test]
fn fadac_separates_zipf_better_than_copies_apart() {
    costs_less("greedy", "fadac", 0.85, "sepgc", zipf);
    costs_less("cost-benefit:shape=sqrt", "fadac", 0.9, "sepgc", zipf);
}

#[test]
fn autostream_costs_less_than_one_stream() {
    for placement in ["mq", "sfr"] {
        costs_less("greedy", placement, 0.95, "m1", hot_extent);
        costs_less("cost-benefit:shape=sqrt", placement, 0.7, "m1", hot_extent);
    }
}

#[test]
fn warcip_separates_hot_from_cold_better_than_copies_apart_and_far_better_than_one_stream() {
    costs_less("cost-benefit:shape=sqrt", "warcip", 1.0, "sepgc", hot_and_cold);
    costs_less("cost-benefit:shape=sqrt", "warcip", 0.65, "m1", hot_and_cold);
}

/// The account that selections see, against the pages that it stands for.
#[test]
fn sums_of_segments_are_those_of_their_valid_pages() {
    let mut disk = disk("cost-hotness", "sfs");
    let mut state = 1u64;
    for step in 0..3 * EXPORTED {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let page = (state >> 40) as u32 % EXPORTED;
        let lpn = Lpn(if step % 3 == 0 { page / 10 } else { page });
        match step % 17 {
            0 => disk.trim(lpn, 0).unwrap(),
            _ => disk.write(lpn, &[], Hint::None, 0).unwrap(),
        }
    }
    // Chooses a victim and copies nothing.
    disk.clean_step(0).unwrap();
    let mut sums = vec![PageSums::default(); SEGMENTS as usize];
    for ppn in (0..EXPORTED).filter_map(|lpn| disk.place(Lpn(lpn))) {
        let (written, updates) = disk.log().encode_page(ppn);
        sums[(ppn.0 / PAGES_PER_SEGMENT) as usize].add(PageSums { pages: 1, writes: u64::from(updates) + 1, written });
    }
    assert!(sums == disk.log().segments().sums);
}
