//! NOR flash in memory, as every peer wants to see it: 1 MiB, 4 KiB erased at a time, words of 4 bytes.

use ekv::flash::PageID;
use embedded_storage::nor_flash::{ErrorType, NorFlash, NorFlashErrorKind, ReadNorFlash};
use littlefs2::driver::Storage;
use littlefs2::io::{Error as LfsError, Result as LfsResult};
use std::cell::RefCell;
use std::rc::Rc;

pub const BYTES: usize = 1 << 20;
pub const ERASE_BYTES: usize = 4096;
const WORD: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub programmed_bytes: u64,
    pub programs: u64,
    pub erases: u64,
    pub reads: u64,
    pub read_bytes: u64,
}

struct Cells {
    bytes: Vec<u8>,
    counts: Counts,
    /// Programs and erases until the power fails in the middle of one.
    left: Option<u32>,
    /// A program or erase that is interrupted has not begun.
    is_whole: bool,
}

/// The flash; clones are the same flash.
#[derive(Clone)]
pub struct Nor(Rc<RefCell<Cells>>);

#[derive(Debug)]
pub struct PowerLost;

impl Nor {
    pub fn new() -> Self {
        Self(Rc::new(RefCell::new(Cells {
            bytes: vec![0xFF; BYTES],
            counts: Counts::default(),
            left: None,
            is_whole: false,
        })))
    }

    /// From now on a program or erase that is interrupted leaves everything as it was; else its first half is done.
    pub fn keep_whole(&self) {
        self.0.borrow_mut().is_whole = true;
    }

    pub fn counts(&self) -> Counts {
        self.0.borrow().counts
    }

    pub fn cut_after(&self, operations: u32) {
        self.0.borrow_mut().left = Some(operations);
    }

    pub fn power_on(&self) {
        self.0.borrow_mut().left = None;
    }

    pub fn is_off(&self) -> bool {
        self.0.borrow().left == Some(0)
    }

    fn read_at(&self, at: usize, bytes: &mut [u8]) -> Result<(), PowerLost> {
        let cells = &mut *self.0.borrow_mut();
        if cells.left == Some(0) {
            return Err(PowerLost);
        }
        cells.counts.reads += 1;
        cells.counts.read_bytes += bytes.len() as u64;
        bytes.copy_from_slice(&cells.bytes[at..at + bytes.len()]);
        Ok(())
    }

    /// Does a part of an operation on `len` bytes, as far as the power lasts.
    fn change(&self, len: usize, work: impl FnOnce(&mut Cells, usize)) -> Result<(), PowerLost> {
        let cells = &mut *self.0.borrow_mut();
        let done = match &mut cells.left {
            None => len,
            Some(0) => return Err(PowerLost),
            Some(left) => {
                *left -= 1;
                match *left {
                    0 if cells.is_whole => 0,
                    0 => len / 2 / WORD * WORD,
                    _ => len,
                }
            }
        };
        work(cells, done);
        if cells.left == Some(0) { Err(PowerLost) } else { Ok(()) }
    }

    fn write_at(&self, at: usize, bytes: &[u8]) -> Result<(), PowerLost> {
        assert!(at.is_multiple_of(WORD) && bytes.len().is_multiple_of(WORD));
        self.change(bytes.len(), |cells, done| {
            cells.counts.programs += 1;
            cells.counts.programmed_bytes += bytes.len() as u64;
            cells.bytes[at..at + done].iter_mut().zip(bytes).for_each(|(cell, byte)| *cell &= byte);
        })
    }

    fn erase_at(&self, from: usize, to: usize) -> Result<(), PowerLost> {
        for at in (from..to).step_by(ERASE_BYTES) {
            self.change(ERASE_BYTES, |cells, done| {
                cells.counts.erases += 1;
                cells.bytes[at..at + done].fill(0xFF);
            })?;
        }
        Ok(())
    }
}

fn other<T>(_: T) -> NorFlashErrorKind {
    NorFlashErrorKind::Other
}

impl ErrorType for Nor {
    type Error = NorFlashErrorKind;
}

impl ReadNorFlash for Nor {
    const READ_SIZE: usize = WORD;
    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), NorFlashErrorKind> {
        self.read_at(offset as usize, bytes).map_err(other)
    }
    fn capacity(&self) -> usize {
        BYTES
    }
}

impl NorFlash for Nor {
    const WRITE_SIZE: usize = WORD;
    const ERASE_SIZE: usize = ERASE_BYTES;
    fn erase(&mut self, from: u32, to: u32) -> Result<(), NorFlashErrorKind> {
        self.erase_at(from as usize, to as usize).map_err(other)
    }
    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), NorFlashErrorKind> {
        self.write_at(offset as usize, bytes).map_err(other)
    }
}

impl embedded_storage_async::nor_flash::ReadNorFlash for Nor {
    const READ_SIZE: usize = WORD;
    async fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), NorFlashErrorKind> {
        self.read_at(offset as usize, bytes).map_err(other)
    }
    fn capacity(&self) -> usize {
        BYTES
    }
}

impl embedded_storage_async::nor_flash::NorFlash for Nor {
    const WRITE_SIZE: usize = WORD;
    const ERASE_SIZE: usize = ERASE_BYTES;
    async fn erase(&mut self, from: u32, to: u32) -> Result<(), NorFlashErrorKind> {
        self.erase_at(from as usize, to as usize).map_err(other)
    }
    async fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), NorFlashErrorKind> {
        self.write_at(offset as usize, bytes).map_err(other)
    }
}

impl ekv::flash::Flash for Nor {
    type Error = PowerLost;
    fn page_count(&self) -> usize {
        BYTES / ERASE_BYTES
    }
    async fn erase(&mut self, page: PageID) -> Result<(), PowerLost> {
        let at = page.index() * ERASE_BYTES;
        self.erase_at(at, at + ERASE_BYTES)
    }
    async fn read(&mut self, page: PageID, offset: usize, data: &mut [u8]) -> Result<(), PowerLost> {
        self.read_at(page.index() * ERASE_BYTES + offset, data)
    }
    async fn write(&mut self, page: PageID, offset: usize, data: &[u8]) -> Result<(), PowerLost> {
        self.write_at(page.index() * ERASE_BYTES + offset, data)
    }
}

/// littlefs, with files of up to 512 bytes in their directory.
impl Storage for Nor {
    const READ_SIZE: usize = 16;
    const WRITE_SIZE: usize = 16;
    const BLOCK_SIZE: usize = ERASE_BYTES;
    const BLOCK_COUNT: usize = BYTES / ERASE_BYTES;
    const BLOCK_CYCLES: isize = 500;
    type CACHE_SIZE = generic_array::typenum::U512;
    type LOOKAHEAD_SIZE = generic_array::typenum::U4;

    fn read(&mut self, offset: usize, buffer: &mut [u8]) -> LfsResult<usize> {
        self.read_at(offset, buffer).map(|()| buffer.len()).map_err(|_| LfsError::IO)
    }
    fn write(&mut self, offset: usize, data: &[u8]) -> LfsResult<usize> {
        self.write_at(offset, data).map(|()| data.len()).map_err(|_| LfsError::IO)
    }
    fn erase(&mut self, offset: usize, len: usize) -> LfsResult<usize> {
        self.erase_at(offset, offset + len).map(|()| len).map_err(|_| LfsError::IO)
    }
}
