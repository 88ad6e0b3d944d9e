use super::engine::Cluster;
use super::progress::SweepBar;
use crate::args::{Engine, Given, OutputFormat, SweepArgs};
use crate::failure::Failure;
use crate::output::{self, check_new, records, run_plots, runs, write_file};
use margay_host::Existing;
use margay_lab::rows::{self, Row};
use margay_lab::settings::to_table;
use margay_lab::sweep::{Journal, Point, Swept, Watcher, points};
use std::path::{Path, PathBuf};
use toml::Table;

/// Keys of a table that are options of the sweep and no settings of its points.
const OPTIONS: [&str; 10] =
    ["seeds", "jobs", "all", "format", "output", "plot", "force", "quiet", "engine", "scheduler"];

/// The format that a file's name asks for.
fn format_of(path: &Path) -> Option<OutputFormat> {
    match path.extension()?.to_str()? {
        "csv" => Some(OutputFormat::Csv),
        "parquet" => Some(OutputFormat::Parquet),
        "json" => Some(OutputFormat::Json),
        _ => None,
    }
}

/// Where the rows go, and as what.
fn target(args: &SweepArgs, given: &Given) -> Result<(PathBuf, OutputFormat), Failure> {
    let asked = args.output.format.filter(|format| *format != OutputFormat::Table);
    let path = args.output.output.clone().unwrap_or_else(|| {
        let stem = given.file.as_deref().and_then(Path::file_stem).unwrap_or("sweep".as_ref());
        let extension = match asked {
            Some(OutputFormat::Parquet) => "parquet",
            Some(OutputFormat::Json) => "json",
            _ => "csv",
        };
        Path::new(stem).with_extension(extension)
    });
    let format = asked.or_else(|| format_of(&path)).unwrap_or(OutputFormat::Csv);
    if !path.parent().is_none_or(|folder| folder.as_os_str().is_empty() || folder.is_dir()) {
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))
            .map_err(|error| Failure::new_file(&path, &error))?;
    }
    Ok((path, format))
}

/// The name of a file beside another: its own with `.EXTRA` before or behind its extension.
fn beside(path: &Path, extra: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(extra);
    path.with_file_name(name)
}

/// `results.csv` as `results.partial.csv`.
fn partial(path: &Path) -> PathBuf {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("csv");
    path.with_extension(format!("partial.{extension}"))
}

pub fn run(args: &SweepArgs) -> Result<(), Failure> {
    let mut table = args.grid.table.clone();
    table.extend(to_table(args)?);
    let given = Given::new(table, &args.file)?;
    let options: SweepArgs = SweepArgs { restart: args.restart, ..given.read()? };
    let existing = options.output.force.existing();
    let grid: Table = given
        .table
        .iter()
        .filter(|(key, _)| !OPTIONS.contains(&key.as_str()))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let (path, format) = target(&options, &given)?;
    output::check_plot(options.output.plot.as_deref())?;
    let points = points(grid, options.many.seeds).map_err(|error| in_file(&given, error))?;
    let journal_path = beside(&path, ".points");
    if !journal_path.is_file() || options.restart {
        check_new(Some(&path), existing)?;
    }
    check_new(options.output.plot.as_deref(), existing)?;
    // What cannot run them is known before anything is left on disk.
    let cluster = match (options.engine.unwrap_or_default(), &options.scheduler) {
        (Engine::Local, None) => None,
        (Engine::Local, Some(_)) => {
            return Err(Failure::Usage("--scheduler names a cluster of Dask: add --engine dask".into()));
        }
        (Engine::Dask, scheduler) => Some(Cluster::find(scheduler.clone(), options.many.jobs)?),
    };
    given.save("sweep")?;
    let mut journal = Journal::open(&journal_path, options.restart)?;
    // An output with finished points of this sweep beside it is of an earlier run of it, perhaps with fewer values.
    let is_ours = points.iter().any(|point| journal.rows.contains_key(&point.key));
    if !is_ours {
        check_new(Some(&path), existing)?;
    }
    let threads = options.many.jobs.unwrap_or_else(rayon::current_num_threads);
    let bar = SweepBar::new(&points, options.output.quiet);
    let swept = match &cluster {
        None => margay_lab::sweep::run(&points, &mut journal, threads, &bar).map_err(Failure::from),
        Some(cluster) => cluster.run(&points, &mut journal, bar.interrupted(), &|at| bar.ended(at)),
    };
    bar.finish();
    let swept = swept?;
    let maps = rows::of_sweep(&points, &swept.rows)?;
    let done = swept.rows.iter().flatten().count();
    if !swept.is_whole() {
        return Err(unfinished(&points, &swept, done, (&path, format), &journal_path, &maps));
    }
    let replace = if is_ours { Existing::Replace } else { existing };
    write_file(&path, &records::in_format(format, &maps)?, replace)?;
    // What an interruption left is part of the whole now.
    let _ = std::fs::remove_file(partial(&path));
    if let Some(plot) = &options.output.plot {
        run_plots::sweep(plot, existing, &points, &swept.rows)?;
    }
    crate::output::print_bytes(runs::sweep(&points, &swept.rows, options.many.all).as_bytes())?;
    say!("{done} points are in {}; finished points are kept in {}", path.display(), journal_path.display());
    Ok(())
}

fn in_file(given: &Given, error: margay_lab::LabError) -> Failure {
    match (&given.file, Failure::from(error)) {
        (Some(path), Failure::Usage(text)) => Failure::Usage(format!("{}: {text}", path.display())),
        (_, failure) => failure,
    }
}

/// Writes the finished points of a sweep that did not come to its end under a name that says so.
fn unfinished(
    points: &[Point],
    swept: &Swept,
    done: usize,
    (path, format): (&Path, OutputFormat),
    journal: &Path,
    maps: &[Row],
) -> Failure {
    let mut text = format!("{done} of {} points are finished and kept in {}", points.len(), journal.display());
    if done > 0 {
        let name = partial(path);
        match records::in_format(format, maps).and_then(|bytes| write_file(&name, &bytes, Existing::Replace)) {
            Ok(()) => text += &format!("; their rows so far are in {}", name.display()),
            Err(error) => text += &format!("; their rows could not be written ({error})"),
        }
    }
    if let Some((at, error)) = swept.failures.first() {
        let more = swept.failures.len() - 1;
        let others = if more > 0 { format!(" (and {more} more points)") } else { String::new() };
        let advice = "take it out of the sweep, or mend what is wrong with it, and run the command again";
        return Failure::Run(format!("the point {} failed: {error}{others}; {advice}; {text}", points[*at].name()));
    }
    Failure::Interrupted(format!("stopped; {text}; run the same command again to go on"))
}
