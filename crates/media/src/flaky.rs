use crate::Damage;
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};
use std::ops::Range;

/// Kinds of calls that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Reads of pages, of parts of pages, and of the mark.
    Read,
    /// Programs of pages and of parts of pages, making pages void, and setting the mark.
    Program,
    /// Erases.
    Erase,
    /// Syncs.
    Sync,
}

impl Call {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Read, Self::Program, Self::Erase, Self::Sync];
}

/// What a call that fails has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Everything.
    Done,
    /// Nothing.
    NotDone,
    /// The first half: of the bytes of a page and its spare area, of the pages of a segment. A sync did nothing.
    HalfDone,
}

impl Effect {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Done, Self::NotDone, Self::HalfDone];
}

#[derive(Clone, Debug)]
struct Fault {
    call: Call,
    numbers: Range<u64>,
    effect: Effect,
    code: i32,
}

/// A layer whose calls fail for a moment with [`FlashError::Io`], as the file or the driver below a device may.
#[derive(Clone, Debug)]
pub struct Flaky<F> {
    device: F,
    faults: Vec<Fault>,
    /// By kind, calls so far.
    calls: [u64; 4],
    errors: u64,
}

impl<F: Damage> Flaky<F> {
    /// A device of which no call fails until [`Flaky::fail`].
    pub const fn new(device: F) -> Self {
        Self { device, faults: Vec::new(), calls: [0; 4], errors: 0 }
    }

    /// The calls `from_now` of a kind, counted from 0 and by kind, fail with this error number of the operating system.
    pub fn fail(&mut self, call: Call, from_now: Range<u64>, effect: Effect, code: i32) {
        let base = self.calls(call);
        let numbers = base + from_now.start..base.saturating_add(from_now.end);
        self.faults.push(Fault { call, numbers, effect, code });
    }

    /// No call fails any more.
    pub fn heal(&mut self) {
        self.faults.clear();
    }

    /// Calls of a kind so far.
    pub const fn calls(&self, call: Call) -> u64 {
        self.calls[call as usize]
    }

    /// Calls that failed so far.
    pub const fn errors(&self) -> u64 {
        self.errors
    }

    /// Counts a call. What it does if it fails, and its error.
    fn begin(&mut self, call: Call) -> Option<(Effect, FlashError)> {
        let number = self.calls[call as usize];
        self.calls[call as usize] += 1;
        let fault = self.faults.iter().find(|fault| fault.call == call && fault.numbers.contains(&number))?;
        self.errors += 1;
        Some((fault.effect, FlashError::Io { code: fault.code }))
    }

    /// Fills the first half of a page and its spare area with what is programmed.
    fn put_half(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) {
        let page_bytes = self.device.geometry().page_bytes() as usize;
        let bytes = self.device.page_bytes_mut(ppn);
        let (page, page_spare) = bytes.split_at_mut(page_bytes);
        let half = (data.len() + spare.len()) / 2;
        let in_data = half.min(data.len());
        page[..in_data].copy_from_slice(&data[..in_data]);
        page_spare[..half - in_data].copy_from_slice(&spare[..half - in_data]);
    }
}

impl<F: Damage> Flash for Flaky<F> {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        let Some((effect, error)) = self.begin(Call::Read) else { return self.device.read(ppn, data, spare) };
        match effect {
            Effect::Done => drop(self.device.read(ppn, data, spare)?),
            Effect::NotDone => {}
            Effect::HalfDone => {
                let mut page = vec![0; data.len()];
                self.device.read(ppn, &mut page, &mut [])?;
                let half = data.len() / 2;
                data[..half].copy_from_slice(&page[..half]);
            }
        }
        Err(error)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        let Some((effect, error)) = self.begin(Call::Program) else { return self.device.program(ppn, data, spare) };
        match effect {
            Effect::Done => self.device.program(ppn, data, spare)?,
            Effect::NotDone => {}
            Effect::HalfDone => {
                // It checks the address and the buffers.
                self.device.program(ppn, &[], &[])?;
                self.put_half(ppn, data, spare);
            }
        }
        Err(error)
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let Some((effect, error)) = self.begin(Call::Erase) else { return self.device.erase(segment) };
        let geometry = *self.device.geometry();
        match effect {
            Effect::Done => self.device.erase(segment)?,
            Effect::HalfDone if segment.0 < geometry.segments() => {
                let first = geometry.first_page(segment).0;
                for page in first..first + geometry.pages_per_segment() / 2 {
                    self.device.page_bytes_mut(Ppn(page)).fill(0xFF);
                }
            }
            Effect::NotDone | Effect::HalfDone => {}
        }
        Err(error)
    }

    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        let Some((effect, error)) = self.begin(Call::Read) else {
            return self.device.read_part(ppn, offset_bytes, bytes);
        };
        let half = bytes.len() / 2;
        match effect {
            Effect::Done => drop(self.device.read_part(ppn, offset_bytes, bytes)?),
            Effect::NotDone => {}
            Effect::HalfDone => drop(self.device.read_part(ppn, offset_bytes, &mut bytes[..half])?),
        }
        Err(error)
    }

    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        let Some((effect, error)) = self.begin(Call::Program) else {
            return self.device.program_part(ppn, offset_bytes, bytes);
        };
        match effect {
            Effect::Done => self.device.program_part(ppn, offset_bytes, bytes)?,
            Effect::NotDone => {}
            Effect::HalfDone => self.device.program_part(ppn, offset_bytes, &bytes[..bytes.len() / 2])?,
        }
        Err(error)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        let Some((effect, error)) = self.begin(Call::Sync) else { return self.device.sync() };
        if effect == Effect::Done {
            self.device.sync()?;
        }
        Err(error)
    }

    fn begin_sync(&mut self) -> Result<(), FlashError> {
        let Some((effect, error)) = self.begin(Call::Sync) else { return self.device.begin_sync() };
        if effect == Effect::Done {
            self.device.begin_sync()?;
        }
        Err(error)
    }

    fn end_sync(&mut self, wait: bool) -> Result<bool, FlashError> {
        self.device.end_sync(wait)
    }

    fn void_page(&mut self, ppn: Ppn) -> Result<(), FlashError> {
        let Some((effect, error)) = self.begin(Call::Program) else { return self.device.void_page(ppn) };
        match effect {
            Effect::Done => self.device.void_page(ppn)?,
            Effect::NotDone => {}
            Effect::HalfDone => {
                self.device.program(ppn, &[], &[])?;
                let bytes = self.device.page_bytes_mut(ppn);
                let half = bytes.len() / 2;
                bytes[..half].fill(0);
            }
        }
        Err(error)
    }

    fn mark(&mut self) -> Result<Option<u64>, FlashError> {
        match self.begin(Call::Read) {
            None => self.device.mark(),
            Some((_, error)) => Err(error),
        }
    }

    fn set_mark(&mut self, mark: Option<u64>) -> Result<(), FlashError> {
        let Some((effect, error)) = self.begin(Call::Program) else { return self.device.set_mark(mark) };
        // It is one sector of the host's disk.
        if effect == Effect::Done {
            self.device.set_mark(mark)?;
        }
        Err(error)
    }

    margay_flash::pass_on!(device: retire, has_payload, is_cached);
}

impl<F: Damage> Damage for Flaky<F> {
    fn page_bytes_mut(&mut self, ppn: Ppn) -> &mut [u8] {
        self.device.page_bytes_mut(ppn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RamFlash;

    const ENOSPC: i32 = 28;

    fn device() -> Flaky<RamFlash> {
        let mut flash = Flaky::new(RamFlash::new(Geometry::new(2, 4, 16).unwrap().with_spare(8)));
        (4..8).for_each(|page| flash.program(Ppn(page), &[1; 16], &[1; 8]).unwrap());
        flash
    }

    #[test]
    fn the_calls_named_fail_and_did_what_the_effect_says() {
        let half: [u8; 24] = core::array::from_fn(|i| if i < 12 { 7 } else { 0xFF });
        for (effect, expected) in Effect::ALL.into_iter().zip([[7; 24], [0xFF; 24], half]) {
            let mut flash = device();
            flash.fail(Call::Program, 1..3, effect, ENOSPC);
            let results = [0, 1, 2, 3].map(|page| flash.program(Ppn(page), &[7; 16], &[7; 8]));
            let failed = Err(FlashError::Io { code: ENOSPC });
            assert_eq!(results, [Ok(()), failed, failed, Ok(())]);
            assert_eq!(flash.page_bytes_mut(Ppn(0)), [7; 24]);
            assert_eq!(flash.page_bytes_mut(Ppn(2)), expected, "{effect:?}");
            assert_eq!((flash.errors(), flash.calls(Call::Program), flash.calls(Call::Erase)), (2, 8, 0));
        }
    }

    #[test]
    fn an_erase_fails_whole_in_half_or_not_at_all_and_the_next_one_succeeds() {
        for (effect, expected) in Effect::ALL.into_iter().zip([[0xFF; 4], [1; 4], [0xFF, 0xFF, 1, 1]]) {
            let mut flash = device();
            flash.fail(Call::Erase, 0..1, effect, 5);
            assert_eq!(flash.erase(SegmentId(1)), Err(FlashError::Io { code: 5 }));
            assert_eq!([4, 5, 6, 7].map(|page| flash.page_bytes_mut(Ppn(page))[3]), expected, "{effect:?}");
            flash.erase(SegmentId(1)).unwrap();
            assert_eq!(flash.page_bytes_mut(Ppn(7)), [0xFF; 24]);
        }
    }

    #[test]
    fn reads_syncs_parts_and_voids_fail_too_until_the_device_is_healed() {
        let geometry = Geometry::new(2, 4, 16).unwrap().byte_programmable();
        let mut flash = Flaky::new(RamFlash::new(geometry));
        let failed = FlashError::Io { code: 5 };
        for call in Call::ALL {
            flash.fail(call, 0..u64::MAX, Effect::HalfDone, 5);
        }
        assert_eq!(flash.program_part(Ppn(0), 4, &[0; 4]), Err(failed));
        let mut part = [9; 4];
        assert_eq!(flash.read_part(Ppn(0), 4, &mut part), Err(failed));
        assert_eq!(part, [0, 0, 9, 9]);
        let mut data = [9; 16];
        assert_eq!(flash.read(Ppn(0), &mut data, &mut []), Err(failed));
        assert_eq!(data[..9], [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0xFF, 0xFF, 9]);
        assert_eq!((flash.sync(), flash.void_page(Ppn(1))), (Err(failed), Err(failed)));
        flash.heal();
        flash.read(Ppn(1), &mut data, &mut []).unwrap();
        assert_eq!(data[7..9], [0, 0xFF]);
        flash.sync().unwrap();
        assert_eq!(flash.errors(), 5);
    }
}
