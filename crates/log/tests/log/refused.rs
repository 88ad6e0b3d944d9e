//! Writes that are refused although the page is on flash.

use crate::client::*;
use margay_flash::FlashError;
use margay_format::{Decoded, Formatted, Tag};
use margay_log::{Hint, LogError};
use margay_media::{Call, Effect, Flaky};

const PAGES: u32 = 60;
const EIO: i32 = 5;

/// The tags on flash, for one owner, oldest first.
fn tags(disk: &mut Disk<Formatted<Flaky<Ram>>>, owner: u64) -> Vec<Tag> {
    let device = disk.log.device_mut();
    let mut tags: Vec<_> = (0..geometry().pages())
        .filter_map(|page| match device.read_tagged(margay_flash::Ppn(page), &mut []) {
            Ok((Decoded::Tag(tag), _)) if tag.page.owner == owner => Some(tag),
            _ => None,
        })
        .collect();
    tags.sort_unstable_by_key(|tag| tag.page.seq);
    tags
}

#[test]
fn a_page_that_is_on_flash_although_its_write_was_refused_is_outdated_by_the_next_flush() {
    let (store, config) = formatted(Flaky::new(ram()), paced(), PAGES);
    let policies = policies_for(&config, PAGES, "greedy", "m1");
    let mut disk = Disk::new(store, config, policies, PAGES);
    (0..3 * PAGES).for_each(|write| {
        disk.write(write * 7 % PAGES);
    });
    let owner = 11;
    let before = tags(&mut disk, owner).pop().unwrap();
    disk.log.device_mut().device_mut().fail(Call::Program, 0..1, Effect::Done, EIO);
    let refused = disk.try_write(owner as u32, Hint::None).map(drop);
    assert_eq!(refused, Err(LogError::Flash(FlashError::Io { code: EIO })));
    let newest = tags(&mut disk, owner).pop().unwrap();
    assert!(newest.page.version != before.page.version, "the refused page is there");

    let copies = disk.log.counters().copies;
    disk.log.write_pending(&mut disk.client).unwrap();
    let newest = tags(&mut disk, owner).pop().unwrap();
    assert_eq!(newest.page.version, before.page.version, "a mount takes the page that was there before");
    assert_eq!(disk.log.counters().copies, copies + 1);
    disk.log.write_pending(&mut disk.client).unwrap();
    assert_eq!(disk.log.counters().copies, copies + 1, "once is enough");
    disk.check();
}
