use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};

/// A layer that enforces the contract: pages of a segment in order, none twice, nothing past the end.
#[derive(Clone, Debug)]
pub struct Strict<F> {
    device: F,
    /// Pages programmed in each segment since its last erase.
    programmed: Vec<u32>,
}

impl<F: Flash> Strict<F> {
    /// Watches a device whose segments are all erased.
    pub fn new(device: F) -> Self {
        let programmed = vec![0; device.geometry().segments() as usize];
        Self { device, programmed }
    }

    /// The device below.
    pub fn into_inner(self) -> F {
        self.device
    }

    fn check(&self, ppn: Ppn) -> Result<(SegmentId, u32), FlashError> {
        let geometry = self.device.geometry();
        if ppn.0 >= geometry.pages() {
            return Err(FlashError::PageOutOfRange { ppn, pages: geometry.pages() });
        }
        Ok((geometry.segment_of(ppn), geometry.page_in_segment(ppn)))
    }

    fn admit(&mut self, ppn: Ppn) -> Result<(), FlashError> {
        let (segment, page) = self.check(ppn)?;
        let next = &mut self.programmed[segment.index()];
        if page < *next {
            return Err(FlashError::NotErased { ppn });
        }
        if page > *next {
            let expected = Ppn(ppn.0 - page + *next);
            return Err(FlashError::OutOfOrder { ppn, expected });
        }
        *next += 1;
        Ok(())
    }
}

impl<F: Flash> Flash for Strict<F> {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.check(ppn)?;
        self.device.read(ppn, data)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8]) -> Result<(), FlashError> {
        self.admit(ppn)?;
        self.device.program(ppn, data)
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let segments = self.device.geometry().segments();
        if segment.0 >= segments {
            return Err(FlashError::SegmentOutOfRange { segment, segments });
        }
        self.programmed[segment.index()] = 0;
        self.device.erase(segment)
    }

    fn copy(&mut self, from: Ppn, to: Ppn, scratch: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.check(from)?;
        self.admit(to)?;
        self.device.copy(from, to, scratch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Meter, NullFlash, Operations, RamFlash};

    fn geometry() -> Geometry {
        Geometry::new(3, 4, 16).unwrap()
    }

    #[test]
    fn pages_are_programmed_in_order_and_once() {
        let mut flash = Strict::new(NullFlash::new(geometry()));
        assert_eq!(flash.program(Ppn(5), &[]), Err(FlashError::OutOfOrder { ppn: Ppn(5), expected: Ppn(4) }));
        flash.program(Ppn(4), &[]).unwrap();
        assert_eq!(flash.program(Ppn(4), &[]), Err(FlashError::NotErased { ppn: Ppn(4) }));
        flash.copy(Ppn(4), Ppn(5), &mut []).unwrap();
        flash.erase(SegmentId(1)).unwrap();
        flash.program(Ppn(4), &[]).unwrap();
    }

    #[test]
    fn addresses_past_the_end_are_errors() {
        let mut flash = Strict::new(RamFlash::new(geometry()));
        let past = Err(FlashError::PageOutOfRange { ppn: Ppn(12), pages: 12 });
        assert_eq!(flash.program(Ppn(12), &[0; 16]), past);
        assert_eq!(flash.read(Ppn(12), &mut [0; 16]).map(drop), past);
        let past = Err(FlashError::SegmentOutOfRange { segment: SegmentId(3), segments: 3 });
        assert_eq!(flash.erase(SegmentId(3)), past);
        let short = Err(FlashError::BufferSize { len_bytes: 3, page_bytes: 16 });
        assert_eq!(flash.program(Ppn(0), &[0; 3]), short);
    }

    #[test]
    fn ram_keeps_data_until_the_segment_is_erased_and_the_meter_counts() {
        let mut flash = Meter::new(RamFlash::new(geometry()));
        flash.program(Ppn(0), &[7; 16]).unwrap();
        flash.copy(Ppn(0), Ppn(4), &mut [0; 16]).unwrap();
        flash.erase(SegmentId(0)).unwrap();
        let mut data = [0; 16];
        flash.read(Ppn(4), &mut data).unwrap();
        assert_eq!(data, [7; 16]);
        flash.read(Ppn(0), &mut data).unwrap();
        assert_eq!(data, [0xFF; 16]);
        assert_eq!(flash.operations(), Operations { reads: 3, programs: 2, erases: 1 });
    }
}
