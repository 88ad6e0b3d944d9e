use crate::log::{Head, Log};
use crate::valid::ValidBits;
use crate::{Client, LogError, Owner};
use margay_flash::SegmentId;
use margay_format::{FreeSegment, Store};
use margay_policy::{LevelAction, State};

/// What leveling wants to be done where cleaning is spread over the writes, and what of it is being done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    /// The segment that is to be cleaned, when there is no need for room.
    pub victim: Option<SegmentId>,
    /// The free segment that its pages are to go to; `None` if the placement decides where.
    to: Option<SegmentId>,
    /// That segment, while the pages are copied to it.
    pub head: Head,
    /// The segment that is being cleaned is cleaned for leveling.
    pub is_under_way: bool,
}

impl Relocation {
    pub const NONE: Self = Self { victim: None, to: None, head: Head::CLOSED, is_under_way: false };

    /// Whether a free segment is kept for the pages of the victim, as long as there are others.
    pub fn is_kept(&self, segment: SegmentId) -> bool {
        self.to == Some(segment)
    }

    /// Whether one more segment has to be free than otherwise.
    pub fn wants_room(&self) -> bool {
        self.victim.is_some() && self.to.is_some()
    }
}

impl<D: Store, O: Owner> Log<D, O> {
    /// Does what the leveling policy asks for now that a segment was cleaned.
    pub(crate) fn level<C: Client<O>>(&mut self, client: &mut C, erased: SegmentId) -> Result<(), LogError> {
        let Some(leveling) = &mut self.leveling else { return Ok(()) };
        let (fresh, worn) = match leveling.after_erase(&self.segments, erased) {
            LevelAction::Rest => return Ok(()),
            LevelAction::Relocate(fresh) => (fresh, None),
            LevelAction::Swap { worn, fresh } => (fresh, Some(worn)),
        };
        if self.config.is_paced() {
            // It is cleaned in small steps like any victim.
            (self.relocation.victim, self.relocation.to) = (Some(fresh), worn);
            return Ok(());
        }
        let erases = &self.segments.erases;
        let most_worn = || self.free.iter().max_by_key(|free| erases[free.segment.index()]).map(|free| free.segment);
        let to = worn.or_else(most_worn);
        let Some(to) = to.and_then(|to| self.free.remove(to)) else { return Ok(()) };
        self.move_segment(client, fresh, to)
    }

    /// The victim that leveling wants cleaned, if enough segments are free.
    pub(crate) fn leveling_victim(&mut self) -> Option<SegmentId> {
        if self.relocation.to.is_some_and(|to| self.segments.state[to.index()] != State::Free) {
            // The worn segment was needed for something else.
            (self.relocation.victim, self.relocation.to) = (None, None);
        }
        let enough = self.config.high_water + u32::from(self.relocation.wants_room());
        let victim = self.relocation.victim.take_if(|_| self.free.len() as u32 >= enough);
        let victim = victim.filter(|segment| self.segments.state[segment.index()] == State::Sealed)?;
        self.relocation.is_under_way = true;
        Some(victim)
    }

    /// Copies up to `budget_pages` valid pages of the victim for leveling: to the segment that was chosen for them, or where
    /// the placement wants them.
    pub(crate) fn copy_for_leveling<C: Client<O>>(
        &mut self,
        client: &mut C,
        victim: SegmentId,
        budget_pages: u32,
    ) -> Result<(), LogError> {
        let stream = self.segments.stream[victim.index()].min(self.heads.len() as u8 - 1);
        if let Some(to) = self.relocation.to.take() {
            self.open_for_leveling(to, stream)?;
        }
        let before = self.counters.copies;
        let copied = if self.relocation.head.is_open() {
            // As long as this takes, it is the open segment of the stream.
            core::mem::swap(&mut self.heads[usize::from(stream)], &mut self.relocation.head);
            let copied = self.copy_valid_to(client, victim, stream, budget_pages);
            core::mem::swap(&mut self.heads[usize::from(stream)], &mut self.relocation.head);
            copied
        } else {
            self.copy_valid(client, victim, budget_pages)
        };
        self.counters.leveling_copies += self.counters.copies - before;
        copied
    }

    /// Opens a free segment for the pages of the victim. If it is free no more, or fails, the placement decides on them.
    fn open_for_leveling(&mut self, to: SegmentId, stream: u8) -> Result<(), LogError> {
        let Some(mut free) = self.free.remove(to) else { return Ok(()) };
        let mut opening = self.free.opening();
        match self.open_segment(&mut free, stream) {
            Ok(head) => self.relocation.head = head,
            Err(error) => {
                if self.free.put_back(free, error, &mut opening)? {
                    self.note_retired(free.segment);
                }
            }
        }
        Ok(())
    }

    /// What was opened for leveling is filled no further.
    pub(crate) fn end_relocation(&mut self) -> Result<(), LogError> {
        self.relocation.is_under_way = false;
        self.relocation.to = self.relocation.to.filter(|_| self.relocation.victim.is_some());
        let head = core::mem::replace(&mut self.relocation.head, Head::CLOSED);
        if head.is_open() { self.seal(head) } else { Ok(()) }
    }

    /// Moves the valid pages of a sealed segment to `to`, an erased segment that is not in the free list, seals that
    /// and erases the source.
    fn move_segment<C: Client<O>>(
        &mut self,
        client: &mut C,
        from: SegmentId,
        mut to: FreeSegment,
    ) -> Result<(), LogError> {
        self.take(from);
        let stream = self.segments.stream[from.index()];
        let mut head = self.open_segment(&mut to, stream)?;
        let mut first = self.geometry.first_page(from).0;
        let end = first + self.geometry.pages_per_segment();
        while first < end {
            let bits = self.valid.part(first, end);
            let ((_, next), result) = self.copy_pages(client, from, first, bits, head.next, head.end);
            let count = next - core::mem::replace(&mut head.next, next);
            self.counters.copies += u64::from(count);
            self.counters.leveling_copies += u64::from(count);
            result?;
            first = ValidBits::<D>::next_part(first);
        }
        self.seal(head)?;
        self.erase(from)?;
        self.counters.leveling_erases += 1;
        Ok(())
    }
}
