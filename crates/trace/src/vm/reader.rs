use super::format::ReferenceReader;
use super::{Reference, VmFormat, VmHeader};
use crate::TraceError;
use crate::compress::{Compression, open_stream};
use crate::format::Stream;
use std::io::{self, BufRead};
use std::path::Path;

/// A trace of page references being read: an iterator over its records. After an error it ends.
pub struct VmReader {
    path: String,
    reader: Box<dyn ReferenceReader>,
    compression: Compression,
    format: VmFormat,
    header: VmHeader,
    records: u64,
    ended: bool,
}

impl std::fmt::Debug for VmReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VmReader").field("path", &self.path).field("header", &self.header).finish_non_exhaustive()
    }
}

/// Whether a file starts like a trace of page references. The error is that the file cannot be opened; a file that
/// cannot be read is none.
pub fn is_vm_trace(path: &Path) -> Result<bool, TraceError> {
    let (mut stream, _) = open_stream(path)?;
    Ok(stream.fill_buf().is_ok_and(|head| VmFormat::detect(head).is_some()))
}

impl VmReader {
    /// Opens a trace; `-` is the standard input. The text of a tracer is reduced to pages as `reduction` says.
    pub fn open(path: &Path, reduction: VmHeader) -> Result<Self, TraceError> {
        let (stream, compression) = open_stream(path)?;
        Self::new(path.display().to_string(), stream, compression, reduction)
    }

    /// Reads a trace from a stream of uncompressed bytes; the name stands in errors.
    pub fn from_stream(
        name: &str,
        stream: impl BufRead + Send + 'static,
        reduction: VmHeader,
    ) -> Result<Self, TraceError> {
        Self::new(name.into(), Box::new(stream), Compression::Plain, reduction)
    }

    fn new(
        path: String,
        mut stream: Stream,
        compression: Compression,
        reduction: VmHeader,
    ) -> Result<Self, TraceError> {
        let failed = |error| match compression {
            Compression::Plain => TraceError::io(&path, error),
            _ => TraceError::Compressed { path: path.clone(), requests: 0, error },
        };
        let Some(format) = VmFormat::detect(stream.fill_buf().map_err(failed)?) else {
            let known: Vec<_> = VmFormat::ALL.iter().map(|row| format!("{} ({})", row.name(), row.summary())).collect();
            return Err(TraceError::UnknownVmFormat { path, known: known.join(" and ") });
        };
        match (format.0.open)(stream, reduction).map_err(failed)? {
            Ok((header, reader)) => Ok(Self { path, reader, compression, format, header, records: 0, ended: false }),
            Err(problem) => Err(TraceError::BadLine { path, line: 0, problem, text: String::new() }),
        }
    }

    /// The trace's format.
    pub const fn format(&self) -> VmFormat {
        self.format
    }

    /// How the trace was made, or, for the text of a tracer, what it is reduced to.
    pub const fn header(&self) -> VmHeader {
        self.header
    }

    /// Records handed out so far.
    pub const fn records(&self) -> u64 {
        self.records
    }

    fn failed(&self, error: io::Error) -> TraceError {
        match self.compression {
            Compression::Plain => TraceError::io(&self.path, error),
            _ => TraceError::Compressed { path: self.path.clone(), requests: self.records, error },
        }
    }

    fn bad(&self, problem: String) -> TraceError {
        let (line, text) = self.reader.place();
        let text = String::from_utf8_lossy(&text[..text.len().min(80)]).trim_end().to_string();
        TraceError::BadLine { path: self.path.clone(), line, problem, text }
    }
}

impl Iterator for VmReader {
    type Item = Result<Reference, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        match self.reader.next() {
            Ok(Some(Ok(reference))) => {
                self.records += 1;
                Some(Ok(reference))
            }
            Ok(None) => {
                self.ended = true;
                None
            }
            Ok(Some(Err(problem))) => {
                self.ended = true;
                Some(Err(self.bad(problem)))
            }
            Err(error) => {
                self.ended = true;
                Some(Err(self.failed(error)))
            }
        }
    }
}
