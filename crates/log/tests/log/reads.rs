//! Segments that are read very often.

use crate::client::*;
use margay_flash::SegmentId;
use margay_log::LogError;

fn filled() -> Disk<margay_format::Plain<Ram>> {
    let mut disk = Disk::plain(paced(), 100);
    disk.fill();
    while disk.log.idle_step(&mut disk.client, 8).unwrap() {}
    disk
}

fn segment_of(disk: &Disk<margay_format::Plain<Ram>>, lpn: u32) -> SegmentId {
    geometry().segment_of(disk.client.places[lpn as usize].unwrap())
}

/// Works in idle time until there is nothing to do; how many pages were copied in the longest step.
fn idle(disk: &mut Disk<margay_format::Plain<Ram>>) -> u64 {
    let mut longest = 0;
    loop {
        let before = disk.log.counters().copies;
        let more = disk.log.idle_step(&mut disk.client, 4).unwrap();
        longest = longest.max(disk.log.counters().copies - before);
        if !more {
            return longest;
        }
    }
}

#[test]
fn a_segment_that_was_read_too_often_is_rewritten_in_idle_time_by_and_by_and_no_other() {
    let mut disk = filled();
    disk.log.limit_reads(50);
    let seldom = segment_of(&disk, 90);
    assert_ne!(segment_of(&disk, 0), seldom);
    for round in 0..3u64 {
        let place = disk.client.places[0];
        let segment = segment_of(&disk, 0);
        let erases = disk.log.segments().erases[segment.index()];
        for _ in 0..49 {
            disk.read(0).unwrap();
        }
        assert_eq!((idle(&mut disk), disk.client.places[0]), (0, place), "not yet");
        disk.read(0).unwrap();
        assert!((1..=4).contains(&idle(&mut disk)), "the budget of a step holds");
        assert_ne!(disk.client.places[0], place);
        assert_eq!(disk.log.segments().erases[segment.index()], erases + 1);
        assert_eq!((disk.log.rewritten_segments(), segment_of(&disk, 90)), (round + 1, seldom));
    }
    disk.check();
}

#[test]
fn a_write_has_the_room_that_a_rewritten_segment_would_take_and_without_a_limit_none_is() -> Result<(), LogError> {
    let mut disk = filled();
    for _ in 0..500 {
        disk.read(0)?;
    }
    assert_eq!((idle(&mut disk), disk.log.rewritten_segments()), (0, 0), "there is no limit");
    disk.log.limit_reads(20);
    // Between idle times, reads and writes in turn, to a device that is full of them.
    for number in 0..3000u32 {
        disk.read(number % 7)?;
        disk.write(number * 31 % 100);
        if number % 5 == 0 {
            disk.log.idle_step(&mut disk.client, 4)?;
        }
    }
    assert!(disk.log.rewritten_segments() > 3, "{}", disk.log.rewritten_segments());
    disk.check();
    Ok(())
}
