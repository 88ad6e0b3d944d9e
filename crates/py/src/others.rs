//! Lists, formulas, forecasts, paging and files.

use crate::errors::{lab, of_kind, usage};
use crate::interrupt::with_signals;
use crate::table::Table;
use crate::values::to_python;
use clap::{Args, FromArgMatches};
use margay_lab::lists::lists;
use margay_lab::{
    ErrorKind, FileDevice, Forecast, LabError, PagingArgs, Settings, cleaning_estimate, model, rows,
    run_benchmark_while,
};
use margay_media::DeviceSpec;
use pyo3::prelude::*;
use serde_json::json;
use std::ffi::OsString;

/// The lists of `margay policies`: dictionaries with `of`, `name`, `summary`, `parameters` and `source`.
#[pyfunction]
fn policies(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let all = lists().map_err(lab)?;
    let entries = all.iter().flat_map(|list| list.entries.iter().map(move |entry| (list.of, entry)));
    let entry = |(of, entry): (margay_lab::lists::ListOf, &margay_lab::lists::Entry)| {
        let parameters: serde_json::Map<_, _> =
            entry.parameters.iter().map(|(name, what)| (name.clone(), what.clone().into())).collect();
        json!({
            "of": of, "name": entry.name, "summary": entry.summary, "parameters": parameters, "source": entry.source,
        })
    };
    to_python(py, &entries.map(entry).collect())
}

/// The settings of a run: dictionaries with `name`, `help` and `is_flag`.
#[pyfunction]
fn options(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    described(py, Settings::augment_args(clap::Command::new("settings")))
}

/// The options of a replay of page references.
#[pyfunction]
fn paging_options(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    described(py, PagingArgs::augment_args(clap::Command::new("vm replay")))
}

fn described(py: Python<'_>, command: clap::Command) -> PyResult<Bound<'_, PyAny>> {
    let option = |option: &clap::Arg| {
        let name = option.get_long().unwrap_or(option.get_id().as_str()).replace('-', "_");
        let help = option.get_help().map(ToString::to_string).unwrap_or_default();
        json!({ "name": name, "help": help, "is_flag": !option.get_action().takes_values() })
    };
    to_python(py, &command.get_arguments().map(option).collect())
}

/// The formulas of `margay model`.
#[pyfunction]
fn models(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let model = |model: &margay_theory::ModelInfo| {
        let parameters: serde_json::Map<_, _> =
            model.parameters.iter().map(|(name, what)| ((*name).to_string(), (*what).into())).collect();
        json!({ "name": model.name, "summary": model.summary, "parameters": parameters, "source": model.source })
    };
    to_python(py, &margay_theory::models().iter().map(model).collect())
}

/// Evaluates a formula for parameters as texts.
#[pyfunction]
fn evaluate(py: Python<'_>, name: &str, parameters: Vec<(String, String)>) -> PyResult<Py<PyAny>> {
    let result = model(name, &parameters).map_err(lab)?;
    let values: serde_json::Map<_, _> =
        result.values.iter().map(|(name, value)| ((*name).to_string(), (*value).into())).collect();
    Ok(to_python(py, &values.into())?.unbind())
}

/// How long flash lasts of which the segments were erased so often while the host wrote `host_bytes` in `duration_s` seconds.
#[pyfunction]
fn forecast(
    py: Python<'_>,
    erases: Vec<u32>,
    endurance_erases: u32,
    worn_share: f64,
    host_bytes: f64,
    duration_s: f64,
) -> PyResult<Bound<'_, PyAny>> {
    if erases.is_empty() {
        return Err(usage("erases: has no element; expected one for each segment"));
    }
    if !(0.0..=1.0).contains(&worn_share) {
        return Err(usage(format!("worn_share = {worn_share}: expected a share from 0 to 1")));
    }
    for (name, value) in [("host_bytes", host_bytes), ("duration_s", duration_s)] {
        if !(value.is_finite() && value >= 0.0) {
            return Err(usage(format!("{name} = {value}: expected a number of at least 0")));
        }
    }
    let forecast = Forecast::new(&erases, endurance_erases, worn_share, host_bytes, duration_s);
    to_python(py, &serde_json::to_value(forecast).map_err(|error| usage(error.to_string()))?)
}

/// Replays page references through a page cache: the words are those of `margay vm replay`. One row for each scheme.
#[pyfunction]
fn vm_replay(py: Python<'_>, words: Vec<OsString>) -> PyResult<Table> {
    let command =
        PagingArgs::augment_args(clap::Command::new("vm replay").no_binary_name(true).disable_help_flag(true));
    let matches = command.try_get_matches_from(words).and_then(|matches| PagingArgs::from_arg_matches(&matches));
    // The first lines say what is wrong; what follows are hints for a terminal.
    let wrong = |error: clap::Error| {
        let text = error.to_string();
        let text = text.split("\n\nFor more information").next().unwrap_or_default();
        usage(text.split("\n\nUsage:").next().unwrap_or(text).trim_start_matches("error: ").trim())
    };
    let args = matches.map_err(wrong)?;
    let found = with_signals(py, move |stop| {
        let setups = args.schemes().into_iter().map(|scheme| args.setup(scheme)).collect::<Result<Vec<_>, _>>()?;
        let trace = args.load()?;
        let run = |setup| trace.run(setup, &mut |_| stop.goes_on());
        let rows = setups.iter().map(run).collect::<Result<Vec<_>, LabError>>()?;
        rows::flat(rows.iter())
    })?;
    Table::of_rows(&found.map_err(lab)?)
}

/// Runs a benchmark of files on the engine's file system, and returns its row.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn fs_replay(
    py: Python<'_>,
    benchmark: &str,
    allocator: &str,
    segments: Option<u32>,
    low_water: Option<u32>,
    normal_cleaning: bool,
    lazy_deletion: bool,
    seed: u64,
) -> PyResult<Py<PyAny>> {
    let allocator = allocator.parse().map_err(|error: margay_lab::PolicyError| lab(error.into()))?;
    let mix: margay_workload::FileMix = benchmark.parse().map_err(|error| lab(LabError::Workload(error)))?;
    let mut device = FileDevice::of_the_paper(allocator).map_err(lab)?;
    device.device.segments = segments.unwrap_or(device.device.segments);
    device.low_water = low_water.unwrap_or(device.low_water);
    (device.normal_cleaning, device.lazy_deletion) = (normal_cleaning, lazy_deletion);
    let row = with_signals(py, move |stop| run_benchmark_while(&device, &mix, seed, &stop.keep_on()))?.map_err(lab)?;
    let json = serde_json::to_value(row).map_err(|error| usage(error.to_string()))?;
    Ok(to_python(py, &json)?.unbind())
}

/// What cleaning a whole device costs: the numbers of `margay fs model`.
#[pyfunction]
fn fs_model(
    py: Python<'_>,
    utilization: f64,
    invalidity: f64,
    uniformity: f64,
    device: &str,
    segments: Option<u32>,
) -> PyResult<Py<PyAny>> {
    let device = DeviceSpec::load(device).map_err(|error| of_kind(ErrorKind::from(&error), error.to_string()))?;
    let estimate = cleaning_estimate([utilization, invalidity, uniformity], &device, segments).map_err(lab)?;
    let json = serde_json::to_value(estimate).map_err(|error| usage(error.to_string()))?;
    Ok(to_python(py, &json)?.unbind())
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(policies, module)?)?;
    module.add_function(wrap_pyfunction!(options, module)?)?;
    module.add_function(wrap_pyfunction!(paging_options, module)?)?;
    module.add_function(wrap_pyfunction!(models, module)?)?;
    module.add_function(wrap_pyfunction!(evaluate, module)?)?;
    module.add_function(wrap_pyfunction!(forecast, module)?)?;
    module.add_function(wrap_pyfunction!(vm_replay, module)?)?;
    module.add_function(wrap_pyfunction!(fs_replay, module)?)?;
    module.add_function(wrap_pyfunction!(fs_model, module)?)
}
