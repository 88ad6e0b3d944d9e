//! What a checkpoint says (FORMAT.md, "Checkpoint").

use crate::Ftl;
use crate::map::{OwnPages, UNMAPPED};
use crate::mount::Loaded;
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, Lpn, Ppn, SegmentId};
use margay_format::{Formatted, SegmentInfo, Superblock};
use margay_log::{Kept, Restored, RestoredSegment};
use margay_policy::{Now, Placement, Selection, State};

const MAGIC: &[u8; 4] = b"MGCK";
const VERSION: u32 = 1;

fn put(bytes: &mut Vec<u8>, value: u64, count: usize) {
    bytes.extend_from_slice(&value.to_le_bytes()[..count]);
}

/// Everything that a mount needs, as bytes.
pub(crate) fn encode<F: Flash, S: Selection, P: Placement>(
    ftl: &Ftl<Formatted<F>, S, P>,
    superblock: &Superblock,
) -> Vec<u8> {
    let (log, segments) = (&ftl.log, ftl.log.segments());
    let has_info = size_of::<P::Info>() > 0;
    let mut bytes =
        Vec::with_capacity(ftl.map.pages.len() * if has_info { 16 } else { 4 } + segments.len() as usize * 40);
    bytes.extend_from_slice(MAGIC);
    put(&mut bytes, VERSION.into(), 4);
    bytes.extend_from_slice(&superblock.uuid);
    let now = log.now();
    for (value, count) in [(log.seq(), 8), (now.us, 8), (now.writes, 8), (segments.len().into(), 4)] {
        put(&mut bytes, value, count);
    }
    put(&mut bytes, ftl.map.pages.len() as u64, 4);
    put(&mut bytes, u64::from(has_info), 1);
    put(&mut bytes, superblock.placement.len() as u64, 1);
    bytes.extend_from_slice(superblock.placement.as_bytes());
    for id in segments.ids() {
        let i = id.index();
        let state = match segments.state[i] {
            State::Free => 0,
            State::Open => 1,
            State::Sealed | State::Victim => 2,
            State::Reserved => 3,
            State::Bad => 4,
        };
        put(&mut bytes, state, 1);
        put(&mut bytes, u64::from(log.must_be_erased(id)), 1);
        put(&mut bytes, segments.stream[i].into(), 1);
        put(&mut bytes, segments.erases[i].into(), 4);
        put(&mut bytes, segments.opened_us[i], 6);
        put(&mut bytes, segments.opened_writes[i], 6);
        put(&mut bytes, segments.opened_sequence[i], 6);
    }
    let open: Vec<_> = log.open_segments().collect();
    put(&mut bytes, open.len() as u64, 1);
    for (id, next) in open {
        let pages = log.device().filled(id);
        put(&mut bytes, id.0.into(), 4);
        put(&mut bytes, next.0.into(), 4);
        put(&mut bytes, pages.len() as u64, 4);
        for (owner, seq) in pages {
            put(&mut bytes, *owner, 8);
            put(&mut bytes, *seq, 6);
        }
    }
    put(&mut bytes, u64::from(log.free_segments()), 4);
    log.free_list().for_each(|id| put(&mut bytes, id.0.into(), 4));
    put(&mut bytes, ftl.map.bad().len() as u64, 4);
    ftl.map.bad().iter().for_each(|id| put(&mut bytes, id.0.into(), 4));
    for page in &ftl.map.pages {
        put(&mut bytes, (*page).into(), 4);
        if has_info && *page != UNMAPPED {
            let (value, count) = log.freeze(Ppn(*page));
            put(&mut bytes, value, 8);
            put(&mut bytes, count.into(), 4);
        }
    }
    bytes
}

/// Reads numbers one behind the other; `None` past the end.
struct Numbers<'a>(&'a [u8]);

impl<'a> Numbers<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn next(&mut self, count: usize) -> Option<u64> {
        let mut value = [0; 8];
        value[..count].copy_from_slice(self.take(count)?);
        Some(u64::from_le_bytes(value))
    }

    fn word(&mut self) -> Option<u32> {
        self.next(4).map(|value| value as u32)
    }

    fn segment(&mut self, segments: u32) -> Option<SegmentId> {
        self.word().filter(|id| *id < segments).map(SegmentId)
    }
}

/// What a checkpoint says; `None` if it is another device's or makes no sense.
pub(crate) fn decode<F: Flash>(
    bytes: &[u8],
    superblock: &Superblock,
    own: OwnPages,
    device: &mut Formatted<F>,
) -> Option<Loaded> {
    let geometry = superblock.geometry;
    let count = geometry.segments();
    let mut numbers = Numbers(bytes);
    if numbers.take(4)? != MAGIC || numbers.word()? != VERSION || numbers.take(16)? != superblock.uuid {
        return None;
    }
    let (seq, us, writes) = (numbers.next(8)?, numbers.next(8)?, numbers.next(8)?);
    if numbers.word()? != count || numbers.word()? != own.owners() {
        return None;
    }
    let has_info = numbers.next(1)? == 1;
    let placement_bytes = numbers.next(1)? as usize;
    let same_placement = numbers.take(placement_bytes)? == superblock.placement.as_bytes();
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
            must_be_erased: numbers.next(1)? == 1,
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
        if segment.state != State::Sealed || !(first..=end).contains(&next) || filled > geometry.pages_per_segment() {
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
    let mut map = vec![UNMAPPED; own.owners() as usize];
    let mut pages = Vec::with_capacity(map.len());
    let mut taken = vec![0u64; geometry.pages().div_ceil(64) as usize];
    for (owner, slot) in map.iter_mut().enumerate() {
        let page = numbers.word()?;
        if page == UNMAPPED {
            continue;
        }
        let mut kept = Kept::Nothing;
        if has_info {
            let (value, count) = (numbers.next(8)?, numbers.word()?);
            if same_placement {
                kept = Kept::Frozen(value, count);
            }
        }
        if page >= geometry.pages() || !is_data_page(device, &segments, Ppn(page)) {
            return None;
        }
        let (word, bit) = (page as usize / 64, 1 << (page % 64));
        if taken[word] & bit != 0 {
            return None;
        }
        taken[word] |= bit;
        *slot = page;
        pages.push((Ppn(page), Lpn(owner as u32), kept));
    }
    let restored = Restored { segments, pages, now: Now { us, writes }, seq, free: free? };
    Some(Loaded::from_checkpoint(restored, map, bad?))
}

/// Whether a page can hold data: a place for it, in a segment in use, behind which nothing is to be written.
fn is_data_page<F: Flash>(device: &Formatted<F>, segments: &[RestoredSegment], ppn: Ppn) -> bool {
    use margay_format::Store;
    let (geometry, layout) = (device.geometry(), device.layout());
    let segment = geometry.segment_of(ppn);
    let in_segment = geometry.page_in_segment(ppn);
    let data = layout.header_pages..geometry.pages_per_segment() - layout.summary_pages;
    match segments[segment.index()].state {
        State::Sealed => data.contains(&in_segment),
        State::Open => data.contains(&in_segment) && ppn < segments[segment.index()].next,
        _ => false,
    }
}
