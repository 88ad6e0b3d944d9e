use crate::client::*;
use margay_flash::{Flash, FlashError, Geometry, Lpn, Ppn, ReadStatus, SegmentId};
use margay_format::Plain;
use margay_log::{Config, Progress};
use margay_policy::State;
use std::cell::Cell;
use std::rc::Rc;

/// As full as the device can be.
fn limit(config: &Config) -> u32 {
    config.limit_pages(&geometry(), 1).unwrap()
}

#[test]
fn cleaning_keeps_every_valid_page() {
    for config in both_ways() {
        for pages in [100, 240, limit(&config)] {
            let mut disk = Disk::plain(config, pages);
            disk.fill();
            for round in 0..20 {
                disk.overwrite(pages, round);
                disk.audit();
            }
            disk.check();
            let counters = disk.log.counters();
            assert_eq!(counters.host_writes, u64::from(pages) * 21);
            assert!(counters.erases > 100 && counters.lost_pages == 0, "{counters:?}");
            assert_eq!(counters.victims.iter().sum::<u64>(), counters.cleanings + u64::from(is_at_work(&disk)));
        }
    }
}

/// Whether a victim is half copied.
fn is_at_work(disk: &Disk<Plain<Ram>>) -> bool {
    disk.log.segments().state.contains(&State::Victim)
}

#[test]
fn trimmed_pages_are_not_copied() {
    for config in both_ways() {
        let mut disk = Disk::plain(config, 200);
        disk.fill();
        (0..200).for_each(|lpn| disk.trim(lpn));
        while disk.log.clean_step(&mut disk.client, 1).unwrap() != Progress::NothingToClean {}
        assert_eq!(disk.log.counters().copies, 0);
        assert_eq!(disk.log.counters().erases, u64::from(200 / PAGES_PER_SEGMENT));
        disk.check();
    }
}

#[test]
fn bounded_steps_never_leave_the_device_without_a_place_to_go_on() {
    for config in both_ways() {
        let mut disk = Disk::plain(config, limit(&config));
        disk.fill();
        let mut random = Random(5);
        let mut copying = 0;
        for _ in 0..6000 {
            let lpn = random.skewed(disk.pages());
            disk.write(lpn);
            let budget = random.below(4);
            let before = disk.log.counters().copies;
            let progress = disk.log.clean_step(&mut disk.client, budget).unwrap();
            if progress == Progress::Copying {
                copying += 1;
                assert!(disk.log.counters().copies - before <= u64::from(budget), "a bounded step keeps its bound");
                let segments = disk.log.segments();
                let victim = segments.ids().find(|id| segments.state[id.index()] == State::Victim).unwrap();
                let room: u32 = disk.log.open_segments().map(|(id, next)| end(id).0 - next.0).sum();
                let may_wait = config.is_paced() && room >= segments.valid[victim.index()] + 2;
                assert!(disk.log.free_segments() > 0 || may_wait, "{room} pages of room");
            }
        }
        assert!(copying > 500, "{copying} steps were cut short");
        disk.check();
    }
}

fn end(segment: SegmentId) -> Ppn {
    Ppn(geometry().first_page(segment).0 + PAGES_PER_SEGMENT)
}

#[test]
fn with_one_stream_no_write_programs_more_than_the_bound() {
    for (percent, max_pages_per_write) in [(60, 4), (75, 8), (85, 16)] {
        let config = Config { max_pages_per_write, ..paced() };
        let pages = SEGMENTS * PAGES_PER_SEGMENT * percent / 100;
        let mut disk = Disk::plain(config, pages);
        disk.fill();
        disk.overwrite(pages * 10, percent.into());
        // In order, with a stride, and the same page again and again.
        for step in 0..pages * 3 {
            disk.write(step % pages);
            disk.write(step * 7 % pages);
            disk.write(0);
        }
        let counters = disk.log.counters();
        let worst = counters.max_pages_of_a_write;
        assert!((2..=u64::from(max_pages_per_write)).contains(&worst), "{percent} %: {worst} pages");
        disk.check();
    }
}

#[test]
fn a_segment_is_cleaned_when_the_client_asks_for_it() {
    for config in both_ways() {
        let mut disk = Disk::plain(config, 100);
        disk.fill();
        // No page of it is invalid, so the cleaner would never take it.
        let segment = geometry().segment_of(disk.client.places[20].unwrap());
        assert_eq!(disk.log.segments().valid[segment.index()], PAGES_PER_SEGMENT);
        assert_eq!(disk.log.clean_segment(&mut disk.client, segment), Ok(true));
        assert_eq!(disk.log.segments().state[segment.index()], State::Free);
        assert_eq!(disk.log.counters().copies, u64::from(PAGES_PER_SEGMENT));
        assert_eq!(disk.log.clean_segment(&mut disk.client, segment), Ok(false), "it is free");
        let (open, _) = disk.log.open_segments().next().unwrap();
        assert_eq!(disk.log.clean_segment(&mut disk.client, open), Ok(false), "it is open");
        disk.check();
    }
}

#[test]
fn a_segment_asked_for_is_cleaned_after_the_victim_at_work() {
    let mut disk = Disk::plain(paced(), 200);
    disk.fill();
    disk.write(0);
    assert_eq!(disk.log.clean_step(&mut disk.client, 1), Ok(Progress::Copying));
    let segments = disk.log.segments();
    let victim = segments.ids().find(|id| segments.state[id.index()] == State::Victim).unwrap();
    let asked = geometry().segment_of(disk.client.places[100].unwrap());
    assert_ne!(victim, asked);
    assert_eq!(disk.log.clean_segment(&mut disk.client, asked), Ok(true));
    for segment in [victim, asked] {
        assert_eq!(disk.log.segments().state[segment.index()], State::Free);
    }
    disk.check();
}

#[test]
fn open_segments_with_invalid_pages_can_be_sealed_and_cleaned() {
    for config in both_ways() {
        let mut disk = Disk::plain(config, 100);
        for lpn in 0..5 {
            disk.write(lpn);
        }
        disk.log.seal_mixed().unwrap();
        assert_eq!(disk.log.open_segments().count(), 1, "all of it is valid, so it stays open");
        for lpn in 0..5 {
            disk.write(lpn);
        }
        assert_eq!(disk.log.clean_step(&mut disk.client, u32::MAX), Ok(Progress::NothingToClean));
        let (open, _) = disk.log.open_segments().next().unwrap();
        disk.log.seal_mixed().unwrap();
        assert_eq!(disk.log.open_segments().count(), 0);
        assert_eq!(disk.log.clean_step(&mut disk.client, u32::MAX), Ok(Progress::Erased(open)));
        assert_eq!(disk.log.counters().copies, 5);
        disk.check();
        disk.fill();
        disk.check();
    }
}

#[test]
fn what_the_client_gives_up_is_not_copied_and_not_mapped() {
    for config in both_ways() {
        let policies = policies_for(&config, 200, "greedy", "m1");
        let mut disk: Disk<_, true> = Disk::new(Plain::new(ram()), config, policies, 200);
        disk.fill();
        disk.client.held_elsewhere = (0..200).filter(|lpn| lpn % 2 == 0).collect();
        let segment = geometry().segment_of(disk.client.places[32].unwrap());
        assert_eq!(disk.log.clean_segment(&mut disk.client, segment), Ok(true));
        assert_eq!(disk.log.counters().copies, u64::from(PAGES_PER_SEGMENT / 2));
        for lpn in 32..48 {
            assert_eq!(disk.client.places[lpn].is_none(), lpn % 2 == 0, "page {lpn}");
            disk.versions[lpn] = disk.versions[lpn].filter(|_| lpn % 2 == 1);
        }
        assert!(disk.client.places[30].is_some(), "it lies in no victim");
        disk.check();
    }
}

#[test]
fn a_client_that_gives_pages_up_may_name_the_segment_to_clean() {
    for config in both_ways() {
        let policies = policies_for(&config, 200, "greedy", "m1");
        let mut disk: Disk<_, true> = Disk::new(Plain::new(ram()), config, policies, 200);
        disk.fill();
        // The selection would take the segment of page 0, and this one has no invalid page at all.
        disk.write(0);
        let wanted = geometry().segment_of(disk.client.places[32].unwrap());
        disk.client.wanted = Some(wanted);
        disk.client.held_elsewhere = (32..48).collect();
        assert_eq!(disk.log.clean_step(&mut disk.client, u32::MAX), Ok(Progress::Erased(wanted)));
        assert_eq!(disk.log.counters().copies, 0);
        disk.versions[32..48].fill(None);
        let selected = disk.log.clean_step(&mut disk.client, u32::MAX);
        assert_eq!((selected, disk.log.counters().copies), (Ok(Progress::Erased(SegmentId(0))), 15));
        disk.check();
    }
}

#[test]
fn a_client_that_does_not_say_so_is_not_asked_what_it_gives_up() {
    let mut disk = Disk::plain(at_once(), 200);
    disk.fill();
    disk.client.held_elsewhere = (0..200).collect();
    let segment = geometry().segment_of(disk.client.places[32].unwrap());
    disk.log.clean_segment(&mut disk.client, segment).unwrap();
    assert_eq!(disk.log.counters().copies, u64::from(PAGES_PER_SEGMENT));
    disk.check();
}

/// A layer that panics when a segment is erased while pages are owed.
struct Guarded {
    device: Ram,
    owed: Rc<Cell<u32>>,
}

impl Flash for Guarded {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.device.read(ppn, data, spare)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        if data[16] == 0xEE {
            self.owed.set(self.owed.get() - 1);
        }
        self.device.program(ppn, data, spare)
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        assert_eq!(self.owed.get(), 0, "segment {segment} is erased before what had to be on flash was written");
        self.device.erase(segment)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.device.sync()
    }
}

/// A client that owes a page after every trim.
struct Debtor {
    places: Places,
    owed: Rc<Cell<u32>>,
    is_owing: Vec<Lpn>,
}

impl margay_log::Client<Lpn> for Debtor {
    fn relocated(&mut self, owner: Lpn, to: Ppn) {
        self.places.relocated(owner, to);
    }

    fn locate(&self, owner: Lpn) -> Option<Ppn> {
        self.places.locate(owner)
    }

    fn pending(&mut self, _: u64, page: &mut [u8]) -> Option<Lpn> {
        let owner = self.is_owing.pop()?;
        page.fill(0);
        page[16] = 0xEE;
        Some(owner)
    }
}

#[test]
fn pages_that_the_client_owes_are_on_flash_before_a_segment_is_erased() {
    let owed = Rc::new(Cell::new(0));
    let config = paced();
    let pages = 200;
    let device = Plain::new(Guarded { device: ram(), owed: Rc::clone(&owed) });
    let places = Places { places: vec![None; pages as usize + 4], ..Places::default() };
    let mut client = Debtor { places, owed: Rc::clone(&owed), is_owing: Vec::new() };
    let policies = policies_for(&config, pages + 4, "greedy", "m1");
    let mut log = margay_log::Log::new(device, config, policies, pages + 4).unwrap();
    let mut random = Random(8);
    let mut written = 0;
    for step in 0..4000u64 {
        let lpn = random.skewed(pages);
        let data = page_of(lpn, step);
        let hint = margay_log::Hint::None;
        log.write(&mut client, Lpn(lpn), margay_log::Content::Page, &data, hint, step).unwrap();
        let trimmed = random.below(pages);
        if let Some(ppn) = client.places.places[trimmed as usize].take() {
            log.trim(ppn, step);
            let owner = Lpn(pages + random.below(4));
            if !client.is_owing.contains(&owner) {
                client.is_owing.push(owner);
                client.owed.set(client.owed.get() + 1);
                written += 1;
            }
        }
    }
    log.write_pending(&mut client).unwrap();
    assert_eq!(owed.get(), 0);
    assert_eq!(log.counters().metadata_pages, written);
    assert!(log.counters().erases > 100 && written > 100, "{:?}", log.counters());
    log.audit(|owner: Lpn, ppn| client.places.places[owner.index()] == Some(ppn)).unwrap();
}

#[test]
fn idle_time_is_used_to_clean_ahead_and_ends() {
    let mut disk = Disk::plain(paced(), 240);
    disk.fill();
    disk.overwrite(500, 2);
    let mut steps = 0;
    while disk.log.idle_step(&mut disk.client, 3).unwrap() {
        steps += 1;
        assert!(steps < 1000, "cleaning ahead has an end");
    }
    assert!(disk.log.free_segments() > paced().high_water);
    disk.check();
}

#[test]
fn a_full_device_without_an_invalid_page_says_how_full_it_is() {
    for config in both_ways() {
        let limit = limit(&config);
        let mut disk = Disk::plain(config, limit);
        disk.fill();
        assert_eq!(disk.log.clean_step(&mut disk.client, u32::MAX), Ok(Progress::NothingToClean));
        let uniformity = disk.log.uniformity();
        let share = f64::from(limit) / f64::from(SEGMENTS * PAGES_PER_SEGMENT);
        assert_eq!((uniformity.utilization, uniformity.invalidity, uniformity.uniformity), (share, 0.0, 1.0));
    }
}
