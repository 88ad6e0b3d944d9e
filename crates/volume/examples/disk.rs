//! A disk on a chip of one's own: formatted, written, cut off from power, and opened again.

use margay_volume::flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};
use margay_volume::{Disk, FormatOptions, Hint, OpenOptions};

/// A NAND chip in memory: pages of 2048 bytes, each with a spare area of 64.
struct Nand {
    geometry: Geometry,
    pages: Vec<[u8; 2048 + 64]>,
}

impl Flash for Nand {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        let (page, beside) = self.pages[ppn.index()].split_at(2048);
        data.copy_from_slice(&page[..data.len()]);
        spare.copy_from_slice(&beside[..spare.len()]);
        Ok(ReadStatus::Clean)
    }
    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        let (page, beside) = self.pages[ppn.index()].split_at_mut(2048);
        page[..data.len()].copy_from_slice(data);
        beside[..spare.len()].copy_from_slice(spare);
        Ok(())
    }
    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let first = self.geometry.first_page(segment).index();
        self.pages[first..][..self.geometry.pages_per_segment() as usize].fill([0xFF; 2048 + 64]);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let geometry = Geometry::new(64, 32, 2048)?.with_spare(64); // 64 segments of 32 pages: 4 MiB
    let mut chip = Nand { geometry, pages: vec![[0; 2048 + 64]; geometry.pages() as usize] };

    let mut disk = Disk::format(&mut chip, &FormatOptions::default())?;
    for version in 0..100 {
        disk.write(7, &[version; 2048], Hint::None, 0)?; // The page on flash is another one each time.
    }
    disk.flush()?;
    drop(disk); // As a power cut would: nothing was stopped.

    let mut disk = Disk::open(&mut chip, &OpenOptions::default())?;
    let mut page = [0; 2048];
    assert!(disk.read(7, &mut page)?);
    assert_eq!(page, [99; 2048]);
    disk.trim(7, 0)?;
    assert!(!disk.read(7, &mut page)?);
    disk.stop()?; // With a checkpoint, so that the next start is quick.
    Ok(())
}
