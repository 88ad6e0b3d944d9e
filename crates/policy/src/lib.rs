//! Cleaning policies: which segment is the victim ([`selection`]), where a page goes ([`placement`], and [`allocator`]
//! for file systems), how wear is spread ([`leveling`]).
//!
//! A policy decides from a read-only view of the segments, and the engine carries the decision out. Its only clock is
//! the [`Now`] passed in, its only source of randomness the generator it was seeded with. Policies are values: each
//! table of rows ([`spec::Row`]) yields the names, the parser, the printer, the help, the documents and the tests of
//! its policies, so that a new one is one file and one row.
#![no_std]
extern crate alloc;

pub mod age;
pub mod allocator;
mod bounds;
pub mod index;
pub mod leveling;
mod octaves;
pub mod placement;
pub mod scan;
mod segments;
pub mod selection;
pub mod spec;

pub use age::{AgeFunction, Clock, Now, Scale, Shape};
pub use allocator::AllocatorSpec;
pub use bounds::{Bound, Bounds, StreamBound, Tail};
pub use leveling::{LevelAction, Leveling, LevelingSpec};
pub use placement::{Content, Hint, Pages, Placement, PlacementSpec, Placer, Subject, Written};
pub use segments::{PageSums, Segments, Sizing, State};
pub use selection::{Selection, SelectionSpec};
pub use spec::{Spec, SpecError};
