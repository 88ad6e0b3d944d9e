use super::*;

const EXPORTED: u32 = 10_000;

fn device() -> (Lifetime, Segments) {
    // 50 segments more than the exported pages fill: five streams.
    (Lifetime::new(EXPORTED, MAX_STREAMS), Segments::new(150, 100, false))
}

/// Writes pages with these intervals for some device writes; returns what is known of each page then.
fn run(policy: &mut Lifetime, segments: &Segments, intervals: &[u64]) -> alloc::vec::Vec<Known> {
    let mut pages = alloc::vec![None; intervals.len()];
    for writes in 1..6 * u64::from(EXPORTED) {
        for (page, interval) in pages.iter_mut().zip(intervals) {
            if writes.is_multiple_of(*interval) {
                let old = page.map(|known| (SegmentId(0), known));
                *page = Some(policy.write(segments, Now { us: 0, writes }, Subject::default(), old).1);
            }
        }
    }
    pages.into_iter().flatten().collect()
}

fn copy(policy: &Lifetime, segments: &Segments, known: Known, age: u32) -> u8 {
    policy.copy(segments, SegmentId(0), Now { us: 0, writes: u64::from(known.written + age) }, known, 0)
}

#[test]
fn pages_with_long_intervals_go_to_later_streams_than_those_with_short_ones() {
    let (mut policy, segments) = device();
    let groups = [50, 3100, 20_000].map(|first| (first..first + 40).collect::<alloc::vec::Vec<u64>>());
    let known = run(&mut policy, &segments, &groups.concat());
    let streams = known.iter().map(|known| policy.streams[known.class()][0]).collect::<alloc::vec::Vec<_>>();
    assert!(streams.chunks(40).all(|group| group.iter().all(|stream| *stream == group[0])), "{streams:?}");
    assert!(streams[0] < streams[40] && streams[40] < streams[80], "{streams:?}");
}

#[test]
fn a_copy_of_a_page_that_is_about_to_be_written_goes_to_an_earlier_stream_than_a_young_one_and_one_overdue_to_a_late_one()
 {
    let (mut policy, segments) = device();
    let many = (0..40).map(|page| 3100 + page).collect::<alloc::vec::Vec<_>>();
    let known = run(&mut policy, &segments, &many)[0];
    let [young, due, overdue] = [10, 3000, 50_000].map(|age| copy(&policy, &segments, known, age));
    assert!(due < young && young < overdue, "{young} {due} {overdue}");
}

#[test]
fn new_pages_that_are_trimmed_after_a_short_life_are_written_to_an_early_stream() {
    let (mut policy, segments) = device();
    let mut pages = alloc::collections::VecDeque::new();
    let at = |writes| Now { us: 0, writes };
    for writes in 1..2 * u64::from(EXPORTED) {
        // Files of other pages each time, none of which is overwritten.
        let subject = Subject { owner: 5 * writes, ..Subject::default() };
        pages.push_back(policy.write(&segments, at(writes), subject, None));
        if pages.len() > 200 {
            policy.trimmed(at(writes), pages.pop_front().unwrap().1);
        }
    }
    assert!(pages.iter().all(|(stream, _)| *stream == 0), "{pages:?}");
}

fn chunk(whole: bool) -> Content {
    Content::Chunk { object: 1, chunk: 0, whole }
}

#[test]
fn what_the_end_of_a_file_was_written_for_is_forgotten_when_it_is_complete() {
    let (mut policy, segments) = device();
    let mut write = |writes, whole, old: Option<Known>| {
        let subject = Subject { owner: 7, content: chunk(whole), ..Subject::default() };
        let old = old.map(|known| (SegmentId(0), known));
        policy.write(&segments, Now { us: 0, writes }, subject, old).1
    };
    let first = write(100, false, None);
    let second = write(200, false, Some(first));
    assert_eq!((second.mean(), second.count(), second.state()), (100, 1, INCOMPLETE));
    let complete = write(300, true, Some(second));
    assert_eq!((complete.count(), complete.class()), (0, UNKNOWN + COMPLETE as usize));
    let overwritten = write(500, true, Some(complete));
    assert_eq!((overwritten.mean(), overwritten.count()), (200, 1));
}

#[test]
fn what_is_left_of_files_goes_to_a_later_stream_than_new_ones() {
    let segments = Segments { in_use: 150, ..Segments::new(150, 100, false) };
    let mut policy = Lifetime::new(EXPORTED, MAX_STREAMS);
    let mut pages = alloc::collections::VecDeque::new();
    let at = |writes| Now { us: 0, writes };
    let (mut new, mut left) = (MAX_STREAMS, 0);
    for writes in 1..4 * u64::from(EXPORTED) {
        let subject = Subject { owner: 5 * writes, content: chunk(true), ..Subject::default() };
        let (stream, known) = policy.write(&segments, at(writes), subject, None);
        (new, left) = (stream, copy(&policy, &segments, known, 50));
        pages.push_back(known);
        // One of each two dies at once, whatever its age, so that age says nothing.
        if pages.len() > 1000 {
            let dying = (writes * 7919 % 1000) as usize;
            policy.trimmed(at(writes), pages.swap_remove_back(dying).unwrap());
        }
    }
    assert!(left > new, "{new} {left}");
}

#[test]
fn a_file_system_has_as_many_streams_as_what_is_in_use_leaves_segments_once_all_have_been_used() {
    let mut policy = Lifetime::new(EXPORTED, MAX_STREAMS);
    policy.has_files = true;
    let mut segments = Segments::new(100, 100, false);
    (segments.in_use, segments.total_valid) = (30, 2900);
    assert_eq!(policy.spare_segments(&segments), 1.0, "70 are free");
    segments.in_use = 98;
    assert_eq!(policy.spare_segments(&segments), 69.0);
    policy.has_files = false;
    assert_eq!(policy.spare_segments(&segments), 0.0, "all pages of a disk may be written");
}

#[test]
fn there_are_two_streams_where_few_segments_can_be_spared_and_more_where_many_can() {
    for (spare, streams) in [(5, 2), (12, 3), (50, 4), (200, 5), (700, 6)] {
        let segments = Segments::new(100 + spare, 100, false);
        let mut policy = Lifetime::new(EXPORTED, MAX_STREAMS);
        let lives = [1, 200, 700, 3000, 11_000, 45_000];
        run(&mut policy, &segments, &lives);
        let last = *policy.streams.iter().flatten().max().unwrap();
        assert_eq!(last + 1, streams, "{spare} segments");
    }
}

#[test]
fn the_mean_interval_follows_and_the_trend_says_that_the_last_one_was_far_from_it() {
    let mut known = Known::default();
    assert_eq!(known.class(), UNKNOWN);
    for _ in 0..40 {
        known.intervals = known.with(1000);
    }
    assert_eq!((known.mean(), known.class()), (1000, 9 * KINDS));
    let (short, long) = (known.with(100), known.with(u32::MAX));
    let class = |intervals| Known { written: 0, intervals }.class() % STATES;
    assert_eq!((class(short), class(long)), (1, 2));
    assert!((900..1000).contains(&Known { written: 0, intervals: short }.mean()));
}

/// Writes a log over the first half of the pages, and, as often, pages of the other half: each in turn too, but in an order
/// without neighbours. Returns the streams of the last writes of the log, and of the others.
fn log_and_others(policy: &mut Lifetime, segments: &Segments) -> [alloc::vec::Vec<u8>; 2] {
    let mut pages = alloc::vec![None; EXPORTED as usize];
    let mut streams = [const { alloc::vec::Vec::new() }; 2];
    for writes in 1..8 * u64::from(EXPORTED) {
        let (half, turn) = (u64::from(EXPORTED) / 2, writes / 2);
        let is_log = writes % 2 == 0;
        let page = if is_log { turn % half } else { half + turn * 1237 % half };
        let subject = Subject { owner: page, ..Subject::default() };
        let old = pages[page as usize].map(|known| (SegmentId(0), known));
        let (stream, known) = policy.write(segments, Now { us: 0, writes }, subject, old);
        pages[page as usize] = Some(known);
        if writes > 7 * u64::from(EXPORTED) {
            streams[usize::from(!is_log)].push(stream);
        }
    }
    streams
}

#[test]
fn a_log_has_a_stream_of_its_own_beside_pages_that_live_as_long() {
    let (mut policy, segments) = device();
    let [log, others] = log_and_others(&mut policy, &segments);
    // A few times the page before was forgotten, or came before a page of the others by chance.
    let apart = |streams: &[u8]| streams.iter().filter(|stream| **stream == MAX_STREAMS - REGULAR_STREAMS).count();
    assert!(apart(&log) * 10 > log.len() * 9, "{} of {}", apart(&log), log.len());
    assert!(apart(&others) * 20 < others.len(), "{} of {}", apart(&others), others.len());
}

#[test]
fn a_log_has_no_stream_of_its_own_where_few_segments_can_be_spared_or_few_streams_are_allowed() {
    for (segments, streams) in [(105, MAX_STREAMS), (150, 3)] {
        let mut policy = Lifetime::new(EXPORTED, streams);
        let [log, others] = log_and_others(&mut policy, &Segments::new(segments, 100, false));
        assert_eq!(log[1..], others[1..log.len()], "{segments} segments, {streams} streams");
    }
}

#[test]
fn pages_written_together_long_ago_are_not_taken_for_regular() {
    let mut lives = Lives { written: 100.0, ..Lives::NONE };
    lives.died[20] = 45.0;
    lives.died[21] = 45.0;
    assert_eq!(lives.regular(), Some(octaves::start(20)));
    assert_eq!(Lives { written: 200.0, ..lives }.regular(), None, "many live longer");
    assert_eq!(Lives { written: 20.0, ..lives }.regular(), None, "few were written");
    lives.died[12..19].fill(20.0);
    assert_eq!(lives.regular(), None);
}

#[test]
fn what_is_known_of_a_page_survives_a_checkpoint_and_of_its_tag_the_time_of_its_write() {
    let (mut policy, _) = device();
    let known = Known { written: 77, intervals: 1234 << 6 | 17 };
    let now = Now { us: 5, writes: 100 };
    let encoded = policy.encode(known, now);
    let decoded = policy.decode(encoded, now);
    assert_eq!((decoded.written, decoded.intervals), (77, 1234 << 6 | 17));
    let tag = policy.pack(known);
    let unpacked = policy.unpack(tag, now, now);
    assert_eq!((unpacked.written, unpacked.class()), (77, UNKNOWN));
}
