//! Advice: the search of `margay advise`, with runs on threads of this process or by a callable of Python.

use crate::calls::Calls;
use crate::distributed::Finished;
use crate::errors::{of_lab, run as run_error};
use crate::interrupt::{Stop, with_policies};
use crate::run::Grid;
use crate::values::{Keywords, settings_table, to_python};
use margay_lab::advise::{Question, advise as ask, parameters};
use margay_lab::settings::size_bytes as size;
use margay_lab::sweep::{self, Point, Swept, gathered};
use margay_lab::{ErrorKind, LabError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

fn lab(error: LabError) -> PyErr {
    of_lab(&error)
}

/// The number of bytes that a size such as `24M` stands for.
#[pyfunction]
fn size_bytes(text: &str) -> PyResult<u64> {
    size(text).map_err(lab)
}

/// The parameters of a policy, with what they may be.
#[pyfunction]
fn policy_parameters<'py>(py: Python<'py>, kind: &str, name: &str) -> PyResult<Bound<'py, PyAny>> {
    to_python(py, &parameters(kind, name).map_err(lab)?)
}

/// What a runner of Python says of points that failed: number, kind, text.
type Failures = Vec<(usize, String, String)>;

/// Runs points by a callable of Python that takes a [`Grid`] and the [`Finished`] points, and returns what failed.
fn run_by(runner: &Py<PyAny>, calls: &Calls, finished: &Finished, points: &[Point]) -> Result<Swept, LabError> {
    let called = Python::attach(|py| -> PyResult<Failures> {
        let _call = calls.begin();
        let grid = Py::new(py, Grid::of(points.to_vec(), calls.clone()))?;
        let finished = Py::new(py, Finished(Arc::clone(&finished.0)))?;
        runner.bind(py).call1((grid, finished))?.extract()
    });
    let failures = called.map_err(|error| {
        Python::attach(|py| {
            let name = error.get_type(py).name().map_or_else(|_| String::new(), |name| name.to_string());
            let kind = ErrorKind::of_name(name.trim_end_matches("Error").to_lowercase().as_str());
            LabError::Elsewhere { kind, text: error.value(py).to_string() }
        })
    })?;
    let failures = failures
        .into_iter()
        .map(|(at, kind, text)| (at, LabError::Elsewhere { kind: ErrorKind::of_name(&kind), text }))
        .collect();
    gathered(points, &mut finished.lock(), failures, false)
}

/// Shows no progress, and ends when it is asked to.
struct Stoppable(Stop);

impl sweep::Watcher for Stoppable {
    fn step(&self, _: usize, _: f64) -> bool {
        self.0.goes_on()
    }

    fn ended(&self, _: usize) {}
}

/// Answers a question about the lifetime of flash; returns the answer as JSON.
#[pyfunction]
#[pyo3(signature = (settings, years, per_day, seeds, also, finished, jobs, runner))]
#[allow(clippy::too_many_arguments)] // its only caller is python/margay/advise.py
fn advise(
    py: Python<'_>,
    settings: &Bound<'_, PyDict>,
    years: f64,
    per_day: Option<f64>,
    seeds: Option<u32>,
    also: Vec<(String, String)>,
    finished: &Finished,
    jobs: usize,
    runner: Option<Py<PyAny>>,
) -> PyResult<String> {
    let Keywords { table, held, calls } = settings_table(settings)?;
    let question = Question::new(table, years).map_err(lab)?;
    let question = Question { held, bytes_per_day: per_day, seeds, also, ..question };
    let finished = Finished(Arc::clone(&finished.0));
    let of_runner = calls.clone();
    let answer = with_policies(py, &calls, move |stop| {
        let stoppable = Stoppable(stop.clone());
        ask(&question, &mut |points| match &runner {
            Some(runner) => run_by(runner, &of_runner, &finished, points),
            None => sweep::run(points, &mut finished.lock(), jobs, &stoppable),
        })
    })?;
    serde_json::to_string(&answer.map_err(lab)?).map_err(|error| run_error(error.to_string()))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(size_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(policy_parameters, module)?)?;
    module.add_function(wrap_pyfunction!(advise, module)?)
}
