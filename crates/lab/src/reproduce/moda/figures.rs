//! Figs. 9 to 11, and what MODA's settings do.

use super::table::TABLE_1;
use super::{MIXES, Runs, allocator, device, run_all};
use crate::LabError;
use crate::files::{FileDevice, FileRow, FileRun};
use crate::reproduce::{Axis, Basis, Bound, Claim, Curve, Figure, Point, Reproduction, Watcher};
use margay_fs::AllocatorSpec;
use margay_workload::{FileBenchmark, FileMix};

/// The name of an allocator in a legend.
fn legend(spec: AllocatorSpec) -> String {
    match spec.to_string().as_str() {
        "moda:m=2,lifetime=100" => "MODA".into(),
        "moda:property=static,m=2,lifetime=100" | "moda:m=2,lifetime=100,property=static" => "MODA, static only".into(),
        "moda:property=dynamic,m=2,lifetime=100" | "moda:m=2,lifetime=100,property=dynamic" => {
            "MODA, dynamic only".into()
        }
        "dac" => "DAC".into(),
        "dac-static" => "DAC, headers apart".into(),
        other => other.into(),
    }
}

/// Fig. 11: the explicit cleaning after every benchmark under every allocator.
pub(super) fn allocators(runs: &Runs, out: &mut Reproduction) {
    let names = runs.mixes.iter().map(|mix| mix.to_string().replace('+', "+ ")).collect();
    let title = "Fig. 11: seconds to clean the whole device after each benchmark (bars: 95 % interval)";
    let mut figure = Figure::new("fig11-allocators", title, "", "seconds", Axis::Named(names));
    for spec in &runs.allocators {
        let points = (0u32..).zip(&runs.mixes).map(|(x, mix)| {
            let seconds: Vec<_> = runs.of(&spec.to_string(), mix).iter().map(|row| row.measured_s).collect();
            Point::mean(x.into(), &seconds)
        });
        figure.curves.push(Curve::new(legend(*spec), points.collect()));
    }
    let last = (runs.mixes.len() - 1) as f64;
    for (name, is_moda, of_mix) in [("sequential", false, 34.82), ("MODA", true, 22.58)] {
        let of = (0u32..).zip(FileBenchmark::ALL).filter_map(|(x, benchmark)| {
            let line = TABLE_1.iter().find(|line| line.benchmark == benchmark && line.is_moda == is_moda)?;
            Some(Point::new(x.into(), line.measured[2]))
        });
        let points = of.chain([Point::new(last - 1.0, of_mix), Point::new(last, of_mix)]).collect();
        figure.curves.push(Curve::published(format!("{name}, published"), points));
    }
    out.figures.push(figure);
}

/// A run of Postmark on a device that fills: utilization when it starts, device time of the run and of the cleaning
/// after it.
struct Round {
    utilization: f64,
    run_s: f64,
    cleaning_s: f64,
}

/// Postmark again and again on one device, until it is full.
fn repeated(allocator: AllocatorSpec, periodic: bool, seed: u64) -> Result<Vec<Round>, LabError> {
    let mut run = FileRun::new(&FileDevice::of_the_paper(allocator)?)?;
    let mut rounds = Vec::new();
    for round in 0..20 {
        let utilization = run.utilization();
        let (before, reads) = (run.counters().clone(), run.pages_read);
        match run.run(&FileBenchmark::Postmark.steps(seed + round * 100)) {
            Ok(()) => {}
            Err(LabError::Files(margay_fs::FsError::NoSpace)) => break,
            Err(error) => return Err(error),
        }
        let work = run.counters().since(&before);
        let run_s = run.seconds(work.host_writes, work.copies, work.erases, run.pages_read - reads);
        let mut cleaning_s = 0.0;
        if periodic {
            let cleaning = run.clean()?;
            cleaning_s = run.seconds(0, cleaning.copies, cleaning.erases, cleaning.valid_pages);
        }
        rounds.push(Round { utilization, run_s, cleaning_s });
    }
    Ok(rounds)
}

/// Figs. 9 and 10: Postmark on a device that fills, with a cleaning after every run and without.
pub(super) fn filling(out: &mut Reproduction) -> Result<(), LabError> {
    const X: &str = "utilization when the run starts";
    const JUMP: f64 = 1.2;
    let title = "Fig. 9: seconds of the cleaning after each run of Postmark";
    let mut cleanings = Figure::new("fig9-periodic", title, X, "seconds", Axis::Linear);
    let title = "Fig. 10: seconds of each run of Postmark on a device that fills";
    let mut times = Figure::new("fig10-filling", title, X, "seconds", Axis::Linear);
    times.marks.push((0.87, "published: longer from here on".into()));
    for (name, text) in [("sequential", "sequential"), ("MODA", "moda")] {
        for periodic in [false, true] {
            let rounds = repeated(allocator(text), periodic, 1)?;
            let first = rounds[0].run_s;
            let claim = |measure: &str| Claim::new("Fig. 10", format!("postmark until full, {name}"), measure);
            if periodic {
                let cost = rounds.iter().map(|round| Point::new(round.utilization, round.cleaning_s));
                cleanings.curves.push(Curve::new(name, cost.collect()));
                let longest = rounds.iter().map(|round| round.run_s / first).fold(0.0, f64::max);
                let claim = claim("longest run / first, cleaned after every run").published("no jump").below(JUMP);
                out.comparisons.push(claim.judge((longest, 0.0)));
            } else {
                let jump = rounds.iter().find(|round| round.run_s > JUMP * first);
                let claim = claim("utilization from which a run takes 1.2 times the first").published("0.87").held(
                    Basis::Published,
                    0.87,
                    Bound::Absolute(0.01),
                );
                out.comparisons.push(claim.judge((jump.map_or(f64::NAN, |round| round.utilization), 0.0)));
            }
            let points = rounds.iter().map(|round| Point::new(round.utilization, round.run_s)).collect();
            let curve = if periodic { format!("{name}, cleaned after every run") } else { name.to_string() };
            times.curves.push(Curve::new(curve, points));
        }
    }
    out.figures.extend([cleanings, times]);
    Ok(())
}

/// What the number of queues and the lifetime do, where the dynamic property matters.
pub(super) fn settings(seeds: u32, watcher: &dyn Watcher, out: &mut Reproduction) -> Result<(), LabError> {
    let mixes = ["postmark", MIXES[0], MIXES[2]].map(|text| text.parse::<FileMix>().expect("a mix of the study"));
    let queues = [1, 2, 3, 4, 8, 16].map(|m| (f64::from(m), format!("moda:m={m}")));
    let lifetimes = [10, 25, 50, 100, 200, 400, 800, 1600, 6400]
        .map(|lifetime| (f64::from(lifetime), format!("moda:lifetime={lifetime}")));
    let seconds = "seconds to clean the whole device";
    for (name, title, x, values) in [
        (
            "settings-m",
            "MODA with other numbers of queues (lifetime 100)",
            "m, queues until a file is hot",
            &queues[..],
        ),
        (
            "settings-lifetime",
            "MODA with other lifetimes (m = 2)",
            "lifetime, in creations and modifying sessions",
            &lifetimes[..],
        ),
    ] {
        let mut figure = Figure::new(name, title, x, seconds, Axis::Log2);
        for mix in &mixes {
            let specs = values.iter().map(|(_, text)| Ok((device(allocator(text), mix)?, mix.clone())));
            let cells = specs.collect::<Result<Vec<_>, LabError>>()?;
            let rows = run_all(&cells, seeds, watcher)?;
            for ((x, _), rows) in values.iter().zip(rows) {
                let values: Vec<_> = rows.iter().map(|row| row.measured_s).collect();
                figure.add(&mix.to_string(), Point::mean(*x, &values));
                out.files.extend(rows);
            }
        }
        out.figures.push(figure);
    }
    turns(seeds, watcher, out)?;
    for (name, what) in [("settings-m", "m of 1 to 16"), ("settings-lifetime", "lifetimes of 10 to 6400")] {
        let figure = out.figures.iter().find(|figure| figure.name == name).expect("it was just drawn");
        let spread = figure.curves.iter().map(|curve| {
            let ys = || curve.points.iter().map(|point| point.y);
            let (low, high) = (ys().fold(f64::INFINITY, f64::min), ys().fold(0.0, f64::max));
            format!("{} {low:.1} to {high:.1} s", curve.name)
        });
        let spread = spread.collect::<Vec<_>>().join(", ");
        out.findings.push(format!("Seconds of the cleaning under MODA with {what}: {spread}"));
    }
    Ok(())
}

/// What the length of the programs' turns does to the mix for which the paper prints figures.
fn turns(seeds: u32, watcher: &dyn Watcher, out: &mut Reproduction) -> Result<(), LabError> {
    let turns = [1u32, 4, 16, 64, 256, 1024];
    let x = "operations of a program's turn";
    let title = "Movie (4 films), Recorder and Postmark together: turns and uniformity";
    let mut uniformity = Figure::new("mix-uniformity", title, x, "uniformity", Axis::Log2);
    let title = "Movie (4 films), Recorder and Postmark together: turns and seconds of the cleaning";
    let mut seconds = Figure::new("mix-seconds", title, x, "seconds", Axis::Log2);
    for (name, text, p, s) in [("sequential", "sequential", 0.73, 34.82), ("MODA", "moda", 0.84, 22.58)] {
        let mixes = turns.map(|turn| format!("movie-short+recorder+postmark/{turn}").parse::<FileMix>());
        let cells = mixes.into_iter().map(|mix| {
            let mix = mix?;
            Ok((device(allocator(text), &mix)?, mix))
        });
        let rows = run_all(&cells.collect::<Result<Vec<_>, LabError>>()?, seeds, watcher)?;
        for (turn, rows) in turns.iter().zip(rows) {
            let of = |measure: fn(&FileRow) -> f64| rows.iter().map(measure).collect::<Vec<_>>();
            uniformity.add(name, Point::mean(f64::from(*turn), &of(|row| row.uniformity)));
            seconds.add(name, Point::mean(f64::from(*turn), &of(|row| row.measured_s)));
            out.files.extend(rows);
        }
        // The paper does not say how long the turns are: its numbers stand at both ends.
        let ends = |value| [turns[0], turns[turns.len() - 1]].map(|turn| Point::new(turn.into(), value)).to_vec();
        uniformity.curves.push(Curve::published(format!("{name}, published"), ends(p)));
        seconds.curves.push(Curve::published(format!("{name}, published"), ends(s)));
    }
    out.figures.extend([uniformity, seconds]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocators_have_short_names_in_the_legend() {
        let names =
            ["moda", "moda:property=static", "moda:property=dynamic", "dac"].map(|text| legend(allocator(text)));
        assert_eq!(names, ["MODA", "MODA, static only", "MODA, dynamic only", "DAC"]);
    }
}
