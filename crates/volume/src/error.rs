use margay_flash::FlashError;
use margay_format::{FindError, LayoutError, SuperblockError};
use margay_fs::{FsError, FsMountError};
use margay_ftl::{FtlError, MountError};
use margay_log::{ConfigError, LogError, ScanError};
use margay_policy::SpecError;

/// Why a volume could not be formatted, opened or used.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// There is no superblock that can be used.
    #[error("{0}")]
    NotFormatted(#[from] FindError),
    /// The superblock cannot be written.
    #[error("{0}")]
    Superblock(#[from] SuperblockError),
    /// The device's shape cannot be used.
    #[error("{0}")]
    Layout(#[from] LayoutError),
    /// It holds something else than a disk.
    #[error(
        "it holds a file system (use margay mount, or margay fs) or a paging store (used by margay vm run), not a disk"
    )]
    NotADisk,
    /// A policy is not known.
    #[error("{0}")]
    Policy(#[from] SpecError),
    /// The placement cannot be used, because it has to know the future.
    #[error(
        "the placement '{placement}' is an oracle: it has to know when each page will be written again, which only the laboratory can tell it (margay replay, compare and sweep); choose another one (margay policies placement)"
    )]
    Oracle {
        /// The placement.
        placement: alloc::string::String,
    },
    /// The placement keeps something in memory for each page, which a disk whose map is on flash cannot have.
    #[error(
        "the placement '{placement}' keeps something in memory for each page of the flash, which a disk with its map on flash has no memory for: choose one that does not, such as m1, sepgc or dac"
    )]
    PlacementKeepsPages {
        /// The placement.
        placement: alloc::string::String,
    },
    /// The memory for the map is too small.
    #[error(
        "the map of this disk cannot do with {memory_bytes} bytes of memory: it needs at least {min_bytes} (for each translation page its place and one change, and three pages)"
    )]
    MapMemory {
        /// What it was to have.
        memory_bytes: u64,
        /// What it needs.
        min_bytes: u64,
    },
    /// It could not be mounted.
    #[error("{0}")]
    Mount(#[from] MountError),
    /// The disk refused or failed.
    #[error("{0}")]
    Ftl(#[from] FtlError),
    /// The device is too small for the policies.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The file system cannot be found or mounted.
    #[error("{0}")]
    FilesMount(#[from] FsMountError),
    /// The file system refused or failed.
    #[error("{0}")]
    Files(#[from] FsError),
    /// The device failed.
    #[error("{0}")]
    Flash(#[from] FlashError),
    /// Bytes past the end were asked for.
    #[error("bytes {offset} to {end} are past the end of the disk ({capacity_bytes} bytes)")]
    PastEnd {
        /// The first byte asked for.
        offset: u64,
        /// The byte behind the last.
        end: u64,
        /// Capacity of the disk.
        capacity_bytes: u64,
    },
    /// A range of data that is hardly ever written does not lie on the disk.
    #[error("the read-only range of bytes {start} to {end} does not lie on the disk, which has {capacity_bytes} bytes")]
    RangePastEnd {
        /// Its first byte.
        start: u64,
        /// The byte behind its last.
        end: u64,
        /// Capacity of the disk.
        capacity_bytes: u64,
    },
    /// It was opened for reading, or is worn out.
    #[error(
        "it is open for reading only, as was asked for, or because too much of the flash has failed to write it safely"
    )]
    ReadOnly,
    /// Segments that are bad leave no room for what is to be exported.
    #[error(
        "{bad} segments are marked bad or cannot be erased, and what is left has no room for {exported_bytes} bytes: export {limit_bytes} bytes or less, as with --export {percent}%; fewer still leave room for segments that will fail later"
    )]
    TooManyBad {
        /// Segments that cannot be used.
        bad: u32,
        /// Bytes asked for.
        exported_bytes: u64,
        /// Maximum of bytes that can be exported.
        limit_bytes: u64,
        /// That, of the device's bytes, rounded down.
        percent: f64,
    },
    /// More is to be exported than the device can hold.
    #[error(
        "{exported_bytes} bytes cannot be exported: the device holds {raw_bytes} bytes, of which at most {limit_bytes} can be ({percent:.1} %)"
    )]
    TooLarge {
        /// Bytes asked for.
        exported_bytes: u64,
        /// Bytes of the device.
        raw_bytes: u64,
        /// The most that can be exported.
        limit_bytes: u64,
        /// That, of the device's bytes.
        percent: f64,
    },
}

impl VolumeError {
    /// Whether there is no room left to write.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Ftl(FtlError::Log(LogError::NoSpace { .. })))
    }

    /// Whether the disk can only be read.
    pub fn is_read_only(&self) -> bool {
        matches!(self, Self::ReadOnly | Self::Ftl(FtlError::WornOut { .. }))
    }

    /// The error of the device below, if that is what it is.
    pub fn of_device(&self) -> Option<FlashError> {
        let of_log = |error: &LogError| match error {
            LogError::Flash(error) => Some(*error),
            LogError::Config(_)
            | LogError::NoSpace { .. }
            | LogError::MapDamaged { .. }
            | LogError::OwnerUnknown { .. } => None,
        };
        match self {
            Self::Flash(error) | Self::NotFormatted(FindError::Flash(error)) => Some(*error),
            Self::FilesMount(FsMountError::Find(FindError::Flash(error))) => Some(*error),
            Self::FilesMount(FsMountError::Scan(ScanError::Flash(error))) => Some(*error),
            Self::Mount(MountError::Scan(ScanError::Flash(error))) => Some(*error),
            Self::Ftl(FtlError::Log(error)) | Self::Mount(MountError::Ftl(FtlError::Log(error))) => of_log(error),
            Self::Files(FsError::Log(error)) | Self::FilesMount(FsMountError::Fs(FsError::Log(error))) => of_log(error),
            _ => None,
        }
    }
}
