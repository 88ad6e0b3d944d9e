//! A file system on any device, its policies chosen at run time: format, open, check, and mounting by FUSE.

mod fuse;
mod metrics;

pub use fuse::{MountOptions, mount};
pub use metrics::{Metrics, prometheus};

use margay_flash::{Flash, Geometry};
use margay_format::{ClientKind, Formatted, Layout, LayoutError, Superblock, SuperblockError, shown_geometry};
use margay_fs::{AllocatorSpec, FoundFs, Fs, FsCheck, FsError, FsMountError, find, owners};
use margay_log::{Config, ConfigError, Policies};
use margay_policy::{LevelingSpec, SelectionSpec, Sizing, SpecError};
use std::time::{SystemTime, UNIX_EPOCH};

/// A file system whose policies were chosen at run time.
pub type FileSystem<F> = Fs<Formatted<F>>;

/// Why a file system could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The device does not suit the format.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The superblock cannot be written.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// The device is too small for the policies.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A policy's text.
    #[error(transparent)]
    Policy(#[from] SpecError),
    /// It cannot be found or mounted.
    #[error(transparent)]
    Mount(#[from] FsMountError),
    /// A file operation failed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// FUSE cannot be used.
    #[error("{path}: cannot be mounted: {error}. {advice}")]
    Fuse {
        /// The mount point.
        path: String,
        /// What went wrong.
        error: std::io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// The operating system.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// How a device is formatted.
#[derive(Clone, Debug, PartialEq)]
pub struct FormatOptions {
    /// Selection policy.
    pub selection: SelectionSpec,
    /// Allocator.
    pub allocator: AllocatorSpec,
    /// Leveling policy.
    pub leveling: LevelingSpec,
    /// Most pages programmed for one page that is written.
    pub max_pages_per_write: u32,
    /// Cleaning starts when fewer segments are free; at least 2.
    pub low_water: u32,
    /// Cleaning stops when so many segments are free.
    pub high_water: u32,
    /// Identifies the file system.
    pub uuid: [u8; 16],
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            selection: SelectionSpec::known("cost-benefit"),
            allocator: AllocatorSpec::known("predictive"),
            leveling: LevelingSpec::known("threshold"),
            max_pages_per_write: 16,
            low_water: 2,
            high_water: 2,
            uuid: [0; 16],
        }
    }
}

/// How a device is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Nothing is written, not even what makes a power cut good.
    pub read_only: bool,
    /// Another selection policy than that of the superblock.
    pub selection: Option<SelectionSpec>,
    /// Another allocator.
    pub allocator: Option<AllocatorSpec>,
    /// Another leveling policy.
    pub leveling: Option<LevelingSpec>,
    /// Another bound on the pages programmed for one page that is written.
    pub max_pages_per_write: Option<u32>,
    /// Write although headers cannot be read: what they stood for is given up. Without this such a file system is
    /// opened for reading only.
    pub accept_losses: bool,
}

fn config(superblock: &Superblock, layout: &Layout) -> Result<Config, MountError> {
    Ok(Config {
        header_pages: layout.header_pages,
        summary_pages: layout.summary_pages,
        reserved_segments: layout.reserved_segments,
        max_pages_per_write: superblock.max_pages_per_write.max(1),
        low_water: superblock.low_water,
        high_water: superblock.high_water,
        read_only_stream: false,
        leveling: superblock.leveling.parse()?,
    })
}

fn policies(superblock: &Superblock, config: &Config) -> Result<Policies, MountError> {
    let sizing = Sizing {
        segments: superblock.geometry.segments(),
        data_pages: config.data_pages(&superblock.geometry),
        exported_pages: superblock.exported_pages,
        seed: u64::from_le_bytes(superblock.uuid[..8].try_into().expect("8 bytes")),
    };
    Ok(Policies::for_files(superblock.selection.parse()?, superblock.placement.parse()?, sizing))
}

fn formatted<F: Flash>(device: F, superblock: &Superblock) -> Result<Formatted<F>, MountError> {
    Ok(Formatted::new(device, owners(), superblock.encode()?)?)
}

/// Problems that are logged one by one when a device is opened.
const MAX_PROBLEMS: usize = 5;

/// Streams for which room is kept, so that the allocator can be changed later.
const MIN_STREAMS: u32 = 5;

fn superblock(geometry: &Geometry, options: &FormatOptions) -> Result<Superblock, MountError> {
    let layout = Layout::new(geometry, owners())?;
    let mut superblock = Superblock {
        geometry: *geometry,
        client: ClientKind::FileSystem,
        exported_pages: 1,
        uuid: options.uuid,
        created_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        compatible: 0,
        read_only_compatible: 0,
        incompatible: 0,
        low_water: options.low_water,
        high_water: options.high_water,
        max_pages_per_write: options.max_pages_per_write,
        selection: options.selection.to_string(),
        placement: options.allocator.to_string(),
        leveling: options.leveling.to_string(),
        read_only_ranges: Vec::new(),
    };
    let streams = MIN_STREAMS.max(options.allocator.streams().into());
    superblock.exported_pages = config(&superblock, &layout)?.limit_pages(geometry, streams)?;
    Ok(superblock)
}

/// Formats a device: all that is on it is lost.
pub fn format<F: Flash>(device: F, options: &FormatOptions) -> Result<FileSystem<F>, MountError> {
    let superblock = superblock(&shown_geometry(device.geometry()), options)?;
    let store = formatted(device, &superblock)?;
    let config = config(&superblock, store.layout())?;
    let policies = policies(&superblock, &config)?;
    let mut fs = Fs::format(store, &superblock, config, policies)?;
    fs.set_time(now());
    Ok(fs)
}

/// Opens a device that was formatted before.
pub fn open<F: Flash>(mut device: F, options: &OpenOptions) -> Result<FileSystem<F>, MountError> {
    let mut superblock = find(&mut device)?;
    if let Some(selection) = options.selection {
        superblock.selection = selection.to_string();
    }
    if let Some(allocator) = options.allocator {
        superblock.placement = allocator.to_string();
    }
    if let Some(leveling) = options.leveling {
        superblock.leveling = leveling.to_string();
    }
    if let Some(most) = options.max_pages_per_write {
        superblock.max_pages_per_write = most;
    }
    let mut store = formatted(device, &superblock)?;
    let config = config(&superblock, store.layout())?;
    let found = FoundFs::load(&mut store, &superblock, true)?;
    for problem in found.problems.iter().take(MAX_PROBLEMS) {
        tracing::error!("{problem}");
    }
    if found.problems.len() > MAX_PROBLEMS {
        tracing::error!("and {} more; margay fs check names them all", found.problems.len() - MAX_PROBLEMS);
    }
    let has_losses = !found.problems.is_empty() && !options.accept_losses;
    if has_losses && !options.read_only {
        tracing::error!("some of it is lost: opened for reading only, so that nothing more is; see --accept-losses");
    }
    let read_only = options.read_only || has_losses || superblock.is_read_only_to_us();
    let policies = policies(&superblock, &config)?;
    let mut fs = Fs::mount(store, &superblock, config, policies, found, read_only)?;
    fs.set_time(now());
    Ok(fs)
}

/// Looks into every segment and reads every page in use. Changes nothing.
pub fn check<F: Flash>(mut device: F) -> Result<FsCheck, MountError> {
    let superblock = find(&mut device)?;
    let mut store = formatted(device, &superblock)?;
    Ok(FsCheck::run(&mut store, &superblock)?)
}

/// The time.
pub fn now() -> margay_fs::Time {
    time_of(SystemTime::now())
}

fn time_of(time: SystemTime) -> margay_fs::Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => margay_fs::Time { secs: since.as_secs() as i64, nanos: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            let borrow = i64::from(before.subsec_nanos() > 0);
            let nanos = if borrow == 1 { 1_000_000_000 - before.subsec_nanos() } else { 0 };
            margay_fs::Time { secs: -(before.as_secs() as i64) - borrow, nanos }
        }
    }
}
