//! Every byte that margay writes to flash. FORMAT.md is its text; golden images tie the two.
//!
//! [`Store`] is what the log engine writes pages through: [`Plain`] keeps no information on pages (measurement),
//! [`Formatted`] keeps it where the device has room, so that a device can be mounted again.
#![no_std]
extern crate alloc;

mod anchor;
mod bytes;
mod checkpoint;
mod crc;
mod formatted;
mod layout;
mod paired;
mod scan;
mod store;
mod superblock;
mod tag;

pub use anchor::{Anchor, CheckpointAt, FindError, Record, find_superblock};
pub use bytes::U48_MAX;
pub use crc::crc32c;
pub use formatted::Formatted;
pub use layout::{Layout, LayoutError, Place, TAG_BYTES, VERSION};
pub use paired::shown_geometry;
pub use scan::{FoundPage, FoundSegment};
pub use store::{Copied, Plain, Store};
pub use superblock::{ClientKind, SUPERBLOCK_BYTES, Superblock, SuperblockError};
pub use tag::{Decoded, Earlier, Kind, PageInfo, SegmentInfo, Tag};
