use crate::ConfigError;
use core::fmt;
use margay_flash::{FlashError, Ppn};

/// Why the log could not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogError {
    /// The configuration cannot work on the device.
    Config(ConfigError),
    /// The device failed.
    Flash(FlashError),
    /// No free segment, and none can be had by cleaning.
    NoSpace {
        /// Valid pages on the device; 0, as `data_pages`, if only the device has no place for pages of its own.
        valid_pages: u64,
        /// Data pages of the device.
        data_pages: u64,
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
        match error {
            FlashError::NoPlace => Self::NoSpace { valid_pages: 0, data_pages: 0 },
            error => Self::Flash(error),
        }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Flash(error) => error.fmt(f),
            Self::NoSpace { data_pages: 0, .. } => FlashError::NoPlace.fmt(f),
            Self::NoSpace { valid_pages, data_pages } => {
                write!(f, "no free segment can be had by cleaning: {valid_pages} of {data_pages} pages are valid")
            }
            Self::OwnerUnknown { ppn } => {
                write!(f, "the tag of page {ppn}, which is to be moved, cannot be read; try again")
            }
        }
    }
}

impl core::error::Error for LogError {}
