//! Formatting a file system, mounting and stopping it.

use crate::index::Index;
use crate::recovery::FilesMap;
use crate::{Fs, FsError, Problem};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use margay_flash::{Flash, FlashError};
use margay_format::{
    ClientKind, FindError, Formatted, HOLE_PAGES, Layout, PageOwner, Superblock, encode_files_checkpoint,
    find_superblock,
};
use margay_log::{Config, Log, LogError, MountReport, Policies, Recovered, ScanError, recover};

/// Number of owners of pages there can be: it gives the layout on flash.
pub const fn owners() -> u64 {
    PageOwner::COUNT
}

/// Why a file system could not be formatted or mounted.
#[derive(Clone, Debug, PartialEq)]
pub enum FsMountError {
    /// The device has no superblock that can be used.
    Find(FindError),
    /// The device holds a disk.
    NotAFileSystem,
    /// Its state could not be recovered.
    Scan(ScanError),
    /// The log or the file system failed.
    Fs(FsError),
}

impl From<FindError> for FsMountError {
    fn from(error: FindError) -> Self {
        Self::Find(error)
    }
}

impl From<ScanError> for FsMountError {
    fn from(error: ScanError) -> Self {
        Self::Scan(error)
    }
}

impl From<FlashError> for FsMountError {
    fn from(error: FlashError) -> Self {
        Self::Fs(FsError::Log(error.into()))
    }
}

impl From<LogError> for FsMountError {
    fn from(error: LogError) -> Self {
        Self::Fs(error.into())
    }
}

impl From<FsError> for FsMountError {
    fn from(error: FsError) -> Self {
        Self::Fs(error)
    }
}

impl fmt::Display for FsMountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Find(error) => error.fmt(f),
            Self::NotAFileSystem => {
                f.write_str("the device holds a disk (serve it instead) or a paging store, no file system")
            }
            Self::Scan(error) => error.fmt(f),
            Self::Fs(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for FsMountError {}

/// The superblock of a device that holds a file system.
pub fn find<F: Flash>(device: &mut F) -> Result<Superblock, FsMountError> {
    let superblock = find_superblock(device, |_| (PageOwner::SUPERBLOCK.to_u64(), PageOwner::COUNT))?;
    match superblock.client {
        ClientKind::FileSystem => Ok(superblock),
        ClientKind::Disk | ClientKind::Hybrid => Err(FsMountError::NotAFileSystem),
    }
}

/// What was found on a device.
#[derive(Debug)]
pub struct FoundFs {
    recovered: Recovered<FilesMap>,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
    /// What was found and what it cost.
    pub report: MountReport,
}

impl FoundFs {
    /// Finds out what a device holds, with `by_checkpoint` from the checkpoint of a clean stop if there is one. Writes
    /// nothing.
    pub fn load<F: Flash>(
        device: &mut Formatted<F>,
        superblock: &Superblock,
        by_checkpoint: bool,
    ) -> Result<Self, FsMountError> {
        let mut recovered: Recovered<FilesMap> = recover(device, superblock, by_checkpoint)?;
        let problems = core::mem::take(&mut recovered.map.problems);
        Ok(Self { problems, report: recovered.report.clone(), recovered })
    }

    /// Erases of each segment, by number, as far as they are known.
    pub fn erases(&self) -> Vec<u32> {
        self.recovered.erases()
    }

    pub(crate) fn index(&self) -> &Index {
        &self.recovered.map.index
    }
}

impl<F: Flash> Fs<Formatted<F>> {
    /// Formats a device: all that is on it is lost. Segments that cannot be erased are retired.
    pub fn format(
        device: Formatted<F>,
        superblock: &Superblock,
        config: Config,
        policies: Policies,
    ) -> Result<Self, FsMountError> {
        let pages = superblock.exported_pages;
        let mut index = Index::new(superblock.geometry.page_bytes(), false);
        index.hole_pages = superblock.incompatible & HOLE_PAGES != 0;
        let copy = PageOwner::SUPERBLOCK;
        let (log, anchor) = Log::format(device, superblock, config, policies, pages, &mut index, copy)?;
        let mut fs = Self::on(log, index, pages.into());
        fs.anchor = anchor;
        fs.superblock = Some(Box::new(superblock.clone()));
        fs.make_root(0o755)?;
        fs.sync()?;
        Ok(fs)
    }

    /// Mounts a device as it was found. Without `read_only`, makes what a power cut left safe first.
    pub fn mount(
        device: Formatted<F>,
        superblock: &Superblock,
        config: Config,
        policies: Policies,
        found: FoundFs,
        read_only: bool,
    ) -> Result<Self, FsMountError> {
        let FoundFs { recovered: Recovered { map, restored, work, .. }, report, .. } = found;
        let pages = superblock.exported_pages;
        let log = Log::restore(device, config, policies, pages, &restored).map_err(LogError::from)?;
        let mut fs = Self::on(log, map.index, pages.into());
        fs.superblock = Some(Box::new(superblock.clone()));
        for (object, node) in fs.index.iter() {
            fs.log.placement_mut().recall_file(object, node.heat);
        }
        (fs.read_only, fs.report) = (read_only, report);
        if read_only {
            return Ok(fs);
        }
        let Some(anchor) = fs.log.start(&mut fs.index, superblock, &restored, work)? else {
            fs.read_only = true;
            return Ok(fs);
        };
        fs.anchor = anchor;
        let repaired =
            fs.list_all_holes().and_then(|()| map.repair.into_iter().try_for_each(|page| fs.write_headers(page)));
        match repaired {
            Ok(()) => {}
            // A device that is worn out is still to be read.
            Err(FsError::NoSpace | FsError::Log(LogError::NoSpace { .. })) => fs.read_only = true,
            Err(error) => return Err(error.into()),
        }
        Ok(fs)
    }

    /// Stops cleanly: everything is written, and a checkpoint if there is room for one, so that the next mount is
    /// fast. The file system must not be used any more.
    pub fn stop(&mut self) -> Result<bool, FsError> {
        if self.read_only {
            return Ok(false);
        }
        self.sync()?;
        match self.destroy_orphans() {
            Ok(()) => {}
            // On a device that is worn out they stay orphans, as after a power cut.
            Err(FsError::NoSpace | FsError::Log(LogError::NoSpace { .. })) => return Ok(false),
            Err(error) => return Err(error),
        }
        let Some(superblock) = self.superblock.clone() else { return Ok(false) };
        let encode = |log: &Log<_, _>, index: &Index| encode_files_checkpoint(&superblock, &log.state(), index.pages());
        let stopped = self.log.stop(&mut self.index, &mut self.anchor, &superblock, encode)?;
        let retired = self.log.retired_segments().to_vec();
        self.log.device_mut().give_up(&retired).map_err(LogError::from)?;
        Ok(stopped)
    }

    fn destroy_orphans(&mut self) -> Result<(), FsError> {
        let orphans: Vec<u32> = self.index.iter().filter(|(_, node)| node.orphan).map(|(object, _)| object).collect();
        if orphans.is_empty() {
            return Ok(());
        }
        orphans.into_iter().try_for_each(|object| self.destroy(object))?;
        self.sync()
    }

    /// Where everything lies on the device.
    pub fn layout(&self) -> &Layout {
        self.log.device().layout()
    }

    /// Segments that were retired.
    pub fn retired_segments(&self) -> usize {
        self.log.retired_segments().len()
    }
}
