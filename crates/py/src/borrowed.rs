//! Memory of other libraries: streams of Arrow and buffers of NumPy, taken without a copy.
#![allow(unsafe_code)]

use crate::errors::usage;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer};
use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ptr::NonNull;
use std::sync::Arc;

/// The stream that an object of another library hands out by `__arrow_c_stream__`.
///
/// # Errors
/// It hands out none, or one that was read already.
pub fn stream_of(object: &Bound<'_, PyAny>) -> PyResult<RecordBatchStreamReader> {
    let capsule = object.call_method0("__arrow_c_stream__")?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: a capsule of this name holds a stream of the C interface, as the Arrow PyCapsule interface has it, which nobody
    // else uses while the lock of the interpreter is held. The stream is moved out; what stays in its place is released.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.cast().as_ptr()) };
    RecordBatchStreamReader::try_new(stream)
        .map_err(|error| usage(format!("the stream of Arrow cannot be read: {error}")))
}

/// A number that NumPy and Arrow have alike.
pub trait Number: Element + ArrowNativeType {}
impl<T: Element + ArrowNativeType> Number for T {}

/// The elements of an array with one dimension, if it is of these numbers and they lie side by side; the array is kept as long
/// as they are used. Who writes to the array meanwhile changes the trace, as with any view.
pub fn elements<T: Number>(object: &Bound<'_, PyAny>) -> Option<ScalarBuffer<T>> {
    let buffer = PyBuffer::<T>::get(object).ok()?;
    if buffer.dimensions() != 1 || !buffer.is_c_contiguous() {
        return None;
    }
    let (count, bytes) = (buffer.item_count(), buffer.len_bytes());
    let start = NonNull::new(buffer.buf_ptr().cast::<u8>()).filter(|start| start.cast::<T>().is_aligned())?;
    // SAFETY: the exporter keeps `bytes` bytes at `start` until the buffer is released, which is when the owner is dropped. The
    // type of the elements was checked by `PyBuffer::get`.
    let buffer = unsafe { Buffer::from_custom_allocation(start, bytes, Arc::new(Owner(buffer))) };
    Some(ScalarBuffer::new(buffer, 0, count))
}

/// Keeps a buffer of Python, and releases it when the last who uses its memory is gone.
struct Owner<T: Element>(#[allow(dead_code)] PyBuffer<T>);

// A panic leaves the buffer as it is: nothing of it is changed.
impl<T: Element> std::panic::RefUnwindSafe for Owner<T> {}
