//! What each device of a trace of several costs.

use margay_lab::{AddressChoice, Capacity, Experiment, Limit, Outcome, ResultRow, Source, TenantRow, TraceSource, run};
use margay_media::DeviceSpec;
use margay_trace::ReadOptions;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

const PAGE_BYTES: u64 = 4096;
/// Pages that the first device writes again and again, and pages of the second.
const HOT: u64 = 40;
const COLD: u64 = 560;

/// A page write: whether it goes to the hot device, and the page of that device.
fn writes(count: u64) -> Vec<(bool, u64)> {
    let mut state = 7u64;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let write = |at| match at {
        // All pages once, so that they are numbered in this order.
        0..HOT => (true, at),
        _ if at < HOT + COLD => (false, at - HOT),
        _ if below(10) < 8 => (true, below(HOT)),
        _ => (false, below(COLD)),
    };
    (0..count).map(write).collect()
}

/// The writes as a trace of MSR, of two devices, or of one that has the pages of both.
fn trace(path: &Path, writes: &[(bool, u64)], are_two: bool) {
    let mut text = String::new();
    for (at, (is_hot, page)) in (0..).zip(writes) {
        let ticks = 128_166_372_003_061_629u64 + at * 10_000;
        let (host, page) = match (are_two, is_hot) {
            (true, true) => ("hot", *page),
            (true, false) => ("cold", *page),
            (false, true) => ("both", *page),
            (false, false) => ("both", page + HOT),
        };
        writeln!(text, "{ticks},{host},0,Write,{},{PAGE_BYTES},1", page * PAGE_BYTES).unwrap();
    }
    std::fs::write(path, text).unwrap();
}

fn experiment(path: &Path) -> Experiment {
    let mut device = DeviceSpec::load("ideal-1gb").unwrap();
    (device.segments, device.pages_per_segment) = (64, 16);
    let options = ReadOptions::default();
    let source = TraceSource { path: path.into(), held: None, options, addresses: AddressChoice::Compact };
    let mut experiment = Experiment::new(device, Source::Trace(source));
    experiment.capacity = Capacity::Pages((HOT + COLD) as u32);
    experiment
}

fn done(experiment: &Experiment) -> Outcome {
    run(experiment, &mut |_| true).unwrap()
}

/// What policies decide, without what names the trace and without what a clock measured.
fn decided(row: ResultRow) -> ResultRow {
    ResultRow { wall_s: 0.0, writes_per_s: 0.0, source: String::new(), trace_xxh3: String::new(), ..row }
}

#[test]
fn writes_copies_and_pages_of_the_devices_add_up_to_those_of_the_run_under_every_way_of_cleaning() {
    let folder = tempfile::tempdir().unwrap();
    let [two, one] = ["two", "one"].map(|name| folder.path().join(name));
    let writes = writes(20_000);
    trace(&two, &writes, true);
    trace(&one, &writes, false);
    let hot_writes = writes.iter().filter(|(is_hot, _)| *is_hot).count() as u64;
    for (selection, placement, leveling, max_pages_per_write) in [
        ("greedy", "m1", "none", 0),
        ("cat", "m6", "none", 0),
        ("fifo", "dac", "threshold:spread=5", 0),
        ("cost-benefit", "m4", "none", 8),
        ("random", "sepgc", "none", 0),
    ] {
        let mut experiment = experiment(&two);
        experiment.selection = selection.parse().unwrap();
        experiment.placement = placement.parse().unwrap();
        experiment.leveling = leveling.parse().unwrap();
        experiment.max_pages_per_write = max_pages_per_write;
        experiment.limit = Limit::Times(2);
        let outcome = done(&experiment);
        let [hot, cold] = &outcome.tenants[..] else { panic!("{:?}", outcome.tenants) };
        assert_eq!((hot.device.as_str(), cold.device.as_str()), ("hot_0", "cold_0"));
        assert_eq!((hot.host_writes, hot.footprint_pages), (2 * hot_writes, HOT), "{selection} {placement}");
        assert_eq!((cold.host_writes, cold.footprint_pages), (2 * (20_000 - hot_writes), COLD));
        assert!(outcome.row.copies > 1000, "{}", outcome.row.copies);
        assert_eq!(hot.copies + cold.copies, outcome.row.copies, "{selection} {placement}");
        assert!(cold.wa > hot.wa && hot.wa >= 1.0, "cold pages are copied more often: {hot:?} {cold:?}");
        assert!((hot.copies_share + cold.copies_share - 1.0).abs() < 1e-9);

        let Source::Trace(source) = &mut experiment.source else { unreachable!() };
        source.path.clone_from(&one);
        let alone = done(&experiment);
        assert!(alone.tenants.is_empty());
        assert_eq!(decided(outcome.row), decided(alone.row), "counting changes nothing: {selection} {placement}");
    }
}

#[test]
fn of_folded_addresses_every_write_belongs_to_one_device() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("two");
    let writes = writes(5000);
    trace(&path, &writes, true);
    let mut experiment = experiment(&path);
    let Source::Trace(source) = &mut experiment.source else { unreachable!() };
    source.addresses = AddressChoice::Fold;
    let outcome = done(&experiment);
    let sum = |of: fn(&TenantRow) -> u64| outcome.tenants.iter().map(of).sum::<u64>();
    assert_eq!((sum(|row| row.host_writes), sum(|row| row.copies)), (5000, outcome.row.copies));
    // The devices are shifted against each other and meet on some pages, which count once.
    assert!(sum(|row| row.footprint_pages) <= BTreeSet::from_iter(&writes).len() as u64);
}
