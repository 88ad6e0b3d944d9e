use core::fmt;
use margay_flash::Lpn;
use margay_log::{ConfigError, LogError};

/// Why the disk could not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FtlError {
    /// The page lies past the exported capacity.
    OutOfRange {
        /// The page asked for.
        lpn: Lpn,
        /// Pages exported.
        exported_pages: u32,
    },
    /// So many segments were retired that nothing can be written; what is there can be read.
    WornOut {
        /// Segments retired.
        retired_segments: u32,
    },
    /// The log or its device failed.
    Log(LogError),
}

impl From<LogError> for FtlError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl From<ConfigError> for FtlError {
    fn from(error: ConfigError) -> Self {
        Self::Log(LogError::Config(error))
    }
}

impl fmt::Display for FtlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { lpn, exported_pages } => {
                write!(f, "logical page {lpn} is past the exported capacity ({exported_pages} pages)")
            }
            Self::WornOut { retired_segments } => write!(
                f,
                "the device is worn out: {retired_segments} segments are retired and there is no room left to write; it can be read"
            ),
            Self::Log(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for FtlError {}
