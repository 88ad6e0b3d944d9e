use super::{Reference, VmHeader};
use crate::{TraceError, leb128};
use margay_host::{Existing, NewFile};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes a VMT1 trace, compressed if its name ends in `.zst`. The file gets its name by [`VmWriter::finish`].
pub struct VmWriter {
    path: PathBuf,
    out: Out,
    previous: u64,
    records: u64,
    /// The record being made, kept for its memory.
    record: Vec<u8>,
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

/// One more than the greatest page number: differences fit the format.
const MAX_PAGES: u64 = 1 << 61;

impl VmWriter {
    /// Starts a trace in a new file. It is an error if the file exists.
    pub fn create(path: &Path, header: VmHeader) -> Result<Self, TraceError> {
        Self::create_with(path, header, Existing::Refuse)
    }

    /// As [`VmWriter::create`]; `existing` says what is done if the file exists.
    pub fn create_with(path: &Path, header: VmHeader, existing: Existing) -> Result<Self, TraceError> {
        let failed = |error| TraceError::write(path, error);
        let file = BufWriter::new(NewFile::create(path, existing).map_err(failed)?);
        let mut out = if path.extension().is_some_and(|extension| extension == "zst") {
            Out::Zstd(zstd::stream::write::Encoder::new(file, ZSTD_LEVEL).map_err(failed)?)
        } else {
            Out::Plain(file)
        };
        out.put(&header.encode()).map_err(failed)?;
        Ok(Self { path: path.into(), out, previous: 0, records: 0, record: Vec::new() })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// The page number is 2^61 or more, which the format has no room for; the file cannot be written.
    pub fn write(&mut self, reference: Reference) -> Result<(), TraceError> {
        let path = &self.path;
        let failed = |error| TraceError::write(path, error);
        if reference.page >= MAX_PAGES {
            let why = format!("page {:x} of record {} is not below 2^61", reference.page, self.records + 1);
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let difference = reference.page.wrapping_sub(self.previous) as i64;
        self.record.clear();
        leb128::put(&mut self.record, leb128::zigzag(difference) << 1 | u64::from(reference.write));
        self.out.put(&self.record).map_err(failed)?;
        self.previous = reference.page;
        self.records += 1;
        Ok(())
    }

    /// Records written so far.
    pub const fn records(&self) -> u64 {
        self.records
    }

    /// Completes the trace, makes it durable and gives it its name.
    pub fn finish(self) -> Result<(), TraceError> {
        let failed = |error| TraceError::write(&self.path, error);
        self.out.finish().and_then(NewFile::commit).map_err(failed)
    }

    /// As [`VmWriter::finish`], with another name in the same folder: for a trace that is not what was asked for.
    pub fn finish_as(self, path: &Path) -> Result<(), TraceError> {
        let failed = |error| TraceError::write(path, error);
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
