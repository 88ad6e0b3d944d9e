//! Devices, in image files and chips: whether this machine can hold what they need, and how far a scan of one has come.

use crate::args::ReadLimitArg;
use crate::failure::{Failure, of_chip, of_image};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};
use margay_host::memory_bytes;
use margay_media::{ChipStats, ImageFlash, MtdFlash};
use margay_volume::{AnyFlash, find};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What opening a device keeps in memory.
#[derive(Clone, Copy, Debug)]
pub enum Tables {
    /// A disk with all of its map.
    Disk,
    /// The same, to be checked.
    Check,
    /// A disk with its map on flash, of which so many bytes are in memory, and so many bytes for each page.
    DiskWithMapOnFlash(u64, u64),
    /// A file system without files.
    Files,
}

impl Tables {
    /// Bytes of memory, as they were measured while a checkpoint is read.
    fn memory_bytes(self, geometry: &Geometry) -> u64 {
        match self {
            Self::Disk | Self::Check => u64::from(geometry.pages()) * 40,
            Self::DiskWithMapOnFlash(map_bytes, page_bytes) => {
                u64::from(geometry.segments()) * 200 + 2 * map_bytes + u64::from(geometry.pages()) * page_bytes
            }
            Self::Files => u64::from(geometry.pages()) * 12,
        }
    }
}

/// Refuses a device for whose tables this machine has not enough memory.
pub fn check_memory(image: &Path, geometry: &Geometry, tables: Tables) -> Result<(), Failure> {
    let needed = tables.memory_bytes(geometry);
    let way_out = match tables {
        Tables::Disk | Tables::Check => {
            "larger pages take less, and so does a disk that is formatted with --map-memory"
        }
        Tables::DiskWithMapOnFlash(..) => "larger segments and pages take less",
        Tables::Files => "larger pages take less",
    };
    match memory_bytes() {
        Some(memory) if needed > memory => Err(Failure::Usage(format!(
            "{}: to open a device of {} pages takes about {} of memory, and this machine has {}; {way_out}",
            image.display(),
            geometry.pages(),
            size(needed),
            size(memory)
        ))),
        _ => Ok(()),
    }
}

/// A number of bytes as text, in the largest unit that leaves some digits.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = (0..UNITS.len() - 1).find(|unit| bytes >> (10 * unit) < 10_000).unwrap_or(UNITS.len() - 1);
    if unit == 0 {
        return format!("{bytes} bytes");
    }
    format!("{:.1} {}", bytes as f64 / (1u64 << (10 * unit)) as f64, UNITS[unit])
}

/// What takes longer than this shows how far it has come.
const SHOW_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Shown {
    bar: ProgressBar,
    started: Instant,
    is_visible: AtomicBool,
    is_over: AtomicBool,
}

/// Ends the display of progress when it is dropped; the device goes on.
#[derive(Debug)]
pub struct Progress(Arc<Shown>);

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
        self.0.bar.finish_and_clear();
    }
}

/// Opens the chip of a character device, or else an image. With `without_sync`, syncs of an image do not wait for the host's disk.
pub fn open_flash(path: &Path, read_only: bool, without_sync: bool) -> Result<AnyFlash, Failure> {
    Ok(open_with_stats(path, read_only, without_sync)?.0)
}

/// Reads of a segment of NAND without a controller that makers commonly allow between erases.
const MAX_NAND_READS: u32 = 100_000;

/// After how many reads a segment of a device is rewritten. What is recorded is to be replayed as it was, which knows of none.
pub fn max_segment_reads(asked: ReadLimitArg, path: &Path, geometry: &Geometry, is_recorded: bool) -> u32 {
    let usual = usual_segment_reads(MtdFlash::is_device(path), geometry, is_recorded);
    asked.max_segment_reads.unwrap_or(usual)
}

/// NOR is not disturbed by reads, and an image is no flash.
fn usual_segment_reads(is_chip: bool, geometry: &Geometry, is_recorded: bool) -> u32 {
    if is_chip && !geometry.is_byte_programmable() && !is_recorded { MAX_NAND_READS } else { 0 }
}

/// The same, and what the driver of a chip has counted until then; `None` for an image, or where it does not count.
pub fn open_with_stats(
    path: &Path,
    read_only: bool,
    without_sync: bool,
) -> Result<(AnyFlash, Option<ChipStats>), Failure> {
    if MtdFlash::is_device(path) {
        let chip = MtdFlash::open(path, read_only).map_err(|error| of_chip(path, &error))?;
        let stats = chip.stats().ok();
        return Ok((Box::new(chip), stats));
    }
    let image = ImageFlash::open(path, read_only).map_err(|error| of_image(path, &error))?;
    Ok((Box::new(if without_sync { image.without_sync() } else { image }), None))
}

/// A layer that shows, on a terminal, which segment is read or erased.
pub struct Watched {
    device: AnyFlash,
    shown: Arc<Shown>,
}

impl Watched {
    /// Watches a device until the progress is dropped. `what` says what is done, as in `reading flash.img`.
    pub fn new(device: AnyFlash, what: String) -> (Self, Progress) {
        let segments = device.geometry().segments();
        let bar = ProgressBar::with_draw_target(Some(segments.into()), ProgressDrawTarget::hidden()).with_message(what);
        let template = "{elapsed_precise} {wide_bar} {msg}, segment {human_pos} of {human_len}, {eta} left";
        bar.set_style(ProgressStyle::with_template(template).expect("a correct template"));
        let never = || AtomicBool::new(false);
        let shown = Arc::new(Shown { bar, started: Instant::now(), is_visible: never(), is_over: never() });
        (Self { device, shown: Arc::clone(&shown) }, Progress(shown))
    }

    /// Opens an image or a chip and watches what opening what is on it reads.
    pub fn open(image: &Path, read_only: bool, tables: Tables) -> Result<(Self, Progress), Failure> {
        Self::checked(image, open_flash(image, read_only, false)?, tables)
    }

    /// Watches what is open, if there is memory for it.
    pub fn checked(image: &Path, mut device: AnyFlash, tables: Tables) -> Result<(Self, Progress), Failure> {
        let geometry = *device.geometry();
        if let Err(problem) = check_memory(image, &geometry, tables) {
            // Of a disk only its superblock says where its map is.
            let of_page = match tables {
                Tables::Disk => 0,
                Tables::Check => 5,
                Tables::DiskWithMapOnFlash(..) | Tables::Files => return Err(problem),
            };
            let superblock = find(&mut device).ok().filter(|found| found.map_entries > 0).ok_or(problem)?;
            check_memory(image, &geometry, Tables::DiskWithMapOnFlash(superblock.map_memory_bytes, of_page))?;
        }
        Ok(Self::new(device, format!("reading {}", image.display())))
    }

    /// The device without the display.
    pub fn into_device(self) -> AnyFlash {
        self.device
    }

    fn at(&self, segment: u32) {
        let shown = &self.shown;
        if shown.is_over.load(Ordering::Relaxed) {
            return;
        }
        if !shown.is_visible.load(Ordering::Relaxed) && shown.started.elapsed() > SHOW_AFTER {
            shown.is_visible.store(true, Ordering::Relaxed);
            shown.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        shown.bar.set_position(u64::from(segment) + 1);
    }

    fn at_page(&self, ppn: Ppn) {
        if self.shown.is_over.load(Ordering::Relaxed) {
            return;
        }
        self.at(ppn.0 / self.device.geometry().pages_per_segment());
    }
}

impl Flash for Watched {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.at_page(ppn);
        self.device.read(ppn, data, spare)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        self.device.program(ppn, data, spare)
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        self.at(segment.0);
        self.device.erase(segment)
    }

    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.at_page(ppn);
        self.device.read_part(ppn, offset_bytes, bytes)
    }

    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        self.device.program_part(ppn, offset_bytes, bytes)
    }

    margay_flash::pass_on!(device: retire, has_payload, sync, shortcuts, is_cached, void_page, mark, set_mark);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_rewritten_for_their_reads_on_chips_of_nand_only_and_not_while_recording() {
        let nand = Geometry::new(64, 64, 2048).expect("a usual shape").with_spare(38);
        let nor = Geometry::new(64, 64, 2048).expect("a usual shape").byte_programmable();
        assert_eq!(usual_segment_reads(true, &nand, false), MAX_NAND_READS);
        let none = [(true, nor, false), (false, nand, false), (true, nand, true)];
        assert!(
            none.iter().all(|(is_chip, geometry, recorded)| usual_segment_reads(*is_chip, geometry, *recorded) == 0)
        );
    }
}
