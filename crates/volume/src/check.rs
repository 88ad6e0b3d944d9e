use crate::VolumeError;
use crate::disk::{Disk, find, store};
use crate::torn::torn_pages;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Lpn, Ppn, SegmentId};
use margay_format::{Decoded, Formatted, FoundSegment, Store, Superblock, Tag, crc32c};
use margay_ftl::MountReport;

/// What a check found. Nothing is repaired.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// What looking into every segment found and cost.
    pub scan: MountReport,
    /// A clean stop left a checkpoint.
    pub has_checkpoint: bool,
    /// Pages that the checkpoint and the segments place differently: only with a checkpoint.
    pub differing_pages: Vec<Lpn>,
    /// Pages that hold data.
    pub mapped_pages: u32,
    /// Pages whose data cannot be read or is not what was written.
    pub unreadable_pages: Vec<(Lpn, String)>,
    /// Pages that a power cut can have torn. What they held was never flushed.
    pub torn_pages: Vec<Ppn>,
    /// A count that is wrong.
    pub audit: Option<String>,
}

impl CheckReport {
    /// Whether everything is as it should be. A page that was being programmed when the power failed is.
    pub fn is_clean(&self) -> bool {
        self.problems() == 0
    }

    /// Pages and counts that are not as they should be.
    pub fn problems(&self) -> usize {
        let damaged = self.scan.damaged.iter().filter(|ppn| !self.torn_pages.contains(ppn)).count();
        damaged + self.differing_pages.len() + self.unreadable_pages.len() + usize::from(self.audit.is_some())
    }
}

/// Recomputes everything from what is on flash: looks into every segment, compares with the checkpoint if there is
/// one, reads every page and its checksum, recounts all counts. Writes nothing.
///
/// ```
/// use margay_media::RamFlash;
/// use margay_volume::flash::Geometry;
/// use margay_volume::{Disk, FormatOptions, Hint, check};
///
/// let mut chip = RamFlash::new(Geometry::new(64, 32, 2048)?.with_spare(64));
/// let mut disk = Disk::format(&mut chip, &FormatOptions::default())?;
/// disk.write(7, &[1; 2048], Hint::None, 0)?;
/// disk.stop()?;
/// let report = check(&mut chip)?;
/// assert!(report.is_clean() && report.has_checkpoint && report.mapped_pages == 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The device holds no disk, one of a newer version, or fails.
pub fn check<F: Flash>(mut device: F) -> Result<CheckReport, VolumeError> {
    let superblock = find(&mut device)?;
    let (exported, page_bytes) = (superblock.exported_pages, superblock.geometry.page_bytes());
    let mut scanned = Disk::open_as(&mut device, superblock.clone(), true, false)?;
    // Of large disks this is what takes the most memory.
    let number = |place: Option<Ppn>| place.map_or(u32::MAX, |ppn| ppn.0);
    let places = (0..exported).map(|lpn| scanned.place(lpn).map(number)).collect::<Result<Vec<_>, _>>()?;
    let mut report = CheckReport { scan: scanned.mount_report().clone(), ..CheckReport::default() };
    drop(scanned);
    let (mut scanning, _): (Formatted<&mut F>, _) = store(&mut device, &superblock)?;
    report.torn_pages = torn_pages(&mut scanning, &report.scan.damaged)?;
    let mut disk = Disk::open_as(device, superblock, true, true)?;
    report.has_checkpoint = disk.mount_report().from_checkpoint;
    for (lpn, scanned) in (0..).zip(places) {
        let place = disk.place(lpn)?;
        report.mapped_pages += u32::from(place.is_some());
        if number(place) != scanned {
            report.differing_pages.push(Lpn(lpn));
        }
    }
    let mut page = vec![0; page_bytes as usize];
    for lpn in 0..exported {
        if let Err(error) = disk.read(lpn, &mut page) {
            report.unreadable_pages.push((Lpn(lpn), error.to_string()));
        }
    }
    report.audit = disk.audit().err().map(|error| error.to_string());
    Ok(report)
}

/// A page as it is on flash.
#[derive(Clone, Debug)]
pub struct DumpedPage {
    /// Where it is.
    pub ppn: Ppn,
    /// Its tag, or why there is none.
    pub tag: Result<Tag, String>,
    /// Whether the data is what the tag says; `None` if it was not read.
    pub is_intact: Option<bool>,
}

/// A segment as it is on flash.
#[derive(Clone, Debug)]
pub struct DumpedSegment {
    /// Its number.
    pub segment: SegmentId,
    /// What the mount's scan finds in it.
    pub found: FoundSegment,
    /// Its pages that are not erased.
    pub pages: Vec<DumpedPage>,
}

/// Reads a segment as it is on flash, page by page.
pub fn dump_segment<F: Flash>(
    device: &mut F,
    superblock: &Superblock,
    segment: SegmentId,
) -> Result<DumpedSegment, VolumeError> {
    let (mut store, _): (Formatted<&mut F>, _) = store(device, superblock)?;
    let mark = store.mark()?;
    let found = store.scan_segment(segment, mark)?;
    let geometry = *store.geometry();
    let first = geometry.first_page(segment).0 + store.layout().header_pages;
    let mut data = vec![0; geometry.page_bytes() as usize];
    let mut pages = Vec::new();
    for ppn in (first..geometry.first_page(segment).0 + geometry.pages_per_segment()).map(Ppn) {
        let (tag, is_intact) = match store.read_tagged(ppn, &mut data) {
            Ok((Decoded::Erased, _)) => continue,
            Ok((Decoded::Tag(tag), _)) => (Ok(tag), Some(tag.data_crc == crc32c(&data))),
            Ok((Decoded::Damaged, _)) => (Err("damaged tag".into()), None),
            Ok((Decoded::Void, _)) => (Err("void: given up by a mount".into()), None),
            Ok((Decoded::Newer(version), _)) => (Err(format!("tag of format {version}")), None),
            Err(error @ FlashError::Uncorrectable { .. }) => (Err(error.to_string()), None),
            Err(error) => return Err(error.into()),
        };
        pages.push(DumpedPage { ppn, tag, is_intact });
    }
    Ok(DumpedSegment { segment, found, pages })
}
