use super::{AsyncDisk, AsyncDiskError};
use aligned::{A1, Aligned};
use block_device_driver::{BlockDevice, blocks_to_slice, blocks_to_slice_mut};

/// Blocks of any size that fits the disk, such as the 512 bytes of FAT. Where they are smaller than a page, the server has to serve a
/// [`ByteDisk`](crate::ByteDisk) for writes. The trait has no flush: [`AsyncDisk::flush`] and [`AsyncDisk::trim`] are the handle's own.
impl<const SIZE: usize, const PAGE_BYTES: usize, const HANDLES: usize> BlockDevice<SIZE>
    for AsyncDisk<PAGE_BYTES, HANDLES>
{
    type Error = AsyncDiskError;
    type Align = A1;

    async fn read(&mut self, block_address: u32, data: &mut [Aligned<A1, [u8; SIZE]>]) -> Result<(), AsyncDiskError> {
        self.read_at(u64::from(block_address) * SIZE as u64, blocks_to_slice_mut(data)).await
    }

    async fn write(&mut self, block_address: u32, data: &[Aligned<A1, [u8; SIZE]>]) -> Result<(), AsyncDiskError> {
        self.write_at(u64::from(block_address) * SIZE as u64, blocks_to_slice(data)).await
    }

    /// Bytes of the whole blocks of the disk. Waits for the first server.
    async fn size(&mut self) -> Result<u64, AsyncDiskError> {
        let capacity_bytes = self.capacity_bytes().await?;
        Ok(capacity_bytes - capacity_bytes % (SIZE as u64).max(1))
    }
}
