//! A device that is cached, as a file on a host is.

use crate::client::*;
use margay_flash::{Flash, FlashError, Geometry};
use margay_format::{Formatted, Store};
use margay_log::{Config, LogError, Policies};
use margay_media::{Cached, Lie, RamFlash};
use margay_policy::{PlacementSpec, SelectionSpec, Sizing};
use std::cell::Cell;
use std::rc::Rc;

type Host = Cached<RamFlash>;

const PAGES: u32 = 60;

fn used(water: u32) -> Disk<Formatted<Host>> {
    let config = Config { low_water: water, high_water: water, ..paced() };
    let (store, config) = formatted(Cached::new(RamFlash::new(geometry()), 512), config, PAGES);
    let policies = policies_for(&config, PAGES, "greedy", "m1");
    let mut disk = Disk::new(store, config, policies, PAGES);
    (0..10 * PAGES).for_each(|write| {
        disk.write(write * 7 % PAGES);
    });
    disk
}

#[test]
fn after_a_failed_sync_nothing_is_written_no_sync_succeeds_and_idle_time_is_quiet() {
    let mut disk = used(2);
    disk.log.device_mut().device_mut().fail_sync(0, 1, Lie::ErrorAndDrop);
    assert!(disk.log.device_mut().sync().is_err());
    let operations = disk.log.device().device().operations();
    let stopped = LogError::Flash(FlashError::Stopped);
    for lpn in 0..3 {
        assert_eq!(disk.log.device_mut().sync(), Err(FlashError::Stopped));
        assert_eq!(disk.try_write(lpn, margay_log::Hint::None).map(drop), Err(stopped));
        assert_eq!(disk.log.idle_step(&mut disk.client, 8), Ok(false));
    }
    assert_eq!(disk.log.device().device().operations(), operations);
    disk.check();
}

#[test]
fn a_segment_waits_for_a_sync_before_it_is_erased_and_where_more_are_free_one_sync_does_for_several() {
    for (water, max_syncs) in [(2, 100), (3, 75), (4, 65), (8, 40)] {
        let mut disk = used(water);
        let (erases, (syncs, _)) = (disk.log.counters().erases, disk.log.device().device().syncs());
        (0..50 * PAGES).for_each(|write| {
            disk.write(write.wrapping_mul(2654435761) % PAGES);
        });
        let erases = disk.log.counters().erases - erases;
        let syncs = disk.log.device().device().syncs().0 - syncs;
        assert!(erases > 100, "{erases}");
        assert!(syncs > 0 && 100 * syncs <= max_syncs * erases, "{water}: {syncs} syncs for {erases} erases");
        disk.check();
    }
}

/// A host whose disk is slow: a sync that was begun ends when it is waited for, and not before.
struct SlowSync {
    device: Host,
    is_slow: Rc<Cell<bool>>,
    waits: Rc<Cell<u64>>,
}

impl Flash for SlowSync {
    fn sync(&mut self) -> Result<(), FlashError> {
        self.device.sync()
    }
    fn begin_sync(&mut self) -> Result<(), FlashError> {
        self.device.begin_sync()
    }
    fn end_sync(&mut self, wait: bool) -> Result<bool, FlashError> {
        if self.is_slow.get() && !wait {
            return Ok(false);
        }
        self.waits.set(self.waits.get() + u64::from(wait));
        self.device.end_sync(true)
    }
    margay_flash::pass_on!(device: pages, has_payload, is_cached, void_page, mark, set_mark);
}

#[test]
fn on_a_slow_disk_more_segments_are_cleaned_ahead_and_fewer_again_once_it_is_quick() {
    const PAGES: u32 = 1200;
    let geometry = Geometry::new(120, 16, 512).unwrap().with_spare(160);
    let (is_slow, waits) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let device = Cached::new(RamFlash::new(geometry), 512);
    let device = SlowSync { device, is_slow: Rc::clone(&is_slow), waits: Rc::clone(&waits) };
    let (store, config) = formatted(device, paced(), PAGES);
    let sizing = Sizing { segments: 120, data_pages: config.data_pages(&geometry), exported_pages: PAGES, seed: 3 };
    let policies = Policies::new(SelectionSpec::known("greedy"), PlacementSpec::known("m1"), sizing);
    let mut disk = Disk::new(store, config, policies, PAGES);
    let mut random = Random(7);
    let mut write = |disk: &mut Disk<Formatted<SlowSync>>, count: u32| {
        let mut free = (u32::MAX, 0);
        for _ in 0..count {
            disk.write(random.below(PAGES));
            let now = disk.log.free_segments();
            free = (free.0.min(now), free.1.max(now));
        }
        free
    };
    write(&mut disk, 10 * PAGES);
    let (_, quick) = write(&mut disk, 10 * PAGES);
    assert!(quick <= 4, "{quick} segments are free on a quick disk");
    let waited = waits.get();
    is_slow.set(true);
    write(&mut disk, 10 * PAGES);
    let (slow, most) = write(&mut disk, 10 * PAGES);
    // 45 segments hold nothing valid.
    assert!(slow > quick && most <= 45 / 4 + 3, "{slow} to {most} segments are free on a slow disk");
    assert!(waits.get() > waited, "it was slow");
    is_slow.set(false);
    write(&mut disk, 60 * PAGES);
    let (_, quick_again) = write(&mut disk, 10 * PAGES);
    assert!(quick_again <= quick + 1, "{quick_again} segments are free when it is quick again");
    disk.check();
}
