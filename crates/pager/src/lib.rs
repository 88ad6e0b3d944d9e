//! Memory larger than RAM: a [`PagedMemory`] whose pages are in RAM, in a buffer, or on flash, moved by a page cache of
//! `margay-vm` over a hybrid-mapped store, with the kernel's userfaultfd.
//!
//! The region of the cache that a page belongs to says where it is. A page of the MRU region is mapped: using it costs
//! nothing, and the pager does not see it. A page that falls into the LRU region is taken out of the address space and
//! kept in a buffer: its next use is a fault, a hit in the LRU region, and brings it back. Only from there are pages
//! evicted, and only there may a merge take them from. So the MRU region is a queue and the LRU region a true LRU list
//! (segmented FIFO, Turner and Levy 1981). A clean page is mapped write-protected; its first write is a fault, and it
//! is dirty from then on.
//!
//! Paged memory must not be given to the kernel for direct I/O, which pins pages without the pager's knowledge. A
//! forked child has it, with a pager of its own, if the fork was announced ([`PagedMemory::before_fork`]); after any other
//! fork it has nothing at those addresses.
#![cfg(target_os = "linux")]

mod error;
mod forks;
mod frames;
mod handler;
mod memory;
mod thread;
mod uffd;

pub use error::{PagerError, store_error_text};
pub use forks::{Forking, StoreForks};
pub use memory::{Options, PagedMemory, PagerStats};

/// Bytes of a page of memory and of the store below.
pub const PAGE_BYTES: usize = 4096;
