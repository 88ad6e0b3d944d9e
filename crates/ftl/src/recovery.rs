//! What a disk adds to the recovery of its device: the map, and the trims that are applied to it.

use crate::map::UNMAPPED;
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Lpn, Ppn};
use margay_format::{FoundPage, Layout, LogState, OwnPages, Superblock, decode_disk_checkpoint};
use margay_log::{Kept, OwnerMap, PageReader, ValidPages};
use margay_policy::Now;

/// By owner, the place and sequence number of its latest page.
#[derive(Clone, Debug)]
pub(crate) struct PageMap {
    own: OwnPages,
    pages: Vec<u32>,
    seqs: Vec<u64>,
    /// What is kept of pages that were the latest of their owners when they were found.
    kept: Vec<(Lpn, Ppn, Kept)>,
}

impl PageMap {
    /// A map of what a checkpoint says, which is of one moment.
    fn without_seqs(superblock: &Superblock) -> Self {
        let own = OwnPages::of(superblock);
        Self { own, pages: vec![UNMAPPED; own.owners() as usize], seqs: Vec::new(), kept: Vec::new() }
    }

    /// Where a page lives.
    pub fn place(&self, lpn: Lpn) -> Option<Ppn> {
        self.pages.get(lpn.index()).copied().filter(|page| *page != UNMAPPED).map(Ppn)
    }

    /// The pages by owner.
    pub fn into_pages(self) -> Vec<u32> {
        self.pages
    }

    fn apply_trims<F: Flash>(&mut self, reader: &mut PageReader<'_, F>) -> Result<(), FlashError> {
        let mut page = vec![0; reader.geometry().page_bytes() as usize];
        for group in 0..self.own.groups() {
            let owner = self.own.trims(group);
            let Some(at) = self.place(owner) else { continue };
            if !reader.read(at, owner, &mut page)? {
                reader.report_damaged(at);
                continue;
            }
            let Some((seq, unmapped)) = self.own.decode_trims(group, &page) else { continue };
            for lpn in unmapped.map(Lpn::index) {
                if self.seqs[lpn] <= seq {
                    self.pages[lpn] = UNMAPPED;
                }
            }
        }
        Ok(())
    }
}

impl OwnerMap for PageMap {
    type Owner = Lpn;

    fn empty(superblock: &Superblock) -> Self {
        let map = Self::without_seqs(superblock);
        Self { seqs: vec![0; map.pages.len()], ..map }
    }

    fn found(&mut self, page: &FoundPage) -> bool {
        let Some(owner) = usize::try_from(page.owner).ok().filter(|owner| *owner < self.pages.len()) else {
            return false;
        };
        if self.seqs[owner] <= page.seq {
            self.seqs[owner] = page.seq;
            self.pages[owner] = page.ppn.0;
            if let Some(info) = page.info.filter(|info| info.heat_kind != 0) {
                let written = Now { us: info.time_us, writes: info.version };
                let kept = Kept::OnFlash { heat_kind: info.heat_kind, heat: info.heat, written };
                self.kept.push((Lpn(owner as u32), page.ppn, kept));
            }
        }
        true
    }

    fn decode_checkpoint(bytes: &[u8], superblock: &Superblock, layout: &Layout) -> Option<(LogState, Self)> {
        let (log, pages) = decode_disk_checkpoint(bytes, superblock, layout)?;
        let mut map = Self::without_seqs(superblock);
        for page in pages {
            let page = page?;
            map.pages[page.owner.index()] = page.ppn.0;
            if let Some((value, count)) = page.heat {
                map.kept.push((page.owner, page.ppn, Kept::Encoded(value, count)));
            }
        }
        Some((log, map))
    }

    fn places(&self) -> impl Iterator<Item = Ppn> + '_ {
        self.pages.iter().filter(|page| **page != UNMAPPED).map(|page| Ppn(*page))
    }

    fn retired_list(&self) -> Option<(Ppn, Lpn)> {
        let owner = self.own.retired();
        Some((self.place(owner)?, owner))
    }

    fn settle<F: Flash>(&mut self, pages: &mut PageReader<'_, F>) -> Result<(), FlashError> {
        // A checkpoint is written after the trims.
        if !pages.is_from_checkpoint() {
            self.apply_trims(pages)?;
        }
        self.seqs = Vec::new();
        Ok(())
    }

    fn take_pages(&mut self) -> ValidPages<Lpn> {
        let owners = (0..).map(Lpn).zip(&self.pages).filter(|(_, page)| **page != UNMAPPED);
        // As much memory as it takes and no more: a microcontroller has not much.
        let mut places = Vec::with_capacity(owners.clone().count());
        places.extend(owners.map(|(owner, page)| (Ppn(*page), owner)));
        let mut found = core::mem::take(&mut self.kept);
        found.retain(|(owner, ppn, _)| self.pages[owner.index()] == ppn.0);
        found.sort_unstable_by_key(|(owner, ..)| *owner);
        found.dedup_by_key(|(owner, ..)| *owner);
        let mut found = found.into_iter().peekable();
        let kept = (0..)
            .zip(&places)
            .filter_map(|(at, (_, owner))| found.next_if(|(of, ..)| of == owner).map(|(.., kept)| (at, kept)));
        let kept = kept.collect();
        ValidPages { places, kept, counts: Vec::new() }
    }
}
