//! Cleaning policies: which segment is the victim ([`selection`]), where a page goes ([`placement`]), how
//! wear is spread ([`leveling`]).
//!
//! A policy answers over a read-only view of the segments and the engine acts. It reads no clock but the
//! [`Now`] passed in and no generator but the one it was seeded with. [`registry`] names them all.
#![no_std]
extern crate alloc;

pub mod age;
pub mod index;
pub mod leveling;
pub mod naive;
pub mod placement;
pub mod registry;
mod segments;
pub mod selection;
pub mod spec;

pub use age::{AgeFunction, Clock, Now, Scale, Shape};
pub use leveling::{LevelAction, Leveler, LevelingSpec};
pub use placement::{Pages, Placement, PlacementSpec};
pub use registry::{Info, Visitor, visit};
pub use segments::{Segments, Sizing, State};
pub use selection::{Selection, SelectionSpec};
pub use spec::{Parts, SpecError};
