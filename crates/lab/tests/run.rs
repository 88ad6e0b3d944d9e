//! One run: what it counts, where its warm window starts, what it says when it cannot be done.

use margay_flash::Lpn;
use margay_lab::{
    AddressChoice, Capacity, Experiment, LabError, Limit, MeasuredDisk, Outcome, ResultRow, Source, TraceSource,
    build_disk, prepare, run, run_prepared, size_from_trace,
};
use margay_log::Hint;
use margay_media::DeviceSpec;
use margay_trace::ReadOptions;
use margay_workload::{OpKind, PageOp, Workload, WorkloadSpec};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;
use tempfile::TempDir;

const PAGE_BYTES: u64 = 4096;

fn device() -> DeviceSpec {
    let mut device = DeviceSpec::load("ideal-1gb").unwrap();
    (device.segments, device.pages_per_segment) = (64, 16);
    device
}

fn of_workload(text: &str) -> Experiment {
    Experiment::new(device(), Source::Workload(text.parse().unwrap()))
}

fn of_trace(path: &Path) -> Experiment {
    let options = ReadOptions::default();
    let source = TraceSource { path: path.into(), held: None, options, addresses: AddressChoice::Fold };
    Experiment::new(device(), Source::Trace(source))
}

/// A request of a trace: operation, first page, pages.
type Request = (&'static str, u64, u64);

fn write_trace(folder: &TempDir, requests: &[Request]) -> std::path::PathBuf {
    let mut text = String::from("time_us,op,device,offset_bytes,len_bytes\n");
    for (time, (op, page, pages)) in requests.iter().enumerate() {
        writeln!(text, "{},{op},0,{},{}", time * 1000, page * PAGE_BYTES, pages * PAGE_BYTES).unwrap();
    }
    let path = folder.path().join("requests.csv");
    std::fs::write(&path, text).unwrap();
    path
}

/// Writes, reads and trims of a few hundred pages that look random.
fn mixed_requests(count: u64) -> Vec<Request> {
    let mut state = 7u64;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let request = |_| {
        let page = if below(2) == 0 { below(40) } else { below(600) };
        match below(10) {
            0 => ("read", page, 1 + below(3)),
            1 => ("trim", page, 1 + below(3)),
            _ => ("write", page, 1 + below(3)),
        }
    };
    (0..count).map(request).collect()
}

fn done(experiment: &Experiment) -> Outcome {
    run(experiment, &mut |_| true).unwrap()
}

fn error(experiment: &Experiment) -> LabError {
    run(experiment, &mut |_| true).unwrap_err()
}

/// A row without what differs from run to run: how fast the machine was.
fn timeless(row: ResultRow) -> ResultRow {
    ResultRow { wall_s: 0.0, writes_per_s: 0.0, ..row }
}

/// Host writes, reads and trims as a disk counts them that was filled before: of pages that it holds.
fn recount(ops: impl IntoIterator<Item = PageOp>, filled: u32) -> (u64, u64, u64) {
    let mut mapped: HashSet<u32> = (0..filled).collect();
    let (mut writes, mut reads, mut trims) = (0, 0, 0);
    for op in ops {
        match op.kind {
            OpKind::Write => {
                mapped.insert(op.lpn);
                writes += 1;
            }
            OpKind::Read => reads += u64::from(mapped.contains(&op.lpn)),
            OpKind::Trim => trims += u64::from(mapped.remove(&op.lpn)),
        }
    }
    (writes, reads, trims)
}

fn counts(row: &ResultRow) -> (u64, u64, u64) {
    (row.host_writes, row.host_reads, row.trims)
}

#[test]
fn the_row_counts_what_the_workload_does() {
    for fill in [1.0, 0.5, 0.0] {
        let text = "hot-cold:90/10,writes=20000,reads=0.3,trims=0.05";
        let mut experiment = of_workload(text);
        (experiment.fill, experiment.seed) = (fill, 11);
        let row = done(&experiment).row;
        let spec: WorkloadSpec = text.parse().unwrap();
        let mut workload = Workload::new(&spec, row.exported_pages, 11).unwrap();
        let (mut ops, mut batch) = (Vec::new(), Vec::new());
        while workload.next_batch(&mut batch, 1000) > 0 {
            ops.append(&mut batch);
        }
        assert_eq!(counts(&row), recount(ops, row.filled_pages), "fill {fill}");
        assert_eq!(f64::from(row.filled_pages), (fill * f64::from(row.exported_pages)).round());
        assert!(row.host_reads > 1000 && row.trims > 500 && row.host_writes == 20_000, "{row:?}");
    }
}

#[test]
fn the_row_counts_every_page_that_a_trace_touches() {
    let folder = tempfile::tempdir().unwrap();
    let requests = mixed_requests(6000);
    let mut experiment = of_trace(&write_trace(&folder, &requests));
    for times in [1, 3] {
        experiment.limit = Limit::Times(times);
        let row = done(&experiment).row;
        let mut ops = Vec::new();
        for _ in 0..times {
            for (op, page, pages) in &requests {
                let kind = match *op {
                    "read" => OpKind::Read,
                    "trim" => OpKind::Trim,
                    _ => OpKind::Write,
                };
                let lpn = |page: u64| (page % u64::from(row.exported_pages)) as u32;
                ops.extend((*page..page + pages).map(|page| PageOp { time_us: 0, lpn: lpn(page), kind, stream: None }));
            }
        }
        assert_eq!(counts(&row), recount(ops, row.filled_pages), "{times} times");
        assert_eq!((row.trace_format.as_str(), row.bad_lines), ("csv", 0));
        assert_eq!(row.duration_s, f64::from(times) * 5.999);
    }
}

#[test]
fn the_write_amplification_is_that_of_the_counts() {
    let row = done(&of_workload("random,writes=30000")).row;
    let programs = row.host_writes + row.copies + row.metadata_pages;
    assert!(row.copies > 10_000, "{row:?}");
    assert_eq!(row.wa, programs as f64 / row.host_writes as f64);
    assert_eq!(row.erases, done(&of_workload("random,writes=30000")).erases.iter().map(|e| u64::from(*e)).sum::<u64>());
}

#[test]
fn the_work_of_a_write_is_what_that_write_caused() {
    let worst = |max_pages_per_write: u32| {
        let mut experiment = of_workload("random,writes=30000,trims=0.02");
        (experiment.max_pages_per_write, experiment.capacity) = (max_pages_per_write, Capacity::Utilization(0.75));
        let row = done(&experiment).row;
        // One at a time, on a disk like that.
        let mut disk = build_disk(&experiment, row.exported_pages).unwrap();
        let work = |disk: &MeasuredDisk| {
            let counters = disk.log().counters();
            (counters.programs(), counters.erases)
        };
        (0..row.exported_pages).for_each(|lpn| disk.fill(Lpn(lpn), &[], Hint::None).unwrap());
        let (mut worst_pages, mut worst_us) = (0, 0.0f64);
        let mut workload = Workload::new(&"random,writes=30000,trims=0.02".parse().unwrap(), row.exported_pages, 1);
        let (workload, mut ops, timing) = (workload.as_mut().unwrap(), Vec::new(), experiment.device.timing);
        while workload.next_batch(&mut ops, 1000) > 0 {
            for op in ops.drain(..) {
                if op.kind == OpKind::Trim {
                    disk.trim(Lpn(op.lpn), op.time_us).unwrap();
                    continue;
                }
                let before = work(&disk);
                let copies = disk.log().counters().copies;
                disk.write(Lpn(op.lpn), &[], Hint::None, op.time_us).unwrap();
                let after = work(&disk);
                let (pages, copies) = (after.0 - before.0, disk.log().counters().copies - copies);
                let us = timing.program_us * (pages - copies) as f64
                    + timing.copy_us() * copies as f64
                    + timing.erase_us * (after.1 - before.1) as f64;
                (worst_pages, worst_us) = (worst_pages.max(pages), worst_us.max(us));
            }
        }
        assert_eq!(row.worst_write_pages, worst_pages, "bound {max_pages_per_write}");
        assert!((row.worst_write_us / worst_us - 1.0).abs() < 0.002, "{} us, not {worst_us}", row.worst_write_us);
        assert!(row.p99_write_us <= row.worst_write_us);
        worst_pages
    };
    for bound in [4, 8, 16] {
        let pages = worst(bound);
        assert!((3..=u64::from(bound)).contains(&pages), "{pages} pages with a bound of {bound}");
    }
    assert!(worst(0) > 4, "all cleaning is done when a segment is opened");
}

/// Erases, copies made by leveling, and the deviation of erase counts of the FMS study's CAT + M6 at 90/10, means of eight
/// seeds.
fn cat_m6_at_90_10(leveling: &str, max_pages_per_write: u32) -> [f64; 3] {
    let source = Source::Workload("hot-cold:90/10,writes=49152,poisson=24609375us".parse().unwrap());
    let device = DeviceSpec::load("intel-series2plus-24mb").unwrap();
    let mut experiment = Experiment { max_pages_per_write, ..Experiment::new(device, source) };
    (experiment.capacity, experiment.reserved_segments) = (Capacity::Pages(5245), 1);
    experiment.selection = "cat:preset=fms,scale=1000s".parse().unwrap();
    experiment.placement = "m6:mean=exact,scale=86400s".parse().unwrap();
    experiment.leveling = leveling.parse().unwrap();
    let mut sums = [0.0; 3];
    for seed in 1..=8 {
        experiment.seed = seed;
        let row = done(&experiment).row;
        let figures = [row.erases as f64, row.leveling_copies as f64, row.erases_deviation];
        sums.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure / 8.0);
    }
    sums
}

#[test]
fn a_swap_costs_what_the_specification_says_and_wears_more_evenly_than_none() {
    // Figures of the independent model for the bounded swap, from 30 erases on.
    let (erases, copies) = (4139.0, 698.0);
    for (max_pages_per_write, copies_off) in [(0, 0.15), (16, 0.30)] {
        let none = cat_m6_at_90_10("none", max_pages_per_write);
        let swap = cat_m6_at_90_10("swap:from=30,rest=10", max_pages_per_write);
        assert_eq!(none[1], 0.0);
        assert!((swap[0] / erases - 1.0).abs() < 0.01, "{} erases, not {erases}", swap[0]);
        assert!((swap[1] / copies - 1.0).abs() < copies_off, "{} copies, not {copies}", swap[1]);
        assert!(swap[2] < none[2], "a deviation of {} instead of {}", swap[2], none[2]);
    }
    let rarely = cat_m6_at_90_10("swap:from=30,rest=100", 0);
    assert!((rarely[0] / erases - 1.0).abs() < 0.01, "{} erases, not {erases}", rarely[0]);
}

#[test]
fn a_source_is_started_over_until_as_much_is_written_as_was_asked() {
    let folder = tempfile::tempdir().unwrap();
    let mut of_trace = of_trace(&write_trace(&folder, &mixed_requests(500)));
    let mut of_workload = of_workload("random,writes=700");
    for experiment in [&mut of_trace, &mut of_workload] {
        for writes in [1, 699, 700, 701, 12_345] {
            experiment.limit = Limit::Writes(writes);
            assert_eq!(done(experiment).row.host_writes, writes);
        }
        experiment.limit = Limit::DeviceWrites(2.5);
        let row = done(experiment).row;
        assert_eq!(row.host_writes, (2.5 * f64::from(row.exported_pages)) as u64);
    }
}

#[test]
fn the_warm_window_starts_at_the_host_write_that_the_row_names() {
    for (workload, warm_up) in [("random", 0.5), ("hot-cold:80/20,reads=0.4,trims=0.02", 0.25), ("zipf:0.99", 0.9)] {
        let mut experiment = of_workload(workload);
        (experiment.limit, experiment.warm_up) = (Limit::Writes(30_001), Some(warm_up));
        let whole = done(&experiment).row;
        assert_eq!(whole.warm_from, (30_001.0 * warm_up) as u64, "{workload}");
        // The same run, ended where the window starts, is what the window leaves out.
        experiment.limit = Limit::Writes(whole.warm_from);
        let before = done(&experiment).row;
        assert_eq!(before.host_writes, whole.warm_from);
        let programs = |row: &ResultRow| row.host_writes + row.copies + row.metadata_pages;
        let warm = (programs(&whole) - programs(&before)) as f64 / (whole.host_writes - before.host_writes) as f64;
        assert_eq!(whole.wa_warm, warm, "{workload}");
        assert_ne!(whole.wa_warm, whole.wa, "{workload}");
    }
}

#[test]
fn without_a_warm_up_the_window_is_the_run() {
    let mut experiment = of_workload("random,writes=20000");
    experiment.warm_up = Some(0.0);
    let row = done(&experiment).row;
    assert_eq!((row.warm_from, row.wa_warm), (0, row.wa));
}

#[test]
fn samples_are_few_and_in_order_and_end_with_the_run() {
    for writes in [1, 100, 5000, 200_000, 3_000_000] {
        let mut experiment = of_workload("hot-cold:90/10,poisson=1ms");
        experiment.limit = Limit::Writes(writes);
        let Outcome { row, series, .. } = done(&experiment);
        assert!((1..=400).contains(&series.len()), "{writes} writes: {} samples", series.len());
        for pair in series.windows(2) {
            assert!(pair[0].host_writes < pair[1].host_writes && pair[0].time_s <= pair[1].time_s, "{pair:?}");
            assert!(pair[0].erases <= pair[1].erases);
        }
        let last = series.last().unwrap();
        assert_eq!((last.host_writes, last.erases, last.time_s), (writes, row.erases, row.duration_s));
        assert_eq!(last.utilization, row.utilization);
        // Each sample tells of what lies between it and the one before.
        let mut before = 0;
        let programs: f64 = series
            .iter()
            .map(|sample| sample.wa * (sample.host_writes - std::mem::replace(&mut before, sample.host_writes)) as f64)
            .sum();
        let expected = row.wa * row.host_writes as f64;
        assert!((programs / expected - 1.0).abs() < 1e-9, "{programs}, not {expected}");
    }
}

#[test]
fn equal_seeds_give_equal_results() {
    for (selection, placement) in [("greedy", "m1"), ("random", "m4"), ("d-choices:d=3", "m6"), ("cat", "dac")] {
        let mut experiment = of_workload("zipf:0.9,writes=20000,reads=0.1,trims=0.01,poisson=2ms");
        experiment.selection = selection.parse().unwrap();
        experiment.placement = placement.parse().unwrap();
        let (first, second) = (done(&experiment), done(&experiment));
        assert_eq!(timeless(first.row.clone()), timeless(second.row), "{selection} + {placement}");
        assert_eq!((first.series, first.victims, first.erases), (second.series, second.victims, second.erases));
        // Prepared once and run twice is the same.
        let prepared = prepare(&experiment).unwrap();
        for _ in 0..2 {
            let again = run_prepared(&experiment, &prepared, &mut |_| true).unwrap();
            assert_eq!(timeless(first.row.clone()), timeless(again.row));
        }
    }
}

#[test]
fn the_seed_reaches_workloads_and_random_policies_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_trace(&folder, &mixed_requests(20_000));
    let with_seed = |mut experiment: Experiment, selection: &str, seed| {
        experiment.selection = selection.parse().unwrap();
        experiment.seed = seed;
        ResultRow { seed: 0, ..timeless(done(&experiment).row) }
    };
    for selection in ["random", "d-choices:d=2"] {
        let row = |seed| with_seed(of_trace(&path), selection, seed);
        assert_ne!(row(1), row(2), "{selection} on a trace");
        assert_eq!(row(1), row(1), "{selection} on a trace");
    }
    for selection in ["greedy", "cat", "fifo"] {
        let row = |seed| with_seed(of_trace(&path), selection, seed);
        assert_eq!(row(1), row(2), "{selection} on a trace");
        let row = |seed| with_seed(of_workload("random,writes=20000"), selection, seed);
        assert_ne!(row(1), row(2), "{selection} on a workload");
    }
}

#[test]
fn a_run_ends_when_progress_says_so_and_names_the_writes_done() {
    let experiment = of_workload("random,writes=100000");
    let mut seen = Vec::new();
    let stopped = run(&experiment, &mut |step| {
        assert_eq!(step.expected, Some(100_000));
        seen.push(step.writes);
        seen.len() < 3
    });
    let Err(error @ LabError::Interrupted { writes }) = stopped else { panic!("{stopped:?}") };
    assert_eq!((seen.len(), writes), (3, seen[2]));
    assert!(seen.is_sorted() && (1..100_000).contains(&writes), "{seen:?}");
    assert_eq!(error.to_string(), format!("stopped by request after {writes} host writes"));
}

#[test]
fn a_workload_without_end_needs_a_limit() {
    let mut experiment = of_workload("random");
    let what = error(&experiment).to_string();
    assert!(what.starts_with("workload = random") && what.contains("has no end: give it writes=N"), "{what}");
    experiment.limit = Limit::Times(2);
    assert!(matches!(error(&experiment), LabError::Value { what: "workload", .. }));
    experiment.limit = Limit::Writes(10);
    assert_eq!(done(&experiment).row.host_writes, 10);
}

#[test]
fn a_trace_without_writes_is_nothing_to_measure() {
    let folder = tempfile::tempdir().unwrap();
    for (requests, problem) in
        [(&[][..], "holds no request"), (&[("read", 0, 1), ("trim", 3, 1)][..], "holds no write")]
    {
        let path = write_trace(&folder, requests);
        let what = error(&of_trace(&path)).to_string();
        assert!(what.contains("requests.csv") && what.contains(problem), "{what}");
    }
    let empty = folder.path().join("empty.csv");
    std::fs::write(&empty, "").unwrap();
    let what = error(&of_trace(&empty));
    assert!(matches!(what, LabError::Trace(_)) && what.to_string().contains("empty.csv"), "{what}");
    let missing = folder.path().join("missing.csv");
    assert!(error(&of_trace(&missing)).to_string().contains("missing.csv"));
}

#[test]
fn a_source_that_ends_early_says_how_much_was_done_and_asked() {
    // It would be started over for ever.
    let mut experiment = of_workload("random,writes=0");
    experiment.limit = Limit::Writes(500);
    let short = error(&experiment);
    assert!(matches!(short, LabError::Short { what: "workload", done: 0, asked: 500, .. }), "{short:?}");
    let what = short.to_string();
    assert!(what.contains("ended after 0 host page writes of 500 asked"), "{what}");
}

#[test]
fn a_trace_past_the_end_of_the_device_says_which_request() {
    let folder = tempfile::tempdir().unwrap();
    let mut experiment = of_trace(&write_trace(&folder, &[("write", 5, 1), ("write", 100_000, 1)]));
    let Source::Trace(source) = &mut experiment.source else { unreachable!() };
    source.addresses = AddressChoice::Direct;
    let what = error(&experiment).to_string();
    assert!(what.contains("request 2") && what.contains("past the end of the device"), "{what}");
}

#[test]
fn shares_that_are_none_are_refused_by_name() {
    type Set = fn(&mut Experiment, f64);
    let fields: [(&str, Set, f64); 3] = [
        ("fill", |experiment, share| experiment.fill = share, 1.5),
        ("warm-up", |experiment, share| experiment.warm_up = Some(share), 1.0),
        ("worn share", |experiment, share| experiment.worn_share = share, -0.1),
    ];
    for (name, set, value) in fields {
        for value in [value, f64::NAN] {
            let mut experiment = of_workload("random,writes=10");
            set(&mut experiment, value);
            let what = error(&experiment).to_string();
            assert!(what.starts_with(name), "{name} = {value}: {what}");
        }
    }
}

#[test]
fn a_trace_sizes_the_smallest_device_that_holds_its_pages() {
    let folder = tempfile::tempdir().unwrap();
    let requests = mixed_requests(3000);
    let path = write_trace(&folder, &requests);
    let written = requests.iter().filter(|(op, ..)| *op == "write");
    let written: HashSet<u64> = written.flat_map(|(_, page, pages)| *page..page + pages).collect();
    let shares = [
        (Capacity::Utilization(0.9), 0.9),
        (Capacity::Utilization(0.5), 0.5),
        (Capacity::OverProvisioning(0.28), 1.0 / 1.28),
        (Capacity::Largest(1.0), 1.0),
    ];
    for (capacity, share) in shares {
        for reserved_segments in [0, 3] {
            let mut experiment = of_trace(&path);
            (experiment.capacity, experiment.reserved_segments) = (capacity, reserved_segments);
            size_from_trace(&mut experiment).unwrap();
            let pages = written.len() as u32;
            assert!(matches!(experiment.capacity, Capacity::Pages(found) if found == pages), "{experiment:?}");
            // Whether a device of so many segments would do.
            let holds = |segments: u32| {
                let mut device = experiment.device.clone();
                device.segments = segments;
                let data_pages = f64::from((segments - reserved_segments) * device.pages_per_segment);
                // Every placement of the tables has at most eight streams by default.
                let limit = experiment.config().limit_pages(&device.geometry().unwrap(), 8);
                f64::from(pages) <= share * data_pages && limit.is_ok_and(|limit| limit >= pages)
            };
            assert!(holds(experiment.device.segments), "{experiment:?}");
            assert!(!holds(experiment.device.segments - 1), "{experiment:?}");
            let row = done(&experiment).row;
            assert_eq!((row.exported_pages, row.read_only_pages), (pages, 0));
        }
    }
}

#[test]
fn the_file_of_a_trace_is_not_needed_any_more_once_it_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_trace(&folder, &mixed_requests(3000));
    for is_sized in [false, true] {
        let mut experiment = of_trace(&path);
        experiment.limit = Limit::Times(3);
        let prepared = if is_sized { size_from_trace(&mut experiment) } else { prepare(&experiment) }.unwrap();
        let wanted = done(&experiment);
        assert_eq!(wanted.row.trace_xxh3, format!("{:016x}", margay_trace::hash_file(&path).unwrap()));
        let away = folder.path().join("away");
        std::fs::rename(&path, &away).unwrap();
        let found = run_prepared(&experiment, &prepared, &mut |_| true).unwrap();
        std::fs::rename(&away, &path).unwrap();
        assert_eq!(timeless(found.row), timeless(wanted.row), "sized from the trace: {is_sized}");
        assert_eq!((found.series, found.erases), (wanted.series, wanted.erases));
    }
}

#[test]
fn only_a_trace_sizes_a_device() {
    let what = size_from_trace(&mut of_workload("random")).unwrap_err().to_string();
    assert!(what.contains("only a trace can size the device"), "{what}");
}

#[test]
fn what_knows_the_future_costs_less_than_what_infers_it_and_is_the_same_in_every_run() {
    let wa = |placement: &str, source: &str, max_pages_per_write| {
        let mut experiment = of_workload(source);
        (experiment.device.segments, experiment.max_pages_per_write) = (256, max_pages_per_write);
        (experiment.placement, experiment.limit) = (placement.parse().unwrap(), Limit::DeviceWrites(8.0));
        run(&experiment, &mut |_| true).unwrap().row.wa_warm
    };
    for (source, max_pages_per_write) in [("hot-cold:90/10", 0), ("hot-cold:90/10", 16), ("zipf:1.0,trims=0.05", 0)] {
        let (one, inferred) = (wa("m1", source, max_pages_per_write), wa("sepbit", source, max_pages_per_write));
        let known = wa("fk", source, max_pages_per_write);
        assert!(known < 0.9 * inferred && known < 0.8 * one, "{source}: {one} {inferred} {known}");
        assert_eq!(known, wa("fk", source, max_pages_per_write));
        assert_eq!(wa("fk:classes=1", source, max_pages_per_write), one, "one class is no separation");
    }
}

#[test]
fn a_run_whose_future_does_not_fit_into_memory_is_refused_for_oracles_alone() {
    let mut experiment = of_workload("random");
    (experiment.placement, experiment.capacity) = ("fk".parse().unwrap(), Capacity::Utilization(0.8));
    experiment.limit = Limit::Writes(5_000_000_000);
    let error = run(&experiment, &mut |_| true).unwrap_err().to_string();
    assert!(
        error.contains("fk") && error.contains("up to 5000000000 writes") && error.contains("19073 MiB"),
        "{error}"
    );
    experiment.placement = "sepbit".parse().unwrap();
    let mut steps = 0;
    let stopped = run(&experiment, &mut |_| {
        steps += 1;
        steps < 2
    });
    assert!(matches!(stopped, Err(LabError::Interrupted { .. })), "others run");
}

#[test]
fn streams_of_a_workload_or_of_a_trace_keep_its_groups_of_pages_apart() {
    let spec: WorkloadSpec = "hot-cold:95/5,writes=30000".parse().unwrap();
    let wa = |placement: &str, source: Source| {
        let mut experiment = of_workload("random");
        (experiment.source, experiment.device.segments) = (source, 256);
        (experiment.placement, experiment.capacity) = (placement.parse().unwrap(), Capacity::Pages(3600));
        run(&experiment, &mut |_| true).unwrap().row.wa
    };
    let workload = || Source::Workload(spec.clone());
    let (one, two) = (wa("m1", workload()), wa("hinted:handles=2", workload()));
    assert!(two < 0.8 * one, "{one} {two}");
    let (handle, copies) = (wa("hinted:handles=1", workload()), wa("sepgc", workload()));
    assert!((handle / copies - 1.0).abs() < 0.03, "one handle separates copies alone: {handle} {copies}");

    // The same workload as a trace with a column of streams, and with one in which the column is empty.
    let folder = TempDir::new().unwrap();
    let traced = |names_streams: bool| {
        let mut text = String::from("time_us,op,device,offset_bytes,len_bytes,stream\n");
        for op in Workload::new(&spec, 3600, 1).unwrap() {
            let stream = op.stream.filter(|_| names_streams).map_or_else(String::new, |stream| stream.to_string());
            writeln!(text, "0,write,0,{},4096,{stream}", u64::from(op.lpn) * PAGE_BYTES).unwrap();
        }
        let path = folder.path().join(format!("{names_streams}.csv"));
        std::fs::write(&path, text).unwrap();
        of_trace(&path).source
    };
    assert_eq!(wa("hinted:handles=2", traced(true)), two);
    assert_eq!(wa("hinted:handles=2", traced(false)), handle);
}

#[test]
fn maps_show_the_segments_over_a_run() {
    let mut experiment = of_workload("hot-cold:90/10");
    experiment.limit = Limit::DeviceWrites(5.0);
    let outcome = run(&experiment, &mut |_| true).unwrap();
    let last = outcome.maps.last().unwrap();
    assert!(outcome.maps.len() > 20 && outcome.maps.len() <= 129, "{}", outcome.maps.len());
    assert!(outcome.maps.windows(2).all(|pair| pair[0].host_writes < pair[1].host_writes));
    assert_eq!(last.host_writes, outcome.row.host_writes);
    assert_eq!(last.erases, outcome.erases.iter().map(|erases| *erases as f32).collect::<Vec<_>>());
    let valid: f64 = last.valid.iter().map(|valid| f64::from(*valid)).sum();
    // Pages of open segments that are not yet written count as valid.
    assert!((valid / 64.0 - outcome.row.utilization).abs() < 2.0 / 64.0, "{valid}");
    assert!(last.streams.contains(&0) && last.streams.contains(&255), "{:?}", last.streams);

    // Two neighbours are one band when there are more segments than bands.
    experiment.device.segments = 512;
    let outcome = run(&experiment, &mut |_| true).unwrap();
    let last = outcome.maps.last().unwrap();
    let pairs = outcome.erases.chunks(2).map(|pair| (pair[0] + pair[1]) as f32 / 2.0).collect::<Vec<_>>();
    assert_eq!(last.erases, pairs);
}
