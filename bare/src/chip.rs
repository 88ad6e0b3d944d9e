//! A NOR chip in memory, up to 16 MiB: erase blocks of 32 KiB, pages of 1 KiB.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 1024;
const PAGES_PER_SEGMENT: u32 = 32;
const MAX_BYTES: usize = 16 << 20;

struct Memory(UnsafeCell<[u8; MAX_BYTES]>);

// SAFETY: `take` gives it away once.
unsafe impl Sync for Memory {}

#[cfg_attr(target_os = "none", unsafe(link_section = ".psram"))]
static MEMORY: Memory = Memory(UnsafeCell::new([0; MAX_BYTES]));

/// The memory of the chip, to the first who asks.
pub fn take() -> Option<&'static mut [u8]> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    // SAFETY: only the first caller gets a reference. Any content is a valid one.
    (!TAKEN.swap(true, Ordering::Relaxed)).then(|| unsafe { &mut *MEMORY.0.get() as &mut [u8] })
}

/// The chip.
#[derive(Debug)]
pub struct Chip<'a> {
    geometry: Geometry,
    bytes: &'a mut [u8],
    /// Programs and erases until the power fails in the middle of one; `None` for never.
    left: Option<u32>,
}

impl<'a> Chip<'a> {
    /// A chip of so many MiB, up to 16, with anything on it.
    pub fn new(memory: &'a mut [u8], mib: u32) -> Self {
        let bytes = &mut memory[..(mib as usize) << 20];
        let segments = bytes.len() as u32 / (PAGES_PER_SEGMENT * PAGE_BYTES as u32);
        let geometry = Geometry::new(segments, PAGES_PER_SEGMENT, PAGE_BYTES as u32).expect("2 segments and more");
        Self { geometry: geometry.byte_programmable(), bytes, left: None }
    }

    /// The power fails in the middle of the program or erase of this number from now on.
    pub fn cut_after(&mut self, operations: u32) {
        self.left = Some(operations);
    }

    /// The power is back.
    pub fn power_on(&mut self) {
        self.left = None;
    }

    /// How many of `len` bytes an operation changes before the power fails.
    fn powered(&mut self, len: usize) -> Result<usize, FlashError> {
        match &mut self.left {
            None => Ok(len),
            Some(0) => Err(FlashError::PowerLost),
            Some(left) => {
                *left -= 1;
                Ok(if *left == 0 { len / 2 } else { len })
            }
        }
    }

    /// Whether the operation was the last before the power failed.
    fn done(&self) -> Result<(), FlashError> {
        if self.left == Some(0) { Err(FlashError::PowerLost) } else { Ok(()) }
    }

    fn at(&mut self, ppn: Ppn, offset_bytes: u32, len: usize) -> Result<&mut [u8], FlashError> {
        let (start, pages) = (ppn.index() * PAGE_BYTES + offset_bytes as usize, self.geometry.pages());
        self.bytes.get_mut(start..start + len).ok_or(FlashError::PageOutOfRange { ppn, pages })
    }
}

impl Flash for Chip<'_> {
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
        let first = self.geometry.first_page(segment);
        let len = self.powered(PAGES_PER_SEGMENT as usize * PAGE_BYTES)?;
        self.at(first, 0, len)?.fill(0xFF);
        self.done()
    }
    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.done()?;
        bytes.copy_from_slice(self.at(ppn, offset_bytes, bytes.len())?);
        Ok(ReadStatus::Clean)
    }
    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        // A program clears bits and sets none: a page that was not erased would not read as written.
        let len = self.powered(bytes.len())?;
        self.at(ppn, offset_bytes, len)?.iter_mut().zip(bytes).for_each(|(old, new)| *old &= new);
        self.done()
    }
}
