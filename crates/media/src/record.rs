use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};

/// A program or an erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A page was programmed.
    Program(Ppn),
    /// A segment was erased.
    Erase(SegmentId),
}

/// A layer that records every program and erase.
#[derive(Clone, Debug)]
pub struct Recorder<F> {
    device: F,
    operations: Vec<Operation>,
}

impl<F> Recorder<F> {
    /// Records every operation on `device` from now on.
    pub const fn new(device: F) -> Self {
        Self { device, operations: Vec::new() }
    }

    /// The programs and erases recorded so far, in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Clears the record.
    pub fn clear(&mut self) {
        self.operations.clear();
    }
}

impl<F: Flash> Flash for Recorder<F> {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.device.read(ppn, data, spare)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        self.operations.push(Operation::Program(ppn));
        self.device.program(ppn, data, spare)
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        self.operations.push(Operation::Erase(segment));
        self.device.erase(segment)
    }

    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.device.read_part(ppn, offset_bytes, bytes)
    }

    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        self.device.program_part(ppn, offset_bytes, bytes)
    }

    margay_flash::pass_on!(device: retire, has_payload, sync, is_cached, void_page, mark, set_mark);
}
