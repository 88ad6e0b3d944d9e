//! A disk on raw flash for microcontrollers: [`SmallDisk`]. It is the page-mapped disk of `margay-ftl` with two policies
//! named in code (greedy cleaning, one stream), so that no table of policies is linked, and with fixed memory:
//! once it is formatted or mounted, reading, writing, trimming, flushing and idle work allocate nothing. [`memory_bytes`] says
//! how much memory it needs.
//!
//! The format on flash is that of every margay disk: a host reads the image of the chip with `margay info`, `check` and `serve`.
//!
//! With the feature `embedded-storage`, [`NorFlashDevice`] makes a device of any NOR flash of that crate, and [`ByteDisk`] is
//! its `Storage`. With the feature `embedded-sdmmc`, [`SharedDisk`] is the block device that its FAT wants.
#![cfg_attr(
    feature = "async",
    doc = "",
    doc = "With the feature `async`, async tasks ask for pages through a [`Mailbox`], which another context serves. With the features",
    doc = "`block-device-driver` and `embedded-storage-async`, its [`AsyncDisk`] has the traits of these crates."
)]
#![no_std]
extern crate alloc;

#[cfg(any(feature = "async", feature = "embedded-storage", feature = "embedded-sdmmc"))]
mod bytes;
mod disk;
#[cfg(feature = "async")]
mod mailbox;
mod memory;
#[cfg(feature = "embedded-storage")]
mod nor;
#[cfg(feature = "embedded-sdmmc")]
mod shared;
mod small;

#[cfg(any(feature = "async", feature = "embedded-storage", feature = "embedded-sdmmc"))]
pub use bytes::ByteDisk;
pub use disk::SmallDisk;
#[cfg(feature = "async")]
pub use mailbox::{AsyncDisk, AsyncDiskError, Mailbox, Served, Server, ServerError};
pub use margay_flash as flash;
pub use memory::memory_bytes;
#[cfg(feature = "embedded-storage")]
pub use nor::{NorFlashDevice, NorShapeError};
#[cfg(feature = "embedded-sdmmc")]
pub use shared::SharedDisk;
pub use small::{DiskError, config, max_pages, policies, superblock};
