//! The segments of a device as a selection in Python sees them.
#![allow(unsafe_code)]

use crate::policy::lent::{Kept, Lent, Number, Numpy, lock};
use margay_policy::{Now, Segments, State};
use pyo3::exceptions::{PyAttributeError, PyRuntimeError};
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// The arrays of [`Segments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Valid,
    Erases,
    State,
    Stream,
    OpenedUs,
    OpenedWrites,
    OpenedSequence,
    SealedWrites,
    InvalidatedUs,
    InvalidatedWrites,
    InvalidatedSequence,
    /// No array of the engine: the numbers of the candidates, which a call finds when it asks for them.
    Candidates,
}

/// Leaves an array to those who read it, and puts a copy in its place.
fn left<T: Number>(array: &mut Vec<T>) -> Kept {
    let copy = array.clone();
    Arc::new(std::mem::replace(array, copy))
}

impl Column {
    fn leave(self, segments: &mut Segments, candidates: &mut Vec<isize>) -> Kept {
        match self {
            Self::Valid => left(&mut segments.valid),
            Self::Erases => left(&mut segments.erases),
            Self::State => left(&mut segments.state),
            Self::Stream => left(&mut segments.stream),
            Self::OpenedUs => left(&mut segments.opened_us),
            Self::OpenedWrites => left(&mut segments.opened_writes),
            Self::OpenedSequence => left(&mut segments.opened_sequence),
            Self::SealedWrites => left(&mut segments.sealed_writes),
            Self::InvalidatedUs => left(&mut segments.invalidated_us),
            Self::InvalidatedWrites => left(&mut segments.invalidated_writes),
            Self::InvalidatedSequence => left(&mut segments.invalidated_sequence),
            Self::Candidates => Arc::new(std::mem::take(candidates)),
        }
    }
}

/// Arrays that were read when the call was over.
pub type Escaped = Vec<(Column, Py<Lent>)>;

/// Leaves arrays that are still read to those who read them.
pub fn leave(escaped: &mut Escaped, segments: &mut Segments, candidates: &mut Vec<isize>) {
    let mut done: Vec<(Column, Kept)> = Vec::new();
    for (column, lent) in escaped.drain(..) {
        let kept = match done.iter().find(|(other, _)| *other == column) {
            Some((_, kept)) => Arc::clone(kept),
            None => column.leave(segments, candidates),
        };
        lent.get().keep(Arc::clone(&kept));
        done.push((column, kept));
    }
}

/// The account of the engine, which stands still during a call.
#[derive(Clone, Copy)]
struct Shown {
    segments: *const Segments,
    now: Now,
    notes_invalidations: bool,
}

// SAFETY: it is used with the lock of the interpreter only, by the call it is shown to.
unsafe impl Send for Shown {}

/// The segments of the device at the moment of a cleaning: what a selection decides by.
#[pyclass(frozen, name = "Segments", module = "margay.policy")]
pub struct SegmentsView {
    shown: Mutex<Option<Shown>>,
    lent: Mutex<Escaped>,
    /// The numbers of the candidates, once they were asked for.
    candidates: Mutex<Vec<isize>>,
}

impl SegmentsView {
    /// Shows the account to `call`. Returns its answer, and the arrays that it kept. `candidates` is memory for their numbers.
    pub fn show<'py, R>(
        py: Python<'py>,
        segments: &Segments,
        now: Now,
        notes_invalidations: bool,
        candidates: &mut Vec<isize>,
        call: impl FnOnce(&Bound<'py, Self>) -> PyResult<R>,
    ) -> (PyResult<R>, Escaped) {
        let shown = Shown { segments, now, notes_invalidations };
        candidates.clear();
        let view = Self {
            shown: Mutex::new(Some(shown)),
            lent: Mutex::default(),
            candidates: Mutex::new(std::mem::take(candidates)),
        };
        let view = match Bound::new(py, view) {
            Ok(view) => view,
            Err(error) => return (Err(error), Vec::new()),
        };
        // Python hands a panic that it has seen on as a panic. What was lent has to be taken back all the same.
        let answer =
            catch_unwind(AssertUnwindSafe(|| call(&view))).unwrap_or_else(|panic| Err(of_panic(panic.as_ref())));
        let view = view.get();
        *lock(&view.shown) = None;
        // Its elements stay where they are.
        *candidates = std::mem::take(&mut *lock(&view.candidates));
        let mut lent = std::mem::take(&mut *lock(&view.lent));
        lent.retain(|(_, lent)| lent.get().close());
        (answer, lent)
    }

    fn shown(&self) -> PyResult<Shown> {
        lock(&self.shown).ok_or_else(over)
    }

    /// A number of the account.
    fn number<R>(&self, of: impl FnOnce(&Segments, Now) -> R) -> PyResult<R> {
        let shown = lock(&self.shown);
        let shown = shown.as_ref().ok_or_else(over)?;
        // SAFETY: the account is borrowed by `show` until `shown` is emptied, for which this lock is waited for.
        Ok(of(unsafe { &*shown.segments }, shown.now))
    }

    fn array<'py, T: Number>(
        &self,
        py: Python<'py>,
        column: Column,
        of: impl FnOnce(&Segments) -> &Vec<T>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let numpy = Numpy::get(py)?;
        let memory = Bound::new(py, Lent::closed())?;
        {
            let shown = lock(&self.shown);
            let shown = shown.as_ref().ok_or_else(over)?;
            // SAFETY: as in `number`. What is opened here is closed by `show`, and kept by `leave` if it is read on: the
            // engine calls `Selection::chosen` before it changes the account.
            unsafe { memory.get().open(of(&*shown.segments)) };
            lock(&self.lent).push((column, memory.clone().unbind()));
        }
        numpy.array(memory, T::ELEMENT)
    }

    fn invalidated<'py>(
        &self,
        py: Python<'py>,
        column: Column,
        of: impl FnOnce(&Segments) -> &Vec<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if !self.shown()?.notes_invalidations {
            return Err(PyAttributeError::new_err(
                "times of invalidation are kept for selections that ask for them: decorate yours with @margay.policy.selection(needs_invalidations=True), or give the class the attribute needs_invalidations = True",
            ));
        }
        self.array(py, column, of)
    }
}

/// A panic as the exception that Python knows it by.
fn of_panic(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("the policy panicked");
    PanicException::new_err(text.to_string())
}

fn over() -> PyErr {
    PyRuntimeError::new_err("the segments are shown during the call of the policy only; keep arrays of them instead")
}

/// The numbers of the candidates.
pub fn candidates(segments: &Segments) -> impl Iterator<Item = usize> {
    let all = segments.state.iter().zip(&segments.valid).enumerate();
    let full = segments.data_pages;
    all.filter(move |(_, (state, valid))| **state == State::Sealed && **valid < full).map(|(id, _)| id)
}

/// Lists the numbers of the candidates. Without branches, since which segments are candidates is hard to foresee.
fn list_candidates(segments: &Segments, found: &mut Vec<isize>) {
    found.resize(segments.valid.len(), 0);
    let mut count = 0;
    for (id, (state, valid)) in segments.state.iter().zip(&segments.valid).enumerate() {
        found[count] = id as isize;
        count += usize::from((*state == State::Sealed) & (*valid < segments.data_pages));
    }
    found.truncate(count);
}

#[pymethods]
impl SegmentsView {
    fn __len__(&self) -> PyResult<usize> {
        self.number(|segments, _| segments.valid.len())
    }

    #[getter]
    fn data_pages(&self) -> PyResult<u32> {
        self.number(|segments, _| segments.data_pages)
    }

    #[getter]
    fn now_writes(&self) -> PyResult<u64> {
        self.number(|_, now| now.writes)
    }

    #[getter]
    fn now_us(&self) -> PyResult<u64> {
        self.number(|_, now| now.us)
    }

    #[getter]
    fn total_valid(&self) -> PyResult<u64> {
        self.number(|segments, _| segments.total_valid)
    }

    #[getter]
    fn total_erases(&self) -> PyResult<u64> {
        self.number(|segments, _| segments.total_erases)
    }

    #[getter]
    fn candidates<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let numpy = Numpy::get(py)?;
        let memory = Bound::new(py, Lent::closed())?;
        {
            let shown = lock(&self.shown);
            let shown = shown.as_ref().ok_or_else(over)?;
            let mut found = lock(&self.candidates);
            if found.is_empty() {
                // SAFETY: as in `number`.
                let segments = unsafe { &*shown.segments };
                list_candidates(segments, &mut found);
            }
            // SAFETY: the numbers are not changed before the next call. What is opened here is closed by `show`, and kept by
            // `leave` if it is read on.
            unsafe { memory.get().open(&found) };
            lock(&self.lent).push((Column::Candidates, memory.clone().unbind()));
        }
        numpy.array(memory, isize::ELEMENT)
    }

    #[getter]
    fn valid<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.array(py, Column::Valid, |segments| &segments.valid)
    }

    #[getter]
    fn erases<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.array(py, Column::Erases, |segments| &segments.erases)
    }

    #[getter]
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.array(py, Column::State, |segments| &segments.state)
    }

    #[getter]
    fn stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.array(py, Column::Stream, |segments| &segments.stream)
    }

    #[getter]
    fn opened_us<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.array(py, Column::OpenedUs, |segments| &segments.opened_us)
    }

    #[getter]
    fn opened_writes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.array(py, Column::OpenedWrites, |segments| &segments.opened_writes)
    }

    #[getter]
    fn opened_sequence<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.array(py, Column::OpenedSequence, |segments| &segments.opened_sequence)
    }

    #[getter]
    fn sealed_writes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.array(py, Column::SealedWrites, |segments| &segments.sealed_writes)
    }

    #[getter]
    fn invalidated_us<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.invalidated(py, Column::InvalidatedUs, |segments| &segments.invalidated_us)
    }

    #[getter]
    fn invalidated_writes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.invalidated(py, Column::InvalidatedWrites, |segments| &segments.invalidated_writes)
    }

    #[getter]
    fn invalidated_sequence<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.invalidated(py, Column::InvalidatedSequence, |segments| &segments.invalidated_sequence)
    }

    fn __repr__(&self) -> String {
        match self.number(|segments, now| (segments.valid.len(), candidates(segments).count(), now.writes)) {
            Ok((all, candidates, writes)) => {
                format!("<margay.policy.Segments: {all}, {candidates} candidates, after {writes} host writes>")
            }
            Err(_) => "<margay.policy.Segments of a call that is over>".into(),
        }
    }
}
