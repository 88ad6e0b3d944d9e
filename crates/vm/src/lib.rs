//! Flash as swap space: a page cache over a hybrid-mapped store, each knowing what the other holds.
//!
//! The source is "Locality and duplication-aware garbage collection for flash memory-based virtual memory systems"
//! (IEEE Trans. Consumer Electronics 56(4), 2010). A page that is in the cache and on flash is a *duplicate*: a
//! merge need not copy it (duplication-aware), but a duplicate that is going to be evicted clean is worth keeping
//! (locality-aware), and a dirty page that is going to be evicted may be written along with the merge (LRU dirty
//! page eviction). [`Scheme`] names the combinations, [`cost`] has the equations, [`Cache`] is the page cache,
//! [`Paging`] both together.
//!
//! This crate speaks the language of its paper: a *block* is a segment, the *victim* a log block.
//!
//! ```
//! use margay_flash::{Geometry, Lpn};
//! use margay_format::Plain;
//! use margay_hybrid::HybridConfig;
//! use margay_media::NullFlash;
//! use margay_vm::{CacheConfig, Paging};
//!
//! // 256 pages on flash with 8 log blocks, 32 of them in memory.
//! let flash = Plain::new(NullFlash::new(Geometry::new(32, 16, 2048)?));
//! let cache = CacheConfig::new(32, "lda-gc1".parse()?);
//! let mut paging = Paging::new(flash, HybridConfig::swap(256, 8), cache, |_| true)?;
//! for step in 0..20_000 {
//!     paging.reference(Lpn(step * 37 % 256), step % 3 == 0)?;
//! }
//! assert!(paging.store().counters().erases > 0 && paging.cache().is_full());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
extern crate alloc;

mod cache;
mod chain;
mod config;
pub mod cost;
mod host;
mod list;
mod paging;
mod scheme;
mod stats;
mod tally;
mod window;

pub use cache::{Cache, CacheRegion, Evicted, Frames, NoFrames};
pub use chain::Chain;
pub use config::{CacheConfig, LruRegion, Replacement, Window, replacements};
pub use paging::Paging;
pub use scheme::{BlockMerge, Scheme, VictimSelection, scheme_rows, schemes};
pub use stats::{GcTotals, Stats};
pub use tally::Tally;
