//! The Flash Memory Server study: Chiang and Chang 1999 (J), its technical report (T) and the earlier report
//! (R), by the reading of shared/specs/fms.md (docs/reproduction.md explains it).

use super::{Bound, Comparison, Figure, Reproduction, Watcher, mean_and_deviation, run_cells};
use crate::experiment::{AddressChoice, Capacity, Experiment, Source, TraceSource};
use crate::{LabError, Outcome, ResultRow};
use margay_media::DeviceSpec;
use std::path::PathBuf;

/// Initial data in pages: 0.9 x (191 - 3) x 31, R's "20.5 MB".
const INITIAL_PAGES: u32 = 5245;
/// 192 MiB in pages of 4 KiB.
const WRITES: u64 = 49_152;
/// Mean of the Poisson arrivals: two weeks / 49152 writes.
const GAP: &str = "24609375us";

/// A policy of the study: name in the papers, selection, placement.
struct Policy {
    name: &'static str,
    selection: &'static str,
    placement: &'static str,
}

const POLICIES: [Policy; 3] = [
    Policy { name: "Greedy + M1", selection: "greedy", placement: "m1" },
    Policy { name: "Cost-benefit + M4", selection: "cost-benefit:scale=1000s", placement: "m4" },
    Policy { name: "CAT + M6", selection: "cat:scale=1000s", placement: "m6:mean=exact,scale=86400s" },
];

const PLACEMENTS: [(&str, &str); 6] = [
    ("M1", "m1"),
    ("M2", "m2"),
    ("M3", "m3:scale=86400s"),
    ("M4", "m4"),
    ("M5", "m5"),
    ("M6", "m6:mean=exact,scale=86400s"),
];

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seeds per cell.
    pub seeds: u32,
    /// The real trace for figures 14 to 17.
    pub hp_trace: Option<PathBuf>,
    /// Only what has published figures.
    pub tables_only: bool,
}

fn base(workload: &str) -> Result<Experiment, LabError> {
    let device = DeviceSpec::load("intel-series2plus-24mb")?;
    let mut experiment = Experiment::new(device, Source::Workload(workload.parse()?));
    experiment.capacity = Capacity::Pages(INITIAL_PAGES);
    experiment.reserved_segments = 1;
    Ok(experiment)
}

fn with(base: &Experiment, selection: &str, placement: &str) -> Result<Experiment, LabError> {
    Ok(Experiment { selection: selection.parse()?, placement: placement.parse()?, ..base.clone() })
}

fn workload(pattern: &str) -> String {
    format!("{pattern},writes={WRITES},poisson={GAP}")
}

fn of(outcomes: &[Outcome], measure: impl Fn(&ResultRow) -> f64) -> (f64, f64) {
    mean_and_deviation(&outcomes.iter().map(|outcome| measure(&outcome.row)).collect::<Vec<_>>())
}

/// Bytes per second on the Pentium by the spec's time model (sec. 7); CAT scans hot degrees when it copies.
fn pentium_bytes_per_s(row: &ResultRow) -> f64 {
    const ERASE_S: f64 = 0.6886;
    const WRITE_S: f64 = 8.512e-3;
    const COPY_S: f64 = 10.90e-3;
    const SCAN_S: f64 = 98.9e-3;
    let scans = if row.selection.starts_with("cat") && row.copies > 0 { row.erases as f64 * SCAN_S } else { 0.0 };
    let total = row.host_writes as f64 * WRITE_S + row.erases as f64 * ERASE_S + row.copies as f64 * COPY_S + scans;
    row.host_writes as f64 * 4096.0 / total
}

/// Every program takes a page that an erase has freed: host writes + copies = 31 erases + free pages at the start -
/// free pages at the end (spec sec. 8). The engine's audit checks this too; here it is checked on the figures
/// themselves.
fn check_conservation(row: &ResultRow) -> Result<(), LabError> {
    let started_free = 31 * 191 - i64::from(INITIAL_PAGES);
    let programs = (row.host_writes + row.copies) as i64;
    let ended_free = 31 * row.erases as i64 + started_free - programs;
    // At the low-water mark 2 to 3 segments are free, and up to 2 are open.
    if (0..=31 * 6).contains(&ended_free) {
        return Ok(());
    }
    Err(LabError::Value {
        what: "free pages at the end",
        value: ended_free.to_string(),
        problem: format!("pages were lost or won under {} + {}", row.selection, row.placement),
    })
}

struct Published {
    pattern: &'static str,
    title: &'static str,
    /// Per policy: erases and copies on 486 / Pentium / simulated, D on 486 / Pentium, Pentium bytes/s.
    erases: [&'static str; 3],
    copies: [&'static str; 3],
    wear: [&'static str; 3],
    throughput: [f64; 3],
    /// The erases and the deviation D that are wanted, with the bound on erases.
    wanted: [f64; 3],
    wanted_wear: [f64; 3],
    bound: Bound,
    wear_bound: Bound,
}

const TABLES: [Published; 3] = [
    Published {
        pattern: "sequential",
        title: "sequential",
        erases: ["1567 / 1567 / 1567", "1568 / 1568 / 1568", "1568 / 1568 / 1568"],
        copies: ["0", "0", "0"],
        wear: ["2.63 / 2.63", "2.64 / 2.64", "2.64 / 2.64"],
        throughput: [134_441.0, 134_334.0, 133_950.0],
        wanted: [1567.0, 1568.0, 1568.0],
        wanted_wear: [2.633, 2.6355, 2.6355],
        bound: Bound::Exact(0.0),
        wear_bound: Bound::Exact(0.0005),
    },
    Published {
        pattern: "random",
        title: "random",
        erases: ["7103 / 7103 / 7075", "7252 / 7265 / 7237", "7290 / 7241 / 7295"],
        copies: ["171624 / 171624 / 170735", "176230 / 176634 / 175769", "177414 / 175891 / 177562"],
        wear: ["4.03 / 4.03", "3.38 / 3.51", "3.01 / 2.96"],
        throughput: [27_989.0, 27_118.0, 25_055.0],
        wanted: [7093.0, 7262.0, 7270.0],
        wanted_wear: [4.03, 3.38, 3.01],
        bound: Bound::Relative(0.01),
        wear_bound: Bound::Relative(0.10),
    },
    Published {
        pattern: "hot-cold:90/10",
        title: "locality 90/10",
        erases: ["8827 / 8827 / 8834", "5596 / 5733 / 5666", "3978 / 4138 / 3987"],
        copies: ["225068 / 225068 / 225283", "124888 / 129142 / 127049", "74726 / 79705 / 75005"],
        wear: ["11.85 / 11.85", "8.3 / 9.20", "5.38 / 5.97"],
        throughput: [22_680.0, 34_980.0, 44_263.0],
        wanted: [8820.0, 5683.0, 4121.0],
        wanted_wear: [11.85, 9.20, 5.97],
        bound: Bound::Relative(0.015),
        wear_bound: Bound::Relative(0.10),
    },
];

fn tables(seeds: u32, watcher: &dyn Watcher, out: &mut Reproduction) -> Result<(), LabError> {
    let mut cells = Vec::new();
    let patterns = TABLES.iter().map(|table| table.pattern).chain(["hot-cold:95/5"]);
    for pattern in patterns {
        let base = base(&workload(pattern))?;
        for policy in &POLICIES {
            cells.push(with(&base, policy.selection, policy.placement)?);
        }
    }
    let outcomes = run_cells(&cells, seeds, watcher)?;
    outcomes.iter().flatten().try_for_each(|outcome| check_conservation(&outcome.row))?;
    for (table, outcomes) in TABLES.iter().zip(outcomes.chunks(POLICIES.len())) {
        for (at, (policy, outcomes)) in POLICIES.iter().zip(outcomes).enumerate() {
            let mut add = |measure: &str, published: String, wanted, bound, (measured, deviation)| {
                out.comparisons.push(Comparison {
                    place: "J Tables 4, 6".into(),
                    cell: format!("{}, {}", policy.name, table.title),
                    measure: measure.into(),
                    published,
                    wanted,
                    bound,
                    measured,
                    deviation,
                });
            };
            let erases = of(outcomes, |row| row.erases as f64);
            add("erases", table.erases[at].into(), table.wanted[at], table.bound, erases);
            let simulated = table.copies[at].rsplit(' ').next().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
            let copies_bound = if simulated == 0.0 { Bound::Exact(0.0) } else { Bound::None };
            add("copies", table.copies[at].into(), simulated, copies_bound, of(outcomes, |row| row.copies as f64));
            let wear = of(outcomes, |row| row.erases_deviation);
            add("D", table.wear[at].into(), table.wanted_wear[at], table.wear_bound, wear);
            let speed = of(outcomes, pentium_bytes_per_s);
            let printed = table.throughput[at];
            add("Pentium B/s", printed.to_string(), printed, Bound::Relative(0.02), speed);
        }
    }
    let [greedy, cost_benefit, cat] = &outcomes[TABLES.len() * POLICIES.len()..] else { return Ok(()) };
    let ratios = [
        ("fewer erases than Greedy", greedy, 69.16, true),
        ("fewer erases than Cost-benefit", cost_benefit, 33.22, true),
        ("fewer copies than Greedy", greedy, 83.55, false),
        ("fewer copies than Cost-benefit", cost_benefit, 52.97, false),
    ];
    for (measure, other, published, erases) in ratios {
        let count = |row: &ResultRow| if erases { row.erases as f64 } else { row.copies as f64 };
        let fewer = 100.0 * (1.0 - of(cat, count).0 / of(other, count).0);
        let by_seed: Vec<_> =
            cat.iter().zip(other).map(|(cat, other)| 100.0 * (1.0 - count(&cat.row) / count(&other.row))).collect();
        out.comparisons.push(Comparison {
            place: "J sec. 5, 95/5".into(),
            cell: "CAT + M6, locality 95/5".into(),
            measure: format!("% {measure}"),
            published: published.to_string(),
            wanted: published,
            bound: Bound::Absolute(2.5),
            measured: fewer,
            deviation: mean_and_deviation(&by_seed).1,
        });
    }
    out.rows.extend(outcomes.into_iter().flatten().map(|outcome| outcome.row));
    Ok(())
}

/// One figure: a sweep over x of several policies, one measure.
fn sweep(
    out: &mut Reproduction,
    (name, title, x, y): (&str, &str, &str, &str),
    cells: Vec<(String, f64, Experiment)>,
    seeds: u32,
    watcher: &dyn Watcher,
    measure: impl Fn(&ResultRow) -> f64,
) -> Result<(), LabError> {
    let experiments: Vec<_> = cells.iter().map(|(_, _, experiment)| experiment.clone()).collect();
    let outcomes = run_cells(&experiments, seeds, watcher)?;
    let mut curves: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for ((curve, x, _), outcomes) in cells.iter().zip(&outcomes) {
        let point = (*x, of(outcomes, &measure).0);
        match curves.iter_mut().find(|(name, _)| name == curve) {
            Some((_, points)) => points.push(point),
            None => curves.push((curve.clone(), vec![point])),
        }
    }
    out.figures.push(Figure { name: name.into(), title: title.into(), x: x.into(), y: y.into(), curves });
    out.rows.extend(outcomes.into_iter().flatten().map(|outcome| outcome.row));
    Ok(())
}

const LOCALITIES: [u32; 6] = [50, 60, 70, 80, 90, 95];

fn locality_text(hot: u32) -> String {
    if hot == 50 { workload("random") } else { workload(&format!("hot-cold:{hot}/{}", 100 - hot)) }
}

fn figures_12_13(seeds: u32, watcher: &dyn Watcher, out: &mut Reproduction) -> Result<(), LabError> {
    let mut cells = Vec::new();
    for hot in LOCALITIES {
        let base = base(&locality_text(hot))?;
        for policy in &POLICIES {
            cells.push((policy.name.to_string(), f64::from(hot), with(&base, policy.selection, policy.placement)?));
        }
    }
    let labels = (
        "fig12-locality",
        "J Fig. 12: locality",
        "% of writes to 100 - x % of the data (50 = random)",
        "Pentium KB/s, modelled",
    );
    sweep(out, labels, cells, seeds, watcher, |row| pentium_bytes_per_s(row) / 1000.0)?;
    let mut cells = Vec::new();
    for percent in [50u32, 60, 70, 80, 90, 95] {
        let mut base = base(&workload("hot-cold:90/10"))?;
        base.capacity = Capacity::Pages((188 * 31) * percent / 100);
        for policy in &POLICIES {
            cells.push((policy.name.to_string(), f64::from(percent), with(&base, policy.selection, policy.placement)?));
        }
    }
    let labels = (
        "fig13-utilization",
        "J Fig. 13: utilization, locality 90/10",
        "% of (191 - 3) segments that hold data",
        "Pentium KB/s, modelled",
    );
    sweep(out, labels, cells, seeds, watcher, |row| pentium_bytes_per_s(row) / 1000.0)
}

fn figure_18(seeds: u32, watcher: &dyn Watcher, out: &mut Reproduction) -> Result<(), LabError> {
    let published = [
        ("Greedy", "0.98-39.52", "1.37-20.48"),
        ("Cost-benefit", "6.02-66.93", "4.96-32.70"),
        ("CAT", "5.63-69.85", "5.04-41.62"),
    ];
    let localities = [60u32, 70, 80, 90, 95];
    for (policy, (name, over_m1, over_m4)) in POLICIES.iter().zip(published) {
        let mut cells = Vec::new();
        for hot in localities {
            let base = base(&locality_text(hot))?;
            for (placement, text) in [PLACEMENTS[0], PLACEMENTS[3], PLACEMENTS[4], PLACEMENTS[5]] {
                cells.push((placement.to_string(), f64::from(hot), with(&base, policy.selection, text)?));
            }
        }
        let file = format!("fig18-{}", name.to_lowercase());
        let title = format!("T Fig. 18: {name}, erases by placement");
        let labels = (file.as_str(), title.as_str(), "% of writes to 100 - x % of the data", "erases");
        sweep(out, labels, cells, seeds, watcher, |row| row.erases as f64)?;
        let curves = &out.figures.last().expect("a figure was just added").curves;
        let curve =
            |name: &str| &curves.iter().find(|(curve, _)| curve == name).expect("every placement has a curve").1;
        let fewer = |other: &str| -> Vec<f64> {
            curve("M6").iter().zip(curve(other)).skip(1).map(|(m6, other)| 100.0 * (1.0 - m6.1 / other.1)).collect()
        };
        for (other, printed) in [("M1", over_m1), ("M4", over_m4)] {
            let values = fewer(other);
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            out.findings.push(format!(
                "Fig. 18, {name}: M6 needs {low:.2} to {high:.2} % fewer erases than {other} from 70/30 to 95/5 (published {printed} % above 60/40)"
            ));
        }
    }
    Ok(())
}

/// Figures 14 to 17: the real week, 1 KiB pages, 85 % full, folded onto the flash.
fn hp(path: PathBuf, watcher: &dyn Watcher, out: &mut Reproduction) -> Result<(), LabError> {
    let base = |flash_mib: u64, segment_kib: u32, percent: f64| -> Result<Experiment, LabError> {
        let mut device = DeviceSpec::load("intel-series2plus-24mb")?;
        device.page_bytes = 1024;
        device.pages_per_segment = segment_kib;
        let device = device.with_bytes(flash_mib << 20)?;
        let options = margay_trace::ReadOptions::default();
        let source = TraceSource { path: path.clone(), options, addresses: AddressChoice::Fold };
        let mut experiment = Experiment::new(device, Source::Trace(source));
        experiment.reserved_segments = 1;
        let limit = experiment.config().limit_pages(&experiment.device.geometry()?, 3)?;
        let data_pages = f64::from(experiment.data_pages()?);
        experiment.capacity = Capacity::Pages(((percent / 100.0 * data_pages) as u32).min(limit));
        Ok(experiment)
    };
    let start = base(24, 128, 85.0)?;
    let mut cells = Vec::new();
    for separate_read_only in [false, true] {
        for policy in &POLICIES {
            for (number, (_, placement)) in PLACEMENTS.iter().enumerate() {
                let mut cell = with(&start, policy.selection, placement)?;
                cell.separate_read_only = separate_read_only;
                let name = policy.name.split(" + ").next().unwrap_or(policy.name);
                let curve = if separate_read_only { format!("{name}, read-only apart") } else { name.to_string() };
                cells.push((curve, number as f64 + 1.0, cell));
            }
        }
    }
    let labels = ("fig14-hp", "T Fig. 14: one real HP week, 85 % full", "placement M1 to M6", "erases");
    sweep(out, labels, cells, 1, watcher, |row| row.erases as f64)?;
    hp_findings(out);
    let dims: [(&str, &str, &str, &[f64]); 3] = [
        (
            "fig15-hp-utilization",
            "T Fig. 15: utilization, one real HP week",
            "% full",
            &[60.0, 70.0, 80.0, 85.0, 90.0, 95.0],
        ),
        ("fig16-hp-flash-size", "T Fig. 16: flash size, one real HP week", "MiB", &[16.0, 24.0, 32.0, 48.0, 64.0]),
        (
            "fig17-hp-segment-size",
            "T Fig. 17: segment size, one real HP week",
            "KiB",
            &[16.0, 32.0, 64.0, 128.0, 256.0],
        ),
    ];
    for (name, title, x, values) in dims {
        let mut cells = Vec::new();
        for value in values {
            let at = match name {
                "fig15-hp-utilization" => base(24, 128, *value)?,
                "fig16-hp-flash-size" => base(*value as u64, 128, 85.0)?,
                _ => base(24, *value as u32, 85.0)?,
            };
            for (placement, text) in [PLACEMENTS[0], PLACEMENTS[3], PLACEMENTS[4], PLACEMENTS[5]] {
                let mut cell = with(&at, POLICIES[2].selection, text)?;
                cell.separate_read_only = true;
                cells.push((format!("CAT + {placement}"), *value, cell));
            }
        }
        // Segments of different sizes are compared by the bytes they erase.
        let segment_bytes = |row: &ResultRow| f64::from(row.pages_per_segment) * f64::from(row.page_bytes);
        sweep(out, (name, title, x, "MiB erased"), cells, 1, watcher, |row| {
            row.erases as f64 * segment_bytes(row) / 1_048_576.0
        })?;
    }
    Ok(())
}

fn hp_findings(out: &mut Reproduction) {
    let rows = &out.rows[out.rows.len() - 36..];
    let published = [("Greedy", 60.04, 86.04), ("Cost-benefit", 64.99, 93.44), ("CAT", 63.56, 91.88)];
    let mut findings = Vec::new();
    let fewer = |a: u64, b: u64| 100.0 * (1.0 - a as f64 / (b as f64).max(1.0));
    for (at, (name, erases, copies)) in published.into_iter().enumerate() {
        let (mixed, apart) = (&rows[at * 6..][..6], &rows[18 + at * 6..][..6]);
        findings.push(format!(
            "Fig. 14, {name} + M1: read-only segments save {:.2} % of the erases (published {erases} %) and {:.2} % of the copies (published {copies} %)",
            fewer(apart[0].erases, mixed[0].erases),
            fewer(apart[0].copies, mixed[0].copies)
        ));
        findings.push(format!(
            "Fig. 14, {name}, read-only apart: M6 needs {:.2} % fewer erases and {:.2} % fewer copies than M4 (published 5.55 to 5.64 % and 28 to 31 %), {:.2} % fewer erases than M5",
            fewer(apart[5].erases, apart[3].erases),
            fewer(apart[5].copies, apart[3].copies),
            fewer(apart[5].erases, apart[4].erases)
        ));
    }
    out.findings.extend(findings);
}

/// Runs the study.
pub fn run(options: &Options, watcher: &dyn Watcher) -> Result<Reproduction, LabError> {
    let seeds = options.seeds.max(1);
    let mut out = Reproduction::default();
    tables(seeds, watcher, &mut out)?;
    if options.tables_only {
        return Ok(out);
    }
    figures_12_13(seeds, watcher, &mut out)?;
    figure_18(seeds, watcher, &mut out)?;
    match &options.hp_trace {
        Some(path) => hp(path.clone(), watcher, &mut out)?,
        None => out.findings.push("Figs. 14 to 17 were left out: the HP trace was not found (--hp-trace)".into()),
    }
    Ok(out)
}
