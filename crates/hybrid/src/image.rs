use crate::hybrid::Stream;
use crate::{Hybrid, HybridConfig, HybridError, Mapping, Persistence};
use alloc::string::{String, ToString};
use alloc::vec;
use core::fmt;
use margay_flash::{Flash, FlashError, Ppn, SegmentId};
use margay_format::{
    Anchor, ClientKind, FindError, Formatted, FreeList, FreeSegment, Layout, LayoutError, Record, SUPERBLOCK_BYTES,
    SegmentInfo, Store, Superblock, SuperblockError, find_superblock, shown_geometry,
};

/// How a device is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatOptions {
    /// Who shares log blocks.
    pub mapping: Mapping,
    /// Whether the store outlives the process that uses it.
    pub persistence: Persistence,
    /// Log blocks.
    pub log_blocks: u32,
    /// Pages exported; `None` for all that fit.
    pub logical_pages: Option<u32>,
    /// Identifies the store.
    pub uuid: [u8; 16],
    /// Seconds since 1970.
    pub created_s: u64,
}

/// Why a device could not be formatted or opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// It has no room for the format.
    Layout(LayoutError),
    /// Its superblock cannot be written.
    Superblock(SuperblockError),
    /// It has no superblock that can be used.
    Find(FindError),
    /// It holds something else.
    OtherClient,
    /// A page was written by a later version of the format.
    Newer {
        /// Its version.
        version: u8,
    },
    /// The store failed.
    Hybrid(HybridError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(error) => error.fmt(f),
            Self::Superblock(error) => error.fmt(f),
            Self::Find(error) => error.fmt(f),
            Self::OtherClient => f.write_str("it holds a disk or a file system, no hybrid-mapped store"),
            Self::Newer { version } => {
                write!(f, "pages are written in format {version}, which this margay does not know")
            }
            Self::Hybrid(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for OpenError {}

impl From<HybridError> for OpenError {
    fn from(error: HybridError) -> Self {
        Self::Hybrid(error)
    }
}

impl From<FlashError> for OpenError {
    fn from(error: FlashError) -> Self {
        Self::Hybrid(error.into())
    }
}

impl From<LayoutError> for OpenError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

impl From<SuperblockError> for OpenError {
    fn from(error: SuperblockError) -> Self {
        Self::Superblock(error)
    }
}

impl Persistence {
    /// The word for it in the superblock.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Persistent => "disk",
            Self::Volatile => "swap",
        }
    }
}

/// Formats a device: all that is on it is lost. Segments that cannot be erased are left out.
pub fn format<F: Flash>(device: F, options: &FormatOptions) -> Result<Hybrid<Formatted<F>>, OpenError> {
    let geometry = shown_geometry(device.geometry());
    let layout = Layout::new(&geometry, u64::from(geometry.pages()))?;
    let mut config = HybridConfig {
        mapping: options.mapping,
        persistence: options.persistence,
        log_blocks: options.log_blocks,
        logical_pages: options.logical_pages.unwrap_or(1),
        header_pages: layout.header_pages,
        reserved_segments: layout.reserved_segments,
    };
    if options.logical_pages.is_none() {
        // What the log blocks, the block to merge into and the reserved ones leave.
        let others = config.segments(&geometry) - u64::from(config.blocks(&geometry));
        let blocks = u64::from(geometry.segments()).saturating_sub(others) as u32;
        config.logical_pages = blocks * config.pages_per_block(&geometry);
    }
    config.check(&geometry)?;
    let superblock = Superblock {
        uuid: options.uuid,
        created_s: options.created_s,
        low_water: options.log_blocks,
        high_water: options.log_blocks,
        max_pages_per_write: 0,
        selection: options.mapping.to_string(),
        placement: options.persistence.text().to_string(),
        leveling: String::new(),
        ..Superblock::new(geometry, ClientKind::Hybrid, config.logical_pages)
    };
    let mut store = Formatted::new(device, config.logical_pages.into(), superblock.encode()?)?;
    store.reset_mark()?;
    let mut free = FreeList::default();
    for segment in (config.reserved_segments..geometry.segments()).map(SegmentId) {
        match store.erase(segment, SegmentInfo { erases: 1, ..SegmentInfo::default() }) {
            Ok(()) => free.push(FreeSegment::erased(segment)),
            Err(FlashError::EraseFailed { .. } | FlashError::ProgramFailed { .. }) => free.retire(segment),
            Err(error) => return Err(error.into()),
        }
    }
    store.write_anchor(&mut Anchor::default(), &superblock, &Record::InUse)?;
    let mut hybrid = Hybrid::without_segments(store, config)?;
    hybrid.erases.fill(1);
    hybrid.free = free;
    if config.reserved_segments == 0 {
        // Where there is no anchor the superblock is in the header of whatever segment was begun.
        let segment = hybrid.take_free(Stream::Data)?;
        hybrid.free.push(FreeSegment::unknown(segment));
    }
    hybrid.sync()?;
    Ok(hybrid)
}

/// Opens a device that was formatted with [`format()`]. A disk is recovered by reading the tag of every page; a swap
/// store is empty.
pub fn open<F: Flash>(mut device: F) -> Result<Hybrid<Formatted<F>>, OpenError> {
    // There is no copy of the superblock among the data: the anchor is written once.
    let superblock = match find_superblock(&mut device, |_| (u64::MAX, 1)) {
        Ok(superblock) => superblock,
        Err(error) => repaired_superblock(&mut device)?.ok_or(OpenError::Find(error))?,
    };
    if superblock.client != ClientKind::Hybrid {
        return Err(OpenError::OtherClient);
    }
    if superblock.is_read_only_to_us() {
        // A mount writes what makes it safe, and memory is no use without writing.
        let bits = superblock.read_only_compatible;
        return Err(OpenError::Find(FindError::Superblock(SuperblockError::UnknownFeatures { bits })));
    }
    let impossible = |field| OpenError::Superblock(SuperblockError::Impossible { field });
    let layout = Layout::new(&superblock.geometry, superblock.exported_pages.into())?;
    let config = HybridConfig {
        mapping: superblock.selection.parse().map_err(|_| impossible("mapping"))?,
        persistence: match superblock.placement.as_str() {
            "disk" => Persistence::Persistent,
            "swap" => Persistence::Volatile,
            _ => return Err(impossible("persistence")),
        },
        log_blocks: superblock.low_water,
        logical_pages: superblock.exported_pages,
        header_pages: layout.header_pages,
        reserved_segments: layout.reserved_segments,
    };
    config.check(&superblock.geometry)?;
    let store = Formatted::new(device, superblock.exported_pages.into(), superblock.encode()?)?;
    let mut hybrid = Hybrid::without_segments(store, config)?;
    hybrid.recover()?;
    Ok(hybrid)
}

/// The superblock of the anchor if one flipped bit makes it whole: it is the only copy.
fn repaired_superblock<F: Flash>(device: &mut F) -> Result<Option<Superblock>, OpenError> {
    let geometry = shown_geometry(device.geometry());
    if geometry.is_byte_programmable() {
        // Every segment header has a copy.
        return Ok(None);
    }
    let mut page = vec![0; geometry.page_bytes() as usize];
    match device.read(Ppn(0), &mut page, &mut []) {
        Ok(_) => {}
        Err(FlashError::Uncorrectable { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let Some(bytes) = page.get_mut(..SUPERBLOCK_BYTES) else { return Ok(None) };
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(superblock) = Superblock::decode(bytes)
            && superblock.geometry == geometry
        {
            return Ok(Some(superblock));
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    Ok(None)
}
