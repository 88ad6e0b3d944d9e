use super::references::too_many_pages;
use super::{MAX_PAGES, VmFormat, VmHeader, VmReader};
use crate::TraceError;
use std::collections::HashMap;

/// Statistics of a trace of page references.
#[derive(Clone, Copy, Debug)]
pub struct VmInfo {
    /// Its format.
    pub format: VmFormat,
    /// How it was made.
    pub header: VmHeader,
    /// Records.
    pub records: u64,
    /// Records that write.
    pub writes: u64,
    /// Different pages.
    pub pages: u64,
    /// Different pages that are written at least once.
    pub written_pages: u64,
}

/// Reads a trace of page references to its end. It is an error if the trace is damaged or touches more than
/// [`MAX_PAGES`]; memory grows with the pages up to that bound.
pub fn info(reader: &mut VmReader) -> Result<VmInfo, TraceError> {
    let mut is_written: HashMap<u64, bool> = HashMap::new();
    let mut writes = 0;
    while let Some(reference) = reader.next() {
        let reference = reference?;
        writes += u64::from(reference.write);
        if is_written.try_reserve(1).is_err() {
            let (path, line, text) = (reader.path().to_string(), reader.records(), String::new());
            return Err(TraceError::BadLine { path, line, problem: "there is no memory for more pages".into(), text });
        }
        *is_written.entry(reference.page).or_default() |= reference.write;
        if is_written.len() as u64 > MAX_PAGES {
            let (path, line, text) = (reader.path().to_string(), reader.records(), String::new());
            return Err(TraceError::BadLine { path, line, problem: too_many_pages(), text });
        }
    }
    Ok(VmInfo {
        format: reader.format(),
        header: reader.header(),
        records: reader.records(),
        writes,
        pages: is_written.len() as u64,
        written_pages: is_written.values().filter(|written| **written).count() as u64,
    })
}
