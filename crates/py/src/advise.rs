//! Advice: the search of `margay advise`, with runs on threads of this process or by a callable of Python.

use crate::calls::Calls;
use crate::distributed::Finished;
use crate::errors::{lab, run as run_error};
use crate::interrupt::with_policies;
use crate::run::{Grid, Stoppable};
use crate::values::{Keywords, settings_table, to_python};
use margay_lab::advise::{Candidate, Question, advise as ask, parameters};
use margay_lab::settings::size_bytes as size;
use margay_lab::sweep::{self, Point, Swept, gathered};
use margay_lab::{ErrorKind, LabError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

/// The number of bytes a day that a size such as `24M` stands for.
#[pyfunction]
fn size_bytes(text: &str) -> PyResult<u64> {
    size("per_day", text).map_err(lab)
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

/// The run of policies at an over-provisioning, as the search has it, with its usual seed.
#[pyfunction]
fn advice_point(
    settings: &Bound<'_, PyDict>,
    selection: String,
    placement: String,
    leveling: String,
    over_provisioning: f64,
) -> PyResult<Grid> {
    let Keywords { table, held, calls } = settings_table(settings)?;
    let question = Question { settings: table, held, ..Question::default() };
    let candidate = Candidate { selection, placement, leveling };
    Ok(Grid::of(question.points(&candidate, over_provisioning, 1, None).map_err(lab)?, calls))
}

/// Answers a question about the lifetime of flash; returns the answer as JSON.
#[pyfunction]
#[pyo3(signature = (settings, years, per_day, seeds, also, finished, jobs, runner))]
#[allow(clippy::too_many_arguments)] // its only caller is python/margay/_advise.py
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
    module.add_function(wrap_pyfunction!(advice_point, module)?)?;
    module.add_function(wrap_pyfunction!(advise, module)?)
}
