//! A device that is cached, as a file on a host is.

use crate::client::*;
use margay_flash::FlashError;
use margay_format::{Formatted, Store};
use margay_log::{Config, LogError};
use margay_media::{Cached, Lie, RamFlash};

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
