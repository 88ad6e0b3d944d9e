//! Allocators: placements for file systems, which know the object that a page belongs to. One file per policy, one row
//! in `ALLOCATORS`. A file system can use every other placement too.

mod dac;
mod moda;
mod predictive;
mod sequential;

use crate::placement::{Content, PLACEMENTS, PlacementBuild};
use crate::spec::{PolicyKind, Row, Spec};

/// The placements made for file systems.
#[rustfmt::skip] // one row a line
static ALLOCATORS: &[Row<PlacementBuild>] = &[
    sequential::ROW,
    moda::ROW,
    dac::ROW,
    dac::HEADERS_APART,
    predictive::ROW,
];

/// The table of allocators: first those made for file systems, then all placements.
#[derive(Debug)]
pub enum AllocatorKind {}

impl PolicyKind for AllocatorKind {
    const WHAT: &'static str = "allocator";
    type Build = PlacementBuild;

    fn rows() -> impl Iterator<Item = &'static Row<PlacementBuild>> + Clone {
        let others = |row: &&Row<PlacementBuild>| ALLOCATORS.iter().all(|own| own.name != row.name);
        ALLOCATORS.iter().chain(PLACEMENTS.iter().filter(others))
    }
}

/// An allocator with its parameters.
pub type AllocatorSpec = Spec<AllocatorKind>;

impl AllocatorSpec {
    /// The allocators made for file systems, each with its default parameters.
    pub fn made_for_files() -> impl Iterator<Item = Self> + Clone {
        Self::all().take(ALLOCATORS.len())
    }
}

/// The information that an allocator keeps for every physical page: the object, and whether it is a header page or an
/// incomplete chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PageMark(u32);

impl PageMark {
    const HEADER: u32 = 1 << 31;
    const TAIL: u32 = 1 << 30;

    fn of(content: Content) -> Self {
        match content {
            Content::Page => Self::default(),
            Content::Headers { object, .. } => Self(object | Self::HEADER),
            Content::Chunk { object, whole: true, .. } => Self(object),
            Content::Chunk { object, whole: false, .. } => Self(object | Self::TAIL),
        }
    }

    fn is_header(self) -> bool {
        self.0 & Self::HEADER != 0
    }

    fn is_tail(self) -> bool {
        self.0 & Self::TAIL != 0
    }

    fn object(self) -> u32 {
        self.0 & 0xFF_FFFF
    }
}
