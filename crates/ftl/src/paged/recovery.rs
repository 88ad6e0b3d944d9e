//! What a disk whose map is on flash adds to the recovery of its device. Of each group the latest translation page counts,
//! and the pages of the group that were programmed after it; so no more than that is in memory.

use crate::map::UNMAPPED;
use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Geometry, Lpn, Ppn};
use margay_format::{
    FoundPage, Layout, LogState, MapState, OwnPages, Superblock, decode_map_checkpoint, decode_translation,
};
use margay_log::{OwnerMap, PageReader, ValidPages};

#[derive(Clone, Debug)]
pub(crate) struct FoundMap {
    own: OwnPages,
    geometry: Geometry,
    /// Sequence numbers of the disk's own pages.
    seqs: Vec<u64>,
    pub state: MapState,
}

impl FoundMap {
    fn place(&self, owner: Lpn) -> Option<Ppn> {
        let place = self.state.own[(owner.0 - self.own.exported()) as usize];
        (place != UNMAPPED).then_some(Ppn(place))
    }

    /// How many pages of the segment of a page were counted as valid.
    fn counted(&mut self, ppn: Ppn) -> &mut u32 {
        &mut self.state.counts[self.geometry.segment_of(ppn).index()]
    }

    /// As of which program each translation page holds. One that cannot be read is given up: then all pages of its group
    /// count that are found, of each owner the latest.
    fn read_headers<F: Flash>(
        &mut self,
        pages: &mut PageReader<'_, F>,
        page: &mut [u8],
    ) -> Result<Vec<u64>, FlashError> {
        let mut as_of = vec![0; self.own.groups() as usize];
        for group in 0..self.own.groups() {
            let owner = self.own.trims(group);
            let Some(at) = self.place(owner) else { continue };
            let read = pages.read(at, owner, page)?.then(|| decode_translation(group, page)).flatten();
            match read {
                Some((seq, _)) => as_of[group as usize] = seq,
                None => {
                    pages.report_damaged(at);
                    self.state.own[(owner.0 - self.own.exported()) as usize] = UNMAPPED;
                }
            }
        }
        Ok(as_of)
    }

    /// Counts what the translation pages say, where nothing newer was found. An entry that names a page whose segment was
    /// erased since is that of a page that was trimmed.
    fn count_entries<F: Flash>(
        &mut self,
        pages: &mut PageReader<'_, F>,
        changes: &mut BTreeMap<u32, (u64, u32)>,
        page: &mut [u8],
    ) -> Result<(), FlashError> {
        let (geometry, data_pages) = (pages.geometry(), pages.data_pages());
        for group in 0..self.own.groups() {
            let owner = self.own.trims(group);
            let Some(at) = self.place(owner) else { continue };
            let read = pages.read(at, owner, page)?.then(|| decode_translation(group, page)).flatten();
            let Some((seq, entries)) = read else { return Err(FlashError::Uncorrectable { ppn: at }) };
            for (lpn, entry) in self.own.pages_of(group).zip(entries) {
                if entry == UNMAPPED || changes.contains_key(&lpn) {
                    continue;
                }
                // A map that was made up may name a page twice.
                let is_there = entry < geometry.pages()
                    && pages.first_seq(geometry.segment_of(Ppn(entry))).is_some_and(|first| first <= seq)
                    && *self.counted(Ppn(entry)) < data_pages;
                if is_there {
                    *self.counted(Ppn(entry)) += 1;
                } else {
                    changes.insert(lpn, (seq, UNMAPPED));
                }
            }
        }
        Ok(())
    }
}

impl OwnerMap for FoundMap {
    type Owner = Lpn;

    fn empty(superblock: &Superblock) -> Self {
        let own = OwnPages::of(superblock);
        let (owns, geometry) = ((own.owners() - own.exported()) as usize, superblock.geometry);
        let counts = vec![0; geometry.segments() as usize];
        let state = MapState { own: vec![UNMAPPED; owns], changes: Vec::new(), counts };
        Self { own, geometry, seqs: vec![0; owns], state }
    }

    fn found(&mut self, page: &FoundPage) -> bool {
        let Some(own) = page.owner.checked_sub(self.own.exported().into()) else { return true };
        let Some(seq) = usize::try_from(own).ok().and_then(|own| self.seqs.get_mut(own)) else { return false };
        if *seq <= page.seq {
            *seq = page.seq;
            self.state.own[own as usize] = page.ppn.0;
        }
        true
    }

    fn decode_checkpoint(bytes: &[u8], superblock: &Superblock, layout: &Layout) -> Option<(LogState, Self)> {
        let (log, state) = decode_map_checkpoint(bytes, superblock, layout)?;
        Some((log, Self { state, ..Self::empty(superblock) }))
    }

    fn places(&self) -> impl Iterator<Item = Ppn> + '_ {
        let changes = self.state.changes.iter().map(|(_, place)| place);
        self.state.own.iter().chain(changes).filter(|place| **place != UNMAPPED).map(|place| Ppn(*place))
    }

    fn retired_list(&self) -> Option<(Ppn, Lpn)> {
        let owner = self.own.retired();
        Some((self.place(owner)?, owner))
    }

    fn settle<F: Flash>(&mut self, pages: &mut PageReader<'_, F>) -> Result<(), FlashError> {
        self.seqs = Vec::new();
        if pages.is_from_checkpoint() {
            return Ok(());
        }
        let mut page = vec![0; pages.geometry().page_bytes() as usize];
        let as_of = self.read_headers(pages, &mut page)?;
        let own = self.own;
        let mut changes = BTreeMap::<u32, (u64, u32)>::new();
        pages.look_again(|found| {
            if let Ok(lpn) = u32::try_from(found.owner)
                && lpn < own.exported()
                && found.seq > as_of[own.group_of(Lpn(lpn)) as usize]
            {
                let change = changes.entry(lpn).or_insert((found.seq, found.ppn.0));
                *change = (*change).max((found.seq, found.ppn.0));
            }
        })?;
        for (_, place) in changes.values() {
            *self.counted(Ppn(*place)) += 1;
        }
        for owner in (own.exported()..own.owners()).map(Lpn) {
            if let Some(at) = self.place(owner) {
                *self.counted(at) += 1;
            }
        }
        self.count_entries(pages, &mut changes, &mut page)?;
        self.state.changes = changes.into_iter().map(|(lpn, (_, place))| (Lpn(lpn), place)).collect();
        Ok(())
    }

    fn take_pages(&mut self) -> ValidPages<Lpn> {
        ValidPages { places: Vec::new(), kept: Vec::new(), counts: core::mem::take(&mut self.state.counts) }
    }
}
