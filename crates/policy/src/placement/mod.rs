//! Placement: which stream a written or copied page goes to.

mod dac;
mod fine_grained;
mod page_based;
mod segment_based;
mod sequential;

pub use dac::Dac;
pub use fine_grained::{DecayingFineGrained, FineGrained, Heat};
pub use page_based::PageBased;
pub use segment_based::SegmentBased;
pub use sequential::{Key, Sequential, Sorted};

use crate::age::{Now, Scale};
use crate::segments::Segments;
use core::fmt;
use margay_flash::SegmentId;

/// Stream of data that is, or may become, hot; user writes go here.
pub const HOT: u8 = 0;
/// Stream of cold data.
pub const COLD: u8 = 1;

/// Kinds of information on a page that are kept on flash (FORMAT.md, "Tag").
pub mod heat {
    /// Nothing.
    pub const NONE: u8 = 0;
    /// Updates since the first write, as a `u32`.
    pub const UPDATES: u8 = 1;
    /// Updates, each decayed until the last of them, as the bits of an `f32`.
    pub const DECAYED: u8 = 2;
}

/// Read access to what the engine keeps for every physical page.
#[derive(Clone, Copy, Debug)]
pub struct Pages<'a, I> {
    info: &'a [I],
    valid: &'a [u64],
}

impl<'a, I: Copy> Pages<'a, I> {
    /// `info` by physical page number, `valid` a bitmap of them.
    pub fn new(info: &'a [I], valid: &'a [u64]) -> Self {
        Self { info, valid }
    }

    /// What is kept for each valid page, in the order of physical page numbers, and the default for pages of
    /// open segments that are not yet written. O(pages of the device).
    pub fn valid(self) -> impl Iterator<Item = I> + 'a {
        let words = self.info.chunks(64).zip(self.valid);
        words.flat_map(|(info, bits)| {
            info.iter().enumerate().filter(move |(page, _)| bits >> page & 1 != 0).map(|(_, info)| *info)
        })
    }
}

/// A placement policy. It decides per page, so everything here is called in the write path.
pub trait Placement {
    /// What it keeps for every physical page; moves with the data.
    type Info: Copy + Default + fmt::Debug;

    /// Whether a victim's pages are copied in the order of [`Placement::sort_key`] instead of their place.
    const SORTS: bool = false;

    /// Whether all pages of a victim go to the same stream.
    const ONE_STREAM_PER_VICTIM: bool = false;

    /// Number of streams.
    fn streams(&self) -> u8;

    /// The first so many streams have an open segment from the start; others get one on first use.
    fn opened_at_start(&self) -> u8 {
        self.streams()
    }

    /// Where a host write goes, and what to keep for it. `old` is the copy that it supersedes.
    fn write(&mut self, segments: &Segments, now: Now, old: Option<(SegmentId, Self::Info)>) -> (u8, Self::Info);

    /// A page was trimmed.
    fn trimmed(&mut self, _now: Now, _info: Self::Info) {}

    /// Called before each cleaning with what is kept for every physical page, for upkeep that is rarely due.
    fn maintain(&mut self, _now: Now, _infos: &mut [Self::Info]) {}

    /// A victim was chosen; its pages are about to be copied.
    fn begin_cleaning(&mut self, _segments: &Segments, _victim: SegmentId, _now: Now, _pages: Pages<'_, Self::Info>) {}

    /// Where a valid page of the victim goes.
    fn copy(&self, segments: &Segments, victim: SegmentId, now: Now, info: Self::Info) -> u8;

    /// What [`Placement::pack`] makes; 0 if nothing has to be kept on flash. See [`heat`].
    const HEAT_KIND: u8 = heat::NONE;

    /// What is kept on flash of a page that is just being written by the host.
    fn pack(&self, _info: Self::Info) -> u32 {
        0
    }

    /// What was kept for a page when it was written at `written`, from what is on flash; called once per valid
    /// page when a device is mounted at `now`.
    fn unpack(&mut self, _heat: u32, _written: Now, _now: Now) -> Self::Info {
        Self::Info::default()
    }

    /// What a checkpoint keeps of a page at `now`; not called for a zero-sized `Info`.
    fn freeze(&self, _info: Self::Info, _now: Now) -> (u64, u32) {
        (0, 0)
    }

    /// What was frozen at `now`; called once per valid page.
    fn thaw(&mut self, _frozen: (u64, u32), _now: Now) -> Self::Info {
        Self::Info::default()
    }

    /// Ascending order in which a victim's pages are copied if [`Placement::SORTS`].
    fn sort_key(&self, _now: Now, _info: Self::Info) -> f64 {
        0.0
    }
}

/// How M6 knows the mean hot degree of all pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeanOf {
    /// All pages are summed up at each cleaning: the paper's form, O(pages) per cleaning.
    Exact,
    /// Hot degrees decay exponentially, so that their sum does too: O(1).
    Decay,
}

impl MeanOf {
    pub(crate) const NAMES: &'static [(&'static str, Self)] = &[("exact", Self::Exact), ("decay", Self::Decay)];
}

/// A placement policy with its parameters, as the registry reads and prints it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum PlacementSpec {
    Sequential,
    AgeSort,
    TimesSort { scale: Scale },
    SegmentBased,
    PageBased,
    FineGrained { mean: MeanOf, scale: Scale },
    Dac { regions: u32, threshold: Scale },
}

impl fmt::Display for PlacementSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Sequential => f.write_str("m1"),
            Self::AgeSort => f.write_str("m2"),
            Self::TimesSort { scale } => write!(f, "m3:scale={scale}"),
            Self::SegmentBased => f.write_str("m4"),
            Self::PageBased => f.write_str("m5"),
            Self::FineGrained { mean, scale } => {
                write!(f, "m6:mean={},scale={scale}", crate::spec::name_of(&mean, MeanOf::NAMES))
            }
            Self::Dac { regions, threshold } => write!(f, "dac:regions={regions},threshold={threshold}"),
        }
    }
}
