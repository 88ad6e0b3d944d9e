use super::{Reference, VmHeader};
use crate::TraceError;
use margay_host::{Existing, NewFile};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes a VMT1 trace, compressed if its name ends in `.zst`. The file gets its name by [`VmWriter::finish`].
pub struct VmWriter {
    path: PathBuf,
    out: Out,
    previous: u64,
    records: u64,
}

impl std::fmt::Debug for VmWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VmWriter").field("path", &self.path).field("records", &self.records).finish_non_exhaustive()
    }
}

type File = BufWriter<NewFile>;

enum Out {
    Plain(File),
    Zstd(zstd::stream::write::Encoder<'static, File>),
}

const ZSTD_LEVEL: i32 = 12;

pub(super) fn zigzag(difference: i64) -> u64 {
    (difference << 1 ^ difference >> 63) as u64
}

impl VmWriter {
    /// Starts a trace in a new file. It is an error if the file exists.
    pub fn create(path: &Path, header: VmHeader) -> Result<Self, TraceError> {
        Self::create_with(path, header, Existing::Refuse)
    }

    /// As [`VmWriter::create`]; `existing` says what is done if the file exists.
    pub fn create_with(path: &Path, header: VmHeader, existing: Existing) -> Result<Self, TraceError> {
        let failed = |error| TraceError::io(&path.display().to_string(), error);
        let file = BufWriter::new(NewFile::create(path, existing).map_err(failed)?);
        let mut out = if path.extension().is_some_and(|extension| extension == "zst") {
            Out::Zstd(zstd::stream::write::Encoder::new(file, ZSTD_LEVEL).map_err(failed)?)
        } else {
            Out::Plain(file)
        };
        out.put(&header.encode()).map_err(failed)?;
        Ok(Self { path: path.into(), out, previous: 0, records: 0 })
    }

    /// Appends a record. Page numbers must be below 2^61, so that their differences fit the format.
    pub fn write(&mut self, reference: Reference) -> Result<(), TraceError> {
        let difference = reference.page.wrapping_sub(self.previous) as i64;
        let mut value = zigzag(difference) << 1 | u64::from(reference.write);
        let mut bytes = [0; 10];
        let mut len = 0;
        loop {
            bytes[len] = value as u8 & 0x7F | if value > 0x7F { 0x80 } else { 0 };
            value >>= 7;
            len += 1;
            if value == 0 {
                break;
            }
        }
        self.previous = reference.page;
        self.records += 1;
        self.out.put(&bytes[..len]).map_err(|error| TraceError::io(&self.path.display().to_string(), error))
    }

    /// Records written so far.
    pub const fn records(&self) -> u64 {
        self.records
    }

    /// Completes the trace, makes it durable and gives it its name.
    pub fn finish(self) -> Result<(), TraceError> {
        let failed = |error| TraceError::io(&self.path.display().to_string(), error);
        self.out.finish().and_then(NewFile::commit).map_err(failed)
    }

    /// As [`VmWriter::finish`], with another name in the same folder: for a trace that is not what was asked for.
    pub fn finish_as(self, path: &Path) -> Result<(), TraceError> {
        let failed = |error| TraceError::io(&path.display().to_string(), error);
        self.out.finish().and_then(|file| file.commit_as(path)).map_err(failed)
    }
}

impl Out {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.write_all(bytes),
            Self::Zstd(out) => out.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<NewFile> {
        let file = match self {
            Self::Plain(out) => out,
            Self::Zstd(out) => out.finish()?,
        };
        file.into_inner().map_err(io::IntoInnerError::into_error)
    }
}
