use super::*;

const EXPORTED: u32 = 4096;

fn device() -> (Dogi, Segments) {
    let mut segments = Segments::new(64, 64, false);
    for i in 0..64 {
        segments.state[i] = State::Sealed;
        segments.opened_sequence[i] = i as u64 + 1;
        segments.valid[i] = 32;
    }
    segments.total_valid = 3000;
    (Dogi::new(8, Tail::CostBenefit, EXPORTED), segments)
}

fn at(writes: u64) -> Now {
    Now { us: 0, writes }
}

/// Groups of classes 0 to 4, 5 to 8, and 9.
fn three_groups() -> Groups {
    let mut bounds = [0.0; CLASSES];
    bounds[..3].copy_from_slice(&[600.0, 10_000.0, f64::INFINITY]);
    Groups { count: 3, of_class: [1, 1, 1, 1, 1, 2, 2, 2, 2, 3], bounds, wa: 1.5 }
}

#[test]
fn pages_that_lived_short_are_hot_after_one_device_write() {
    let (mut policy, segments) = device();
    policy.write(&segments, at(1), Subject::default(), None);
    assert_eq!(policy.hot_limit, 26);
    let mut stream = |now: u64, life: u64| {
        let old = Info::new(at(now - life), 0, NO_CLASS, 0);
        policy.write(&segments, at(now), Subject::default(), Some((SegmentId(0), old))).0
    };
    assert_eq!(stream(1000, 5), COLD);
    let warm = u64::from(EXPORTED) + 1000;
    assert_eq!([25, 26, 1000].map(|life| stream(warm, life)), [HOT, COLD, COLD]);
}

#[test]
fn the_map_of_recent_writes_moves_with_the_windows() {
    let (mut policy, segments) = device();
    policy.write(&segments, at(1), Subject::default(), None);
    let window = policy.device_writes(MAP_WINDOW);
    let info = Info::new(at(100), 0b1000_0000, NO_CLASS, 0);
    assert_eq!(policy.map_now(info, at(200)), 0b1000_0000);
    policy.windows.map_end += 2 * window;
    assert_eq!(policy.map_now(info, at(200 + 2 * window)), 0b0010_0000);
    policy.windows.map_end += 7 * window;
    assert_eq!(policy.map_now(info, at(200 + 9 * window)), 0);
}

#[test]
fn copies_go_where_the_rest_of_their_life_is_covered_then_from_group_to_group() {
    let (mut policy, mut segments) = device();
    policy.write(&segments, at(1), Subject::default(), None);
    assert_eq!(policy.copy(&segments, SegmentId(0), at(50), Info::new(at(9), 0, NO_CLASS, 0), 0), COPIED);
    segments.opened_writes[0] = 20;
    assert_eq!(policy.copy(&segments, SegmentId(0), at(50), Info::new(at(9), 0, NO_CLASS, 0), 0), COPIED_AGAIN);
    segments.opened_writes[0] = 0;
    // Pages of class 0 that outlive 600 writes do so by 300; those of class 5 that outlive 10,000 by 90,000.
    let lives = [(0, 100.0), (0, 800.0), (0, 1000.0), (5, 100_000.0)];
    policy.adopt(three_groups(), &lives, &segments);
    assert_eq!(policy.bounds.streams.len(), 3, "the last has none");
    assert_eq!(policy.bounds.streams[2].bound, Bound::Age(10_000));
    segments.opened_sequence[0] = 100;
    let copy = |segments: &Segments, class, now| {
        policy.copy(segments, SegmentId(0), at(now), Info::new(at(9), 0, class, 0), 0)
    };
    segments.stream[0] = 1;
    assert_eq!([0, 1, 5].map(|class| copy(&segments, class, 700)), [1, 2, 3]);
    segments.opened_writes[0] = 500;
    assert_eq!([0, 1, 5].map(|class| copy(&segments, class, 700)), [2, 2, 2]);
    segments.stream[0] = 3;
    assert_eq!(copy(&segments, 0, 700), 3, "the last group keeps its own");
    assert_eq!(copy(&segments, 0, 30_000), 7, "not written for 6.4 device writes");
}

#[test]
fn groups_that_cost_more_than_none_are_given_up() {
    let (mut policy, segments) = device();
    policy.write(&segments, at(1), Subject::default(), None);
    let window = |policy: &mut Dogi, wa: f64| {
        policy.copies += ((wa - 1.0) * policy.device_writes(HOT_WINDOW) as f64) as u64;
        policy.adapt_hot_limit();
    };
    window(&mut policy, 2.0);
    policy.adopt(three_groups(), &[], &segments);
    window(&mut policy, 3.0);
    assert!(policy.groups.is_some(), "the first window still pays for the change");
    window(&mut policy, 2.2);
    assert!(policy.groups.is_some());
    window(&mut policy, 2.6);
    assert!(policy.groups.is_none());
    assert_eq!((policy.trust.passed_over, policy.bounds.streams.len()), (1, 1));
}

/// Pages of the first half of the device live for 100 writes, the others for ever.
#[test]
fn the_network_comes_to_tell_short_lives_from_long_ones_by_the_page() {
    let (mut policy, segments) = device();
    let mut written = vec![None; EXPORTED as usize];
    let mut random = 1u64;
    for now in 1..12 * u64::from(EXPORTED) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let owner = if random >> 60 < 15 { now % 100 * 20 } else { 2048 + (random >> 33) % 2048 };
        let old: Option<Info> = written[owner as usize];
        let subject = Subject { owner, ..Subject::default() };
        let old = old.map(|info| (SegmentId(0), info));
        written[owner as usize] = Some(policy.write(&segments, at(now), subject, old).1);
    }
    let learner = policy.learner.as_ref().unwrap();
    let class = |owner: u64| {
        let now = at(12 * u64::from(EXPORTED));
        learner.class(&policy.input(owner, written[owner as usize], now)).unwrap()
    };
    let mean = |owners: &mut dyn Iterator<Item = u64>| {
        let classes: Vec<_> = owners.map(class).collect();
        classes.iter().map(|class| f64::from(*class)).sum::<f64>() / classes.len() as f64
    };
    let (short, long) = (mean(&mut (0..2000).step_by(20)), mean(&mut (2048..4096).step_by(20)));
    assert!(short + 2.0 < long, "{short} {long}");
}

#[test]
fn what_is_kept_of_a_page_survives_a_mount() {
    let (mut policy, _) = device();
    let info = Info::new(at((1 << 32) + 77), 0b1010_0000, 4, 99);
    assert_eq!((info.written(), info.map(), info.class(), info.sample()), (77, 0b1010_0000, 4, 99));
    assert_eq!(info.age(at((1 << 32) + 100)), 23);
    let decoded = policy.decode(policy.encode(info, at(0)), at(0));
    assert_eq!((decoded.written(), decoded.map(), decoded.class(), decoded.sample()), (77, 0b1010_0000, NO_CLASS, 0));
    assert_eq!(policy.unpack(policy.pack(info), at(0), at(0)).written(), 77);
}
