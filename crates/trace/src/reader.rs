use crate::compress::{Compression, Hashed, Input};
use crate::detect::detect;
use crate::devices::Chosen;
use crate::format::{Entry, LineReader, Opening, Raw, Reader, RecordReader, Stream};
use crate::layout::CsvLayout;
use crate::lines::{Lines, NextLine, Sample, TOO_LONG};
use crate::vm::{VmFormat, VmHeader, VmReader};
use crate::{Format, IoKind, Request, TraceError};
use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::path::Path;

/// What to do with a bad line. A line longer than [`MAX_LINE_BYTES`](crate::MAX_LINE_BYTES) and a bad record of a binary
/// format are always errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadLines {
    /// Stop with an error.
    #[default]
    Stop,
    /// Count it and go on, up to a limit.
    Skip {
        /// The largest number of bad lines; any number without it.
        limit: Option<u64>,
    },
}

/// How to read a trace.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The format; detected if it is not given.
    pub format: Option<Format>,
    /// What to do with a bad line.
    pub bad_lines: BadLines,
    /// The columns of a CSV file. If they are given and no format is, the format is CSV.
    pub csv: Option<CsvLayout>,
    /// The devices whose requests are handed out, by their names ([`TraceReader::device_name`]), the part of a name before
    /// `_`, or their numbers; all without it. A device that the trace does not have is an error at its end.
    pub devices: Option<Vec<String>>,
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
    /// Requests that were left out because of their device.
    pub other_devices: u64,
    /// Requests that were earlier than the one before, and were given the time of that one.
    pub times_back: u64,
    /// Bad lines that were skipped.
    pub bad_lines: u64,
    /// The errors of the first five of them.
    pub first_bad: Vec<String>,
    /// Lines without a request, by reason.
    pub ignored: BTreeMap<&'static str, u64>,
}

/// Bad lines whose errors are kept.
const MAX_KEPT_BAD: usize = 5;

/// Where entries come from.
enum Source {
    Lines(Lines<Stream>, Box<dyn LineReader>),
    Records(Box<dyn RecordReader>),
}

impl Source {
    fn device_name(&self, number: u32) -> String {
        let name = match self {
            Self::Lines(_, reader) => reader.device_name(number),
            Self::Records(reader) => reader.device_name(number),
        };
        name_of(name, number)
    }
}

/// The name of a device; without one the number.
fn name_of(name: Option<String>, number: u32) -> String {
    name.unwrap_or_else(|| number.to_string())
}

/// A trace being read: an iterator over its requests. After an error it ends.
pub struct TraceReader {
    path: String,
    /// The file, if there is one, to be hashed.
    file: Option<Hashed>,
    source: Source,
    compression: Compression,
    format: Format,
    bad_lines: BadLines,
    devices: Option<Chosen>,
    counts: Counts,
    start_ns: Option<u128>,
    last_us: u64,
    ended: bool,
}

impl std::fmt::Debug for TraceReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceReader").field("path", &self.path).field("format", &self.format).finish_non_exhaustive()
    }
}

/// Opens a trace: an iterator over its requests.
///
/// ```
/// use margay_trace::{IoKind, ReadOptions, open};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("disk.csv");
/// std::fs::write(&path, "time_us,op,device,offset_bytes,len_bytes\n0,write,0,0,4096\n250,read,0,8192,512\n")?;
///
/// let mut trace = open(&path, &ReadOptions::default())?;
/// let written: u64 = trace
///     .by_ref()
///     .map(|request| request.map(|request| if request.kind == IoKind::Write { request.len_bytes } else { 0 }))
///     .sum::<Result<_, _>>()?;
/// assert_eq!((written, trace.counts().requests), (4096, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// `-` is the standard input. The format is detected unless the options name it.
pub fn open(path: &Path, options: &ReadOptions) -> Result<TraceReader, TraceError> {
    TraceReader::new(Input::open(path)?, options)
}

/// Opens a trace as [`open`] does, for a program that may have to stop: once `keep_on` returns false, reading fails with
/// [`TraceError::Io`], or [`TraceError::Compressed`] if the file is compressed. It is asked about every 128 KiB of the file.
///
/// # Errors
/// As [`open`].
pub fn open_while(
    path: &Path,
    options: &ReadOptions,
    keep_on: impl Fn() -> bool + Send + 'static,
) -> Result<TraceReader, TraceError> {
    TraceReader::new(Input::open_while(path, keep_on)?, options)
}

/// A trace of either sort.
#[derive(Debug)]
pub enum AnyTrace {
    /// Requests to a disk.
    Requests(Box<TraceReader>),
    /// Page references of a program.
    References(VmReader),
}

/// Opens a trace of either sort, as [`open`] and [`VmReader::open`] do. With a format or columns in the options it is one of
/// requests. This is the way to read from the standard input what can be either: it can be opened only once.
///
/// # Errors
/// As those two.
pub fn open_any(path: &Path, options: &ReadOptions, reduction: VmHeader) -> Result<AnyTrace, TraceError> {
    let input = Input::open(path)?;
    let is_named = options.format.is_some() || options.csv.is_some();
    if !is_named && VmFormat::detect(&input.head).is_some() {
        return VmReader::new(input, reduction).map(AnyTrace::References);
    }
    TraceReader::new(input, options).map(|reader| AnyTrace::Requests(reader.into()))
}

impl TraceReader {
    /// Reads a trace from a stream of uncompressed bytes. The name stands in errors, and some formats are recognized
    /// by it.
    pub fn from_stream(
        name: &str,
        stream: impl BufRead + Send + 'static,
        options: &ReadOptions,
    ) -> Result<Self, TraceError> {
        Self::new(Input::of_stream(name, stream)?, options)
    }

    pub(crate) fn new(mut input: Input, options: &ReadOptions) -> Result<Self, TraceError> {
        if input.head.is_empty() {
            return Err(TraceError::Empty { path: input.path, lines: 0 });
        }
        let format = match (options.format, &options.csv) {
            (Some(format), _) => format,
            (None, Some(_)) => Format::CSV,
            (None, None) => detect(&Sample::new(&input.path, &input.head, input.is_whole()))?,
        };
        let source = match format.0.reader {
            Reader::Lines(new) => {
                let reader = new(&Opening { head: &input.head, csv: options.csv.as_ref() })?;
                Source::Lines(Lines::new(input.take_stream()), reader)
            }
            Reader::Records(new) => match new(input.take_stream()).map_err(|error| input.error(error))? {
                Ok(records) => Source::Records(records),
                Err(problem) => {
                    return Err(TraceError::BadLine { path: input.path, line: 1, problem, text: String::new() });
                }
            },
        };
        let Input { path, compression, file, .. } = input;
        Ok(Self::of_source(path, file, source, compression, format, options))
    }

    pub(crate) fn of_records(
        name: &str,
        records: Box<dyn RecordReader>,
        compression: Compression,
        format: Format,
        options: &ReadOptions,
    ) -> Self {
        Self::of_source(name.into(), None, Source::Records(records), compression, format, options)
    }

    fn of_source(
        path: String,
        file: Option<Hashed>,
        source: Source,
        compression: Compression,
        format: Format,
        options: &ReadOptions,
    ) -> Self {
        Self {
            path,
            file,
            source,
            compression,
            format,
            bad_lines: options.bad_lines,
            devices: options.devices.as_deref().map(Chosen::new),
            counts: Counts::default(),
            start_ns: None,
            last_us: 0,
            ended: false,
        }
    }

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

    /// The name of a device whose number was in a request: as the trace writes it, or the number.
    pub fn device_name(&self, number: u32) -> String {
        self.source.device_name(number)
    }

    /// The 64-bit xxh3 hash of the file's bytes as they are stored, compressed or not, as [`hash_file`](crate::hash_file)
    /// computes it. The file is read to its end; a reader of a stream has none.
    ///
    /// # Errors
    /// The rest of the file cannot be read.
    pub fn file_hash(&mut self) -> Result<Option<u64>, TraceError> {
        let hash = self.file.as_mut().map(Hashed::finish).transpose();
        hash.map_err(|error| TraceError::io(&self.path, error))
    }

    #[cold]
    fn stream_error(&self, error: io::Error) -> TraceError {
        let compression = match &self.source {
            Source::Records(records) if records.is_compressed() => Compression::Zstd,
            _ => self.compression,
        };
        compression.error(&self.path, self.counts.requests, error)
    }

    /// The error for the line or record that was read last.
    #[cold]
    pub(crate) fn bad_entry(&self, problem: String) -> TraceError {
        let text = match &self.source {
            Source::Lines(lines, _) => {
                let line = lines.line();
                String::from_utf8_lossy(&line[..line.len().min(400)]).trim_end().chars().take(80).collect()
            }
            Source::Records(_) => String::new(),
        };
        TraceError::BadLine { path: self.path.clone(), line: self.counts.lines, problem, text }
    }

    /// Counts a bad line if the options allow it, and returns it as an error otherwise.
    fn skip_bad_entry(&mut self, problem: String) -> Result<(), TraceError> {
        let error = self.bad_entry(problem);
        // After a bad record of a binary format nothing says where the next one starts.
        let (BadLines::Skip { limit }, Source::Lines(..)) = (self.bad_lines, &self.source) else {
            return Err(error);
        };
        self.counts.bad_lines += 1;
        if self.counts.first_bad.len() < MAX_KEPT_BAD {
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

    /// The next request, if it is in a line that is as those of the format usually are.
    #[inline(always)]
    fn next_usual(&mut self) -> Option<Request> {
        let Source::Lines(lines, reader) = &mut self.source else { return None };
        loop {
            let (raw, bytes) = reader.usual_line(lines.unread())?;
            if !is_plausible(&raw) || raw.len_bytes == 0 {
                return None;
            }
            lines.pass(bytes);
            self.counts.lines += 1;
            if let Some(devices) = &mut self.devices
                && !devices.has(raw.device, || name_of(reader.device_name(raw.device), raw.device))
            {
                self.counts.other_devices += 1;
                continue;
            }
            return Some(self.handed_out(&raw));
        }
    }

    /// The next request by the way that every line can go. Apart from [`TraceReader::next_usual`], which is worth being in
    /// the loops of those who call.
    #[inline(never)]
    fn next_request(&mut self) -> Result<Option<Request>, TraceError> {
        loop {
            let entry = match &mut self.source {
                Source::Lines(lines, reader) => match lines.next() {
                    Ok(NextLine::Line) => {
                        let mut line = lines.line();
                        if line.last().is_none_or(u8::is_ascii_whitespace) {
                            line = line.trim_ascii_end();
                        }
                        if line.is_empty() { Ok(Entry::COMMENT) } else { reader.line(line) }
                    }
                    Ok(NextLine::End) => return self.end(),
                    Ok(NextLine::TooLong) => {
                        self.counts.lines += 1;
                        return Err(self.bad_entry(TOO_LONG.into()));
                    }
                    Err(error) => return Err(self.stream_error(error)),
                },
                Source::Records(records) => match records.next() {
                    Ok(Some(entry)) => entry,
                    Ok(None) => return self.end(),
                    Err(error) => return Err(self.stream_error(error)),
                },
            };
            self.counts.lines += 1;
            match entry {
                Ok(Entry::Request(raw)) => {
                    if !is_plausible(&raw) {
                        self.skip_bad_entry(implausible(&raw))?;
                    } else if let Some(request) = self.accepted(&raw) {
                        return Ok(Some(request));
                    }
                }
                Ok(Entry::Ignored(reason)) => *self.counts.ignored.entry(reason).or_default() += 1,
                Err(problem) => self.skip_bad_entry(problem)?,
            }
        }
    }

    #[cold]
    fn end(&self) -> Result<Option<Request>, TraceError> {
        if let Some(devices) = &self.devices {
            devices.check(&self.path)?;
        }
        if self.counts.requests == 0 {
            return Err(TraceError::Empty { path: self.path.clone(), lines: self.counts.lines });
        }
        Ok(None)
    }

    /// A request on the trace's clock; `None` if it is not to be handed out.
    #[inline]
    fn accepted(&mut self, raw: &Raw) -> Option<Request> {
        let source = &self.source;
        if let Some(devices) = &mut self.devices
            && !devices.has(raw.device, || source.device_name(raw.device))
        {
            self.counts.other_devices += 1;
            return None;
        }
        if raw.len_bytes == 0 && raw.kind != IoKind::Flush {
            *self.counts.ignored.entry("request of no bytes").or_default() += 1;
            return None;
        }
        Some(self.handed_out(raw))
    }

    /// Sets the clock to a time that is before that of another request, or far behind all.
    #[cold]
    fn odd_time(&mut self, time_ns: u128, start_ns: u128) {
        let us = u64::try_from(time_ns.saturating_sub(start_ns) / 1000).unwrap_or(u64::MAX);
        self.counts.times_back += u64::from(us < self.last_us || time_ns < start_ns);
        self.last_us = self.last_us.max(us);
    }

    /// A request on the trace's clock.
    #[inline(always)]
    fn handed_out(&mut self, raw: &Raw) -> Request {
        let start_ns = *self.start_ns.get_or_insert(raw.time_ns);
        // A division of 128 bits takes longer than parsing a line. A time before the first wraps to more than 64 bits.
        match u64::try_from(raw.time_ns.wrapping_sub(start_ns)) {
            Ok(elapsed_ns) if elapsed_ns / 1000 >= self.last_us => self.last_us = elapsed_ns / 1000,
            _ => self.odd_time(raw.time_ns, start_ns),
        }
        self.counts.requests += 1;
        match raw.kind {
            IoKind::Read => self.counts.reads += 1,
            IoKind::Write => self.counts.writes += 1,
            IoKind::Trim => self.counts.trims += 1,
            IoKind::Flush => self.counts.flushes += 1,
        }
        Request {
            time_us: self.last_us,
            kind: raw.kind,
            device: raw.device,
            offset_bytes: raw.offset_bytes,
            len_bytes: raw.len_bytes,
            stream: raw.stream,
        }
    }
}

/// A longer request means a wrong unit or damage, and would make a run of one line last for ever: lengths of block devices
/// and of NBD have 32 bits.
const MAX_REQUEST_BYTES: u64 = 1 << 32;

#[inline(always)]
fn is_plausible(raw: &Raw) -> bool {
    raw.len_bytes <= MAX_REQUEST_BYTES && raw.offset_bytes.checked_add(raw.len_bytes).is_some()
}

/// What is wrong with a request that is too long or too far.
#[cold]
fn implausible(raw: &Raw) -> String {
    if raw.offset_bytes.checked_add(raw.len_bytes).is_none() {
        return "the request ends past 2^64 bytes".into();
    }
    format!("a request of {} bytes is longer than 4 GiB; is the unit right?", raw.len_bytes)
}

impl Iterator for TraceReader {
    type Item = Result<Request, TraceError>;

    // In the loops of all who call: as a call it costs a parsed line 35 instructions more, and whether it is one would be chance.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        if let Some(request) = self.next_usual() {
            return Some(Ok(request));
        }
        match self.next_request() {
            Ok(Some(request)) => Some(Ok(request)),
            end => {
                self.ended = true;
                end.transpose()
            }
        }
    }
}
