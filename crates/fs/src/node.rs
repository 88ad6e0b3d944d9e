use crate::chunks::Chunks;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use margay_flash::Ppn;
pub use margay_format::{ObjectKind, Time};

/// The attributes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its number; the root directory is 1.
    pub object: u32,
    /// Distinguishes it from earlier objects with the same number.
    pub generation: u64,
    /// What it is.
    pub kind: ObjectKind,
    /// Permission bits, 12 of them.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, of devices.
    pub rdev: u32,
    /// Number of its names; for a directory that of POSIX: 2, and one for each subdirectory.
    pub links: u32,
    /// Bytes.
    pub size: u64,
    /// Pages of data that it occupies, the one that waits in memory too.
    pub pages: u64,
    /// Last access, if it was set explicitly; reading does not change it.
    pub atime: Time,
    /// Last modification of the data.
    pub mtime: Time,
    /// Last change of the object.
    pub ctime: Time,
}

/// The tail of a file: data of one chunk that is not on flash yet.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    pub chunk: u32,
    pub data: Box<[u8]>,
    /// Size that the file on flash has without it.
    pub size_before: u64,
}

/// An object in memory.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub kind: ObjectKind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    pub size: u64,
    pub generation: u64,
    /// The allocator's state of it ([`margay_policy::Placement::remember_file`]).
    pub heat: u8,
    /// The header page that its header is on.
    pub page: u32,
    /// Bytes of its header on that page.
    pub header_bytes: u32,
    pub parent: u32,
    pub name: Box<[u8]>,
    /// Whether it has no name any more and exists only while it is open.
    pub orphan: bool,
    pub chunks: Chunks,
    /// What a symbolic link points to.
    pub target: Box<[u8]>,
    /// For a hard link, the object that it is another name of.
    pub link_to: Option<u32>,
    /// Hard links to it.
    pub links: Vec<u32>,
    /// Of a directory.
    pub children: BTreeMap<Box<[u8]>, u32>,
    pub subdirectories: u32,
    pub attributes: BTreeMap<Box<[u8]>, Box<[u8]>>,
    pub opens: u32,
    pub tail: Option<Tail>,
    /// Whether it was written since it was opened.
    pub modified: bool,
    /// Whether its size or its chunks differ from those in its header on flash.
    pub resized: bool,
    /// Whether its list of holes may have changed.
    pub holes_changed: bool,
    /// Whether it was made shorter and its header on flash does not say so yet.
    pub shrunk: bool,
}

impl Node {
    /// Where a chunk is on flash; `None` if it is a hole or in memory.
    pub fn place_on_flash(&self, chunk: u32) -> Option<Ppn> {
        let is_in_memory = self.tail.as_ref().is_some_and(|tail| tail.chunk == chunk);
        if is_in_memory { None } else { self.chunks.get(chunk) }
    }

    pub fn new(kind: ObjectKind, mode: u16, uid: u32, gid: u32, parent: u32, name: &[u8], now: Time) -> Self {
        Self {
            kind,
            mode,
            uid,
            gid,
            rdev: 0,
            atime: now,
            mtime: now,
            ctime: now,
            size: 0,
            generation: 0,
            heat: 0,
            page: 0,
            header_bytes: 0,
            parent,
            name: name.into(),
            orphan: false,
            chunks: Chunks::default(),
            target: Box::default(),
            link_to: None,
            links: Vec::new(),
            children: BTreeMap::new(),
            subdirectories: 0,
            attributes: BTreeMap::new(),
            opens: 0,
            tail: None,
            modified: false,
            resized: false,
            holes_changed: false,
            shrunk: false,
        }
    }

    /// The size of the file as far as its data is on flash.
    pub fn size_on_flash(&self) -> u64 {
        self.tail.as_ref().map_or(self.size, |tail| tail.size_before)
    }

    /// Chunks of the file as far as its data is on flash.
    pub fn chunks_on_flash(&self, page_bytes: u32) -> u32 {
        self.size_on_flash().div_ceil(page_bytes.into()) as u32
    }

    /// Makes a file longer, or as long as it is. What it gains and has no data for is a hole.
    pub fn grow(&mut self, size: u64, page_bytes: u32) {
        let chunks = |size: u64| size.div_ceil(page_bytes.into()) as u32;
        let (first, end) = (chunks(self.size), chunks(size));
        if size > self.size {
            (self.size, self.resized) = (size, true);
        }
        match &self.tail {
            // Its chunk gets its page when it is written.
            Some(tail) if (first..end).contains(&tail.chunk) => {
                self.chunks.grow(first, tail.chunk, page_bytes);
                self.chunks.grow(tail.chunk + 1, end, page_bytes);
            }
            _ => self.chunks.grow(first, end, page_bytes),
        }
    }

    pub fn attributes(&self, object: u32) -> Attributes {
        let links = match self.kind {
            ObjectKind::Directory => 2 + self.subdirectories,
            _ => u32::from(!self.orphan) + self.links.len() as u32,
        };
        Attributes {
            object,
            generation: self.generation,
            kind: self.kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            links,
            size: if self.kind == ObjectKind::Symlink { self.target.len() as u64 } else { self.size },
            pages: u64::from(self.chunks.count())
                + u64::from(self.tail.as_ref().is_some_and(|tail| self.chunks.get(tail.chunk).is_none())),
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
        }
    }

    /// Bytes of memory that the object takes.
    pub fn memory_bytes(&self) -> usize {
        let names: usize = self.children.keys().map(|name| name.len() + 40).sum();
        let attributes: usize = self.attributes.iter().map(|(name, value)| name.len() + value.len() + 48).sum();
        let tail = self.tail.as_ref().map_or(0, |tail| tail.data.len());
        let own = size_of::<Self>() + self.name.len() + self.target.len() + self.links.capacity() * 4;
        own + names + attributes + tail + self.chunks.memory_bytes()
    }
}

/// Whether bytes can be the name of an object.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}
