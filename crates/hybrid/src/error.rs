use alloc::string::String;
use core::fmt;
use margay_flash::{FlashError, Lpn};

/// Why the store could not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HybridError {
    /// The device has too few segments.
    TooSmall {
        /// Segments that would be needed.
        needed_segments: u64,
        /// Segments there are.
        segments: u32,
    },
    /// There cannot be so few log blocks.
    TooFewLogBlocks {
        /// Asked for.
        log_blocks: u32,
        /// The least.
        min_log_blocks: u32,
    },
    /// A mapping that is not known.
    UnknownMapping {
        /// What was written.
        text: String,
    },
    /// The page lies past the end.
    OutOfRange {
        /// The page.
        lpn: Lpn,
        /// Pages exported.
        logical_pages: u32,
    },
    /// The host wanted a page of a disk dropped from flash, where it may be the only copy that survives.
    WouldLose {
        /// The page.
        lpn: Lpn,
    },
    /// The last write of a page of a swap store has failed, and the copy before it had been given up for it. The page has
    /// to be written again.
    NotWritten {
        /// The page.
        lpn: Lpn,
    },
    /// Too many segments went bad: none is left to merge into.
    WornOut {
        /// Segments that are retired, those that earlier mounts have retired included.
        retired_segments: u32,
    },
    /// The device failed.
    Flash(FlashError),
}

impl From<FlashError> for HybridError {
    fn from(error: FlashError) -> Self {
        Self::Flash(error)
    }
}

impl fmt::Display for HybridError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall { needed_segments, segments } => write!(
                f,
                "the device is too small: it has {segments} segments, {needed_segments} are needed; export less, or use fewer log blocks"
            ),
            Self::TooFewLogBlocks { log_blocks, min_log_blocks } => {
                write!(f, "{log_blocks} log blocks: there must be at least {min_log_blocks}")
            }
            Self::UnknownMapping { text } => write!(
                f,
                "unknown mapping '{text}'; there are bast and fast, the latter with sequential=yes|no and open=yes|no"
            ),
            Self::OutOfRange { lpn, logical_pages } => {
                write!(f, "page {lpn} is past the end: {logical_pages} pages are exported")
            }
            Self::WouldLose { lpn } => write!(f, "page {lpn} of a disk cannot be dropped from flash"),
            Self::NotWritten { lpn } => {
                write!(f, "page {lpn} is not on flash: its last write has failed; write it again")
            }
            Self::WornOut { retired_segments } => write!(
                f,
                "no segment is left to merge into: {retired_segments} are retired because programs or erases of them have failed"
            ),
            Self::Flash(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for HybridError {}
