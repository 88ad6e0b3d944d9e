//! Arrays of the engine as arrays of NumPy, without a copy.
//!
//! A [`Lent`] hands out a buffer of memory that is the engine's for the length of one call, and counts who uses it. When the
//! call is over it hands out no more. Where somebody still reads it then, the engine leaves the memory to the `Lent` and goes on
//! with a copy: what a program keeps stays as it was, and never dangles.
#![allow(unsafe_code)]

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::any::Any;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory that is kept for those who read it.
pub type Kept = Arc<dyn Any + Send + Sync>;

/// A type of the elements of an array.
#[derive(Clone, Copy, Debug)]
pub enum Element {
    U8,
    U32,
    U64,
    Index,
}

/// A number that is such an element.
pub trait Number: Copy + Send + Sync + 'static {
    const ELEMENT: Element;
}

impl Number for u8 {
    const ELEMENT: Element = Element::U8;
}
impl Number for u32 {
    const ELEMENT: Element = Element::U32;
}
impl Number for u64 {
    const ELEMENT: Element = Element::U64;
}
impl Number for isize {
    const ELEMENT: Element = Element::Index;
}
impl Number for margay_policy::State {
    // It is `repr(u8)`.
    const ELEMENT: Element = Element::U8;
}

#[derive(Debug, Default)]
struct State {
    start: usize,
    bytes: usize,
    /// Buffers that were handed out and not given back.
    users: usize,
    /// Whether buffers are handed out: while the memory is the engine's to lend, or kept here.
    is_open: bool,
    kept: Option<Kept>,
}

impl std::fmt::Debug for Lent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lent({} bytes)", lock(&self.state).bytes)
    }
}

/// Memory that Python may read.
#[pyclass(frozen, module = "margay.policy")]
pub struct Lent {
    state: Mutex<State>,
}

impl Lent {
    /// One that hands out nothing yet.
    pub fn closed() -> Self {
        Self { state: Mutex::default() }
    }

    /// An array of the program's own from now on.
    pub fn own<T: Number>(array: Vec<T>) -> Self {
        let (start, bytes) = (array.as_ptr() as usize, size_of_val(array.as_slice()));
        let kept: Kept = Arc::new(array);
        Self { state: Mutex::new(State { start, bytes, users: 0, is_open: true, kept: Some(kept) }) }
    }

    /// Hands out this memory.
    ///
    /// # Safety
    /// It is neither changed nor freed before [`Lent::close`], nor after it until [`Lent::keep`], if `close` says so.
    pub unsafe fn open<T: Number>(&self, array: &[T]) {
        let mut state = lock(&self.state);
        (state.start, state.bytes, state.is_open) = (array.as_ptr() as usize, size_of_val(array), true);
    }

    /// Hands out no more. Whether somebody reads the memory still; it must be kept then.
    pub fn close(&self) -> bool {
        let mut state = lock(&self.state);
        state.is_open = false;
        state.users > 0
    }

    /// Keeps the memory, at the address where it is, as long as this exists.
    pub fn keep(&self, kept: Kept) {
        let mut state = lock(&self.state);
        (state.kept, state.is_open) = (Some(kept), true);
    }
}

#[pymethods]
impl Lent {
    /// # Safety
    /// `view` is a buffer that Python asks to be filled in.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let lent = slf.get();
        // An exception may start the collection of garbage, which gives buffers back: the lock is not held meanwhile.
        let memory = {
            let mut state = lock(&lent.state);
            state.is_open.then(|| {
                state.users += 1;
                (state.start, state.bytes)
            })
        };
        let Some((start, bytes)) = memory else {
            return Err(PyBufferError::new_err("the call of the policy, to which this memory was lent, is over"));
        };
        // SAFETY: the memory is there while it has users. It is said to be read-only.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start as *mut _, bytes as isize, 1, flags) };
        if filled < 0 {
            lock(&lent.state).users -= 1;
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }

    /// # Safety
    /// `view` was filled in by `__getbuffer__`.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        lock(&self.state).users -= 1;
    }
}

/// What is used of NumPy.
pub struct Numpy {
    from_buffer: Py<PyAny>,
    pub as_array: Py<PyAny>,
    types: [Py<PyAny>; 4],
}

impl Numpy {
    /// NumPy, which the package depends on.
    pub fn get(py: Python<'_>) -> PyResult<&Self> {
        static NUMPY: PyOnceLock<Numpy> = PyOnceLock::new();
        NUMPY.get_or_try_init(py, || {
            let numpy = py.import("numpy")?;
            let dtype = |name: &str| Ok::<_, PyErr>(numpy.call_method1("dtype", (name,))?.unbind());
            let types = [dtype("uint8")?, dtype("uint32")?, dtype("uint64")?, dtype("intp")?];
            Ok(Self {
                from_buffer: numpy.getattr("frombuffer")?.unbind(),
                as_array: numpy.getattr("asarray")?.unbind(),
                types,
            })
        })
    }

    /// A read-only array on this memory.
    pub fn array<'py>(&self, memory: Bound<'py, Lent>, element: Element) -> PyResult<Bound<'py, PyAny>> {
        let py = memory.py();
        // An array of no elements has no buffer in NumPy's eyes.
        if lock(&memory.get().state).bytes == 0 {
            return py.import("numpy")?.call_method1("empty", (0, &self.types[element as usize]));
        }
        self.from_buffer.bind(py).call1((memory, &self.types[element as usize]))
    }
}
