//! Traces of block devices: files, arrays, tables, generated ones.

use crate::borrowed::{elements, stream_of};
use crate::calls::Calls;
use crate::columns::{Batch, Builder, Column, KINDS, number_of};
use crate::errors::{lab, of_kind, usage};
use crate::interrupt::{Stop, with_policies, with_signals};
use crate::memory::Memory;
use crate::policy::Numpy;
use crate::table::Table;
use crate::values::{settings_table, to_python};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowDictionaryKeyType, Int8Type, Int16Type, Int32Type, UInt8Type, UInt16Type, UInt32Type};
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::DataType;
use margay_host::Existing;
use margay_lab::settings::from_table;
use margay_lab::{ErrorKind, HeldTrace, Reading};
use margay_trace::{
    Format, IoKind, ReadOptions, Request, TraceError, TraceInfo, TraceReader, TraceWriter, convert, info, open,
    open_while,
};
use margay_workload::{OpKind, Workload, WorkloadSpec};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PySlice};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use toml::Table as Settings;

/// Bytes of a request, if nothing else is said.
const PAGE_BYTES: u64 = 4096;

/// What a pickled name starts with if the requests are in memory: no path does.
const IN_MEMORY: &str = "\0memory:";

/// Where the requests are.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // A trace has one.
pub enum Place {
    File { path: String, reading: Settings, options: ReadOptions },
    Memory(Arc<Memory>),
}

impl Place {
    /// Reads the requests. The reader fails once it is asked to stop, so that nothing takes a part of them for all.
    fn reader(&self, stop: &Stop) -> Result<TraceReader, TraceError> {
        match self {
            Self::File { path, options, .. } => open_while(&PathBuf::from(path), options, stop.keep_on()),
            Self::Memory(memory) => Ok(memory.reader(&ReadOptions::default(), stop)),
        }
    }
}

/// Requests to block devices: in a file, or in memory.
#[pyclass(frozen, module = "margay")]
#[derive(Debug)]
pub struct Trace {
    pub place: Place,
    /// The number of requests of a file, once it was read.
    count: OnceLock<usize>,
}

fn of_trace(error: &TraceError) -> PyErr {
    of_kind(ErrorKind::from(error), error.to_string())
}

impl From<Memory> for Trace {
    fn from(memory: Memory) -> Self {
        Self { place: Place::Memory(Arc::new(memory)), count: OnceLock::new() }
    }
}

/// What pickle calls, and with what.
type Reduced<'py> = (Bound<'py, PyAny>, (String, String, Bound<'py, PyBytes>));

/// Takes an array whose elements are of one kind.
type Take = fn(&Bound<'_, PyAny>) -> Option<Column>;

/// A column of NumPy, or one number for all requests.
fn column(name: &str, given: &Bound<'_, PyAny>, rows: usize) -> PyResult<Column> {
    if let Ok(number) = given.extract::<i128>() {
        let number = u64::try_from(number);
        return Ok(Column::All(
            number.map_err(|_| usage(format!("{name} = {given}: expected a number from 0 to 2^64 - 1")))?,
        ));
    }
    // Lists and other sequences become arrays; arrays stay what they are.
    let given = Numpy::get(given.py())?.as_array.bind(given.py()).call1((given,)).map_err(|error| {
        let problem = error.value(given.py()).to_string();
        usage(format!("{name}: expected an array of whole numbers; NumPy says: {problem}"))
    })?;
    let dtype = given.getattr("dtype")?.str()?.to_string();
    let shape: Vec<usize> = given.getattr("shape")?.extract()?;
    if shape.len() != 1 {
        return Err(usage(format!(
            "{name}: expected an array with one dimension, not of shape {}",
            given.getattr("shape")?
        )));
    }
    if shape[0] != rows {
        return Err(usage(format!(
            "{name}: has {} elements, and offset_bytes has {rows}; both need one for each request",
            shape[0]
        )));
    }
    let take = |array: &Bound<'_, PyAny>| {
        let kinds: [Take; 8] = [
            |array| elements(array).map(Column::U64),
            |array| elements(array).map(Column::I64),
            |array| elements(array).map(Column::U32),
            |array| elements(array).map(Column::I32),
            |array| elements(array).map(Column::U16),
            |array| elements(array).map(Column::I16),
            |array| elements(array).map(Column::U8),
            |array| elements(array).map(Column::I8),
        ];
        kinds.iter().find_map(|take| take(array))
    };
    // Buffers do not tell the order of bytes apart.
    let is_native: bool = given.getattr("dtype")?.getattr("isnative")?.extract()?;
    if let Some(column) = take(&given).filter(|_| is_native) {
        return Ok(column);
    }
    let of_whole = ["int", "uint", ">i", ">u", "bool"].iter().any(|start| dtype.starts_with(start));
    if !of_whole {
        return Err(usage(format!("{name}: expected an array of whole numbers, not of dtype {dtype}")));
    }
    // Elements that do not lie side by side, or in another order of bytes, are copied.
    let numpy = given.py().import("numpy")?;
    let plain =
        numpy.call_method1("ascontiguousarray", (&given, if dtype.contains('u') { "uint64" } else { "int64" }))?;
    take(&plain).ok_or_else(|| usage(format!("{name}: an array of dtype {dtype} cannot be read")))
}

/// The numbers of kinds that are texts.
fn kinds_of<'a>(texts: impl Iterator<Item = Option<&'a str>>) -> Result<Vec<u8>, String> {
    let number = |text: Option<&str>| match text {
        None => Err("kind: a value is missing; fill or drop it".to_string()),
        Some(text) => {
            let found = KINDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
            found
                .map(|(_, kind)| number_of(*kind))
                .ok_or_else(|| format!("kind: '{text}' is none; expected read, write, trim or flush"))
        }
    };
    texts.map(number).collect()
}

fn keyed<K: ArrowDictionaryKeyType>(array: &ArrayRef) -> Result<Vec<u8>, String> {
    let dictionary = array.as_dictionary::<K>();
    let numbers = text_kinds(dictionary.values())?;
    let number = |key: Option<usize>| key.and_then(|key| numbers.get(key).copied());
    let missing = || "kind: a value is missing; fill or drop it".to_string();
    dictionary.keys_iter().map(|key| number(key).ok_or_else(missing)).collect()
}

fn text_kinds(array: &ArrayRef) -> Result<Vec<u8>, String> {
    match array.data_type() {
        DataType::Utf8 => kinds_of(array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => kinds_of(array.as_string::<i64>().iter()),
        DataType::Utf8View => kinds_of(array.as_string_view().iter()),
        DataType::Dictionary(keys, _) => match keys.as_ref() {
            DataType::UInt8 => keyed::<UInt8Type>(array),
            DataType::UInt16 => keyed::<UInt16Type>(array),
            DataType::UInt32 => keyed::<UInt32Type>(array),
            DataType::Int8 => keyed::<Int8Type>(array),
            DataType::Int16 => keyed::<Int16Type>(array),
            DataType::Int32 => keyed::<Int32Type>(array),
            other => Err(format!("kind: a dictionary with keys of {other} cannot be read")),
        },
        other => Err(format!("kind: expected text or whole numbers, not {other}")),
    }
}

/// The columns of a table of requests, in the order in which it is handed out.
const COLUMNS: [&str; 6] = ["time_us", "kind", "device", "offset_bytes", "len_bytes", "stream"];

fn batch_of(batch: &RecordBatch, len_bytes: u64) -> Result<Batch, String> {
    let array = |name: &str| batch.column_by_name(name);
    let of_array = |name: &str, otherwise: u64| match array(name) {
        Some(array) => Column::of_arrow(name, array),
        None => Ok(Column::All(otherwise)),
    };
    if array("offset_bytes").is_none() {
        let names: Vec<_> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
        return Err(format!("there is no column 'offset_bytes'; the columns are {}", names.join(", ")));
    }
    let kind = match array("kind") {
        Some(array) if array.data_type().is_integer() => Column::of_arrow("kind", array)?,
        Some(array) => Column::U8(text_kinds(array)?.into()),
        None => Column::All(number_of(IoKind::Write).into()),
    };
    Ok(Batch {
        rows: batch.num_rows(),
        time_us: of_array("time_us", 0)?,
        kind,
        device: of_array("device", 0)?,
        offset_bytes: of_array("offset_bytes", 0)?,
        len_bytes: of_array("len_bytes", len_bytes)?,
        stream: array("stream").map(|array| Column::of_arrow("stream", array)).transpose()?,
    })
}

/// Requests that are read.
fn collected(reader: &mut TraceReader, from: usize, to: usize) -> Result<Batch, TraceError> {
    let mut builder = Builder::default();
    for (at, request) in reader.by_ref().enumerate().take(to) {
        let request = request?;
        if at >= from {
            builder.push(&request);
        }
    }
    Ok(builder.finish())
}

#[pymethods]
impl Trace {
    /// A trace file: the options are those of the command.
    #[staticmethod]
    #[pyo3(signature = (path, **reading))]
    fn open(path: PathBuf, reading: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let reading =
            reading.map_or_else(|| Ok(Settings::new()), |given| Ok::<_, PyErr>(settings_table(given)?.table))?;
        let options = from_table::<Reading>(&reading).and_then(|reading| reading.options());
        let options = options.map_err(lab)?;
        // A missing file and a format that is not known are errors now, and not when the trace is used.
        open(&path, &options).map_err(|error| of_trace(&error))?;
        let path = path.into_os_string().into_string();
        let path = path.map_err(|path| usage(format!("{}: the name is no UTF-8", path.display())))?;
        Ok(Self { place: Place::File { path, reading, options }, count: OnceLock::new() })
    }

    /// A trace in arrays.
    #[staticmethod]
    #[pyo3(signature = (offset_bytes, len_bytes=None, *, kind=None, time_us=None, device=None, stream=None, name="numpy"))]
    #[allow(clippy::too_many_arguments)]
    fn from_numpy(
        py: Python<'_>,
        offset_bytes: &Bound<'_, PyAny>,
        len_bytes: Option<&Bound<'_, PyAny>>,
        kind: Option<&Bound<'_, PyAny>>,
        time_us: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
        stream: Option<&Bound<'_, PyAny>>,
        name: &str,
    ) -> PyResult<Self> {
        let name = name.to_string();
        let rows = offset_bytes
            .len()
            .map_err(|_| usage("offset_bytes: expected an array with one element for each request"))?;
        let or_all = |name: &str, given: Option<&Bound<'_, PyAny>>, otherwise: u64| match given {
            Some(given) => column(name, given, rows),
            None => Ok(Column::All(otherwise)),
        };
        let write = u64::from(number_of(IoKind::Write));
        let batch = Batch {
            rows,
            time_us: or_all("time_us", time_us, 0)?,
            kind: match kind.map(|kind| kind.extract::<String>()) {
                Some(Ok(name)) => Column::All(kinds_of([Some(name.as_str())].into_iter()).map_err(usage)?[0].into()),
                _ => or_all("kind", kind, write)?,
            },
            device: or_all("device", device, 0)?,
            offset_bytes: column("offset_bytes", offset_bytes, rows)?,
            len_bytes: or_all("len_bytes", len_bytes, PAGE_BYTES)?,
            stream: stream.map(|stream| column("stream", stream, rows)).transpose()?,
        };
        let memory = with_signals(py, move |stop| Memory::new(name, vec![batch], Arc::default(), stop))?;
        Ok(memory.map_err(usage)?.into())
    }

    /// A trace in a table of any library that speaks Arrow.
    #[staticmethod]
    #[pyo3(signature = (table, *, len_bytes=4096, name="arrow"))]
    fn from_arrow(py: Python<'_>, table: &Bound<'_, PyAny>, len_bytes: u64, name: &str) -> PyResult<Self> {
        let name = name.to_string();
        if !table.hasattr("__arrow_c_stream__")? {
            let kind = table.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "expected a table of polars, pandas, pyarrow, DuckDB or another library with __arrow_c_stream__, not {kind}"
            )));
        }
        let mut reader = stream_of(table)?;
        // The batches may be made by code of Python while they are read.
        let calls = Calls::default();
        let of_stream = calls.clone();
        let memory = with_policies(py, &calls, move |stop| {
            let mut next = || {
                Python::attach(|py| {
                    let _call = of_stream.begin();
                    py.detach(|| reader.next())
                })
            };
            let mut batches = Vec::new();
            while let Some(batch) = next().filter(|_| stop.goes_on()) {
                let batch = batch.map_err(|error| format!("the stream of Arrow cannot be read: {error}"))?;
                batches.push(batch_of(&batch, len_bytes)?);
            }
            Memory::new(name, batches, Arc::default(), stop)
        })?;
        Ok(memory.map_err(usage)?.into())
    }

    /// A generated trace in memory.
    #[staticmethod]
    #[pyo3(signature = (workload, *, pages=65536, page_bytes=4096, seed=1))]
    fn generate(py: Python<'_>, workload: String, pages: u32, page_bytes: u32, seed: u64) -> PyResult<Self> {
        if page_bytes == 0 {
            return Err(usage("page_bytes = 0: expected at least 1"));
        }
        let spec = WorkloadSpec::load(&workload).map_err(|error| usage(error.to_string()))?;
        if spec.expected_writes().is_none() {
            return Err(usage(format!("workload '{spec}' has no end: add writes=N")));
        }
        let mut running = Workload::new(&spec, pages, seed).map_err(|error| usage(error.to_string()))?;
        let memory = with_signals(py, move |stop| {
            let (mut builder, mut ops) = (Builder::default(), Vec::new());
            let len_bytes = u64::from(page_bytes);
            while running.next_batch(&mut ops, 4096) > 0 && stop.goes_on() {
                for op in ops.drain(..) {
                    let kind = match op.kind {
                        OpKind::Write => IoKind::Write,
                        OpKind::Trim => IoKind::Trim,
                        OpKind::Read => IoKind::Read,
                    };
                    let offset_bytes = u64::from(op.lpn) * len_bytes;
                    builder.push(&Request {
                        time_us: op.time_us,
                        kind,
                        device: 0,
                        offset_bytes,
                        len_bytes,
                        stream: None,
                    });
                }
            }
            Memory::new(spec.to_string(), vec![builder.finish()], Arc::default(), stop)
        })?;
        Ok(memory.map_err(usage)?.into())
    }

    /// The name of the trace in results.
    #[getter]
    fn name(&self) -> String {
        match &self.place {
            Place::File { path, .. } => path.rsplit('/').next().unwrap_or(path).into(),
            Place::Memory(memory) => memory.name().into(),
        }
    }

    /// The file, if the trace is in one.
    #[getter]
    fn path(&self) -> Option<&str> {
        match &self.place {
            Place::File { path, .. } => Some(path),
            Place::Memory(_) => None,
        }
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        if let Place::Memory(memory) = &self.place {
            return Ok(memory.len());
        }
        if let Some(count) = self.count.get() {
            return Ok(*count);
        }
        let place = self.place.clone();
        let count =
            with_signals(py, move |stop| place.reader(stop)?.try_fold(0, |count, request| request.map(|_| count + 1)))?;
        let count = count.map_err(|error| of_trace(&error))?;
        Ok(*self.count.get_or_init(|| count))
    }

    /// Requests in a row, in memory. Their times count from the first of them when they are replayed.
    fn __getitem__(&self, py: Python<'_>, slice: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Ok(slice) = slice.cast::<PySlice>() else {
            return Err(PyTypeError::new_err("expected a slice such as trace[1000:2000]"));
        };
        let rows = self.__len__(py)?;
        let wanted = slice.indices(isize::try_from(rows).unwrap_or(isize::MAX))?;
        if wanted.step != 1 {
            return Err(PyIndexError::new_err("a slice of a trace has no step"));
        }
        let (from, to) = (wanted.start.max(0) as usize, wanted.stop.max(wanted.start).max(0) as usize);
        self.part(py, from, to)
    }

    /// The statistics of `margay trace info` for pages of this size.
    #[pyo3(signature = (*, page_bytes=4096))]
    fn info<'py>(&self, py: Python<'py>, page_bytes: u32) -> PyResult<Bound<'py, PyAny>> {
        let facts = self.facts(py, page_bytes)?;
        let mut json = serde_json::to_value(&facts).map_err(|error| crate::errors::run(error.to_string()))?;
        if let Place::Memory(memory) = &self.place {
            json["xxh3"] = memory.xxh3().into();
        }
        to_python(py, &json)
    }

    /// One row for each volume (device) of the trace.
    fn volumes(&self, py: Python<'_>) -> PyResult<Table> {
        let devices: Vec<_> = self.facts(py, 4096)?.devices.into_iter().collect();
        let count = |of: fn(&margay_trace::DeviceInfo) -> u64| -> ArrayRef {
            Arc::new(devices.iter().map(|(_, device)| of(device)).collect::<UInt64Array>())
        };
        let numbers: ArrayRef = Arc::new(devices.iter().map(|(number, _)| u64::from(*number)).collect::<UInt64Array>());
        let names: ArrayRef =
            Arc::new(devices.iter().map(|(_, device)| Some(device.name.as_str())).collect::<StringArray>());
        Table::new(vec![
            ("device".into(), numbers),
            ("name".into(), names),
            ("reads".into(), count(|device| device.reads)),
            ("writes".into(), count(|device| device.writes)),
            ("end_bytes".into(), count(|device| device.end_bytes)),
        ])
    }

    /// Writes the trace to a file.
    #[pyo3(signature = (path, *, format="mgt", force=false))]
    fn save(&self, py: Python<'_>, path: PathBuf, format: &str, force: bool) -> PyResult<u64> {
        let format: Format = format.parse().map_err(|error| of_trace(&error))?;
        let place = self.place.clone();
        let existing = if force { Existing::Replace } else { Existing::Refuse };
        let counts = with_signals(py, move |stop| {
            let writer = TraceWriter::create_with(&path, format, existing)?;
            convert(place.reader(stop)?, writer)
        })?;
        counts.map(|counts| counts.requests).map_err(|error| of_trace(&error))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        self.table(py)?.stream(py, requested_schema)
    }

    /// What `pickle` needs: the file and how it is read, or the requests.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        let restore = slf.get_type().getattr("_restored")?;
        let failed = |error: toml::ser::Error| usage(error.to_string());
        let parts = match &slf.get().place {
            Place::File { path, reading, .. } => {
                (path.clone(), toml::to_string(reading).map_err(failed)?, PyBytes::new(slf.py(), b""))
            }
            Place::Memory(memory) => {
                let names = memory.device_names.iter().map(|(number, name)| (number.to_string(), name.clone().into()));
                let names = toml::to_string(&names.collect::<Settings>()).map_err(failed)?;
                (
                    format!("{IN_MEMORY}{}", memory.name()),
                    names,
                    PyBytes::new(slf.py(), &memory.to_bytes().map_err(usage)?),
                )
            }
        };
        Ok((restore, parts))
    }

    #[staticmethod]
    fn _restored(name: String, table: &str, requests: &[u8]) -> PyResult<Self> {
        let table = toml::from_str::<Settings>(table).map_err(|error| usage(error.to_string()))?;
        let Some(name) = name.strip_prefix(IN_MEMORY) else {
            let options = from_table::<Reading>(&table).and_then(|reading| reading.options());
            let options = options.map_err(lab)?;
            return Ok(Self { place: Place::File { path: name, reading: table, options }, count: OnceLock::new() });
        };
        let names =
            table.into_iter().filter_map(|(number, name)| Some((number.parse().ok()?, name.as_str()?.to_string())));
        Ok(Memory::of_bytes(name.to_string(), requests, names.collect()).map_err(usage)?.into())
    }

    fn __repr__(&self) -> String {
        match &self.place {
            Place::File { path, .. } => format!("<margay.Trace {path}>"),
            Place::Memory(memory) => format!("<margay.Trace {}: {} requests in memory>", memory.name(), memory.len()),
        }
    }
}

impl Trace {
    fn part(&self, py: Python<'_>, from: usize, to: usize) -> PyResult<Self> {
        let (place, name) = (self.place.clone(), self.name());
        let part = with_signals(py, move |stop| match &place {
            Place::Memory(memory) => memory.slice(from, to, stop).map_err(Err),
            Place::File { .. } => {
                let mut reader = place.reader(stop).map_err(Ok)?;
                let batch = collected(&mut reader, from, to).map_err(Ok)?;
                let Column::U32(devices) = &batch.device else { unreachable!("the builder makes this column") };
                let numbers: std::collections::BTreeSet<u32> = devices.iter().copied().collect();
                let names = numbers.into_iter().map(|number| (number, reader.device_name(number)));
                let names: BTreeMap<_, _> = names.filter(|(number, name)| *name != number.to_string()).collect();
                Memory::new(name, vec![batch], Arc::new(names), stop).map_err(Err)
            }
        })?;
        part.map(Self::from).map_err(|error: Result<TraceError, String>| match error {
            Ok(error) => of_trace(&error),
            Err(problem) => usage(problem),
        })
    }

    fn facts(&self, py: Python<'_>, page_bytes: u32) -> PyResult<TraceInfo> {
        if page_bytes == 0 {
            return Err(usage("page_bytes = 0: expected at least 1"));
        }
        let place = self.place.clone();
        let facts = with_signals(py, move |stop| info(place.reader(stop)?, page_bytes))?;
        facts.map_err(|error| of_trace(&error))
    }

    /// The requests as a table.
    fn table(&self, py: Python<'_>) -> PyResult<Table> {
        let place = self.place.clone();
        let collected = with_signals(py, move |stop| place.reader(stop)?.collect::<Result<Vec<Request>, _>>())?;
        let requests = collected.map_err(|error| of_trace(&error))?;
        let numbers =
            |of: fn(&Request) -> u64| -> ArrayRef { Arc::new(requests.iter().map(of).collect::<UInt64Array>()) };
        let kinds = requests.iter().map(|request| Some(KINDS[usize::from(number_of(request.kind))].0));
        let columns: [ArrayRef; 6] = [
            numbers(|request| request.time_us),
            Arc::new(kinds.collect::<StringArray>()),
            Arc::new(requests.iter().map(|request| request.device).collect::<UInt32Array>()),
            numbers(|request| request.offset_bytes),
            numbers(|request| request.len_bytes),
            Arc::new(requests.iter().map(|request| request.stream).collect::<arrow_array::UInt8Array>()),
        ];
        // Without streams the column would say nothing, and could not be read back.
        let has_streams = requests.iter().any(|request| request.stream.is_some());
        let named = COLUMNS.iter().zip(columns).filter(|(name, _)| has_streams || **name != "stream");
        Table::new(named.map(|(name, column)| ((*name).to_string(), column)).collect())
    }

    /// The trace as a source of settings: its name, and its content if it is in memory.
    pub fn as_source(&self) -> (String, Settings, Option<Arc<dyn HeldTrace>>) {
        match &self.place {
            Place::File { path, reading, .. } => (path.clone(), reading.clone(), None),
            Place::Memory(memory) => {
                let held: Arc<dyn HeldTrace> = Arc::<Memory>::clone(memory);
                (memory.key(), Settings::new(), Some(held))
            }
        }
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Trace>()
}
