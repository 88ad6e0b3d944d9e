use crate::options::{USUAL, config, formatted, override_policies, policies};
use crate::translation::{AnyFtl, Translation};
use crate::{FormatOptions, OpenOptions, VolumeError};
use alloc::vec::Vec;
use margay_flash::{Flash, FlashError, Geometry, Lpn, Ppn, SegmentId};
use margay_format::{Anchor, ClientKind, Formatted, Layout, Store, Superblock, find_superblock, max_map_entries};
use margay_ftl::{FtlError, MountReport, OwnPages, min_map_bytes};
use margay_log::{Config, Hint};
use margay_policy::PlacementSpec;

/// A disk on a device: its pages by logical page number, from formatting to stopping.
///
/// A write of a page is atomic: after a power cut it is there or not. What was written or trimmed before a flush that
/// returned survives.
///
/// ```
/// use margay_media::RamFlash;
/// use margay_volume::flash::Geometry;
/// use margay_volume::{Disk, FormatOptions, Hint, OpenOptions};
///
/// let chip = RamFlash::new(Geometry::new(64, 32, 2048)?.with_spare(64));
/// let options = FormatOptions { exported_pages: Some(1500), placement: "m1".parse()?, ..FormatOptions::default() };
/// let mut disk = Disk::format(chip, &options)?;
/// disk.write(1499, &[1; 2048], Hint::None, 0)?;
/// disk.flush()?;
///
/// // After a power cut, and with another selection policy from now on.
/// let options = OpenOptions { selection: Some("greedy".parse()?), ..OpenOptions::default() };
/// let mut disk = Disk::open(disk.into_device(), &options)?;
/// assert!(disk.is_mapped(1499) && !disk.is_mapped(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Disk<F> {
    ftl: AnyFtl<F>,
    anchor: Anchor,
    superblock: Superblock,
    report: MountReport,
    read_only: bool,
}

pub(crate) fn store<F: Flash>(device: F, superblock: &Superblock) -> Result<(Formatted<F>, Config), VolumeError> {
    let store = formatted(device, superblock, OwnPages::of(superblock).owners().into())?;
    let config = config(superblock, store.layout())?;
    Ok((store, config))
}

/// The superblock of a device that holds a disk.
pub fn find<F: Flash>(device: &mut F) -> Result<Superblock, VolumeError> {
    let owner_of_copy = |superblock: &Superblock| {
        let own = OwnPages::of(superblock);
        (u64::from(own.superblock().0), u64::from(own.owners()))
    };
    let superblock = find_superblock(device, owner_of_copy)?;
    match superblock.client {
        ClientKind::Disk => Ok(superblock),
        ClientKind::FileSystem | ClientKind::Hybrid => Err(VolumeError::NotADisk),
    }
}

/// The placements that these options allow, the one to be preferred first: `lifetime` does with fewer streams where there is no
/// room for all of its open segments.
fn placements(options: &FormatOptions) -> impl Iterator<Item = PlacementSpec> {
    let with = |streams: u8| PlacementSpec::known(&format!("{USUAL}:streams={streams}"));
    let fewer = if options.placement == PlacementSpec::known(USUAL) { 2..options.placement.streams() } else { 0..0 };
    std::iter::once(options.placement).chain(fewer.rev().map(with))
}

/// Maximum of pages that a device of this shape can export with these options. `lifetime` without parameters has then as few
/// streams as it can have.
pub fn limit_pages(geometry: &Geometry, options: &FormatOptions) -> Result<u32, VolumeError> {
    let fewest = placements(options).last().expect("there is the one of the options");
    limit_pages_with(geometry, options, &fewest)
}

/// What the options say of the map.
fn with_map(superblock: Superblock, options: &FormatOptions) -> Superblock {
    let Some(map) = options.map else { return superblock };
    let max_entries = max_map_entries(superblock.geometry.page_bytes());
    let map_entries = map.entries.unwrap_or(max_entries).clamp(1, max_entries);
    Superblock { map_entries, map_memory_bytes: map.memory_bytes, ..superblock }
}

fn limit_pages_with(
    geometry: &Geometry,
    options: &FormatOptions,
    placement: &PlacementSpec,
) -> Result<u32, VolumeError> {
    let geometry = &options.store.geometry(geometry)?;
    let layout = Layout::new(geometry, u64::from(geometry.pages()))?;
    let mut superblock = with_map(options.store.superblock(geometry, ClientKind::Disk, placement), options);
    let config = config(&superblock, &layout)?;
    let streams = u32::from(placement.streams()) + u32::from(config.more_streams());
    let limit = config.limit_pages(geometry, streams).map_err(FtlError::from)?;
    superblock.exported_pages = limit;
    let own = OwnPages::of(&superblock);
    Ok(limit.saturating_sub(own.owners() - limit))
}

/// The greatest low-water mark that disks are formatted with unasked. Six streams are the most that were measured; with dozens the bound
/// would take a good part of what a device can spare.
const MAX_USUAL_LOW_WATER: u32 = 8;

/// The low-water mark that a disk should be formatted with, so that the bound on a write's work holds as far as it was measured: one
/// segment more than the placement fills at a time, since all of them may be full at once, and what is being cleaned needs another
/// (docs/disk.md, "The bound on a write's work"). At most 8; 2 on a device that has no room for more.
///
/// # Errors
/// The options do not fit the device.
pub fn usual_low_water(geometry: &Geometry, options: &FormatOptions) -> Result<u32, VolumeError> {
    let geometry = &options.store.geometry(geometry)?;
    let exported_pages = options.exported_pages.unwrap_or((u64::from(geometry.pages()) * 9 / 10) as u32);
    let layout = Layout::new(geometry, u64::from(geometry.pages()))?;
    let (used, bounding) = bounding_low_water(geometry, &layout, &options.placement, exported_pages);
    let fits = |low_water: &u32| {
        let mut options = options.clone();
        (options.store.low_water, options.store.high_water) = (*low_water, *low_water);
        let mut enough = placements(&options).filter(|placement| placement.streams() >= used);
        enough.any(|placement| {
            limit_pages_with(geometry, &options, &placement).is_ok_and(|limit| exported_pages <= limit)
        })
    };
    Ok((3..=bounding.min(MAX_USUAL_LOW_WATER)).rev().find(fits).unwrap_or(2))
}

/// The streams that a placement uses on a disk of this shape, and the low-water mark that bounds a write's work with them.
fn bounding_low_water(
    geometry: &Geometry,
    layout: &Layout,
    placement: &PlacementSpec,
    exported_pages: u32,
) -> (u8, u32) {
    let filled = f64::from(exported_pages) / f64::from(layout.data_pages(geometry));
    let used = placement.streams_used(f64::from(geometry.segments()) - filled);
    (used, u32::from(used) + 1)
}

/// Whether more pages may be programmed for a write than its bound, because the placement fills more segments at a time than
/// are kept free.
///
/// # Errors
/// The superblock names a placement or a shape that this version does not know.
pub fn may_exceed_bound(superblock: &Superblock) -> Result<bool, VolumeError> {
    let layout = Layout::new(&superblock.geometry, OwnPages::of(superblock).owners().into())?;
    let placement = superblock.placement.parse()?;
    let (_, bounding) = bounding_low_water(&superblock.geometry, &layout, &placement, superblock.exported_pages);
    Ok(superblock.low_water < bounding)
}

/// The least memory that the map of a disk with these options can have on flash, in bytes.
///
/// # Errors
/// The options do not fit the device.
pub fn min_map_memory_bytes(geometry: &Geometry, options: &FormatOptions) -> Result<u64, VolumeError> {
    let geometry = options.store.geometry(geometry)?;
    Ok(min_map_bytes(OwnPages::of(&superblock_of(&geometry, options)?)))
}

fn superblock(geometry: &Geometry, options: &FormatOptions) -> Result<Superblock, VolumeError> {
    let superblock = superblock_of(geometry, options)?;
    let (memory_bytes, min_bytes) = (superblock.map_memory_bytes, min_map_bytes(OwnPages::of(&superblock)));
    match superblock.map_entries > 0 && memory_bytes < min_bytes {
        true => Err(VolumeError::MapMemory { memory_bytes, min_bytes }),
        false => Ok(superblock),
    }
}

fn superblock_of(geometry: &Geometry, options: &FormatOptions) -> Result<Superblock, VolumeError> {
    let limit = limit_pages(geometry, options)?;
    let exported_pages = options.exported_pages.unwrap_or((u64::from(geometry.pages()) * 9 / 10) as u32);
    if exported_pages > limit || exported_pages == 0 {
        let bytes = |pages: u32| u64::from(pages) * u64::from(geometry.page_bytes());
        return Err(VolumeError::TooLarge {
            exported_bytes: bytes(exported_pages),
            raw_bytes: geometry.bytes(),
            limit_bytes: bytes(limit),
            percent: 100.0 * f64::from(limit) / f64::from(geometry.pages()),
        });
    }
    check_ranges(&options.read_only_ranges, exported_pages, geometry.page_bytes())?;
    let read_only_ranges = options.read_only_ranges.clone();
    let has_room = |placement: &PlacementSpec| {
        limit_pages_with(geometry, options, placement).is_ok_and(|limit| exported_pages <= limit)
    };
    let placement = placements(options).find(has_room).expect("the last one has room");
    let superblock = with_map(options.store.superblock(geometry, ClientKind::Disk, &placement), options);
    Ok(Superblock { exported_pages, read_only_ranges, ..superblock })
}

/// Refuses ranges, as first page and number of pages, that do not lie on a disk.
fn check_ranges(ranges: &[(u32, u32)], exported_pages: u32, page_bytes: u32) -> Result<(), VolumeError> {
    let bytes = |pages: u64| pages * u64::from(page_bytes);
    for (first, count) in ranges {
        let (first, end) = (u64::from(*first), u64::from(*first) + u64::from(*count));
        if end > exported_pages.into() {
            let capacity_bytes = bytes(exported_pages.into());
            return Err(VolumeError::RangePastEnd { start: bytes(first), end: bytes(end), capacity_bytes });
        }
    }
    Ok(())
}

impl<F: Flash> Disk<F> {
    /// Formats a device: all that is on it is lost. Segments that cannot be erased are retired. Fails, with the device as it
    /// was, if the options do not fit it. If so many segments cannot be erased that what is to be exported has no room, it fails,
    /// too, and the device is not formatted then.
    pub fn format(device: F, options: &FormatOptions) -> Result<Self, VolumeError> {
        let superblock = superblock(&options.store.geometry(device.geometry())?, options)?;
        let (store, config) = store(device, &superblock)?;
        let store = store.used_before(options.store.erases.clone());
        let policies = policies(&superblock, &config)?;
        let (ftl, anchor) = AnyFtl::format(store, &superblock, config, policies)?;
        let disk = Self { ftl, anchor, superblock, report: MountReport::default(), read_only: false };
        match disk.check_room() {
            Ok(()) => Ok(disk),
            Err(error) => {
                disk.unformat()?;
                Err(error)
            }
        }
    }

    /// Whether what it exports has room beside the segments that are retired.
    fn check_room(&self) -> Result<(), VolumeError> {
        let bad = self.ftl.log().retired_segments().len() as u32;
        let (limit, data_pages) = self.limit_pages()?;
        let owners = OwnPages::of(&self.superblock).owners();
        let room = limit.saturating_sub(bad.saturating_mul(data_pages));
        if bad == 0 || owners <= room {
            return Ok(());
        }
        let exported = self.superblock.exported_pages;
        let (room, geometry) = (room.saturating_sub(owners - exported), &self.superblock.geometry);
        Err(VolumeError::TooManyBad {
            bad,
            exported_bytes: u64::from(exported) * u64::from(geometry.page_bytes()),
            limit_bytes: u64::from(room) * u64::from(geometry.page_bytes()),
            percent: (100.0 * f64::from(room) / f64::from(geometry.pages())).floor(),
        })
    }

    /// Leaves nothing on the device that says that it is formatted.
    fn unformat(mut self) -> Result<(), VolumeError> {
        let first = (self.ftl.log().device().layout().reserved_segments > 0).then_some(SegmentId(0));
        let open: Vec<SegmentId> = self.ftl.log().open_segments().map(|(segment, _)| segment).collect();
        for segment in first.into_iter().chain(open) {
            match self.ftl.device_mut().erase_for_format(segment) {
                Ok(()) | Err(FlashError::EraseFailed { .. } | FlashError::ProgramFailed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Store::sync(self.ftl.device_mut())?)
    }

    /// The greatest number of pages with which cleaning is possible without a retired segment, those of the disk's own
    /// included; and the data pages of a segment.
    fn limit_pages(&self) -> Result<(u32, u32), VolumeError> {
        let (superblock, layout) = (&self.superblock, self.ftl.log().device().layout());
        let config = config(superblock, layout)?;
        let streams = u32::from(self.ftl.log().placement().streams()) + u32::from(config.more_streams());
        let limit = config.limit_pages(&superblock.geometry, streams).map_err(FtlError::from)?;
        Ok((limit, layout.data_pages(&superblock.geometry)))
    }

    /// Opens a device that was formatted before.
    pub fn open(mut device: F, options: &OpenOptions) -> Result<Self, VolumeError> {
        let mut superblock = find(&mut device)?;
        let placement = options.placement.as_ref().map(|placement| placement as _);
        let max = options.max_pages_per_write;
        override_policies(&mut superblock, options.selection, placement, options.leveling, max);
        check_ranges(&options.read_only_ranges, superblock.exported_pages, superblock.geometry.page_bytes())?;
        superblock.read_only_ranges.extend(&options.read_only_ranges);
        let mut disk = Self::open_as(device, superblock, options.read_only, true)?;
        disk.ftl.limit_reads(options.max_segment_reads);
        Ok(disk)
    }

    /// Opens a device whose superblock is known; `by_checkpoint` if one of a clean stop is to be used.
    pub(crate) fn open_as(
        device: F,
        superblock: Superblock,
        read_only: bool,
        by_checkpoint: bool,
    ) -> Result<Self, VolumeError> {
        let read_only = read_only || superblock.is_read_only_to_us();
        let (store, config) = store(device, &superblock)?;
        let policies = policies(&superblock, &config)?;
        let (ftl, anchor, report) = AnyFtl::open(store, &superblock, config, policies, by_checkpoint, read_only)?;
        // Nothing may be written to what has no anchor.
        let read_only = anchor.is_none();
        Ok(Self { ftl, anchor: anchor.unwrap_or_default(), superblock, report, read_only })
    }

    /// What opening it found and cost.
    pub fn mount_report(&self) -> &MountReport {
        &self.report
    }

    /// What it was formatted with, and is run with.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Whether it was opened for reading only, or so much of the device has failed that it cannot be written safely.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Segments that may still fail for good before what the disk exports finds no room any more. Then it can only be read.
    pub fn reserve_segments(&self) -> u32 {
        let Ok((limit, data_pages)) = self.limit_pages() else { return 0 };
        let room = limit.saturating_sub(OwnPages::of(&self.superblock).owners()) / data_pages;
        room.saturating_sub(self.ftl.log().retired_segments().len() as u32)
    }

    /// The translation below, for what it counts.
    pub fn ftl(&self) -> Translation<'_, F> {
        self.ftl.view()
    }

    /// Where a page is on flash; `None` if it was never written or was trimmed.
    ///
    /// # Errors
    /// There is no such page, or the device fails while the map is read from it.
    pub fn place(&mut self, lpn: u32) -> Result<Option<Ppn>, VolumeError> {
        Ok(self.ftl.place(Lpn(lpn))?)
    }

    /// The device, for operations that are not the disk's.
    pub fn device_mut(&mut self) -> &mut F {
        self.ftl.device_mut().device_mut()
    }

    /// Resets the counters; erase counts are kept.
    pub fn reset_counters(&mut self) {
        self.ftl.reset_counters();
    }

    fn check_writable(&self) -> Result<(), VolumeError> {
        if self.read_only { Err(VolumeError::ReadOnly) } else { Ok(()) }
    }

    /// Reads a page; false, with `page` untouched, if it was never written or was trimmed.
    pub fn read(&mut self, lpn: u32, page: &mut [u8]) -> Result<bool, VolumeError> {
        Ok(self.ftl.read(Lpn(lpn), page)?.is_some())
    }

    /// As [`margay_ftl::Ftl::read_run`].
    pub(crate) fn read_run(&mut self, first: u32, pages: &mut [u8]) -> Result<usize, VolumeError> {
        Ok(self.ftl.read_run(Lpn(first), pages)?)
    }

    /// Whether a page was written and not trimmed since. One of which that cannot be found out was.
    pub fn is_mapped(&mut self, lpn: u32) -> bool {
        !matches!(self.ftl.place(Lpn(lpn)), Ok(None) | Err(FtlError::OutOfRange { .. }))
    }

    /// Writes a page. `now_us` is the time since formatting, in microseconds, as the policies see it; any clock that
    /// does not go back will do.
    pub fn write(&mut self, lpn: u32, page: &[u8], hint: Hint, now_us: u64) -> Result<(), VolumeError> {
        self.check_writable()?;
        Ok(self.ftl.write(Lpn(lpn), page, self.hint(lpn, hint), now_us)?)
    }

    /// With `on`, pages written from now on may reach the device together, which is quicker; without, returns when they have.
    /// After an error they are kept, can be read, and are tried again before the next change.
    pub fn hold(&mut self, on: bool) -> Result<(), VolumeError> {
        Ok(self.ftl.hold(on)?)
    }

    fn hint(&self, lpn: u32, hint: Hint) -> Hint {
        let in_range = |(first, count): &(u32, u32)| lpn.checked_sub(*first).is_some_and(|at| at < *count);
        if self.superblock.read_only_ranges.iter().any(in_range) { Hint::ReadOnly } else { hint }
    }

    /// Forgets a page. Trimming one that was never written does nothing.
    pub fn trim(&mut self, lpn: u32, now_us: u64) -> Result<(), VolumeError> {
        self.check_writable()?;
        Ok(self.ftl.trim(Lpn(lpn), now_us)?)
    }

    /// Returns when everything written and trimmed so far survives a power cut.
    pub fn flush(&mut self) -> Result<(), VolumeError> {
        if self.read_only { Ok(()) } else { Ok(self.ftl.flush()?) }
    }

    /// Works for a moment of idle time, programming about `budget_pages` pages at the most; false if there is nothing
    /// to do.
    pub fn idle(&mut self, budget_pages: u32) -> Result<bool, VolumeError> {
        if self.read_only { Ok(false) } else { Ok(self.ftl.idle_step(budget_pages)?) }
    }

    /// Stops cleanly and gives the device back. Says whether there was room for a checkpoint, which makes the next
    /// opening fast.
    pub fn stop(mut self) -> Result<(F, bool), VolumeError> {
        let stopped = self.end()?;
        Ok((self.into_device(), stopped))
    }

    /// As [`Disk::stop`], but keeps the disk, which must not be used any more, for what it counts.
    pub fn end(&mut self) -> Result<bool, VolumeError> {
        if self.read_only {
            return Ok(false);
        }
        let stopped = self.ftl.stop(&mut self.anchor, &self.superblock)?;
        let retired = self.ftl.log().retired_segments().to_vec();
        self.ftl.device_mut().give_up(&retired)?;
        Ok(stopped)
    }

    /// Gives the device back as a power cut would leave it.
    pub fn into_device(self) -> F {
        self.ftl.into_device().into_device()
    }

    /// Recomputes every count and compares. O(pages).
    pub fn audit(&mut self) -> Result<(), margay_log::AuditError> {
        self.ftl.audit()
    }
}
