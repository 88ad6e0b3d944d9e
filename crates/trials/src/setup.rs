use crate::Oracle;
use crate::oracle::content;
use margay_flash::{Flash, Geometry, Lpn, Ppn};
use margay_format::{Anchor, ClientKind, Formatted, Record, Superblock, shown_geometry};
use margay_ftl::{Ftl, FtlError, Loaded, MountError, OwnPages, load};
use margay_log::{Config, Hint, Policies};
use margay_policy::{LevelingSpec, PlacementSpec, SelectionSpec, Sizing};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Kinds of chips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chip {
    /// NAND with a spare area that has room for a window over the segment.
    Nand,
    /// NAND with the smallest spare area.
    SmallSpare,
    /// NOR.
    Nor,
    /// NAND without a usable spare area: pages in pairs.
    Pairs,
}

impl Chip {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Nand, Self::SmallSpare, Self::Nor, Self::Pairs];

    pub(crate) fn geometry(self, segments: u32, pages: u32) -> Geometry {
        match self {
            Self::Nand => Geometry::new(segments, pages, 512).map(|geometry| geometry.with_spare(160)),
            Self::SmallSpare => Geometry::new(segments, pages, 512).map(|geometry| geometry.with_spare(64)),
            Self::Pairs => Geometry::new(segments, pages * 2, 512),
            // Two header pages hold the table.
            Self::Nor => Geometry::new(segments, pages + 2, 512).map(Geometry::byte_programmable),
        }
        .expect("a small geometry is possible")
    }

    /// The page of the chip that holds the data of a page of the log.
    pub(crate) fn data_page(self, ppn: Ppn) -> Ppn {
        if self == Self::Pairs { Ppn(2 * ppn.0) } else { ppn }
    }
}

/// A device and how it is used.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The chip.
    pub chip: Chip,
    /// Its shape.
    pub geometry: Geometry,
    /// Selection policy.
    pub selection: SelectionSpec,
    /// Placement policy.
    pub placement: PlacementSpec,
    /// Configuration of the log.
    pub config: Config,
    /// What is on flash of it.
    pub superblock: Superblock,
}

impl Setup {
    /// A small device, as full as it can be to the percentage.
    pub fn new(chip: Chip, selection: &str, placement: &str, leveling: &str, percent: u32) -> Self {
        let raw = chip.geometry(14, 8);
        let geometry = shown_geometry(&raw);
        let layout = margay_format::Layout::new(&geometry, 100).expect("the layout fits");
        let leveling_spec: LevelingSpec = leveling.parse().expect("a leveling policy");
        let config = Config {
            header_pages: layout.header_pages,
            summary_pages: layout.summary_pages,
            reserved_segments: layout.reserved_segments,
            max_pages_per_write: 8,
            low_water: 2,
            high_water: 2,
            read_only_stream: true,
            leveling: leveling_spec,
        };
        let limit = config.limit_pages(&geometry, 5).expect("the device is large enough");
        let exported_pages = (limit - 3) * percent / 100;
        let superblock = Superblock {
            geometry,
            client: ClientKind::Disk,
            exported_pages,
            uuid: [1; 16],
            created_s: 0,
            compatible: 0,
            read_only_compatible: 0,
            incompatible: 0,
            low_water: config.low_water,
            high_water: config.high_water,
            max_pages_per_write: config.max_pages_per_write,
            selection: selection.into(),
            placement: placement.into(),
            leveling: leveling.into(),
            read_only_ranges: Vec::new(),
        };
        let policy = "a policy of the registry";
        let (selection, placement) = (selection.parse().expect(policy), placement.parse().expect(policy));
        Self { chip, geometry: raw, selection, placement, config, superblock }
    }

    /// Exported pages.
    pub fn pages(&self) -> u32 {
        self.superblock.exported_pages
    }

    fn policies(&self) -> Policies {
        let data_pages = self.config.data_pages(&self.superblock.geometry);
        let segments = self.geometry.segments();
        let sizing = Sizing { segments, data_pages, exported_pages: self.pages(), seed: 5 };
        Policies::new(self.selection, self.placement, sizing)
    }

    fn formatted<F: Flash>(&self, device: F) -> Formatted<F> {
        let own = OwnPages::new(self.pages(), self.geometry.page_bytes());
        let encoded = self.superblock.encode().expect("a small superblock");
        Formatted::new(device, own.owners().into(), encoded).expect("the layout fits")
    }

    /// A fresh disk on an erased device.
    pub fn format<F: Flash>(&self, device: F) -> Result<(Disk<F>, Anchor), FtlError> {
        let mut device = self.formatted(device);
        let mut anchor = Anchor::default();
        device
            .write_anchor(&mut anchor, &self.superblock, &Record::InUse)
            .map_err(|error| FtlError::Log(error.into()))?;
        let encoded = self.superblock.encode().expect("a small superblock");
        let disk = Ftl::new(device, self.config, self.policies(), self.pages(), &encoded)?;
        Ok((disk, anchor))
    }

    /// The disk of a device that was used before.
    pub fn mount<F: Flash>(&self, device: F) -> Result<(Disk<F>, Anchor), MountError> {
        let mut device = self.formatted(device);
        let loaded: Loaded = load(&mut device, &self.superblock, true)?;
        Ftl::mount(device, &self.superblock, self.config, self.policies(), loaded, false)
    }
}

/// A disk that can be mounted again.
pub type Disk<F> = Ftl<Formatted<F>>;

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
pub fn run<F: Flash>(disk: &mut Disk<F>, oracle: &mut Oracle, steps: &[Step]) -> Result<(), FtlError> {
    use margay_format::Store;
    let mut page = vec![0; disk.log().device().geometry().page_bytes() as usize];
    for (time, step) in (0..).zip(steps) {
        match *step {
            Step::Write(lpn, read_only) => {
                let version = oracle.attempt(lpn);
                content(lpn, version, &mut page);
                let hint = if read_only { Hint::ReadOnly } else { Hint::None };
                disk.write(Lpn(lpn), &page, hint, time * 1000)?;
                oracle.durable(lpn);
            }
            Step::Trim(first, end) => {
                for lpn in first..end {
                    oracle.attempt_trim(lpn);
                    disk.trim(Lpn(lpn), time * 1000)?;
                }
            }
            Step::Flush => {
                disk.flush()?;
                oracle.all_durable();
            }
            Step::Idle => while disk.idle_step(3)? {},
        }
    }
    Ok(())
}
