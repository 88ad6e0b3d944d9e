//! A selection in Python.

use crate::errors::{policy, usage};
use crate::policy::segments::{Escaped, SegmentsView, candidates, leave};
use crate::policy::{Given, shown};
use margay_flash::SegmentId;
use margay_lab::{OwnPolicy, OwnSelection};
use margay_policy::{Now, Segments, Selection, Sizing, State};
use pyo3::prelude::*;
use pyo3::types::PyBool;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// A selection as the program gave it.
pub struct PythonSelection {
    given: Arc<Given>,
    needs_invalidations: bool,
}

impl PythonSelection {
    pub fn new(given: Arc<Given>, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let needs_invalidations = match object.getattr_opt("needs_invalidations")? {
            None => false,
            Some(flag) => flag.extract().map_err(|_| {
                usage(format!("{}: needs_invalidations = {}: expected True or False", given.name, shown(&flag)))
            })?,
        };
        Ok(Self { given, needs_invalidations })
    }
}

impl fmt::Debug for PythonSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.given.unique())
    }
}

impl OwnPolicy for PythonSelection {
    fn name(&self) -> &str {
        &self.given.name
    }

    fn failure(&self) -> Option<Box<dyn Error + Send + Sync>> {
        self.given.failure()
    }
}

impl OwnSelection for PythonSelection {
    fn build(&self, sizing: Sizing) -> Box<dyn Selection> {
        let built = Python::attach(|py| self.given.callable(py, sizing));
        let callable = built.map_err(|error| self.given.fail(error)).ok();
        Box::new(Running {
            given: Arc::clone(&self.given),
            callable,
            needs_invalidations: self.needs_invalidations,
            calls: 0,
            escaped: Vec::new(),
            candidates: Vec::new(),
        })
    }
}

/// A selection in a run.
struct Running {
    given: Arc<Given>,
    /// None if it could not be made.
    callable: Option<Py<PyAny>>,
    needs_invalidations: bool,
    calls: u64,
    escaped: Escaped,
    candidates: Vec<isize>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} calls", self.given.name, self.calls)
    }
}

impl Selection for Running {
    fn needs_invalidations(&self) -> bool {
        self.needs_invalidations
    }

    fn opened(&mut self, _: &Segments, _: SegmentId) {}
    fn sealed(&mut self, _: &Segments, _: SegmentId) {}
    fn invalidated(&mut self, _: &Segments, _: SegmentId, _: u32) {}
    fn invalidated_run(&mut self, _: &Segments, _: &[(SegmentId, u32)]) {}
    fn taken(&mut self, _: &Segments, _: SegmentId) {}

    fn select(&mut self, segments: &Segments, now: Now) -> Option<SegmentId> {
        candidates(segments).next()?;
        let callable = self.callable.as_ref()?;
        if self.given.has_failed() {
            return None;
        }
        self.calls += 1;
        Python::attach(|py| {
            let (given, calls) = (&self.given, self.calls);
            let (answer, escaped) =
                SegmentsView::show(py, segments, now, self.needs_invalidations, &mut self.candidates, |view| {
                    given.in_call(|| {
                        let answer = callable.bind(py).call1((view,))?;
                        victim(&answer, segments).map_err(|problem| {
                            policy(format!(
                                "selection {} answered {}, for cleaning number {} after {} host writes: {problem}",
                                given.name,
                                shown(&answer),
                                calls,
                                now.writes
                            ))
                        })
                    })
                });
            self.escaped = escaped;
            answer.map_err(|error| self.given.fail(error)).ok()
        })
    }

    fn chosen(&mut self, segments: &mut Segments) {
        if !self.escaped.is_empty() {
            leave(&mut self.escaped, segments, &mut self.candidates);
        }
    }
}

/// The victim that an answer means, or what is wrong with it.
fn victim(answer: &Bound<'_, PyAny>, segments: &Segments) -> Result<SegmentId, String> {
    let index = || {
        // A flag is a number in Python, and an array of one number is one to NumPy.
        let is_scalar = !answer.is_instance_of::<PyBool>() && answer.hasattr("__index__").unwrap_or(false);
        is_scalar.then(|| answer.call_method0("__index__").ok()).flatten()
    };
    let Some(index) = index() else {
        let kind = answer.get_type().name().map_or_else(|_| "it".into(), |name| name.to_string());
        return Err(format!("{kind} is no whole number; {}", allowed(segments)));
    };
    let number = index.extract::<u32>().ok().filter(|number| *number < segments.len());
    let Some(number) = number else {
        return Err(format!("the device has the segments 0 to {}; {}", segments.len() - 1, allowed(segments)));
    };
    let segment = SegmentId(number);
    if segments.is_candidate(segment) {
        return Ok(segment);
    }
    let is = match segments.state[segment.index()] {
        State::Free => "is free",
        State::Open => "is open, and still being written",
        State::Sealed => "is sealed and has no invalid page, so that cleaning it would gain nothing",
        State::Victim => "is being cleaned already",
        State::Reserved => "is reserved, and never used for data",
        State::Bad => "was retired",
    };
    Err(format!("segment {number} {is}; {}", allowed(segments)))
}

/// What may be answered.
fn allowed(segments: &Segments) -> String {
    const SHOWN: usize = 5;
    let count = candidates(segments).count();
    let first: Vec<String> = candidates(segments).take(SHOWN).map(|id| id.to_string()).collect();
    let more = if count > SHOWN { ", ..." } else { "" };
    format!(
        "allowed is the number of one of the {count} candidates, sealed segments with an invalid page: {}{more}",
        first.join(", ")
    )
}
