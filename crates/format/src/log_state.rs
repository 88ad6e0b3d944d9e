//! What a checkpoint says of the log, whoever its client is (FORMAT.md, "Checkpoint").

use crate::bytes::{PutBytes, Reader};
use crate::layout::Layout;
use crate::superblock::Superblock;
use alloc::vec::Vec;
use margay_flash::{Geometry, Ppn, SegmentId};

/// Version of the checkpoint's bytes.
const VERSION: u32 = 1;

/// The state of a segment as a checkpoint records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentState {
    /// Erased, or to be erased before use.
    Free = 0,
    /// Being filled.
    Open = 1,
    /// Filled, or closed before it was full.
    Sealed = 2,
    /// It holds no data: the anchor.
    Reserved = 3,
    /// Retired.
    Bad = 4,
}

/// What a checkpoint says of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRecord {
    /// Its state.
    pub state: SegmentState,
    /// It is free, and has to be erased before use.
    pub needs_erase: bool,
    /// The stream it was opened for.
    pub stream: u8,
    /// Its erases.
    pub erases: u32,
    /// Time it was opened, in microseconds (48 bits).
    pub opened_us: u64,
    /// Host page writes when it was opened (48 bits).
    pub opened_writes: u64,
    /// Ascending with the order of opening (48 bits).
    pub opened_sequence: u64,
}

/// What a checkpoint says of an open segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSegment {
    /// Which one.
    pub segment: SegmentId,
    /// The page that is programmed next.
    pub next: Ppn,
    /// Owner and sequence number of the pages that it holds.
    pub pages: Vec<(u64, u64)>,
}

/// What a checkpoint says of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogState {
    /// Sequence number of the last program.
    pub seq: u64,
    /// Time of the last host write, in microseconds.
    pub time_us: u64,
    /// Host page writes so far.
    pub host_writes: u64,
    /// By number.
    pub segments: Vec<SegmentRecord>,
    /// At most one for each stream.
    pub open: Vec<OpenSegment>,
    /// Free segments in the order of their use.
    pub free: Vec<SegmentId>,
    /// Retired segments.
    pub retired: Vec<SegmentId>,
}

impl LogState {
    /// Writes the start of a checkpoint: what it is, whose, and the clocks.
    pub(crate) fn encode_clocks(&self, magic: [u8; 4], superblock: &Superblock, bytes: &mut Vec<u8>) {
        bytes.put(&magic);
        bytes.put_u32(VERSION);
        bytes.put(&superblock.uuid);
        for clock in [self.seq, self.time_us, self.host_writes] {
            bytes.put_uint(clock, 8);
        }
        bytes.put_u32(self.segments.len() as u32);
    }

    /// Maximum of bytes that clocks and segments take in a checkpoint, with what stands between them and a margin.
    pub(crate) fn max_encoded_bytes(&self) -> usize {
        let open: usize = self.open.iter().map(|open| 12 + open.pages.len() * 14).sum();
        128 + self.segments.len() * 25 + open + (self.free.len() + self.retired.len()) * 4
    }

    /// Reads the start of a checkpoint; `None` if it is no such checkpoint of this device.
    pub(crate) fn decode_clocks(magic: [u8; 4], superblock: &Superblock, reader: &mut Reader<'_>) -> Option<Self> {
        if reader.take(4)? != magic || reader.u32()? != VERSION || reader.take(16)? != superblock.uuid {
            return None;
        }
        let (seq, time_us, host_writes) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let count = reader.u32().filter(|count| *count == superblock.geometry.segments())?;
        let segments = Vec::with_capacity(count as usize);
        Some(Self { seq, time_us, host_writes, segments, open: Vec::new(), free: Vec::new(), retired: Vec::new() })
    }

    /// Writes what is known of the segments.
    pub(crate) fn encode_segments(&self, bytes: &mut Vec<u8>) {
        for segment in &self.segments {
            bytes.put(&[segment.state as u8, u8::from(segment.needs_erase), segment.stream]);
            bytes.put_u32(segment.erases);
            for number in [segment.opened_us, segment.opened_writes, segment.opened_sequence] {
                bytes.put_uint(number, 6);
            }
        }
        bytes.put(&[self.open.len() as u8]);
        for open in &self.open {
            bytes.put_u32(open.segment.0);
            bytes.put_u32(open.next.0);
            bytes.put_u32(open.pages.len() as u32);
            for (owner, seq) in &open.pages {
                bytes.put_uint(*owner, 8);
                bytes.put_uint(*seq, 6);
            }
        }
        for list in [&self.free, &self.retired] {
            bytes.put_u32(list.len() as u32);
            list.iter().for_each(|segment| bytes.put_u32(segment.0));
        }
    }

    /// Reads what is known of the segments; `None` if it makes no sense.
    pub(crate) fn decode_segments(
        &mut self,
        reader: &mut Reader<'_>,
        geometry: &Geometry,
        layout: &Layout,
    ) -> Option<()> {
        for _ in 0..geometry.segments() {
            let segment = SegmentRecord::decode(reader)?;
            self.segments.push(segment);
        }
        let mut streams = [false; 256];
        for _ in 0..reader.u8()? {
            let open = OpenSegment::decode(reader, geometry, layout)?;
            let segment = &mut self.segments[open.segment.index()];
            let is_second = core::mem::replace(&mut streams[usize::from(segment.stream)], true);
            if segment.state != SegmentState::Sealed || is_second {
                return None;
            }
            segment.state = SegmentState::Open;
            self.open.push(open);
        }
        self.free = reader.segments(geometry.segments())?;
        self.retired = reader.segments(geometry.segments())?;
        Some(())
    }
}

impl SegmentRecord {
    /// Reads it. One that is open counts as sealed until the list of open segments names it.
    fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let state = match reader.u8()? {
            0 => SegmentState::Free,
            1 | 2 => SegmentState::Sealed,
            3 => SegmentState::Reserved,
            4 => SegmentState::Bad,
            _ => return None,
        };
        Some(Self {
            state,
            needs_erase: reader.u8()? == 1,
            stream: reader.u8()?,
            erases: reader.u32()?,
            opened_us: reader.uint(6)?,
            opened_writes: reader.uint(6)?,
            opened_sequence: reader.uint(6)?,
        })
    }
}

impl OpenSegment {
    fn decode(reader: &mut Reader<'_>, geometry: &Geometry, layout: &Layout) -> Option<Self> {
        let segment = reader.segment(geometry.segments())?;
        let (next, count) = (reader.u32()?, reader.u32()?);
        let first = geometry.first_page(segment).0 + layout.header_pages;
        let end = first + layout.data_pages(geometry);
        if !(first..=end).contains(&next) || count > geometry.pages_per_segment() {
            return None;
        }
        let pages: Option<_> = (0..count).map(|_| Some((reader.u64()?, reader.uint(6)?))).collect();
        Some(Self { segment, next: Ppn(next), pages: pages? })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A log of so many segments, all of them free.
    pub(crate) fn unused(segments: u32) -> LogState {
        let free = SegmentRecord {
            state: SegmentState::Free,
            needs_erase: false,
            stream: 0,
            erases: 1,
            opened_us: 0,
            opened_writes: 0,
            opened_sequence: 0,
        };
        LogState {
            seq: 9,
            time_us: 8,
            host_writes: 7,
            segments: alloc::vec![free; segments as usize],
            open: Vec::new(),
            free: Vec::new(),
            retired: Vec::new(),
        }
    }
}
