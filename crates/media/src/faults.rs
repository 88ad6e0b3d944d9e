use crate::Damage;
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};
use std::collections::{HashMap, HashSet};

/// The operating system's number of an input/output error.
const EIO: i32 = 5;

/// How a read fails that would succeed another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFault {
    /// The file or driver below fails ([`FlashError::Io`]).
    Io,
    /// The chip reports more bit errors than the ECC corrects ([`FlashError::Uncorrectable`]).
    Uncorrectable,
}

/// A layer with segments that go bad, pages that lose bits, and reads that fail once.
#[derive(Clone, Debug)]
pub struct Faults<F> {
    device: F,
    programs: u64,
    erases: u64,
    reads: u64,
    failing_programs: HashSet<u64>,
    failing_erases: HashSet<u64>,
    /// Reads that fail, each with its error.
    failing_reads: HashMap<u64, ReadFault>,
    /// Segments that have failed.
    bad: HashSet<u32>,
    /// Erases that a segment endures; 0 for any number.
    endurance: u32,
    erase_counts: HashMap<u32, u32>,
    /// Number of flipped bits, by page.
    flips: HashMap<u32, u32>,
    ecc_bits: u32,
}

impl<F: Flash> Faults<F> {
    /// A device whose ECC corrects `ecc_bits` bits of a page.
    pub fn new(device: F, ecc_bits: u32) -> Self {
        Self {
            device,
            programs: 0,
            erases: 0,
            reads: 0,
            failing_programs: HashSet::new(),
            failing_erases: HashSet::new(),
            failing_reads: HashMap::new(),
            bad: HashSet::new(),
            endurance: 0,
            erase_counts: HashMap::new(),
            flips: HashMap::new(),
            ecc_bits,
        }
    }

    /// Makes the program number `from_now` from now, counted from 0, fail. Its segment stays bad.
    pub fn fail_program(&mut self, from_now: u64) {
        self.failing_programs.insert(self.programs + from_now);
    }

    /// Makes the erase number `from_now` from now, counted from 0, fail. Its segment stays bad.
    pub fn fail_erase(&mut self, from_now: u64) {
        self.failing_erases.insert(self.erases + from_now);
    }

    /// The read number `from now`, of a page or of a part of one, counted from 0, fails as `fault` says. The page can be
    /// read again.
    pub fn fail_read_once(&mut self, from_now: u64, fault: ReadFault) {
        self.failing_reads.insert(self.reads + from_now, fault);
    }

    /// Every segment fails at the erase after this many.
    pub fn wear_out_after(&mut self, erases: u32) {
        self.endurance = erases;
    }

    /// Gives a page `bits` bit errors until it is erased.
    pub fn flip_bits(&mut self, ppn: Ppn, bits: u32) {
        self.flips.insert(ppn.0, bits);
    }

    /// Number of segments that have failed.
    pub fn bad_segments(&self) -> usize {
        self.bad.len()
    }

    /// Programs and erases so far.
    pub fn operations(&self) -> (u64, u64) {
        (self.programs, self.erases)
    }

    /// Reads of pages and of parts of pages so far.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    fn may_read(&mut self, ppn: Ppn) -> Result<(), FlashError> {
        let fault = self.failing_reads.remove(&self.reads);
        self.reads += 1;
        match fault {
            Some(ReadFault::Io) => Err(FlashError::Io { code: EIO }),
            Some(ReadFault::Uncorrectable) => Err(FlashError::Uncorrectable { ppn }),
            None => Ok(()),
        }
    }

    fn may_program(&mut self, ppn: Ppn) -> Result<(), FlashError> {
        let segment = self.device.geometry().segment_of(ppn).0;
        if self.failing_programs.remove(&self.programs) {
            self.bad.insert(segment);
        }
        self.programs += 1;
        if self.bad.contains(&segment) { Err(FlashError::ProgramFailed { ppn }) } else { Ok(()) }
    }
}

impl<F: Flash> Flash for Faults<F> {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.may_read(ppn)?;
        match self.flips.get(&ppn.0) {
            Some(bits) if *bits > self.ecc_bits => Err(FlashError::Uncorrectable { ppn }),
            Some(_) => self.device.read(ppn, data, spare).map(|_| ReadStatus::Corrected),
            None => self.device.read(ppn, data, spare),
        }
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        self.may_program(ppn)?;
        self.device.program(ppn, data, spare)
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let count = self.erase_counts.entry(segment.0).or_insert(0);
        *count += 1;
        let worn_out = self.endurance > 0 && *count > self.endurance;
        if self.failing_erases.remove(&self.erases) || worn_out {
            self.bad.insert(segment.0);
        }
        self.erases += 1;
        if self.bad.contains(&segment.0) {
            return Err(FlashError::EraseFailed { segment });
        }
        let first = self.geometry().first_page(segment).0;
        let pages = self.geometry().pages_per_segment();
        self.flips.retain(|page, _| !(first..first + pages).contains(page));
        self.device.erase(segment)
    }

    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.may_read(ppn)?;
        self.device.read_part(ppn, offset_bytes, bytes)
    }

    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        self.may_program(ppn)?;
        self.device.program_part(ppn, offset_bytes, bytes)
    }

    margay_flash::pass_on!(device: retire, has_payload, sync, is_cached, void_page, mark, set_mark);
}

impl<F: Damage> Damage for Faults<F> {
    fn page_bytes_mut(&mut self, ppn: Ppn) -> &mut [u8] {
        self.device.page_bytes_mut(ppn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RamFlash;

    #[test]
    fn a_read_fails_once_as_told_and_the_page_is_read_the_next_time() {
        let geometry = Geometry::new(2, 4, 16).unwrap().byte_programmable();
        let mut flash = Faults::new(RamFlash::new(geometry), 4);
        flash.program(Ppn(1), &[7; 16], &[]).unwrap();
        flash.fail_read_once(1, ReadFault::Io);
        flash.fail_read_once(3, ReadFault::Uncorrectable);
        let mut data = [0; 16];
        let mut read = |flash: &mut Faults<RamFlash>| flash.read(Ppn(1), &mut data, &mut []).map(|_| data);
        assert_eq!(read(&mut flash), Ok([7; 16]));
        assert_eq!(read(&mut flash), Err(FlashError::Io { code: 5 }));
        assert_eq!(read(&mut flash), Ok([7; 16]));
        let mut part = [0; 2];
        assert_eq!(flash.read_part(Ppn(1), 0, &mut part), Err(FlashError::Uncorrectable { ppn: Ppn(1) }));
        assert_eq!(flash.read_part(Ppn(1), 0, &mut part).map(|_| part), Ok([7; 2]));
    }
}
