//! Programs, erases and reads that fail.

use crate::client::*;
use margay_flash::{Flash, FlashError, Geometry, Lpn, Ppn, ReadStatus, SegmentId};
use margay_format::{Formatted, Store};
use margay_log::{Config, Hint, LogError, Progress};
use margay_media::{Faults, ReadFault};
use margay_policy::State;
use std::cell::RefCell;
use std::rc::Rc;

type Device = Formatted<Watch>;

/// An erase of a segment with pages that the client still maps to it: they are in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InPlace {
    segment: SegmentId,
    /// Reads of the device before it.
    reads: u64,
    lpns: Vec<u32>,
    /// Whether a sync came after it.
    is_synced: bool,
}

/// What a layer knows of what pages say: by page, the owner in its data.
#[derive(Default)]
struct Seen {
    owners: std::collections::HashMap<u32, u32>,
    /// By owner, its latest page.
    latest: std::collections::HashMap<u32, u32>,
    in_place: Vec<InPlace>,
}

/// A layer that notes erases in place.
struct Watch {
    device: Faults<Ram>,
    seen: Rc<RefCell<Seen>>,
    /// That of a device that is cached.
    mark: Option<u64>,
}

impl Flash for Watch {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.device.read(ppn, data, spare)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        self.device.program(ppn, data, spare)?;
        let owner = u32::from_le_bytes(data[..4].try_into().unwrap());
        let mut seen = self.seen.borrow_mut();
        seen.owners.insert(ppn.0, owner);
        seen.latest.insert(owner, ppn.0);
        Ok(())
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let reads = self.device.reads();
        self.device.erase(segment)?;
        let mut seen = self.seen.borrow_mut();
        let first = self.device.geometry().first_page(segment).0;
        let pages = first..first + self.device.geometry().pages_per_segment();
        let owners = pages.filter_map(|page| seen.owners.remove(&page).map(|owner| (page, owner)));
        let owners: Vec<_> = owners.collect();
        let lpns: Vec<u32> = owners
            .iter()
            .filter(|(page, owner)| seen.latest.get(owner) == Some(page))
            .map(|(_, owner)| *owner)
            .collect();
        if !lpns.is_empty() {
            seen.in_place.push(InPlace { segment, reads, lpns, is_synced: false });
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.seen.borrow_mut().in_place.iter_mut().for_each(|in_place| in_place.is_synced = true);
        self.device.sync()
    }

    fn is_cached(&self) -> bool {
        self.mark.is_some()
    }

    fn void_page(&mut self, _: Ppn) -> Result<(), FlashError> {
        Ok(())
    }

    fn mark(&mut self) -> Result<Option<u64>, FlashError> {
        Ok(self.mark)
    }

    fn set_mark(&mut self, mark: Option<u64>) -> Result<(), FlashError> {
        self.mark = mark;
        Ok(())
    }
}

fn config() -> Config {
    let device = formatted(ram(), paced(), 300).1;
    Config { max_pages_per_write: 16, ..device }
}

/// Of the writes of these tests; with it segments are erased in place.
const SEED: u64 = 1;

/// As many pages as the device can hold when one of its segments is bad.
fn limit() -> u32 {
    config().limit_pages(&geometry(), 1).unwrap() - PAGES_PER_SEGMENT
}

fn disk_of(pages: u32, placement: &str) -> Disk<Device> {
    disk_on(pages, placement, None)
}

fn disk_on(pages: u32, placement: &str, mark: Option<u64>) -> Disk<Device> {
    let device = Watch { device: Faults::new(ram(), 4), seen: Rc::default(), mark };
    let (device, _) = formatted(device, config(), pages);
    Disk::new(device, config(), policies_for(&config(), pages, "greedy", placement), pages)
}

fn faults(disk: &mut Disk<Device>) -> &mut Faults<Ram> {
    &mut disk.log.device_mut().device_mut().device
}

/// Fills a disk and overwrites pages until `writes` were tried; the errors on the way.
fn run(disk: &mut Disk<Device>, writes: u32) -> Vec<LogError> {
    let mut random = Random(SEED);
    let mut errors = Vec::new();
    for step in 0..writes {
        let lpn = if step < disk.pages() { step } else { random.skewed(disk.pages()) };
        // A write that failed is tried once more, as a host does.
        for _ in 0..2 {
            match disk.try_write(lpn, Hint::None) {
                Ok(_) => break,
                Err(error) => errors.push(error),
            }
        }
    }
    errors
}

#[test]
fn failed_programs_retire_their_segments_and_lose_nothing() {
    for placement in ["m1", "m4"] {
        for at in (0..900).step_by(37) {
            let mut disk = disk_of(200, placement);
            faults(&mut disk).fail_program(at);
            faults(&mut disk).fail_program(at + 3);
            assert_eq!(run(&mut disk, 1500), [], "program {at}");
            let retired = disk.log.retired_segments().len();
            assert!((1..=2).contains(&retired) && disk.log.counters().retired_segments == retired as u64);
            for segment in disk.log.retired_segments().to_vec() {
                assert_eq!(disk.log.segments().state[segment.index()], State::Bad);
                assert!(disk.client.places.iter().flatten().all(|page| geometry().segment_of(*page) != segment));
            }
            disk.check();
        }
    }
}

#[test]
fn failed_erases_retire_their_segments_and_lose_nothing() {
    for at in 0..40 {
        let mut disk = disk_of(200, "m1");
        faults(&mut disk).fail_erase(at);
        assert_eq!(run(&mut disk, 1500), [], "erase {at}");
        assert_eq!(disk.log.retired_segments().len(), 1, "erase {at}");
        disk.check();
    }
}

#[test]
fn a_device_that_wears_out_refuses_to_write_and_holds_what_it_has() {
    let mut disk = disk_of(limit(), "m1");
    faults(&mut disk).wear_out_after(15);
    let mut random = Random(1);
    let error = (0..100_000).find_map(|_| {
        let lpn = random.below(disk.pages());
        disk.try_write(lpn, Hint::None).err()
    });
    assert!(matches!(error, Some(LogError::NoSpace { .. })), "{error:?}");
    assert!(!disk.log.retired_segments().is_empty());
    disk.check();
}

#[test]
fn a_read_that_fails_once_anywhere_loses_nothing_and_stops_nothing() {
    for placement in ["m1", "m3", "m4"] {
        let mut whole = disk_of(limit() - 14, placement);
        let before = faults(&mut whole).reads();
        assert_eq!(run(&mut whole, 900), []);
        let reads = faults(&mut whole).reads() - before;
        assert!(reads > 800, "{reads}");
        for at in (0..reads).step_by(41) {
            for fault in [ReadFault::Io, ReadFault::Uncorrectable] {
                let mut disk = disk_of(limit() - 14, placement);
                faults(&mut disk).fail_read_once(at, fault);
                let errors = run(&mut disk, 900);
                match fault {
                    ReadFault::Io => assert_eq!(errors, [io()], "{placement}, read {at}"),
                    ReadFault::Uncorrectable => assert_eq!(errors, [], "{placement}, read {at}: it is tried again"),
                }
                assert_eq!(disk.log.counters().lost_pages, 0, "{placement}, read {at}, {fault:?}");
                disk.check();
            }
        }
    }
}

/// Lets each program of a full disk fail, one run for each, until a segment with a few valid pages is erased in place.
/// Says which program it was, and what was erased.
fn find_in_place(placement: &str) -> (u64, InPlace) {
    for at in u64::from(limit())..700 {
        let mut disk = disk_of(limit(), placement);
        faults(&mut disk).fail_program(at);
        run(&mut disk, 500);
        let seen = Rc::clone(&disk.log.device().device().seen);
        if let Some(in_place) = seen.borrow().in_place.first().filter(|in_place| in_place.lpns.len() > 2) {
            disk.check();
            return (at, in_place.clone());
        }
    }
    panic!("{placement}: no segment was erased in place, so nothing is tested");
}

#[test]
fn what_is_written_again_in_place_is_durable_before_the_write_returns() {
    let mut found = 0;
    for at in u64::from(limit())..400 {
        let mut disk = disk_on(limit(), "m1", Some(0));
        faults(&mut disk).fail_program(at);
        let mut random = Random(SEED);
        for step in 0..500 {
            let lpn = if step < disk.pages() { step } else { random.skewed(disk.pages()) };
            // One that found no room is tried once more.
            let _ = disk.try_write(lpn, Hint::None).or_else(|_| disk.try_write(lpn, Hint::None));
            let in_place = &disk.log.device().device().seen.borrow().in_place;
            assert!(in_place.iter().all(|in_place| in_place.is_synced), "program {at}, write {step}");
            found += in_place.len();
        }
    }
    assert!(found > 0, "no segment was erased in place, so nothing is tested");
}

#[test]
fn a_read_that_fails_before_an_erase_in_place_loses_nothing() {
    for placement in ["m1", "m3"] {
        let (at, in_place) = find_in_place(placement);
        for before in 1..=in_place.lpns.len() as u64 {
            for fault in [ReadFault::Io, ReadFault::Uncorrectable] {
                let mut disk = disk_of(limit(), placement);
                faults(&mut disk).fail_program(at);
                let read = in_place.reads - before - faults(&mut disk).reads();
                faults(&mut disk).fail_read_once(read, fault);
                let errors = run(&mut disk, 500);
                let expected: &[LogError] = if fault == ReadFault::Io { &[io()] } else { &[] };
                assert_eq!(errors, expected, "{placement}, {before} reads before the erase, {fault:?}");
                assert_eq!(disk.log.counters().lost_pages, 0);
                let seen = Rc::clone(&disk.log.device().device().seen);
                assert_eq!(seen.borrow().in_place[0].segment, in_place.segment, "it was erased the second time");
                disk.check();
            }
        }
    }
}

#[test]
fn an_error_of_the_host_before_an_erase_in_place_leaves_the_log_as_it_was() {
    let (at, in_place) = find_in_place("m1");
    let mut disk = disk_of(limit(), "m1");
    faults(&mut disk).fail_program(at);
    let read = in_place.reads - 1 - faults(&mut disk).reads();
    faults(&mut disk).fail_read_once(read, ReadFault::Io);
    let mut random = Random(SEED);
    let failed = (0..500).find(|step| {
        let lpn = if *step < disk.pages() { *step } else { random.skewed(disk.pages()) };
        disk.try_write(lpn, Hint::None) == Err(io())
    });
    assert!(failed.is_some());
    let state = &disk.log.segments().state;
    assert!(matches!(state[in_place.segment.index()], State::Victim | State::Sealed), "{state:?}");
    let seen = Rc::clone(&disk.log.device().device().seen);
    assert_eq!(seen.borrow().in_place, [], "nothing was erased");
    for lpn in &in_place.lpns {
        assert_eq!(geometry().segment_of(disk.client.places[*lpn as usize].unwrap()), in_place.segment);
    }
    disk.check();
}

#[test]
fn a_page_that_the_chip_cannot_read_is_lost_and_says_so_and_no_other_is() {
    let (at, in_place) = find_in_place("m1");
    let mut disk = disk_of(limit(), "m1");
    faults(&mut disk).fail_program(at);
    let victim = in_place.lpns[in_place.lpns.len() / 2];
    let mut random = Random(SEED);
    let mut step = 0;
    // Until the erase: then the page's last place is in the segment.
    while disk.log.device().device().seen.borrow().in_place.is_empty() {
        let place = disk.client.places[victim as usize].map(|page| geometry().segment_of(page));
        if let Some(page) = disk.client.places[victim as usize].filter(|_| place == Some(in_place.segment)) {
            faults(&mut disk).flip_bits(page, 5);
        }
        let lpn = if step < disk.pages() { step } else { random.skewed(disk.pages()) };
        disk.try_write(lpn, Hint::None).unwrap();
        step += 1;
        assert!(step < 500);
    }
    disk.audit();
    assert!(disk.log.counters().lost_pages > 0);
    for lpn in 0..disk.pages() {
        match disk.read(lpn) {
            Err(LogError::Flash(FlashError::Lost { .. })) => assert_eq!(lpn, victim),
            read => assert_eq!(read, Ok(disk.versions[lpn as usize]), "page {lpn}"),
        }
    }
    assert!(disk.read(victim).is_err());
    // A lost page is whole again once it is written.
    disk.write(victim);
    disk.check();
}

#[test]
fn a_lost_page_stays_lost_when_it_is_copied() {
    let mut disk = disk_of(200, "m1");
    disk.fill();
    let page = disk.client.places[20].unwrap();
    faults(&mut disk).flip_bits(page, 5);
    for _ in 0..2 {
        let segment = geometry().segment_of(disk.client.places[20].unwrap());
        while geometry().segment_of(disk.log.open_segments().next().unwrap().1) == segment {
            disk.write(100);
        }
        assert_eq!(disk.log.clean_segment(&mut disk.client, segment), Ok(true));
        let page = disk.client.places[20].unwrap();
        assert_eq!(disk.read(20), Err(LogError::Flash(FlashError::Lost { ppn: page })));
    }
    assert_eq!(disk.log.counters().lost_pages, 2, "counted at each copy");
    disk.audit();
}

/// A device whose erases fail once for a reason of the host.
struct Failing {
    store: Formatted<Ram>,
    fails: bool,
}

impl Store for Failing {
    const KEEPS_INFO: bool = true;

    fn geometry(&self) -> &Geometry {
        self.store.geometry()
    }
    fn begin(&mut self, segment: SegmentId, info: margay_format::SegmentInfo) -> Result<(), FlashError> {
        self.store.begin(segment, info)
    }
    fn program(&mut self, ppn: Ppn, data: &[u8], page: margay_format::PageInfo) -> Result<(), FlashError> {
        self.store.program(ppn, data, page)
    }
    fn copy(&mut self, from: Ppn, to: Ppn, owner: u64, seq: u64) -> Result<margay_format::Copied, FlashError> {
        self.store.copy(from, to, owner, seq)
    }
    fn finish(&mut self, segment: SegmentId, next: Ppn) -> Result<(), FlashError> {
        self.store.finish(segment, next)
    }
    fn read(&mut self, ppn: Ppn, owner: u64, data: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.store.read(ppn, owner, data)
    }
    fn erase(&mut self, segment: SegmentId, info: margay_format::SegmentInfo) -> Result<(), FlashError> {
        if core::mem::take(&mut self.fails) {
            return Err(FlashError::Io { code: 5 });
        }
        self.store.erase(segment, info)
    }
    fn sync(&mut self) -> Result<(), FlashError> {
        self.store.sync()
    }
}

#[test]
fn a_victim_whose_erase_failed_for_the_host_is_free_and_erased_before_use() {
    let (store, config) = formatted(ram(), config(), 200);
    let policies = policies_for(&config, 200, "greedy", "m1");
    let mut disk: Disk<_> = Disk::new(Failing { store, fails: false }, config, policies, 200);
    disk.fill();
    for lpn in 0..15 {
        disk.write(lpn);
    }
    let victim = geometry().segment_of(disk.client.places[15].unwrap());
    disk.log.device_mut().fails = true;
    assert_eq!(disk.log.clean_step(&mut disk.client, u32::MAX), Ok(Progress::Erased(victim)));
    assert_eq!(disk.log.segments().state[victim.index()], State::Free);
    assert!(disk.log.needs_erase(victim));
    assert_eq!((disk.log.counters().erases, disk.log.segments().erases[victim.index()]), (0, 0));
    assert_eq!(disk.log.owner(Ppn(geometry().first_page(victim).0)), None::<Lpn>);
    disk.check();
    let mut lpn = 0;
    while disk.log.segments().state[victim.index()] == State::Free {
        disk.write(lpn % 200);
        lpn += 1;
    }
    assert_eq!(disk.log.segments().erases[victim.index()], 1);
    assert!(!disk.log.needs_erase(victim));
    disk.check();
}
