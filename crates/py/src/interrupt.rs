//! Long work without the interpreter's lock, which Ctrl-C ends.

use crate::calls::{Calls, current};
use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Says that the work is to end.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Whether to go on.
    pub fn goes_on(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }

    /// Asks the work to end.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// The same question for work that knows nothing of this.
    pub fn keep_on(&self) -> impl Fn() -> bool + Clone + Send + 'static {
        let stop = self.clone();
        move || stop.goes_on()
    }
}

/// How often signals are looked for.
const LOOK: Duration = Duration::from_millis(50);
/// How long work that was asked to end is waited for. A run does not look at the flag while it reads its trace; it then goes on
/// in the background, and its result is dropped.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the end of the program waits for work in the background: a thread that comes back to an interpreter that is gone
/// aborts the process.
const EXIT_PATIENCE: Duration = Duration::from_secs(5);
/// How often policies are asked to end then.
const EXIT_ASK: Duration = Duration::from_millis(500);

/// Work on a thread of its own.
struct Worker {
    is_running: Weak<()>,
    process: u32,
    stop: Stop,
    calls: Calls,
}

/// The work that is not over.
fn workers() -> MutexGuard<'static, Vec<Worker>> {
    static WORKERS: Mutex<Vec<Worker>> = Mutex::new(Vec::new());
    let mut workers = WORKERS.lock().unwrap_or_else(PoisonError::into_inner);
    // Threads do not go along to a process that is forked.
    let process = std::process::id();
    workers.retain(|worker| worker.process == process && worker.is_running.strong_count() > 0);
    workers
}

/// Does work on another thread, without the lock of the interpreter, and looks for signals meanwhile.
///
/// # Errors
/// The exception of a signal, `KeyboardInterrupt` as a rule; or there is no room for another thread.
pub fn with_signals<T: Send + 'static>(py: Python<'_>, work: impl FnOnce(&Stop) -> T + Send + 'static) -> PyResult<T> {
    with_policies(py, &Calls::default(), work)
}

/// The same for work that calls Python by way of `calls`, which are interrupted too.
///
/// # Errors
/// Those of [`with_signals`].
pub fn with_policies<T: Send + 'static>(
    py: Python<'_>,
    calls: &Calls,
    work: impl FnOnce(&Stop) -> T + Send + 'static,
) -> PyResult<T> {
    let stop = Stop::default();
    let of_work = stop.clone();
    let (sender, receiver) = channel();
    let is_running = Arc::new(());
    let note = Worker {
        is_running: Arc::downgrade(&is_running),
        process: std::process::id(),
        stop: stop.clone(),
        calls: calls.clone(),
    };
    let work = move || {
        // The interpreter knows the thread as long as it runs: calls of policies then need not introduce it each time.
        let result = Python::attach(|py| py.detach(|| work(&of_work)));
        // Nobody receives what comes after an interruption.
        let _ = sender.send(result);
        drop(is_running);
    };
    let worker = std::thread::Builder::new().spawn(work).map_err(|error| {
        crate::errors::run(format!("no thread can be started for the work: {error}; end others first"))
    })?;
    workers().push(note);
    let (calls, outer) = (calls.clone(), current());
    let received = py.detach(move || {
        loop {
            match receiver.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) => {
                    // Signals are of the main thread. A policy that runs another run is on a thread of the first one.
                    let signal = match &outer {
                        Some(outer) if !outer.goes_on() => Err(PyKeyboardInterrupt::new_err(())),
                        _ => Python::attach(|py| py.check_signals()),
                    };
                    if let Err(error) = signal {
                        stop.ask();
                        // A policy in Python may not end by itself.
                        Python::attach(|py| calls.interrupt(&py.get_type::<PyKeyboardInterrupt>()));
                        let _ = receiver.recv_timeout(PATIENCE);
                        return Err(error);
                    }
                }
                Ok(result) => return Ok(Some(result)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    })?;
    match received {
        Some(result) => Ok(result),
        // The work panicked: the panic goes on here, and becomes an exception.
        None => match worker.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => Err(crate::errors::run("the work ended without a result")),
        },
    }
}

/// Ends the work that is not over, and waits for it for a while: the interpreter is about to go.
#[pyfunction]
fn end_work(py: Python<'_>) -> PyResult<()> {
    let began = Instant::now();
    let mut asked: Option<Instant> = None;
    while began.elapsed() < EXIT_PATIENCE {
        let running: Vec<_> = workers().iter().map(|worker| (worker.stop.clone(), worker.calls.clone())).collect();
        if running.is_empty() {
            break;
        }
        if asked.is_none_or(|asked| asked.elapsed() >= EXIT_ASK) {
            asked = Some(Instant::now());
            for (stop, calls) in running {
                stop.ask();
                // What goes on after a KeyboardInterrupt may not have reckoned with this one.
                calls.interrupt(&py.get_type::<PySystemExit>());
            }
        }
        py.detach(|| std::thread::sleep(LOOK / 5));
        py.check_signals()?;
    }
    Ok(())
}

/// Has [`end_work`] called at the end of the program.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let end_work = wrap_pyfunction!(end_work, module)?;
    module.py().import("atexit")?.call_method1("register", (end_work,))?;
    Ok(())
}
