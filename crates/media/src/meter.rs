use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};

/// Numbers of operations that a device was asked for, and of bytes they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Pages read, or their spare areas alone.
    pub reads: u64,
    /// Pages programmed.
    pub programs: u64,
    /// Segments erased.
    pub erases: u64,
    /// Parts of pages read.
    pub part_reads: u64,
    /// Bytes read: pages, spare areas, parts.
    pub read_bytes: u64,
    /// Bytes programmed in pages and parts, spare areas not included.
    pub programmed_bytes: u64,
    /// Bytes programmed in spare areas.
    pub programmed_spare_bytes: u64,
}

/// A layer that counts operations.
#[derive(Clone, Debug)]
pub struct Meter<F> {
    device: F,
    operations: Operations,
}

impl<F> Meter<F> {
    /// Counts from zero.
    pub fn new(device: F) -> Self {
        Self { device, operations: Operations::default() }
    }

    /// The counts so far.
    pub const fn operations(&self) -> Operations {
        self.operations
    }

    /// The device below, which tests change to damage it.
    pub fn inner_mut(&mut self) -> &mut F {
        &mut self.device
    }

    /// The device below.
    pub fn into_inner(self) -> F {
        self.device
    }
}

impl<F: Flash> Flash for Meter<F> {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.operations.reads += 1;
        self.operations.read_bytes += (data.len() + spare.len()) as u64;
        self.device.read(ppn, data, spare)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        self.operations.programs += 1;
        self.operations.programmed_bytes += data.len() as u64;
        self.operations.programmed_spare_bytes += spare.len() as u64;
        self.device.program(ppn, data, spare)
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        self.operations.erases += 1;
        self.device.erase(segment)
    }

    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.operations.part_reads += 1;
        self.operations.read_bytes += bytes.len() as u64;
        self.device.read_part(ppn, offset_bytes, bytes)
    }

    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        self.operations.programmed_bytes += bytes.len() as u64;
        self.device.program_part(ppn, offset_bytes, bytes)
    }

    margay_flash::pass_on!(device: retire, has_payload, sync, is_cached, void_page, mark, set_mark);
}
