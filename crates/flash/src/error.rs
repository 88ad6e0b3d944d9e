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
    /// The pages of a segment are programmed in ascending order, and this one is not next.
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
    /// Programming would have to turn a 0 bit into a 1, which only an erase can do (NOR).
    BitsSet {
        /// The page.
        ppn: Ppn,
        /// The first byte in the page with such a bit.
        offset_bytes: u32,
    },
    /// The device cannot read or program parts of pages, because it is not byte-programmable.
    Unsupported,
    /// The device has lost its power. Every operation fails until it is opened again.
    PowerLost,
    /// The file or driver below failed.
    Io {
        /// The operating system's error number, 0 if there is none.
        code: i32,
    },
    /// More bit errors than the ECC corrects.
    Uncorrectable {
        /// The page.
        ppn: Ppn,
    },
    /// The page was read without a bit error, but its checksum or its owner differs from what was programmed.
    Corrupt {
        /// The page.
        ppn: Ppn,
    },
    /// The page's data could not be read when the page was copied, so it is lost.
    Lost {
        /// The page.
        ppn: Ppn,
    },
    /// All numbers that the format has for programs and host writes are used up, 2^48 - 1 of each: the device can be
    /// read, and written only after it was formatted anew.
    NumbersSpent {
        /// The page that was to be programmed.
        ppn: Ppn,
    },
    /// A sync has failed, so that nothing is known of what was done since the one before, or many programs one after the
    /// other have. Nothing more is programmed, and no flush succeeds, until the device is opened anew.
    Stopped,
    /// No page is left to write down which pages were programmed, so that they are not durable.
    NoPlace,
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

impl FlashError {
    /// Whether the chip answered and the page cannot be read. Any other error of a read, such as [`Self::Io`], says
    /// nothing of the page: it may be read another time.
    pub const fn is_unreadable(&self) -> bool {
        matches!(self, Self::Uncorrectable { .. } | Self::Corrupt { .. } | Self::Lost { .. })
    }
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
            Self::NotErased { ppn } => {
                write!(f, "page {ppn} has been programmed already and its segment was not erased since")
            }
            Self::OutOfOrder { ppn, expected } => {
                write!(f, "page {ppn} cannot be programmed: the next page of its segment is page {expected}")
            }
            Self::BufferSize { len_bytes, page_bytes } => {
                write!(f, "buffer of {len_bytes} bytes where a page has {page_bytes}")
            }
            Self::BitsSet { ppn, offset_bytes } => {
                write!(f, "byte {offset_bytes} of page {ppn} cannot be programmed: a bit would have to become 1")
            }
            Self::Unsupported => f.write_str("the device cannot read or program parts of pages"),
            Self::PowerLost => f.write_str("the device has lost its power"),
            Self::Io { code } => {
                let what = match code {
                    5 => ": input/output error",
                    27 => ": the file is too large",
                    28 => ": no space left on its disk",
                    122 => ": the disk quota is used up",
                    _ => "",
                };
                write!(f, "the file or driver below the device failed{what} (os error {code})")
            }
            Self::Uncorrectable { ppn } => write!(f, "page {ppn} has more bit errors than the ECC corrects"),
            Self::Corrupt { ppn } => write!(f, "page {ppn} is not what was programmed: its checksum or owner is wrong"),
            Self::Lost { ppn } => write!(f, "the data of page {ppn} could not be read when it was moved, and is lost"),
            Self::NumbersSpent { ppn } => write!(
                f,
                "page {ppn} cannot be programmed: the device has used up its 2^48 - 1 sequence numbers; copy the data elsewhere and format it anew"
            ),
            Self::Stopped => f.write_str(
                "writing has stopped because a sync failed, or many programs in a row: what was written since the last flush that succeeded may be lost; look at the disk below the device, then open it again",
            ),
            Self::NoPlace => f.write_str("no page is left to write down which pages were programmed"),
            Self::ProgramFailed { ppn } => write!(f, "programming page {ppn} failed"),
            Self::EraseFailed { segment } => write!(f, "erasing segment {segment} failed"),
        }
    }
}

impl core::error::Error for FlashError {}
