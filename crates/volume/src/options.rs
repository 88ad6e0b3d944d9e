use crate::VolumeError;
use alloc::string::ToString;
use alloc::vec::Vec;
use margay_flash::{Flash, Geometry};
use margay_format::{ClientKind, Formatted, Layout, LayoutError, Superblock, geometry_to_format};
use margay_log::{Config, Policies};
use margay_policy::{AllocatorSpec, LevelingSpec, PlacementSpec, SelectionSpec, Sizing};

/// The selection and the placement of disks and file systems for which no other is named.
pub(crate) const USUAL: &str = "lifetime";

/// What disks and file systems are formatted with alike.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreOptions {
    /// Selection policy.
    pub selection: SelectionSpec,
    /// Leveling policy.
    pub leveling: LevelingSpec,
    /// Maximum of pages programmed for one page that is written.
    pub max_pages_per_write: u32,
    /// Cleaning starts when fewer segments are free; at least 2.
    pub low_water: u32,
    /// Cleaning stops when so many segments are free.
    pub high_water: u32,
    /// Identifies the store; the policies' random choices are seeded by it.
    pub uuid: [u8; 16],
    /// Time of formatting, in seconds since 1970.
    pub created_s: u64,
    /// Accept half of the capacity, and two programs for each page, on a device that has neither a spare area of 32 usable
    /// bytes a page nor bytes that can be programmed one by one. Without this such a device keeps what is known of pages in summaries,
    /// at whole capacity, and formatting it is an error if its segments have too few pages for that.
    pub pair_pages: bool,
    /// Erases that a segment endures, as its maker says, for [`crate::Health`]; 0 if that is not known.
    pub endurance_erases: u32,
    /// Erases of each segment so far, by number, as [`crate::history`] finds them on a device that was formatted before: they
    /// are counted on. Empty for a new device.
    pub erases: Vec<u32>,
}

impl StoreOptions {
    pub(crate) fn new(selection: &str) -> Self {
        Self {
            selection: SelectionSpec::known(selection),
            leveling: LevelingSpec::known("threshold"),
            max_pages_per_write: 16,
            low_water: 2,
            high_water: 2,
            uuid: [0; 16],
            created_s: 0,
            pair_pages: false,
            endurance_erases: 0,
            erases: Vec::new(),
        }
    }

    /// The shape that the format is to see of a device.
    pub(crate) fn geometry(&self, raw: &Geometry) -> Result<Geometry, LayoutError> {
        geometry_to_format(raw, self.pair_pages)
    }

    /// The superblock of a store with these options.
    pub(crate) fn superblock(&self, geometry: &Geometry, client: ClientKind, placement: &dyn ToString) -> Superblock {
        Superblock {
            uuid: self.uuid,
            created_s: self.created_s,
            low_water: self.low_water,
            high_water: self.high_water,
            max_pages_per_write: self.max_pages_per_write,
            selection: self.selection.to_string(),
            placement: placement.to_string(),
            leveling: self.leveling.to_string(),
            endurance_erases: self.endurance_erases,
            ..Superblock::new(*geometry, client, 1)
        }
    }
}

/// How a disk is formatted.
#[derive(Clone, Debug, PartialEq)]
pub struct FormatOptions {
    /// Policies, marks and identity.
    pub store: StoreOptions,
    /// Placement policy.
    pub placement: PlacementSpec,
    /// Pages exported; `None` for nine tenths of the device.
    pub exported_pages: Option<u32>,
    /// Exported pages that hold read-only data: first page and count.
    pub read_only_ranges: Vec<(u32, u32)>,
    /// The map is on flash, and a part of it in memory; `None` for all of it in memory.
    pub map: Option<MapOnFlash>,
}

/// A map that is on flash, because it would take too much memory: 8 bytes for each page of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapOnFlash {
    /// Bytes of memory for the map.
    pub memory_bytes: u64,
    /// Entries of a translation page; `None` for as many as a page has room for.
    pub entries: Option<u32>,
}

impl MapOnFlash {
    /// A map on flash with so many bytes of memory.
    pub const fn new(memory_bytes: u64) -> Self {
        Self { memory_bytes, entries: None }
    }

    /// What a superblock says of it; `None` if all of the map is in memory.
    pub const fn of(superblock: &Superblock) -> Option<Self> {
        match superblock.map_entries {
            0 => None,
            entries => Some(Self { memory_bytes: superblock.map_memory_bytes, entries: Some(entries) }),
        }
    }
}

impl FormatOptions {
    /// The defaults for a disk whose map is on flash: policies that keep nothing for each page.
    pub fn with_map(map: MapOnFlash) -> Self {
        Self {
            store: StoreOptions::new("cost-benefit"),
            placement: PlacementSpec::known("sepgc"),
            map: Some(map),
            ..Self::default()
        }
    }
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            store: StoreOptions::new(USUAL),
            placement: PlacementSpec::known(USUAL),
            exported_pages: None,
            read_only_ranges: Vec::new(),
            map: None,
        }
    }
}

/// How a file system is formatted.
#[derive(Clone, Debug, PartialEq)]
pub struct FilesFormatOptions {
    /// Policies, marks and identity.
    pub store: StoreOptions,
    /// Which stream a page of a file goes to.
    pub allocator: AllocatorSpec,
}

impl Default for FilesFormatOptions {
    fn default() -> Self {
        Self { store: StoreOptions::new(USUAL), allocator: AllocatorSpec::known(USUAL) }
    }
}

/// How a disk is opened. What is `None` is as the device was formatted.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Nothing is written, not even what recovers from a power cut.
    pub read_only: bool,
    /// Another selection policy.
    pub selection: Option<SelectionSpec>,
    /// Another placement policy.
    pub placement: Option<PlacementSpec>,
    /// Another leveling policy.
    pub leveling: Option<LevelingSpec>,
    /// Another maximum of pages programmed for one page that is written.
    pub max_pages_per_write: Option<u32>,
    /// Pages that are read of a segment, since its erase and since the device was opened, until it is rewritten in idle time: reading
    /// wears on what is beside (read disturb). 0 for never.
    pub max_segment_reads: u32,
    /// More exported pages that hold read-only data: first page and count.
    pub read_only_ranges: Vec<(u32, u32)>,
}

/// How a file system is opened. What is `None` is as the device was formatted.
#[derive(Clone, Copy, Debug, Default)]
pub struct FilesOpenOptions {
    /// Nothing is written, not even what recovers from a power cut.
    pub read_only: bool,
    /// Another selection policy.
    pub selection: Option<SelectionSpec>,
    /// Another allocator.
    pub allocator: Option<AllocatorSpec>,
    /// Another leveling policy.
    pub leveling: Option<LevelingSpec>,
    /// Another maximum of pages programmed for one page that is written.
    pub max_pages_per_write: Option<u32>,
    /// Pages that are read of a segment, since its erase and since the device was opened, until it is rewritten in idle time: reading
    /// wears on what is beside (read disturb). 0 for never.
    pub max_segment_reads: u32,
    /// Write although headers cannot be read: what they stood for is given up. Without this such a file system is
    /// opened for reading only.
    pub accept_losses: bool,
}

/// Replaces what a superblock says by what is asked for at opening.
pub(crate) fn override_policies(
    superblock: &mut Superblock,
    selection: Option<SelectionSpec>,
    placement: Option<&dyn ToString>,
    leveling: Option<LevelingSpec>,
    max_pages_per_write: Option<u32>,
) {
    if let Some(selection) = selection {
        superblock.selection = selection.to_string();
    }
    if let Some(placement) = placement {
        superblock.placement = placement.to_string();
    }
    if let Some(leveling) = leveling {
        superblock.leveling = leveling.to_string();
    }
    if let Some(max) = max_pages_per_write {
        superblock.max_pages_per_write = max;
    }
}

/// How the log uses a device in margay's format.
pub(crate) fn config(superblock: &Superblock, layout: &Layout) -> Result<Config, VolumeError> {
    // Translation pages fill segments beside those of the host, and one more is kept free for them.
    let more_free = u32::from(superblock.map_entries > 0);
    Ok(Config {
        header_pages: layout.header_pages,
        summary_pages: layout.summary_pages,
        reserved_segments: layout.reserved_segments,
        lent_segments: layout.lent_segments,
        max_pages_per_write: superblock.max_pages_per_write.max(1),
        low_water: superblock.low_water.saturating_add(more_free),
        high_water: superblock.high_water.saturating_add(more_free),
        read_only_stream: superblock.client == ClientKind::Disk,
        own_stream: superblock.map_entries > 0,
        owners_on_flash: superblock.map_entries > 0,
        leveling: superblock.leveling.parse()?,
    })
}

fn sizing(superblock: &Superblock, config: &Config) -> Sizing {
    Sizing {
        segments: superblock.geometry.segments(),
        data_pages: config.data_pages(&superblock.geometry),
        exported_pages: superblock.exported_pages,
        seed: superblock.uuid.iter().take(8).rev().fold(0, |seed, byte| seed << 8 | u64::from(*byte)),
    }
}

/// The policies that a superblock names.
pub(crate) fn policies(superblock: &Superblock, config: &Config) -> Result<Policies, VolumeError> {
    let (selection, sizing) = (superblock.selection.parse()?, sizing(superblock, config));
    let policies = match superblock.client {
        ClientKind::FileSystem => Policies::for_files(selection, superblock.placement.parse()?, sizing),
        _ => Policies::new(selection, superblock.placement.parse()?, sizing),
    };
    let placement = || superblock.placement.clone();
    if policies.placement.is_oracle() {
        return Err(VolumeError::Oracle { placement: placement() });
    }
    if superblock.map_entries > 0 && (policies.placement.keeps_pages() || policies.placement.sorts()) {
        return Err(VolumeError::PlacementKeepsPages { placement: placement() });
    }
    Ok(policies)
}

/// The device as the log writes to it, for owners up to `owners`.
pub(crate) fn formatted<F: Flash>(
    device: F,
    superblock: &Superblock,
    owners: u64,
) -> Result<Formatted<F>, VolumeError> {
    Ok(Formatted::new(device, owners, superblock.encode()?)?)
}
