use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};

/// A device without payload: every operation succeeds and costs nothing. Reads return zeros.
///
/// It checks nothing; wrap it in [`crate::Strict`] to have the contract enforced.
#[derive(Clone, Copy, Debug)]
pub struct NullFlash {
    geometry: Geometry,
}

impl NullFlash {
    /// A device of the given shape.
    pub const fn new(geometry: Geometry) -> Self {
        Self { geometry }
    }
}

impl Flash for NullFlash {
    #[inline(always)]
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    #[inline(always)]
    fn read(&mut self, _: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        data.fill(0);
        spare.fill(0);
        Ok(ReadStatus::Clean)
    }

    #[inline(always)]
    fn program(&mut self, _: Ppn, _: &[u8], _: &[u8]) -> Result<(), FlashError> {
        Ok(())
    }

    #[inline(always)]
    fn erase(&mut self, _: SegmentId) -> Result<(), FlashError> {
        Ok(())
    }

    fn has_payload(&self) -> bool {
        false
    }

    fn read_part(&mut self, _: Ppn, _: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        bytes.fill(0);
        Ok(ReadStatus::Clean)
    }

    fn program_part(&mut self, _: Ppn, _: u32, _: &[u8]) -> Result<(), FlashError> {
        Ok(())
    }
}
