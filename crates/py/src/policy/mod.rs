//! Policies in Python: a selection is asked once for each victim, a placement once for a batch of pages. The lock of the
//! interpreter is taken for the length of each call.

mod lent;
mod placement;
mod segments;
mod selection;

use crate::calls::Calls;
use crate::errors::{policy, usage};
pub use lent::Numpy;
use lent::lock;
use margay_lab::OwnPolicies;
use placement::PythonPlacement;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};
use selection::PythonSelection;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What went wrong in Python, as an error of the laboratory.
#[derive(Debug)]
pub struct Raised(pub PyErr);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Raised {}

/// A policy as the program gave it: a function or another callable object, which all runs share, or a class, of which each run
/// makes an object of its own.
#[derive(Debug)]
struct Given {
    name: String,
    object: Py<PyAny>,
    /// The method that is called, unless the object itself is callable.
    method: &'static str,
    failure: Mutex<Option<PyErr>>,
    /// The calls of all policies of the same call of the package.
    calls: Calls,
    /// Tells it from the policies of all other calls: nobody knows whether its code is the same.
    number: u64,
}

impl Given {
    fn new(
        what: &str,
        method: &'static str,
        object: &Bound<'_, PyAny>,
        calls: &Calls,
        is_taken: &dyn Fn(&str) -> bool,
    ) -> PyResult<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let has_method = object.hasattr(method)?;
        if !has_method && !object.is_callable() {
            let kind = object.get_type().name()?;
            return Err(usage(format!(
                "{what} = {}: expected a name, a function, a class or an object with the method '{method}', not {kind}",
                shown(object)
            )));
        }
        let named = match object.getattr_opt("policy_name")? {
            Some(name) => name,
            None => match object.getattr_opt("__name__")? {
                Some(name) => name,
                None => object.get_type().name()?.into_any(),
            },
        };
        let named = named
            .cast::<PyString>()
            .map_err(|_| usage(format!("{what}: policy_name = {}: expected text", shown(&named))))?;
        // Commas part the names of a list.
        let is_plain = |c: char| if c.is_alphanumeric() || "_-.".contains(c) { c } else { '_' };
        let name =
            format!("python:{}", named.to_str()?.trim_matches(['<', '>']).chars().map(is_plain).collect::<String>());
        let name = free_name(&name, is_taken);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            name,
            object: object.clone().unbind(),
            method,
            failure: Mutex::default(),
            calls: calls.clone(),
            number,
        })
    }

    /// What is called in a run on a device of this size.
    fn callable(&self, py: Python<'_>, sizing: margay_policy::Sizing) -> PyResult<Py<PyAny>> {
        let mut object = self.object.bind(py).clone();
        if object.is_instance_of::<PyType>() {
            let values = PyDict::new(py);
            values.set_item("segments", sizing.segments)?;
            values.set_item("data_pages", sizing.data_pages)?;
            values.set_item("exported_pages", sizing.exported_pages)?;
            values.set_item("seed", sizing.seed)?;
            let sizing = py.import("margay.policy")?.getattr("Sizing")?.call((), Some(&values))?;
            object = self.in_call(|| object.call1((sizing,)))?;
        }
        if let Some(method) = object.getattr_opt(self.method)? {
            object = method;
        }
        if !object.is_callable() {
            let problem = format!("an object of the class has no method '{}', and is not callable", self.method);
            return Err(policy(format!("{}: {problem}", self.name)));
        }
        Ok(object.unbind())
    }

    /// Calls Python so that Ctrl-C ends the call: all code of the program, that of its answers included.
    fn in_call<R>(&self, call: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
        let _call = self.calls.begin();
        call()
    }

    /// Notes why it failed; the first reason counts.
    fn fail(&self, error: PyErr) {
        lock(&self.failure).get_or_insert(error);
    }

    fn has_failed(&self) -> bool {
        lock(&self.failure).is_some()
    }

    fn failure(&self) -> Option<Box<dyn std::error::Error + Send + Sync>> {
        let failure = lock(&self.failure);
        let error = failure.as_ref()?;
        Some(Box::new(Raised(Python::attach(|py| error.clone_ref(py)))))
    }

    /// What `Debug` prints, by which finished points of a sweep are told apart: no other call of this or another program
    /// has it.
    fn unique(&self) -> String {
        let started =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        static STARTED: std::sync::OnceLock<u128> = std::sync::OnceLock::new();
        let started = STARTED.get_or_init(|| started);
        format!("{} {} {started} {}", self.name, std::process::id(), self.number)
    }
}

/// A value for a message.
fn shown(object: &Bound<'_, PyAny>) -> String {
    const MAX: usize = 80;
    let text = object.repr().map_or_else(|_| "something without a repr".into(), |text| text.to_string());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// A policy given as a value of the setting `what`: keeps it among the policies of the call, and returns the text that names it
/// there. `None` if the setting takes no policies of Python.
///
/// # Errors
/// The object is no policy.
pub fn named(what: &str, object: &Bound<'_, PyAny>, calls: &Calls, own: &mut OwnPolicies) -> PyResult<Option<String>> {
    let given =
        |method, is_taken: &dyn Fn(&str) -> bool| Given::new(what, method, object, calls, is_taken).map(Arc::new);
    match what {
        "selection" => {
            let given = given("select", &|name| own.selections.contains_key(name))?;
            let policy = PythonSelection::new(Arc::clone(&given), object)?;
            own.selections.insert(given.name.clone(), Arc::new(policy));
            Ok(Some(given.name.clone()))
        }
        "placement" => {
            let given = given("place", &|name| own.placements.contains_key(name))?;
            let policy = PythonPlacement::new(Arc::clone(&given), object)?;
            own.placements.insert(given.name.clone(), Arc::new(policy));
            Ok(Some(given.name.clone()))
        }
        _ => Ok(None),
    }
}

/// The name, with a number behind it if it is taken.
fn free_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.to_string()).chain(numbered).find(|name| !is_taken(name)).unwrap_or_default()
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<segments::SegmentsView>()?;
    module.add_class::<placement::PagesView>()
}
