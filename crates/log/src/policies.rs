use alloc::boxed::Box;
use margay_policy::{AllocatorSpec, PlacementSpec, Placer, Selection, SelectionSpec, Sizing};

/// The policies of a log: which segment is cleaned, where a page goes. They come from the tables of `margay-policy`, or
/// are the caller's own.
#[derive(Debug)]
pub struct Policies {
    /// Which segment is the next victim.
    pub selection: Box<dyn Selection>,
    /// Which stream a page goes to, and what is kept for every page.
    pub placement: Box<dyn Placer>,
}

impl Policies {
    /// Policies of the tables, for a device of the given size.
    pub fn new(selection: SelectionSpec, placement: PlacementSpec, sizing: Sizing) -> Self {
        Self::seeded(selection, placement.build(sizing.exported_pages), sizing)
    }

    /// Policies of the tables for a file system.
    pub fn for_files(selection: SelectionSpec, allocator: AllocatorSpec, sizing: Sizing) -> Self {
        Self::seeded(selection, allocator.build(sizing.exported_pages), sizing)
    }

    fn seeded(selection: SelectionSpec, mut placement: Box<dyn Placer>, sizing: Sizing) -> Self {
        placement.seed(sizing.seed);
        Self { selection: selection.build(sizing), placement }
    }
}
