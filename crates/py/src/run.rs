//! Runs: one, many, and sweeps.

use crate::calls::Calls;
use crate::errors::{lab, of_lab, usage};
use crate::interrupt::{Stop, with_policies};
use crate::result::{Results, RunResult};
use crate::table::Table;
use crate::values::{Keywords, settings_table};
use margay_lab::compare::{Comparison, Observer, run_all};
use margay_lab::settings::from_table;
use margay_lab::sweep::{self, Journal, Point, Watcher, points_with};
use margay_lab::{Experiment, LabError, Outcome, Prepared, ResultRow, Settings, Sources, Step, rows, run_prepared};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

fn settings_of(given: &Bound<'_, PyDict>) -> PyResult<(Settings, Calls)> {
    let Keywords { table, held, calls } = settings_table(given)?;
    Ok((Settings { held, ..from_table(&table).map_err(lab)? }, calls))
}

/// Shows no progress, and stops all runs when it is asked for.
pub struct Stoppable(pub Stop);

impl Observer for Stoppable {
    fn step(&self, _: usize, _: Step) -> bool {
        self.0.goes_on()
    }

    fn ended(&self, _: usize, _: &Result<Outcome, LabError>) {}
}

impl Watcher for Stoppable {
    fn step(&self, _: usize, _: f64) -> bool {
        self.0.goes_on()
    }

    fn ended(&self, _: usize) {}
}

/// A number of threads, one for each core if it is not given.
fn threads(jobs: Option<usize>) -> usize {
    jobs.filter(|jobs| *jobs > 0).unwrap_or_else(rayon::current_num_threads)
}

/// All runs on so many threads, or the first error.
fn all(
    experiments: &[Experiment],
    prepared: &Prepared,
    jobs: Option<usize>,
    stop: &Stop,
) -> Result<Arc<[Outcome]>, LabError> {
    // A thread without a run would cost its memory all the same.
    let threads = threads(jobs).clamp(1, experiments.len().max(1));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool =
        pool.map_err(|error| LabError::Value { what: "jobs", value: threads.to_string(), problem: error.to_string() })?;
    pool.install(|| run_all(experiments, prepared, &Stoppable(stop.clone())).into_iter().collect())
}

/// Runs one experiment: the settings are those of `margay replay`.
#[pyfunction]
fn simulate(py: Python<'_>, settings: &Bound<'_, PyDict>) -> PyResult<RunResult> {
    let (settings, calls) = settings_of(settings)?;
    let outcome = with_policies(py, &calls, move |stop| {
        let (experiment, prepared) = settings.prepare(&Sources::default())?;
        run_prepared(&experiment, &prepared, &mut |_| stop.goes_on())
    })?;
    Ok(RunResult::from(outcome.map_err(lab)?))
}

/// Runs one experiment with several seeds.
#[pyfunction]
fn simulate_seeds(py: Python<'_>, settings: &Bound<'_, PyDict>, seeds: u32, jobs: Option<usize>) -> PyResult<Results> {
    let (settings, calls) = settings_of(settings)?;
    let outcomes = with_policies(py, &calls, move |stop| {
        let (experiment, prepared) = settings.prepare(&Sources::default())?;
        all(&experiment.with_seeds(Some(seeds)), &prepared, jobs, stop)
    })?;
    Ok(Results { outcomes: outcomes.map_err(lab)?, left_out: Vec::new() })
}

/// Runs a comparison: the settings are those of `margay compare`.
#[pyfunction]
#[pyo3(name = "compare")]
fn compare_policies(
    py: Python<'_>,
    settings: &Bound<'_, PyDict>,
    seeds: Option<u32>,
    jobs: Option<usize>,
    every: bool,
) -> PyResult<Results> {
    let (settings, calls) = settings_of(settings)?;
    let results = with_policies(py, &calls, move |stop| {
        let Comparison { experiments, prepared, left_out } =
            Comparison::new(&settings, seeds, every, &Sources::default())?;
        let outcomes = all(&experiments, &prepared, jobs, stop)?;
        Ok::<Results, LabError>(Results { outcomes, left_out })
    })?;
    results.map_err(lab)
}

/// The points of a sweep: every value of every setting with every value of the others, each with its seeds. The order is always the
/// same, so that a point is named by its number on other machines too.
#[pyclass(frozen, module = "margay")]
#[derive(Debug)]
pub struct Grid {
    points: Arc<Vec<Point>>,
    /// Traces that were read, for the next points that are run one by one.
    sources: Arc<Sources>,
    /// The calls of the policies of the points.
    calls: Calls,
}

/// What became of a sweep: JSON of the row of each finished point, and the numbers of points that failed with the reasons.
type Swept = (Vec<Option<String>>, Vec<(usize, String)>);

impl Grid {
    /// These points, whose policies are called by `calls`.
    pub fn of(points: Vec<Point>, calls: Calls) -> Self {
        Self { points: Arc::new(points), sources: Arc::default(), calls }
    }

    /// The points.
    pub fn points(&self) -> Arc<Vec<Point>> {
        Arc::clone(&self.points)
    }

    /// A point by its number.
    ///
    /// # Errors
    /// There are not so many points.
    pub fn point(&self, index: usize) -> PyResult<&Point> {
        let count = self.points.len();
        self.points.get(index).ok_or_else(|| PyIndexError::new_err(format!("there are {count} points")))
    }
}

/// A row as JSON.
pub fn json_of(row: &ResultRow) -> PyResult<String> {
    serde_json::to_string(row).map_err(|error| crate::errors::run(error.to_string()))
}

#[pymethods]
impl Grid {
    #[new]
    #[pyo3(signature = (settings, seeds=None))]
    fn new(settings: &Bound<'_, PyDict>, seeds: Option<u32>) -> PyResult<Self> {
        let Keywords { table, held, calls } = settings_table(settings)?;
        Ok(Self::of(points_with(table, seeds, &held).map_err(lab)?, calls))
    }

    fn __len__(&self) -> usize {
        self.points.len()
    }

    /// What sets a point apart, for people.
    fn name(&self, index: usize) -> PyResult<String> {
        Ok(self.point(index)?.name())
    }

    /// Names a point among the points of all sweeps: the same for equal experiments.
    fn key(&self, index: usize) -> PyResult<String> {
        Ok(self.point(index)?.key.clone())
    }

    /// The names of the policies of Python that the points use.
    fn own_policies(&self) -> Vec<String> {
        let names = self.points.iter().flat_map(|point| point.settings.own_policies());
        let names: BTreeSet<String> = names.map(|(_, name)| name.to_string()).collect();
        names.into_iter().collect()
    }

    /// Runs one point, and returns its row as JSON, without times of the wall clock.
    fn run(&self, py: Python<'_>, index: usize) -> PyResult<String> {
        let (point, sources) = (self.point(index)?.clone(), Arc::clone(&self.sources));
        let row =
            with_policies(py, &self.calls, move |stop| sweep::run_point(&point, &sources, &mut |_| stop.goes_on()))?;
        json_of(&row.map_err(lab)?)
    }

    /// Runs all points that the file of finished points does not hold, on so many threads.
    fn run_all(
        &self,
        py: Python<'_>,
        finished: Option<PathBuf>,
        restart: bool,
        jobs: Option<usize>,
    ) -> PyResult<Swept> {
        let points = Arc::clone(&self.points);
        let threads = threads(jobs);
        let swept = with_policies(py, &self.calls, move |stop| {
            let mut journal = match finished {
                Some(path) => Journal::open(&path, restart)?,
                None => Journal::without_name()?,
            };
            sweep::run(&points, &mut journal, threads, &Stoppable(stop.clone()))
        })?;
        let swept = swept.map_err(lab)?;
        // What a policy of Python raised comes out as it is.
        if let Some((_, error)) = swept.failures.iter().find(|(_, error)| matches!(error, LabError::OwnPolicy { .. })) {
            return Err(of_lab(error));
        }
        let rows = swept.rows.iter().map(|row| row.as_ref().map(json_of).transpose()).collect::<PyResult<_>>()?;
        Ok((rows, swept.failures.into_iter().map(|(at, error)| (at, error.to_string())).collect()))
    }

    /// The table of these rows, one for each point in order, as JSON; `None` for points that are not finished. The columns are
    /// those of the command's files: `set.NAME` has a setting that the sweep varies.
    fn table(&self, rows: Vec<Option<String>>) -> PyResult<Table> {
        if rows.len() != self.points.len() {
            return Err(usage(format!("{} rows for {} points: expected one for each", rows.len(), self.points.len())));
        }
        let parse = |text: String| {
            let row = serde_json::from_str::<ResultRow>(&text);
            row.map_err(|error| crate::errors::input(format!("this is no row of a sweep: {error}")))
        };
        let rows = rows.into_iter().map(|row| row.map(parse).transpose()).collect::<PyResult<Vec<_>>>()?;
        Table::of_rows(&rows::of_sweep(&self.points, &rows).map_err(lab)?)
    }

    fn __repr__(&self) -> String {
        format!("<margay.Grid of {} points>", self.points.len())
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Grid>()?;
    module.add_function(wrap_pyfunction!(simulate, module)?)?;
    module.add_function(wrap_pyfunction!(simulate_seeds, module)?)?;
    module.add_function(wrap_pyfunction!(compare_policies, module)?)
}
