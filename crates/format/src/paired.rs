use crate::layout::{LayoutError, TAG_BYTES, has_short_tags};
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};

/// Bytes of the spare area that a pair of pages shows.
pub(crate) const PAIRED_SPARE_BYTES: u32 = 512;

/// A device that has room for the information on its pages.
///
/// One with a usable spare area, or one that is programmed byte by byte, is shown as it is. On any other, and where an earlier
/// version has formatted it so, each page of data is followed by a page with its information (FORMAT.md, "Pairs"): half of the
/// pages are shown, with a spare area.
/// Of a pair that a power cut interrupted the second page is erased or cannot be read, as of a page whose spare area
/// was not programmed.
#[derive(Clone, Debug)]
pub struct Paired<F> {
    device: F,
    geometry: Geometry,
    is_paired: bool,
    /// The second page of a pair.
    page: Vec<u8>,
}

/// The shape in which every page of a device has room for a whole tag: its own, or that of its pairs.
pub fn shown_geometry(raw: &Geometry) -> Geometry {
    pairs_geometry(raw).unwrap_or(*raw)
}

/// The shape of a device in pairs; `None` if it is never used so. One that has room for short tags is used so by hybrid-mapped
/// stores, and was by others before there were such.
pub(crate) fn pairs_geometry(raw: &Geometry) -> Option<Geometry> {
    let is_small = raw.page_bytes() < PAIRED_SPARE_BYTES || raw.pages_per_segment() < 4;
    let has_place = raw.is_byte_programmable() || raw.spare_bytes() as usize >= TAG_BYTES;
    if has_place || is_small {
        return None;
    }
    let pairs = Geometry::new(raw.segments(), raw.pages_per_segment() / 2, raw.page_bytes()).ok()?;
    Some(pairs.with_spare(PAIRED_SPARE_BYTES))
}

/// The shape that the format is to see of a device that is going to be formatted. Fails with
/// [`LayoutError::NeedsPairs`] if that would be the shape of its pairs and `pair_pages` does not allow it: half of the
/// capacity is not given up unasked.
pub fn geometry_to_format(raw: &Geometry, pair_pages: bool) -> Result<Geometry, LayoutError> {
    match pairs_geometry(raw) {
        None => Ok(*raw),
        Some(_) if has_short_tags(raw) => Ok(*raw),
        Some(pairs) if pair_pages => Ok(pairs),
        Some(_) => Err(LayoutError::NeedsPairs { spare_bytes: raw.spare_bytes() }),
    }
}

impl<F: Flash> Paired<F> {
    /// Shows a device as one of this shape, its own or that of its pairs.
    pub fn new(device: F, shape: &Geometry) -> Self {
        let is_paired = pairs_geometry(device.geometry()) == Some(*shape);
        let geometry = if is_paired { *shape } else { *device.geometry() };
        let page = vec![0xFF; if is_paired { geometry.page_bytes() as usize } else { 0 }];
        Self { device, geometry, is_paired, page }
    }

    /// The device.
    pub fn device(&self) -> &F {
        &self.device
    }

    /// The device.
    pub fn device_mut(&mut self) -> &mut F {
        &mut self.device
    }

    /// Gives the device back.
    pub fn into_device(self) -> F {
        self.device
    }

    /// The page that is shown for a page of the device with data.
    pub(crate) fn shown_page(&self, ppn: Ppn) -> Option<Ppn> {
        if !self.is_paired {
            return Some(ppn);
        }
        let raw = self.device.geometry();
        let (segment, page) = (raw.segment_of(ppn), raw.page_in_segment(ppn));
        let shown = Ppn(self.geometry.first_page(segment).0 + page / 2);
        (page % 2 == 0 && self.geometry.segment_of(shown) == segment).then_some(shown)
    }

    /// The pages of a pair.
    fn pair(&self, ppn: Ppn) -> (Ppn, Ppn) {
        let first = self.device.geometry().first_page(self.geometry.segment_of(ppn)).0;
        let at = first + 2 * self.geometry.page_in_segment(ppn);
        (Ppn(at), Ppn(at + 1))
    }

    /// What the device says of a page of a pair, in terms of the pair.
    fn of_pair(error: FlashError, ppn: Ppn) -> FlashError {
        match error {
            FlashError::Uncorrectable { .. } => FlashError::Uncorrectable { ppn },
            FlashError::ProgramFailed { .. } => FlashError::ProgramFailed { ppn },
            other => other,
        }
    }
}

impl<F: Flash> Flash for Paired<F> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        if !self.is_paired {
            return self.device.read(ppn, data, spare);
        }
        if ppn.0 >= self.geometry.pages() {
            return Err(FlashError::PageOutOfRange { ppn, pages: self.geometry.pages() });
        }
        let (first, second) = self.pair(ppn);
        let mut status = ReadStatus::Clean;
        if !data.is_empty() {
            status = self.device.read(first, data, &mut []).map_err(|error| Self::of_pair(error, ppn))?;
        }
        if !spare.is_empty() {
            let read = self.device.read(second, &mut self.page, &mut []).map_err(|error| Self::of_pair(error, ppn))?;
            let len = spare.len().min(PAIRED_SPARE_BYTES as usize);
            spare[..len].copy_from_slice(&self.page[..len]);
            spare[len..].fill(0xFF);
            if read == ReadStatus::Corrected {
                status = read;
            }
        }
        Ok(status)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        if !self.is_paired {
            return self.device.program(ppn, data, spare);
        }
        if ppn.0 >= self.geometry.pages() {
            return Err(FlashError::PageOutOfRange { ppn, pages: self.geometry.pages() });
        }
        let (first, second) = self.pair(ppn);
        self.device.program(first, data, &[]).map_err(|error| Self::of_pair(error, ppn))?;
        self.page.fill(0xFF);
        self.page[..spare.len()].copy_from_slice(spare);
        self.device.program(second, &self.page, &[]).map_err(|error| Self::of_pair(error, ppn))
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        self.device.erase(segment)
    }

    fn read_run(&mut self, first: Ppn, data: &mut [u8], spare: &mut [u8]) -> bool {
        !self.is_paired && self.device.read_run(first, data, spare)
    }

    fn is_known_erased(&mut self, segment: SegmentId) -> bool {
        self.device.is_known_erased(segment)
    }

    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.device.read_part(ppn, offset_bytes, bytes)
    }

    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        self.device.program_part(ppn, offset_bytes, bytes)
    }

    fn void_page(&mut self, ppn: Ppn) -> Result<(), FlashError> {
        if !self.is_paired {
            return self.device.void_page(ppn);
        }
        let (first, second) = self.pair(ppn);
        self.device.void_page(first)?;
        self.device.void_page(second)
    }

    margay_flash::pass_on!(device: retire, has_payload, sync, is_cached, mark, set_mark);
}
