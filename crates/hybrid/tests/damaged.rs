//! No image makes the store panic. `crates/hybrid/fuzz` tries the same for longer.

mod mutated;

use margay_flash::{Flash, FlashError, Lpn, Ppn};
use margay_hybrid::{FormatOptions, HybridError, Mapping, Persistence, format, open};
use margay_media::{Damage, Faults, RamFlash};
use mutated::{bases, exercise, geometries, mutate};
use proptest::prelude::*;

/// A disk with pages 0 to 7 in a data block, then pages 1, 2 and 3 anew in a log block.
fn overwritten(flash: &mut Faults<RamFlash>) -> [Ppn; 3] {
    let options = FormatOptions {
        mapping: Mapping::Fast { sequential: true, leave_open: false },
        persistence: Persistence::Persistent,
        log_blocks: 2,
        logical_pages: Some(16),
        uuid: [3; 16],
        created_s: 0,
    };
    let mut disk = format(flash, &options).unwrap();
    for (lpn, byte) in (0..8).map(|lpn| (lpn, 1)).chain([(1, 2), (2, 2), (3, 2)]) {
        disk.write_alone(Lpn(lpn), &[byte; 512]).unwrap();
    }
    disk.sync().unwrap();
    [1, 2, 3].map(|lpn| disk.place(Lpn(lpn)).unwrap())
}

#[test]
fn an_older_copy_does_not_take_the_place_of_a_page_that_cannot_be_read() {
    let mut flash = Faults::new(RamFlash::new(geometries()[0]), 4);
    let places = overwritten(&mut flash);
    flash.flip_bits(places[1], 5);
    let mut disk = open(&mut flash).unwrap();
    let mut page = [0; 512];
    let error = disk.read(Lpn(2), &mut page).unwrap_err();
    // The mount may have moved it.
    let is_lost = matches!(error, HybridError::Flash(FlashError::Uncorrectable { .. } | FlashError::Lost { .. }));
    assert!(is_lost, "{error}");
    assert_eq!(disk.mount_report().doubtful_programs, 0);
    for lpn in [1, 3] {
        assert!(disk.read(Lpn(lpn), &mut page).unwrap().is_some() && page == [2; 512]);
    }
}

#[test]
fn what_a_power_cut_may_have_left_is_the_version_before_and_counted() {
    let mut flash = Faults::new(RamFlash::new(geometries()[0]), 4);
    let places = overwritten(&mut flash);
    flash.flip_bits(places[2], 5);
    let mut disk = open(&mut flash).unwrap();
    let mut page = [0; 512];
    assert!(disk.read(Lpn(3), &mut page).unwrap().is_some() && page == [1; 512]);
    assert_eq!(disk.mount_report().doubtful_programs, 1);
}

#[test]
fn a_flipped_bit_of_the_only_superblock_is_corrected() {
    let mut flash = Faults::new(RamFlash::new(geometries()[0]), 4);
    overwritten(&mut flash);
    for bit in [0, 70, 100, 1000, 384 * 8 - 1] {
        let mut flash = flash.clone();
        flash.page_bytes_mut(Ppn(0))[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(open(&mut flash).unwrap().config().logical_pages, 16, "bit {bit}");
        flash.page_bytes_mut(Ppn(0))[200] ^= 3;
        assert!(open(&mut flash).is_err());
    }
}

proptest! {
    #[test]
    fn an_image_that_was_changed_is_opened_or_refused(
        base in 0..bases().len(),
        changes in proptest::collection::vec(any::<u8>(), 6..240),
    ) {
        let mut flash = bases()[base].clone();
        mutate(&mut flash, &changes);
        exercise(&mut flash);
    }

    #[test]
    fn random_bytes_behind_a_good_superblock_are_opened_or_refused(
        base in 0..bases().len(),
        bytes in proptest::collection::vec(any::<u8>(), 700..1400),
    ) {
        let mut flash = bases()[base].clone();
        let geometry = *flash.geometry();
        // The anchor, or on NOR the superblock in the first segment's header, stays.
        for ppn in 1..geometry.pages() {
            let page = flash.page_bytes_mut(Ppn(ppn));
            page.iter_mut().zip(bytes.iter().cycle().skip(ppn as usize)).for_each(|(byte, random)| *byte = *random);
        }
        exercise(&mut flash);
    }

    #[test]
    fn random_bytes_are_refused(shape in 0..4usize, bytes in proptest::collection::vec(any::<u8>(), 700..1400)) {
        let mut flash = RamFlash::new(geometries()[shape]);
        for ppn in 0..flash.geometry().pages() {
            let page = flash.page_bytes_mut(Ppn(ppn));
            page.iter_mut().zip(bytes.iter().cycle().skip(ppn as usize)).for_each(|(byte, random)| *byte = *random);
        }
        prop_assert!(open(&mut flash).is_err());
    }
}
