//! A placement in Python.

use crate::errors::{policy, usage};
use crate::policy::lent::{Element, Lent, Number, Numpy};
use crate::policy::{Given, shown};
use margay_lab::{BatchPlacement, OwnPlacement, OwnPolicy, PageBatch};
use margay_policy::{Now, Sizing};
use pyo3::prelude::*;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Host writes of a batch, if the policy does not say how many.
const USUAL_BATCH: u32 = 256;
/// The greatest number of host writes of a batch.
const MAX_BATCH: u32 = 1 << 20;
/// The greatest number of streams, as that of placements of the table.
const MAX_STREAMS: u32 = 64;

/// A placement as the program gave it.
pub struct PythonPlacement {
    given: Arc<Given>,
    streams: u8,
    opened_at_start: u8,
    batch_pages: usize,
}

impl PythonPlacement {
    pub fn new(given: Arc<Given>, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let number = |key: &str, min: u32, max: u32| -> PyResult<Option<u32>> {
            let Some(value) = object.getattr_opt(key)? else { return Ok(None) };
            let number = value.extract::<u32>().ok().filter(|number| (min..=max).contains(number));
            let wrong = || {
                usage(format!("{}: {key} = {}: expected a whole number from {min} to {max}", given.name, shown(&value)))
            };
            number.map(Some).ok_or_else(wrong)
        };
        let streams = number("streams", 1, MAX_STREAMS)?.ok_or_else(|| {
            usage(format!(
                "{}: it does not say how many streams it has: decorate the function with @margay.policy.placement(streams=2), or give the class the attribute streams = 2",
                given.name
            ))
        })?;
        let batch_pages = number("batch", 1, MAX_BATCH)?.unwrap_or(USUAL_BATCH) as usize;
        let opened_at_start = number("opened_at_start", 0, streams)?.unwrap_or(0) as u8;
        Ok(Self { given, streams: streams as u8, opened_at_start, batch_pages })
    }
}

impl fmt::Debug for PythonPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.given.unique())
    }
}

impl OwnPolicy for PythonPlacement {
    fn name(&self) -> &str {
        &self.given.name
    }

    fn failure(&self) -> Option<Box<dyn Error + Send + Sync>> {
        self.given.failure()
    }
}

impl OwnPlacement for PythonPlacement {
    fn streams(&self) -> u8 {
        self.streams
    }

    fn opened_at_start(&self) -> u8 {
        self.opened_at_start
    }

    fn batch_pages(&self) -> usize {
        self.batch_pages
    }

    fn build(&self, sizing: Sizing) -> Box<dyn BatchPlacement> {
        let built = Python::attach(|py| self.given.callable(py, sizing));
        let callable = built.map_err(|error| self.given.fail(error)).ok();
        Box::new(Running { given: Arc::clone(&self.given), callable, streams: self.streams })
    }
}

/// A placement in a run.
struct Running {
    given: Arc<Given>,
    /// None if it could not be made.
    callable: Option<Py<PyAny>>,
    streams: u8,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.given.name)
    }
}

impl BatchPlacement for Running {
    fn place(&mut self, batch: PageBatch, now: Now) -> Vec<u8> {
        let Some(callable) = self.callable.as_ref().filter(|_| !self.given.has_failed()) else { return Vec::new() };
        let placed = Python::attach(|py| {
            let pages = batch.len();
            let view = Bound::new(py, PagesView::new(py, batch, now)?)?;
            self.given.in_call(|| {
                let answer = callable.bind(py).call1((&view,))?;
                streams(&answer, pages, self.streams)?.map_err(|problem| {
                    policy(format!(
                        "placement {} answered {}, for a batch of {pages} pages after {} host writes: {problem}; allowed is an array of {pages} whole numbers, the stream of each page, from 0 to {}",
                        self.given.name,
                        shown(&answer),
                        now.writes,
                        self.streams - 1
                    ))
                })
            })
        });
        placed.map_err(|error| self.given.fail(error)).unwrap_or_default()
    }
}

/// The streams that an answer means, or what is wrong with it.
fn streams(answer: &Bound<'_, PyAny>, pages: usize, streams: u8) -> PyResult<Result<Vec<u8>, String>> {
    let py = answer.py();
    let array = match Numpy::get(py)?.as_array.bind(py).call1((answer,)) {
        Ok(array) => array,
        Err(error) => return Ok(Err(format!("it is no array ({})", error.value(py)))),
    };
    let kind: char = array.getattr("dtype")?.getattr("kind")?.extract()?;
    if !matches!(kind, 'u' | 'i' | 'b') {
        return Ok(Err(format!("its elements are {}, and no whole numbers", array.getattr("dtype")?)));
    }
    let shape: Vec<usize> = array.getattr("shape")?.extract()?;
    if shape != [pages] {
        return Ok(Err(format!("its shape is {}", array.getattr("shape")?)));
    }
    let outside =
        array.call_method1("__ge__", (streams,))?.call_method1("__or__", (array.call_method1("__lt__", (0,))?,))?;
    if outside.call_method0("any")?.is_truthy()? {
        let first: usize = outside.call_method0("argmax")?.extract()?;
        return Ok(Err(format!("page {first} of the batch would go to stream {}", array.get_item(first)?)));
    }
    Ok(Ok(array.call_method1("astype", ("uint8",))?.call_method0("tobytes")?.extract()?))
}

/// The pages that a placement in Python decides on together. Its arrays are the program's own.
#[pyclass(frozen, name = "Pages", module = "margay.policy")]
pub struct PagesView {
    pages: usize,
    now: Now,
    lba: Py<Lent>,
    kind: Py<Lent>,
    age: Py<Lent>,
    stream: Py<Lent>,
    segment_age: Py<Lent>,
    time_us: Py<Lent>,
}

impl PagesView {
    fn new(py: Python<'_>, batch: PageBatch, now: Now) -> PyResult<Self> {
        let pages = batch.len();
        Ok(Self {
            pages,
            now,
            lba: Py::new(py, Lent::own(batch.lba))?,
            kind: Py::new(py, Lent::own(batch.kind))?,
            age: Py::new(py, Lent::own(batch.age))?,
            stream: Py::new(py, Lent::own(batch.stream))?,
            segment_age: Py::new(py, Lent::own(batch.segment_age))?,
            time_us: Py::new(py, Lent::own(batch.time_us))?,
        })
    }
}

fn array<'py>(py: Python<'py>, memory: &Py<Lent>, element: Element) -> PyResult<Bound<'py, PyAny>> {
    Numpy::get(py)?.array(memory.bind(py).clone(), element)
}

#[pymethods]
impl PagesView {
    fn __len__(&self) -> usize {
        self.pages
    }

    #[getter]
    fn now_writes(&self) -> u64 {
        self.now.writes
    }

    #[getter]
    fn now_us(&self) -> u64 {
        self.now.us
    }

    #[getter]
    fn lba<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        array(py, &self.lba, u32::ELEMENT)
    }

    #[getter]
    fn kind<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        array(py, &self.kind, u8::ELEMENT)
    }

    #[getter]
    fn age<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        array(py, &self.age, u64::ELEMENT)
    }

    #[getter]
    fn stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        array(py, &self.stream, u8::ELEMENT)
    }

    #[getter]
    fn segment_age<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        array(py, &self.segment_age, u64::ELEMENT)
    }

    #[getter]
    fn time_us<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        array(py, &self.time_us, u64::ELEMENT)
    }

    fn __repr__(&self) -> String {
        format!("<margay.policy.Pages: {}, after {} host writes>", self.pages, self.now.writes)
    }
}
