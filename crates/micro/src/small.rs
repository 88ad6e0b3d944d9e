//! How a small disk, or a small file system, uses its device: the choices that a host makes by name.

use alloc::boxed::Box;
use margay_flash::Geometry;
use margay_format::{ClientKind, FindError, Layout, LayoutError, OwnPages, Superblock, SuperblockError};
use margay_ftl::{FtlError, MountError};
use margay_log::{Config, LogError, Policies};
use margay_policy::placement::{Sequential, WithPages};
use margay_policy::selection::Greedy;
use margay_policy::{LevelingSpec, Sizing};

/// Maximum of pages programmed for one page that is written, cleaning included.
const MAX_PAGES_PER_WRITE: u32 = 8;
/// Segments that are kept free.
const LOW_WATER: u32 = 2;

/// Why a small disk could not be formatted, mounted or used.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// There is no superblock that can be used. [`SuperblockError::NotMargay`] and [`SuperblockError::Damaged`]: nothing on the
    /// device can be mounted; any other: somebody else can mount it, so formatting it would destroy what is on it.
    #[error("{0}")]
    NotFormatted(SuperblockError),
    /// The superblock cannot be written.
    #[error("{0}")]
    Superblock(#[from] SuperblockError),
    /// The device's shape cannot be used.
    #[error("{0}")]
    Layout(#[from] LayoutError),
    /// It holds something else than a disk, or a disk with its map on flash.
    #[error(
        "the device holds a file system, a paging store, or a disk that was formatted with its map on flash: open it as what it is, or format it"
    )]
    NotADisk,
    /// A later version formatted it, and this one can only read it.
    #[error("a later version of margay formatted the disk: this one can only read it")]
    ReadOnly,
    /// More pages are to be exported than the device can hold, or none.
    #[error("a disk of {exported_pages} pages: this device can export 1 to {max_pages}")]
    Size {
        /// Pages asked for.
        exported_pages: u32,
        /// The maximum.
        max_pages: u32,
    },
    /// It could not be mounted.
    #[error("{0}")]
    Mount(#[from] MountError),
    /// The disk refused or failed.
    #[error("{0}")]
    Disk(#[from] FtlError),
    /// Bytes past the end were asked for.
    #[error("bytes {offset} to {end} are past the end of the disk ({capacity_bytes} bytes)")]
    PastEnd {
        /// The first byte asked for.
        offset: u64,
        /// The byte behind the last.
        end: u64,
        /// Bytes of the disk.
        capacity_bytes: u64,
    },
}

impl From<FindError> for DiskError {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Superblock(error) => Self::NotFormatted(error),
            // It may be formatted, and be found the next time.
            FindError::Flash(error) => Self::Disk(LogError::from(error).into()),
        }
    }
}

/// How the log uses a device in this layout: cleaning spread over the writes, one stream, no leveling of its own.
pub fn config(layout: &Layout) -> Config {
    Config {
        header_pages: layout.header_pages,
        summary_pages: layout.summary_pages,
        reserved_segments: layout.reserved_segments,
        lent_segments: layout.lent_segments,
        max_pages_per_write: MAX_PAGES_PER_WRITE,
        low_water: LOW_WATER,
        high_water: LOW_WATER,
        read_only_stream: false,
        own_stream: false,
        owners_on_flash: false,
        leveling: LevelingSpec::default(),
    }
}

/// What is on flash of the choices above. `uuid` tells this device from others, and `client` says what is on it.
pub fn superblock(geometry: &Geometry, client: ClientKind, exported_pages: u32, uuid: [u8; 16]) -> Superblock {
    Superblock {
        uuid,
        low_water: LOW_WATER,
        high_water: LOW_WATER,
        max_pages_per_write: MAX_PAGES_PER_WRITE,
        selection: "greedy".into(),
        placement: "m1".into(),
        leveling: "none".into(),
        ..Superblock::new(*geometry, client, exported_pages)
    }
}

/// Greedy cleaning and one stream, named in code, so that no other policies are linked.
pub fn policies(superblock: &Superblock, config: &Config) -> Policies {
    let sizing = Sizing {
        segments: superblock.geometry.segments(),
        data_pages: config.data_pages(&superblock.geometry),
        exported_pages: superblock.exported_pages,
        seed: 1,
    };
    Policies { selection: Box::new(Greedy::new(sizing)), placement: WithPages::boxed(Sequential) }
}

/// The maximum of pages that a device of this shape can export.
///
/// # Errors
/// [`DiskError::Layout`] if it cannot be used at all, [`DiskError::Disk`] if it has too few segments.
pub fn max_pages(geometry: &Geometry) -> Result<u32, DiskError> {
    let layout = Layout::new(geometry, u64::from(geometry.pages()))?;
    // A host that serves the image has a stream more, for data that is only read.
    let limit = config(&layout).limit_pages(geometry, 2).map_err(FtlError::from)?;
    let own = OwnPages::new(limit, geometry.page_bytes());
    Ok(limit.saturating_sub(own.owners() - limit))
}
