use crate::layout::{LayoutError, TAG_BYTES, has_short_tags};
use crate::summaries::{Summaries, summary_pages};
use alloc::boxed::Box;
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};

/// Bytes of the spare area that a pair of pages shows.
pub(crate) const PAIRED_SPARE_BYTES: u32 = 512;

/// A device that has room for the information on its pages.
///
/// One with a usable spare area, or one that is programmed byte by byte, is shown as it is. On any other tags are in summaries,
/// and durable after a sync, or, where it was formatted so, each page of data is followed by a page with its information (FORMAT.md,
/// "Summaries" and "Pairs").
#[derive(Clone, Debug)]
pub struct Shown<F> {
    device: F,
    geometry: Geometry,
    shape: Shape,
    /// The second page of a pair.
    page: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Shape {
    Plain,
    /// Half of the pages are shown, with a spare area. Of a pair that a power cut interrupted the second page is erased or cannot be
    /// read, as of a page whose spare area was not programmed.
    Pairs,
    Summaries(Box<Summaries>),
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

/// The shape that the format is to see of a device that is going to be formatted: with `pair_pages` that of its pairs where spare
/// areas have no room for any tag. Fails with [`LayoutError::NeedsPairs`] if that would be the only one and `pair_pages` does not
/// allow it: half of the capacity is not given up unasked.
pub fn geometry_to_format(raw: &Geometry, pair_pages: bool) -> Result<Geometry, LayoutError> {
    match pairs_geometry(raw) {
        None => Ok(*raw),
        Some(_) if has_short_tags(raw) => Ok(*raw),
        Some(pairs) if pair_pages => Ok(pairs),
        Some(_) if summary_pages(raw).is_some() => Ok(*raw),
        Some(_) => Err(LayoutError::NeedsPairs { spare_bytes: raw.spare_bytes() }),
    }
}

impl<F: Flash> Shown<F> {
    /// Shows a device as one of this shape, its own or that of its pairs.
    pub fn new(device: F, shape: &Geometry, uuid: [u8; 16]) -> Self {
        let raw = *device.geometry();
        if pairs_geometry(&raw) == Some(*shape) {
            let page = vec![0xFF; shape.page_bytes() as usize];
            return Self { device, geometry: *shape, shape: Shape::Pairs, page };
        }
        let summaries = summary_pages(&raw).map(|pages| Shape::Summaries(Box::new(Summaries::new(raw, uuid, pages))));
        Self { device, geometry: raw, shape: summaries.unwrap_or(Shape::Plain), page: Vec::new() }
    }

    /// Its summaries, and the device that they are on.
    pub fn summaries(&mut self) -> Option<(&mut Summaries, &mut F)> {
        match &mut self.shape {
            Shape::Summaries(summaries) => Some((summaries, &mut self.device)),
            _ => None,
        }
    }

    /// Its summaries, if it has any.
    pub fn summaries_ref(&self) -> Option<&Summaries> {
        match &self.shape {
            Shape::Summaries(summaries) => Some(summaries),
            _ => None,
        }
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
        if !matches!(self.shape, Shape::Pairs) {
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

impl<F: Flash> Shown<F> {
    fn check(&self, ppn: Ppn) -> Result<(), FlashError> {
        let pages = self.geometry.pages();
        if ppn.0 < pages { Ok(()) } else { Err(FlashError::PageOutOfRange { ppn, pages }) }
    }

    fn read_pair(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
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
            status = worse(status, read);
        }
        Ok(status)
    }
}

fn worse(one: ReadStatus, other: ReadStatus) -> ReadStatus {
    if other == ReadStatus::Corrected { other } else { one }
}

impl<F: Flash> Flash for Shown<F> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        if matches!(self.shape, Shape::Plain) {
            return self.device.read(ppn, data, spare);
        }
        self.check(ppn)?;
        let Shape::Summaries(summaries) = &mut self.shape else { return self.read_pair(ppn, data, spare) };
        let mut status = ReadStatus::Clean;
        if !data.is_empty() {
            let is_anchor = self.geometry.segment_of(ppn).0 == 0;
            let page = if is_anchor { summaries.anchor_pages(ppn)?.0 } else { ppn };
            status = self.device.read(page, data, &mut []).map_err(|error| Self::of_pair(error, ppn))?;
        }
        if !spare.is_empty() {
            let read = summaries.read(&mut self.device, ppn, spare).map_err(|error| Self::of_pair(error, ppn))?;
            status = worse(status, read);
        }
        Ok(status)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        if matches!(self.shape, Shape::Plain) {
            return self.device.program(ppn, data, spare);
        }
        self.check(ppn)?;
        if let Shape::Summaries(summaries) = &mut self.shape {
            return summaries.program(&mut self.device, ppn, data, spare).map_err(|error| Self::of_pair(error, ppn));
        }
        let (first, second) = self.pair(ppn);
        self.device.program(first, data, &[]).map_err(|error| Self::of_pair(error, ppn))?;
        self.page.fill(0xFF);
        self.page[..spare.len()].copy_from_slice(spare);
        self.device.program(second, &self.page, &[]).map_err(|error| Self::of_pair(error, ppn))
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        match &mut self.shape {
            Shape::Summaries(summaries) => summaries.erase(&mut self.device, segment),
            _ => self.device.erase(segment),
        }
    }

    fn read_run(&mut self, first: Ppn, data: &mut [u8], spare: &mut [u8]) -> bool {
        matches!(self.shape, Shape::Plain) && self.device.read_run(first, data, spare)
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
        match &self.shape {
            Shape::Plain => self.device.void_page(ppn),
            Shape::Summaries(_) => Err(FlashError::Unsupported),
            Shape::Pairs => {
                let (first, second) = self.pair(ppn);
                self.device.void_page(first)?;
                self.device.void_page(second)
            }
        }
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        if let Shape::Summaries(summaries) = &mut self.shape {
            summaries.flush(&mut self.device)?;
        }
        self.device.sync()
    }

    /// With summaries what was programmed is durable in the order of programs, on a file that a host caches, too.
    fn is_cached(&self) -> bool {
        !matches!(self.shape, Shape::Summaries(_)) && self.device.is_cached()
    }

    fn hold(&mut self, on: bool) -> Result<(), FlashError> {
        if matches!(self.shape, Shape::Summaries(_)) { Ok(()) } else { self.device.hold(on) }
    }

    fn begin_sync(&mut self) -> Result<(), FlashError> {
        if matches!(self.shape, Shape::Summaries(_)) { self.sync() } else { self.device.begin_sync() }
    }

    fn end_sync(&mut self, wait: bool) -> Result<bool, FlashError> {
        if matches!(self.shape, Shape::Summaries(_)) { Ok(true) } else { self.device.end_sync(wait) }
    }

    fn mark(&mut self) -> Result<Option<u64>, FlashError> {
        if matches!(self.shape, Shape::Summaries(_)) { Ok(None) } else { self.device.mark() }
    }

    margay_flash::pass_on!(device: retire, has_payload, set_mark);
}
