//! A chip that a test can look at while a volume has it; the fuzz target uses it too.
#![allow(dead_code, missing_docs, reason = "a part of the tests, each of which takes what it needs")]

use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};
use margay_media::RamFlash;
use std::sync::{Arc, Mutex};

/// A chip that several owners hold, so that a test can look at it.
#[derive(Clone, Debug)]
pub struct SharedFlash(pub Arc<Mutex<RamFlash>>, Geometry);

impl SharedFlash {
    pub fn new(geometry: Geometry) -> Self {
        Self::of(RamFlash::new(geometry))
    }

    pub fn of(ram: RamFlash) -> Self {
        let geometry = *ram.geometry();
        Self(Arc::new(Mutex::new(ram)), geometry)
    }
}

impl Flash for SharedFlash {
    fn geometry(&self) -> &Geometry {
        &self.1
    }
    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.0.lock().unwrap().read(ppn, data, spare)
    }
    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        self.0.lock().unwrap().program(ppn, data, spare)
    }
    fn read_run(&mut self, first: Ppn, data: &mut [u8], spare: &mut [u8]) -> bool {
        self.0.lock().unwrap().read_run(first, data, spare)
    }
    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        self.0.lock().unwrap().erase(segment)
    }
    fn read_part(&mut self, ppn: Ppn, offset: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.0.lock().unwrap().read_part(ppn, offset, bytes)
    }
    fn program_part(&mut self, ppn: Ppn, offset: u32, bytes: &[u8]) -> Result<(), FlashError> {
        self.0.lock().unwrap().program_part(ppn, offset, bytes)
    }
}
