mod loss;

use crate::Damage;
pub use loss::{Lie, Loss};
use loss::{Mark, Unit, UnitAt, Version, mix};
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};
use std::collections::BTreeMap;
use std::ops::Range;

/// The operating system's number of an input/output error.
const EIO: i32 = 5;
/// A sync that is begun ends after fewer operations than this, as far as nobody waits for it.
const MAX_SYNC_OPERATIONS: u64 = 24;

/// A layer that keeps what is written in a cache until a sync, as a host does with a file: a crash leaves any part of
/// what was not synced, in units of the device's bytes (page after page, each with its spare area), so that a unit
/// may hold half of a page or several.
#[derive(Clone, Debug)]
pub struct Cached<F> {
    /// Holds what is read now.
    device: F,
    /// What a crash cannot take: the bytes of all pages with their spare areas.
    medium: Vec<u8>,
    unit_bytes: usize,
    is_write_through: bool,
    dirty: BTreeMap<usize, Unit>,
    mark: Mark,
    operations: u64,
    syncs: u64,
    failed_syncs: u64,
    cut: Option<u64>,
    is_off: bool,
    failing_syncs: Option<(Range<u64>, Lie)>,
    under_way: Option<Sync>,
    is_holding: bool,
    held: Vec<Held>,
}

/// A program that is in the memory of the process only.
#[derive(Clone, Debug)]
struct Held {
    ppn: Ppn,
    data: Vec<u8>,
    spare: Vec<u8>,
}

/// A sync that was begun.
#[derive(Clone, Debug)]
struct Sync {
    /// The units that it saves, and how many versions of each there were when it began.
    units: Vec<(usize, usize)>,
    /// The marks that were set when it began.
    marks: usize,
    /// It ends when so many operations were done.
    ends_at: u64,
    lie: Option<Lie>,
}

impl<F: Damage> Cached<F> {
    /// A cache of units of `unit_bytes` bytes over a device whose content is durable as it is.
    pub fn new(mut device: F, unit_bytes: usize) -> Self {
        let medium =
            (0..device.geometry().pages()).flat_map(|page| device.page_bytes_mut(Ppn(page)).to_vec()).collect();
        let (is_write_through, dirty) = (false, BTreeMap::new());
        let (operations, syncs, failed_syncs, cut, is_off) = (0, 0, 0, None, false);
        let (mark, failing_syncs) = (Mark::default(), None);
        Self {
            device,
            medium,
            unit_bytes,
            is_write_through,
            dirty,
            mark,
            operations,
            syncs,
            failed_syncs,
            cut,
            is_off,
            failing_syncs,
            under_way: None,
            is_holding: false,
            held: Vec::new(),
        }
    }

    /// The same layer without a cache: all is durable at once, as on a chip, and a crash takes nothing.
    #[must_use]
    pub fn write_through(mut self) -> Self {
        self.is_write_through = true;
        self
    }

    /// The device below, whose bytes are those that are read now.
    pub fn inner_mut(&mut self) -> &mut F {
        &mut self.device
    }

    /// Programs, erases, pages made void, marks set, and syncs since the last crash, the interrupted one included.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Cuts the power during the operation number `from_now`, counted from 0: it is carried out in part, and every
    /// operation from then on fails with [`FlashError::PowerLost`] until [`Cached::crash`].
    pub fn cut_at(&mut self, from_now: u64) {
        self.cut = Some(self.operations + from_now);
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        self.is_off
    }

    /// Units that were written since the last sync that returned `Ok`.
    pub fn dirty_units(&self) -> usize {
        self.dirty.len()
    }

    /// The sync number `from_now`, counted from 0, and all of the `times - 1` after it fail.
    pub fn fail_sync(&mut self, from_now: u64, times: u64, lie: Lie) {
        let first = self.syncs + from_now;
        self.failing_syncs = Some((first..first.saturating_add(times), lie));
    }

    /// Syncs so far, and how many of them failed.
    pub fn syncs(&self) -> (u64, u64) {
        (self.syncs, self.failed_syncs)
    }

    /// What a power cut leaves, and the power is on again; no sync fails any more. `seed` draws what `loss` leaves open.
    pub fn crash(&mut self, loss: Loss, seed: u64) {
        let dirty = std::mem::take(&mut self.dirty);
        let last = dirty.len().saturating_sub(1);
        for (number, (unit, content)) in dirty.into_iter().enumerate() {
            let at = UnitAt { unit: unit as u64, number, last, has_spare: self.has_spare(unit) };
            if let Some(bytes) = content.survivor(at, loss, seed) {
                let range = self.unit_range(unit);
                self.medium[range].copy_from_slice(bytes);
            }
            self.show(unit);
        }
        self.mark.crash(loss, seed);
        self.power_on();
    }

    /// The process ends and the host goes on: what was written can be read, and is to be synced as before; only what a
    /// sync has dropped is gone from the cache. The power is on, and no sync fails any more.
    pub fn reopen(&mut self) {
        let dropped: Vec<_> = self.dirty.iter().filter(|(_, unit)| unit.is_dropped).map(|(unit, _)| *unit).collect();
        for unit in dropped {
            self.dirty.remove(&unit);
            self.show(unit);
        }
        self.mark.reopen();
        self.power_on();
    }

    fn power_on(&mut self) {
        (self.operations, self.cut, self.is_off) = (0, None, false);
        (self.failing_syncs, self.under_way) = (None, None);
        (self.is_holding, self.held) = (false, Vec::new());
    }

    fn stride(&self) -> usize {
        let geometry = self.device.geometry();
        (geometry.page_bytes() + geometry.spare_bytes()) as usize
    }

    fn unit_range(&self, unit: usize) -> Range<usize> {
        let first = unit * self.unit_bytes;
        first..(first + self.unit_bytes).min(self.medium.len())
    }

    /// Whether a unit holds a byte of a spare area.
    fn has_spare(&self, unit: usize) -> bool {
        let page_bytes = self.device.geometry().page_bytes() as usize;
        let stride = self.stride();
        self.unit_range(unit).any(|at| at % stride >= page_bytes)
    }

    /// The bytes of a unit, as parts of pages: page, first byte in the page, first byte in the unit, length.
    fn parts(&self, unit: usize) -> impl Iterator<Item = (Ppn, usize, usize, usize)> + use<F> {
        let (range, stride) = (self.unit_range(unit), self.stride());
        let mut at = range.start;
        std::iter::from_fn(move || {
            let len = (stride - at % stride).min(range.end - at);
            let part = (Ppn((at / stride) as u32), at % stride, at - range.start, len);
            at += len;
            (len > 0).then_some(part)
        })
    }

    /// What is read now in a unit.
    fn current(&mut self, unit: usize) -> Box<[u8]> {
        let mut bytes = vec![0; self.unit_range(unit).len()];
        for (ppn, at, to, len) in self.parts(unit) {
            bytes[to..to + len].copy_from_slice(&self.device.page_bytes_mut(ppn)[at..at + len]);
        }
        bytes.into()
    }

    /// Lets a unit be read as it is on the medium.
    fn show(&mut self, unit: usize) {
        let range = self.unit_range(unit);
        for (ppn, at, from, len) in self.parts(unit) {
            let bytes = &self.medium[range.start + from..][..len];
            self.device.page_bytes_mut(ppn)[at..at + len].copy_from_slice(bytes);
        }
    }

    /// Hands over the programs that are held, those of a segment together, in the order of their first ones.
    fn hand_over(&mut self) -> Result<(), FlashError> {
        while let Some(first) = self.held.first() {
            let of = |held: &Held| self.device.geometry().segment_of(held.ppn);
            let segment = of(first);
            self.held.sort_by_key(|held| of(held) != segment);
            let Held { ppn, data, spare } = self.held[0].clone();
            self.write(self.page_range(ppn), false, |device| device.program(ppn, &data, &spare))?;
            self.held.remove(0);
        }
        Ok(())
    }

    /// Counts an operation. Whether the power goes during it.
    fn begin(&mut self) -> Result<bool, FlashError> {
        if self.is_off {
            return Err(FlashError::PowerLost);
        }
        self.operations += 1;
        self.is_off = self.cut.is_some_and(|cut| self.operations > cut);
        Ok(self.is_off)
    }

    /// Carries out an operation that writes the bytes `range` of all, and keeps every version of each unit, also after
    /// an error: its effect is then what the device below did.
    fn write(
        &mut self,
        range: Range<usize>,
        is_erase: bool,
        write: impl FnOnce(&mut F) -> Result<(), FlashError>,
    ) -> Result<(), FlashError> {
        let is_cut = self.begin()?;
        let range = range.start.min(self.medium.len())..range.end.min(self.medium.len());
        let units = range.start / self.unit_bytes..range.end.div_ceil(self.unit_bytes);
        let before: Vec<_> = if is_cut { units.clone().map(|unit| self.current(unit)).collect() } else { Vec::new() };
        let result = write(&mut self.device);
        if range.is_empty() {
            return result;
        }
        let half = range.start + range.len() / 2;
        for unit in units.clone() {
            let bytes = self.current(unit);
            let at = self.unit_range(unit);
            let kept = self.dirty.entry(unit).or_default();
            kept.is_dropped = false;
            // Of the operation that is interrupted, the first half may be there alone.
            if is_cut && at.contains(&half) {
                let mut torn = before[unit - units.start].clone();
                torn[..half - at.start].copy_from_slice(&bytes[..half - at.start]);
                kept.versions.push(Version { bytes: torn, is_erase });
            }
            kept.versions.push(Version { bytes, is_erase });
        }
        if self.is_write_through {
            self.save();
        }
        if is_cut { Err(FlashError::PowerLost) } else { result }
    }

    /// What was written until now is durable.
    fn save(&mut self) {
        let now = self.sync_of_all(None);
        self.save_units(&now);
    }

    /// A sync that begins now.
    fn sync_of_all(&self, lie: Option<Lie>) -> Sync {
        let units = self.dirty.iter().map(|(unit, content)| (*unit, content.versions.len())).collect();
        let ends_at = self.operations + mix(self.syncs, self.operations) % MAX_SYNC_OPERATIONS;
        Sync { units, marks: self.mark.len(), ends_at, lie }
    }

    /// What was written until a sync began is durable.
    fn save_units(&mut self, sync: &Sync) {
        for (unit, versions) in &sync.units {
            let Some(content) = self.dirty.get_mut(unit).filter(|content| !content.is_dropped) else { continue };
            let newest = content.versions.drain(..versions).next_back();
            if content.versions.is_empty() {
                self.dirty.remove(unit);
            }
            if let Some(newest) = newest {
                let range = self.unit_range(*unit);
                self.medium[range].copy_from_slice(&newest.bytes);
            }
        }
        self.mark.save(sync.marks);
    }

    /// Counts a sync. What is wrong with it, unless the power goes in it.
    fn count_sync(&mut self) -> Result<Option<Lie>, FlashError> {
        let is_cut = self.begin()?;
        let now = self.syncs;
        self.syncs += 1;
        if is_cut {
            return Err(FlashError::PowerLost);
        }
        Ok(self.failing_syncs.as_ref().filter(|(failing, _)| failing.contains(&now)).map(|(_, lie)| *lie))
    }

    /// A sync ends.
    fn finish(&mut self, sync: &Sync) -> Result<(), FlashError> {
        let below = self.device.sync();
        if sync.lie.is_none() && below.is_ok() {
            self.save_units(sync);
            return Ok(());
        }
        self.failed_syncs += 1;
        if sync.lie == Some(Lie::ErrorAndDrop) {
            self.dirty.values_mut().for_each(|unit| unit.is_dropped = true);
            self.mark.drop_set();
        }
        below?;
        Err(FlashError::Io { code: EIO })
    }

    fn page_range(&self, ppn: Ppn) -> Range<usize> {
        let stride = self.stride();
        ppn.index() * stride..(ppn.index() + 1) * stride
    }

    fn check_power(&self) -> Result<(), FlashError> {
        if self.is_off { Err(FlashError::PowerLost) } else { Ok(()) }
    }
}

impl<F: Damage> Flash for Cached<F> {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.check_power()?;
        if let Some(held) = self.held.iter().find(|held| held.ppn == ppn) {
            for (to, from) in [(data, &held.data), (spare, &held.spare)] {
                to.fill(0xFF);
                let len = to.len().min(from.len());
                to[..len].copy_from_slice(&from[..len]);
            }
            return Ok(ReadStatus::Clean);
        }
        self.device.read(ppn, data, spare)
    }

    fn hold(&mut self, on: bool) -> Result<(), FlashError> {
        self.is_holding = on && !self.is_write_through;
        if self.is_holding { Ok(()) } else { self.hand_over() }
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        if self.is_holding {
            self.check_power()?;
            self.held.push(Held { ppn, data: data.to_vec(), spare: spare.to_vec() });
            return Ok(());
        }
        self.hand_over()?;
        self.write(self.page_range(ppn), false, |device| device.program(ppn, data, spare))
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        self.hand_over()?;
        let geometry = self.device.geometry();
        let pages = geometry.pages_per_segment() as usize;
        let first = segment.index() * pages * self.stride();
        self.write(first..first + pages * self.stride(), true, |device| device.erase(segment))
    }

    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.hand_over()?;
        self.check_power()?;
        self.device.read_part(ppn, offset_bytes, bytes)
    }

    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        self.hand_over()?;
        let first = self.page_range(ppn).start + offset_bytes as usize;
        self.write(first..first + bytes.len(), false, |device| device.program_part(ppn, offset_bytes, bytes))
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.hand_over()?;
        self.end_sync(true)?;
        let lie = self.count_sync()?;
        self.finish(&self.sync_of_all(lie))
    }

    fn begin_sync(&mut self) -> Result<(), FlashError> {
        self.hand_over()?;
        self.end_sync(true)?;
        let lie = self.count_sync()?;
        self.under_way = Some(self.sync_of_all(lie));
        Ok(())
    }

    fn end_sync(&mut self, wait: bool) -> Result<bool, FlashError> {
        self.check_power()?;
        let Some(sync) = self.under_way.take_if(|sync| wait || self.operations >= sync.ends_at) else {
            return Ok(self.under_way.is_none());
        };
        self.finish(&sync).map(|()| true)
    }

    /// As a file knows it of its holes, and does not of what was erased: known of every other segment.
    fn is_known_erased(&mut self, segment: SegmentId) -> bool {
        let geometry = *self.device.geometry();
        let (mut data, mut spare) = (vec![0; geometry.page_bytes() as usize], vec![0; geometry.spare_bytes() as usize]);
        let first = geometry.first_page(segment).0;
        segment.0.is_multiple_of(2)
            && (first..first + geometry.pages_per_segment()).all(|page| {
                let is_read = self.read(Ppn(page), &mut data, &mut spare).is_ok();
                is_read && data.iter().chain(&spare).all(|byte| *byte == 0xFF)
            })
    }

    fn is_cached(&self) -> bool {
        !self.is_write_through
    }

    fn void_page(&mut self, ppn: Ppn) -> Result<(), FlashError> {
        self.hand_over()?;
        if self.is_write_through {
            return Err(FlashError::Unsupported);
        }
        self.write(self.page_range(ppn), false, |device| device.void_page(ppn))
    }

    fn mark(&mut self) -> Result<Option<u64>, FlashError> {
        self.check_power()?;
        self.device.mark()?;
        Ok(self.mark.now())
    }

    fn set_mark(&mut self, mark: Option<u64>) -> Result<(), FlashError> {
        if self.is_write_through {
            return Ok(());
        }
        self.hand_over()?;
        let is_cut = self.begin()?;
        let result = self.device.set_mark(mark);
        // After an error it may be done or not.
        if result.is_ok() || self.operations.is_multiple_of(2) {
            self.mark.set(mark);
        }
        if is_cut { Err(FlashError::PowerLost) } else { result }
    }

    margay_flash::pass_on!(device: retire, has_payload);
}

/// What is changed is read from then on, and gone after a crash.
impl<F: Damage> Damage for Cached<F> {
    fn page_bytes_mut(&mut self, ppn: Ppn) -> &mut [u8] {
        self.device.page_bytes_mut(ppn)
    }
}

#[cfg(test)]
mod tests;
