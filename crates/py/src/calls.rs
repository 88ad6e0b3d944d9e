//! Which threads of a call are in Python, so that Ctrl-C ends what they do there.
#![allow(unsafe_code)]

use crate::interrupt::Stop;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::cell::RefCell;
use std::ffi::c_ulong;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The threads that are in Python on behalf of one call of the package: those of other calls are no concern of it.
#[derive(Clone, Debug, Default)]
pub struct Calls(Arc<Mutex<Vec<(c_ulong, Stop)>>>);

thread_local! {
    /// What this thread is doing in Python, the innermost last.
    static CURRENT: RefCell<Vec<Stop>> = const { RefCell::new(Vec::new()) };
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, Vec<(c_ulong, Stop)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that this thread goes into Python, until what is returned is dropped.
    pub fn begin(&self) -> Call<'_> {
        // SAFETY: it only reads the number of the thread.
        let thread = unsafe { ffi::PyThread_get_thread_ident() };
        let stop = Stop::default();
        self.lock().push((thread, stop.clone()));
        CURRENT.with_borrow_mut(|current| current.push(stop));
        Call { calls: self, thread, of_this_thread: PhantomData }
    }

    /// Raises an exception in all that is being called, which may go on for ever otherwise.
    pub fn interrupt(&self, exception: &Bound<'_, PyType>) {
        for (thread, stop) in self.lock().clone() {
            // A call of the package in there looks at this.
            stop.ask();
            // SAFETY: the interpreter is attached, and looks for the thread itself.
            unsafe { ffi::PyThreadState_SetAsyncExc(thread as _, exception.as_ptr()) };
        }
    }
}

/// What says that the call of Python in which this thread is has to end; none if it is in none.
pub fn current() -> Option<Stop> {
    CURRENT.with_borrow(|current| current.last().cloned())
}

/// A call of Python by this thread.
pub struct Call<'a> {
    calls: &'a Calls,
    thread: c_ulong,
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(Vec::pop);
        let mut calls = self.calls.lock();
        if let Some(at) = calls.iter().rposition(|(thread, _)| *thread == self.thread) {
            calls.remove(at);
        }
    }
}
