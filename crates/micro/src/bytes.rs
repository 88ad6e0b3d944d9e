use crate::{DiskError, SmallDisk};
use alloc::vec;
use alloc::vec::Vec;
use margay_flash::Flash;

/// A disk by bytes: any range can be read and written. A page that is written in part is read, changed and written as a
/// whole. What was never written reads as zeros.
#[derive(Debug)]
pub struct ByteDisk<F> {
    disk: SmallDisk<F>,
    page: Vec<u8>,
}

impl<F: Flash> ByteDisk<F> {
    /// Shows a disk by bytes; it takes memory for one page more.
    pub fn new(disk: SmallDisk<F>) -> Self {
        let page = vec![0; disk.geometry().page_bytes() as usize];
        Self { disk, page }
    }

    /// The disk.
    pub fn disk_mut(&mut self) -> &mut SmallDisk<F> {
        &mut self.disk
    }

    /// Gives the disk back.
    pub fn into_disk(self) -> SmallDisk<F> {
        self.disk
    }

    /// Bytes of the disk.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.disk.exported_pages()) * self.page.len() as u64
    }

    /// Calls `work` for each page of a range with the page's number and the ranges in the page and in the buffer.
    fn each_page(
        &mut self,
        offset: u64,
        len: usize,
        mut work: impl FnMut(&mut Self, u32, core::ops::Range<usize>, core::ops::Range<usize>) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let (capacity_bytes, page_bytes) = (self.capacity_bytes(), self.page.len());
        let end = offset.saturating_add(len as u64);
        if end > capacity_bytes {
            return Err(DiskError::PastEnd { offset, end, capacity_bytes });
        }
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            // The capacity is that of a number of pages of 32 bits.
            let (lpn, start) = ((at / page_bytes as u64) as u32, (at % page_bytes as u64) as usize);
            let part = (page_bytes - start).min(len - done);
            work(self, lpn, start..start + part, done..done + part)?;
            done += part;
        }
        Ok(())
    }

    /// Reads `bytes.len()` bytes from `offset` on.
    ///
    /// # Errors
    /// [`DiskError::PastEnd`], and those of [`SmallDisk::read`].
    pub fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), DiskError> {
        self.each_page(offset, bytes.len(), |this, lpn, in_page, in_bytes| {
            if !this.disk.read(lpn, &mut this.page)? {
                this.page.fill(0);
            }
            bytes[in_bytes].copy_from_slice(&this.page[in_page]);
            Ok(())
        })
    }

    /// Writes bytes from `offset` on. The part of a page that is written is there after a power cut, or not.
    ///
    /// # Errors
    /// [`DiskError::PastEnd`], with nothing written, and those of [`SmallDisk::write`].
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.each_page(offset, bytes.len(), |this, lpn, in_page, in_bytes| {
            if in_page.len() == this.page.len() {
                return this.disk.write(lpn, &bytes[in_bytes]);
            }
            if !this.disk.read(lpn, &mut this.page)? {
                this.page.fill(0);
            }
            this.page[in_page].copy_from_slice(&bytes[in_bytes]);
            this.disk.write(lpn, &this.page)
        })
    }

    /// As [`SmallDisk::flush`].
    ///
    /// # Errors
    /// Those of [`SmallDisk::flush`].
    pub fn flush(&mut self) -> Result<(), DiskError> {
        self.disk.flush()
    }
}

#[cfg(feature = "embedded-storage")]
impl<F: Flash> embedded_storage::ReadStorage for ByteDisk<F> {
    type Error = DiskError;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), DiskError> {
        self.read_at(offset.into(), bytes)
    }

    /// Bytes of the disk; offsets of these traits reach the first 4 GiB.
    fn capacity(&self) -> usize {
        usize::try_from(self.capacity_bytes().min(1 << 32)).unwrap_or(usize::MAX)
    }
}

#[cfg(feature = "embedded-storage")]
impl<F: Flash> embedded_storage::Storage for ByteDisk<F> {
    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), DiskError> {
        self.write_at(offset.into(), bytes)
    }
}
