use crate::compress::temporary_in;
use crate::format::{LineWriter, RecordWriter, Writer, WriterForm};
use crate::reader::{Counts, OpenOptions, open};
use crate::{Format, Request, TraceError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file that takes its final name when it is complete.
pub(crate) type OutputFile = BufWriter<NamedTempFile>;

/// Writes a trace. The file is written beside its final place and moved there by [`TraceWriter::finish`], so that a
/// trace that was cut short is never taken for a whole one.
pub struct TraceWriter {
    path: PathBuf,
    format: Format,
    writer: &'static Writer,
    out: Out,
    last_us: u64,
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
    /// Starts a trace. Text is compressed if the name ends in `.zst` or `.gz`. It is an error if the format cannot be
    /// written, or if the path is something else than a regular file.
    pub fn create(path: &Path, format: Format) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let Some(writer) = format.writer() else {
            let writable = Format::writable_names();
            return Err(TraceError::NotWritable { path: name, format: format.name(), writable });
        };
        let out = Self::start(path, writer).map_err(|error| TraceError::io(&name, error))?;
        Ok(Self { path: path.into(), format, writer, out, last_us: 0 })
    }

    fn start(path: &Path, writer: &Writer) -> io::Result<Out> {
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            let why = "not a regular file; a finished trace replaces the file as a whole";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = BufWriter::new(temporary_in(folder)?);
        Ok(match writer.form {
            WriterForm::Lines(new) => {
                let (mut text, lines) = (TextFile::new(file, path)?, new());
                text.as_write().write_all(lines.header().as_bytes())?;
                Out::Lines(text, lines)
            }
            WriterForm::Records(new) => Out::Records(new(file)?),
        })
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
            Out::Lines(text, lines) => lines.write(&request, text.as_write()),
            Out::Records(records) => records.write(&request),
        };
        written.map_err(|error| TraceError::io(&self.path.display().to_string(), error))
    }

    /// Completes the trace, makes it durable and gives it its name.
    pub fn finish(self) -> Result<(), TraceError> {
        let name = self.path.display().to_string();
        let complete = |out| -> io::Result<NamedTempFile> {
            let file = match out {
                Out::Lines(text, _) => text.finish()?,
                Out::Records(records) => records.finish()?,
            };
            let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.as_file().sync_all()?;
            Ok(file)
        };
        let file = complete(self.out).map_err(|error| TraceError::io(&name, error))?;
        file.persist(&self.path).map_err(|error| TraceError::io(&name, error.error))?;
        Ok(())
    }
}

/// Reads the trace `from` and writes it to `to` in another format. Returns the counts of what was read.
pub fn convert(from: &Path, options: &OpenOptions, to: &Path, format: Format) -> Result<Counts, TraceError> {
    let mut reader = open(from, options)?;
    let mut writer = TraceWriter::create(to, format)?;
    for request in reader.by_ref() {
        writer.write(&request?)?;
    }
    writer.finish()?;
    Ok(reader.counts().clone())
}
