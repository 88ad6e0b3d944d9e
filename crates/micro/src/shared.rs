use crate::{ByteDisk, DiskError};
use core::cell::RefCell;
use embedded_sdmmc::{Block, BlockCount, BlockDevice, BlockIdx};
use margay_flash::Flash;

/// A disk as the block device of the crate `embedded-sdmmc`, which reads and writes through shared references. Its blocks have
/// 512 bytes.
#[derive(Debug)]
pub struct SharedDisk<F>(RefCell<ByteDisk<F>>);

impl<F: Flash> SharedDisk<F> {
    /// Shows a disk by blocks.
    pub fn new(disk: ByteDisk<F>) -> Self {
        Self(RefCell::new(disk))
    }

    /// Gives the disk back.
    pub fn into_disk(self) -> ByteDisk<F> {
        self.0.into_inner()
    }

    fn offset(index: BlockIdx, number: usize) -> u64 {
        (u64::from(index.0) + number as u64) * Block::LEN as u64
    }
}

impl<F: Flash> BlockDevice for SharedDisk<F> {
    type Error = DiskError;

    fn read(&self, blocks: &mut [Block], start: BlockIdx) -> Result<(), DiskError> {
        let mut disk = self.0.borrow_mut();
        let mut numbered = blocks.iter_mut().enumerate();
        numbered.try_for_each(|(number, block)| disk.read_at(Self::offset(start, number), &mut block.contents))
    }

    fn write(&self, blocks: &[Block], start: BlockIdx) -> Result<(), DiskError> {
        let mut disk = self.0.borrow_mut();
        let mut numbered = blocks.iter().enumerate();
        numbered.try_for_each(|(number, block)| disk.write_at(Self::offset(start, number), &block.contents))
    }

    fn num_blocks(&self) -> Result<BlockCount, DiskError> {
        let blocks = self.0.borrow().capacity_bytes() / Block::LEN as u64;
        Ok(BlockCount(u32::try_from(blocks).unwrap_or(u32::MAX)))
    }
}
