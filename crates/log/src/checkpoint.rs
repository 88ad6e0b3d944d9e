//! Stopping cleanly: what a checkpoint says of the log, and writing it.

use crate::log::Log;
use crate::{Client, LogError, Owner, Progress};
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, SegmentId};
use margay_format::{Anchor, Formatted, LogState, OpenSegment, Record, SegmentRecord, SegmentState, Store, Superblock};
use margay_policy::State;

impl<F: Flash, O: Owner> Log<Formatted<F>, O> {
    /// What a checkpoint says of the log as it is now.
    pub fn state(&self) -> LogState {
        let segments = self.segments();
        let mut needs_erase = vec![false; segments.len() as usize];
        self.free.iter().for_each(|free| needs_erase[free.segment.index()] = free.needs_erase);
        let record = |id: SegmentId| SegmentRecord {
            state: match segments.state[id.index()] {
                State::Free => SegmentState::Free,
                State::Open => SegmentState::Open,
                State::Sealed | State::Victim => SegmentState::Sealed,
                State::Reserved => SegmentState::Reserved,
                State::Bad => SegmentState::Bad,
            },
            needs_erase: needs_erase[id.index()],
            stream: segments.stream[id.index()],
            erases: segments.erases[id.index()],
            opened_us: segments.opened_us[id.index()],
            opened_writes: segments.opened_writes[id.index()],
            opened_sequence: segments.opened_sequence[id.index()],
        };
        let open = |(segment, next)| OpenSegment { segment, next, pages: self.device().filled(segment).to_vec() };
        let now = self.now();
        LogState {
            seq: self.seq(),
            time_us: now.us,
            host_writes: now.writes,
            segments: segments.ids().map(record).collect(),
            open: self.open_segments().map(open).collect(),
            free: self.free_list().collect(),
            retired: self.retired_segments().to_vec(),
        }
    }

    /// Writes the checkpoint that `encode` makes, if there is room for one, and says whether it did; the log must not be
    /// used after that, but for what it counts. What the host has written has to be flushed before. `encode` is called twice: for the length, and once nothing changes any more.
    pub fn stop<C: Client<O>>(
        &mut self,
        client: &mut C,
        anchor: &mut Anchor,
        superblock: &Superblock,
        encode: impl Fn(&Self, &C) -> Vec<u8>,
    ) -> Result<bool, LogError> {
        match self.try_stop(client, anchor, superblock, encode) {
            // The device has no place for pages of its own any more.
            Err(LogError::NoSpace { data_pages: 0, .. }) => Ok(false),
            result => result,
        }
    }

    fn try_stop<C: Client<O>>(
        &mut self,
        client: &mut C,
        anchor: &mut Anchor,
        superblock: &Superblock,
        encode: impl Fn(&Self, &C) -> Vec<u8>,
    ) -> Result<bool, LogError> {
        self.end_relocation()?;
        self.write_pending(client)?;
        let len_bytes = encode(self, client).len();
        let device = self.device();
        let count = device.checkpoint_pages(len_bytes).div_ceil(device.layout().data_pages(device.geometry()));
        if count > Record::max_segments(device.geometry().page_bytes()) {
            return Ok(false);
        }
        // One segment stays free for the cleaner of the next life.
        while self.free_segments() < count + 1 {
            match self.clean_step(client, u32::MAX) {
                Ok(Progress::NothingToClean) | Err(LogError::NoSpace { .. } | LogError::OwnerUnknown { .. }) => {
                    return Ok(false);
                }
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        self.write_pending(client)?;
        self.sync()?;
        let Some(segments) = self.reserve_free(count)? else { return Ok(false) };
        let bytes = encode(self, client);
        let seq = self.seq();
        let pages = self.device().checkpoint_pages(bytes.len());
        let device = self.device_mut();
        let at = match device.write_checkpoint(&bytes, seq, &segments) {
            Ok(at) => at,
            // The next mount looks into every segment, as it would after a power cut.
            Err(FlashError::ProgramFailed { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        device.write_anchor(anchor, superblock, &Record::Stopped(at))?;
        self.seq += u64::from(pages);
        self.counters.metadata_pages += u64::from(pages + count * self.config.header_pages);
        Ok(!anchor.is_broken())
    }
}
