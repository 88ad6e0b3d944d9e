//! The segments over a run, as `margay.plot` draws them.

use crate::result::RunResult;
use margay_lab::SegmentMap;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// The maps of a run as the bytes of arrays: `host_writes` (uint64, one for each moment), and `erases` (float32), `valid`
/// (float32) and `streams` (uint8), a row of bands for each moment.
#[pyfunction]
fn segment_maps<'py>(py: Python<'py>, result: &RunResult) -> PyResult<Bound<'py, PyDict>> {
    let maps = &result.outcome().maps;
    let floats = |of: fn(&SegmentMap) -> &[f32]| -> Vec<u8> {
        maps.iter().flat_map(of).flat_map(|value| value.to_ne_bytes()).collect()
    };
    let writes: Vec<u8> = maps.iter().flat_map(|map| map.host_writes.to_ne_bytes()).collect();
    let streams: Vec<u8> = maps.iter().flat_map(|map| map.streams.iter().copied()).collect();
    let dict = PyDict::new(py);
    dict.set_item("host_writes", PyBytes::new(py, &writes))?;
    dict.set_item("erases", PyBytes::new(py, &floats(|map| &map.erases)))?;
    dict.set_item("valid", PyBytes::new(py, &floats(|map| &map.valid)))?;
    dict.set_item("streams", PyBytes::new(py, &streams))?;
    Ok(dict)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(segment_maps, module)?)
}
