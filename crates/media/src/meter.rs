use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};

/// Operations that a device was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Pages read.
    pub reads: u64,
    /// Pages programmed.
    pub programs: u64,
    /// Segments erased.
    pub erases: u64,
}

/// A layer that counts operations; a copy is a read and a program.
#[derive(Clone, Debug)]
pub struct Meter<F> {
    device: F,
    operations: Operations,
}

impl<F> Meter<F> {
    /// Counts from zero.
    pub const fn new(device: F) -> Self {
        Self { device, operations: Operations { reads: 0, programs: 0, erases: 0 } }
    }

    /// What was counted.
    pub const fn operations(&self) -> Operations {
        self.operations
    }
}

impl<F: Flash> Flash for Meter<F> {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.operations.reads += 1;
        self.device.read(ppn, data)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8]) -> Result<(), FlashError> {
        self.operations.programs += 1;
        self.device.program(ppn, data)
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        self.operations.erases += 1;
        self.device.erase(segment)
    }

    fn copy(&mut self, from: Ppn, to: Ppn, scratch: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.operations.reads += 1;
        self.operations.programs += 1;
        self.device.copy(from, to, scratch)
    }
}
