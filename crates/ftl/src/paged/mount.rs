//! Formatting a disk whose map is on flash, mounting and stopping it.

use super::PagedFtl;
use super::map::{PagedMap, Sizes};
use super::recovery::FoundMap;
use crate::{FtlError, MountError};
use alloc::vec::Vec;
use margay_flash::{Flash, Lpn};
use margay_format::{Anchor, Formatted, OwnPages, Superblock, encode_map_checkpoint};
use margay_log::{Config, Log, LogError, MountReport, Policies, Recovered, recover};

/// What was found on a device.
#[derive(Clone, Debug)]
pub struct PagedLoaded {
    recovered: Recovered<FoundMap>,
    /// What was found and what it cost.
    pub report: MountReport,
}

impl PagedLoaded {
    /// As [`crate::Loaded::erases`].
    pub fn erases(&self) -> Vec<u32> {
        self.recovered.erases()
    }
}

/// Finds out what a device holds whose map is on flash, with `by_checkpoint` from the checkpoint of a clean stop if there
/// is one. Writes nothing.
///
/// # Errors
/// Its state cannot be recovered, or it fails.
pub fn load_paged<F: Flash>(
    device: &mut Formatted<F>,
    superblock: &Superblock,
    by_checkpoint: bool,
) -> Result<PagedLoaded, MountError> {
    let recovered: Recovered<FoundMap> = recover(device, superblock, by_checkpoint)?;
    Ok(PagedLoaded { report: recovered.report.clone(), recovered })
}

fn map(superblock: &Superblock, config: &Config) -> PagedMap {
    let own = OwnPages::of(superblock);
    let slack = config.data_pages(&superblock.geometry) as usize;
    PagedMap::new(own, Sizes::new(own, superblock.map_memory_bytes, slack))
}

impl<F: Flash> PagedFtl<F> {
    /// As [`crate::Ftl::format`]; the superblock says how large translation pages are and how much memory the map has.
    ///
    /// # Errors
    /// As [`crate::Ftl::format`].
    pub fn format(
        device: Formatted<F>,
        superblock: &Superblock,
        config: Config,
        policies: Policies,
    ) -> Result<(Self, Anchor), FtlError> {
        let mut map = map(superblock, &config);
        let own = map.own;
        let (log, anchor) =
            Log::format(device, superblock, config, policies, own.owners(), &mut map, own.superblock())?;
        Ok((Self::with(log, map), anchor))
    }

    /// As [`crate::Ftl::mount`]; without an anchor the disk must only be read.
    ///
    /// # Errors
    /// As [`crate::Ftl::mount`].
    pub fn mount(
        device: Formatted<F>,
        superblock: &Superblock,
        config: Config,
        policies: Policies,
        loaded: PagedLoaded,
        read_only: bool,
    ) -> Result<(Self, Option<Anchor>), MountError> {
        let mut map = map(superblock, &config);
        let Recovered { map: found, restored, work, .. } = loaded.recovered;
        let owners = map.own.owners();
        let mut log = Log::restore(device, config, policies, owners, &restored).map_err(LogError::from)?;
        map.places = found.state.own;
        found.state.changes.into_iter().for_each(|(lpn, place)| map.changes.insert(lpn, place));
        let anchor = match read_only {
            true => None,
            false => log.start(&mut map, superblock, &restored, work)?,
        };
        Ok((Self::with(log, map), anchor))
    }

    /// As [`crate::Ftl::stop`]. The checkpoint says where translation pages are, and what has changed since they were
    /// written.
    ///
    /// # Errors
    /// As [`crate::Ftl::stop`].
    pub fn stop(&mut self, anchor: &mut Anchor, superblock: &Superblock) -> Result<bool, FtlError> {
        self.flush()?;
        let encode = |log: &Log<_, Lpn>, map: &PagedMap| {
            let counts = log.segments().ids().map(|segment| log.valid_pages_of(segment));
            encode_map_checkpoint(superblock, &log.state(), &map.places, map.changes.iter(), counts)
        };
        Ok(self.log.stop(&mut self.map, anchor, superblock, encode)?)
    }
}
