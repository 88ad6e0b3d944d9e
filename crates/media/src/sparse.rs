use crate::ram::{check_page, check_part};
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};

/// A device in memory that keeps nothing of pages that are erased, and of pages of zeros no more than that and their spare
/// areas. So a disk on which only zeros are written takes little memory, and is a disk in everything else.
#[derive(Clone, Debug)]
pub struct SparseFlash {
    geometry: Geometry,
    pages: Vec<Option<Box<Page>>>,
}

#[derive(Clone, Debug)]
struct Page {
    /// `None` if all bytes are 0.
    data: Option<Box<[u8]>>,
    /// The start of the spare area; what is behind it is erased.
    spare: Box<[u8]>,
}

impl SparseFlash {
    /// An erased device of the given shape.
    pub fn new(geometry: Geometry) -> Self {
        Self { geometry, pages: vec![None; geometry.pages() as usize] }
    }

    fn of(data: &[u8], spare: &[u8]) -> Option<Box<Page>> {
        let data = (!data.iter().all(|byte| *byte == 0)).then(|| data.into());
        Some(Box::new(Page { data, spare: spare.into() }))
    }
}

impl Flash for SparseFlash {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        check_page(&self.geometry, ppn, data.len(), spare.len())?;
        spare.fill(0xFF);
        let Some(page) = &self.pages[ppn.index()] else {
            data.fill(0xFF);
            return Ok(ReadStatus::Clean);
        };
        let len = spare.len().min(page.spare.len());
        spare[..len].copy_from_slice(&page.spare[..len]);
        match &page.data {
            _ if data.is_empty() => {}
            Some(bytes) => data.copy_from_slice(bytes),
            None => data.fill(0),
        }
        Ok(ReadStatus::Clean)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        check_page(&self.geometry, ppn, data.len(), spare.len())?;
        let erased = [0xFF; 1];
        self.pages[ppn.index()] = if data.is_empty() {
            let page_bytes = self.geometry.page_bytes() as usize;
            Self::of(&erased.repeat(page_bytes), spare)
        } else {
            Self::of(data, spare)
        };
        Ok(())
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let segments = self.geometry.segments();
        if segment.0 >= segments {
            return Err(FlashError::SegmentOutOfRange { segment, segments });
        }
        let first = self.geometry.first_page(segment).index();
        self.pages[first..first + self.geometry.pages_per_segment() as usize].fill(None);
        Ok(())
    }

    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        check_part(&self.geometry, ppn, offset_bytes, bytes.len())?;
        let start = offset_bytes as usize;
        match self.pages[ppn.index()].as_ref().map(|page| &page.data) {
            None => bytes.fill(0xFF),
            Some(None) => bytes.fill(0),
            Some(Some(data)) => bytes.copy_from_slice(&data[start..start + bytes.len()]),
        }
        Ok(ReadStatus::Clean)
    }

    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        check_part(&self.geometry, ppn, offset_bytes, bytes.len())?;
        let mut data = vec![0; self.geometry.page_bytes() as usize];
        self.read_part(ppn, 0, &mut data)?;
        data[offset_bytes as usize..].iter_mut().zip(bytes).for_each(|(old, new)| *old &= new);
        self.pages[ppn.index()] = Self::of(&data, &[]);
        Ok(())
    }

    fn void_page(&mut self, ppn: Ppn) -> Result<(), FlashError> {
        check_page(&self.geometry, ppn, 0, 0)?;
        self.pages[ppn.index()] = Self::of(&[], &vec![0; self.geometry.spare_bytes() as usize]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RamFlash;

    #[test]
    fn it_behaves_as_a_device_in_memory_that_keeps_every_byte() {
        let nand = Geometry::new(4, 4, 512).unwrap().with_spare(16);
        let nor = Geometry::new(4, 4, 512).unwrap().byte_programmable();
        for geometry in [nand, nor] {
            let (mut ram, mut sparse) = (RamFlash::new(geometry), SparseFlash::new(geometry));
            let spare_bytes = geometry.spare_bytes() as usize;
            let mut state = 3u64;
            let mut below = |limit: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % limit
            };
            let mut is_programmed = [false; 17];
            for _ in 0..3000 {
                // One page behind the end, too.
                let ppn = Ppn(below(17) as u32);
                let data = vec![[0, 0, 9][below(3) as usize]; 512];
                let spare = vec![5; (below(3) as usize * 8).min(spare_bytes)];
                let at = below(600) as u32;
                let call = below(6);
                // A page is programmed once between two erases.
                if call < 4 && call != 1 && call != 2 && is_programmed[ppn.index()] {
                    continue;
                }
                let both = match call {
                    0 => (ram.program(ppn, &data, &spare), sparse.program(ppn, &data, &spare)),
                    1 => (ram.program_part(ppn, at, &spare), sparse.program_part(ppn, at, &spare)),
                    2 => (ram.program_part(ppn, 8, &[7; 40]), sparse.program_part(ppn, 8, &[7; 40])),
                    3 => (ram.void_page(ppn), sparse.void_page(ppn)),
                    _ => (ram.erase(SegmentId(ppn.0 / 4)), sparse.erase(SegmentId(ppn.0 / 4))),
                };
                assert_eq!(both.0, both.1);
                match call {
                    0 | 3 => is_programmed[ppn.index()] = true,
                    1 | 2 => {}
                    _ => is_programmed[ppn.index() / 4 * 4..][..4.min(17 - ppn.index() / 4 * 4)].fill(false),
                }
                for ppn in (0..16).map(Ppn) {
                    let (mut one, mut other) = (vec![0; 512 + spare_bytes], vec![0; 512 + spare_bytes]);
                    let (data, spare) = one.split_at_mut(512);
                    ram.read(ppn, data, spare).unwrap();
                    let (data, spare) = other.split_at_mut(512);
                    sparse.read(ppn, data, spare).unwrap();
                    assert_eq!(one, other);
                }
            }
        }
    }
}
