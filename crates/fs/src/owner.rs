use core::fmt;
use margay_log::Owner;

/// The greatest number of objects, including number 0, which is the file system itself.
pub const MAX_OBJECTS: u32 = 1 << 24;
/// The greatest number of chunks of a file. A chunk is a page of data.
pub const MAX_CHUNKS: u32 = 1 << 24;
/// Number of possible owners: 48 bits.
pub(crate) const OWNERS: u64 = 1 << 48;

const FIRST_HEADER: u32 = 16;

/// The owner tag of a page: an object and a chunk of it, 24 bits each. Object 0 holds the superblock's copy, the list
/// of retired segments and the header pages (FORMAT.md, "Files").
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageOwner(u64);

/// What a page holds, by its owner.
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
    /// Something that this version does not know.
    Unknown,
}

impl PageOwner {
    /// The owner of the copy of the superblock.
    pub const SUPERBLOCK: Self = Self(0);
    /// Of the list of retired segments.
    pub const RETIRED: Self = Self(1);

    /// The owner of the list of retired segments, as a number on flash.
    pub(crate) const RETIRED_U64: u64 = 1;

    /// The owner of a header page.
    pub const fn headers(page: u32) -> Self {
        Self((FIRST_HEADER + page) as u64)
    }

    /// The owner of a chunk of an object.
    pub const fn chunk(object: u32, chunk: u32) -> Self {
        Self((object as u64) << 24 | chunk as u64)
    }

    /// The owner with this number on flash.
    pub const fn from_u64(owner: u64) -> Self {
        Self(owner)
    }

    /// What the page of this owner holds.
    pub const fn what(self) -> Owned {
        let (object, chunk) = (self.0 >> 24, (self.0 & 0xFF_FFFF) as u32);
        match (object, chunk) {
            (0, 0) => Owned::Superblock,
            (0, 1) => Owned::Retired,
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

impl Owner for PageOwner {
    #[inline(always)]
    fn to_u64(self) -> u64 {
        self.0
    }
}
