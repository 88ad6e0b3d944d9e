//! The table of formats of page references: one [`VmFormatRow`] each.

use super::{Reference, VmHeader, lackey, vmt};
use crate::Example;
use crate::format::Stream;
use std::fmt;
use std::io;

/// Everything that margay knows of a format of page references. A row without a reader does not compile.
pub(super) struct VmFormatRow {
    /// Name in results.
    pub name: &'static str,
    /// Layout of a record, with units.
    pub summary: &'static str,
    /// Where it is specified.
    pub source: &'static str,
    /// Whether a file that starts with these bytes is of the format. At most one row may say so.
    pub detect: fn(head: &[u8]) -> bool,
    /// Starts reading. The header is what the text of a tracer is reduced to; a format that states it itself ignores
    /// the given one. The inner error says what is wrong with the file's header.
    pub open: fn(Stream, VmHeader) -> io::Result<Result<Opened, String>>,
    /// Whether [`VmWriter`](super::VmWriter) writes it.
    pub is_written: bool,
    /// A small file of it; the requests are its records.
    pub example: Example,
}

/// The header of a trace and its records.
pub(super) type Opened = (VmHeader, Box<dyn ReferenceReader>);

/// Reads the records of a format.
pub(super) trait ReferenceReader: Send {
    /// The next record, or `None` at the end. The outer error is the stream's, the inner one says what is wrong with
    /// the record.
    fn next(&mut self) -> io::Result<Option<Result<Reference, String>>>;

    /// The number, from 1, of the line or record that was read last, and its text if it has one.
    fn place(&self) -> (u64, &[u8]);
}

/// A format of page references: a row of the table.
#[derive(Clone, Copy)]
pub struct VmFormat(pub(super) &'static VmFormatRow);

impl VmFormat {
    /// All formats, in the order in which they are listed.
    pub const ALL: &'static [Self] = &[Self(&vmt::ROW), Self(&lackey::ROW)];

    /// The name in results.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// The layout of a record, with units.
    pub const fn summary(self) -> &'static str {
        self.0.summary
    }

    /// Where the format is specified.
    pub const fn source(self) -> &'static str {
        self.0.source
    }

    /// Whether [`VmWriter`](super::VmWriter) writes the format.
    pub const fn is_written(self) -> bool {
        self.0.is_written
    }

    /// A small file of the format; its requests are records.
    pub const fn example(self) -> Example {
        self.0.example
    }

    /// The format of a file that starts with these bytes.
    pub(crate) fn detect(head: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| (format.0.detect)(head))
    }
}

impl PartialEq for VmFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for VmFormat {}

impl fmt::Debug for VmFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VmFormat").field(&self.name()).finish()
    }
}
