use crate::formats::mgt;
use crate::reader::{Counts, OpenOptions, open};
use crate::{Format, Kind, Request, TraceError};
use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Writes a trace beside its final place and moves it there when finished, so that nothing that was cut short
/// looks whole.
pub struct TraceWriter {
    path: PathBuf,
    format: Format,
    out: Out,
    last_us: u64,
    devices: BTreeSet<u32>,
}

impl std::fmt::Debug for TraceWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceWriter").field("path", &self.path).field("format", &self.format).finish_non_exhaustive()
    }
}

type File = BufWriter<NamedTempFile>;

enum Out {
    Plain(File),
    Gzip(flate2::write::GzEncoder<File>),
    Zstd(zstd::stream::write::Encoder<'static, File>),
    Mgt(Box<mgt::Encoder<File>>),
}

impl Out {
    fn text(&mut self) -> &mut dyn Write {
        match self {
            Self::Plain(out) => out,
            Self::Gzip(out) => out,
            Self::Zstd(out) => out,
            Self::Mgt(_) => unreachable!("margay traces are written by records"),
        }
    }

    fn finish(self) -> io::Result<NamedTempFile> {
        let file = match self {
            Self::Plain(out) => out,
            Self::Gzip(out) => out.finish()?,
            Self::Zstd(out) => out.finish()?,
            Self::Mgt(out) => out.finish()?,
        };
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.as_file().sync_all()?;
        Ok(file)
    }
}

/// What MSR ticks are counted from; any will do, and this makes the file look like the others.
const MSR_START_TICKS: u64 = 128_166_372_000_000_000;

impl TraceWriter {
    /// Starts a trace; text is compressed if the name ends in `.zst` or `.gz`.
    pub fn create(path: &Path, format: Format) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        if !matches!(format, Format::Mgt | Format::Fio | Format::Msr | Format::Csv) {
            return Err(TraceError::NotWritable { path: name, format: format.name() });
        }
        let start = || -> io::Result<Out> {
            if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "not a regular file; a trace is put in place whole",
                ));
            }
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let file = BufWriter::new(crate::compress::temporary_in(folder)?);
            let extension = path.extension().and_then(|extension| extension.to_str());
            let mut out = match (format, extension) {
                (Format::Mgt, _) => Out::Mgt(Box::new(mgt::Encoder::new(file)?)),
                (_, Some("zst")) => Out::Zstd(zstd::stream::write::Encoder::new(file, 6)?),
                (_, Some("gz")) => Out::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::default())),
                _ => Out::Plain(file),
            };
            match format {
                Format::Fio => out.text().write_all(b"fio version 3 iolog\n")?,
                Format::Csv => out.text().write_all(b"time_us,op,device,offset_bytes,len_bytes\n")?,
                _ => {}
            }
            Ok(out)
        };
        let out = start().map_err(|error| TraceError::io(&name, error))?;
        Ok(Self { path: path.into(), format, out, last_us: 0, devices: BTreeSet::new() })
    }

    /// Appends a request. Formats without a word for it drop trims (msr) or flushes (msr, csv).
    pub fn write(&mut self, request: &Request) -> Result<(), TraceError> {
        self.put(request).map_err(|error| TraceError::io(&self.path.display().to_string(), error))
    }

    fn put(&mut self, request: &Request) -> io::Result<()> {
        let Request { kind, device, offset_bytes: offset, len_bytes: len, .. } = *request;
        self.last_us = self.last_us.max(request.time_us);
        if let Out::Mgt(out) = &mut self.out {
            return out.write(request);
        }
        let us = self.last_us;
        let is_new = self.devices.insert(device);
        let out = self.out.text();
        match (self.format, kind) {
            (Format::Fio, _) => {
                let (ms, name) = (us / 1000, format!("/dev/margay{device}"));
                if is_new {
                    write!(out, "{ms} {name} add\n{ms} {name} open\n")?;
                }
                match kind {
                    Kind::Flush => writeln!(out, "{ms} {name} sync 0 0"),
                    Kind::Read => writeln!(out, "{ms} {name} read {offset} {len}"),
                    Kind::Write => writeln!(out, "{ms} {name} write {offset} {len}"),
                    Kind::Trim => writeln!(out, "{ms} {name} trim {offset} {len}"),
                }
            }
            (Format::Msr, Kind::Read | Kind::Write) => {
                let word = if kind == Kind::Read { "Read" } else { "Write" };
                writeln!(out, "{},margay,{device},{word},{offset},{len},0", MSR_START_TICKS + us * 10)
            }
            (Format::Csv, Kind::Read) => writeln!(out, "{us},read,{device},{offset},{len}"),
            (Format::Csv, Kind::Write) => writeln!(out, "{us},write,{device},{offset},{len}"),
            (Format::Csv, Kind::Trim) => writeln!(out, "{us},trim,{device},{offset},{len}"),
            _ => Ok(()),
        }
    }

    /// Ends the trace and puts it in its place.
    pub fn finish(self) -> Result<(), TraceError> {
        let name = self.path.display().to_string();
        let file = self.out.finish().map_err(|error| TraceError::io(&name, error))?;
        file.persist(&self.path).map_err(|error| TraceError::io(&name, error.error))?;
        Ok(())
    }
}

/// Reads one trace and writes it in another format. Says what was read.
pub fn convert(from: &Path, options: &OpenOptions, to: &Path, format: Format) -> Result<Counts, TraceError> {
    let mut reader = open(from, options)?;
    let mut writer = TraceWriter::create(to, format)?;
    for request in reader.by_ref() {
        writer.write(&request?)?;
    }
    writer.finish()?;
    Ok(reader.counts().clone())
}
