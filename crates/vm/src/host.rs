use crate::cost::{self, MergePages};
use crate::{BlockMerge, Cache, CacheRegion, Frames, VictimSelection};
use alloc::collections::VecDeque;
use margay_flash::Lpn;
use margay_hybrid::{Host, MergeAction, Merged, Victim};

impl<F: Frames> Cache<F> {
    /// Cost of a merge by the equation of the scheme, in microseconds.
    fn cost_us(&self, pages: &MergePages, (p_mru, p_lru): (f64, f64)) -> f64 {
        let scheme = &self.config.scheme;
        let costs = &self.config.costs;
        match (scheme.merge, scheme.evicts_dirty) {
            (BlockMerge::Locality, true) => cost::eviction(costs, pages, p_mru, p_lru),
            (BlockMerge::Locality, false) => cost::locality(costs, pages, p_mru),
            _ => cost::duplication(costs, pages, p_mru, p_lru),
        }
    }
}

impl<F: Frames> Host for Cache<F> {
    fn decide(&self, lpn: Lpn, victim: Victim, on_flash: bool) -> MergeAction {
        let scheme = &self.config.scheme;
        let unaware = if on_flash { MergeAction::Copy } else { MergeAction::Leave };
        let Some(region) = self.region(lpn) else { return unaware };
        if scheme.merge == BlockMerge::Unaware || (victim == Victim::Sequential && !self.config.rules_sequential) {
            return unaware;
        }
        let (in_lru, dirty) = (region == CacheRegion::Lru, self.is_dirty(lpn));
        if dirty && in_lru && scheme.evicts_dirty && (on_flash || self.config.evicts_unduplicated) {
            return MergeAction::Write;
        }
        if !on_flash {
            return MergeAction::Leave;
        }
        match scheme.merge {
            BlockMerge::Buffer if dirty => MergeAction::Write,
            BlockMerge::Buffer => MergeAction::Copy,
            BlockMerge::Locality if !dirty && in_lru => MergeAction::Copy,
            _ => MergeAction::Drop,
        }
    }

    fn fill(&mut self, lpn: Lpn, data: &mut [u8]) {
        if let Some(frame) = self.frame(lpn) {
            self.frames.copy(frame, data);
        }
    }

    fn moved(&mut self, lpn: Lpn, how: MergeAction) {
        self.duplicates += u64::from(self.frame(lpn).is_some());
        match how {
            MergeAction::Write => self.mark(lpn, false),
            MergeAction::Drop => self.mark(lpn, true),
            MergeAction::Copy | MergeAction::Leave => {}
        }
    }

    fn on_flash(&mut self, lpn: Lpn, is: bool) {
        self.set_on_flash(lpn, is);
    }

    fn linked(&mut self, slot: u32, block: u32, is: bool) {
        self.link(slot, block, is);
    }

    fn victim(&mut self, oldest_first: &VecDeque<u32>) -> usize {
        if self.config.scheme.selection == VictimSelection::RoundRobin {
            return 0;
        }
        let probabilities = self.probabilities();
        let mut best = (0, f64::INFINITY);
        for (at, slot) in oldest_first.iter().take(self.window.now() as usize).enumerate() {
            let cost = self.cost_us(&self.tally().pages(*slot), probabilities);
            if cost < best.1 {
                best = (at, cost);
            }
        }
        best.0
    }

    fn merged(&mut self, merged: &Merged) {
        let duplicates = core::mem::take(&mut self.duplicates);
        match merged.victim {
            Victim::Random => {
                self.stats.random.count(merged, duplicates);
                let mut one = crate::GcTotals::default();
                one.count(merged, duplicates);
                self.window.merged(one.cost_us(&self.config.costs), self.random_log_blocks);
            }
            Victim::Sequential => self.stats.sequential.count(merged, duplicates),
        }
    }
}
