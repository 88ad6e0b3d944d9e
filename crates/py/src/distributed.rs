//! What sweeps on many machines need: points as text, finished points on disk, runs of one point of a text.

use crate::errors::{input, lab};
use crate::interrupt::with_signals;
use crate::run::{Grid, json_of};
use margay_host::Existing;
use margay_lab::sweep::{self, Journal, Point};
use margay_lab::{LabError, Reading, ResultRow, Settings, Sources};
use margay_trace::{DevicePart, Format};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toml::Table;

/// The settings of a point as JSON, which [`PointRunner`] takes on another machine.
#[pyfunction]
fn point_settings(grid: &Grid, index: usize) -> PyResult<String> {
    grid.point(index)?.settings.to_json().map_err(lab)
}

/// The files on this machine that the settings of a point name, given as JSON: the setting, and the path.
#[pyfunction]
fn settings_files(settings: &str) -> PyResult<Vec<(&'static str, String)>> {
    Ok(Settings::from_json(settings).map_err(lab)?.files())
}

/// xxh3 of a file, as 16 hexadecimal digits.
#[pyfunction]
fn file_hash(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let hash = py.detach(|| margay_trace::hash_file(&path));
    Ok(format!("{:016x}", hash.map_err(|error| lab(error.into()))?))
}

/// Writes the requests to each device of a trace to a file of its own in a folder; returns device, file and writes of each.
#[pyfunction]
fn split_trace(py: Python<'_>, path: PathBuf, folder: PathBuf) -> PyResult<Vec<(String, PathBuf, u64)>> {
    let parts = with_signals(py, move |stop| {
        let options = Reading::default().options()?;
        Ok(margay_trace::split_while(&path, &options, &folder, Format::MGT, Existing::Replace, stop.keep_on())?)
    })?;
    let parts: Vec<DevicePart> = parts.map_err(lab)?;
    Ok(parts.into_iter().map(|part| (part.device, part.path, part.writes)).collect())
}

/// Runs points that came as text. Traces that were read are kept for the next points.
#[pyclass(frozen, module = "margay")]
#[derive(Debug)]
pub struct PointRunner(Arc<Sources>);

#[pymethods]
impl PointRunner {
    #[new]
    fn new(keep: usize) -> Self {
        Self(Arc::new(Sources::new(keep)))
    }

    /// The row of a point with these settings, as JSON, without times of the wall clock.
    fn run(&self, py: Python<'_>, settings: &str) -> PyResult<String> {
        let settings = Settings::from_json(settings).map_err(lab)?;
        let (seed, sources) = (settings.seed.unwrap_or(1), Arc::clone(&self.0));
        let point = Point { varied: Table::new(), seed, settings, key: String::new() };
        let row = with_signals(py, move |stop| sweep::run_point(&point, &sources, &mut |_| stop.goes_on()))?;
        json_of(&row.map_err(lab)?)
    }
}

/// The finished points of a sweep, on disk: the command's file `OUTPUT.points`.
#[pyclass(frozen, module = "margay")]
#[derive(Debug)]
pub struct Finished(pub Arc<Mutex<Journal>>);

impl Finished {
    pub fn lock(&self) -> MutexGuard<'_, Journal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Finished {
    #[new]
    #[pyo3(signature = (path=None, restart=false))]
    fn new(py: Python<'_>, path: Option<PathBuf>, restart: bool) -> PyResult<Self> {
        let journal = py.detach(|| match path {
            Some(path) => Journal::open(&path, restart),
            None => Journal::without_name(),
        });
        Ok(Self(Arc::new(Mutex::new(journal.map_err(lab)?))))
    }

    /// The finished points of a file, which is only read, also while another process writes it. What is added is not kept.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let journal = py.detach(|| -> Result<Journal, LabError> {
            let mut journal = Journal::without_name()?;
            journal.rows = Journal::read(&path)?;
            Ok(journal)
        });
        Ok(Self(Arc::new(Mutex::new(journal.map_err(lab)?))))
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        py.detach(|| self.lock().rows.len())
    }

    /// The numbers of the points that are not finished, equal ones once: of all points, or of those with these numbers. Rows of
    /// traces that have changed since are forgotten.
    #[pyo3(signature = (grid, numbers=None))]
    fn left(&self, py: Python<'_>, grid: &Grid, numbers: Option<Vec<usize>>) -> PyResult<Vec<usize>> {
        let points = grid.points();
        let Some(numbers) = numbers else { return Ok(py.detach(|| sweep::left(&points, &mut self.lock()))) };
        let asked = numbers.iter().map(|at| grid.point(*at).cloned()).collect::<PyResult<Vec<_>>>()?;
        let left = py.detach(|| sweep::left(&asked, &mut self.lock()));
        Ok(left.into_iter().map(|at| numbers[at]).collect())
    }

    /// The row of a finished point, as JSON; none if its trace has changed since.
    fn row(&self, py: Python<'_>, grid: &Grid, index: usize) -> PyResult<Option<String>> {
        let point = grid.point(index)?;
        let row = py.detach(|| {
            let mut journal = self.lock();
            sweep::left(std::slice::from_ref(point), &mut journal);
            journal.rows.get(&point.key).cloned()
        });
        row.as_ref().map(json_of).transpose()
    }

    /// The rows of all points in order, as JSON; `None` for those that are not finished. `left` and `gather` look whether traces
    /// have changed.
    fn rows(&self, py: Python<'_>, grid: &Grid) -> PyResult<Vec<Option<String>>> {
        let points = grid.points();
        py.detach(|| {
            let journal = self.lock();
            points.iter().map(|point| journal.rows.get(&point.key).map(json_of).transpose()).collect()
        })
    }

    /// Adds the row of a finished point, given as JSON.
    fn add(&self, py: Python<'_>, key: &str, row: &str) -> PyResult<()> {
        let row: ResultRow =
            serde_json::from_str(row).map_err(|error| input(format!("this is no row of a sweep: {error}")))?;
        py.detach(|| self.lock().add(key, &row)).map_err(lab)
    }

    /// Adds the finished points of a grid that other files hold, which may be being written. Rows of traces that have changed
    /// since are passed over, and forgotten.
    fn gather(&self, py: Python<'_>, grid: &Grid, files: Vec<PathBuf>) -> PyResult<()> {
        let points = grid.points();
        py.detach(|| sweep::gather(&points, &mut self.lock(), &files)).map_err(lab)
    }

    /// Makes sure that all is on disk.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.lock().sync()).map_err(lab)
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PointRunner>()?;
    module.add_class::<Finished>()?;
    module.add_function(wrap_pyfunction!(point_settings, module)?)?;
    module.add_function(wrap_pyfunction!(settings_files, module)?)?;
    module.add_function(wrap_pyfunction!(file_hash, module)?)?;
    module.add_function(wrap_pyfunction!(split_trace, module)?)
}
