use super::*;
use crate::RamFlash;

/// Pages of 16 bytes and 4 of spare area, in units of 8 bytes: two and a half units to a page.
fn device() -> Cached<RamFlash> {
    Cached::new(RamFlash::new(Geometry::new(3, 4, 16).unwrap().with_spare(4)), 8)
}

fn page(flash: &mut Cached<RamFlash>, ppn: u32) -> [u8; 20] {
    let (mut data, mut spare) = ([0; 16], [0; 4]);
    flash.read(Ppn(ppn), &mut data, &mut spare).unwrap();
    core::array::from_fn(|i| if i < 16 { data[i] } else { spare[i - 16] })
}

fn all(flash: &mut Cached<RamFlash>) -> Vec<u8> {
    (0..12).flat_map(|ppn| page(flash, ppn)).collect()
}

#[test]
fn what_was_synced_survives_every_loss_and_what_was_not_does_as_the_loss_says() {
    let old = |n: usize| [vec![1; n], vec![0xFF; 20 - n]].concat();
    let losses = [
        (Loss::Everything, vec![0xFF; 40]),
        (Loss::Nothing, [vec![2; 20], vec![3; 20]].concat()),
        (Loss::OnlyOne(1), [vec![0xFF; 8], vec![2; 8], vec![0xFF; 24]].concat()),
        (Loss::AllButOne(0), [vec![0xFF; 8], vec![2; 12], vec![3; 20]].concat()),
        (Loss::Subset(0b101), [vec![2; 8], vec![0xFF; 8], vec![2; 4], vec![3; 4], vec![0xFF; 16]].concat()),
        (Loss::OnlySpares, [vec![0xFF; 16], vec![2; 4], vec![3; 4], vec![0xFF; 8], vec![3; 8]].concat()),
        (Loss::OnlyErases, vec![0xFF; 40]),
    ];
    for (loss, expected) in losses {
        let mut flash = device();
        flash.program(Ppn(0), &[1; 16], &[1; 4]).unwrap();
        flash.sync().unwrap();
        flash.program(Ppn(4), &[2; 16], &[2; 4]).unwrap();
        flash.program(Ppn(5), &[3; 16], &[3; 4]).unwrap();
        assert_eq!(page(&mut flash, 5), [3; 20]);
        flash.crash(loss, 0);
        assert_eq!(page(&mut flash, 0).to_vec(), old(20), "{loss:?}");
        let bytes = [page(&mut flash, 4), page(&mut flash, 5)].concat();
        assert_eq!(bytes, expected, "{loss:?}");
        assert_eq!(flash.dirty_units(), 0);
    }
}

#[test]
fn every_version_of_a_unit_can_be_the_one_that_is_left() {
    let mut flash = device();
    flash.program(Ppn(0), &[1; 16], &[1; 4]).unwrap();
    flash.sync().unwrap();
    flash.erase(SegmentId(0)).unwrap();
    flash.program(Ppn(0), &[3; 16], &[3; 4]).unwrap();
    let mut first_units = std::collections::BTreeSet::new();
    let mut mixed = 0;
    for seed in 0..50 {
        let mut flash = flash.clone();
        flash.crash(Loss::Versions, seed);
        let bytes = page(&mut flash, 0);
        assert!(bytes[..8].iter().all(|byte| *byte == bytes[0]) && [1, 0xFF, 3].contains(&bytes[0]));
        first_units.insert(bytes[0]);
        mixed += u32::from(bytes[0] != bytes[8]);
    }
    assert!(first_units.len() == 3 && mixed > 10, "{first_units:?}, {mixed}");
    let mut erased = flash.clone();
    erased.crash(Loss::OnlyErases, 0);
    assert_eq!(page(&mut erased, 0), [0xFF; 20]);
    flash.crash(Loss::Units { survive_percent: 100 }, 7);
    assert_eq!(page(&mut flash, 0), [3; 20]);
}

#[test]
fn any_operation_can_be_cut_and_may_be_done_in_half() {
    type Step = fn(&mut Cached<RamFlash>) -> Result<(), FlashError>;
    let steps: [(Step, &[u8]); 4] = [
        (|flash| flash.program(Ppn(1), &[5; 16], &[5; 4]), &[5, 0xFF]),
        (|flash| flash.erase(SegmentId(0)), &[0xFF, 1]),
        (|flash| flash.void_page(Ppn(0)), &[0, 1]),
        (|flash| flash.sync(), &[1, 0xFF]),
    ];
    for (step, allowed) in steps {
        let mut flash = device();
        flash.program(Ppn(0), &[1; 16], &[1; 4]).unwrap();
        if allowed != [1, 0xFF] {
            flash.sync().unwrap();
        }
        flash.cut_at(0);
        assert_eq!(step(&mut flash), Err(FlashError::PowerLost));
        assert!(flash.is_off());
        assert_eq!(flash.read(Ppn(0), &mut [0; 16], &mut []), Err(FlashError::PowerLost));
        assert_eq!(flash.sync(), Err(FlashError::PowerLost));
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..40 {
            let mut flash = flash.clone();
            flash.crash(Loss::Versions, seed);
            let left = all(&mut flash);
            assert!(left[40..].iter().all(|byte| *byte == 0xFF));
            assert!(left[..40].iter().all(|byte| allowed.contains(byte) || [1, 0xFF].contains(byte)));
            seen.insert(left);
            flash.sync().unwrap();
        }
        assert!(seen.len() > 3, "{allowed:?}: {} outcomes", seen.len());
    }
}

#[test]
fn a_unit_that_the_interrupted_program_ends_half_way_in_may_hold_half() {
    let mut flash = Cached::new(RamFlash::new(Geometry::new(3, 4, 16).unwrap().with_spare(4)), 4096);
    flash.cut_at(0);
    assert_eq!(flash.program(Ppn(0), &[5; 16], &[5; 4]), Err(FlashError::PowerLost));
    let outcomes: std::collections::BTreeSet<_> = (0..30)
        .map(|seed| {
            let mut flash = flash.clone();
            flash.crash(Loss::Versions, seed);
            page(&mut flash, 0)
        })
        .collect();
    let half = core::array::from_fn(|i| if i < 10 { 5 } else { 0xFF });
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), vec![[5; 20], half, [0xFF; 20]]);
}

#[test]
fn after_a_sync_that_failed_the_next_one_saves_everything_or_what_was_written_since() {
    for (lie, is_kept) in [(Lie::Error, true), (Lie::ErrorAndDrop, false)] {
        let mut flash = device();
        flash.fail_sync(1, 2, lie);
        flash.sync().unwrap();
        flash.program(Ppn(0), &[1; 16], &[1; 4]).unwrap();
        let failed = Err(FlashError::Io { code: 5 });
        assert_eq!((flash.sync(), flash.sync()), (failed, failed));
        flash.program(Ppn(8), &[2; 16], &[2; 4]).unwrap();
        flash.sync().unwrap();
        assert_eq!(page(&mut flash, 0), [1; 20], "it is in the cache");
        let mut reopened = flash.clone();
        reopened.reopen();
        flash.crash(Loss::Nothing, 0);
        for flash in [&mut flash, &mut reopened] {
            assert_eq!(page(flash, 0), if is_kept { [1; 20] } else { [0xFF; 20] });
            assert_eq!(page(flash, 8), [2; 20]);
        }
    }
}

#[test]
fn a_process_that_ends_loses_nothing_and_a_device_without_a_cache_never_does() {
    let mut flash = device();
    flash.program(Ppn(0), &[1; 16], &[]).unwrap();
    flash.reopen();
    flash.sync().unwrap();
    flash.crash(Loss::Everything, 0);
    assert_eq!(page(&mut flash, 0)[..16], [1; 16]);

    let mut flash = device().write_through();
    assert!(!flash.is_cached() && device().is_cached());
    flash.program(Ppn(0), &[1; 16], &[]).unwrap();
    flash.crash(Loss::Everything, 0);
    assert_eq!(page(&mut flash, 0)[..16], [1; 16]);
    assert_eq!(flash.void_page(Ppn(0)), Err(FlashError::Unsupported));
}

#[test]
fn parts_clear_bits_of_what_is_read_now_and_addresses_past_the_end_are_errors() {
    let mut flash = Cached::new(RamFlash::new(Geometry::new(3, 4, 16).unwrap().byte_programmable()), 8);
    flash.program_part(Ppn(3), 6, &[0xF0; 4]).unwrap();
    flash.program_part(Ppn(3), 6, &[0x3F; 4]).unwrap();
    assert_eq!(flash.dirty_units(), 2);
    let mut part = [0; 4];
    flash.read_part(Ppn(3), 6, &mut part).unwrap();
    assert_eq!(part, [0x30; 4]);
    flash.crash(Loss::OnlyOne(1), 0);
    flash.read_part(Ppn(3), 6, &mut part).unwrap();
    assert_eq!(part, [0xFF, 0xFF, 0x30, 0x30]);
    assert_eq!(flash.program(Ppn(12), &[0; 16], &[]), Err(FlashError::PageOutOfRange { ppn: Ppn(12), pages: 12 }));
    assert_eq!(flash.void_page(Ppn(12)), Err(FlashError::PageOutOfRange { ppn: Ppn(12), pages: 12 }));
    let past = FlashError::SegmentOutOfRange { segment: SegmentId(3), segments: 3 };
    assert_eq!(flash.erase(SegmentId(3)), Err(past));
}

#[test]
fn the_mark_is_as_durable_as_a_page() {
    let mut flash = device();
    flash.set_mark(Some(7)).unwrap();
    flash.sync().unwrap();
    flash.set_mark(Some(8)).unwrap();
    flash.set_mark(None).unwrap();
    assert_eq!(flash.mark(), Ok(None));
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..30 {
        let mut flash = flash.clone();
        flash.crash(Loss::Versions, seed);
        seen.insert(flash.mark().unwrap());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [None, Some(7), Some(8)]);
    flash.fail_sync(0, 1, Lie::ErrorAndDrop);
    assert!(flash.sync().is_err());
    assert_eq!(flash.mark(), Ok(None));
    flash.sync().unwrap();
    flash.reopen();
    assert_eq!(flash.mark(), Ok(Some(7)));
}
