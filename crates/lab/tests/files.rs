//! File benchmarks against the independent model of the MODA paper's specification, and our own allocator against MODA.

use margay_fs::AllocatorSpec;
use margay_lab::{FileDevice, FileRow, FileRun, LabError, run_benchmark_while};
use margay_workload::FileMix;

fn run(allocator: &str, mix: &str, segments: u32, seed: u64) -> FileRow {
    let spec: AllocatorSpec = allocator.parse().unwrap();
    let mut device = FileDevice::of_the_paper(spec).unwrap();
    device.device.segments = segments;
    let mix: FileMix = mix.parse().unwrap();
    let mut run = FileRun::new(&device).unwrap();
    run.run(&mix.steps(seed)).unwrap();
    run.finish(&mix.to_string(), seed).unwrap()
}

#[test]
fn a_segment_that_loses_its_last_page_while_it_is_full_is_erased_at_once() {
    // Before, with the segment not sealed yet, it was left for the cleaning: 993, 589, 654 and 335 erases.
    for (allocator, mix, erases) in [
        ("dac", "phone", 844.0),
        ("dac-static", "phone", 438.0),
        ("dac", "recorder", 599.0),
        ("dac-static", "recorder", 278.0),
    ] {
        let row = run(allocator, mix, 3712, 1);
        let off = row.measured_erases as f64 / erases - 1.0;
        assert!(off.abs() < 0.015, "{mix}, {allocator}: {} erases, the model has {erases}", row.measured_erases);
    }
}

/// Seconds of erases and copies of the explicit cleaning, mean of three seeds.
fn cleaning_s(allocator: &str, mix: &str) -> f64 {
    let segments = if mix.contains("movie+") { 4096 } else { 3712 };
    (1..=3).map(|seed| run(allocator, mix, segments, seed).cleaning_s).sum::<f64>() / 3.0
}

#[test]
fn our_own_allocator_costs_no_more_than_moda_and_30_percent_less_where_files_are_small_or_mixed() {
    for mix in ["camera", "movie", "fax", "postmark", "andrew"] {
        let (ours, moda) = (cleaning_s("predictive", mix), cleaning_s("moda", mix));
        assert!(ours <= moda, "{mix}: {ours} s, MODA {moda} s");
    }
    for mix in ["phone", "recorder", "camera+phone", "movie+recorder+postmark"] {
        let (ours, moda) = (cleaning_s("predictive", mix), cleaning_s("moda", mix));
        assert!(ours <= 0.7 * moda, "{mix}: {ours} s, MODA {moda} s");
    }
}

#[test]
fn a_benchmark_ends_when_it_is_told_to() {
    let device = FileDevice::of_the_paper("moda".parse().unwrap()).unwrap();
    let steps = std::cell::Cell::new(0);
    let keep_on = || {
        steps.set(steps.get() + 1);
        steps.get() < 100
    };
    let stopped = run_benchmark_while(&device, &"postmark".parse().unwrap(), 1, &keep_on);
    assert!(matches!(stopped, Err(LabError::Interrupted { .. })));
    assert_eq!(steps.get(), 100);
}
