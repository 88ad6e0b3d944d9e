//! The results of runs.

use crate::errors::lab;
use crate::table::{Table, escaped};
use crate::values::to_python;
use arrow_array::{ArrayRef, UInt64Array};
use margay_lab::{Outcome, ResultRow, rows, summary};
use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyType};
use serde::Serialize;
use std::sync::Arc;

/// What one run cost.
#[pyclass(frozen, name = "Result", module = "margay")]
#[derive(Debug)]
pub struct RunResult {
    outcomes: Arc<[Outcome]>,
    at: usize,
}

fn as_dict<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyDict>> {
    let json = serde_json::to_value(value).map_err(|error| crate::errors::run(error.to_string()))?;
    Ok(to_python(py, &json)?.cast_into::<PyDict>()?)
}

/// Numbers from 0 on beside these values.
fn numbered(name: &str, of: &str, values: impl ExactSizeIterator<Item = u64>) -> PyResult<Table> {
    let numbers: ArrayRef = Arc::new((0..values.len() as u64).collect::<UInt64Array>());
    Table::new(vec![(name.into(), numbers), (of.into(), Arc::new(values.collect::<UInt64Array>()))])
}

impl From<Outcome> for RunResult {
    fn from(outcome: Outcome) -> Self {
        Self { outcomes: [outcome].into(), at: 0 }
    }
}

impl RunResult {
    pub fn outcome(&self) -> &Outcome {
        &self.outcomes[self.at]
    }

    fn alone(&self) -> &[Outcome] {
        &self.outcomes[self.at..=self.at]
    }

    /// The headline of a run: policies, source, write amplification.
    fn title(row: &ResultRow) -> String {
        let (selection, placement) = summary::policies_of(row);
        format!("{selection} + {placement} on {}, {}", row.source, row.device)
    }
}

#[pymethods]
impl RunResult {
    /// The scalars by the names of the command's JSON; `forecast` is a dictionary. Counts are in pages unless the name says
    /// otherwise, times in the unit that the name ends with.
    #[getter]
    fn row<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        as_dict(py, &self.outcome().row)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let found = self.row(py)?.get_item(name)?;
        found.ok_or_else(|| PyKeyError::new_err(format!("there is no scalar '{name}'; result.row has all of them")))
    }

    /// Write amplification of the whole run.
    #[getter]
    fn wa(&self) -> f64 {
        self.outcome().row.wa
    }

    /// Write amplification of the warm window.
    #[getter]
    fn wa_warm(&self) -> f64 {
        self.outcome().row.wa_warm
    }

    /// Whether write amplification had settled in the warm window.
    #[getter]
    fn settled(&self) -> bool {
        self.outcome().row.settled
    }

    /// How long the flash lasts if the workload goes on so: years, and terabytes written.
    #[getter]
    fn forecast<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        as_dict(py, &self.outcome().row.forecast)
    }

    /// The state over the run: one row for each of some hundred moments.
    #[getter]
    fn series(&self) -> PyResult<Table> {
        Table::of_rows(&rows::flat(self.outcome().series.iter()).map_err(lab)?)
    }

    /// One row for each segment: its number, and how often it was erased.
    #[getter]
    fn segments(&self) -> PyResult<Table> {
        numbered("segment", "erases", self.outcome().erases.iter().map(|erases| u64::from(*erases)))
    }

    /// One row for each number of valid pages that a victim can have: how many victims had it.
    #[getter]
    fn victims(&self) -> PyResult<Table> {
        numbered("valid_pages", "victims", self.outcome().victims.iter().copied())
    }

    /// One row for each volume of a trace that has several; otherwise none.
    #[getter]
    fn volumes(&self) -> PyResult<Table> {
        Table::of_rows(&rows::flat(self.outcome().tenants.iter()).map_err(lab)?)
    }

    /// The row as a table, with the columns of the command's CSV and Parquet files.
    #[getter]
    fn table(&self) -> PyResult<Table> {
        Table::of_rows(&rows::of_runs(self.alone()).map_err(lab)?)
    }

    /// What `margay replay --format json` prints.
    fn to_json(&self) -> PyResult<String> {
        rows::runs_as_json(self.alone()).map_err(lab)
    }

    /// A result from its JSON.
    #[classmethod]
    fn from_json(_: &Bound<'_, PyType>, text: &str) -> PyResult<Self> {
        let outcome = serde_json::from_str::<Outcome>(text);
        outcome.map(Self::from).map_err(|error| crate::errors::input(format!("this is no result of a run: {error}")))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        Ok((slf.get_type().getattr("from_json")?, (slf.get().to_json()?,)))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        self.table()?.stream(py, requested_schema)
    }

    fn __repr__(&self) -> String {
        let row = &self.outcome().row;
        format!("<margay.Result {}: WA {:.3}>", Self::title(row), row.wa_warm)
    }

    fn _repr_html_(&self) -> String {
        let row = &self.outcome().row;
        let half = row.wa_warm_half95.map_or_else(String::new, |half| format!(" &plusmn; {half:.3}"));
        let or_none =
            |value: Option<f64>, unit: &str| value.map_or("not known".into(), |value| format!("{value:.2} {unit}"));
        let settled = if row.settled { "yes".into() } else { format!("no: {}", escaped(&row.unsettled)) };
        let lines = [
            ("write amplification, warm window", format!("{:.3}{half}", row.wa_warm)),
            ("settled", settled),
            ("host writes", format!("{} pages", row.host_writes)),
            ("copies", format!("{} pages", row.copies)),
            ("erases", format!("{} segments", row.erases)),
            ("over-provisioning", format!("{:.1} %", 100.0 * row.over_provisioning)),
            (
                "erases of a segment",
                format!("{} to {}, deviation {:.2}", row.erases_min, row.erases_max, row.erases_deviation),
            ),
            ("until the first segment is worn out", or_none(row.forecast.years_first, "years")),
            ("written until then", or_none(row.forecast.tbw_first, "TB")),
        ];
        let mut html = format!("<table>\n<caption>{}</caption>\n", escaped(&Self::title(row)));
        for (name, value) in lines {
            html += &format!("<tr><th style=\"text-align:left\">{name}</th><td>{value}</td></tr>\n");
        }
        html + "</table>\n"
    }
}

/// What pickle calls for several results, and with what.
type Reduced<'py> = (Bound<'py, PyAny>, (String, Vec<String>));

/// The results of several runs, in order.
#[pyclass(frozen, sequence, module = "margay")]
#[derive(Debug)]
pub struct Results {
    pub outcomes: Arc<[Outcome]>,
    /// Placements that a comparison left out.
    pub left_out: Vec<String>,
}

#[pymethods]
impl Results {
    fn __len__(&self) -> usize {
        self.outcomes.len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<RunResult> {
        let len = self.outcomes.len() as isize;
        let at = if index < 0 { index + len } else { index };
        if !(0..len).contains(&at) {
            return Err(PyIndexError::new_err(format!("there are {len} results")));
        }
        Ok(RunResult { outcomes: Arc::clone(&self.outcomes), at: at as usize })
    }

    /// The rows, with the columns of the command's CSV and Parquet files.
    #[getter]
    fn table(&self) -> PyResult<Table> {
        Table::of_rows(&rows::of_runs(&self.outcomes).map_err(lab)?)
    }

    /// Placements that were left out, because the device has too little spare room for their streams.
    #[getter]
    fn left_out(&self) -> Vec<String> {
        self.left_out.clone()
    }

    /// Which policies to choose, in the words of `margay compare`; empty if nothing can be said.
    #[getter]
    fn advice(&self) -> String {
        summary::advice(&summary::Group::by_policies(self.outcomes.iter().map(|outcome| &outcome.row)))
            .trim_end()
            .into()
    }

    /// What `margay compare --format json` prints.
    fn to_json(&self) -> PyResult<String> {
        rows::runs_as_json(&self.outcomes).map_err(lab)
    }

    /// What `pickle` needs: the results, and what was left out.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        let this = slf.get();
        let outcomes = serde_json::to_string(&this.outcomes[..]);
        let outcomes = outcomes.map_err(|error| crate::errors::run(error.to_string()))?;
        Ok((slf.get_type().getattr("_restored")?, (outcomes, this.left_out.clone())))
    }

    #[staticmethod]
    fn _restored(outcomes: &str, left_out: Vec<String>) -> PyResult<Self> {
        let outcomes = serde_json::from_str::<Vec<Outcome>>(outcomes);
        let outcomes = outcomes.map_err(|error| crate::errors::input(format!("these are no results: {error}")))?;
        Ok(Self { outcomes: outcomes.into(), left_out })
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        self.table()?.stream(py, requested_schema)
    }

    fn __repr__(&self) -> String {
        format!("<margay.Results of {} runs>", self.outcomes.len())
    }

    fn _repr_html_(&self) -> String {
        let groups = summary::Group::by_policies(self.outcomes.iter().map(|outcome| &outcome.row));
        let mut groups: Vec<_> = groups.iter().map(|group| (group, group.wa())).collect();
        groups.sort_by(|(_, a), (_, b)| a.mean.total_cmp(&b.mean));
        let mut html = String::from("<table>\n<tr><th>policies</th><th>runs</th><th>write amplification</th></tr>\n");
        for (group, wa) in groups {
            let half = wa.half95.map_or_else(String::new, |half| format!(" &plusmn; {half:.3}"));
            let name = escaped(&group.name());
            html += &format!("<tr><td>{name}</td><td>{}</td><td>{:.3}{half}</td></tr>\n", group.rows.len(), wa.mean);
        }
        html + "</table>\n<p>" + &escaped(&self.advice()) + "</p>\n"
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RunResult>()?;
    module.add_class::<Results>()
}
