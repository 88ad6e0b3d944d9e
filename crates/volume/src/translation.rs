//! Where pages are: all of the map in memory, or a part of it.

use margay_flash::{Flash, Lpn, Ppn, ReadStatus, SegmentId};
use margay_format::{Anchor, Formatted, Superblock};
use margay_ftl::{Ftl, FtlError, MapCounters, MountError, MountReport, PagedFtl, load, load_paged};
use margay_log::{AuditError, Config, Hint, Log, Policies};

/// The translation of a disk.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a disk has one of them, which stays where it is")]
pub(crate) enum AnyFtl<F> {
    /// All of the map is in memory.
    Full(Ftl<Formatted<F>>),
    /// It is on flash.
    Paged(PagedFtl<F>),
}

/// Does the same with either.
macro_rules! either {
    ($self:expr, $ftl:ident => $what:expr) => {
        match $self {
            AnyFtl::Full($ftl) => $what,
            AnyFtl::Paged($ftl) => $what,
        }
    };
}

impl<F: Flash> AnyFtl<F> {
    pub fn format(
        device: Formatted<F>,
        superblock: &Superblock,
        config: Config,
        policies: Policies,
    ) -> Result<(Self, Anchor), FtlError> {
        if superblock.map_entries == 0 {
            let (ftl, anchor) = Ftl::format(device, superblock, config, policies)?;
            return Ok((Self::Full(ftl), anchor));
        }
        let (ftl, anchor) = PagedFtl::format(device, superblock, config, policies)?;
        Ok((Self::Paged(ftl), anchor))
    }

    pub fn open(
        mut device: Formatted<F>,
        superblock: &Superblock,
        config: Config,
        policies: Policies,
        by_checkpoint: bool,
        read_only: bool,
    ) -> Result<(Self, Option<Anchor>, MountReport), MountError> {
        if superblock.map_entries == 0 {
            let loaded = load(&mut device, superblock, by_checkpoint)?;
            let report = loaded.report.clone();
            let (ftl, anchor) = Ftl::mount(device, superblock, config, policies, loaded, read_only)?;
            return Ok((Self::Full(ftl), anchor, report));
        }
        let loaded = load_paged(&mut device, superblock, by_checkpoint)?;
        let report = loaded.report.clone();
        let (ftl, anchor) = PagedFtl::mount(device, superblock, config, policies, loaded, read_only)?;
        Ok((Self::Paged(ftl), anchor, report))
    }

    pub fn log(&self) -> &Log<Formatted<F>, Lpn> {
        either!(self, ftl => ftl.log())
    }

    pub fn limit_reads(&mut self, max_reads: u32) {
        either!(self, ftl => ftl.limit_reads(max_reads));
    }

    pub fn device_mut(&mut self) -> &mut Formatted<F> {
        either!(self, ftl => ftl.device_mut())
    }

    pub fn into_device(self) -> Formatted<F> {
        either!(self, ftl => ftl.into_device())
    }

    pub fn reset_counters(&mut self) {
        either!(self, ftl => ftl.reset_counters());
    }

    pub fn place(&mut self, lpn: Lpn) -> Result<Option<Ppn>, FtlError> {
        match self {
            Self::Full(ftl) => Ok(ftl.place(lpn)),
            Self::Paged(ftl) => ftl.place(lpn),
        }
    }

    pub fn read(&mut self, lpn: Lpn, data: &mut [u8]) -> Result<Option<ReadStatus>, FtlError> {
        either!(self, ftl => ftl.read(lpn, data))
    }

    pub fn read_run(&mut self, first: Lpn, data: &mut [u8]) -> Result<usize, FtlError> {
        either!(self, ftl => ftl.read_run(first, data))
    }

    pub fn write(&mut self, lpn: Lpn, data: &[u8], hint: Hint, now_us: u64) -> Result<(), FtlError> {
        either!(self, ftl => ftl.write(lpn, data, hint, now_us))
    }

    pub fn trim(&mut self, lpn: Lpn, now_us: u64) -> Result<(), FtlError> {
        either!(self, ftl => ftl.trim(lpn, now_us))
    }

    pub fn flush(&mut self) -> Result<(), FtlError> {
        either!(self, ftl => ftl.flush())
    }

    pub fn hold(&mut self, on: bool) -> Result<(), FtlError> {
        either!(self, ftl => ftl.hold(on))
    }

    pub fn idle_step(&mut self, budget_pages: u32) -> Result<bool, FtlError> {
        either!(self, ftl => ftl.idle_step(budget_pages))
    }

    pub fn stop(&mut self, anchor: &mut Anchor, superblock: &Superblock) -> Result<bool, FtlError> {
        either!(self, ftl => ftl.stop(anchor, superblock))
    }

    pub fn audit(&mut self) -> Result<(), AuditError> {
        either!(self, ftl => ftl.audit())
    }

    pub fn view(&self) -> Translation<'_, F> {
        let (memory_bytes, map) = match self {
            Self::Full(ftl) => (ftl.memory_bytes(), None),
            Self::Paged(ftl) => (ftl.memory_bytes(), Some((ftl.map_memory_bytes(), ftl.map_counters()))),
        };
        Translation { log: self.log(), memory_bytes, map }
    }
}

/// The translation of a disk, for what it counts.
#[derive(Debug)]
pub struct Translation<'a, F> {
    log: &'a Log<Formatted<F>, Lpn>,
    memory_bytes: u64,
    map: Option<(u64, MapCounters)>,
}

impl<'a, F: Flash> Translation<'a, F> {
    /// The log below.
    pub fn log(&self) -> &'a Log<Formatted<F>, Lpn> {
        self.log
    }

    /// Segments that were retired.
    pub fn retired_segments(&self) -> &'a [SegmentId] {
        self.log.retired_segments()
    }

    /// Bytes of memory held for pages of flash, the map included.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Of a map on flash, the bytes of memory that it holds and what it has done; `None` if all of the map is in memory.
    pub fn map_on_flash(&self) -> Option<(u64, MapCounters)> {
        self.map
    }
}
