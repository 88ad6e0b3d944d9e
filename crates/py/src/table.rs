//! Tables: columns of Arrow, which other libraries take without a copy through the Arrow PyCapsule interface.

use crate::errors;
use arrow_array::cast::AsArray;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, to_ffi};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, RecordBatch, RecordBatchIterator, RecordBatchOptions, StringArray,
    StructArray, UInt64Array,
};
use arrow_schema::{ArrowError, DataType, Schema};
use margay_lab::rows::{Kind, Row};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyList, PyString};
use serde_json::Value;
use std::ffi::CStr;
use std::sync::Arc;

/// A table of columns of equal length.
///
/// polars, pandas, DuckDB, pyarrow and others take it as it is: `polars.DataFrame(table)`, `pandas.DataFrame.from_arrow(table)`,
/// `pyarrow.table(table)`. `table["wa"]` is a column as an array of NumPy.
#[pyclass(frozen, module = "margay")]
#[derive(Debug)]
pub struct Table {
    pub batch: RecordBatch,
}

pub fn arrow_error(error: &ArrowError) -> PyErr {
    errors::run(format!("the table cannot be made: {error}"))
}

const ARRAY: &CStr = c"arrow_array";
const SCHEMA: &CStr = c"arrow_schema";
const STREAM: &CStr = c"arrow_array_stream";

/// A schema in the capsule of the Arrow PyCapsule interface.
fn schema_capsule<'py>(py: Python<'py>, schema: FFI_ArrowSchema) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

impl Table {
    /// A table of these columns.
    pub fn new(columns: Vec<(String, ArrayRef)>) -> PyResult<Self> {
        let rows = columns.first().map_or(0, |(_, column)| column.len());
        let fields: Vec<arrow_schema::Field> = columns
            .iter()
            .map(|(name, column)| arrow_schema::Field::new(name, column.data_type().clone(), column.is_nullable()))
            .collect();
        let arrays = columns.into_iter().map(|(_, column)| column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options);
        Ok(Self { batch: batch.map_err(|error| arrow_error(&error))? })
    }

    /// The table of these rows; the first one names the columns. The kinds of columns are those of the command's Parquet
    /// files.
    pub fn of_rows(rows: &[Row]) -> PyResult<Self> {
        let column = |key: &String| -> (String, ArrayRef) {
            let values = || rows.iter().map(|row| row.get(key).unwrap_or(&Value::Null));
            let array: ArrayRef = match Kind::of(rows, key) {
                Kind::Text => Arc::new(values().map(Value::as_str).collect::<StringArray>()),
                Kind::Flag => Arc::new(values().map(Value::as_bool).collect::<BooleanArray>()),
                Kind::Count => Arc::new(values().map(Value::as_u64).collect::<UInt64Array>()),
                Kind::Fraction => Arc::new(values().map(Value::as_f64).collect::<Float64Array>()),
            };
            (key.clone(), array)
        };
        Self::new(rows.first().into_iter().flat_map(Row::keys).map(column).collect())
    }

    fn array(&self, name: &str) -> PyResult<&ArrayRef> {
        self.batch.column_by_name(name).ok_or_else(|| {
            let known = self.names().join(", ");
            pyo3::exceptions::PyKeyError::new_err(format!("there is no column '{name}'; the columns are {known}"))
        })
    }

    fn names(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The value of a cell as one of Python.
    fn cell<'py>(py: Python<'py>, array: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
        if array.is_null(row) {
            return Ok(py.None().into_bound(py));
        }
        Ok(match array.data_type() {
            DataType::Float64 => array.as_primitive::<Float64Type>().value(row).into_pyobject(py)?.into_any(),
            DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).into_pyobject(py)?.into_any(),
            DataType::Boolean => array.as_boolean().value(row).into_pyobject(py)?.to_owned().into_any(),
            _ => PyString::new(py, array.as_string::<i32>().value(row)).into_any(),
        })
    }

    /// The cell as text for people.
    fn shown(array: &ArrayRef, row: usize) -> String {
        if array.is_null(row) {
            return String::new();
        }
        match array.data_type() {
            DataType::Float64 => {
                let number = array.as_primitive::<Float64Type>().value(row);
                let text = format!("{number:.6}");
                if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
            }
            DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).to_string(),
            DataType::Boolean => array.as_boolean().value(row).to_string(),
            _ => array.as_string::<i32>().value(row).into(),
        }
    }
}

/// Text that HTML shows as it is.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Rows that a page shows.
const SHOWN_ROWS: usize = 50;

#[pymethods]
impl Table {
    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.names()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// A column as an array of NumPy with one element for each row: float64 (NaN where there is no value), uint64, bool, or
    /// object for text.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let array = self.array(name)?;
        let numpy = py.import("numpy")?;
        let of_bytes = |bytes: &[u8], dtype: &str| numpy.call_method1("frombuffer", (PyBytes::new(py, bytes), dtype));
        match array.data_type() {
            DataType::Float64 => {
                let array = array.as_primitive::<Float64Type>();
                if array.null_count() == 0 {
                    return of_bytes(&array.values().inner().as_slice()[..array.len() * 8], "<f8");
                }
                let bytes: Vec<u8> = array.iter().flat_map(|value| value.unwrap_or(f64::NAN).to_le_bytes()).collect();
                of_bytes(&bytes, "<f8")
            }
            DataType::UInt64 if array.null_count() == 0 => {
                let array = array.as_primitive::<UInt64Type>();
                of_bytes(&array.values().inner().as_slice()[..array.len() * 8], "<u8")
            }
            DataType::UInt64 => {
                let values = array.as_primitive::<UInt64Type>();
                let numbers = values.iter().map(|value| value.map_or(f64::NAN, |value| value as f64));
                of_bytes(&numbers.flat_map(f64::to_le_bytes).collect::<Vec<u8>>(), "<f8")
            }
            kind => {
                let dtype = if *kind == DataType::Boolean && array.null_count() == 0 { "bool" } else { "object" };
                let cells = (0..array.len()).map(|row| Self::cell(py, array, row)).collect::<PyResult<Vec<_>>>()?;
                let options = PyDict::new(py);
                options.set_item("dtype", dtype)?;
                numpy.call_method("array", (PyList::new(py, cells)?,), Some(&options))
            }
        }
    }

    /// The rows as dictionaries.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let (names, list) = (self.names(), PyList::empty(py));
        for row in 0..self.batch.num_rows() {
            let dict = PyDict::new(py);
            for (name, array) in names.iter().zip(self.batch.columns()) {
                dict.set_item(name, Self::cell(py, array, row)?)?;
            }
            list.append(dict)?;
        }
        Ok(list)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema().as_ref()).map_err(|error| arrow_error(&error))?;
        schema_capsule(py, schema)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // Another schema is a wish that the interface lets a producer pass over.
        let _ = requested_schema;
        let data = StructArray::from(self.batch.clone()).into_data();
        let (array, schema): (FFI_ArrowArray, _) = to_ffi(&data).map_err(|error| arrow_error(&error))?;
        Ok((schema_capsule(py, schema)?, PyCapsule::new_with_value(py, array, ARRAY)?))
    }

    #[pyo3(name = "__arrow_c_stream__", signature = (requested_schema=None))]
    pub fn stream<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), STREAM)
    }

    fn __repr__(&self) -> String {
        let names = self.names();
        let shown = names.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
        let more = if names.len() > 8 { ", ..." } else { "" };
        format!("<margay.Table of {} rows: {shown}{more}>", self.batch.num_rows())
    }

    fn _repr_html_(&self) -> String {
        let mut html = String::from("<table>\n<tr>");
        self.names().iter().for_each(|name| html += &format!("<th>{}</th>", escaped(name)));
        html += "</tr>\n";
        for row in 0..self.batch.num_rows().min(SHOWN_ROWS) {
            html += "<tr>";
            for array in self.batch.columns() {
                html += &format!("<td>{}</td>", escaped(&Self::shown(array, row)));
            }
            html += "</tr>\n";
        }
        html += "</table>\n";
        if self.batch.num_rows() > SHOWN_ROWS {
            html += &format!("<p>{SHOWN_ROWS} of {} rows</p>\n", self.batch.num_rows());
        }
        html
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Table>()
}
