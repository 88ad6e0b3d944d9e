//! Checking a file system without changing it.

use crate::mount::{FoundFs, FsMountError};
use crate::node::ObjectKind;
use crate::{Owned, PageOwner};
use alloc::{vec, vec::Vec};
use core::fmt;
use margay_flash::{Flash, FlashError, Ppn};
use margay_format::{Formatted, Store, Superblock};
use margay_log::{Client, MountReport};

/// A problem that a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A header page cannot be read or decoded.
    Headers {
        /// Its number.
        page: u32,
        /// Where it is.
        ppn: Ppn,
    },
    /// The header of an object is damaged, or that of the root directory is missing.
    Object {
        /// The object.
        object: u32,
    },
    /// The parent of an object is not a directory, or cannot be reached from the root.
    Unreachable {
        /// The object.
        object: u32,
    },
    /// A page of a file cannot be read, or does not hold what was written.
    Chunk {
        /// The file.
        object: u32,
        /// The chunk.
        chunk: u32,
        /// Where it is.
        ppn: Ppn,
    },
    /// A page that says what holes a file has, or which header pages there are not, cannot be read: what was removed from
    /// it may seem to be there.
    Holes {
        /// The file; 0 for header pages.
        object: u32,
        /// Which group of its chunks.
        group: u32,
        /// Where it is.
        ppn: Ppn,
    },
    /// The checkpoint of the clean stop disagrees with the pages on an object.
    Checkpoint {
        /// The object.
        object: u32,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Headers { page, ppn } => {
                write!(f, "header page {page} (page {ppn} of the device) cannot be read; its objects are missing")
            }
            Self::Object { object } => write!(f, "the header of object {object} is missing or damaged"),
            Self::Unreachable { object } => {
                write!(f, "object {object} is in no directory; the mounted file system shows it as /lost-{object}")
            }
            Self::Chunk { object, chunk, ppn } => {
                write!(f, "chunk {chunk} of object {object} (page {ppn} of the device) cannot be read")
            }
            Self::Holes { object: 0, ppn, .. } => write!(
                f,
                "the page (page {ppn} of the device) that says which names are gone cannot be read; removed names may be back"
            ),
            Self::Holes { object, group, ppn } => write!(
                f,
                "page {group} of the holes of object {object} (page {ppn} of the device) cannot be read; bytes that were \
                 removed from it may be back"
            ),
            Self::Checkpoint { object } => write!(f, "the checkpoint and the pages disagree on object {object}"),
        }
    }
}

/// What a check found.
#[derive(Debug)]
pub struct FsCheck {
    /// What the mount scan of all segments found.
    pub scan: MountReport,
    /// Whether there is a checkpoint, which was then compared with the scan.
    pub has_checkpoint: bool,
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Other objects.
    pub others: u64,
    /// Hard links.
    pub links: u64,
    /// Pages of data that were read.
    pub pages: u64,
    /// Pages that a power cut can have torn, if the caller found them out. What they held was never synced.
    pub torn_pages: Vec<Ppn>,
    /// The problems, in the order in which they were found.
    pub problems: Vec<Problem>,
}

impl FsCheck {
    /// Scans every segment, reads every page in use, and compares the checkpoint, if there is one, with them. Changes
    /// nothing.
    pub fn run<F: Flash>(device: &mut Formatted<F>, superblock: &Superblock) -> Result<Self, FsMountError> {
        let by_checkpoint = FoundFs::load(device, superblock, true)?;
        let scanned = FoundFs::load(device, superblock, false)?;
        let mut check = Self {
            scan: scanned.report.clone(),
            has_checkpoint: by_checkpoint.report.from_checkpoint,
            files: 0,
            directories: 0,
            others: 0,
            links: 0,
            pages: 0,
            torn_pages: Vec::new(),
            problems: scanned.problems.clone(),
        };
        let mut page = vec![0; device.geometry().page_bytes() as usize];
        for (object, node) in scanned.index().iter() {
            match (node.link_to, node.kind) {
                (Some(_), _) => check.links += 1,
                (None, ObjectKind::File) => check.files += 1,
                (None, ObjectKind::Directory) => check.directories += 1,
                (None, _) => check.others += 1,
            }
            for (chunk, ppn) in node.chunks.iter() {
                check.pages += 1;
                let owner = PageOwner::chunk(object, chunk);
                debug_assert_eq!(owner.what(), Owned::Chunk(object, chunk));
                match device.read(ppn, owner.to_u64(), &mut page) {
                    Ok(_) => {}
                    Err(FlashError::Uncorrectable { .. } | FlashError::Corrupt { .. } | FlashError::Lost { .. }) => {
                        check.problems.push(Problem::Chunk { object, chunk, ppn });
                    }
                    Err(error) => return Err(error.into()),
                }
                if check.has_checkpoint && by_checkpoint.index().locate(owner) != Some(ppn) {
                    check.problems.push(Problem::Checkpoint { object });
                }
            }
            let same = by_checkpoint.index().node(object).is_some_and(|other| {
                other.size == node.size && other.name == node.name && other.chunks.count() == node.chunks.count()
            });
            if !same {
                check.problems.push(Problem::Checkpoint { object });
            }
        }
        check.problems.dedup();
        Ok(check)
    }
}
