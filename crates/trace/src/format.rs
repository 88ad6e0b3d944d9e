//! What a format has to say of itself: one [`FormatRow`] each. The table of rows is in `formats`.

use crate::layout::CsvLayout;
use crate::lines::Sample;
use crate::writer::OutputFile;
use crate::{IoKind, Request, TraceError};
use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

/// The uncompressed bytes of a trace.
pub(crate) use crate::compress::Stream;

/// One row of the table of formats: everything that margay knows of a format. A row without a reader does not
/// compile.
pub(crate) struct FormatRow {
    /// Name on the command line and in results.
    pub name: &'static str,
    /// Layout of a line or record, with units.
    pub summary: &'static str,
    /// Who published it, or where it is specified.
    pub source: &'static str,
    /// How a file of it is recognized.
    pub detection: Detection,
    /// How it is read.
    pub reader: Reader,
    /// How it is written, if it can be.
    pub writer: Option<Writer>,
    /// A small file of it.
    pub example: Example,
}

/// How a file of a format is recognized. If several formats fit a file, the variant that stands first here wins.
pub(crate) enum Detection {
    /// The file starts with these bytes.
    Magic(&'static [u8]),
    /// The file's name contains this text, in any case.
    FileName(&'static str),
    /// The first bytes of a binary file pass the test.
    Records(fn(&[u8]) -> bool),
    /// The first line of text that is not empty passes the test.
    FirstLine(fn(&[u8]) -> bool),
    /// The reader accepts nine out of ten of the first lines, and the sample passes the test. Of several formats the
    /// one that rejects the fewest lines wins.
    Lines(fn(&Sample<'_>) -> bool),
    /// As [`Detection::Lines`], for formats that accept so much that they are tried only if no other fits.
    LastResort(fn(&Sample<'_>) -> bool),
}

/// A reader behind the header of a binary file, or what is wrong with the header.
pub(crate) type Records = Result<Box<dyn RecordReader>, String>;

/// How a format is read.
pub(crate) enum Reader {
    /// Each line of text is at most one request.
    Lines(fn(&Opening<'_>) -> Result<Box<dyn LineReader>, TraceError>),
    /// Binary records. The function may consume a header.
    Records(fn(Stream) -> io::Result<Records>),
}

/// What is known of a text file before its first line is read.
pub(crate) struct Opening<'a> {
    /// The first bytes of the file.
    pub head: &'a [u8],
    /// The columns, if the user named them.
    pub csv: Option<&'a CsvLayout>,
}

/// A request as the file states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raw {
    /// On the file's own clock.
    pub time_ns: u128,
    pub kind: IoKind,
    pub device: u32,
    pub offset_bytes: u64,
    pub len_bytes: u64,
    pub stream: Option<u8>,
}

/// What a line or a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Request(Raw),
    /// Nothing to replay, and the reason, under which it is counted.
    Ignored(&'static str),
}

impl Entry {
    pub const HEADER: Self = Self::Ignored("header");
    pub const COMMENT: Self = Self::Ignored("comment or empty line");

    pub fn request(time_ns: u128, kind: IoKind, device: u32, offset_bytes: u64, len_bytes: u64) -> Self {
        Self::Request(Raw { time_ns, kind, device, offset_bytes, len_bytes, stream: None })
    }
}

/// Parses the lines of a text format, in order.
pub(crate) trait LineReader: Send {
    /// Parses one line, given without its end; the error says what is wrong with it.
    fn line(&mut self, line: &[u8]) -> Result<Entry, String>;

    /// The request of the line at the start of `unread`, and the bytes of the line with its end, if that line is as lines of
    /// the format usually are; its end need not be known. A line that is not goes to [`LineReader::line`], which would find
    /// the same in this one.
    fn usual_line(&mut self, unread: &[u8]) -> Option<(Raw, usize)> {
        let _ = unread;
        None
    }

    /// The name that the trace gives the device with this number; `None` if its devices are numbered.
    fn device_name(&self, number: u32) -> Option<String> {
        let _ = number;
        None
    }
}

/// Reads the records of a binary format.
pub(crate) trait RecordReader: Send {
    /// The next record, or `None` at the end of the trace. The outer error is the stream's, the inner one says what is
    /// wrong with the record.
    fn next(&mut self) -> io::Result<Option<Result<Entry, String>>>;

    /// The name that the trace gives the device with this number; `None` if its devices are numbered.
    fn device_name(&self, number: u32) -> Option<String> {
        let _ = number;
        None
    }

    /// Whether the format compresses its records itself, so that an error of the stream means damaged data.
    fn is_compressed(&self) -> bool {
        false
    }
}

/// How a format is written.
#[derive(Clone, Copy)]
pub struct Writer {
    /// Kinds of requests that the format can express; the others are left out.
    pub kinds: &'static [IoKind],
    /// Times are rounded down to this unit.
    pub time_unit_us: u64,
    pub(crate) form: WriterForm,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("kinds", &self.kinds).field("time_unit_us", &self.time_unit_us).finish()
    }
}

#[derive(Clone, Copy)]
pub(crate) enum WriterForm {
    /// Lines of text, compressed as the file's name says.
    Lines(fn() -> Box<dyn LineWriter>),
    /// Records, which the format compresses itself if at all.
    Records(fn(OutputFile) -> io::Result<Box<dyn RecordWriter>>),
}

/// Writes the lines of a text format.
pub(crate) trait LineWriter: Send {
    /// The line before all requests, with its end; empty if there is none.
    fn header(&self) -> &'static str {
        ""
    }

    /// Writes a request of one of the [`Writer::kinds`]. Times never go back. `device` is the name of its device, if it has one
    /// that is no number and can stand in a column.
    fn write(&mut self, request: &Request, device: Option<&str>, out: &mut dyn Write) -> io::Result<()>;
}

/// Writes the records of a binary format.
pub(crate) trait RecordWriter: Send {
    /// Writes a request of one of the [`Writer::kinds`]. Times never go back.
    fn write(&mut self, request: &Request) -> io::Result<()>;

    /// Writes what ends the trace and gives the file back.
    fn finish(self: Box<Self>) -> io::Result<OutputFile>;
}

/// A small file of a format.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// A usual name for such a file.
    pub file_name: &'static str,
    /// Its bytes, not compressed.
    pub bytes: &'static [u8],
    /// Requests in it.
    pub requests: u64,
}

/// A format of block traces: a row of the table, see [`Format::ALL`]. A format is found by its name:
///
/// ```
/// # use margay_trace::Format;
/// let format: Format = "msr".parse()?;
/// assert_eq!(format.name(), "msr");
/// assert!(format.writer().is_some());
/// # Ok::<(), margay_trace::TraceError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Format(pub(crate) &'static FormatRow);

impl Format {
    /// The name that is written on the command line and in results.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// The layout of a line or record, with units.
    pub const fn summary(self) -> &'static str {
        self.0.summary
    }

    /// Who published the format, or where it is specified.
    pub const fn source(self) -> &'static str {
        self.0.source
    }

    /// How files of the format are recognized, in words.
    pub fn detected_by(self) -> String {
        match &self.0.detection {
            Detection::Magic(_) => "the first bytes".into(),
            Detection::Records(_) => "the first records".into(),
            Detection::FileName(part) => format!("a file name with '{part}' in it"),
            Detection::FirstLine(_) => "the first line".into(),
            Detection::Lines(_) => "the first lines".into(),
            Detection::LastResort(_) => "the first lines, if no other format fits them".into(),
        }
    }

    /// How the format is written; `None` if it can only be read.
    pub const fn writer(self) -> Option<&'static Writer> {
        self.0.writer.as_ref()
    }

    /// A small file of the format.
    pub const fn example(self) -> Example {
        self.0.example
    }

    /// The names of all formats, separated by commas.
    pub fn names() -> String {
        Self::ALL.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ")
    }

    /// The names of the formats that can be written, separated by commas.
    pub fn writable_names() -> String {
        let writable = Self::ALL.iter().filter(|format| format.writer().is_some());
        writable.map(|format| format.name()).collect::<Vec<_>>().join(", ")
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Format {}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Format").field(&self.name()).finish()
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = TraceError;

    fn from_str(name: &str) -> Result<Self, TraceError> {
        let found = Self::ALL.iter().copied().find(|format| format.name() == name);
        found.ok_or_else(|| TraceError::UnknownName { name: name.into(), known: Self::names() })
    }
}
