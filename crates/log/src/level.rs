use crate::log::{Client, Log, LogError};
use margay_flash::{Flash, Ppn, SegmentId};
use margay_policy::{LevelAction, LevelingSpec, Placement, Selection};

impl<F: Flash, S: Selection, P: Placement, O: Copy + Default> Log<F, S, P, O> {
    /// Does what the leveling policy asks for after an erase.
    pub(crate) fn level<C: Client<O>>(&mut self, client: &mut C) -> Result<(), LogError> {
        if self.config.leveling == LevelingSpec::None {
            return Ok(());
        }
        match self.leveler.after_erase(&self.segments) {
            LevelAction::Rest => Ok(()),
            LevelAction::Relocate(fresh) => {
                let erases = &self.segments.erases;
                let worn = self.free.iter().enumerate().max_by_key(|(_, id)| erases[id.index()]);
                let Some(at) = worn.map(|(at, _)| at) else { return Ok(()) };
                let Some(to) = self.free.remove(at) else { return Ok(()) };
                self.move_segment(client, fresh, to)
            }
            LevelAction::Swap { worn, fresh } => {
                // Through a free segment, so that the data is on flash at every moment.
                let Some(spare) = self.free.pop_front() else { return Ok(()) };
                self.move_segment(client, worn, spare)?;
                self.free.retain(|id| *id != worn);
                self.move_segment(client, fresh, worn)
            }
        }
    }

    /// Moves the valid pages of a sealed segment to a free one that is in no list, seals that and erases the
    /// source.
    fn move_segment<C: Client<O>>(&mut self, client: &mut C, from: SegmentId, to: SegmentId) -> Result<(), LogError> {
        self.take(from);
        let stream = self.segments.stream[from.index()];
        let mut head = self.open_segment(to, stream)?;
        let first = self.geometry.first_page(from).0;
        for page in 0..self.geometry.pages_per_segment() {
            if !self.is_valid(from, page) {
                continue;
            }
            let (source, target) = (Ppn(first + page), Ppn(head.next));
            head.next += 1;
            self.device.copy(source, target, &mut self.scratch)?;
            let owner = self.owners[source.index()];
            self.owners[target.index()] = owner;
            self.infos[target.index()] = self.infos[source.index()];
            self.set_valid(source, false);
            self.set_valid(target, true);
            client.relocated(owner, source, target);
            self.counters.copies += 1;
            self.counters.leveling_copies += 1;
        }
        self.seal(head)?;
        self.erase(from)?;
        self.counters.leveling_erases += 1;
        Ok(())
    }

    fn set_valid(&mut self, ppn: Ppn, valid: bool) {
        let (segment, page) = (self.geometry.segment_of(ppn), self.geometry.page_in_segment(ppn));
        let word = &mut self.valid[segment.index() * self.words_per_segment + page as usize / 64];
        if valid {
            *word |= 1 << (page % 64);
            self.segments.valid[segment.index()] += 1;
        } else {
            *word &= !(1 << (page % 64));
            self.segments.valid[segment.index()] -= 1;
        }
    }
}
