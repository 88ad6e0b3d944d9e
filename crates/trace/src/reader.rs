use crate::compress::{Compression, open_stream};
use crate::detect::{detect, text_format};
use crate::formats::hp_srt::HpSrt;
use crate::formats::oracle::OracleGeneral;
use crate::formats::{Line, LineFormat, Raw, mgt};
use crate::layout::CsvLayout;
use crate::{Format, Kind, Request, TraceError};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// What to do with a bad line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadLines {
    /// Stop with an error.
    #[default]
    Stop,
    /// Count it and go on, up to a limit.
    Skip {
        /// The most bad lines.
        limit: Option<u64>,
    },
}

/// How to read a trace.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The format; detected if not given.
    pub format: Option<Format>,
    /// What to do with a bad line.
    pub bad_lines: BadLines,
    /// Columns of a CSV file.
    pub csv: Option<CsvLayout>,
    /// Only requests to these devices.
    pub devices: Option<Vec<u32>>,
}

/// What was read so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Lines, or records of a binary format.
    pub lines: u64,
    /// Requests handed out.
    pub requests: u64,
    /// Reads among them.
    pub reads: u64,
    /// Writes among them.
    pub writes: u64,
    /// Trims among them.
    pub trims: u64,
    /// Flushes among them.
    pub flushes: u64,
    /// Requests to devices that were not asked for.
    pub other_devices: u64,
    /// Requests whose time was before that of their predecessor, which they were given.
    pub times_back: u64,
    /// Bad lines that were skipped.
    pub bad_lines: u64,
    /// The first few of them, as errors would have said it.
    pub first_bad: Vec<String>,
    /// Lines without a request, by reason.
    pub ignored: BTreeMap<&'static str, u64>,
}

const KEPT_BAD: usize = 5;
const HEAD_BYTES: u64 = 1 << 16;
const LONGEST_LINE_BYTES: u64 = 1 << 20;

enum Parser {
    Lines(Box<dyn LineFormat>),
    HpSrt(HpSrt),
    Oracle(OracleGeneral),
    Mgt(Box<mgt::Decoder>),
}

/// A trace being read: an iterator over its requests.
pub struct TraceReader {
    path: String,
    stream: Box<dyn BufRead + Send>,
    compression: Compression,
    format: Format,
    parser: Parser,
    bad_lines: BadLines,
    devices: Option<Vec<u32>>,
    counts: Counts,
    line: Vec<u8>,
    start_ns: Option<u128>,
    last_us: u64,
    ended: bool,
}

impl std::fmt::Debug for TraceReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceReader").field("path", &self.path).field("format", &self.format).finish_non_exhaustive()
    }
}

/// Opens a trace; `-` is the standard input.
pub fn open(path: &Path, options: &OpenOptions) -> Result<TraceReader, TraceError> {
    let (mut stream, compression) = open_stream(path)?;
    let name = path.display().to_string();
    let mut head = Vec::new();
    let failed = |error: io::Error| match compression {
        Compression::Plain => TraceError::io(&name, error),
        _ => TraceError::Compressed { path: name.clone(), requests: 0, error },
    };
    (&mut stream).take(HEAD_BYTES).read_to_end(&mut head).map_err(failed)?;
    let is_whole = (head.len() as u64) < HEAD_BYTES;
    if head.is_empty() {
        return Err(TraceError::Empty { path: name, lines: 0 });
    }
    let format = match (options.format, &options.csv) {
        (Some(format), _) => format,
        (None, Some(_)) => Format::Csv,
        (None, None) => detect(&name, &head, is_whole)?,
    };
    let lines = text_format(format, &head, options.csv.as_ref())?;
    let mut stream: Box<dyn BufRead + Send> = Box::new(io::Cursor::new(head).chain(stream));
    let parser = match (format, lines) {
        (_, Some(lines)) => Parser::Lines(lines),
        (Format::Mgt, None) => {
            let mut magic = [0; mgt::MAGIC.len()];
            if stream.read_exact(&mut magic).is_err() || magic != mgt::MAGIC {
                let (problem, text) = ("not a margay trace".into(), String::new());
                return Err(TraceError::BadLine { path: name, line: 1, problem, text });
            }
            let decoder = zstd::stream::read::Decoder::with_buffer(stream).map_err(|e| TraceError::io(&name, e))?;
            stream = Box::new(BufReader::with_capacity(1 << 16, decoder.single_frame()));
            Parser::Mgt(Box::new(mgt::Decoder::new()))
        }
        (Format::HpSrt, None) => Parser::HpSrt(HpSrt::default()),
        (_, None) => Parser::Oracle(OracleGeneral::default()),
    };
    Ok(TraceReader {
        path: name,
        stream,
        compression,
        format,
        parser,
        bad_lines: options.bad_lines,
        devices: options.devices.clone(),
        counts: Counts::default(),
        line: Vec::new(),
        start_ns: None,
        last_us: 0,
        ended: false,
    })
}

impl TraceReader {
    /// The format, named or detected.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How the file is compressed.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// What was read so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The next request as the file states it, `None` at the end.
    fn next_raw(&mut self) -> Result<Option<Raw>, TraceError> {
        loop {
            let parsed = match &mut self.parser {
                Parser::Lines(lines) => {
                    self.line.clear();
                    let read = (&mut self.stream).take(LONGEST_LINE_BYTES).read_until(b'\n', &mut self.line);
                    match read {
                        Ok(0) => Ok(None),
                        Ok(_) => {
                            let line = self.line.trim_ascii_end();
                            Ok(Some(if line.is_empty() { Ok(crate::formats::COMMENT) } else { lines.line(line) }))
                        }
                        Err(error) => Err(error),
                    }
                }
                Parser::HpSrt(records) => {
                    let mut ignored = 0;
                    let record = records.next(&mut *self.stream, &mut ignored);
                    if ignored > 0 {
                        *self.counts.ignored.entry("record of another type").or_default() += ignored;
                    }
                    record.map(as_line)
                }
                Parser::Oracle(records) => records.next(&mut *self.stream).map(as_line),
                Parser::Mgt(records) => records.next(&mut *self.stream).map(as_line),
            };
            let parsed = parsed.map_err(|error| self.stream_error(error))?;
            let Some(parsed) = parsed else { return Ok(None) };
            self.counts.lines += 1;
            match parsed.and_then(plausible) {
                Ok(Line::Request(raw)) => return Ok(Some(raw)),
                Ok(Line::Ignored(reason)) => *self.counts.ignored.entry(reason).or_default() += 1,
                Err(problem) => self.bad_line(problem)?,
            }
        }
    }

    fn stream_error(&self, error: io::Error) -> TraceError {
        if self.compression == Compression::Plain && self.format != Format::Mgt {
            return TraceError::io(&self.path, error);
        }
        TraceError::Compressed { path: self.path.clone(), requests: self.counts.requests, error }
    }

    fn bad_line(&mut self, problem: String) -> Result<(), TraceError> {
        let is_text = matches!(self.parser, Parser::Lines(_));
        let text = if is_text { String::from_utf8_lossy(self.line.trim_ascii_end()) } else { "binary".into() };
        let text: String = text.chars().take(80).collect();
        let error = TraceError::BadLine { path: self.path.clone(), line: self.counts.lines, problem, text };
        // After a bad record of a binary format nothing says where the next one starts.
        let BadLines::Skip { limit } = self.bad_lines else { return Err(error) };
        if !is_text {
            return Err(error);
        }
        self.counts.bad_lines += 1;
        if self.counts.first_bad.len() < KEPT_BAD {
            self.counts.first_bad.push(error.to_string());
        }
        match limit {
            Some(limit) if self.counts.bad_lines > limit => {
                let first = self.counts.first_bad[0].clone();
                Err(TraceError::TooManyBadLines { path: self.path.clone(), limit, first })
            }
            _ => Ok(()),
        }
    }

    fn next_request(&mut self) -> Result<Option<Request>, TraceError> {
        loop {
            let Some(raw) = self.next_raw()? else {
                if self.counts.requests == 0 {
                    return Err(TraceError::Empty { path: self.path.clone(), lines: self.counts.lines });
                }
                return Ok(None);
            };
            if self.devices.as_ref().is_some_and(|devices| !devices.contains(&raw.device)) {
                self.counts.other_devices += 1;
                continue;
            }
            if raw.len_bytes == 0 && raw.kind != Kind::Flush {
                *self.counts.ignored.entry("request of no bytes").or_default() += 1;
                continue;
            }
            let start_ns = *self.start_ns.get_or_insert(raw.time_ns);
            let us = u64::try_from(raw.time_ns.saturating_sub(start_ns) / 1000).unwrap_or(u64::MAX);
            self.counts.times_back += u64::from(us < self.last_us || raw.time_ns < start_ns);
            self.last_us = self.last_us.max(us);
            self.counts.requests += 1;
            match raw.kind {
                Kind::Read => self.counts.reads += 1,
                Kind::Write => self.counts.writes += 1,
                Kind::Trim => self.counts.trims += 1,
                Kind::Flush => self.counts.flushes += 1,
            }
            return Ok(Some(Request {
                time_us: self.last_us,
                kind: raw.kind,
                device: raw.device,
                offset_bytes: raw.offset_bytes,
                len_bytes: raw.len_bytes,
            }));
        }
    }
}

fn as_line(record: Option<Result<Raw, String>>) -> Option<Result<Line, String>> {
    record.map(|record| record.map(Line::Request))
}

/// Longer requests are errors of unit or damage; they would make a run of one line last for ever.
const LONGEST_REQUEST_BYTES: u64 = 1 << 40;

fn plausible(line: Line) -> Result<Line, String> {
    if let Line::Request(raw) = line {
        if raw.offset_bytes.checked_add(raw.len_bytes).is_none() {
            return Err("the request ends past 2^64 bytes".into());
        }
        if raw.len_bytes > LONGEST_REQUEST_BYTES {
            return Err(format!("a request of {} bytes; at most 1 TiB is believed", raw.len_bytes));
        }
    }
    Ok(line)
}

impl Iterator for TraceReader {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.next_request().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}
