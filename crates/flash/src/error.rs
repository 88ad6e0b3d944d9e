use crate::{Ppn, SegmentId};
use core::fmt;

/// Why a device refused or failed an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashError {
    /// The page lies past the end of the device.
    PageOutOfRange {
        /// The page asked for.
        ppn: Ppn,
        /// Number of pages of the device.
        pages: u32,
    },
    /// The segment lies past the end of the device.
    SegmentOutOfRange {
        /// The segment asked for.
        segment: SegmentId,
        /// Number of segments of the device.
        segments: u32,
    },
    /// The page was programmed since its segment was last erased.
    NotErased {
        /// The page.
        ppn: Ppn,
    },
    /// Pages of the segment before this one have not been programmed.
    OutOfOrder {
        /// The page asked for.
        ppn: Ppn,
        /// The page that is next in its segment.
        expected: Ppn,
    },
    /// The buffer is not one page long.
    BufferSize {
        /// Its length in bytes.
        len_bytes: u64,
        /// The length of a page in bytes.
        page_bytes: u32,
    },
    /// More bit errors than the ECC corrects.
    Uncorrectable {
        /// The page.
        ppn: Ppn,
    },
    /// The chip reported a failed program; the segment has to be retired.
    ProgramFailed {
        /// The page.
        ppn: Ppn,
    },
    /// The chip reported a failed erase; the segment has to be retired.
    EraseFailed {
        /// The segment.
        segment: SegmentId,
    },
}

impl fmt::Display for FlashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PageOutOfRange { ppn, pages } => {
                write!(f, "page {ppn} is past the end of the device ({pages} pages)")
            }
            Self::SegmentOutOfRange { segment, segments } => {
                write!(f, "segment {segment} is past the end of the device ({segments} segments)")
            }
            Self::NotErased { ppn } => write!(f, "page {ppn} is programmed already and its segment was not erased"),
            Self::OutOfOrder { ppn, expected } => {
                write!(f, "page {ppn} cannot be programmed before page {expected} of its segment")
            }
            Self::BufferSize { len_bytes, page_bytes } => {
                write!(f, "buffer of {len_bytes} bytes where a page has {page_bytes}")
            }
            Self::Uncorrectable { ppn } => write!(f, "page {ppn} has more bit errors than the ECC corrects"),
            Self::ProgramFailed { ppn } => write!(f, "programming page {ppn} failed"),
            Self::EraseFailed { segment } => write!(f, "erasing segment {segment} failed"),
        }
    }
}

impl core::error::Error for FlashError {}
