//! What a file system keeps on flash beside headers and data: whose a page is, and its checkpoint.

use crate::bytes::{PutBytes, Reader};
use crate::layout::Layout;
use crate::log_state::LogState;
use crate::superblock::Superblock;
use alloc::vec::Vec;
use core::fmt;
use margay_flash::Ppn;

/// Number of objects that there can be, number 0 included, which is the file system's own.
pub const MAX_OBJECTS: u32 = 1 << 24;
/// Number of chunks of an object that there can be numbers for.
pub const MAX_CHUNKS: u32 = 1 << 24;
/// Number of chunks that a file can have, pages of data, where the pages of holes take the last numbers.
pub const MAX_DATA_CHUNKS: u32 = MAX_CHUNKS - (1 << 13);

/// Chunk of object 0 that is the first page of object headers.
const FIRST_HEADER: u32 = 16;
const CHECKPOINT_MAGIC: [u8; 4] = *b"MGCF";

/// Whose a page is: an object and a chunk of it, 24 bits each. Object 0 holds the superblock's copy, the list of
/// retired segments and the header pages (FORMAT.md, "Files").
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageOwner(u64);

/// What a page of an owner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owned {
    /// The copy of the superblock.
    Superblock,
    /// The list of retired segments.
    Retired,
    /// A page of object headers.
    Headers(u32),
    /// A page of a file's data.
    Chunk(u32, u32),
    /// A page that says which chunks of a group an object does not have (FORMAT.md, "Holes"); of object 0 the header pages.
    /// On a device without [`crate::HOLE_PAGES`] it is the chunk behind [`MAX_DATA_CHUNKS`] with this number.
    Holes(u32, u32),
    /// Nothing that this version knows.
    Unknown,
}

impl PageOwner {
    /// Number of owners that there can be: the layout on flash follows from it.
    pub const COUNT: u64 = 1 << 48;
    /// Of the copy of the superblock.
    pub const SUPERBLOCK: Self = Self(0);
    /// Of the list of retired segments.
    pub const RETIRED: Self = Self(1);

    /// Of a page of object headers.
    pub const fn headers(page: u32) -> Self {
        Self((FIRST_HEADER + page) as u64)
    }

    /// Of a chunk of an object.
    pub const fn chunk(object: u32, chunk: u32) -> Self {
        Self((object as u64) << 24 | chunk as u64)
    }

    /// Of the page that says which chunks of a group an object does not have.
    pub const fn holes(object: u32, group: u32) -> Self {
        Self::chunk(object, MAX_DATA_CHUNKS + group)
    }

    /// From the number that is on flash.
    pub const fn from_u64(owner: u64) -> Self {
        Self(owner)
    }

    /// The number that is on flash.
    #[inline(always)]
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// What its page is.
    pub const fn what(self) -> Owned {
        let (object, chunk) = (self.0 >> 24, (self.0 & 0xFF_FFFF) as u32);
        match (object, chunk) {
            (0, 0) => Owned::Superblock,
            (0, 1) => Owned::Retired,
            (0..0x100_0000, MAX_DATA_CHUNKS..) => Owned::Holes(object as u32, chunk - MAX_DATA_CHUNKS),
            (0, FIRST_HEADER..) => Owned::Headers(chunk - FIRST_HEADER),
            (1..0x100_0000, _) => Owned::Chunk(object as u32, chunk),
            _ => Owned::Unknown,
        }
    }
}

impl fmt::Debug for PageOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what().fmt(f)
    }
}

/// Writes the checkpoint of a file system: `pages` are all valid pages. Headers are not in it: a mount reads their pages.
pub fn encode_files_checkpoint(
    superblock: &Superblock,
    log: &LogState,
    pages: impl Iterator<Item = (PageOwner, Ppn)>,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(log.segments.len() * 40);
    log.encode_clocks(CHECKPOINT_MAGIC, superblock, &mut bytes);
    log.encode_segments(&mut bytes);
    let at = bytes.len();
    bytes.put_u32(0); // the count's place
    let mut count = 0u32;
    for (owner, ppn) in pages {
        bytes.put_uint(owner.to_u64(), 6);
        bytes.put_u32(ppn.0);
        count += 1;
    }
    bytes[at..at + 4].copy_from_slice(&count.to_le_bytes());
    bytes
}

/// Reads the checkpoint of a file system: the log, and its pages, `None` where the bytes end too early or name an owner
/// that cannot be. `None` if it is another device's or makes no sense.
pub fn decode_files_checkpoint<'a>(
    bytes: &'a [u8],
    superblock: &Superblock,
    layout: &Layout,
) -> Option<(LogState, impl Iterator<Item = Option<(PageOwner, Ppn)>> + use<'a>)> {
    let mut reader = Reader::new(bytes);
    let mut log = LogState::decode_clocks(CHECKPOINT_MAGIC, superblock, &mut reader)?;
    log.decode_segments(&mut reader, &superblock.geometry, layout)?;
    let count = reader.u32().filter(|count| *count <= superblock.geometry.pages())?;
    let pages = (0..count).map(move |_| {
        let (owner, ppn) = (PageOwner(reader.uint(6)?), Ppn(reader.u32()?));
        (owner.what() != Owned::Unknown).then_some((owner, ppn))
    });
    Some((log, pages))
}
