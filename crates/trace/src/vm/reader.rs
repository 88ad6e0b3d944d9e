use super::format::ReferenceReader;
use super::{Reference, VmFormat, VmHeader};
use crate::TraceError;
use crate::compress::{Compression, Hashed, Input};
use std::io::{self, BufRead};
use std::path::Path;

/// A trace of page references being read: an iterator over its records. After an error it ends.
pub struct VmReader {
    path: String,
    file: Option<Hashed>,
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

impl VmReader {
    /// Opens a trace; `-` is the standard input. The text of a tracer is reduced to pages as `reduction` says.
    pub fn open(path: &Path, reduction: VmHeader) -> Result<Self, TraceError> {
        Self::new(Input::open(path)?, reduction)
    }

    /// Reads a trace from a stream of uncompressed bytes; the name stands in errors.
    pub fn from_stream(
        name: &str,
        stream: impl BufRead + Send + 'static,
        reduction: VmHeader,
    ) -> Result<Self, TraceError> {
        Self::new(Input::of_stream(name, stream)?, reduction)
    }

    pub(crate) fn new(mut input: Input, reduction: VmHeader) -> Result<Self, TraceError> {
        let Some(format) = VmFormat::detect(&input.head) else {
            let known: Vec<_> = VmFormat::ALL.iter().map(|row| format!("{} ({})", row.name(), row.summary())).collect();
            return Err(TraceError::UnknownVmFormat { path: input.path, known: known.join(" and ") });
        };
        let opened = (format.0.open)(input.take_stream(), reduction).map_err(|error| input.error(error))?;
        let Input { path, compression, file, .. } = input;
        match opened {
            Ok((header, reader)) => {
                Ok(Self { path, file, reader, compression, format, header, records: 0, ended: false })
            }
            Err(problem) => Err(TraceError::BadLine { path, line: 0, problem, text: String::new() }),
        }
    }

    /// The name that the trace was opened by.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The hash of the file's bytes, as [`TraceReader::file_hash`](crate::TraceReader::file_hash) gives it.
    ///
    /// # Errors
    /// The rest of the file cannot be read.
    pub fn file_hash(&mut self) -> Result<Option<u64>, TraceError> {
        let hash = self.file.as_mut().map(Hashed::finish).transpose();
        hash.map_err(|error| TraceError::io(&self.path, error))
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
        self.compression.error(&self.path, self.records, error)
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
