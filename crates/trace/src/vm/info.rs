use super::references::too_many_pages;
use super::{MAX_PAGES, VmFormat, VmHeader, VmReader};
use crate::TraceError;
use crate::hash::FastMap;

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

/// Reads a trace of page references to its end.
///
/// ```
/// use margay_trace::vm::{VmHeader, VmReader, info};
///
/// let lackey = "==7== Lackey, an example Valgrind tool\n S 1ffefffff,1\n L 04001000,8\n";
/// let mut reader = VmReader::from_stream("lackey.txt", lackey.as_bytes(), VmHeader::DEFAULT)?;
/// let facts = info(&mut reader)?;
/// assert_eq!((facts.records, facts.writes, facts.pages), (2, 1, 2));
/// # Ok::<(), margay_trace::TraceError>(())
/// ```
///
/// Memory grows with the pages up to [`MAX_PAGES`].
///
/// # Errors
/// The trace is damaged or touches more pages than that.
pub fn info(reader: &mut VmReader) -> Result<VmInfo, TraceError> {
    let mut is_written: FastMap<u64, bool> = FastMap::default();
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
