use crate::layout::{LayoutError, TAG_BYTES};
use crate::summaries::{Contents, Summaries, summaries_geometry};
use alloc::boxed::Box;
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};

/// Bytes of the spare area that a pair of pages shows.
const SPARE_BYTES: u32 = 512;

/// A device that has room for the information on its pages.
///
/// One with a usable spare area, or one that is programmed byte by byte, is shown as it is. Any other was formatted in one of two
/// ways (FORMAT.md, "Pairs" and "Summaries"): in pairs, half of the pages are shown, each durable by itself; with summaries,
/// all of them, and they are durable after a sync.
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
    /// Each page of data is followed by a page with its information. Of a pair that a power cut interrupted the second page is
    /// erased or cannot be read, as of a page whose spare area was not programmed.
    Pairs,
    Summaries(Box<Summaries>),
}

/// The shape of a device's pairs, or its own if it needs none or is too small.
pub fn shown_geometry(raw: &Geometry) -> Geometry {
    let is_small = raw.page_bytes() < SPARE_BYTES || raw.pages_per_segment() < 4;
    let has_place = raw.is_byte_programmable() || raw.spare_bytes() as usize >= TAG_BYTES;
    match Geometry::new(raw.segments(), raw.pages_per_segment() / 2, raw.page_bytes()) {
        Ok(pairs) if !has_place && !is_small => pairs.with_spare(SPARE_BYTES),
        _ => *raw,
    }
}

/// The shape that the format is to see of a device that is going to be formatted, and whether it is one with summaries: that it is
/// if the spare areas are too small, they are wanted, and pairs are not. Fails with [`LayoutError::NeedsPairs`] if only pairs are possible and `pair_pages` does
/// not allow them: half of the capacity is not given up unasked.
pub fn geometry_to_format(raw: &Geometry, pair_pages: bool, summaries: bool) -> Result<(Geometry, bool), LayoutError> {
    let shown = shown_geometry(raw);
    match summaries_geometry(raw).filter(|_| summaries && !pair_pages) {
        Some(geometry) => Ok((geometry, true)),
        None if shown == *raw || pair_pages => Ok((shown, false)),
        None => Err(LayoutError::NeedsPairs { spare_bytes: raw.spare_bytes() }),
    }
}

impl<F: Flash> Shown<F> {
    /// Shows a device as it is, or in pairs.
    pub fn new(device: F) -> Self {
        let geometry = shown_geometry(device.geometry());
        let shape = if geometry == *device.geometry() { Shape::Plain } else { Shape::Pairs };
        let page = vec![0xFF; if matches!(shape, Shape::Pairs) { geometry.page_bytes() as usize } else { 0 }];
        Self { device, geometry, shape, page }
    }

    /// Shows a device that was formatted with summaries in this shape; another device as [`Shown::new`] does.
    pub fn with_summaries(device: F, geometry: &Geometry, uuid: [u8; 16]) -> Self {
        if summaries_geometry(device.geometry()).as_ref() != Some(geometry) {
            return Self::new(device);
        }
        let shape = Shape::Summaries(Box::new(Summaries::new(*geometry, uuid)));
        Self { device, geometry: *geometry, shape, page: Vec::new() }
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

    /// Whether tags are in summaries.
    pub fn has_summaries(&self) -> bool {
        matches!(self.shape, Shape::Summaries(_))
    }

    /// The summaries and the device that they are on, if there are any.
    pub fn summaries(&mut self) -> Option<(&mut Summaries, &mut F)> {
        match &mut self.shape {
            Shape::Summaries(summaries) => Some((summaries, &mut self.device)),
            _ => None,
        }
    }

    /// What summaries say of a segment; `None` if there are none.
    pub fn contents(&mut self, segment: SegmentId) -> Option<Result<Contents, FlashError>> {
        self.summaries().map(|(summaries, device)| summaries.contents(device, segment))
    }

    /// The page that the log may program next in a segment that is being filled, if it has to ask.
    pub fn next_page(&self, segment: SegmentId) -> Option<Ppn> {
        match &self.shape {
            Shape::Summaries(summaries) => summaries.next_page(segment),
            _ => None,
        }
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
            let len = spare.len().min(SPARE_BYTES as usize);
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

    fn hold(&mut self, on: bool) -> Result<(), FlashError> {
        self.device.hold(on)
    }

    fn begin_sync(&mut self) -> Result<(), FlashError> {
        match self.shape {
            Shape::Summaries(_) => self.sync(),
            _ => self.device.begin_sync(),
        }
    }

    fn end_sync(&mut self, wait: bool) -> Result<bool, FlashError> {
        self.device.end_sync(wait)
    }

    /// Summaries are programmed in an order, with syncs between them, in which nothing is in doubt but the last one.
    fn is_cached(&self) -> bool {
        !self.has_summaries() && self.device.is_cached()
    }

    fn mark(&mut self) -> Result<Option<u64>, FlashError> {
        if self.has_summaries() { Ok(None) } else { self.device.mark() }
    }

    margay_flash::pass_on!(device: retire, has_payload, set_mark);
}
