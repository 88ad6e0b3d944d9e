//! The schemes of cleaning: one row each yields the value, the parser, the help and the documents.

use core::fmt;
use core::str::FromStr;
use margay_policy::SpecError;
use margay_policy::spec::{Row, find_row};

/// Which log block is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimSelection {
    /// The oldest ("RR").
    RoundRobin,
    /// The one that costs least by the equations of [`crate::cost`] ("LDA-VBS").
    LeastCost,
}

/// What a merge does with a page that the cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockMerge {
    /// It is copied as any other (DU-BM, duplication-unaware).
    Unaware,
    /// It is dropped from flash, and dirty from then on (DA-BM, duplication-aware).
    Duplication,
    /// It is dropped, but a clean page of the LRU region is copied (LDA-BM, locality- and duplication-aware).
    Locality,
    /// A dirty page is written from the cache, a clean one copied (buffer-aware, our reading of BA-GC).
    Buffer,
}

/// A way of cleaning. Its text is its name in the paper; upper and lower case are read alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// Its name in the paper, as results state it.
    pub name: &'static str,
    /// Which log block is merged.
    pub selection: VictimSelection,
    /// What becomes of pages that are in the cache and on flash.
    pub merge: BlockMerge,
    /// LRU dirty page eviction: a dirty page of the LRU region that flash has a copy of is written in the merge.
    pub evicts_dirty: bool,
}

impl Scheme {
    /// Whether a merge writes pages of the cache that are in use: then it is not for the memory of a program, which
    /// may change such a page meanwhile.
    pub const fn writes_pages_in_use(&self) -> bool {
        matches!(self.merge, BlockMerge::Buffer)
    }
}

const PAPER: &str = "LDA-GC (IEEE Trans. CE 56(4), 2010), Table II";

const fn row(
    (name, paper_name, source): (&'static str, &'static str, &'static str),
    selection: VictimSelection,
    (merge, evicts_dirty): (BlockMerge, bool),
    summary: &'static str,
) -> Row<Scheme> {
    let build = Scheme { name: paper_name, selection, merge, evicts_dirty };
    Row { name, summary, parameters: &[], source, build }
}

static SCHEMES: [Row<Scheme>; 8] = [
    row(
        ("du-gc", "DU-GC", PAPER),
        VictimSelection::RoundRobin,
        (BlockMerge::Unaware, false),
        "duplication-unaware: the oldest log block is merged, every valid page copied",
    ),
    row(
        ("da-gc", "DA-GC", PAPER),
        VictimSelection::RoundRobin,
        (BlockMerge::Duplication, false),
        "duplication-aware: the oldest log block; pages that the cache holds are dropped from flash",
    ),
    row(
        ("lda-gc1", "LDA-GC1", PAPER),
        VictimSelection::LeastCost,
        (BlockMerge::Duplication, false),
        "da-gc, with the log block that costs least",
    ),
    row(
        ("lda-gc2", "LDA-GC2", PAPER),
        VictimSelection::RoundRobin,
        (BlockMerge::Locality, false),
        "da-gc, but clean pages of the LRU region are copied: they will be evicted without a write",
    ),
    row(
        ("lda-gc3", "LDA-GC3", PAPER),
        VictimSelection::LeastCost,
        (BlockMerge::Locality, false),
        "lda-gc2, with the log block that costs least",
    ),
    row(
        ("lda-gc4", "LDA-GC4", PAPER),
        VictimSelection::RoundRobin,
        (BlockMerge::Locality, true),
        "lda-gc2, and dirty pages of the LRU region are written in the merge",
    ),
    row(
        ("lda-gc5", "LDA-GC5", PAPER),
        VictimSelection::LeastCost,
        (BlockMerge::Locality, true),
        "lda-gc4, with the log block that costs least",
    ),
    row(
        ("ba-gc", "BA-GC", "the paper's buffer-aware baseline, by our reading"),
        VictimSelection::RoundRobin,
        (BlockMerge::Buffer, false),
        "buffer-aware: the oldest log block; dirty pages of the cache are written, others copied",
    ),
];

/// All schemes, in the order of the paper's Table II, the buffer-aware baseline last.
pub fn schemes() -> impl ExactSizeIterator<Item = Scheme> + Clone {
    SCHEMES.iter().map(|row| row.build)
}

/// Name, meaning and source of every scheme, in the same order.
pub fn scheme_rows() -> impl ExactSizeIterator<Item = &'static Row<Scheme>> + Clone {
    SCHEMES.iter()
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FromStr for Scheme {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        find_row("scheme", &SCHEMES, text).map(|row| row.build)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn every_name_parses_and_prints_as_something_that_parses_to_the_same() {
        for (info, scheme) in scheme_rows().zip(schemes()) {
            assert!(info.name.eq_ignore_ascii_case(scheme.name) && !info.summary.is_empty() && !info.source.is_empty());
            assert_eq!(info.name.parse(), Ok(scheme));
            assert_eq!(scheme.to_string().parse(), Ok(scheme));
            let same = schemes().filter(|other| Scheme { name: scheme.name, ..*other } == scheme);
            assert_eq!(same.count(), 1, "{scheme} does what another one does");
        }
    }

    #[test]
    fn errors_name_what_is_wrong_and_what_would_be_right() {
        let message = |text: &str| text.parse::<Scheme>().unwrap_err().to_string();
        let known = "du-gc, da-gc, lda-gc1, lda-gc2, lda-gc3, lda-gc4, lda-gc5, ba-gc";
        assert_eq!(message("lda-gc9"), alloc::format!("unknown scheme 'lda-gc9'; the known ones are {known}"));
        assert_eq!(message("du-gc:x=1"), "'du-gc' has no parameter 'x'; it has none");
    }
}
