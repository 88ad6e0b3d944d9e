//! Writes in runs: where they end, and what is left when one of them fails.

use margay_flash::{Geometry, Lpn};
use margay_format::Plain;
use margay_ftl::{Ftl, FtlError};
use margay_log::{Config, Hint, Policies};
use margay_media::{Faults, NullFlash};
use margay_policy::{PlacementSpec, SelectionSpec, Sizing};

const PAGES: u32 = 200;

/// A full disk that was written four times, whose program number `failing` from now fails.
fn disk(failing: Option<u64>) -> Ftl<Plain<Faults<NullFlash>>> {
    let geometry = Geometry::new(40, 16, 512).unwrap();
    let sizing = Sizing { segments: 40, data_pages: 16, exported_pages: PAGES, seed: 1 };
    let policies = Policies::new(SelectionSpec::known("greedy"), PlacementSpec::known("m6"), sizing);
    let mut device = Faults::new(NullFlash::new(geometry), 0);
    if let Some(number) = failing {
        device.fail_program(u64::from(PAGES) + 4 + number);
    }
    let mut disk = Ftl::new(Plain::new(device), Config::default(), policies, PAGES, &[]).unwrap();
    (0..PAGES).for_each(|lpn| disk.fill(Lpn(lpn), &[], Hint::None).unwrap());
    (0..4).for_each(|lpn| disk.write(Lpn(lpn), &[], Hint::None, 0).unwrap());
    disk
}

#[test]
fn a_run_ends_at_an_address_past_the_capacity_and_the_writes_before_it_are_done() {
    let mut disk = disk(None);
    let before = disk.place(Lpn(7));
    let mut writes = [7, PAGES, 8].map(|lpn| (Lpn(lpn), 0)).into_iter();
    let error = disk.write_run(&mut writes).unwrap_err();
    assert_eq!(error.to_string(), format!("logical page {PAGES} is past the exported capacity ({PAGES} pages)"));
    assert_ne!(disk.place(Lpn(7)), before);
    assert_eq!(writes.next(), Some((Lpn(8), 0)), "the run goes on behind it");
    disk.audit().unwrap();
}

#[test]
fn a_write_that_fails_in_a_run_keeps_what_the_page_held_and_the_writes_before_it() {
    let mut disk = disk(Some(1));
    let places = |disk: &Ftl<_>| [10, 11, 12].map(|lpn| disk.place(Lpn(lpn)));
    let (before, writes_before) = (places(&disk), disk.log().counters().host_writes);
    let mut writes = [10, 11, 12].map(|lpn| (Lpn(lpn), 0)).into_iter();
    assert!(matches!(disk.write_run(&mut writes), Err(FtlError::Log(_))));
    let after = places(&disk);
    assert_ne!(after[0], before[0]);
    assert_eq!(after[1..], before[1..]);
    assert_eq!(disk.log().counters().host_writes, writes_before + 1);
    disk.audit().unwrap();
}
