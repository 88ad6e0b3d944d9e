//! Page-mapped translation: a disk on the log. Maps each logical page to the physical page that holds it.
#![no_std]
extern crate alloc;

use alloc::{vec, vec::Vec};
use core::fmt;
use margay_flash::{Flash, Lpn, Ppn, ReadStatus};
use margay_log::{AuditError, Client, Config, ConfigError, Hint, Log, LogError, Progress};
use margay_policy::{Placement, Selection};

const UNMAPPED: u32 = u32::MAX;

/// Why the disk could not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FtlError {
    /// The page lies past the exported capacity.
    OutOfRange {
        /// The page asked for.
        lpn: Lpn,
        /// Pages exported.
        exported_pages: u32,
    },
    /// The log or its device failed.
    Log(LogError),
}

impl From<LogError> for FtlError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl fmt::Display for FtlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { lpn, exported_pages } => {
                write!(f, "logical page {lpn} is past the exported capacity ({exported_pages} pages)")
            }
            Self::Log(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for FtlError {}

/// The map from logical to physical pages.
#[derive(Debug)]
struct Map(Vec<u32>);

impl Client<Lpn> for Map {
    #[inline(always)]
    fn relocated(&mut self, owner: Lpn, _: Ppn, to: Ppn) {
        self.0[owner.index()] = to.0;
    }
}

/// A disk of `exported_pages` pages on a log.
#[derive(Debug)]
pub struct Ftl<F, S, P: Placement> {
    log: Log<F, S, P, Lpn>,
    map: Map,
}

impl<F: Flash, S: Selection, P: Placement> Ftl<F, S, P> {
    /// An empty disk on an erased device.
    pub fn new(
        device: F,
        config: Config,
        selection: S,
        placement: P,
        exported_pages: u32,
    ) -> Result<Self, ConfigError> {
        let log = Log::new(device, config, selection, placement, exported_pages)?;
        Ok(Self { log, map: Map(vec![UNMAPPED; exported_pages as usize]) })
    }

    /// Pages exported.
    pub fn exported_pages(&self) -> u32 {
        self.map.0.len() as u32
    }

    #[inline(always)]
    fn mapped(&self, lpn: Lpn) -> Result<Option<Ppn>, FtlError> {
        match self.map.0.get(lpn.index()) {
            None => Err(FtlError::OutOfRange { lpn, exported_pages: self.exported_pages() }),
            Some(&UNMAPPED) => Ok(None),
            Some(&ppn) => Ok(Some(Ppn(ppn))),
        }
    }

    /// Writes a page. `data` is one page, or empty on a device without payload.
    #[inline(always)]
    pub fn write(&mut self, lpn: Lpn, data: &[u8], hint: Hint, now_us: u64) -> Result<(), FtlError> {
        let old = self.mapped(lpn)?;
        // The cleaner may move other pages while this one is written, never this one: it is invalid already.
        let to = self.log.append(&mut self.map, lpn, old, data, hint, now_us)?;
        self.map.0[lpn.index()] = to.0;
        Ok(())
    }

    /// Writes a page of the initial content: at time 0, and not counted as a host write.
    pub fn fill(&mut self, lpn: Lpn, data: &[u8], hint: Hint) -> Result<(), FtlError> {
        if let Some(old) = self.mapped(lpn)? {
            self.log.trim(old, 0);
        }
        let to = self.log.fill(&mut self.map, lpn, data, hint)?;
        self.map.0[lpn.index()] = to.0;
        Ok(())
    }

    /// Reads a page; `None`, with `data` untouched, if it was never written or was trimmed.
    pub fn read(&mut self, lpn: Lpn, data: &mut [u8]) -> Result<Option<ReadStatus>, FtlError> {
        let Some(ppn) = self.mapped(lpn)? else { return Ok(None) };
        Ok(Some(self.log.read(ppn, data)?))
    }

    /// Forgets a page. Trimming an unmapped page does nothing.
    pub fn trim(&mut self, lpn: Lpn, now_us: u64) -> Result<(), FtlError> {
        if let Some(ppn) = self.mapped(lpn)? {
            self.log.trim(ppn, now_us);
            self.map.0[lpn.index()] = UNMAPPED;
        }
        Ok(())
    }

    /// Cleans a little; see [`Log::clean_step`].
    pub fn clean_step(&mut self, budget_pages: u32) -> Result<Progress, FtlError> {
        Ok(self.log.clean_step(&mut self.map, budget_pages)?)
    }

    /// The log below.
    pub fn log(&self) -> &Log<F, S, P, Lpn> {
        &self.log
    }

    /// Counts from zero; wear stays.
    pub fn reset_counters(&mut self) {
        self.log.reset_counters();
    }

    /// Recomputes every count and compares. O(pages).
    pub fn audit(&self) -> Result<(), AuditError> {
        self.log.audit(|lpn: Lpn, ppn| self.map.0.get(lpn.index()) == Some(&ppn.0))
    }

    /// Bytes of memory held per page of flash, the map included.
    pub fn memory_bytes(&self) -> u64 {
        self.log.memory_bytes() + self.map.0.capacity() as u64 * 4
    }
}
