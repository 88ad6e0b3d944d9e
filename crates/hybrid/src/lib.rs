//! Hybrid-mapped translation: data blocks mapped by block, log blocks mapped by page.
//!
//! This crate speaks the language of its papers: a *block* is a segment; every logical block of pages has at most
//! one *data block*, where each page stands at its offset, and what is written goes to a few *log blocks*, until
//! a merge makes them one again. [`Mapping::Bast`] gives each log block to one logical block (Kim et al. 2002),
//! [`Mapping::Fast`] shares them among all, with one for sequential writes (Lee et al. 2007).
//!
//! What sits above is asked at each merge ([`Host`]): a page cache may say that a page is not worth copying
//! because it holds a duplicate, or that it wants a dirty page written along. [`NoCache`] copies everything.
//!
//! A [`Persistence::Persistent`] store loses nothing: a page is programmed before its old copy is given up, and a host
//! that wants a page dropped gets an error. A [`Persistence::Volatile`] store is empty when it is opened.
//!
//! ```
//! use margay_flash::{Geometry, Lpn};
//! use margay_hybrid::{FormatOptions, Mapping, Persistence, format, open};
//! use margay_media::RamFlash;
//!
//! let mut chip = RamFlash::new(Geometry::new(16, 8, 512)?.with_spare(64));
//! let options = FormatOptions {
//!     mapping: Mapping::Bast,
//!     persistence: Persistence::Persistent,
//!     log_blocks: 3,
//!     logical_pages: Some(48),
//!     uuid: [1; 16],
//!     created_s: 0,
//! };
//! let mut disk = format(&mut chip, &options)?;
//! for round in 0..100 {
//!     disk.write_alone(Lpn(round % 7), &[round as u8; 512])?;
//! }
//! disk.sync()?;
//!
//! let mut page = [0; 512];
//! assert!(open(&mut chip)?.read(Lpn(3), &mut page)?.is_some());
//! assert_eq!(page, [94; 512]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
extern crate alloc;

mod audit;
mod config;
mod copies;
mod counters;
mod error;
mod host;
mod hybrid;
mod image;
mod logs;
mod merge;
mod mount;
mod report;
mod retired;
mod segments;
mod unreadable;

pub use audit::AuditError;
pub use config::{HybridConfig, Mapping, MappingInfo, Persistence, mappings};
pub use counters::{HybridCounters, MergeKind, Merges};
pub use error::HybridError;
pub use host::{Host, MergeAction, Merged, NoCache, Victim};
pub use hybrid::Hybrid;
pub use image::{FormatOptions, OpenError, format, open};
pub use report::HybridMountReport;
