use core::fmt;
use embedded_storage::nor_flash::NorFlash;
use margay_flash::{Flash, FlashError, Geometry, GeometryError, Ppn, ReadStatus, SegmentId};

/// Bytes to which the format aligns all that it programs and reads.
const ALIGNED_BYTES: usize = 16;

/// A shape that a disk cannot have on a NOR flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NorShapeError {
    /// The flash programs or reads units into which the format does not fit.
    Unit {
        /// Bytes that are programmed at a time.
        write_bytes: usize,
        /// Bytes that are read at a time.
        read_bytes: usize,
    },
    /// A segment is not a number of whole erase units, or not a number of whole pages.
    Segment {
        /// Bytes of a segment asked for.
        segment_bytes: u32,
        /// Bytes of a page asked for.
        page_bytes: u32,
        /// Bytes that are erased at a time.
        erase_bytes: usize,
    },
    /// There are too few segments, or too small ones.
    Geometry(GeometryError),
}

impl fmt::Display for NorShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unit { write_bytes, read_bytes } => write!(
                f,
                "the flash programs {write_bytes} and reads {read_bytes} bytes at a time: both have to divide {ALIGNED_BYTES}"
            ),
            Self::Segment { segment_bytes, page_bytes, erase_bytes } => write!(
                f,
                "segments of {segment_bytes} bytes and pages of {page_bytes}: a segment is a multiple of the {erase_bytes} bytes that are erased at a time, and of a page"
            ),
            Self::Geometry(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for NorShapeError {}

/// Any NOR flash of the crate `embedded-storage` as a device, in segments of one or more of its erase units. Offsets are 32 bits
/// there, so that it has up to 4 GiB. Every byte is programmed once between two erases, so that
/// [`NorFlash`] suffices and `MultiwriteNorFlash` is not asked for.
///
/// The traits have no value for data that the ECC corrected or could not correct: what is read counts as clean, and an
/// error as one that may be gone the next time. Damage is noticed by the checksums of the format all the same.
#[derive(Debug)]
pub struct NorFlashDevice<N> {
    flash: N,
    geometry: Geometry,
}

impl<N: NorFlash> NorFlashDevice<N> {
    /// Uses the whole flash, less what is left of a segment at its end. `page_bytes` are 512 to 65536; `segment_bytes` is a
    /// multiple of what is erased at a time. A segment has a header of a page and more: with 4 KiB erased at a time,
    /// segments of 16 KiB and pages of 512 bytes leave 28 of 32 pages for data.
    ///
    /// # Errors
    /// The shape cannot be.
    pub fn new(flash: N, page_bytes: u32, segment_bytes: u32) -> Result<Self, NorShapeError> {
        let (write_bytes, read_bytes, erase_bytes) = (N::WRITE_SIZE, N::READ_SIZE, N::ERASE_SIZE);
        let divides = |unit: usize| unit > 0 && ALIGNED_BYTES.is_multiple_of(unit);
        if !divides(write_bytes) || !divides(read_bytes) {
            return Err(NorShapeError::Unit { write_bytes, read_bytes });
        }
        let is_whole = page_bytes > 0
            && erase_bytes > 0
            && (segment_bytes as usize).is_multiple_of(erase_bytes)
            && segment_bytes.is_multiple_of(page_bytes)
            && (page_bytes as usize).is_multiple_of(ALIGNED_BYTES);
        if !is_whole || segment_bytes == 0 {
            return Err(NorShapeError::Segment { segment_bytes, page_bytes, erase_bytes });
        }
        let capacity_bytes = u32::try_from(flash.capacity()).unwrap_or(u32::MAX);
        let geometry = Geometry::new(capacity_bytes / segment_bytes, segment_bytes / page_bytes, page_bytes)
            .map_err(NorShapeError::Geometry)?;
        Ok(Self { flash, geometry: geometry.byte_programmable() })
    }

    /// The flash.
    pub fn flash_mut(&mut self) -> &mut N {
        &mut self.flash
    }

    /// Gives the flash back.
    pub fn into_flash(self) -> N {
        self.flash
    }

    /// Where a part of a page begins, in bytes.
    fn offset(&self, ppn: Ppn, offset_bytes: u32, len: usize) -> Result<u32, FlashError> {
        let (pages, page_bytes) = (self.geometry.pages(), self.geometry.page_bytes());
        if ppn.0 >= pages {
            return Err(FlashError::PageOutOfRange { ppn, pages });
        }
        let len_bytes = u64::from(offset_bytes) + len as u64;
        if len_bytes > page_bytes.into() {
            return Err(FlashError::BufferSize { len_bytes, page_bytes });
        }
        Ok(ppn.0 * page_bytes + offset_bytes)
    }
}

/// The traits tell nothing of an error but what was wrong with the call.
fn failed<E>(_: E) -> FlashError {
    FlashError::Io { code: 0 }
}

impl<N: NorFlash> Flash for NorFlashDevice<N> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], _: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.read_part(ppn, 0, data)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], _: &[u8]) -> Result<(), FlashError> {
        self.program_part(ppn, 0, data)
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let segments = self.geometry.segments();
        if segment.0 >= segments {
            return Err(FlashError::SegmentOutOfRange { segment, segments });
        }
        let len_bytes = self.geometry.pages_per_segment() * self.geometry.page_bytes();
        let from = segment.0 * len_bytes;
        self.flash.erase(from, from + len_bytes).map_err(failed)
    }

    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        let offset = self.offset(ppn, offset_bytes, bytes.len())?;
        self.flash.read(offset, bytes).map_err(failed)?;
        Ok(ReadStatus::Clean)
    }

    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        let offset = self.offset(ppn, offset_bytes, bytes.len())?;
        self.flash.write(offset, bytes).map_err(failed)
    }
}
