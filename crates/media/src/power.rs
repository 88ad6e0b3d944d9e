use crate::Damage;
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};
use std::collections::{HashMap, HashSet};

/// What a power cut leaves of the operation that it interrupts: the models of torn pages and segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Torn {
    /// Nothing was done.
    Nothing,
    /// A program has written the first half of the page (of a part: of its bytes). An erase has erased the first half
    /// of the segment.
    Half,
    /// A program has left a page that cannot be read. An erase is treated as with [`Torn::Weak`].
    Unreadable,
    /// A program is complete, but the page can be read only a few times. An erase is complete, but pages programmed
    /// after it cannot be read unless the segment is erased again.
    Weak {
        /// Number of successful reads before the page becomes unreadable.
        reads: u32,
    },
}

impl Torn {
    /// All models, for campaigns that try each of them.
    pub const ALL: [Self; 6] = [
        Self::Nothing,
        Self::Half,
        Self::Unreadable,
        Self::Weak { reads: 1 },
        Self::Weak { reads: 2 },
        Self::Weak { reads: 4 },
    ];
}

/// Bytes of an interrupted program that may revert to their old values (NOR).
#[derive(Clone, Debug)]
struct WeakPart {
    ppn: Ppn,
    offset_bytes: u32,
    before: Vec<u8>,
    reads: u32,
}

/// A layer that cuts the power at a chosen program or erase. From then on every operation fails with
/// [`FlashError::PowerLost`] until [`PowerCut::power_on`].
#[derive(Clone, Debug)]
pub struct PowerCut<F> {
    device: F,
    /// Programs and erases since the power was switched on.
    operations: u64,
    cut: Option<(u64, Torn)>,
    is_off: bool,
    /// Reads left of weak pages; 0 for pages that cannot be read.
    weak: HashMap<u32, u32>,
    weak_parts: Vec<WeakPart>,
    /// Segments whose last erase was interrupted, so that pages programmed after it are unreadable.
    unstable: HashSet<u32>,
}

impl<F: Damage> PowerCut<F> {
    /// A device whose power stays on until [`PowerCut::cut_at`].
    pub fn new(device: F) -> Self {
        Self {
            device,
            operations: 0,
            cut: None,
            is_off: false,
            weak: HashMap::new(),
            weak_parts: Vec::new(),
            unstable: HashSet::new(),
        }
    }

    /// Programs and erases since the device was made or the power was last switched on, the interrupted one included.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        self.is_off
    }

    /// Cuts the power during the program or erase number `operation` from now, counted from 0.
    pub fn cut_at(&mut self, operation: u64, torn: Torn) {
        self.cut = Some((self.operations + operation, torn));
    }

    /// Switches the power on again; it stays on.
    pub fn power_on(&mut self) {
        self.cut = None;
        self.is_off = false;
        self.operations = 0;
    }

    /// The device below.
    pub fn device(&self) -> &F {
        &self.device
    }

    /// The device below.
    pub fn device_mut(&mut self) -> &mut F {
        &mut self.device
    }

    fn is_cut(&mut self) -> Result<Option<Torn>, FlashError> {
        if self.is_off {
            return Err(FlashError::PowerLost);
        }
        self.operations += 1;
        match self.cut {
            Some((at, torn)) if at + 1 == self.operations => {
                self.is_off = true;
                Ok(Some(torn))
            }
            _ => Ok(None),
        }
    }

    fn after_program(&mut self, ppn: Ppn) {
        if self.unstable.contains(&self.geometry().segment_of(ppn).0) {
            self.weak.insert(ppn.0, 0);
        }
    }

    fn check_read(&mut self, ppn: Ppn) -> Result<(), FlashError> {
        if self.is_off {
            return Err(FlashError::PowerLost);
        }
        match self.weak.get_mut(&ppn.0) {
            None => Ok(()),
            Some(0) => Err(FlashError::Uncorrectable { ppn }),
            Some(reads) => {
                *reads -= 1;
                Ok(())
            }
        }
    }
}

impl<F: Damage> Flash for PowerCut<F> {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.check_read(ppn)?;
        self.device.read(ppn, data, spare)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        match self.is_cut()? {
            None => {
                self.device.program(ppn, data, spare)?;
                self.after_program(ppn);
                return Ok(());
            }
            Some(Torn::Nothing) => {}
            Some(Torn::Half) => {
                let mut half = data.to_vec();
                half[data.len() / 2..].fill(0xFF);
                self.device.program(ppn, &half, &[])?;
            }
            Some(Torn::Unreadable) => {
                self.device.program(ppn, data, spare)?;
                self.weak.insert(ppn.0, 0);
            }
            Some(Torn::Weak { reads }) => {
                self.device.program(ppn, data, spare)?;
                self.weak.insert(ppn.0, reads);
            }
        }
        Err(FlashError::PowerLost)
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let cut = self.is_cut()?;
        let first = self.geometry().first_page(segment).0;
        let pages = self.geometry().pages_per_segment();
        let Some(torn) = cut else {
            self.device.erase(segment)?;
            self.unstable.remove(&segment.0);
            self.weak.retain(|page, _| !(first..first + pages).contains(page));
            self.weak_parts.retain(|part| !(first..first + pages).contains(&part.ppn.0));
            return Ok(());
        };
        // The layers below do not see an erase that was not completed.
        let erased = match torn {
            Torn::Nothing => 0,
            Torn::Half => pages / 2,
            Torn::Unreadable | Torn::Weak { .. } => pages,
        };
        for page in first..first + erased {
            self.device.page_bytes_mut(Ppn(page)).fill(0xFF);
            self.weak.remove(&page);
        }
        if erased > 0 {
            self.unstable.insert(segment.0);
        }
        Err(FlashError::PowerLost)
    }

    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        if self.is_off {
            return Err(FlashError::PowerLost);
        }
        self.device.read_part(ppn, offset_bytes, bytes)?;
        let end = offset_bytes + bytes.len() as u32;
        for part in self.weak_parts.iter_mut().filter(|part| part.ppn == ppn) {
            let part_end = part.offset_bytes + part.before.len() as u32;
            if part.offset_bytes >= end || part_end <= offset_bytes {
                continue;
            }
            if part.reads > 0 {
                part.reads -= 1;
                continue;
            }
            let first = part.offset_bytes as usize;
            self.device.page_bytes_mut(ppn)[first..][..part.before.len()].copy_from_slice(&part.before);
            self.device.read_part(ppn, offset_bytes, bytes)?;
        }
        Ok(ReadStatus::Clean)
    }

    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        match self.is_cut()? {
            None => {
                self.device.program_part(ppn, offset_bytes, bytes)?;
                return Ok(());
            }
            Some(Torn::Nothing) => {}
            Some(Torn::Half) => self.device.program_part(ppn, offset_bytes, &bytes[..bytes.len() / 2])?,
            Some(Torn::Unreadable) => {
                // NOR has no ECC: interrupted cells hold values between old and new.
                let torn: Vec<u8> = bytes.iter().enumerate().map(|(i, byte)| byte | 0x11 << (i % 4)).collect();
                self.device.program_part(ppn, offset_bytes, &torn)?;
            }
            Some(Torn::Weak { reads }) => {
                let mut before = vec![0; bytes.len()];
                self.device.read_part(ppn, offset_bytes, &mut before)?;
                self.device.program_part(ppn, offset_bytes, bytes)?;
                self.weak_parts.push(WeakPart { ppn, offset_bytes, before, reads });
            }
        }
        Err(FlashError::PowerLost)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        if self.is_off { Err(FlashError::PowerLost) } else { self.device.sync() }
    }

    fn void_page(&mut self, ppn: Ppn) -> Result<(), FlashError> {
        if self.is_off { Err(FlashError::PowerLost) } else { self.device.void_page(ppn) }
    }

    margay_flash::pass_on!(device: retire, is_cached, mark, set_mark);
}

impl<F: Damage> Damage for PowerCut<F> {
    fn page_bytes_mut(&mut self, ppn: Ppn) -> &mut [u8] {
        self.device.page_bytes_mut(ppn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RamFlash, Strict};

    fn device() -> PowerCut<Strict<RamFlash>> {
        PowerCut::new(Strict::new(RamFlash::new(Geometry::new(3, 4, 16).unwrap().with_spare(4))))
    }

    fn read(flash: &mut PowerCut<Strict<RamFlash>>, ppn: u32) -> Result<[u8; 16], FlashError> {
        let mut data = [0; 16];
        flash.read(Ppn(ppn), &mut data, &mut []).map(|_| data)
    }

    #[test]
    fn a_program_is_torn_as_asked_and_nothing_works_until_the_power_is_back() {
        let half: [u8; 16] = core::array::from_fn(|i| if i < 8 { 7 } else { 0xFF });
        let expected = [Ok([0xFF; 16]), Ok(half), Err(FlashError::Uncorrectable { ppn: Ppn(1) }), Ok([7; 16])];
        for (torn, expected) in Torn::ALL.into_iter().zip(expected) {
            let mut flash = device();
            flash.cut_at(1, torn);
            flash.program(Ppn(0), &[1; 16], &[]).unwrap();
            assert_eq!(flash.program(Ppn(1), &[7; 16], &[]), Err(FlashError::PowerLost));
            assert_eq!(read(&mut flash, 0), Err(FlashError::PowerLost));
            flash.power_on();
            assert_eq!(read(&mut flash, 0), Ok([1; 16]));
            assert_eq!(read(&mut flash, 1), expected, "{torn:?}");
            if torn == (Torn::Weak { reads: 1 }) {
                assert_eq!(read(&mut flash, 1), Err(FlashError::Uncorrectable { ppn: Ppn(1) }));
            }
        }
    }

    #[test]
    fn what_follows_an_interrupted_erase_is_lost_unless_it_is_erased_again() {
        let mut flash = device();
        (0..4).for_each(|page| flash.program(Ppn(page), &[7; 16], &[]).unwrap());
        flash.cut_at(0, Torn::Half);
        assert_eq!(flash.erase(SegmentId(0)), Err(FlashError::PowerLost));
        flash.power_on();
        assert_eq!((read(&mut flash, 0), read(&mut flash, 3)), (Ok([0xFF; 16]), Ok([7; 16])));
        assert!(flash.program(Ppn(0), &[1; 16], &[]).is_err(), "the layer below knows of no erase");
        flash.erase(SegmentId(0)).unwrap();
        flash.program(Ppn(0), &[1; 16], &[]).unwrap();
        assert_eq!(read(&mut flash, 0), Ok([1; 16]));
    }
}
