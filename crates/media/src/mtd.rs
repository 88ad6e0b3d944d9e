use crate::ram::{check_page, check_part, check_run};
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};
use margay_mtd::{Info, Mtd, OpenError, ReadError, Stats};
use std::fmt;
use std::io;
use std::path::Path;

/// So many erases fail one after the other, and none has succeeded: then it is not the segments that have failed.
const MAX_FAILED_ERASES: usize = 16;
/// Bytes of a page, and of a spare area, over which the kernel is not believed.
const MAX_BYTES: u32 = 65_536;

/// What is asked of a driver; the kernel's, or one of a test.
trait Driver: fmt::Debug + Send {
    fn info(&self) -> &Info;
    fn read(&self, at: u64, data: &mut [u8], oob: &mut [u8]) -> Result<u32, ReadError>;
    fn write(&self, at: u64, data: &[u8], oob: &[u8]) -> io::Result<()>;
    fn erase(&self, at: u64) -> io::Result<()>;
    fn is_bad(&self, at: u64) -> io::Result<bool>;
    fn mark_bad(&self, at: u64) -> io::Result<()>;
    fn stats(&self) -> io::Result<Stats>;
}

impl Driver for Mtd {
    fn info(&self) -> &Info {
        Self::info(self)
    }

    fn read(&self, at: u64, data: &mut [u8], oob: &mut [u8]) -> Result<u32, ReadError> {
        if self.info().oob_bytes == 0 { self.read_bytes(at, data) } else { Self::read(self, at, data, oob) }
    }

    fn write(&self, at: u64, data: &[u8], oob: &[u8]) -> io::Result<()> {
        if self.info().oob_bytes == 0 { self.write_bytes(at, data) } else { Self::write(self, at, data, oob) }
    }

    fn erase(&self, at: u64) -> io::Result<()> {
        Self::erase(self, at)
    }

    fn is_bad(&self, at: u64) -> io::Result<bool> {
        Self::is_bad(self, at)
    }

    fn mark_bad(&self, at: u64) -> io::Result<()> {
        Self::mark_bad(self, at)
    }

    fn stats(&self) -> io::Result<Stats> {
        Self::stats(self)
    }
}

/// A chip of raw flash that Linux shows as an MTD (`/dev/mtd0`).
///
/// A segment is an erase block, a page of NAND is a page of the chip, and its spare area what the ECC leaves of it. On flash
/// that is programmed byte by byte (NOR) the pages are a choice: 4 KiB, and less where there would be fewer than 16 in a
/// segment. Segments that are marked bad read as erased and fail to be erased, so that whoever formats the chip retires them;
/// one whose erase fails is marked at once, but not before an erase of another has succeeded: a chip whose driver or wiring is
/// wrong keeps its marks as they are.
#[derive(Debug)]
pub struct MtdFlash {
    driver: Box<dyn Driver>,
    geometry: Geometry,
    /// Segments that are marked bad.
    bad: Vec<bool>,
    /// Segments whose erases failed before any has succeeded, which may be the fault of the driver: not marked yet.
    unmarked: Vec<SegmentId>,
    /// An erase has succeeded since it was opened.
    has_erased: bool,
    /// Programming a byte would set it, not clear bits of it: the driver's flash is memory.
    is_memory: bool,
}

/// Why a chip cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MtdError {
    /// It cannot be opened.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// It has failed.
    #[error("the driver of the chip failed: {0}")]
    Io(#[from] io::Error),
    /// What the driver says of its shape cannot be, or cannot be used.
    #[error("the driver says that the chip has {0}")]
    Shape(String),
    /// Hardly any segment can be used.
    #[error(
        "{bad} of the chip's {segments} segments are marked bad, which says more of its driver than of the chip: look at what the driver takes it for (dmesg, /proc/mtd)"
    )]
    AllBad {
        /// Segments that are marked bad.
        bad: usize,
        /// All segments.
        segments: u32,
    },
    /// It cannot be programmed.
    #[error("the chip or its driver is write-protected: it can only be read (--read-only)")]
    WriteProtected,
}

impl MtdError {
    /// Whether another process uses the chip.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::Open(OpenError::InUse))
    }
}

fn io_error(error: &io::Error) -> FlashError {
    FlashError::Io { code: error.raw_os_error().unwrap_or(0) }
}

/// Whether the chip itself has failed, for good.
fn is_failure_of_chip(error: &io::Error) -> bool {
    error.raw_os_error() == Some(5)
}

/// Bytes of a page of flash that is programmed byte by byte.
fn page_of_nor(erase_bytes: u32) -> u32 {
    (erase_bytes / 16).clamp(512, 4096)
}

/// The shape of a chip, if what its driver says makes sense.
fn geometry(info: &Info) -> Result<Geometry, MtdError> {
    let shape = |text: String| Err(MtdError::Shape(text));
    let Info { size_bytes, erase_bytes, write_bytes, oob_bytes, free_oob_bytes, .. } = *info;
    if info.erase_regions > 1 {
        return shape(format!(
            "erase blocks of {} different sizes, where all of them have to be the same; a partition with one size can be used",
            info.erase_regions
        ));
    }
    if erase_bytes == 0 || size_bytes == 0 || size_bytes % u64::from(erase_bytes) != 0 {
        return shape(format!("{size_bytes} bytes in erase blocks of {erase_bytes}, which is no whole number of them"));
    }
    if write_bytes == 0 || erase_bytes % write_bytes != 0 || write_bytes > MAX_BYTES {
        return shape(format!(
            "pages of {write_bytes} bytes in erase blocks of {erase_bytes}; pages of 1 to {MAX_BYTES} bytes that fill an erase block can be used"
        ));
    }
    if oob_bytes > MAX_BYTES || free_oob_bytes > oob_bytes {
        return shape(format!(
            "{free_oob_bytes} free bytes in spare areas of {oob_bytes}; spare areas of up to {MAX_BYTES} bytes can be used"
        ));
    }
    let is_nor = info.is_bit_writable && write_bytes == 1;
    let page_bytes = if is_nor { page_of_nor(erase_bytes) } else { write_bytes };
    let (segments, pages) = (size_bytes / u64::from(erase_bytes), erase_bytes / page_bytes);
    let geometry = u32::try_from(segments).ok().and_then(|segments| Geometry::new(segments, pages, page_bytes).ok());
    let Some(geometry) = geometry.filter(|_| pages * page_bytes == erase_bytes) else {
        return shape(format!(
            "{segments} erase blocks of {erase_bytes} bytes, in pages of {page_bytes}; 2 erase blocks of 2 pages and more can be used, up to 2^32 - 1 pages"
        ));
    };
    Ok(if is_nor { geometry.byte_programmable() } else { geometry.with_spare(free_oob_bytes) })
}

impl MtdFlash {
    /// Whether this names a device of the system rather than a file, so that it can be no image.
    pub fn is_device(path: &Path) -> bool {
        margay_mtd::is_device(path)
    }

    /// Opens a chip by its character device and locks it: for itself alone, or with `read_only` for all who only read it.
    ///
    /// # Errors
    /// It is no MTD, in use, fails, or says of itself what cannot be.
    pub fn open(path: &Path, read_only: bool) -> Result<Self, MtdError> {
        let mtd = Mtd::open(path, read_only)?;
        if !read_only && !mtd.info().is_writable {
            return Err(MtdError::WriteProtected);
        }
        let is_memory = mtd.info().kind == margay_mtd::Kind::Ram;
        Ok(Self { is_memory, ..Self::with(Box::new(mtd))? })
    }

    fn with(driver: Box<dyn Driver>) -> Result<Self, MtdError> {
        let geometry = geometry(driver.info())?;
        let segments = (0..u64::from(geometry.segments())).map(|id| id * u64::from(driver.info().erase_bytes));
        let bad: Vec<bool> = segments.map(|at| driver.is_bad(at)).collect::<Result<_, _>>()?;
        let bad_count = bad.iter().filter(|is_bad| **is_bad).count();
        if bad_count * 2 > bad.len() {
            return Err(MtdError::AllBad { bad: bad_count, segments: geometry.segments() });
        }
        let chip = Self { driver, geometry, bad, unmarked: Vec::new(), has_erased: false, is_memory: false };
        // A driver may refuse to read what is marked bad.
        let last_good = chip.bad.iter().rposition(|is_bad| !is_bad).unwrap_or(0);
        let last = (last_good as u32 + 1) * geometry.pages_per_segment() - 1;
        let (mut page, mut spare) = (vec![0; geometry.page_bytes() as usize], vec![0; geometry.spare_bytes() as usize]);
        if let Err(ReadError::Io(error)) = chip.driver.read(chip.at(Ppn(last)), &mut page, &mut spare) {
            let size = chip.driver.info().size_bytes;
            return Err(MtdError::Shape(format!("{size} bytes, but page {last} cannot be read: {error}")));
        }
        Ok(chip)
    }

    /// Segments that are marked bad, in ascending order.
    pub fn bad_segments(&self) -> impl Iterator<Item = SegmentId> + '_ {
        (0..).zip(&self.bad).filter(|(_, is_bad)| **is_bad).map(|(id, _)| SegmentId(id))
    }

    /// What the driver has counted since it was loaded. Fails where it does not count.
    pub fn stats(&self) -> io::Result<Stats> {
        self.driver.stats()
    }

    /// Whether something was programmed on the first page of a segment, or it cannot be read: the chip is not new.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn is_used(&mut self) -> Result<bool, FlashError> {
        let mut page = vec![0; self.geometry.page_bytes() as usize];
        for segment in (0..self.geometry.segments()).map(SegmentId) {
            match self.read(self.geometry.first_page(segment), &mut page, &mut []) {
                Ok(_) if page.iter().all(|byte| *byte == 0xFF) => {}
                Ok(_) | Err(FlashError::Uncorrectable { .. }) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn at(&self, ppn: Ppn) -> u64 {
        u64::from(ppn.0) * u64::from(self.geometry.page_bytes())
    }

    fn is_bad(&self, ppn: Ppn) -> bool {
        self.bad[self.geometry.segment_of(ppn).index()]
    }

    fn status(&self, corrected_bits: u32) -> ReadStatus {
        if corrected_bits >= self.driver.info().bitflip_threshold { ReadStatus::Corrected } else { ReadStatus::Clean }
    }

    fn write(&mut self, ppn: Ppn, at: u64, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        if self.is_bad(ppn) {
            return Err(FlashError::ProgramFailed { ppn });
        }
        self.driver.write(at, data, spare).map_err(|error| {
            if is_failure_of_chip(&error) { FlashError::ProgramFailed { ppn } } else { io_error(&error) }
        })
    }

    /// Marks a segment as bad, where the chip has such marks.
    fn mark_bad(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let at = self.at(self.geometry.first_page(segment));
        self.bad[segment.index()] = true;
        match self.driver.mark_bad(at) {
            // Write-protected: then it is not the segment that has failed.
            Err(error) if error.raw_os_error() == Some(30) => {
                self.bad[segment.index()] = false;
                Err(io_error(&error))
            }
            // Who keeps something on the chip remembers it too, so that the mark is no more than told to others.
            _ => Ok(()),
        }
    }
}

impl Flash for MtdFlash {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        check_page(&self.geometry, ppn, data.len(), spare.len())?;
        if self.is_bad(ppn) {
            // What the maker left there, or who marked it, is nobody's data.
            data.fill(0xFF);
            spare.fill(0xFF);
            return Ok(ReadStatus::Clean);
        }
        match self.driver.read(self.at(ppn), data, spare) {
            Ok(bits) => Ok(self.status(bits)),
            Err(ReadError::Uncorrectable) => Err(FlashError::Uncorrectable { ppn }),
            Err(ReadError::Io(error)) => Err(io_error(&error)),
        }
    }

    fn read_run(&mut self, first: Ppn, data: &mut [u8], spare: &mut [u8]) -> bool {
        let Some(pages) = check_run(&self.geometry, first, data.len(), spare.len()) else { return false };
        let at = self.at(first);
        !pages.into_iter().any(|ppn| self.is_bad(Ppn(ppn)))
            && self.driver.read(at, data, spare).is_ok_and(|bits| self.status(bits) == ReadStatus::Clean)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        check_page(&self.geometry, ppn, data.len(), spare.len())?;
        self.write(ppn, self.at(ppn), data, spare)
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let segments = self.geometry.segments();
        if segment.0 >= segments {
            return Err(FlashError::SegmentOutOfRange { segment, segments });
        }
        if self.bad[segment.index()] {
            return Err(FlashError::EraseFailed { segment });
        }
        match self.driver.erase(self.at(self.geometry.first_page(segment))) {
            Ok(()) => {
                self.has_erased = true;
                std::mem::take(&mut self.unmarked).into_iter().try_for_each(|failed| self.mark_bad(failed))
            }
            Err(error) if is_failure_of_chip(&error) => {
                if self.has_erased {
                    self.mark_bad(segment)?;
                } else if self.unmarked.len() >= MAX_FAILED_ERASES.min(self.bad.len() / 2) {
                    return Err(io_error(&error));
                } else if !self.unmarked.contains(&segment) {
                    self.unmarked.push(segment);
                }
                Err(FlashError::EraseFailed { segment })
            }
            Err(error) => Err(io_error(&error)),
        }
    }

    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        check_part(&self.geometry, ppn, offset_bytes, bytes.len())?;
        match self.driver.read(self.at(ppn) + u64::from(offset_bytes), bytes, &mut []) {
            Ok(bits) => Ok(self.status(bits)),
            Err(ReadError::Uncorrectable) => Err(FlashError::Uncorrectable { ppn }),
            Err(ReadError::Io(error)) => Err(io_error(&error)),
        }
    }

    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        check_part(&self.geometry, ppn, offset_bytes, bytes.len())?;
        let at = self.at(ppn) + u64::from(offset_bytes);
        if !self.is_memory {
            return self.write(ppn, at, bytes, &[]);
        }
        let mut all = vec![0; bytes.len()];
        self.read_part(ppn, offset_bytes, &mut all)?;
        all.iter_mut().zip(bytes).for_each(|(old, new)| *old &= new);
        self.write(ppn, at, &all, &[])
    }

    fn retire(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let is_known = self.bad.get(segment.index()).is_none_or(|is_bad| *is_bad);
        if is_known || self.unmarked.contains(&segment) { Ok(()) } else { self.mark_bad(segment) }
    }
}

#[cfg(test)]
mod tests;
