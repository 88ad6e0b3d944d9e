//! The laboratory as a module of Python, `margay._margay`: the same engine, settings and rows as those of the command.
//!
//! The Python package around it (`python/margay`) says what each call takes; here are the calls.

mod advise;
mod borrowed;
mod calls;
mod columns;
mod device;
mod distributed;
mod errors;
mod interrupt;
mod memory;
mod others;
mod policy;
mod result;
mod run;
mod segment_map;
mod table;
mod trace;
mod values;

use pyo3::prelude::*;

#[pymodule(gil_used = true)]
fn _margay(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interrupt::register(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    table::register(module)?;
    device::register(module)?;
    trace::register(module)?;
    result::register(module)?;
    policy::register(module)?;
    run::register(module)?;
    distributed::register(module)?;
    advise::register(module)?;
    others::register(module)?;
    segment_map::register(module)
}
