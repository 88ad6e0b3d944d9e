use crate::Damage;
use crate::ram::{check_page, check_part};
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};

/// A layer that enforces the contract: pages of a segment in ascending order, none twice, bits of parts only
/// from 1 to 0, nothing past the end. A program that failed counts as done; a segment whose erase failed cannot be
/// programmed until it is erased.
#[derive(Clone, Debug)]
pub struct Strict<F> {
    device: F,
    /// By segment, the first page that may be programmed.
    next: Vec<u32>,
}

impl<F: Flash> Strict<F> {
    /// Wraps a device whose segments are all erased.
    pub fn new(device: F) -> Self {
        let next = vec![0; device.geometry().segments() as usize];
        Self { device, next }
    }

    /// The device below.
    pub fn into_inner(self) -> F {
        self.device
    }

    /// The device below.
    pub fn inner(&self) -> &F {
        &self.device
    }

    /// The device below, to damage it in tests.
    pub fn inner_mut(&mut self) -> &mut F {
        &mut self.device
    }
}

impl<F: Damage> Strict<F> {
    /// Looks at what the device holds, after a crash that undid programs or erases: the pages behind the last one with a
    /// byte that is not erased may be programmed.
    pub fn look_again(&mut self) {
        let geometry = *self.device.geometry();
        self.next.fill(0);
        for ppn in (0..geometry.pages()).map(Ppn) {
            if self.device.page_bytes_mut(ppn).iter().any(|byte| *byte != 0xFF) {
                self.next[geometry.segment_of(ppn).index()] = geometry.page_in_segment(ppn) + 1;
            }
        }
    }
}

impl<F: Flash> Flash for Strict<F> {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        check_page(self.device.geometry(), ppn, 0, 0)?;
        self.device.read(ppn, data, spare)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        let geometry = self.device.geometry();
        check_page(geometry, ppn, 0, 0)?;
        let (segment, page) = (geometry.segment_of(ppn), geometry.page_in_segment(ppn));
        let next = self.next[segment.index()];
        if page + 1 == next {
            return Err(FlashError::NotErased { ppn });
        }
        if page < next {
            return Err(FlashError::OutOfOrder { ppn, expected: Ppn(ppn.0 - page + next) });
        }
        self.next[segment.index()] = page + 1;
        self.device.program(ppn, data, spare)
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let segments = self.device.geometry().segments();
        if segment.0 >= segments {
            return Err(FlashError::SegmentOutOfRange { segment, segments });
        }
        self.next[segment.index()] = self.device.geometry().pages_per_segment();
        self.device.erase(segment)?;
        self.next[segment.index()] = 0;
        Ok(())
    }

    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        check_part(self.device.geometry(), ppn, offset_bytes, bytes.len())?;
        self.device.read_part(ppn, offset_bytes, bytes)
    }

    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        check_part(self.device.geometry(), ppn, offset_bytes, bytes.len())?;
        let mut old = vec![0; bytes.len()];
        self.device.read_part(ppn, offset_bytes, &mut old)?;
        if let Some(at) = old.iter().zip(bytes).position(|(old, new)| !old & new != 0) {
            return Err(FlashError::BitsSet { ppn, offset_bytes: offset_bytes + at as u32 });
        }
        self.device.program_part(ppn, offset_bytes, bytes)
    }

    fn void_page(&mut self, ppn: Ppn) -> Result<(), FlashError> {
        let geometry = self.device.geometry();
        check_page(geometry, ppn, 0, 0)?;
        let (segment, page) = (geometry.segment_of(ppn), geometry.page_in_segment(ppn));
        self.next[segment.index()] = self.next[segment.index()].max(page + 1);
        self.device.void_page(ppn)
    }

    margay_flash::pass_on!(device: retire, has_payload, sync, is_cached, mark, set_mark);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cached, Call, Effect, Flaky, Loss, Meter, NullFlash, RamFlash};

    fn geometry() -> Geometry {
        Geometry::new(3, 4, 16).unwrap()
    }

    #[test]
    fn pages_are_programmed_in_ascending_order_and_once() {
        let mut flash = Strict::new(NullFlash::new(geometry()));
        flash.program(Ppn(4), &[], &[]).unwrap();
        assert_eq!(flash.program(Ppn(4), &[], &[]), Err(FlashError::NotErased { ppn: Ppn(4) }));
        flash.program(Ppn(6), &[], &[]).unwrap();
        let early = Err(FlashError::OutOfOrder { ppn: Ppn(5), expected: Ppn(7) });
        assert_eq!(flash.program(Ppn(5), &[], &[]), early);
        flash.erase(SegmentId(1)).unwrap();
        flash.program(Ppn(4), &[], &[]).unwrap();
    }

    #[test]
    fn what_failed_is_not_programmed_again_and_what_a_crash_undid_is() {
        let cached = Cached::new(Flaky::new(RamFlash::new(geometry())), 16);
        let mut flash = Strict::new(cached);
        flash.program(Ppn(0), &[1; 16], &[]).unwrap();
        flash.sync().unwrap();
        flash.inner_mut().inner_mut().fail(Call::Program, 0..1, Effect::NotDone, 5);
        flash.inner_mut().inner_mut().fail(Call::Erase, 0..1, Effect::HalfDone, 5);
        assert_eq!(flash.program(Ppn(1), &[2; 16], &[]), Err(FlashError::Io { code: 5 }));
        assert_eq!(flash.program(Ppn(1), &[2; 16], &[]), Err(FlashError::NotErased { ppn: Ppn(1) }));
        flash.program(Ppn(2), &[3; 16], &[]).unwrap();
        assert_eq!(flash.erase(SegmentId(0)), Err(FlashError::Io { code: 5 }));
        assert!(flash.program(Ppn(3), &[4; 16], &[]).is_err(), "the segment may be half erased");
        flash.inner_mut().crash(Loss::Everything, 0);
        flash.look_again();
        assert_eq!(flash.program(Ppn(0), &[2; 16], &[]), Err(FlashError::NotErased { ppn: Ppn(0) }));
        flash.program(Ppn(1), &[2; 16], &[]).unwrap();
        flash.void_page(Ppn(2)).unwrap();
        assert_eq!(flash.program(Ppn(2), &[2; 16], &[]), Err(FlashError::NotErased { ppn: Ppn(2) }));
        flash.program(Ppn(3), &[2; 16], &[]).unwrap();
    }

    #[test]
    fn addresses_past_the_end_are_errors() {
        let mut flash = Strict::new(RamFlash::new(geometry()));
        let past = Err(FlashError::PageOutOfRange { ppn: Ppn(12), pages: 12 });
        assert_eq!(flash.program(Ppn(12), &[0; 16], &[]), past);
        assert_eq!(flash.read(Ppn(12), &mut [0; 16], &mut []).map(drop), past);
        let past = Err(FlashError::SegmentOutOfRange { segment: SegmentId(3), segments: 3 });
        assert_eq!(flash.erase(SegmentId(3)), past);
        let short = Err(FlashError::BufferSize { len_bytes: 3, page_bytes: 16 });
        assert_eq!(flash.program(Ppn(0), &[0; 3], &[]), short);
        let no_spare = Err(FlashError::BufferSize { len_bytes: 1, page_bytes: 0 });
        assert_eq!(flash.program(Ppn(1), &[0; 16], &[0]), no_spare);
        assert_eq!(flash.program_part(Ppn(1), 0, &[0]), Err(FlashError::Unsupported));
    }

    #[test]
    fn bits_of_parts_go_from_one_to_zero_only() {
        let mut flash = Strict::new(RamFlash::new(geometry().byte_programmable()));
        flash.program_part(Ppn(0), 4, &[0xF0, 0xFF]).unwrap();
        flash.program_part(Ppn(0), 4, &[0x30, 0x0F]).unwrap();
        let set = Err(FlashError::BitsSet { ppn: Ppn(0), offset_bytes: 5 });
        assert_eq!(flash.program_part(Ppn(0), 4, &[0x30, 0x1F]), set);
        let mut bytes = [0; 2];
        flash.read_part(Ppn(0), 4, &mut bytes).unwrap();
        assert_eq!(bytes, [0x30, 0x0F]);
        let past = Err(FlashError::BufferSize { len_bytes: 17, page_bytes: 16 });
        assert_eq!(flash.program_part(Ppn(0), 15, &[0, 0]), past);
    }

    #[test]
    fn ram_keeps_data_and_spare_until_the_segment_is_erased_and_the_meter_counts() {
        let mut flash = Meter::new(RamFlash::new(geometry().with_spare(4)));
        flash.program(Ppn(0), &[7; 16], &[1, 2]).unwrap();
        let (mut data, mut spare) = ([0; 16], [0; 4]);
        flash.read(Ppn(0), &mut data, &mut spare).unwrap();
        assert_eq!((data, spare), ([7; 16], [1, 2, 0xFF, 0xFF]));
        flash.erase(SegmentId(0)).unwrap();
        flash.read(Ppn(0), &mut data, &mut []).unwrap();
        assert_eq!(data, [0xFF; 16]);
        let counted = flash.operations();
        assert_eq!((counted.reads, counted.programs, counted.erases), (2, 1, 1));
        assert_eq!((counted.read_bytes, counted.programmed_bytes, counted.programmed_spare_bytes), (36, 16, 2));
    }
}
