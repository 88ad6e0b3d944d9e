//! A file system on the log: objects with headers, files in chunks of one page, the second client of the engine.
//!
//! Promises after a power cut: names are as after some operation, with every one before it done and none after it;
//! what was synced is there; a write of one aligned page is there or not. Data that was not synced may be missing,
//! and a file is then as long as its header says.
//!
//! Which segment a page goes to is decided by an allocator ([`AllocatorSpec`]), which knows whose page it is: the paper's MODA
//! (Baek et al. 2007), its rivals, and better ones.
//!
//! Programs use it through `margay-volume`, which formats and opens devices. For measurements there is one that keeps
//! nothing:
//!
//! ```
//! use margay_flash::Geometry;
//! use margay_format::Plain;
//! use margay_fs::{AllocatorSpec, Fs, Headers, NewObject, ROOT};
//! use margay_log::{Config, Policies};
//! use margay_media::RamFlash;
//! use margay_policy::{SelectionSpec, Sizing};
//!
//! let geometry = Geometry::new(16, 16, 512)?;
//! let config = Config::default();
//! let sizing = Sizing { segments: 16, data_pages: config.data_pages(&geometry), exported_pages: 128, seed: 0 };
//! let policies = Policies::for_files(SelectionSpec::default(), AllocatorSpec::known("moda"), sizing);
//! let mut fs = Fs::volatile(Plain::new(RamFlash::new(geometry)), config, policies, Headers::Packed, false)?;
//!
//! let file = fs.create(ROOT, b"log", &NewObject::FILE)?.object;
//! fs.write(file, 5000, b"far from the start")?;
//! fs.punch_hole(file, 5000, 8)?;
//! let mut bytes = [0; 18];
//! assert_eq!(fs.read(file, 5000, &mut bytes)?, 18);
//! assert_eq!(&bytes, b"\0\0\0\0\0\0\0\0 the start");
//! assert_eq!(fs.seek_data(file, 0)?, Some(4608));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
extern crate alloc;

mod check;
mod chunks;
mod cleaning;
mod data;
mod error;
mod header;
mod holes;
mod index;
mod mount;
mod names;
mod node;
mod privileges;
mod recovery;
mod sparse;
mod sync;
mod tree;

pub use check::{FsCheck, Problem};
pub use cleaning::ExplicitCleaning;
pub use error::FsError;
pub use index::ROOT;
pub use mount::{FoundFs, FsMountError, find, owners};
pub use names::{Change, Named, NewObject, RenameFlags};
pub use node::{Attributes, ObjectKind, Time};

use alloc::boxed::Box;
use alloc::{vec, vec::Vec};
use index::Index;
use margay_flash::FlashError;
use margay_format::{Anchor, Store, Superblock};
pub use margay_format::{MAX_CHUNKS, MAX_DATA_CHUNKS, MAX_OBJECTS, Owned, PageOwner};
use margay_log::{AuditError, Client, Config, Log, LogError, MountReport, Policies, Uniformity};
pub use margay_policy::AllocatorSpec;
use node::Node;

/// Bytes of the longest name.
pub const MAX_NAME_BYTES: usize = 255;

/// What the users of a file system did, and what it programmed for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsCounters {
    /// Bytes written by users.
    pub bytes_written: u64,
    /// Bytes read by users.
    pub bytes_read: u64,
    /// Pages of file data programmed, copies not counted.
    pub data_pages: u64,
    /// Header pages programmed, copies not counted.
    pub header_pages: u64,
    /// Segments erased as soon as their last page became invalid.
    pub eager_erases: u64,
}

/// How much room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of a page, which is a block to users.
    pub page_bytes: u32,
    /// Pages that can be used at all.
    pub pages: u64,
    /// Pages that are free.
    pub free_pages: u64,
    /// Objects in use.
    pub objects: u32,
}

/// How headers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    /// As many on a page as fit, written when another page is to change, at a sync or after a while.
    Packed,
    /// One on a page, written when an object is made and when a session ends that changed it: the MODA paper's
    /// device.
    Single,
}

/// A file system on a log.
#[derive(Debug)]
pub struct Fs<D> {
    log: Log<D, PageOwner>,
    index: Index,
    time: Time,
    scratch: Vec<u8>,
    capacity_pages: u64,
    counters: FsCounters,
    read_only: bool,
    /// An error has come between two changes that belong together: what is in memory must not get on flash.
    is_half_changed: bool,
    /// A segment is erased as soon as its last page becomes invalid.
    eager: bool,
    anchor: Anchor,
    superblock: Option<Box<Superblock>>,
    report: MountReport,
}

/// Pages that only operations which make room may use.
const RESERVE_PAGES: u64 = 16;

impl<D: Store> Fs<D> {
    /// An empty file system on an erased device that keeps nothing, for measurement. Its capacity is what the log
    /// can hold; with `eager` a segment is erased as soon as its last page becomes invalid.
    pub fn volatile(
        device: D,
        config: Config,
        policies: Policies,
        headers: Headers,
        eager: bool,
    ) -> Result<Self, FsError> {
        let geometry = *device.geometry();
        let pages = config.limit_pages(&geometry, policies.placement.streams().into()).map_err(LogError::from)?;
        let index = Index::new(geometry.page_bytes(), headers == Headers::Single);
        let log = Log::new(device, config, policies, pages)?;
        let mut fs = Self::on(log, index, pages.into());
        fs.eager = eager;
        fs.make_root(0o755)?;
        Ok(fs)
    }

    fn on(log: Log<D, PageOwner>, index: Index, capacity_pages: u64) -> Self {
        let page_bytes = index.page_bytes as usize;
        Self {
            log,
            index,
            time: Time::default(),
            scratch: vec![0; page_bytes],
            capacity_pages,
            counters: FsCounters::default(),
            read_only: false,
            is_half_changed: false,
            eager: false,
            anchor: Anchor::default(),
            superblock: None,
            report: MountReport::default(),
        }
    }

    fn make_root(&mut self, mode: u16) -> Result<(), FsError> {
        let node = Node::new(ObjectKind::Directory, mode, 0, 0, ROOT, b"", self.time);
        let root = self.index.add(node).expect("there is room for the first object");
        debug_assert_eq!(root, ROOT);
        self.log.placement_mut().file_created(root);
        // No user made it.
        if !self.index.single {
            self.touch(self.index.node(root).expect("it was just made").page, false)?;
        }
        Ok(())
    }

    /// Sets the timestamp of all that is done from now on.
    pub fn set_time(&mut self, time: Time) {
        self.time = time;
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.time.secs).unwrap_or(0) * 1_000_000 + u64::from(self.time.nanos / 1000)
    }

    /// How much room there is.
    pub fn room(&self) -> Room {
        let valid = self.log.segments().total_valid;
        let pages = self.capacity_pages.saturating_sub(RESERVE_PAGES);
        Room {
            page_bytes: self.index.page_bytes,
            pages,
            free_pages: (pages + self.index.reclaimable()).saturating_sub(valid).min(pages),
            objects: self.index.objects,
        }
    }

    /// Fails with [`FsError::NoSpace`] unless `pages` more pages are free.
    fn want_room(&mut self, pages: u64) -> Result<(), FsError> {
        let (free_pages, tails) = (self.room().free_pages, self.index.tails.len() as u64);
        if free_pages < pages + tails {
            return Err(FsError::NoSpace);
        }
        // Room that is free because it can be given back.
        if free_pages < pages + tails + self.index.reclaimable() { self.give_back_headers() } else { Ok(()) }
    }

    /// Fails with [`FsError::NoSpace`] unless `pages` more pages are free, or kept for what changes names only. Some are left
    /// to operations that give more room back.
    fn want_reserve(&self, pages: u64) -> Result<(), FsError> {
        let valid = self.log.segments().total_valid;
        if valid + pages + RESERVE_PAGES / 4 > self.capacity_pages { Err(FsError::NoSpace) } else { Ok(()) }
    }

    fn check_writable(&self) -> Result<(), FsError> {
        if self.read_only {
            return Err(FsError::ReadOnly);
        }
        if self.is_half_changed { Err(FsError::Log(FlashError::Stopped.into())) } else { Ok(()) }
    }

    fn node(&self, object: u32) -> Result<&Node, FsError> {
        self.index.node(object).ok_or(FsError::NotFound)
    }

    fn node_mut(&mut self, object: u32) -> Result<&mut Node, FsError> {
        self.index.node_mut(object).ok_or(FsError::NotFound)
    }

    /// What was done through files.
    pub fn counters(&self) -> FsCounters {
        self.counters
    }

    /// See [`Log::limit_reads`].
    pub fn limit_reads(&mut self, max_reads: u32) {
        self.log.limit_reads(max_reads);
    }

    /// The log below.
    pub fn log(&self) -> &Log<D, PageOwner> {
        &self.log
    }

    /// Resets the counters; erase counts are kept.
    pub fn reset_counters(&mut self) {
        self.log.reset_counters();
        self.counters = FsCounters::default();
    }

    /// Utilization, invalidity and uniformity now.
    pub fn uniformity(&self) -> Uniformity {
        self.log.uniformity()
    }

    /// Whether nothing is written.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// What the mount found and cost.
    pub fn mount_report(&self) -> &MountReport {
        &self.report
    }

    /// What it was formatted with, and is run with.
    pub fn superblock(&self) -> Option<&Superblock> {
        self.superblock.as_deref()
    }

    /// Bytes of memory: of the objects, and of the log per page of flash.
    pub fn memory_bytes(&self) -> (u64, u64) {
        (self.index.memory_bytes(), self.log.memory_bytes())
    }

    /// Number of pages of headers on flash.
    pub fn header_pages(&self) -> usize {
        self.index.pages.iter().filter(|page| page.at.is_some()).count()
    }

    /// Recomputes every count and compares. O(pages).
    pub fn audit(&self) -> Result<(), AuditError> {
        self.log.audit(|owner: PageOwner, ppn| self.index.locate(owner) == Some(ppn))
    }

    /// What the allocator takes a file for, if it classifies files.
    pub fn class_of_file(&self, object: u32) -> Option<&'static str> {
        self.log.placement().class_of_file(object)
    }

    /// Gives the device back, as after a power cut.
    pub fn into_device(self) -> D {
        self.log.into_device()
    }

    /// The device, for its own operations.
    pub fn device_mut(&mut self) -> &mut D {
        self.log.device_mut()
    }
}
