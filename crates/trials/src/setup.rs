use crate::Oracle;
use crate::oracle::content;
use margay_flash::{Flash, Geometry, Ppn};
use margay_log::Hint;
use margay_policy::{LevelingSpec, PlacementSpec, SelectionSpec};
use margay_volume::{Disk, FormatOptions, MapOnFlash, OpenOptions, StoreOptions, VolumeError};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Kinds of chips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chip {
    /// NAND with a spare area that has room for a window over the segment.
    Nand,
    /// NAND with the smallest spare area.
    SmallSpare,
    /// NAND with room for short tags only.
    ShortTags,
    /// NOR.
    Nor,
    /// NAND without a usable spare area: pages in pairs.
    Pairs,
    /// The same with tags in summaries.
    Summaries,
}

impl Chip {
    /// All kinds.
    pub const ALL: [Self; 6] = [Self::Nand, Self::SmallSpare, Self::ShortTags, Self::Nor, Self::Pairs, Self::Summaries];
    /// Those that a hybrid-mapped store is on: it needs whole tags.
    pub const HYBRID: [Self; 4] = [Self::Nand, Self::SmallSpare, Self::Nor, Self::Pairs];

    pub(crate) fn geometry(self, segments: u32, pages: u32) -> Geometry {
        match self {
            Self::Nand => Geometry::new(segments, pages, 512).map(|geometry| geometry.with_spare(160)),
            Self::SmallSpare => Geometry::new(segments, pages, 512).map(|geometry| geometry.with_spare(64)),
            Self::ShortTags => Geometry::new(segments, pages, 512).map(|geometry| geometry.with_spare(38)),
            Self::Pairs => Geometry::new(segments, pages * 2, 512),
            // One page is the summary, and four segments are for the journal.
            Self::Summaries => Geometry::new(segments + 4, pages + 1, 512).map(|geometry| geometry.with_spare(10)),
            // Two header pages hold the table.
            Self::Nor => Geometry::new(segments, pages + 2, 512).map(Geometry::byte_programmable),
        }
        .expect("a small geometry is possible")
    }

    /// Whether what was written to this kind of chip, on a device that is cached or is not, is durable after a flush only.
    pub(crate) fn needs_flush(self, is_cached: bool) -> bool {
        is_cached || self == Self::Summaries
    }

    /// The page of the chip that holds the data of a page of the log.
    pub(crate) fn data_page(self, ppn: Ppn) -> Ppn {
        if self == Self::Pairs { Ppn(2 * ppn.0) } else { ppn }
    }
}

/// Segments of the devices of the campaigns.
const SEGMENTS: u32 = 14;
/// Entries of a translation page: so few that there are several groups of pages, of which some are not in memory.
const MAP_ENTRIES: u32 = 10;

/// A device and how it is used.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The chip.
    pub chip: Chip,
    /// Its shape.
    pub geometry: Geometry,
    /// How it is formatted.
    pub options: FormatOptions,
}

/// Policies and marks of the campaigns: small, so that much happens in few operations.
pub(crate) fn store_options(chip: Chip, selection: &str, leveling: &str) -> StoreOptions {
    let defaults = FormatOptions::default().store;
    StoreOptions {
        selection: SelectionSpec::known(selection),
        leveling: LevelingSpec::known(leveling),
        max_pages_per_write: 8,
        low_water: 2,
        high_water: 2,
        uuid: [1; 16],
        pair_pages: chip == Chip::Pairs,
        ..defaults
    }
}

impl Setup {
    /// A small device, as full as it can be with any placement to the percentage.
    pub fn new(chip: Chip, selection: &str, placement: &str, leveling: &str, percent: u32) -> Self {
        let geometry = chip.geometry(SEGMENTS, 8);
        let store = store_options(chip, selection, leveling);
        let with = |placement: &str| FormatOptions {
            store: store.clone(),
            placement: PlacementSpec::known(placement),
            ..FormatOptions::default()
        };
        // DAC has the most streams of those that are tried.
        let limit = margay_volume::limit_pages(&geometry, &with("dac")).expect("the device is large enough");
        let options = FormatOptions { exported_pages: Some(limit * percent / 100), ..with(placement) };
        Self { chip, geometry, options }
    }

    /// A chip with segments of so many pages.
    #[must_use]
    pub fn with_long_segments(mut self, pages: u32, percent: u32) -> Self {
        let page_bytes = if pages > 32 { 2048 } else { 512 };
        let geometry = self.chip.geometry(SEGMENTS + 6, pages);
        let long =
            Geometry::new(geometry.segments(), geometry.pages_per_segment(), page_bytes).expect("it is possible");
        self.geometry = long.with_spare(geometry.spare_bytes());
        let limit = margay_volume::limit_pages(&self.geometry, &self.options).expect("the device is large enough");
        self.options.exported_pages = Some(limit * percent / 100);
        self
    }

    /// The same with its map on flash, in as little memory as can be: two of its translation pages, which have few entries.
    #[must_use]
    pub fn with_map_on_flash(mut self) -> Self {
        let map = |memory_bytes| Some(MapOnFlash { memory_bytes, entries: Some(MAP_ENTRIES) });
        // More segments for the stream of the translation pages.
        self.geometry = self.chip.geometry(SEGMENTS + 3, 8);
        self.options.map = map(0);
        let least = margay_volume::min_map_memory_bytes(&self.geometry, &self.options);
        self.options.map = map(least.expect("the device is large enough"));
        self
    }

    /// Exported pages.
    pub fn pages(&self) -> u32 {
        self.options.exported_pages.expect("it is set above")
    }

    /// A fresh disk.
    pub fn format<F: Flash>(&self, device: F) -> Result<Disk<F>, VolumeError> {
        Disk::format(device, &self.options)
    }

    /// The disk of a device that was used before.
    pub fn mount<F: Flash>(&self, device: F) -> Result<Disk<F>, VolumeError> {
        Disk::open(device, &OpenOptions::default())
    }
}

/// What a host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes a page, perhaps as read-only data.
    Write(u32, bool),
    /// Trims pages from the first to the second.
    Trim(u32, u32),
    /// Waits until everything is durable.
    Flush,
    /// Does nothing for a while.
    Idle,
}

/// A script of `len` steps on `pages` pages: half of the writes go to a fifth of them.
pub fn script(pages: u32, len: usize, seed: u64) -> Vec<Step> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut below = |limit: u32| (random.next_u64() % u64::from(limit)) as u32;
    (0..len)
        .map(|_| {
            let lpn = if below(2) == 0 { below(pages) } else { below(pages.div_ceil(5)) };
            match below(100) {
                0..85 => Step::Write(lpn, below(20) == 0),
                85..92 => Step::Trim(lpn, (lpn + 1 + below(4)).min(pages)),
                92..97 => Step::Flush,
                _ => Step::Idle,
            }
        })
        .collect()
}

/// Carries out steps, and tells the oracle.
pub fn run<F: Flash>(disk: &mut Disk<F>, oracle: &mut Oracle, steps: &[Step]) -> Result<(), VolumeError> {
    let mut page = vec![0; disk.superblock().geometry.page_bytes() as usize];
    for (time, step) in (0..).zip(steps) {
        if let Some(on) = holds(time) {
            disk.hold(on)?;
        }
        match *step {
            Step::Write(lpn, read_only) => {
                let version = oracle.attempt(lpn);
                content(lpn, version, &mut page);
                let hint = if read_only { Hint::ReadOnly } else { Hint::None };
                disk.write(lpn, &page, hint, time * 1000)?;
                oracle.written(lpn);
            }
            Step::Trim(first, end) => {
                for lpn in first..end {
                    oracle.attempt_trim(lpn);
                    disk.trim(lpn, time * 1000)?;
                }
            }
            Step::Flush => {
                disk.flush()?;
                oracle.all_durable();
            }
            Step::Idle => while disk.idle(3)? {},
        }
    }
    disk.hold(false)
}

/// Whether pages may be kept in memory from a step on, if that changes then.
pub(crate) fn holds(step: u64) -> Option<bool> {
    match step % 16 {
        3 => Some(true),
        12 => Some(false),
        _ => None,
    }
}
