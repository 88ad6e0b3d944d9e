use crate::ConfigError;
use core::fmt;
use margay_flash::{FlashError, Ppn, SegmentId};

/// Why the log could not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogError {
    /// The configuration cannot work on the device.
    Config(ConfigError),
    /// The device failed.
    Flash(FlashError),
    /// No free segment, and none can be had by cleaning.
    NoSpace {
        /// Valid pages on the device.
        valid_pages: u64,
        /// Data pages of the device.
        data_pages: u64,
    },
    /// The map names other pages of a segment than are there: it is damaged. Nothing more is written, since what is moved or
    /// erased might be what it should name.
    MapDamaged {
        /// The segment.
        segment: SegmentId,
        /// Pages of it that the map names.
        named: u32,
        /// Those of them that are there.
        found: u32,
    },
    /// The tag of a page that is to be moved cannot be read, and so not whose page it is; see [`crate::Log::name_owner`].
    OwnerUnknown {
        /// The page.
        ppn: Ppn,
    },
}

impl From<ConfigError> for LogError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<FlashError> for LogError {
    fn from(error: FlashError) -> Self {
        Self::Flash(error)
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Flash(error) => error.fmt(f),
            Self::NoSpace { valid_pages, data_pages } => {
                write!(f, "no free segment can be had by cleaning: {valid_pages} of {data_pages} pages are valid")
            }
            Self::MapDamaged { segment, named, found } => write!(
                f,
                "the map is damaged: it names {named} pages of segment {segment}, and {found} of them are there; nothing more is written; `margay check --repair COPY` makes a disk of what can be read"
            ),
            Self::OwnerUnknown { ppn } => {
                write!(f, "the tag of page {ppn}, which is to be moved, cannot be read; try again")
            }
        }
    }
}

impl core::error::Error for LogError {}
