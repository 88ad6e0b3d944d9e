//! Formatting a disk, mounting and stopping it.

use crate::map::{Map, UNMAPPED};
use crate::recovery::PageMap;
use crate::{Ftl, FtlError};
use alloc::{vec, vec::Vec};
use core::fmt;
use margay_flash::{Flash, FlashError, Lpn, Ppn};
use margay_format::{Anchor, Formatted, OwnPages, Superblock, encode_disk_checkpoint};
use margay_log::{Client, Config, Log, LogError, MountReport, Policies, Recovered, ScanError, recover};

/// Why a device could not be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountError {
    /// Its state could not be recovered.
    Scan(ScanError),
    /// The log failed.
    Ftl(FtlError),
}

impl From<ScanError> for MountError {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::Flash(error) => error.into(),
            ScanError::Newer { .. } => Self::Scan(error),
        }
    }
}

impl From<FlashError> for MountError {
    fn from(error: FlashError) -> Self {
        Self::Ftl(LogError::from(error).into())
    }
}

impl From<LogError> for MountError {
    fn from(error: LogError) -> Self {
        Self::Ftl(error.into())
    }
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scan(error) => error.fmt(f),
            Self::Ftl(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for MountError {}

/// What was found on a device.
#[derive(Clone, Debug)]
pub struct Loaded {
    recovered: Recovered<PageMap>,
    /// What was found and what it cost.
    pub report: MountReport,
}

impl Loaded {
    /// Erases of each segment, by number, as far as they are known.
    pub fn erases(&self) -> Vec<u32> {
        self.recovered.erases()
    }

    /// Where a page lives.
    pub fn place(&self, lpn: Lpn) -> Option<Ppn> {
        self.recovered.map.place(lpn)
    }
}

/// Finds out what a device holds, with `by_checkpoint` from the checkpoint of a clean stop if there is one. Writes
/// nothing.
pub fn load<F: Flash>(
    device: &mut Formatted<F>,
    superblock: &Superblock,
    by_checkpoint: bool,
) -> Result<Loaded, MountError> {
    let recovered: Recovered<PageMap> = recover(device, superblock, by_checkpoint)?;
    Ok(Loaded { report: recovered.report.clone(), recovered })
}

impl<F: Flash> Ftl<Formatted<F>> {
    /// Formats a device as a disk: all that is on it is lost. Segments that cannot be erased are retired. Returns the
    /// disk, and the anchor that [`Ftl::stop`] needs.
    ///
    /// # Errors
    /// Those of the device, except that a segment fails; [`FtlError::Log`] if the configuration does not fit the device.
    pub fn format(
        device: Formatted<F>,
        superblock: &Superblock,
        config: Config,
        policies: Policies,
    ) -> Result<(Self, Anchor), FtlError> {
        let own = OwnPages::of(superblock);
        let mut map = Map::durable(own, vec![UNMAPPED; own.owners() as usize]);
        let copy = own.superblock();
        let (log, anchor) = Log::format(device, superblock, config, policies, own.owners(), &mut map, copy)?;
        Ok((Self { log, map, tally: None }, anchor))
    }

    /// Mounts a device as it was found. Without `read_only`, makes what a power cut left safe first; see
    /// [`Log::start`]. Returns the disk, and the anchor that [`Ftl::stop`] needs; without an anchor the disk must only be read.
    pub fn mount(
        device: Formatted<F>,
        superblock: &Superblock,
        config: Config,
        policies: Policies,
        loaded: Loaded,
        read_only: bool,
    ) -> Result<(Self, Option<Anchor>), MountError> {
        let own = OwnPages::of(superblock);
        let Recovered { map, restored, work, .. } = loaded.recovered;
        let mut log = Log::restore(device, config, policies, own.owners(), &restored).map_err(LogError::from)?;
        let mut map = Map::durable(own, map.into_pages());
        let anchor = match read_only {
            true => None,
            false => log.start(&mut map, superblock, &restored, work)?,
        };
        Ok((Self { log, map, tally: None }, anchor))
    }

    /// Makes room for all that can come to be kept, so that writing, trimming, reading, flushing and idle work allocate nothing
    /// from now on; see [`Log::reserve`] for the two exceptions. A stop allocates its checkpoint.
    pub fn reserve(&mut self) {
        self.map.reserve();
        self.log.reserve();
    }

    /// Stops cleanly: writes all that is pending and a checkpoint, if there is room for one, so that the next
    /// mount is fast. The disk must not be used any more.
    pub fn stop(&mut self, anchor: &mut Anchor, superblock: &Superblock) -> Result<bool, FtlError> {
        self.flush()?;
        let encode = |log: &Log<_, Lpn>, map: &Map| {
            let pages = (0..map.pages.len()).map(|owner| map.locate(Lpn(owner as u32)));
            let heat = |ppn| log.encode_page(ppn);
            encode_disk_checkpoint(superblock, &log.state(), pages, log.placement().keeps_pages().then_some(heat))
        };
        Ok(self.log.stop(&mut self.map, anchor, superblock, encode)?)
    }
}
