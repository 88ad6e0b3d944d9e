//! Traces of page references: what a program reads and writes in memory.
//!
//! The formats are a table ([`VmFormat::ALL`]): VMT1 (compact, below) and the text of `valgrind --tool=lackey
//! --trace-mem=yes`. [`capture()`] runs a program and writes VMT1.
//!
//! VMT1, little endian, mostly compressed with zstd: a header of 16 bytes ("VMT1", page shift, flags with bit 0 for
//! instruction fetches, the reduction's window as u16, 8 zeros), then for each record the unsigned LEB128 number
//! `zigzag(page - previous page) << 1 | write`; the first previous page is 0.

mod capture;
mod format;
mod info;
mod lackey;
mod reader;
mod reduce;
mod references;
mod vmt;
mod writer;

pub use capture::{CaptureOptions, Captured, Progress, capture};
pub use format::VmFormat;
pub use info::{VmInfo, info};
pub use reader::VmReader;
pub use reduce::Reducer;
pub use references::{LoadOptions, MAX_PAGES, PageMap, References};
pub use writer::VmWriter;

/// Bytes of a VMT1 header.
const HEADER_BYTES: usize = 16;
const MAGIC: &[u8; 4] = b"VMT1";
/// Records that the reduction looks back by default.
const WINDOW: u16 = 64;

/// How a trace of page references was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct VmHeader {
    /// Binary logarithm of the bytes in a page.
    pub page_shift: u8,
    /// Whether instruction fetches are among the reads.
    pub fetches: bool,
    /// Records that the reduction looked back: an access is left out if its page is among them, and, if it is a write,
    /// a write. 0 for no reduction.
    pub window: u16,
}

impl VmHeader {
    /// Pages of 2 KiB with instruction fetches, reduced over 64 records.
    pub const DEFAULT: Self = Self { page_shift: 11, fetches: true, window: WINDOW };

    fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        (bytes[4], bytes[5]) = (self.page_shift, u8::from(self.fetches));
        bytes[6..8].copy_from_slice(&self.window.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEADER_BYTES).filter(|bytes| bytes.starts_with(MAGIC))?;
        let window = u16::from_le_bytes([bytes[6], bytes[7]]);
        Some(Self { page_shift: bytes[4], fetches: bytes[5] & 1 != 0, window })
    }
}

/// A read or a write of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The page's number in the address space of the program.
    pub page: u64,
    /// Whether it is written.
    pub write: bool,
}
