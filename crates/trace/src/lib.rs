//! Block traces: readers for the formats in use, writers for some, and what a trace holds. Traces of page
//! references are in [`vm`].
//!
//! Readers stream, take plain, gzip, zstd and xz files, detect the format or are told it, and treat a bad line
//! as an error that names file and line. Times are relative to the first request, in microseconds; addresses
//! and lengths are in bytes.

mod compress;
mod detect;
mod error;
mod format;
mod formats;
mod info;
mod layout;
mod number;
mod reader;
pub mod vm;
mod writer;

pub use compress::{Compression, hash_file};
pub use error::TraceError;
pub use format::Format;
pub use info::{DeviceInfo, SizeInfo, TraceInfo, info};
pub use layout::{Column, CsvLayout, TimeUnit};
pub use reader::{BadLines, Counts, OpenOptions, TraceReader, open};
pub use writer::{TraceWriter, convert};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Says that bytes are dead.
    Trim,
    /// Asks that all earlier writes be durable.
    Flush,
}

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Request {
    /// Time since the first request, in microseconds; never goes back.
    pub time_us: u64,
    /// What it does.
    pub kind: Kind,
    /// Number of the device it goes to.
    pub device: u32,
    /// First byte.
    pub offset_bytes: u64,
    /// Bytes; 0 for a flush.
    pub len_bytes: u64,
}
