use core::fmt;
use margay_log::LogError;

/// Why a file operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsError {
    /// There is no such object or name.
    NotFound,
    /// The name is taken.
    Exists,
    /// A directory is needed.
    NotADirectory,
    /// The object is a directory.
    IsADirectory,
    /// The directory is not empty.
    NotEmpty,
    /// There is no room for more data.
    NoSpace,
    /// The name, or what a link points to, is too long.
    NameTooLong,
    /// The file cannot be that large.
    FileTooLarge,
    /// The limit on objects or links is reached.
    TooMany,
    /// The file system is mounted for reading only.
    ReadOnly,
    /// The arguments contradict each other, such as moving a directory into itself.
    Invalid,
    /// The operation is not possible with this kind of object.
    NotPermitted,
    /// There is no extended attribute of that name.
    NoAttribute,
    /// The extended attributes do not fit.
    AttributeTooLarge,
    /// The log or the device failed.
    Log(LogError),
}

impl FsError {
    /// The number of the error on Linux.
    pub const fn errno(&self) -> i32 {
        match self {
            Self::NotFound => 2,
            Self::Log(LogError::NoSpace { .. }) | Self::NoSpace | Self::AttributeTooLarge => 28,
            Self::Log(_) => 5,
            Self::Exists => 17,
            Self::NotADirectory => 20,
            Self::IsADirectory => 21,
            Self::Invalid => 22,
            Self::FileTooLarge => 27,
            Self::ReadOnly => 30,
            Self::TooMany => 31,
            Self::NameTooLong => 36,
            Self::NotEmpty => 39,
            Self::NoAttribute => 61,
            Self::NotPermitted => 1,
        }
    }
}

impl From<LogError> for FsError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "no such file or directory",
            Self::Exists => "the name exists already",
            Self::NotADirectory => "not a directory",
            Self::IsADirectory => "is a directory",
            Self::NotEmpty => "the directory is not empty",
            Self::NoSpace => "no space left on the device",
            Self::NameTooLong => "name too long",
            Self::FileTooLarge => "file too large",
            Self::TooMany => "too many objects or links",
            Self::ReadOnly => "mounted for reading only",
            Self::Invalid => "invalid argument",
            Self::NotPermitted => "not possible with this kind of object",
            Self::NoAttribute => "no such extended attribute",
            Self::AttributeTooLarge => "no room for the extended attributes in the object's header",
            Self::Log(error) => return error.fmt(f),
        })
    }
}

impl core::error::Error for FsError {}
