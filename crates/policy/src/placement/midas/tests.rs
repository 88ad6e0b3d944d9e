use super::*;

const PAGES: u32 = 8;

fn device() -> (Midas, Segments) {
    let mut segments = Segments::new(64, PAGES, false);
    for i in 0..64 {
        segments.state[i] = State::Sealed;
        segments.opened_sequence[i] = i as u64 + 1;
        segments.valid[i] = PAGES;
    }
    segments.total_valid = 400;
    (Midas::new(8, 400), segments)
}

fn at(writes: u64) -> Now {
    Now { us: 0, writes }
}

/// Overwrites a page that was written to this stream, in a segment sealed at `sealed`. Returns its new stream.
fn overwrite(policy: &mut Midas, segments: &mut Segments, stream: u8, sealed: u64, now: u64, info: Info) -> (u8, Info) {
    segments.stream[5] = stream;
    segments.sealed_writes[5] = sealed;
    policy.write(segments, at(now), Subject::default(), Some((SegmentId(5), info)))
}

#[test]
fn a_page_becomes_hot_when_it_is_overwritten_young_three_times_and_cools_when_it_is_copied() {
    let (mut policy, mut segments) = device();
    policy.write(&segments, at(1), Subject::default(), None);
    let young = |policy: &mut Midas, segments: &mut Segments, now, info| {
        overwrite(policy, segments, FIRST, now - 10, now, info)
    };
    let (stream, info) = young(&mut policy, &mut segments, 300, Info::default());
    assert_eq!((stream, info.counter()), (FIRST, 0), "nothing is counted within the first device write");
    policy.hot_age = 50;
    policy.due = u64::MAX;
    let (_, info) = young(&mut policy, &mut segments, 500, info);
    let (stream, info) = young(&mut policy, &mut segments, 510, info);
    assert_eq!((stream, info.counter()), (FIRST, 2));
    let (_, older) = overwrite(&mut policy, &mut segments, FIRST, 400, 520, info);
    assert_eq!(older.counter(), 1, "its segment was sealed more than 50 writes ago");
    let (stream, info) = young(&mut policy, &mut segments, 520, info);
    assert_eq!((stream, info.counter()), (HOT, 3));
    assert_eq!(overwrite(&mut policy, &mut segments, HOT, 0, 530, info).0, HOT, "it stays there at any age");
    assert_eq!(young(&mut policy, &mut segments, 530, info).1.counter(), 2, "3 - 2 when copied, + 1");
    assert_eq!(overwrite(&mut policy, &mut segments, 2, 0, 530, info).1.counter(), 0, "copied twice");
}

#[test]
fn what_is_valid_goes_to_the_next_group_and_stays_in_the_last() {
    let (mut policy, mut segments) = device();
    let mut next = |policy: &Midas, stream: u8| {
        segments.stream[5] = stream;
        policy.copy(&segments, SegmentId(5), at(0), Info::default(), 0)
    };
    (policy.max_groups, policy.last) = (8, FIRST);
    policy.merge_from(FIRST);
    assert_eq!([0, 1, 2, 3, 4].map(|stream| next(&policy, stream)), [1, 2, 3, 4, 4], "a tail by number of copies");
    let mut prediction = Prediction { groups: 4, segments: [0; MAX_GROUPS], valid: [0.0; MAX_GROUPS], wa: 1.5 };
    prediction.segments[..4].copy_from_slice(&[3, 5, 6, 46]);
    let mut others = device().1;
    others.stream.fill(7);
    policy.adopt(prediction, &others, at(1000));
    assert_eq!([0, 1, 3, 4].map(|stream| next(&policy, stream)), [1, 2, 3, 3]);
    assert_eq!(next(&policy, 2), 3, "what was in the tail of before is in that of now");
    let bounds: alloc::vec::Vec<_> = policy.bounds.streams.iter().map(|stream| stream.bound).collect();
    assert_eq!(bounds, [Bound::Segments(2), Bound::Segments(3), Bound::Segments(5)]);
}

#[test]
fn what_is_over_the_size_of_a_group_goes_to_the_last_one_the_oldest_first() {
    let (mut policy, segments) = device();
    policy.max_groups = 8;
    policy.merge_from(FIRST);
    let mut prediction = Prediction { groups: 3, segments: [0; MAX_GROUPS], valid: [0.0; MAX_GROUPS], wa: 1.5 };
    prediction.segments[..3].copy_from_slice(&[5, 8, 40]);
    policy.adopt(prediction, &segments, at(1000));
    // All 64 segments are of stream 0, opened as numbers 1 to 64.
    assert_eq!(policy.bounds.of(HOT, 60), None);
    assert_eq!(policy.bounds.of(HOT, 61), Some(Bound::Segments(4)));
    let version = policy.bounds.version;
    policy.merge_from(2);
    assert_eq!((policy.last, policy.bounds.streams.len()), (2, 2));
    assert_ne!(policy.bounds.version, version);
}

#[test]
fn times_are_kept_modulo_two_to_the_32() {
    let info = Info::new(at((1 << 32) - 16), 2);
    assert_eq!((info.age(at((1 << 32) + 4)), info.counter()), (20, 2));
    let (mut policy, _) = device();
    assert_eq!(policy.unpack(policy.pack(info), at(0), at(0)).counter(), 0, "the tag may be another placement's");
    assert_eq!(policy.decode(policy.encode(info, at(0)), at(0)), info);
}
