//! What a checkpoint says of the log (FORMAT.md, "Checkpoint").

use crate::log::{Log, Owner};
use crate::restore::RestoredSegment;
use alloc::vec::Vec;
use margay_flash::{Flash, FlashError, Ppn, SegmentId};
use margay_format::{CheckpointAt, Decoded, Formatted, Kind, Place, SegmentInfo, Store};
use margay_policy::{Now, State};

/// Appends the `count` low bytes of a number, little endian.
pub fn put(bytes: &mut Vec<u8>, value: u64, count: usize) {
    bytes.extend_from_slice(&value.to_le_bytes()[..count]);
}

/// Reads numbers one behind the other; `None` past the end.
#[derive(Clone, Copy, Debug)]
pub struct Numbers<'a>(pub &'a [u8]);

impl<'a> Numbers<'a> {
    /// The next bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next number of `count` bytes, at most 8.
    pub fn next(&mut self, count: usize) -> Option<u64> {
        let mut value = [0; 8];
        value[..count].copy_from_slice(self.take(count)?);
        Some(u64::from_le_bytes(value))
    }

    /// The next number of 4 bytes.
    pub fn word(&mut self) -> Option<u32> {
        self.next(4).map(|value| value as u32)
    }

    fn segment(&mut self, segments: u32) -> Option<SegmentId> {
        self.word().filter(|id| *id < segments).map(SegmentId)
    }
}

impl<F: Flash, O: Owner> Log<Formatted<F>, O> {
    /// Appends what is known of the segments; `bad` are the retired ones.
    pub fn freeze_segments(&self, bad: &[SegmentId], bytes: &mut Vec<u8>) {
        let segments = self.segments();
        for id in segments.ids() {
            let i = id.index();
            let state = match segments.state[i] {
                State::Free => 0,
                State::Open => 1,
                State::Sealed | State::Victim => 2,
                State::Reserved => 3,
                State::Bad => 4,
            };
            put(bytes, state, 1);
            put(bytes, u64::from(self.needs_erase(id)), 1);
            put(bytes, segments.stream[i].into(), 1);
            put(bytes, segments.erases[i].into(), 4);
            put(bytes, segments.opened_us[i], 6);
            put(bytes, segments.opened_writes[i], 6);
            put(bytes, segments.opened_sequence[i], 6);
        }
        let open: Vec<_> = self.open_segments().collect();
        put(bytes, open.len() as u64, 1);
        for (id, next) in open {
            let pages = self.device().filled(id);
            put(bytes, id.0.into(), 4);
            put(bytes, next.0.into(), 4);
            put(bytes, pages.len() as u64, 4);
            for (owner, seq) in pages {
                put(bytes, *owner, 8);
                put(bytes, *seq, 6);
            }
        }
        put(bytes, u64::from(self.free_segments()), 4);
        self.free_list().for_each(|id| put(bytes, id.0.into(), 4));
        put(bytes, bad.len() as u64, 4);
        bad.iter().for_each(|id| put(bytes, id.0.into(), 4));
    }
}

/// What a checkpoint says of the log.
#[derive(Debug)]
pub struct Thawed {
    /// Its segments.
    pub segments: Vec<RestoredSegment>,
    /// Free segments in the order of their use.
    pub free: Vec<SegmentId>,
    /// Retired segments.
    pub bad: Vec<SegmentId>,
    /// Bitmap of pages that were claimed.
    taken: Vec<u64>,
}

/// The three numbers at the start of a checkpoint: sequence number of the last program, and the clocks.
pub fn thaw_clocks(numbers: &mut Numbers<'_>) -> Option<(u64, Now)> {
    Some((numbers.next(8)?, Now { us: numbers.next(8)?, writes: numbers.next(8)? }))
}

impl Thawed {
    /// Reads what [`Log::freeze_segments`] wrote; `None` if it makes no sense.
    pub fn read<F: Flash>(numbers: &mut Numbers<'_>, device: &mut Formatted<F>) -> Option<Self> {
        let geometry = *device.geometry();
        let count = geometry.segments();
        let mut segments = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let state = match numbers.next(1)? {
                0 => State::Free,
                // Those that are open are listed below.
                1 | 2 => State::Sealed,
                3 => State::Reserved,
                4 => State::Bad,
                _ => return None,
            };
            segments.push(RestoredSegment {
                state,
                needs_erase: numbers.next(1)? == 1,
                stream: numbers.next(1)? as u8,
                erases: numbers.word()?,
                opened_us: numbers.next(6)?,
                opened_writes: numbers.next(6)?,
                opened_sequence: numbers.next(6)?,
                next: Ppn(0),
            });
        }
        let total_erases = segments.iter().map(|segment| u64::from(segment.erases)).sum();
        let mut streams = [false; 256];
        for _ in 0..numbers.next(1)? {
            let id = numbers.segment(count)?;
            let (next, filled) = (numbers.word()?, numbers.word()?);
            let segment = &mut segments[id.index()];
            let first = geometry.first_page(id).0 + device.layout().header_pages;
            let end = first + device.layout().data_pages(&geometry);
            if segment.state != State::Sealed || !(first..=end).contains(&next) || filled > geometry.pages_per_segment()
            {
                return None;
            }
            if core::mem::replace(&mut streams[usize::from(segment.stream)], true) {
                return None;
            }
            (segment.state, segment.next) = (State::Open, Ppn(next));
            let pages: Option<Vec<_>> = (0..filled).map(|_| Some((numbers.next(8)?, numbers.next(6)?))).collect();
            let RestoredSegment { erases, stream, opened_us, opened_writes, .. } = *segment;
            let info = SegmentInfo { erases, total_erases, stream, opened_us, opened_writes };
            device.resume(id, info, pages?);
        }
        let free_count = numbers.word().filter(|free| *free <= count)?;
        let free: Option<Vec<_>> = (0..free_count).map(|_| numbers.segment(count)).collect();
        let bad_count = numbers.word().filter(|bad| *bad <= count)?;
        let bad: Option<Vec<_>> = (0..bad_count).map(|_| numbers.segment(count)).collect();
        let taken = alloc::vec![0; geometry.pages().div_ceil(64) as usize];
        Some(Self { segments, free: free?, bad: bad?, taken })
    }

    /// Claims a page for an owner. False if it cannot hold data, or is claimed already: data is in segments in use,
    /// and nothing is to be written before it.
    pub fn claim<F: Flash>(&mut self, device: &Formatted<F>, ppn: Ppn) -> bool {
        let (geometry, layout) = (device.geometry(), device.layout());
        if ppn.0 >= geometry.pages() {
            return false;
        }
        let segment = &self.segments[geometry.segment_of(ppn).index()];
        let data = layout.header_pages..geometry.pages_per_segment() - layout.summary_pages;
        let may_hold_data = data.contains(&geometry.page_in_segment(ppn))
            && match segment.state {
                State::Sealed => true,
                State::Open => ppn < segment.next,
                _ => false,
            };
        let (word, bit) = (&mut self.taken[ppn.index() / 64], 1 << (ppn.0 % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        may_hold_data && is_new
    }

    /// After its checkpoint `at` was read, its segments are free but not blank.
    pub fn give_back(&mut self, at: &CheckpointAt) {
        at.segments.iter().for_each(|segment| self.segments[segment.index()].needs_erase = true);
    }
}

/// Whether pages were programmed after the checkpoint `at`, which an anchor that failed since goes on naming: then
/// the first of them are where open segments are filled next, or in the first free ones. Says how many reads it took, too.
pub fn is_outdated<F: Flash>(
    device: &mut Formatted<F>,
    at: &CheckpointAt,
    segments: &[RestoredSegment],
    free: &[SegmentId],
) -> Result<(bool, u32), FlashError> {
    let mut reads = 0;
    if device.layout().place == Place::Table {
        // The record itself says so there.
        return Ok((false, reads));
    }
    let last = at.seq + u64::from(device.checkpoint_pages(at.len_bytes as usize));
    let geometry = *device.geometry();
    let open = segments.iter().filter(|segment| segment.state == State::Open).map(|segment| segment.next);
    let inside = |ppn: &Ppn| ppn.0 < geometry.pages() && geometry.page_in_segment(*ppn) > 0;
    let places: Vec<(Ppn, bool)> = open.filter(inside).map(|ppn| (ppn, true)).collect();
    let free = free.iter().take(2).map(|id| (geometry.first_page(*id), false));
    for (ppn, needs_erase) in places.into_iter().chain(free) {
        reads += 1;
        let is_later = match device.read_tagged(ppn, &mut []) {
            Ok((Decoded::Erased, _)) => false,
            Ok((Decoded::Tag(tag), _)) => needs_erase || tag.kind == Kind::Data && tag.page.seq > last,
            Ok(_) | Err(FlashError::Uncorrectable { .. }) => needs_erase,
            Err(error) => return Err(error),
        };
        if is_later {
            return Ok((true, reads));
        }
    }
    Ok((false, reads))
}
