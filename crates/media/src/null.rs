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

    fn read(&mut self, _: Ppn, data: &mut [u8]) -> Result<ReadStatus, FlashError> {
        data.fill(0);
        Ok(ReadStatus::Clean)
    }

    #[inline(always)]
    fn program(&mut self, _: Ppn, _: &[u8]) -> Result<(), FlashError> {
        Ok(())
    }

    #[inline(always)]
    fn erase(&mut self, _: SegmentId) -> Result<(), FlashError> {
        Ok(())
    }

    #[inline(always)]
    fn copy(&mut self, _: Ppn, _: Ppn, _: &mut [u8]) -> Result<ReadStatus, FlashError> {
        Ok(ReadStatus::Clean)
    }
}
