use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};
use std::ops::Range;

/// A device in memory. Erased bytes read as `0xFF`. Addresses and buffers are checked; the order of programs is not
/// ([`crate::Strict`] does that).
#[derive(Clone, Debug)]
pub struct RamFlash {
    geometry: Geometry,
    /// Page by page, each followed by its spare area.
    bytes: Vec<u8>,
}

impl RamFlash {
    /// An erased device of the given shape; allocates all of its bytes.
    pub fn new(geometry: Geometry) -> Self {
        let page = u64::from(geometry.page_bytes()) + u64::from(geometry.spare_bytes());
        let len = usize::try_from(u64::from(geometry.pages()) * page).expect("a device in memory fits memory");
        Self { geometry, bytes: vec![0xFF; len] }
    }

    fn stride(&self) -> usize {
        (self.geometry.page_bytes() + self.geometry.spare_bytes()) as usize
    }

    /// A page and its spare area, after a check of the address and of the lengths of the buffers.
    fn page(&mut self, ppn: Ppn, data: usize, spare: usize) -> Result<(&mut [u8], &mut [u8]), FlashError> {
        check_page(&self.geometry, ppn, data, spare)?;
        let stride = self.stride();
        Ok(self.bytes[ppn.index() * stride..][..stride].split_at_mut(self.geometry.page_bytes() as usize))
    }

    /// The bytes of one page and its spare area, which tests change to damage them.
    pub fn page_bytes_mut(&mut self, ppn: Ppn) -> &mut [u8] {
        let stride = self.stride();
        &mut self.bytes[ppn.index() * stride..][..stride]
    }

    fn part(&mut self, ppn: Ppn, offset_bytes: u32, len: usize) -> Result<&mut [u8], FlashError> {
        check_part(&self.geometry, ppn, offset_bytes, len)?;
        let stride = self.stride();
        Ok(&mut self.bytes[ppn.index() * stride + offset_bytes as usize..][..len])
    }
}

/// Checks that a page exists and that the buffers fit it.
pub(crate) fn check_page(geometry: &Geometry, ppn: Ppn, data: usize, spare: usize) -> Result<(), FlashError> {
    if ppn.0 >= geometry.pages() {
        return Err(FlashError::PageOutOfRange { ppn, pages: geometry.pages() });
    }
    let page_bytes = geometry.page_bytes();
    if data != 0 && data != page_bytes as usize {
        return Err(FlashError::BufferSize { len_bytes: data as u64, page_bytes });
    }
    if spare > geometry.spare_bytes() as usize {
        return Err(FlashError::BufferSize { len_bytes: spare as u64, page_bytes: geometry.spare_bytes() });
    }
    Ok(())
}

/// The pages from `first` on that these lengths of data and spare areas are exactly those of; `None` if there are none.
pub(crate) fn check_run(geometry: &Geometry, first: Ppn, data: usize, spare: usize) -> Option<Range<u32>> {
    let (page_bytes, spare_bytes) = (geometry.page_bytes() as usize, geometry.spare_bytes() as usize);
    let pages = data / page_bytes;
    let end = u32::try_from(pages).ok().and_then(|pages| first.0.checked_add(pages));
    let end = end.filter(|end| *end > first.0 && *end <= geometry.pages())?;
    (data == pages * page_bytes && spare == pages * spare_bytes && spare_bytes > 0).then_some(first.0..end)
}

/// Checks that a part lies within a page of a byte-programmable device.
pub(crate) fn check_part(geometry: &Geometry, ppn: Ppn, offset_bytes: u32, len: usize) -> Result<(), FlashError> {
    if !geometry.is_byte_programmable() {
        return Err(FlashError::Unsupported);
    }
    check_page(geometry, ppn, 0, 0)?;
    let end = u64::from(offset_bytes) + len as u64;
    if end > u64::from(geometry.page_bytes()) {
        return Err(FlashError::BufferSize { len_bytes: end, page_bytes: geometry.page_bytes() });
    }
    Ok(())
}

impl Flash for RamFlash {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        let (page, page_spare) = self.page(ppn, data.len(), spare.len())?;
        if !data.is_empty() {
            data.copy_from_slice(page);
        }
        spare.copy_from_slice(&page_spare[..spare.len()]);
        Ok(ReadStatus::Clean)
    }

    fn read_run(&mut self, first: Ppn, data: &mut [u8], spare: &mut [u8]) -> bool {
        let Some(pages) = check_run(&self.geometry, first, data.len(), spare.len()) else { return false };
        let (page_bytes, spare_bytes) = (self.geometry.page_bytes() as usize, self.geometry.spare_bytes() as usize);
        let parts = data.chunks_exact_mut(page_bytes).zip(spare.chunks_exact_mut(spare_bytes));
        pages.zip(parts).all(|(ppn, (data, spare))| self.read(Ppn(ppn), data, spare).is_ok())
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        let (page, page_spare) = self.page(ppn, data.len(), spare.len())?;
        if !data.is_empty() {
            page.copy_from_slice(data);
        }
        page_spare[..spare.len()].copy_from_slice(spare);
        Ok(())
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let segments = self.geometry.segments();
        if segment.0 >= segments {
            return Err(FlashError::SegmentOutOfRange { segment, segments });
        }
        let (first, stride) = (self.geometry.first_page(segment).index(), self.stride());
        let len = self.geometry.pages_per_segment() as usize * stride;
        // A single long fill would become a string instruction, which callgrind counts once per byte.
        self.bytes[first * stride..][..len].chunks_mut(1024).for_each(|piece| piece.fill(0xFF));
        Ok(())
    }

    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        bytes.copy_from_slice(self.part(ppn, offset_bytes, bytes.len())?);
        Ok(ReadStatus::Clean)
    }

    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        let old = self.part(ppn, offset_bytes, bytes.len())?;
        old.iter_mut().zip(bytes).for_each(|(old, new)| *old &= new);
        Ok(())
    }

    fn void_page(&mut self, ppn: Ppn) -> Result<(), FlashError> {
        check_page(&self.geometry, ppn, 0, 0)?;
        self.page_bytes_mut(ppn).fill(0);
        Ok(())
    }
}
