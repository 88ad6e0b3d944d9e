//! A file system on a chip of one's own: formatted, written, stopped, and opened again.

use margay_volume::flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};
use margay_volume::fs::{NewObject, ROOT};
use margay_volume::{FilesFormatOptions, FilesOpenOptions, format_files, open_files};

/// A NOR chip in memory: any bytes can be programmed by themselves, and there is no spare area.
struct Nor {
    geometry: Geometry,
    pages: Vec<[u8; 1024]>,
}

impl Flash for Nor {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn read(&mut self, ppn: Ppn, data: &mut [u8], _spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.read_part(ppn, 0, data)
    }
    fn program(&mut self, ppn: Ppn, data: &[u8], _spare: &[u8]) -> Result<(), FlashError> {
        self.program_part(ppn, 0, data)
    }
    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let first = self.geometry.first_page(segment).index();
        self.pages[first..][..self.geometry.pages_per_segment() as usize].fill([0xFF; 1024]);
        Ok(())
    }
    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        bytes.copy_from_slice(&self.pages[ppn.index()][offset_bytes as usize..][..bytes.len()]);
        Ok(ReadStatus::Clean)
    }
    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        // Programming clears bits; only an erase sets them.
        let cells = self.pages[ppn.index()][offset_bytes as usize..].iter_mut();
        cells.zip(bytes).for_each(|(cell, byte)| *cell &= byte);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let geometry = Geometry::new(64, 32, 1024)?.byte_programmable(); // 64 segments of 32 pages: 2 MiB
    let mut chip = Nor { geometry, pages: vec![[0; 1024]; geometry.pages() as usize] };

    let mut files = format_files(&mut chip, &FilesFormatOptions::default())?;
    let logs = files.create(ROOT, b"logs", &NewObject::DIRECTORY)?.object;
    let boot = files.create(logs, b"boot", &NewObject::FILE)?.object;
    files.write(boot, 0, b"all is well")?;
    files.sync()?; // From here on a power cut takes nothing of it.
    files.stop()?; // With a checkpoint, so that the next start is quick.
    drop(files);

    let mut files = open_files(&mut chip, &FilesOpenOptions::default())?.files;
    let boot = files.resolve(b"logs/boot")?.object;
    let mut text = [0; 64];
    let len = files.read(boot, 0, &mut text)?;
    assert_eq!(&text[..len], b"all is well");
    Ok(())
}
