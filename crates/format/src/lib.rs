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
mod disk;
mod durable;
mod files;
mod formatted;
mod free;
mod header;
mod holes;
mod layout;
mod log_state;
mod retired;
mod scan;
mod shown;
mod store;
mod summaries;
mod superblock;
mod tag;
mod translation;

pub use anchor::{Anchor, CheckpointAt, FindError, Record, find_superblock};
pub use bytes::{PutBytes, Reader, U48_MAX};
pub use crc::crc32c;
pub use disk::{DiskPage, OwnPages, decode_disk_checkpoint, encode_disk_checkpoint};
pub use durable::Verified;
pub use files::{
    MAX_CHUNKS, MAX_DATA_CHUNKS, MAX_OBJECTS, Owned, PageOwner, decode_files_checkpoint, encode_files_checkpoint,
};
pub use formatted::Formatted;
pub use free::{FreeList, FreeSegment, Freed, Opening};
pub use header::{HeaderPage, ObjectHeader, ObjectKind, Time};
pub use holes::HolePage;
pub use layout::{Layout, LayoutError, Place, SHORT_TAG_BYTES, TAG_BYTES, VERSION};
pub use log_state::{LogState, OpenSegment, SegmentRecord, SegmentState};
pub use retired::{decode_retired, encode_retired};
pub use scan::{FoundPage, FoundSegment};
pub use shown::{geometry_to_format, shown_geometry};
pub use store::{Copied, Plain, Store};
pub use summaries::LentSegment;
pub use superblock::{
    ClientKind, HOLE_PAGES, MAP_ON_FLASH, SHORT_TAGS, SUPERBLOCK_BYTES, Superblock, SuperblockError, TAGS_IN_SUMMARIES,
    TAGS_NAME_PLACE,
};
pub use tag::{Decoded, Earlier, PageInfo, PageKind, SegmentInfo, Tag};
pub use translation::{
    MapState, decode_map_checkpoint, decode_translation, encode_map_checkpoint, encode_translation, max_map_entries,
};
