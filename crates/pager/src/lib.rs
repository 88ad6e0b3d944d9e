//! Memory larger than RAM: a [`Region`] whose pages are in RAM, in a buffer, or on flash, moved by a page cache of
//! `margay-vm` over a hybrid-mapped store, with the kernel's userfaultfd.
//!
//! What the cache calls its regions is where a page is. A page of the MRU region is mapped: it is used without any
//! cost, and the pager does not see it. A page that falls into the LRU region is taken out of the address space and
//! kept in a buffer: its next use is a fault, a hit in the LRU region, and brings it back. Only from there are pages
//! evicted, and only there may a merge take them from. So the MRU region is a queue and the LRU region a true LRU list
//! (segmented FIFO, Turner and Levy 1981). A clean page is mapped write-protected; its first write is a fault, and it
//! is dirty from then on.
//!
//! Memory of the region must not be handed to the kernel for direct I/O, which pins pages behind the pager's back; and
//! a forked child does not see it.
#![cfg(target_os = "linux")]

mod error;
mod frames;
mod handler;
mod region;
mod uffd;

pub use error::{PagerError, in_words};
pub use region::{Options, PagerStats, Region};

/// Bytes of a page of memory and of the store below.
pub const PAGE_BYTES: usize = 4096;
