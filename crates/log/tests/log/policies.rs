//! Policies from outside drive the log as those of the tables do.

use crate::client::*;
use margay_flash::{Ppn, SegmentId};
use margay_format::Plain;
use margay_log::{Config, Content, Counters, Policies};
use margay_policy::scan::Scan;
use margay_policy::{Now, PlacementSpec, Placer, Segments, Selection, SelectionSpec, State, Subject};

/// The candidate with the highest number.
#[derive(Debug)]
struct HighestNumber;

impl Selection for HighestNumber {
    fn opened(&mut self, _: &Segments, _: SegmentId) {}
    fn sealed(&mut self, _: &Segments, _: SegmentId) {}
    fn invalidated(&mut self, _: &Segments, _: SegmentId, _: u32) {}
    fn taken(&mut self, _: &Segments, _: SegmentId) {}

    fn select(&mut self, segments: &Segments, _: Now) -> Option<SegmentId> {
        segments.ids().filter(|id| segments.is_candidate(*id)).last()
    }
}

#[test]
fn a_selection_from_outside_names_the_victims() {
    for config in both_ways() {
        let placement = PlacementSpec::known("m1").build(250);
        let policies = Policies { selection: Box::new(HighestNumber), placement };
        let mut disk: Disk<_> = Disk::new(Plain::new(ram()), config, policies, 250);
        disk.fill();
        let mut random = Random(4);
        let mut named = 0;
        for _ in 0..3000 {
            let lpn = random.below(250);
            disk.write(lpn);
            let segments = disk.log.segments();
            let is_free_to_choose = !segments.state.contains(&State::Victim);
            let highest = segments.ids().filter(|id| segments.is_candidate(*id)).last();
            if is_free_to_choose && random.below(10) == 0 {
                let erased = disk.log.clean_step(&mut disk.client, u32::MAX).unwrap();
                assert_eq!(erased, highest.map_or(margay_log::Progress::NothingToClean, margay_log::Progress::Erased));
                named += u32::from(highest.is_some());
            }
        }
        assert!(named > 100, "{named}");
        disk.check();
    }
}

/// A placement from outside, without the help of `WithPages`: even pages in one stream, odd ones in another.
#[derive(Debug, Default)]
struct Parity {
    /// Calls of `write` and of `split`.
    calls: (u64, std::sync::atomic::AtomicU64),
}

impl Placer for Parity {
    fn streams(&self) -> u8 {
        2
    }

    fn opened_at_start(&self) -> u8 {
        1
    }

    fn reserve(&mut self, segments: u32, pages_per_segment: u32) {
        assert_eq!((segments, pages_per_segment), (SEGMENTS, PAGES_PER_SEGMENT));
    }

    fn keeps_pages(&self) -> bool {
        false
    }

    fn sorts(&self) -> bool {
        false
    }

    fn write(&mut self, _: &Segments, _: Now, subject: Subject, _: Option<(SegmentId, Ppn)>) -> u8 {
        self.calls.0 += 1;
        (subject.owner % 2) as u8
    }

    fn split(&self, _: &Segments, _: SegmentId, _: Now, _: Ppn, bits: u64, owner: &dyn Fn(u32) -> u64) -> (u8, u64) {
        self.calls.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let stream = owner(bits.trailing_zeros()) % 2;
        let same = (0..64).filter(|page| bits >> page & 1 == 1 && owner(*page) % 2 == stream);
        (stream as u8, same.fold(0, |all, page| all | 1 << page))
    }

    fn pack(&self) -> u32 {
        0
    }
    fn pack_at(&self, _: Ppn) -> u32 {
        0
    }
    fn heat_kind(&self) -> u8 {
        0
    }
    fn put(&mut self, _: Ppn) {
        panic!("nothing is kept for a page")
    }
    fn trimmed(&mut self, _: Now, _: Ppn) {}
    fn clear(&mut self, _: Ppn, _: u32) {}
    fn moved(&mut self, _: Ppn, _: u64, _: Ppn, _: u32) {}
    fn detach(&mut self, _: &[Ppn]) {}
    fn attach(&mut self, _: usize, _: Ppn) {}
    fn begin_cleaning(&mut self, segments: &Segments, victim: SegmentId, _: Now, _: &[u64]) {
        assert_eq!(segments.state[victim.index()], State::Victim);
    }
    fn sort(&self, _: Now, _: &mut [u32]) {}
    fn unpack(&mut self, _: Ppn, _: u32, _: Now, _: Now) {}
    fn recognize(&mut self, _: Ppn, _: Content) {}
    fn encode(&self, _: Ppn, _: Now) -> (u64, u32) {
        (0, 0)
    }
    fn decode(&mut self, _: Ppn, _: (u64, u32), _: Now) {}
    fn memory_bytes(&self) -> usize {
        0
    }
    fn file_created(&mut self, _: u32) {}
    fn file_modified(&mut self, _: u32) {}
    fn remember_file(&self, _: u32) -> u8 {
        0
    }
    fn recall_file(&mut self, _: u32, _: u8) {}
    fn class_of_file(&self, _: u32) -> Option<&'static str> {
        None
    }
}

#[test]
fn a_placement_from_outside_separates_what_is_written_and_what_is_copied() {
    for config in both_ways() {
        let selection = SelectionSpec::known("greedy").build(sizing(&config, 200));
        let policies = Policies { selection, placement: Box::new(Parity::default()) };
        let mut disk: Disk<_> = Disk::new(Plain::new(ram()), config, policies, 200);
        assert_eq!(disk.log.open_segments().count(), 1, "the other stream is opened when it is used");
        disk.fill();
        disk.overwrite(4000, 6);
        let counters = disk.log.counters();
        assert!(counters.copies > 500, "{counters:?}");
        assert_eq!((counters.misplaced_copies, counters.misplaced_writes), (0, 0));
        for (lpn, place) in disk.client.places.iter().enumerate() {
            let stream = disk.log.segments().stream[geometry().segment_of(place.unwrap()).index()];
            assert_eq!(usize::from(stream), lpn % 2, "page {lpn}");
        }
        disk.check();
    }
}

#[test]
fn a_full_scan_in_place_of_a_built_in_selection_gives_the_identical_run() {
    /// What it cost, how worn the segments are, and where the pages came to lie.
    fn run(config: Config, policies: Policies) -> (Counters, Vec<u32>, Vec<Option<Ppn>>) {
        let mut disk: Disk<_> = Disk::new(Plain::new(ram()), config, policies, 230);
        disk.fill();
        disk.overwrite(2500, 9);
        (0..50).for_each(|lpn| disk.trim(lpn * 3));
        for lpn in 0..50 {
            disk.write(lpn * 3);
        }
        disk.overwrite(1000, 10);
        disk.check();
        (disk.log.counters().clone(), disk.log.segments().erases.clone(), disk.client.places)
    }
    let with_scan = SelectionSpec::all().filter(|selection| selection.row().build.scan.is_some());
    let mut compared = 0;
    for selection in with_scan {
        for placement in ["m1", "m3", "m6"].map(PlacementSpec::known) {
            for config in both_ways() {
                let sizing = sizing(&config, 230);
                let built_in = Policies::new(selection, placement, sizing);
                let scan = Box::new(Scan::new(sizing, selection).unwrap());
                let scan = Policies { selection: scan, ..Policies::new(selection, placement, sizing) };
                let (built_in, scan) = (run(config, built_in), run(config, scan));
                assert!(built_in.0.copies > 500, "{:?}", built_in.0);
                assert_eq!(built_in, scan, "{selection} + {placement}, {config:?}");
                compared += 1;
            }
        }
    }
    assert!(compared >= 24, "greedy, cost-benefit, CAT and FIFO have a scan: {compared} runs");
}
