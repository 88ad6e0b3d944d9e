use crate::format::{LineWriter, RecordWriter, Writer, WriterForm};
use crate::hash::FastMap;
use crate::reader::{Counts, TraceReader};
use crate::{Format, Request, TraceError};
use margay_host::{Existing, NewFile};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that takes its name when it is complete.
pub(crate) type OutputFile = BufWriter<NewFile>;

/// Writes a trace. The file gets its name by [`TraceWriter::finish`], so that a trace that was cut short is never taken
/// for a whole one.
pub struct TraceWriter {
    path: PathBuf,
    format: Format,
    writer: &'static Writer,
    out: Out,
    last_us: u64,
    /// Names of devices that have one.
    names: FastMap<u32, String>,
}

impl std::fmt::Debug for TraceWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceWriter").field("path", &self.path).field("format", &self.format).finish_non_exhaustive()
    }
}

enum Out {
    Lines(TextFile, Box<dyn LineWriter>),
    Records(Box<dyn RecordWriter>),
}

/// A text file, compressed as its name says.
enum TextFile {
    Plain(OutputFile),
    Gzip(flate2::write::GzEncoder<OutputFile>),
    Zstd(zstd::stream::write::Encoder<'static, OutputFile>),
}

const ZSTD_LEVEL: i32 = 6;

impl TextFile {
    fn new(file: OutputFile, path: &Path) -> io::Result<Self> {
        Ok(match path.extension().and_then(|extension| extension.to_str()) {
            Some("zst") => Self::Zstd(zstd::stream::write::Encoder::new(file, ZSTD_LEVEL)?),
            Some("gz") => Self::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::default())),
            _ => Self::Plain(file),
        })
    }

    fn as_write(&mut self) -> &mut dyn Write {
        match self {
            Self::Plain(out) => out,
            Self::Gzip(out) => out,
            Self::Zstd(out) => out,
        }
    }

    fn finish(self) -> io::Result<OutputFile> {
        match self {
            Self::Plain(out) => Ok(out),
            Self::Gzip(out) => out.finish(),
            Self::Zstd(out) => out.finish(),
        }
    }
}

impl TraceWriter {
    /// Starts a trace in a new file. Text is compressed if the name ends in `.zst` or `.gz`. It is an error if the format
    /// cannot be written, or if the file exists.
    pub fn create(path: &Path, format: Format) -> Result<Self, TraceError> {
        Self::create_with(path, format, Existing::Refuse)
    }

    /// As [`TraceWriter::create`]; `existing` says what is done if the file exists.
    pub fn create_with(path: &Path, format: Format, existing: Existing) -> Result<Self, TraceError> {
        let Some(writer) = format.writer() else {
            let writable = Format::writable_names();
            return Err(TraceError::NotWritable { path: path.display().to_string(), format: format.name(), writable });
        };
        let out = Self::start(path, writer, existing).map_err(|error| TraceError::write(path, error))?;
        Ok(Self { path: path.into(), format, writer, out, last_us: 0, names: FastMap::default() })
    }

    fn start(path: &Path, writer: &Writer, existing: Existing) -> io::Result<Out> {
        let file = BufWriter::new(NewFile::create(path, existing)?);
        Ok(match writer.form {
            WriterForm::Lines(new) => {
                let (mut text, lines) = (TextFile::new(file, path)?, new());
                text.as_write().write_all(lines.header().as_bytes())?;
                Out::Lines(text, lines)
            }
            WriterForm::Records(new) => Out::Records(new(file)?),
        })
    }

    /// Gives a device a name, for formats that write names: MSR, whose hosts and disks stand around a `_`, and CSV. A name that
    /// is a number, or cannot stand in a column, is left out; such a device keeps its number.
    pub fn name_device(&mut self, number: u32, name: &str) {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b',' | b'"'));
        if is_plain && name.bytes().any(|byte| !byte.is_ascii_digit()) {
            self.names.insert(number, name.into());
        }
    }

    /// Appends a request. Requests of kinds that the format cannot express ([`Writer::kinds`]) are left out; a time
    /// before that of the last request becomes that one.
    pub fn write(&mut self, request: &Request) -> Result<(), TraceError> {
        self.last_us = self.last_us.max(request.time_us);
        if !self.writer.kinds.contains(&request.kind) {
            return Ok(());
        }
        let request = Request { time_us: self.last_us, ..*request };
        let written = match &mut self.out {
            Out::Lines(text, lines) => {
                let name = self.names.get(&request.device).map(String::as_str);
                lines.write(&request, name, text.as_write())
            }
            Out::Records(records) => records.write(&request),
        };
        written.map_err(|error| TraceError::write(&self.path, error))
    }

    /// Completes the trace, makes it durable and gives it its name.
    pub fn finish(self) -> Result<(), TraceError> {
        let complete = |out| -> io::Result<()> {
            let file = match out {
                Out::Lines(text, _) => text.finish()?,
                Out::Records(records) => records.finish()?,
            };
            file.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
        };
        complete(self.out).map_err(|error| TraceError::write(&self.path, error))
    }
}

/// Reads a trace to its end and writes it to `writer`, which is finished. Returns the counts of what was read.
///
/// ```
/// use margay_trace::{Format, ReadOptions, TraceReader, TraceWriter, convert, info, open};
///
/// let msr = "128166372003061629,usr,0,Write,0,8192,30\n128166372013061629,usr,0,Read,4096,4096,30\n";
/// let reader = TraceReader::from_stream("usr_0.csv", msr.as_bytes(), &ReadOptions::default())?;
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("usr.mgt");
/// assert_eq!(convert(reader, TraceWriter::create(&path, Format::MGT)?)?.requests, 2);
///
/// let facts = info(open(&path, &ReadOptions::default())?, 4096)?;
/// assert_eq!((facts.page_writes, facts.duration_s), (2, 1.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The trace cannot be read, or the other one cannot be written.
pub fn convert(mut reader: TraceReader, mut writer: TraceWriter) -> Result<Counts, TraceError> {
    let mut named = FastMap::default();
    while let Some(request) = reader.next() {
        let request = request?;
        if named.insert(request.device, ()).is_none() {
            writer.name_device(request.device, &reader.device_name(request.device));
        }
        writer.write(&request)?;
    }
    writer.finish()?;
    Ok(reader.counts().clone())
}
