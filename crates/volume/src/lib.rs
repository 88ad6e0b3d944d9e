//! The one way to format, open, check and stop anything on a device: a disk by pages ([`Disk`]) or by bytes ([`Volume`]),
//! a file system ([`Files`]). Servers, mounts, tests, campaigns and benchmarks go through it, so that they run the same
//! code. The policies are chosen when a device is formatted, or when it is opened.
//!
//! Every write of up to one page that does not cross a page boundary is atomic: after a power cut it is there or
//! not. What was written or trimmed before a flush that returned survives.
//!
//! Without the feature `std` (on by default) it needs `alloc` only; [`Volume`] and [`Metrics`] are then missing.
//!
//! # A disk
#![doc = concat!("```\n", include_str!("../examples/disk.rs"), "```")]
//!
//! # A file system
#![doc = concat!("```\n", include_str!("../examples/files.rs"), "```")]
#![cfg_attr(not(feature = "std"), no_std)]
extern crate alloc;

#[cfg(feature = "std")]
mod bytes;
mod check;
mod disk;
mod error;
mod files;
mod health;
mod history;
#[cfg(feature = "std")]
mod metrics;
mod options;
mod repair;
mod salvage;
mod torn;
mod translation;

use alloc::boxed::Box;
#[cfg(feature = "std")]
pub use bytes::{Status, Volume};
pub use check::{CheckReport, DumpedPage, DumpedSegment, check, dump_segment};
pub use disk::{Disk, find, limit_pages, may_exceed_bound, min_map_memory_bytes, usual_low_water};
pub use error::VolumeError;
pub use files::{Files, OpenedFiles, check_files, format_files, open_files};
pub use health::Health;
pub use history::{History, history};
pub use margay_flash as flash;
use margay_flash::Flash;
pub use margay_fs as fs;
pub use margay_ftl::MapCounters;
pub use margay_log::Hint;
#[cfg(feature = "std")]
pub use metrics::{Metrics, prometheus};
pub use options::{FilesFormatOptions, FilesOpenOptions, FormatOptions, MapOnFlash, OpenOptions, StoreOptions};
pub use repair::{DiskRepair, FilesRepair, LostFile, repair_disk, repair_files};
pub use salvage::{Part, note_range, read_parts};

pub use translation::Translation;

/// Any device: code that uses it is compiled once, whatever devices there are.
pub type AnyFlash = Box<dyn Flash + Send>;
