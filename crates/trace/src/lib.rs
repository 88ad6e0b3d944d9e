//! Block traces: readers for the formats in use, writers for some, and statistics of a trace. Traces of page
//! references are in [`vm`].
//!
//! Readers stream, decompress gzip, zstd and xz files, and detect the format unless it is named. A bad line is an
//! error that names file and line. Times are relative to the first request, in microseconds; addresses and lengths are
//! in bytes.
//!
//! All that is known of a format is one row of a table, in a file of its own under `formats/`: its name and layout, how
//! it is detected, read and written, and an example, on which the tests of every format run.

mod ahead;
mod compress;
mod detect;
mod devices;
mod error;
mod format;
mod formats;
mod hash;
mod held;
mod info;
mod layout;
pub mod leb128;
mod lines;
mod pages;
mod reader;
mod recording;
mod records;
mod split;
mod text;
pub mod vm;
mod writer;

pub use compress::{Compression, hash_file};
pub use error::TraceError;
pub use format::{Example, Format, Writer};
pub use info::{DeviceInfo, SizeInfo, TraceInfo, info};
pub use layout::{Column, CsvLayout, TimeUnit};
pub use lines::MAX_LINE_BYTES;
pub use margay_host::Existing;
pub use pages::PageTable;
pub use reader::{AnyTrace, BadLines, Counts, ReadOptions, TraceReader, open, open_any, open_while};
pub use recording::{Event, Recorded, RecordingReader, RecordingWriter, Shape, Totals};
pub use split::{DevicePart, split, split_while};
pub use writer::{TraceWriter, convert};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IoKind {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Says that bytes are no longer needed.
    Trim,
    /// Makes all earlier writes durable.
    Flush,
}

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Request {
    /// Time since the first request, in microseconds; never goes back.
    pub time_us: u64,
    /// What it does.
    pub kind: IoKind,
    /// Number of the device it goes to.
    pub device: u32,
    /// First byte.
    pub offset_bytes: u64,
    /// Bytes; 0 for a flush.
    pub len_bytes: u64,
    /// The stream that the host wrote it to, if the trace names one.
    pub stream: Option<u8>,
}
