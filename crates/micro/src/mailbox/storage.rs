use super::{AsyncDisk, AsyncDiskError};
use embedded_storage_async::{ReadStorage, Storage};

impl<const PAGE_BYTES: usize, const HANDLES: usize> ReadStorage for AsyncDisk<PAGE_BYTES, HANDLES> {
    type Error = AsyncDiskError;

    async fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), AsyncDiskError> {
        self.read_at(offset.into(), bytes).await
    }

    /// Bytes of the disk; offsets of these traits reach the first 4 GiB. It cannot wait: before the first server it is 0, so
    /// await [`AsyncDisk::capacity_bytes`] first.
    fn capacity(&self) -> usize {
        let pages = self.mailbox().with(|state| state.exported_pages);
        let bytes = u64::from(pages) * PAGE_BYTES as u64;
        usize::try_from(bytes.min(1 << 32)).unwrap_or(usize::MAX)
    }
}

/// Any range of bytes may be written if the server serves a [`ByteDisk`](crate::ByteDisk), and whole pages otherwise.
impl<const PAGE_BYTES: usize, const HANDLES: usize> Storage for AsyncDisk<PAGE_BYTES, HANDLES> {
    async fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), AsyncDiskError> {
        self.write_at(offset.into(), bytes).await
    }
}
