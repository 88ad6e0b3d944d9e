use crate::client::*;
use margay_flash::{Lpn, ReadStatus};
use margay_format::Plain;
use margay_log::{Content, Hint};
use margay_policy::State;

#[test]
fn a_page_written_is_located_and_read_back() {
    for config in both_ways() {
        let mut disk = Disk::plain(config, 100);
        assert_eq!(disk.read(7), Ok(None));
        let at = disk.write(7);
        assert_eq!(disk.client.places[7], Some(at));
        assert_eq!(disk.log.owner(at), Some(Lpn(7)));
        let mut data = [0; PAGE_BYTES as usize];
        assert_eq!(disk.log.read(at, &mut data), Ok(ReadStatus::Clean));
        assert_eq!(data, page_of(7, 1));
        let counters = disk.log.counters();
        assert_eq!((counters.host_writes, counters.host_reads, counters.copies), (1, 1, 0));
        disk.check();
    }
}

#[test]
fn a_page_written_again_leaves_one_invalid_copy() {
    for config in both_ways() {
        let mut disk = Disk::plain(config, 100);
        let first = disk.write(7);
        let second = disk.write(7);
        assert_ne!(first, second);
        assert_eq!((disk.log.owner(first), disk.log.owner(second)), (None, Some(Lpn(7))));
        assert_eq!(disk.log.segments().total_valid, 1);
        assert_eq!(disk.read(7), Ok(Some(2)));
        disk.check();
    }
}

#[test]
fn a_trimmed_page_is_valid_nowhere() {
    for config in both_ways() {
        let mut disk = Disk::plain(config, 100);
        let at = disk.write(7);
        disk.write(8);
        disk.trim(7);
        assert_eq!(disk.log.owner(at), None);
        assert_eq!((disk.log.segments().total_valid, disk.log.counters().trims), (1, 1));
        disk.check();
    }
}

#[test]
fn the_initial_content_is_no_host_write() {
    for config in both_ways() {
        let mut disk = Disk::plain(config, 100);
        for lpn in 0..100 {
            disk.log.fill(&mut disk.client, Lpn(lpn), Content::Page, &page_of(lpn, 1), Hint::None).unwrap();
            disk.versions[lpn as usize] = Some(1);
        }
        assert_eq!(disk.log.counters().host_writes, 0);
        assert_eq!((disk.log.now().writes, disk.log.now().us), (0, 0));
        disk.check();
    }
}

#[test]
fn the_clock_never_goes_back() {
    let mut disk = Disk::plain(at_once(), 100);
    let mut write = |now_us| {
        disk.log.write(&mut disk.client, Lpn(0), Content::Page, &page_of(0, 1), Hint::None, now_us).unwrap();
        (disk.log.now().us, disk.log.now().writes)
    };
    assert_eq!([write(5), write(3), write(9)], [(5, 1), (5, 2), (9, 3)]);
}

#[test]
fn read_only_data_has_segments_of_its_own() {
    for config in both_ways() {
        let config = margay_log::Config { read_only_stream: true, ..config };
        let policies = policies_for(&config, 200, "greedy", "m1");
        let mut disk: Disk<_> = Disk::new(Plain::new(ram()), config, policies, 200);
        for lpn in 0..200 {
            disk.try_write(lpn, if lpn % 4 == 0 { Hint::ReadOnly } else { Hint::None }).unwrap();
        }
        for lpn in 0..2000 {
            disk.write(lpn * 7 % 200 / 4 * 4 + 1 + lpn % 3);
        }
        assert_eq!((disk.log.counters().misplaced_writes, disk.log.counters().misplaced_copies), (0, 0));
        for (lpn, place) in disk.client.places.iter().enumerate() {
            let stream = disk.log.segments().stream[geometry().segment_of(place.unwrap()).index()];
            assert_eq!(stream, u8::from(lpn % 4 == 0), "page {lpn}");
        }
        assert!(disk.log.counters().erases > 20);
        disk.check();
    }
}

#[test]
fn a_page_of_the_clients_own_is_metadata_and_no_host_write() {
    for config in both_ways() {
        let mut disk = Disk::plain(config, 100);
        disk.write(3);
        disk.log.write_own(&mut disk.client, Lpn(90), &page_of(90, 5)).unwrap();
        disk.versions[90] = Some(5);
        let counters = disk.log.counters();
        assert_eq!((counters.host_writes, counters.metadata_pages), (1, 1));
        // Again: the older copy is superseded as any page is.
        let first = disk.client.places[90].unwrap();
        disk.log.write_own(&mut disk.client, Lpn(90), &page_of(90, 6)).unwrap();
        disk.versions[90] = Some(6);
        assert_eq!(disk.log.owner(first), None);
        disk.check();
    }
}

#[test]
fn a_page_that_is_hard_to_read_is_copied_elsewhere() {
    let mut disk = Disk::plain(paced(), 250);
    disk.fill();
    for lpn in [0, 17, 249] {
        let from = disk.client.places[lpn].unwrap();
        disk.log.rewrite(&mut disk.client, from).unwrap();
        assert_ne!(disk.client.places[lpn], Some(from));
        assert_eq!(disk.log.owner(from), None);
    }
    assert_eq!(disk.log.counters().copies, 3);
    disk.check();
}

#[test]
fn free_and_open_segments_hold_what_the_log_says_is_free() {
    let mut disk = Disk::plain(at_once(), 100);
    let all = u64::from(SEGMENTS * PAGES_PER_SEGMENT);
    assert_eq!(disk.log.free_pages(), all);
    disk.fill();
    assert_eq!(disk.log.free_pages(), all - 100);
    let open: Vec<_> = disk.log.open_segments().collect();
    let [(segment, next)] = open[..] else { panic!("one stream, so one open segment: {open:?}") };
    assert_eq!(disk.log.segments().state[segment.index()], State::Open);
    assert_eq!(geometry().page_in_segment(next), 100 % PAGES_PER_SEGMENT);
    assert_eq!(disk.log.free_list().count() as u32, disk.log.free_segments());
}
