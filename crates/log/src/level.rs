use crate::log::Log;
use crate::valid::ValidBits;
use crate::{Client, LogError, Owner};
use margay_flash::SegmentId;
use margay_format::{FreeSegment, Store};
use margay_policy::LevelAction;

impl<D: Store, O: Owner> Log<D, O> {
    /// Does what the leveling policy asks for after an erase.
    pub(crate) fn level<C: Client<O>>(&mut self, client: &mut C) -> Result<(), LogError> {
        let Some(leveling) = &mut self.leveling else { return Ok(()) };
        match leveling.after_erase(&self.segments) {
            LevelAction::Rest => Ok(()),
            // It is cleaned in small steps like any victim, and its data goes where the placement wants it.
            LevelAction::Relocate(fresh) | LevelAction::Swap { fresh, .. } if self.config.is_paced() => {
                self.leveling_victim = Some(fresh);
                Ok(())
            }
            LevelAction::Relocate(fresh) => {
                let erases = &self.segments.erases;
                let worn = self.free.iter().max_by_key(|free| erases[free.segment.index()]).map(|free| free.segment);
                let Some(to) = worn.and_then(|worn| self.free.remove(worn)) else { return Ok(()) };
                self.move_segment(client, fresh, to)
            }
            LevelAction::Swap { worn, fresh } => {
                // The exchange goes through a free segment, so that the data is on flash at every moment.
                let Some(spare) = self.free.pop() else { return Ok(()) };
                self.move_segment(client, worn, spare)?;
                let Some(worn) = self.free.remove(worn) else { return Ok(()) };
                self.move_segment(client, fresh, worn)
            }
        }
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
            first = ValidBits::next_part(first);
        }
        self.seal(head)?;
        self.erase(from)?;
        self.counters.leveling_erases += 1;
        Ok(())
    }
}
