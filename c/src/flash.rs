//! The chip of the caller, by its functions.

use core::ffi::c_void;
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};

/// What the functions of a chip return. Any other value is an error that may be gone the next time.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, dead_code)]
pub enum margay_chip_status {
    /// It was done.
    MARGAY_CHIP_OK = 0,
    /// A page was read after the ECC corrected so many bits of it that it should be written again soon.
    MARGAY_CHIP_CORRECTED = 1,
    /// A page has more bit errors than the ECC corrects.
    MARGAY_CHIP_UNCORRECTABLE = 2,
    /// The chip says that this program or erase failed: the segment is used no more.
    MARGAY_CHIP_FAILED = 3,
    /// The function could not do it this time: the bus, a time-out, no power.
    MARGAY_CHIP_ERROR = 4,
}

/// The shape of a chip.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub struct margay_geometry {
    /// Units that are erased as a whole ("blocks" of NAND, "sectors" of NOR, or several of them together).
    pub segments: u32,
    /// Pages in a segment.
    pub pages_per_segment: u32,
    /// Bytes of a page, 512 to 65536.
    pub page_bytes: u32,
    /// NAND: bytes of the spare area of a page that are free for use, without ECC and the mark of bad segments; 64 and more.
    pub spare_bytes: u32,
    /// NOR: any bytes of a page can be programmed by themselves, and there is no spare area.
    pub is_nor: bool,
}

/// A chip: its shape, and functions that are called with `context`. They return one of `margay_chip_status`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct margay_chip {
    /// Given to each function.
    pub context: *mut c_void,
    /// The shape.
    pub geometry: margay_geometry,
    /// Reads `len` bytes of a page from `offset` on, and the first `spare_len` bytes of its spare area. On NAND `offset` is 0 and
    /// `len` is a page or 0; on NOR `spare_len` is 0.
    pub read: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            page: u32,
            offset: u32,
            bytes: *mut u8,
            len: u32,
            spare: *mut u8,
            spare_len: u32,
        ) -> i32,
    >,
    /// Programs them; what is left of the spare area stays erased. Pages of a segment come in ascending order, each once
    /// between two erases. On NOR parts of a page come in any order, each byte once, in multiples of 16 bytes.
    pub program: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            page: u32,
            offset: u32,
            bytes: *const u8,
            len: u32,
            spare: *const u8,
            spare_len: u32,
        ) -> i32,
    >,
    /// Erases a segment.
    pub erase: Option<unsafe extern "C" fn(context: *mut c_void, segment: u32) -> i32>,
    /// Whether a segment is marked bad, by the maker or by `mark_bad`: nothing is read from it. A segment of which a program has
    /// failed must not be marked by anybody else: what is on it is read until it has been copied. May be null.
    pub is_bad: Option<unsafe extern "C" fn(context: *mut c_void, segment: u32) -> bool>,
    /// Marks a segment bad, at a clean stop, after it has failed. May be null.
    pub mark_bad: Option<unsafe extern "C" fn(context: *mut c_void, segment: u32) -> i32>,
}

const OK: i32 = margay_chip_status::MARGAY_CHIP_OK as i32;
const CORRECTED: i32 = margay_chip_status::MARGAY_CHIP_CORRECTED as i32;
const UNCORRECTABLE: i32 = margay_chip_status::MARGAY_CHIP_UNCORRECTABLE as i32;
const FAILED: i32 = margay_chip_status::MARGAY_CHIP_FAILED as i32;

/// The shape as the library knows it; `None` if it cannot be.
pub fn geometry_of(shape: &margay_geometry) -> Option<Geometry> {
    let margay_geometry { segments, pages_per_segment, page_bytes, spare_bytes, is_nor } = *shape;
    let geometry = Geometry::new(segments, pages_per_segment, page_bytes).ok()?;
    Some(if is_nor { geometry.byte_programmable() } else { geometry.with_spare(spare_bytes) })
}

/// A chip whose functions are there and whose shape can be.
pub struct Chip {
    flash: margay_chip,
    geometry: Geometry,
}

impl Chip {
    /// `None` if a function that is needed is null, or the shape cannot be.
    ///
    /// # Safety
    /// The functions can be called with the context for as long as the chip is used.
    pub unsafe fn new(flash: &margay_chip) -> Option<Self> {
        let is_complete = flash.read.is_some() && flash.program.is_some() && flash.erase.is_some();
        let geometry = geometry_of(&flash.geometry).filter(|_| is_complete)?;
        Some(Self { flash: *flash, geometry })
    }

    fn is_bad(&self, segment: SegmentId) -> bool {
        // SAFETY: `new` asks for it.
        self.flash.is_bad.is_some_and(|is_bad| unsafe { is_bad(self.flash.context, segment.0) })
    }

    fn read_bytes(&self, ppn: Ppn, offset: u32, bytes: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        if self.is_bad(self.geometry.segment_of(ppn)) {
            // As the maker's marks want it: nothing is ever looked for in such a segment.
            bytes.fill(0xFF);
            spare.fill(0xFF);
            return Ok(ReadStatus::Clean);
        }
        let read = self.flash.read.ok_or(FlashError::Unsupported)?;
        let (len, spare_len) = (bytes.len() as u32, spare.len() as u32);
        // SAFETY: `new` asks for it; the buffers are there for the call.
        let status =
            unsafe { read(self.flash.context, ppn.0, offset, bytes.as_mut_ptr(), len, spare.as_mut_ptr(), spare_len) };
        match status {
            OK => Ok(ReadStatus::Clean),
            CORRECTED => Ok(ReadStatus::Corrected),
            UNCORRECTABLE | FAILED => Err(FlashError::Uncorrectable { ppn }),
            code => Err(FlashError::Io { code }),
        }
    }

    fn program_bytes(&self, ppn: Ppn, offset: u32, bytes: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        let program = self.flash.program.ok_or(FlashError::Unsupported)?;
        let (len, spare_len) = (bytes.len() as u32, spare.len() as u32);
        // SAFETY: as above.
        let status =
            unsafe { program(self.flash.context, ppn.0, offset, bytes.as_ptr(), len, spare.as_ptr(), spare_len) };
        match status {
            OK | CORRECTED => Ok(()),
            FAILED | UNCORRECTABLE => Err(FlashError::ProgramFailed { ppn }),
            code => Err(FlashError::Io { code }),
        }
    }
}

impl Flash for Chip {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.read_bytes(ppn, 0, data, spare)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        self.program_bytes(ppn, 0, data, spare)
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        if self.is_bad(segment) {
            return Err(FlashError::EraseFailed { segment });
        }
        let erase = self.flash.erase.ok_or(FlashError::Unsupported)?;
        // SAFETY: as above.
        match unsafe { erase(self.flash.context, segment.0) } {
            OK | CORRECTED => Ok(()),
            FAILED | UNCORRECTABLE => Err(FlashError::EraseFailed { segment }),
            code => Err(FlashError::Io { code }),
        }
    }

    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.read_bytes(ppn, offset_bytes, bytes, &mut [])
    }

    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        self.program_bytes(ppn, offset_bytes, bytes, &[])
    }

    fn retire(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        if let Some(mark_bad) = self.flash.mark_bad.filter(|_| !self.is_bad(segment)) {
            // SAFETY: as above. A mark that fails is no error: the list on flash counts.
            unsafe { mark_bad(self.flash.context, segment.0) };
        }
        Ok(())
    }
}
