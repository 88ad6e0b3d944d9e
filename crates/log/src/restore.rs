//! A log on a device that was used before.

use crate::log::{Head, Log};
use crate::valid::marked_pages;
use crate::{Config, ConfigError, Content, LogError, Owner, Policies};
use alloc::vec;
use alloc::vec::Vec;
use margay_flash::{Ppn, SegmentId};
use margay_format::{FreeSegment, SegmentInfo, Store};
use margay_policy::{Now, State};

/// What is known of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoredSegment {
    /// Free, open, sealed, bad or reserved.
    pub state: State,
    /// It is free, and has to be erased before use.
    pub needs_erase: bool,
    /// Its erases.
    pub erases: u32,
    /// Its stream.
    pub stream: u8,
    /// Time it was opened, in microseconds.
    pub opened_us: u64,
    /// Host page writes when it was opened.
    pub opened_writes: u64,
    /// Ascending with the order of opening.
    pub opened_sequence: u64,
    /// Where an open segment is filled next.
    pub next: Ppn,
}

/// What is kept of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// What was in its tag.
    OnFlash {
        /// The kind of placement that knows what the number means.
        heat_kind: u8,
        /// What it kept.
        heat: u32,
        /// When the page was written.
        written: Now,
    },
    /// What a checkpoint of the same placement says.
    Encoded(u64, u32),
    /// What the page holds, of which the placement can make something.
    Content(Content),
}

/// The valid pages of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidPages<O> {
    /// Where they are, and whose.
    pub places: Vec<(Ppn, O)>,
    /// What is kept of some of them, by their numbers in `places`, ascending.
    pub kept: Vec<(u32, Kept)>,
    /// In place of `places`, if the owners of pages are on flash only: a bit for each page of the device, the lowest of a
    /// word first.
    pub valid: Vec<u64>,
}

impl<O> ValidPages<O> {
    /// Where they are.
    pub fn iter(&self) -> impl Iterator<Item = Ppn> + '_ {
        self.places.iter().map(|(ppn, _)| *ppn).chain(marked_pages(&self.valid))
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.places.len() as u64 + self.valid.iter().map(|bits| u64::from(bits.count_ones())).sum::<u64>()
    }
}

/// What is known of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored<O> {
    /// Of its segments, by number.
    pub segments: Vec<RestoredSegment>,
    /// Its valid pages.
    pub pages: ValidPages<O>,
    /// The clocks.
    pub now: Now,
    /// Sequence number of the last program.
    pub seq: u64,
    /// Free segments in the order in which they are to be used; others follow by number.
    pub free: Vec<SegmentId>,
    /// Retired segments.
    pub retired: Vec<SegmentId>,
}

impl<D: Store, O: Owner> Log<D, O> {
    /// A log that continues from the state `restored`.
    pub fn restore(
        device: D,
        config: Config,
        policies: Policies,
        exported_pages: u32,
        restored: &Restored<O>,
    ) -> Result<Self, ConfigError> {
        let mut log = Self::closed(device, config, policies, exported_pages)?;
        log.now = restored.now;
        (log.seq, log.first_seq) = (restored.seq, restored.seq);
        restored.retired.iter().for_each(|segment| log.free.retire(*segment));
        log.restore_segments(restored);
        log.restore_pages(restored);
        log.announce(restored);
        Ok(log)
    }

    fn restore_segments(&mut self, restored: &Restored<O>) {
        for (i, segment) in restored.segments.iter().enumerate() {
            self.segments.state[i] = segment.state;
            self.segments.erases[i] = segment.erases;
            self.segments.stream[i] = segment.stream;
            self.segments.opened_us[i] = segment.opened_us;
            self.segments.opened_writes[i] = segment.opened_writes;
            self.segments.sealed_writes[i] = segment.opened_writes;
            self.segments.total_erases += u64::from(segment.erases);
            self.segments.max_erases = self.segments.max_erases.max(segment.erases);
            self.segments.in_use += u32::from(matches!(segment.state, State::Open | State::Sealed));
        }
        let is_free = |id: &SegmentId| restored.segments[id.index()].state == State::Free;
        let mut listed = vec![false; restored.segments.len()];
        while self.free.pop().is_some() {}
        for segment in restored.free.iter().copied().chain(self.segments.ids()).filter(is_free) {
            if !core::mem::replace(&mut listed[segment.index()], true) {
                let needs_erase = restored.segments[segment.index()].needs_erase;
                self.free.push(FreeSegment { segment, needs_erase, freed_seq: 0 });
            }
        }
    }

    fn restore_pages(&mut self, restored: &Restored<O>) {
        restored.pages.iter().for_each(|ppn| {
            self.valid.fill(ppn.0, ppn.0 + 1, true);
            self.segments.valid[self.geometry.segment_of(ppn).index()] += 1;
        });
        restored.pages.places.iter().for_each(|(ppn, owner)| self.note_owner(*ppn, *owner));
        for (at, kept) in &restored.pages.kept {
            let (ppn, _) = restored.pages.places[*at as usize];
            match *kept {
                Kept::OnFlash { heat_kind, heat, written } if heat_kind == self.placement.heat_kind() => {
                    self.placement.unpack(ppn, heat, written, self.now);
                }
                Kept::Encoded(value, count) => self.placement.decode(ppn, (value, count), self.now),
                Kept::Content(content) => self.placement.recognize(ppn, content),
                Kept::OnFlash { .. } => {}
            }
        }
        self.segments.total_valid = restored.pages.count();
    }

    /// Tells the policies of every segment in use, in the order in which they were opened.
    fn announce(&mut self, restored: &Restored<O>) {
        let mut order: Vec<_> = self
            .segments
            .ids()
            .filter(|id| matches!(self.segments.state[id.index()], State::Open | State::Sealed))
            .collect();
        order.sort_by_key(|id| restored.segments[id.index()].opened_sequence);
        for id in order {
            let segment = &restored.segments[id.index()];
            let stays_open = segment.state == State::Open && usize::from(segment.stream) < self.heads.len();
            if !stays_open {
                self.segments.state[id.index()] = State::Sealed;
            }
            self.openings += 1;
            self.segments.opened_sequence[id.index()] = self.openings;
            let end = self.geometry.first_page(id).0 + self.config.header_pages + self.segments.data_pages;
            if stays_open {
                self.valid.fill(segment.next.0, end, true);
                self.segments.valid[id.index()] += end - segment.next.0;
                self.heads[segment.stream as usize] = Head { segment: id, next: segment.next.0, end };
            }
            self.selection.opened(&self.segments, id);
            if !stays_open {
                self.selection.sealed(&self.segments, id);
                if let Some(leveling) = &mut self.leveling {
                    leveling.sealed(&self.segments, id);
                }
            }
        }
    }

    /// Seals every open segment.
    pub fn close_all(&mut self) -> Result<(), LogError> {
        self.end_relocation()?;
        for stream in 0..self.heads.len() {
            let head = core::mem::replace(&mut self.heads[stream], Head::CLOSED);
            if head.is_open() {
                self.seal(head)?;
            }
        }
        Ok(())
    }

    /// Whether a page can be programmed without cleaning.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty() || self.heads.iter().any(|head| !head.is_full())
    }

    /// Erases a sealed segment without valid pages; false if there is none.
    pub fn erase_empty(&mut self) -> Result<bool, LogError> {
        let empty =
            |id: &SegmentId| self.segments.state[id.index()] == State::Sealed && self.segments.valid[id.index()] == 0;
        let Some(segment) = self.segments.ids().find(empty) else { return Ok(false) };
        self.take(segment);
        // One whose program has failed waits there to be cleaned, and must not be retired twice.
        self.clean_first.retain(|waiting| *waiting != segment);
        self.erase(segment)?;
        Ok(true)
    }

    /// Segments that are free, in the order of their use.
    pub fn free_list(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.free.iter().map(|free| free.segment)
    }

    /// The open segments and where they are filled next.
    pub fn open_segments(&self) -> impl Iterator<Item = (SegmentId, Ppn)> + '_ {
        self.heads.iter().filter(|head| head.is_open()).map(|head| (head.segment, Ppn(head.next)))
    }

    /// Whose page a valid page is; `None` for other pages, and for all if their owners are on flash only.
    pub fn owner(&self, ppn: Ppn) -> Option<O> {
        self.owners.get(ppn.index()).copied().filter(|_| self.valid.is_set(ppn))
    }

    /// What a checkpoint keeps of a valid page.
    pub fn encode_page(&self, ppn: Ppn) -> (u64, u32) {
        self.placement.encode(ppn, self.now)
    }

    /// Reserves `count` free segments, erased, for pages that are not the log's; the log must not be used after that.
    /// `None` if there are not enough.
    pub fn reserve_free(&mut self, count: u32) -> Result<Option<Vec<(SegmentId, SegmentInfo)>>, LogError> {
        let mut taken = Vec::new();
        while taken.len() < count as usize
            && let Some((segment, is_free)) = self.erase_free(taken.len())?
        {
            if is_free {
                taken.push((segment, self.segment_info(segment)));
            }
        }
        Ok((taken.len() == count as usize).then_some(taken))
    }

    /// Without a free segment and without anything that can be erased, goes on filling the segment that was
    /// filled least, leaving the page `next` empty: it may have been half programmed. Says which segment, and what
    /// is kept of it.
    pub fn reopen_partly_filled(&mut self, next: impl Fn(SegmentId) -> Ppn) -> Option<(SegmentId, SegmentInfo)> {
        let end = |id: SegmentId| self.geometry.first_page(id).0 + self.config.header_pages + self.segments.data_pages;
        let room = |id: &SegmentId| end(*id).saturating_sub(next(*id).0 + 1);
        let sealed = self.segments.ids().filter(|id| self.segments.state[id.index()] == State::Sealed);
        let id = sealed.max_by_key(room).filter(|id| room(id) > 0)?;
        let (next, end) = (next(id).0 + 1, end(id));
        self.selection.taken(&self.segments, id);
        if let Some(leveling) = &mut self.leveling {
            leveling.taken(id);
        }
        self.segments.state[id.index()] = State::Open;
        self.valid.fill(next, end, true);
        self.segments.valid[id.index()] += end - next;
        self.selection.opened(&self.segments, id);
        self.segments.stream[id.index()] = 0;
        self.heads[0] = Head { segment: id, next, end };
        Some((id, self.segment_info(id)))
    }
}
