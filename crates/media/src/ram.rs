use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};

/// A device in memory. Erased pages read as `0xFF`.
#[derive(Clone, Debug)]
pub struct RamFlash {
    geometry: Geometry,
    bytes: Vec<u8>,
}

impl RamFlash {
    /// An erased device of the given shape; allocates all of its bytes.
    pub fn new(geometry: Geometry) -> Self {
        let len = usize::try_from(geometry.bytes()).expect("a device in memory fits the address space");
        Self { geometry, bytes: vec![0xFF; len] }
    }

    fn page(&mut self, ppn: Ppn, len: usize) -> Result<&mut [u8], FlashError> {
        let page_bytes = self.geometry.page_bytes();
        if ppn.0 >= self.geometry.pages() {
            return Err(FlashError::PageOutOfRange { ppn, pages: self.geometry.pages() });
        }
        if len != page_bytes as usize {
            return Err(FlashError::BufferSize { len_bytes: len as u64, page_bytes });
        }
        Ok(&mut self.bytes[ppn.index() * len..][..len])
    }
}

impl Flash for RamFlash {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8]) -> Result<ReadStatus, FlashError> {
        let page = self.page(ppn, data.len())?;
        data.copy_from_slice(page);
        Ok(ReadStatus::Clean)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8]) -> Result<(), FlashError> {
        self.page(ppn, data.len())?.copy_from_slice(data);
        Ok(())
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let segments = self.geometry.segments();
        if segment.0 >= segments {
            return Err(FlashError::SegmentOutOfRange { segment, segments });
        }
        let len = self.geometry.pages_per_segment() as usize * self.geometry.page_bytes() as usize;
        self.bytes[segment.index() * len..][..len].fill(0xFF);
        Ok(())
    }
}
