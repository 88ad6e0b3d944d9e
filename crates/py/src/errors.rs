//! Errors as exceptions: those of `margay.errors`, with the text of the command.

use crate::policy::Raised;
use margay_lab::{ErrorKind, LabError};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// The exception of the class with this name in `margay.errors`.
fn exception(class: &PyOnceLock<Py<PyType>>, name: &str, text: String) -> PyErr {
    Python::attach(|py| match class.import(py, "margay.errors", name) {
        Ok(class) => PyErr::from_type(class.clone(), text),
        Err(error) => error,
    })
}

/// An unknown name or an impossible value.
pub fn usage(text: impl Into<String>) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    exception(&CLASS, "UsageError", text.into())
}

/// An input that cannot be read or is damaged.
pub fn input(text: impl Into<String>) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    exception(&CLASS, "InputError", text.into())
}

/// A run that failed.
pub fn run(text: impl Into<String>) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    exception(&CLASS, "RunError", text.into())
}

/// A policy in Python answered what it must not.
pub fn policy(text: impl Into<String>) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    exception(&CLASS, "PolicyError", text.into())
}

/// An exception of this kind.
pub fn of_kind(kind: ErrorKind, text: String) -> PyErr {
    match kind {
        ErrorKind::Run => run(text),
        ErrorKind::Usage => usage(text),
        ErrorKind::Input => input(text),
        ErrorKind::Interrupted => PyKeyboardInterrupt::new_err(text),
    }
}

/// The same of an error that is not needed any more, for `map_err`.
pub fn lab(error: LabError) -> PyErr {
    of_lab(&error)
}

/// An error of the laboratory as an exception.
pub fn of_lab(error: &LabError) -> PyErr {
    if let LabError::OwnPolicy { error, .. } = error
        && let Some(Raised(raised)) = error.downcast_ref()
    {
        // With its traceback.
        return Python::attach(|py| raised.clone_ref(py));
    }
    of_kind(error.kind(), error.to_string())
}
