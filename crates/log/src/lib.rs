//! The log-structured engine: segments, streams, cleaner. There is only this one: disk, file system and laboratory are
//! its clients.
//!
//! A [`Log`] appends pages to the open segment of the stream that the placement names, keeps which pages are valid, and
//! cleans: it copies the valid pages of the victim that the selection names and erases it. It knows no mapping: every
//! page carries an owner tag, and the [`Client`] is told when a page has moved. Everything is synchronous. The only
//! clock is the time passed in, and the only randomness comes from a policy's seed.
#![no_std]
extern crate alloc;

mod audit;
mod checkpoint;
mod cleaner;
mod client;
mod config;
mod counters;
mod error;
mod free;
mod level;
mod log;
mod mount_scan;
mod own;
mod owners;
mod paced;
mod policies;
mod read_counts;
mod reading;
mod recovery;
mod restore;
mod run;
mod startup;
mod valid;

pub use audit::AuditError;
pub use cleaner::Progress;
pub use client::{Client, Owner};
pub use config::{Config, ConfigError};
pub use counters::{Counters, Uniformity};
pub use error::LogError;
pub use log::Log;
pub use margay_policy::{Content, Hint};
pub use mount_scan::{MountReport, ScanError};
pub use owners::OwnReader;
pub use policies::Policies;
pub use recovery::{OwnerMap, PageReader, Recovered, StartWork, recover};
pub use restore::{Kept, Restored, RestoredSegment, ValidPages};
