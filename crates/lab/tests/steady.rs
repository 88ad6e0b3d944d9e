//! Steady state on the engine: runs that have settled and runs that have not, and what is said of them.

use margay_lab::summary::{Group, advice};
use margay_lab::{AddressChoice, Experiment, Limit, Outcome, ResultRow, Source, TraceSource, run, size_from_trace};
use margay_media::DeviceSpec;
use margay_policy::{PlacementSpec, SelectionSpec};
use std::path::Path;

fn device() -> DeviceSpec {
    let mut device = DeviceSpec::load("ideal-1gb").unwrap();
    (device.segments, device.pages_per_segment) = (128, 64);
    device
}

fn of_workload(text: &str, limit: Limit) -> Experiment {
    Experiment { limit, ..Experiment::new(device(), Source::Workload(text.parse().unwrap())) }
}

/// The trace of SQLite in the tree, on a device sized from it.
fn of_sample(limit: Limit) -> Experiment {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/sqlite-messages.mgt");
    let source = TraceSource { path, held: None, options: Default::default(), addresses: AddressChoice::Compact };
    let mut experiment = Experiment::new(device(), Source::Trace(source));
    experiment.limit = limit;
    size_from_trace(&mut experiment).unwrap();
    experiment
}

fn done(experiment: &Experiment) -> Outcome {
    run(experiment, &mut |_| true).unwrap()
}

#[test]
fn a_stationary_workload_settles_after_its_transient() {
    let row = done(&of_workload("random", Limit::DeviceWrites(12.0))).row;
    assert!(row.settled && row.warm_rule == "mser-5", "{row:?}");
    let exported = u64::from(row.exported_pages);
    assert!(row.warm_from > exported / 10 && row.warm_from < 6 * exported, "{}", row.warm_from);
    let half = row.wa_warm_half95.unwrap();
    assert!(half < 0.02 * row.wa_warm, "{half}");
    // Twice as long a run says the same, within what the first one said of itself.
    let longer = done(&of_workload("random", Limit::DeviceWrites(24.0))).row;
    assert!((longer.wa_warm - row.wa_warm).abs() < 3.0 * half, "{} {} +-{half}", longer.wa_warm, row.wa_warm);
}

#[test]
fn a_run_that_is_too_short_says_so() {
    for times in [0.05, 0.5, 1.0] {
        let row = done(&of_workload("hot-cold:90/10", Limit::DeviceWrites(times))).row;
        assert!(!row.settled && !row.unsettled.is_empty(), "{times}: {row:?}");
    }
    let once = done(&of_sample(Limit::Once)).row;
    assert!(!once.settled && once.warm_rule == "mser-5", "{once:?}");
    let thrice = done(&of_sample(Limit::Times(3))).row;
    assert!(!thrice.settled && thrice.unsettled.contains("3 passes"), "{}", thrice.unsettled);
}

#[test]
fn until_steady_ends_when_it_is_known_to_one_per_cent_and_at_its_limit_otherwise() {
    let steady = |max_device_writes| Limit::Steady { max_device_writes };
    let row = done(&of_workload("random", steady(Some(100.0)))).row;
    let exported = u64::from(row.exported_pages);
    assert!(row.settled && row.wa_warm_half95.unwrap() <= 0.01 * row.wa_warm, "{row:?}");
    assert!((4 * exported..100 * exported).contains(&row.host_writes), "{}", row.host_writes);
    let cut = done(&of_workload("random", steady(Some(2.0)))).row;
    assert_eq!(cut.host_writes, 2 * exported);
    let trace = done(&of_sample(steady(None))).row;
    assert!(trace.settled && trace.warm_rule == "mser over passes", "{trace:?}");
    // Whole passes, in the window as well.
    let pass = done(&of_sample(Limit::Once)).row.host_writes;
    assert_eq!((trace.host_writes % pass, trace.warm_from % pass, trace.warm_to % pass), (0, 0, 0));
}

#[test]
fn what_is_called_random_depends_on_the_seed_and_nothing_else_does() {
    let wa = |experiment: &Experiment, seed| {
        let row = done(&Experiment { seed, ..experiment.clone() }).row;
        (row.copies, row.erases, row.erases_deviation)
    };
    for selection in SelectionSpec::all() {
        let experiment = Experiment { selection, ..of_sample(Limit::Once) };
        assert_eq!(wa(&experiment, 1) != wa(&experiment, 2), experiment.is_random(), "{selection}");
    }
    for placement in PlacementSpec::all() {
        let experiment = Experiment { placement, ..of_sample(Limit::Once) };
        assert_eq!(wa(&experiment, 1) != wa(&experiment, 2), experiment.is_random(), "{placement}");
    }
    assert!(of_workload("random,writes=9", Limit::Once).is_random());
    assert!(!of_workload("sequential,writes=9", Limit::Once).is_random());
}

/// Rows of pairs of policies with these write amplifications, one for each seed.
fn rows(like: &ResultRow, pairs: &[(&str, &str, &[f64])]) -> Vec<ResultRow> {
    let of_pair = |(selection, placement, values): &(&str, &str, &[f64])| {
        let row = |(seed, wa_warm): (usize, &f64)| ResultRow {
            selection: selection.to_string(),
            placement: placement.to_string(),
            seed: seed as u64,
            wa_warm: *wa_warm,
            ..like.clone()
        };
        values.iter().enumerate().map(row).collect::<Vec<_>>()
    };
    pairs.iter().flat_map(of_pair).collect()
}

#[test]
fn ties_are_named_and_nothing_is_advised_for_a_difference_of_chance() {
    let like = done(&of_workload("random", Limit::DeviceWrites(12.0))).row;
    let say = |pairs: &[(&str, &str, &[f64])]| advice(&Group::by_policies(&rows(&like, pairs)));
    let tied = say(&[
        ("greedy", "m1", &[9.5, 9.51, 9.49]),
        ("fifo", "m5", &[8.978, 8.98, 8.97]),
        ("greedy", "m5", &[8.988, 8.985, 8.99]),
    ]);
    assert!(tied.contains("fifo + m5 and greedy + m5 cannot be told apart"), "{tied}");
    let chance = say(&[("greedy", "m1", &[8.9, 9.2, 9.0]), ("cat", "m5", &[8.7, 9.3, 8.8])]);
    assert!(chance.contains("Choose greedy + m1") && chance.contains("no") && chance.contains("chance"), "{chance}");
    // The same seeds are the same workload: what differs by the same amount on each is no chance.
    let paired = say(&[("greedy", "m1", &[8.0, 9.0, 10.0]), ("cat", "m5", &[7.8, 8.8, 9.8])]);
    assert!(paired.contains("Choose cat + m5"), "{paired}");
    let apart = say(&[("greedy", "m1", &[3.0, 3.01, 2.99]), ("cat", "dac", &[2.0, 2.01, 1.99])]);
    assert!(apart.starts_with("Choose cat + dac: WA 2.000 +-0.025 instead of 3.000"), "{apart}");
    let bound: (&str, &str, &[f64]) = ("greedy", "fk", &[1.2, 1.2, 1.2]);
    let chosen = say(&[bound, ("greedy", "m1", &[3.0, 3.01, 2.99]), ("cat", "dac", &[2.0, 2.01, 1.99])]);
    assert_eq!(chosen, apart, "what knows the future is not advised");
}

#[test]
fn runs_that_have_not_settled_give_no_advice() {
    let once = done(&of_sample(Limit::Once)).row;
    let all = rows(&once, &[("greedy", "m1", &[3.0]), ("cat", "m4", &[2.0])]);
    let text = advice(&Group::by_policies(&all));
    assert!(text.starts_with("No advice: 2 of 2 pairs had not settled"), "{text}");
    assert!(text.contains("--until-steady") && text.contains("cat + m4 has the lowest WA"), "{text}");
}
