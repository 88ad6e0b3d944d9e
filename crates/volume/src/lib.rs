//! A disk on raw flash, by bytes: format, open, read, write, trim, flush, check. The policies are chosen when it is
//! formatted, or when it is opened.
//!
//! Every write of up to one page that does not cross a page boundary is atomic: after a power cut it is there or
//! not. What was written or trimmed before a flush that returned survives.

mod check;
mod disk;
mod error;

pub use check::{CheckReport, DumpedPage, DumpedSegment, check, dump_segment};
use disk::Disk;
pub use error::VolumeError;
use margay_flash::{Flash, Geometry, Lpn, SegmentId};
use margay_format::{
    Anchor, ClientKind, Formatted, Layout, Record, SegmentInfo, Store, Superblock, find_superblock, shown_geometry,
};
use margay_ftl::{MountReport, OwnPages, load};
use margay_log::{Config, Counters, Hint, Uniformity};
use margay_policy::{LevelingSpec, PlacementSpec, Segments, SelectionSpec};
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// How a device is formatted.
#[derive(Clone, Debug, PartialEq)]
pub struct FormatOptions {
    /// Pages exported; `None` for nine tenths of the device.
    pub exported_pages: Option<u32>,
    /// Selection policy.
    pub selection: SelectionSpec,
    /// Placement policy.
    pub placement: PlacementSpec,
    /// Leveling policy.
    pub leveling: LevelingSpec,
    /// Most pages programmed for one host write.
    pub max_pages_per_write: u32,
    /// Cleaning starts when fewer segments are free; at least 2.
    pub low_water: u32,
    /// Cleaning stops when so many segments are free.
    pub high_water: u32,
    /// Exported pages that hold read-only data: first page and count.
    pub read_only_ranges: Vec<(u32, u32)>,
    /// Identifies the volume.
    pub uuid: [u8; 16],
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            exported_pages: None,
            selection: SelectionSpec::known("cat"),
            placement: PlacementSpec::known("m6"),
            leveling: LevelingSpec::known("threshold"),
            max_pages_per_write: 16,
            low_water: 2,
            high_water: 2,
            read_only_ranges: Vec::new(),
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
    /// Another placement policy.
    pub placement: Option<PlacementSpec>,
    /// Another leveling policy.
    pub leveling: Option<LevelingSpec>,
    /// Another bound on the pages programmed for one host write.
    pub max_pages_per_write: Option<u32>,
    /// More exported pages that hold read-only data: first page and count.
    pub read_only_ranges: Vec<(u32, u32)>,
}

/// What a volume is and how it is doing.
#[derive(Debug)]
pub struct Status<'a> {
    /// What it was formatted with, and is run with.
    pub superblock: &'a Superblock,
    /// Where its information on pages is kept.
    pub layout: Layout,
    /// What was done since it was opened.
    pub counters: &'a Counters,
    /// Its segments.
    pub segments: &'a Segments,
    /// Utilization, invalidity, uniformity.
    pub uniformity: Uniformity,
    /// Host page writes over its life, as far as known.
    pub lifetime_writes: u64,
    /// Pages programmed over its life.
    pub lifetime_programs: u64,
    /// Segments retired.
    pub retired_segments: usize,
    /// Bytes of memory it takes.
    pub memory_bytes: u64,
}

/// A mounted disk.
pub struct Volume {
    disk: Box<dyn Disk>,
    superblock: Superblock,
    layout: Layout,
    read_only: bool,
    report: MountReport,
    page: Vec<u8>,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("superblock", &self.superblock).finish_non_exhaustive()
    }
}

fn config(superblock: &Superblock, layout: &Layout) -> Result<Config, VolumeError> {
    Ok(Config {
        header_pages: layout.header_pages,
        summary_pages: layout.summary_pages,
        reserved_segments: layout.reserved_segments,
        max_pages_per_write: superblock.max_pages_per_write.max(1),
        low_water: superblock.low_water,
        high_water: superblock.high_water,
        read_only_stream: true,
        leveling: superblock.leveling.parse()?,
    })
}

fn formatted<F: Flash>(device: F, superblock: &Superblock) -> Result<Formatted<F>, VolumeError> {
    let own = OwnPages::new(superblock.exported_pages, superblock.geometry.page_bytes());
    Ok(Formatted::new(device, own.owners().into(), superblock.encode()?)?)
}

/// Most pages that a device of this shape can export with these options.
pub fn limit_pages(geometry: &Geometry, options: &FormatOptions) -> Result<u32, VolumeError> {
    let geometry = &shown_geometry(geometry);
    let layout = Layout::new(geometry, u64::from(geometry.pages()))?;
    let superblock = superblock(geometry, options, 1);
    let config = config(&superblock, &layout)?;
    let streams = u32::from(options.placement.streams()) + u32::from(config.read_only_stream);
    let limit = config.limit_pages(geometry, streams).map_err(margay_ftl::FtlError::from)?;
    let own = OwnPages::new(limit, geometry.page_bytes());
    Ok(limit.saturating_sub(own.owners() - limit))
}

fn superblock(geometry: &Geometry, options: &FormatOptions, exported_pages: u32) -> Superblock {
    Superblock {
        geometry: *geometry,
        client: ClientKind::Disk,
        exported_pages,
        uuid: options.uuid,
        created_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        compatible: 0,
        read_only_compatible: 0,
        incompatible: 0,
        low_water: options.low_water,
        high_water: options.high_water,
        max_pages_per_write: options.max_pages_per_write,
        selection: options.selection.to_string(),
        placement: options.placement.to_string(),
        leveling: options.leveling.to_string(),
        read_only_ranges: options.read_only_ranges.clone(),
    }
}

impl Volume {
    /// Formats a device: all that is on it is lost. Segments that cannot be erased are retired.
    pub fn format<F: Flash + Send + 'static>(mut device: F, options: &FormatOptions) -> Result<Self, VolumeError> {
        let geometry = shown_geometry(device.geometry());
        let limit = limit_pages(&geometry, options)?;
        let exported = options.exported_pages.unwrap_or((u64::from(geometry.pages()) * 9 / 10) as u32);
        if exported > limit || exported == 0 {
            let bytes = |pages: u32| u64::from(pages) * u64::from(geometry.page_bytes());
            return Err(VolumeError::TooLarge {
                exported_bytes: bytes(exported),
                raw_bytes: geometry.bytes(),
                limit_bytes: bytes(limit),
                percent: 100.0 * f64::from(limit) / f64::from(geometry.pages()),
            });
        }
        let superblock = superblock(&geometry, options, exported);
        // What an older volume left must not be found again.
        let reserved = Layout::new(&geometry, u64::from(exported))?.reserved_segments;
        let mut store = formatted(&mut device, &superblock)?;
        for segment in reserved..geometry.segments() {
            store.erase(SegmentId(segment), SegmentInfo { erases: 1, ..SegmentInfo::default() })?;
        }
        let mut store = formatted(device, &superblock)?;
        let mut anchor = Anchor::default();
        store.write_anchor(&mut anchor, &superblock, &Record::InUse)?;
        let (layout, config) = (*store.layout(), config(&superblock, store.layout())?);
        let disk = disk::create(store, anchor, superblock.clone(), config)?;
        let page = vec![0; geometry.page_bytes() as usize];
        Ok(Self { disk, superblock, layout, read_only: false, report: MountReport::default(), page })
    }

    /// Opens a device that was formatted before.
    pub fn open<F: Flash + Send + 'static>(mut device: F, options: &OpenOptions) -> Result<Self, VolumeError> {
        let mut superblock = find(&mut device)?;
        if let Some(selection) = options.selection {
            superblock.selection = selection.to_string();
        }
        if let Some(placement) = options.placement {
            superblock.placement = placement.to_string();
        }
        if let Some(leveling) = options.leveling {
            superblock.leveling = leveling.to_string();
        }
        if let Some(most) = options.max_pages_per_write {
            superblock.max_pages_per_write = most;
        }
        superblock.read_only_ranges.extend(&options.read_only_ranges);
        let read_only = options.read_only || superblock.is_read_only_to_us();
        let mut store = formatted(device, &superblock)?;
        let (layout, config) = (*store.layout(), config(&superblock, store.layout())?);
        let loaded = load(&mut store, &superblock, true)?;
        let report = loaded.report.clone();
        let disk = disk::mount(store, loaded, superblock.clone(), config, read_only)?;
        let page = vec![0; superblock.geometry.page_bytes() as usize];
        Ok(Self { disk, superblock, layout, read_only, report, page })
    }

    /// What opening it found and cost.
    pub fn mount_report(&self) -> &MountReport {
        &self.report
    }

    /// Bytes exported.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.superblock.exported_pages) * u64::from(self.page_bytes())
    }

    /// Bytes of a page: writes of whole pages need no reading.
    pub fn page_bytes(&self) -> u32 {
        self.superblock.geometry.page_bytes()
    }

    /// Whether it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn now_us(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64);
        now.saturating_sub(self.superblock.created_s * 1_000_000)
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<(), VolumeError> {
        let capacity_bytes = self.capacity_bytes();
        match offset.checked_add(len) {
            Some(end) if end <= capacity_bytes => Ok(()),
            end => Err(VolumeError::PastEnd { offset, end: end.unwrap_or(u64::MAX), capacity_bytes }),
        }
    }

    /// The pages that a range of bytes touches, each with the part of it.
    fn pages(&self, offset: u64, len: u64) -> impl Iterator<Item = (Lpn, Range<usize>)> + use<> {
        let page_bytes = u64::from(self.page_bytes());
        let mut at = offset;
        let end = offset + len;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (lpn, first) = ((at / page_bytes) as u32, at % page_bytes);
            let last = (first + end - at).min(page_bytes);
            at += last - first;
            Some((Lpn(lpn), first as usize..last as usize))
        })
    }

    /// Reads bytes; those never written, or trimmed, are zero.
    pub fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), VolumeError> {
        self.check_range(offset, bytes.len() as u64)?;
        let mut rest = bytes;
        for (lpn, part) in self.pages(offset, rest.len() as u64) {
            let (target, more) = rest.split_at_mut(part.len());
            if part.len() == self.page.len() {
                if !self.disk.read(lpn, target)? {
                    target.fill(0);
                }
            } else {
                self.read_page(lpn)?;
                target.copy_from_slice(&self.page[part]);
            }
            rest = more;
        }
        Ok(())
    }

    fn read_page(&mut self, lpn: Lpn) -> Result<(), VolumeError> {
        if !self.disk.read(lpn, &mut self.page)? {
            self.page.fill(0);
        }
        Ok(())
    }

    fn hint(&self, lpn: Lpn, hint: Hint) -> Hint {
        let in_range = |(first, count): &(u32, u32)| lpn.0.checked_sub(*first).is_some_and(|at| at < *count);
        if self.superblock.read_only_ranges.iter().any(in_range) { Hint::ReadOnly } else { hint }
    }

    fn check_writable(&self) -> Result<(), VolumeError> {
        if self.read_only { Err(VolumeError::ReadOnly) } else { Ok(()) }
    }

    /// Writes bytes; parts of pages are read first.
    pub fn write(&mut self, offset: u64, bytes: &[u8], hint: Hint) -> Result<(), VolumeError> {
        self.check_writable()?;
        self.check_range(offset, bytes.len() as u64)?;
        let now_us = self.now_us();
        let mut rest = bytes;
        for (lpn, part) in self.pages(offset, rest.len() as u64) {
            let (source, more) = rest.split_at(part.len());
            let hint = self.hint(lpn, hint);
            if part.len() == self.page.len() {
                self.disk.write(lpn, source, hint, now_us)?;
            } else {
                self.read_page(lpn)?;
                self.page[part].copy_from_slice(source);
                self.disk.write(lpn, &self.page, hint, now_us)?;
            }
            rest = more;
        }
        Ok(())
    }

    /// Forgets bytes: whole pages are trimmed and read as zero; parts of pages are left as they are, or with
    /// `zero` written as zeros.
    pub fn trim(&mut self, offset: u64, len: u64, zero: bool) -> Result<(), VolumeError> {
        self.check_writable()?;
        self.check_range(offset, len)?;
        let now_us = self.now_us();
        for (lpn, part) in self.pages(offset, len) {
            if part.len() == self.page.len() {
                self.disk.trim(lpn, now_us)?;
            } else if zero && self.disk.is_mapped(lpn) {
                self.read_page(lpn)?;
                self.page[part].fill(0);
                self.disk.write(lpn, &self.page, self.hint(lpn, Hint::None), now_us)?;
            }
        }
        Ok(())
    }

    /// Whether the page that holds a byte was written, and where the next page starts that differs in that, at
    /// most `end`.
    pub fn extent(&self, offset: u64, end: u64) -> (bool, u64) {
        let page_bytes = u64::from(self.page_bytes());
        let mapped = |at: u64| self.disk.is_mapped(Lpn((at / page_bytes) as u32));
        let is_mapped = mapped(offset);
        let mut next = (offset / page_bytes + 1) * page_bytes;
        while next < end && mapped(next) == is_mapped {
            next += page_bytes;
        }
        (is_mapped, next.min(end))
    }

    /// Returns when everything written and trimmed so far survives a power cut.
    pub fn flush(&mut self) -> Result<(), VolumeError> {
        if self.read_only { Ok(()) } else { self.disk.flush() }
    }

    /// Works for a moment of idle time; false if there is nothing to do.
    pub fn idle(&mut self) -> Result<bool, VolumeError> {
        if self.read_only { Ok(false) } else { self.disk.idle(self.superblock.max_pages_per_write) }
    }

    /// Stops cleanly. Says whether there was room for a checkpoint, which makes the next opening fast.
    pub fn stop(mut self) -> Result<bool, VolumeError> {
        if self.read_only { Ok(false) } else { self.disk.stop() }
    }

    /// What it is and how it is doing.
    pub fn status(&self) -> Status<'_> {
        let (lifetime_writes, lifetime_programs) = self.disk.lifetime();
        Status {
            superblock: &self.superblock,
            layout: self.layout,
            counters: self.disk.counters(),
            segments: self.disk.segments(),
            uniformity: self.disk.uniformity(),
            lifetime_writes,
            lifetime_programs,
            retired_segments: self.disk.retired(),
            memory_bytes: self.disk.memory_bytes(),
        }
    }

    /// Recomputes every count and compares.
    pub fn audit(&self) -> Result<(), margay_log::AuditError> {
        self.disk.audit()
    }
}

/// The superblock of a device that holds a disk.
pub fn find<F: Flash>(device: &mut F) -> Result<Superblock, VolumeError> {
    let owner_of_copy = |superblock: &Superblock| {
        let own = OwnPages::new(superblock.exported_pages, superblock.geometry.page_bytes());
        (u64::from(own.superblock().0), u64::from(own.owners()))
    };
    let superblock = find_superblock(device, owner_of_copy)?;
    match superblock.client {
        ClientKind::Disk => Ok(superblock),
        ClientKind::FileSystem | ClientKind::Hybrid => Err(VolumeError::NotADisk),
    }
}
