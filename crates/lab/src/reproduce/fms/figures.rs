//! The figures of the study, and the claims that its text makes about them.

use super::{INITIAL_PAGES, PLACEMENTS, POLICIES, TABLES, base, of, pentium, pentium_bytes_per_s, with, workload};
use crate::experiment::{AddressChoice, Capacity, Experiment, Limit, Source, TraceSource};
use crate::reproduce::{Axis, Basis, Bound, Claim, Curve, Figure, Point, Reproduction, Watcher, run_cells};
use crate::{LabError, Outcome, ResultRow};
use margay_media::DeviceSpec;
use std::ops::Range;
use std::path::Path;

/// A point of a figure to be measured: the curve it belongs to, its x, and what to run.
type Cell = (String, f64, Experiment);

/// Measures the cells of a figure and returns the outcomes of each.
fn sweep(
    figure: &mut Figure,
    cells: &[Cell],
    seeds: &Range<u64>,
    watcher: &dyn Watcher,
    measure: impl Fn(&ResultRow) -> f64,
) -> Result<Vec<Vec<Outcome>>, LabError> {
    let experiments: Vec<_> = cells.iter().map(|(_, _, experiment)| experiment.clone()).collect();
    let outcomes = run_cells(&experiments, seeds.clone(), watcher)?;
    for ((curve, x, _), outcomes) in cells.iter().zip(&outcomes) {
        let values: Vec<_> = outcomes.iter().map(|outcome| measure(&outcome.row)).collect();
        figure.add(curve, Point::mean(*x, &values));
    }
    Ok(outcomes)
}

fn locality_text(hot: u32) -> String {
    if hot == 50 { workload("random") } else { workload(&format!("hot-cold:{hot}/{}", 100 - hot)) }
}

/// Throughput over the locality and the utilization, with the points that Tables 4 and 6 have.
pub(super) fn locality_and_utilization(
    seeds: &Range<u64>,
    watcher: &dyn Watcher,
    out: &mut Reproduction,
) -> Result<(), LabError> {
    const KILO: f64 = 1000.0;
    let published = |xs: &[(f64, usize)], policy: usize| {
        let points = xs.iter().map(|(x, table)| Point::new(*x, TABLES[*table].throughput[policy] / KILO)).collect();
        Curve::published(format!("{}, published", POLICIES[policy].name), points)
    };
    let throughput = |row: &ResultRow| pentium_bytes_per_s(row) / KILO;
    let mut cells = Vec::new();
    for hot in [50u32, 60, 70, 80, 90, 95] {
        let base = base(&locality_text(hot))?;
        for policy in &POLICIES {
            cells.push((policy.name.to_string(), f64::from(hot), with(&base, policy.selection, policy.placement)?));
        }
    }
    let mut figure = Figure::new(
        "fig12-locality",
        "Fig. 12: throughput over locality (a Pentium, modelled)",
        "x % of the writes go to 100 - x % of the data (50: random)",
        "KB/s",
        Axis::Linear,
    );
    let outcomes = sweep(&mut figure, &cells, seeds, watcher, throughput)?;
    // Table 6 has random and 90/10.
    figure.curves.extend((0..POLICIES.len()).map(|policy| published(&[(50.0, 1), (90.0, 2)], policy)));
    out.figures.push(figure);
    out.rows.extend(outcomes.into_iter().flatten().map(|outcome| outcome.row));

    let mut cells = Vec::new();
    for percent in [50u32, 60, 70, 80, 90, 95] {
        let mut base = base(&workload("hot-cold:90/10"))?;
        base.capacity = Capacity::Pages((188 * 31) * percent / 100);
        for policy in &POLICIES {
            cells.push((policy.name.to_string(), f64::from(percent), with(&base, policy.selection, policy.placement)?));
        }
    }
    let mut figure = Figure::new(
        "fig13-utilization",
        "Fig. 13: throughput over utilization, locality 90/10 (a Pentium, modelled)",
        "% of 188 segments that hold data",
        "KB/s",
        Axis::Linear,
    );
    let outcomes = sweep(&mut figure, &cells, seeds, watcher, throughput)?;
    let of_tables = 100.0 * f64::from(INITIAL_PAGES) / f64::from(188 * 31);
    figure.curves.extend((0..POLICIES.len()).map(|policy| published(&[(of_tables, 2)], policy)));
    out.figures.push(figure);
    out.rows.extend(outcomes.into_iter().flatten().map(|outcome| outcome.row));
    Ok(())
}

/// Erases of every selection with four placements over locality (T's Fig. 18), and the ranges that its text has.
pub(super) fn pairs(seeds: &Range<u64>, watcher: &dyn Watcher, out: &mut Reproduction) -> Result<(), LabError> {
    // M6 over M1 and over M4, fewer erases in %: at 70/30 and at 95/5.
    let published = [
        ("Greedy", [0.98, 39.52], [1.37, 20.48]),
        ("Cost-benefit", [6.02, 66.93], [4.96, 32.70]),
        ("CAT", [5.63, 69.85], [5.04, 41.62]),
    ];
    let localities = [60u32, 70, 80, 90, 95];
    for (at, (policy, (name, over_m1, over_m4))) in POLICIES.iter().zip(published).enumerate() {
        let mut cells = Vec::new();
        for hot in localities {
            let base = base(&locality_text(hot))?;
            for (placement, text) in [PLACEMENTS[0], PLACEMENTS[3], PLACEMENTS[4], PLACEMENTS[5]] {
                cells.push((placement.to_string(), f64::from(hot), with(&base, policy.selection, text)?));
            }
        }
        let mut figure = Figure::new(
            format!("fig18-{}", name.to_lowercase()),
            format!("Fig. 18: {name}, erases with four placements"),
            "x % of the writes go to 100 - x % of the data",
            "segments erased",
            Axis::Linear,
        );
        let outcomes = sweep(&mut figure, &cells, seeds, watcher, |row| row.erases as f64)?;
        let placement = policy.name.rsplit(' ').next().unwrap_or_default();
        let point = Point::new(90.0, pentium(TABLES[2].erases[at]));
        figure.curves.push(Curve::published(format!("{placement}, published"), vec![point]));
        out.figures.push(figure);
        let erases = |hot: u32, placement: &str| {
            let cell = cells.iter().position(|(name, x, _)| name == placement && *x == f64::from(hot));
            &outcomes[cell.expect("every pair was run at every locality")]
        };
        for (other, ends) in [("M1", over_m1), ("M4", over_m4)] {
            for (hot, printed, which, points) in [(70, ends[0], "lower", 1.0), (95, ends[1], "upper", 2.5)] {
                let claim = Claim::new(
                    "T Fig. 18",
                    format!("{name}, locality {hot}/{}", 100 - hot),
                    format!("% fewer erases, M6 than {other}"),
                )
                .published(printed.to_string())
                .held(Basis::Published, printed, Bound::Absolute(points))
                .above(0.0)
                .note(format!("held out: the {which} end of the range that the text gives for localities above 60/40"));
                let fewer: Vec<f64> = erases(hot, "M6")
                    .iter()
                    .zip(erases(hot, other))
                    .map(|(m6, other)| 100.0 * (1.0 - m6.row.erases as f64 / other.row.erases as f64))
                    .collect();
                out.comparisons.push(claim.judge(crate::reproduce::mean_and_deviation(&fewer)));
            }
        }
        out.rows.extend(outcomes.into_iter().flatten().map(|outcome| outcome.row));
    }
    Ok(())
}

/// The real week on a flash of the given size, segment size and share of data: 1 KiB pages, folded onto the flash.
fn hp_base(
    (path, passes): (&Path, u32),
    flash_mib: u64,
    segment_kib: u32,
    percent: f64,
) -> Result<Experiment, LabError> {
    let mut device = DeviceSpec::load("intel-series2plus-24mb")?;
    device.page_bytes = 1024;
    device.pages_per_segment = segment_kib;
    let device = device.with_bytes(flash_mib << 20)?;
    let options = margay_trace::ReadOptions::default();
    let source = TraceSource { path: path.into(), held: None, options, addresses: AddressChoice::Fold };
    let mut experiment = Experiment::new(device, Source::Trace(source));
    experiment.reserved_segments = 1;
    experiment.limit = Limit::Times(passes.max(1));
    let limit = experiment.config().limit_pages(&experiment.device.geometry()?, 3)?;
    let data_pages = f64::from(experiment.data_pages()?);
    experiment.capacity = Capacity::Pages(((percent / 100.0 * data_pages) as u32).min(limit));
    Ok(experiment)
}

const ONE_WEEK: &str = "other traces than the papers': one week of the same machine, both disks";

/// Figures 14 to 17: the real week.
pub(super) fn hp(path: &Path, passes: u32, watcher: &dyn Watcher, out: &mut Reproduction) -> Result<(), LabError> {
    let trace = (path, passes);
    let start = hp_base(trace, 24, 128, 85.0)?;
    let mut cells = Vec::new();
    for separate_read_only in [false, true] {
        for policy in &POLICIES {
            for (number, (_, placement)) in PLACEMENTS.iter().enumerate() {
                let mut cell = with(&start, policy.selection, placement)?;
                cell.separate_read_only = separate_read_only;
                let name = selection_name(policy.name);
                let curve = if separate_read_only { format!("{name}, read-only apart") } else { name.to_string() };
                cells.push((curve, number as f64, cell));
            }
        }
    }
    let names = PLACEMENTS.map(|(name, _)| name.to_string()).to_vec();
    let title = "Fig. 14: a real week, 85 % full (one run: the trace leaves nothing to chance)";
    let mut figure = Figure::new("fig14-hp", title, "placement", "segments erased", Axis::Named(names));
    let outcomes = sweep(&mut figure, &cells, &(1..2), watcher, |row| row.erases as f64)?;
    out.figures.push(figure);
    hp_claims(&outcomes, out);
    out.rows.extend(outcomes.into_iter().flatten().map(|outcome| outcome.row));
    let dims: [(&str, &str, &str, Axis, &[f64]); 3] = [
        (
            "fig15-hp-utilization",
            "Fig. 15: utilization, a real week",
            "% full",
            Axis::Linear,
            &[60.0, 70.0, 80.0, 85.0, 90.0, 95.0],
        ),
        (
            "fig16-hp-flash-size",
            "Fig. 16: size of the flash, a real week",
            "MiB",
            Axis::Log2,
            &[16.0, 24.0, 32.0, 48.0, 64.0],
        ),
        (
            "fig17-hp-segment-size",
            "Fig. 17: size of a segment, a real week",
            "KiB",
            Axis::Log2,
            &[16.0, 32.0, 64.0, 128.0, 256.0],
        ),
    ];
    for (name, title, x, axis, values) in dims {
        let mut cells = Vec::new();
        for value in values {
            let at = match name {
                "fig15-hp-utilization" => hp_base(trace, 24, 128, *value)?,
                "fig16-hp-flash-size" => hp_base(trace, *value as u64, 128, 85.0)?,
                _ => hp_base(trace, 24, *value as u32, 85.0)?,
            };
            for (placement, text) in [PLACEMENTS[0], PLACEMENTS[3], PLACEMENTS[4], PLACEMENTS[5]] {
                let mut cell = with(&at, POLICIES[2].selection, text)?;
                cell.separate_read_only = true;
                cells.push((format!("CAT + {placement}"), *value, cell));
            }
        }
        // Segments of different sizes are compared by the bytes they erase.
        let erased_mib = |row: &ResultRow| {
            row.erases as f64 * f64::from(row.pages_per_segment) * f64::from(row.page_bytes) / 1_048_576.0
        };
        let mut figure = Figure::new(name, title, x, "MiB erased", axis);
        let outcomes = sweep(&mut figure, &cells, &(1..2), watcher, erased_mib)?;
        if name == "fig15-hp-utilization" {
            over_utilization(&figure, out);
        }
        out.figures.push(figure);
        out.rows.extend(outcomes.into_iter().flatten().map(|outcome| outcome.row));
    }
    Ok(())
}

fn selection_name(policy: &str) -> &str {
    policy.split(" + ").next().unwrap_or(policy)
}

/// What the text says of Fig. 14, all of it differences of two counts.
fn hp_claims(outcomes: &[Vec<Outcome>], out: &mut Reproduction) {
    type Count = fn(&ResultRow) -> f64;
    let (erases, copies): (Count, Count) = (|row| row.erases as f64, |row| row.copies as f64);
    let (m1, m4, m5, m6) = (0, 3, 4, 5);
    let published = [["60.04", "86.04"], ["64.99", "93.44"], ["63.56", "91.88"]];
    for (at, (policy, saved)) in POLICIES.iter().zip(published).enumerate() {
        let cell =
            |apart: usize, placement: usize| &outcomes[(apart * POLICIES.len() + at) * PLACEMENTS.len()..][placement];
        let mut add =
            |cell_text: String, measure: &str, published: &str, count: Count, a: &[Outcome], b: &[Outcome]| {
                let claim = Claim::new("T Fig. 14", cell_text, format!("% fewer {measure}"));
                let fewer = 100.0 * (1.0 - of(a, count).0 / of(b, count).0.max(1.0));
                let claim = claim.published(published).above(0.0).note(ONE_WEEK);
                out.comparisons.push(claim.judge((fewer, 0.0)));
            };
        let name = selection_name(policy.name);
        let apart = format!("{name} + M1, read-only apart against not");
        add(apart.clone(), "erases", saved[0], erases, cell(1, m1), cell(0, m1));
        add(apart, "copies", saved[1], copies, cell(1, m1), cell(0, m1));
        let separate = format!("{name}, read-only apart");
        add(separate.clone(), "erases, M6 than M4", "5.55 to 5.64", erases, cell(1, m6), cell(1, m4));
        add(separate.clone(), "copies, M6 than M4", "28 to 31", copies, cell(1, m6), cell(1, m4));
        add(separate, "erases, M6 than M5", "M5 is worse", erases, cell(1, m6), cell(1, m5));
    }
}

/// What the text says of Fig. 15: the least and the greatest gain over all utilizations.
fn over_utilization(figure: &Figure, out: &mut Reproduction) {
    let points = |placement: &str| {
        let curve = figure.curve(&format!("CAT + {placement}"));
        curve.map_or(Vec::new(), |curve| curve.points.iter().map(|point| point.y).collect())
    };
    let m6 = points("M6");
    for (other, [low, high]) in [("M1", ["10.2", "75.6"]), ("M4", ["0.2", "8.9"])] {
        let fewer = || m6.iter().zip(points(other)).map(|(m6, other)| 100.0 * (1.0 - m6 / other));
        let least = fewer().fold(f64::INFINITY, f64::min);
        let greatest = fewer().fold(f64::NEG_INFINITY, f64::max);
        for (which, printed, measured) in [("least", low, least), ("greatest", high, greatest)] {
            let claim = Claim::new(
                "T Fig. 15",
                format!("CAT, read-only apart, {which} over 60 to 95 % full"),
                format!("% fewer erases, M6 than {other}"),
            );
            let claim = claim.published(printed).above(0.0).note(ONE_WEEK);
            out.comparisons.push(claim.judge((measured, 0.0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_week_is_replayed_as_often_as_asked_and_once_at_least() {
        for (asked, times) in [(0, 1), (1, 1), (6, 6)] {
            let experiment = hp_base((Path::new("week.srt"), asked), 24, 128, 85.0).unwrap();
            assert_eq!(experiment.limit, Limit::Times(times));
        }
    }
}
