//! Structures that keep candidates ordered while pages are invalidated, so that no selection scans.

mod bits;
mod lists;
mod order;
mod tree;

pub use bits::BucketBits;
pub use lists::BucketLists;
pub use order::OpenOrder;
pub use tree::{AgeTree, Key, MinTree};
