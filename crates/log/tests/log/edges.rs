//! The last numbers that flash can keep: 2^48 - 1 (FORMAT.md, "Edges").

use crate::client::*;
use margay_flash::{FlashError, Lpn, Ppn, SegmentId};
use margay_format::{Decoded, Formatted, Tag, U48_MAX};
use margay_log::{Client, Config, Content, Hint, Log, LogError, Restored, RestoredSegment, ValidPages};
use margay_policy::{Now, State};

type Device = Formatted<Ram>;

const PAGES: u32 = 200;

/// A disk that has programmed so many pages in its life and holds none.
fn used(seq: u64, now: Now, erases: u32) -> Disk<Device> {
    let (device, config) = formatted(ram(), paced(), PAGES);
    let policies = || policies_for(&config, PAGES, "greedy", "m1");
    let segment = RestoredSegment {
        state: State::Free,
        needs_erase: true,
        erases,
        stream: 0,
        opened_us: 0,
        opened_writes: 0,
        opened_sequence: 0,
        next: Ppn(0),
    };
    let mut segments = vec![segment; SEGMENTS as usize];
    segments[0] = RestoredSegment { state: State::Reserved, erases: 0, ..segment };
    let pages = ValidPages { places: Vec::new(), kept: Vec::new(), counts: Vec::new() };
    let restored = Restored { segments, pages, now, seq, free: Vec::new(), retired: Vec::new() };
    let log = Log::restore(device, config, policies(), PAGES, &restored).unwrap();
    let (fresh, _) = formatted(ram(), paced(), PAGES);
    let mut disk = Disk::new(fresh, config, policies(), PAGES);
    disk.log = log;
    disk
}

fn tag(disk: &mut Disk<Device>, at: Ppn) -> Tag {
    match disk.log.device_mut().read_tagged(at, &mut []).unwrap().0 {
        Decoded::Tag(tag) => tag,
        other => panic!("page {at}: {other:?}"),
    }
}

fn is_spent(result: Result<impl Sized, LogError>) -> bool {
    matches!(result, Err(LogError::Flash(FlashError::NumbersSpent { .. })))
}

#[test]
fn the_last_sequence_number_is_used_and_then_the_device_can_only_be_read() {
    let mut disk = used(U48_MAX - 3, Now::default(), 0);
    for lpn in 0..3 {
        let at = disk.write(lpn);
        assert_eq!(tag(&mut disk, at).page.seq, U48_MAX - 2 + u64::from(lpn));
    }
    for _ in 0..10 {
        let result = disk.try_write(1, Hint::None);
        assert!(is_spent(result), "{result:?}");
    }
    let error = disk.try_write(1, Hint::None).unwrap_err().to_string();
    assert!(error.contains("2^48 - 1 sequence numbers") && error.contains("format it anew"), "{error}");
    assert!(is_spent(disk.log.write_own(&mut disk.client, Lpn(3), &page_of(3, 1))));
    let at = disk.client.places[0].unwrap();
    assert!(is_spent(disk.log.rewrite(&mut disk.client, at)));
    assert_eq!(disk.client.places[0], Some(at));
    for lpn in 0..3 {
        assert_eq!(disk.read(lpn), Ok(Some(u64::from(lpn) + 1)));
    }
}

#[test]
fn nothing_is_erased_for_pages_that_no_number_is_left_for() {
    // Every page twice, so that each victim has valid pages, and then the numbers end.
    let writes = 350;
    let mut disk = used(U48_MAX - writes, Now::default(), 0);
    let mut random = Random(3);
    let error = (0..writes + 1).find_map(|_| {
        let lpn = random.below(PAGES);
        disk.try_write(lpn, Hint::None).err()
    });
    assert!(is_spent(error.map_or(Ok(()), Err)));
    let erases = disk.log.counters().erases;
    for _ in 0..20 {
        let result = disk.log.clean_step(&mut disk.client, u32::MAX);
        assert!(is_spent(result), "{result:?}");
    }
    let asked = disk.log.segments().ids().find(|id| disk.log.segments().state[id.index()] == State::Sealed).unwrap();
    assert!(is_spent(disk.log.clean_segment(&mut disk.client, asked)));
    assert_eq!(disk.log.counters().erases, erases);
    disk.check();
}

#[test]
fn a_later_page_is_newer_by_its_number_until_the_numbers_end() {
    let mut disk = used(U48_MAX - 5000, Now::default(), 0);
    let mut newest = vec![0; PAGES as usize];
    let mut random = Random(1);
    let error = (0..6000).find_map(|_| {
        let lpn = random.skewed(PAGES);
        match disk.try_write(lpn, Hint::None) {
            Ok(_) => {
                let at = disk.client.places[lpn as usize].unwrap();
                let seq = tag(&mut disk, at).page.seq;
                assert!(seq > newest[lpn as usize], "{seq}");
                newest[lpn as usize] = seq;
                None
            }
            Err(error) => Some(error),
        }
    });
    assert!(is_spent(error.map_or(Ok(()), Err)));
    assert!(disk.log.counters().copies > 500, "{:?}", disk.log.counters());
    disk.check();
}

#[test]
fn the_number_of_host_writes_ends_with_an_error_too() {
    let mut disk = used(1000, Now { us: 0, writes: U48_MAX - 2 }, 0);
    disk.write(0);
    let at = disk.write(1);
    assert_eq!(tag(&mut disk, at).page.version, U48_MAX);
    assert!(is_spent(disk.try_write(2, Hint::None)));
    disk.check();
}

#[test]
fn time_stands_still_at_its_end_and_never_goes_back() {
    let mut disk = used(1000, Now { us: U48_MAX - 1, writes: 0 }, 0);
    let mut write = |now_us| {
        let page = page_of(0, now_us);
        disk.log.write(&mut disk.client, Lpn(0), Content::Page, &page, Hint::None, now_us).unwrap();
        let at = disk.client.locate(Lpn(0)).unwrap();
        (disk.log.now().us, tag(&mut disk, at).page.time_us)
    };
    let times = [0, U48_MAX, U48_MAX + 1, u64::MAX].map(&mut write);
    assert_eq!(times.map(|(now, _)| now), [U48_MAX - 1, U48_MAX, U48_MAX, U48_MAX]);
    assert_eq!(times.map(|(_, on_flash)| on_flash), [U48_MAX - 1, U48_MAX, U48_MAX, U48_MAX]);
}

#[test]
fn the_time_of_a_measurement_has_no_end() {
    let mut disk = Disk::plain(at_once(), 100);
    disk.log.write(&mut disk.client, Lpn(0), Content::Page, &page_of(0, 1), Hint::None, u64::MAX).unwrap();
    assert_eq!(disk.log.now().us, u64::MAX);
}

#[test]
fn erase_counts_stay_at_their_end() {
    let mut disk = used(1000, Now::default(), u32::MAX);
    disk.fill();
    disk.overwrite(2000, 5);
    assert!(disk.log.counters().erases > 50);
    assert!(disk.log.segments().erases[1..].iter().all(|erases| *erases == u32::MAX));
    let (segment, next) = disk.log.open_segments().next().unwrap();
    assert!(segment != SegmentId(0) && next.0 > 0);
    let at = disk.client.places[0].unwrap();
    assert_eq!(tag(&mut disk, at).segment.erases, u32::MAX);
    disk.check();
}

#[test]
fn a_configuration_without_numbers_on_flash_has_no_such_end() {
    let config = Config::default();
    let mut disk = Disk::plain(config, 100);
    disk.fill();
    assert_eq!(disk.log.seq(), 0, "nothing is numbered where nothing is kept");
}
