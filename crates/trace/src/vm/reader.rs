use super::lackey::{self, Line};
use super::{HEADER_BYTES, MAGIC, Reducer, Reference, VmHeader};
use crate::TraceError;
use crate::compress::{Compression, open_stream};
use std::collections::VecDeque;
use std::io::{self, BufRead};
use std::path::Path;

/// The formats of traces of page references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VmFormat {
    /// Compact, binary.
    Vmt,
    /// The text of Valgrind's lackey.
    Lackey,
}

/// A trace of page references being read: an iterator over its records.
pub struct VmReader {
    path: String,
    stream: Box<dyn BufRead + Send>,
    compression: Compression,
    format: VmFormat,
    header: VmHeader,
    previous: u64,
    records: u64,
    /// Lackey: lines, pages of the last access that are still to come, the reduction.
    lines: u64,
    line: Vec<u8>,
    pending: VecDeque<Reference>,
    reducer: Reducer,
    ended: bool,
}

impl std::fmt::Debug for VmReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VmReader").field("path", &self.path).field("header", &self.header).finish_non_exhaustive()
    }
}

/// Whether a file starts like a trace of page references.
pub fn is_vm_trace(path: &Path) -> Result<bool, TraceError> {
    let (mut stream, _) = open_stream(path)?;
    Ok(detect(&mut stream).is_ok_and(|found| found.is_some()))
}

fn detect(stream: &mut impl BufRead) -> io::Result<Option<VmFormat>> {
    let head = stream.fill_buf()?;
    if head.starts_with(MAGIC) {
        return Ok(Some(VmFormat::Vmt));
    }
    let says_so = head.starts_with(b"==") && head.windows(8).take(64).any(|word| word == b" Lackey,");
    let mut lines = head.split(|byte| *byte == b'\n').take(20).map(lackey::parse);
    let is_access = |line| matches!(line, Some(Line::Access { .. }));
    let looks = lines.clone().filter(|line| is_access(*line)).count() > 2 && lines.all(|line| line.is_some());
    Ok((says_so || looks).then_some(VmFormat::Lackey))
}

impl VmReader {
    /// Opens a trace; `-` is the standard input. Lackey's text is reduced to pages as `reduction` says.
    pub fn open(path: &Path, reduction: VmHeader) -> Result<Self, TraceError> {
        let (mut stream, compression) = open_stream(path)?;
        let name = path.display().to_string();
        let failed = |error| match compression {
            Compression::Plain => TraceError::io(&name, error),
            _ => TraceError::Compressed { path: name.clone(), requests: 0, error },
        };
        let bad = |problem: String| TraceError::BadLine { path: name.clone(), line: 0, problem, text: String::new() };
        let format = detect(&mut stream).map_err(failed)?.ok_or_else(|| TraceError::UnknownFormat {
            path: name.clone(),
            why: "a trace of page references starts with VMT1 or is the text of valgrind --tool=lackey".into(),
            known: "vmt, lackey".into(),
        })?;
        let mut header = reduction;
        if format == VmFormat::Vmt {
            let mut bytes = [0; HEADER_BYTES];
            stream.read_exact(&mut bytes).map_err(|error| bad(format!("the header is cut short: {error}")))?;
            header = VmHeader::decode(&bytes).ok_or_else(|| bad("the header is no VMT1 header".into()))?;
            if !(6..=30).contains(&header.page_shift) {
                return Err(bad(format!("pages of 2^{} bytes: expected 2^6 to 2^30", header.page_shift)));
            }
        }
        Ok(Self {
            path: name,
            stream,
            compression,
            format,
            header,
            previous: 0,
            records: 0,
            lines: 0,
            line: Vec::new(),
            pending: VecDeque::new(),
            reducer: Reducer::new(header.window),
            ended: false,
        })
    }

    /// Its format.
    pub const fn format(&self) -> VmFormat {
        self.format
    }

    /// What it was made with, or, of lackey's text, is reduced to.
    pub const fn header(&self) -> VmHeader {
        self.header
    }

    /// Records handed out.
    pub const fn records(&self) -> u64 {
        self.records
    }

    fn failed(&self, error: io::Error) -> TraceError {
        match self.compression {
            Compression::Plain => TraceError::io(&self.path, error),
            _ => TraceError::Compressed { path: self.path.clone(), requests: self.records, error },
        }
    }

    fn bad(&self, problem: &str) -> TraceError {
        let text = String::from_utf8_lossy(&self.line[..self.line.len().min(80)]).trim_end().to_string();
        let line = if self.format == VmFormat::Vmt { self.records + 1 } else { self.lines };
        TraceError::BadLine { path: self.path.clone(), line, problem: problem.into(), text }
    }

    /// One LEB128 number; none at the end.
    #[inline]
    fn number(&mut self) -> Result<Option<u64>, TraceError> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let buffer = match self.stream.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) => return Err(self.failed(error)),
            };
            if buffer.is_empty() {
                return if shift == 0 { Ok(None) } else { Err(self.bad("the last record is cut short")) };
            }
            let mut used = 0;
            for byte in buffer {
                used += 1;
                let bits = u64::from(byte & 0x7F);
                if shift > 63 || (shift == 63 && bits > 1) {
                    return Err(self.bad("a record is longer than 64 bits"));
                }
                value |= bits << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    self.stream.consume(used);
                    return Ok(Some(value));
                }
            }
            self.stream.consume(used);
        }
    }

    fn next_vmt(&mut self) -> Result<Option<Reference>, TraceError> {
        let Some(value) = self.number()? else { return Ok(None) };
        let (zigzag, write) = (value >> 1, value & 1 != 0);
        let difference = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        self.previous = self.previous.wrapping_add(difference as u64);
        Ok(Some(Reference { page: self.previous, write }))
    }

    fn next_lackey(&mut self) -> Result<Option<Reference>, TraceError> {
        loop {
            while let Some(touch) = self.pending.pop_front() {
                if self.reducer.keeps(touch) {
                    return Ok(Some(touch));
                }
            }
            self.line.clear();
            match self.stream.read_until(b'\n', &mut self.line) {
                Ok(0) => return Ok(None),
                Ok(_) => self.lines += 1,
                Err(error) => return Err(self.failed(error)),
            }
            match lackey::parse(&self.line) {
                Some(Line::Access { fetch: true, .. }) if !self.header.fetches => {}
                Some(Line::Access { address, bytes, write, .. }) => {
                    if bytes > 1 << 20 {
                        return Err(self.bad("an access of more than 1 MiB"));
                    }
                    self.pending.extend(lackey::pages(address, bytes, write, self.header.page_shift));
                }
                Some(Line::Other) => {}
                None => return Err(self.bad("expected I, L, S or M, an address in hex, a comma and a size")),
            }
        }
    }
}

impl Iterator for VmReader {
    type Item = Result<Reference, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = match self.format {
            VmFormat::Vmt => self.next_vmt(),
            VmFormat::Lackey => self.next_lackey(),
        };
        match next {
            Ok(Some(reference)) => {
                self.records += 1;
                Some(Ok(reference))
            }
            Ok(None) => {
                self.ended = true;
                None
            }
            Err(error) => {
                self.ended = true;
                Some(Err(error))
            }
        }
    }
}
