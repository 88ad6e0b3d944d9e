//! Whose pages are, where their owners are not kept in memory: they are in the tags on flash, and are read when a segment
//! is cleaned.

use crate::log::Log;
use crate::{Client, LogError, Owner};
use alloc::vec::Vec;
use margay_flash::{Geometry, Ppn, SegmentId};
use margay_format::Store;

/// The owners of the pages of one segment, as their tags say.
#[derive(Debug)]
pub(crate) struct ReadOwners<O> {
    segment: Option<SegmentId>,
    /// By page of the segment.
    owners: Vec<O>,
    /// Owners of pages whose tags cannot be read.
    named: Vec<(Ppn, O)>,
    /// A page whose tag cannot be read and that has no name yet.
    unknown: Option<Ppn>,
}

impl<O> Default for ReadOwners<O> {
    fn default() -> Self {
        Self { segment: None, owners: Vec::new(), named: Vec::new(), unknown: None }
    }
}

impl<O: Owner> ReadOwners<O> {
    /// What was read holds no more.
    pub fn forget(&mut self) {
        self.segment = None;
    }

    pub fn capacity(&self) -> usize {
        self.owners.capacity()
    }

    fn get(&self, geometry: &Geometry, ppn: Ppn) -> O {
        debug_assert_eq!(self.segment, Some(geometry.segment_of(ppn)), "owners of another segment were read");
        self.owners[geometry.page_in_segment(ppn) as usize]
    }

    /// As [`margay_policy::placement::word_and_run`]: the owners of 64 pages from `source` on, and room for `run` more that
    /// nobody needs.
    pub fn word_and_run<'a>(
        &self,
        geometry: &Geometry,
        source: u32,
        run: u32,
        word: &'a mut Option<([O; 64], [O; 64])>,
    ) -> (&'a [O; 64], &'a mut [O]) {
        let (owners, room) = word.insert(([O::default(); 64], [O::default(); 64]));
        debug_assert_eq!(self.segment, Some(geometry.segment_of(Ppn(source))), "owners of another segment were read");
        let read = &self.owners[geometry.page_in_segment(Ppn(source)) as usize..];
        owners.iter_mut().zip(read).for_each(|(owner, read)| *owner = *read);
        (owners, &mut room[..run.min(64) as usize])
    }
}

impl<D: Store, O: Owner> Log<D, O> {
    /// The owner of a page that was written, if owners are kept in memory.
    #[inline(always)]
    pub(crate) fn note_owner(&mut self, ppn: Ppn, owner: O) {
        if let Some(slot) = self.owners.get_mut(ppn.index()) {
            *slot = owner;
        }
    }

    /// The owner of a page of the segment that is being cleaned.
    #[inline]
    pub(crate) fn owner_in_victim(&self, ppn: Ppn) -> O {
        if D::KEEPS_INFO && self.owners.is_empty() {
            return self.read_owners.get(&self.geometry, ppn);
        }
        self.owners[ppn.index()]
    }

    /// The owner of a page if it is the current one of that owner.
    pub(crate) fn live_owner<C: Client<O>>(&mut self, client: &C, ppn: Ppn) -> Result<Option<O>, LogError> {
        if !self.config.owners_on_flash {
            return Ok(self.owner(ppn).filter(|owner| client.locate(*owner) == Some(ppn)));
        }
        if !self.valid.is_set(ppn) {
            return Ok(None);
        }
        Ok(self.device.owner_of(ppn)?.and_then(O::from_u64))
    }

    /// Reads the owners of the valid pages of a segment from their tags.
    ///
    /// # Errors
    /// [`LogError::OwnerUnknown`] for a page whose tag cannot be read; [`Log::name_owner`] helps.
    pub(crate) fn read_owners_of(&mut self, segment: SegmentId) -> Result<(), LogError> {
        if self.read_owners.segment == Some(segment) {
            return Ok(());
        }
        self.read_owners.segment = None;
        let first = self.geometry.first_page(segment).0;
        let pages = self.geometry.pages_per_segment();
        self.read_owners.owners.clear();
        self.read_owners.owners.resize(pages as usize, O::default());
        for page in (0..pages).filter(|page| self.valid.is_set(Ppn(first + page))) {
            let ppn = Ppn(first + page);
            self.counters.tag_reads += 1;
            let named = self.read_owners.named.iter().find(|(at, _)| *at == ppn).map(|(_, owner)| *owner);
            let owner = match named {
                Some(owner) => Some(owner),
                None => self.device.owner_of(ppn)?.and_then(O::from_u64),
            };
            let Some(owner) = owner else {
                self.read_owners.unknown = Some(ppn);
                return Err(LogError::OwnerUnknown { ppn });
            };
            self.read_owners.owners[page as usize] = owner;
        }
        let of_segment = |(ppn, _): &(Ppn, O)| self.geometry.segment_of(*ppn) == segment;
        self.read_owners.named.retain(|named| !of_segment(named));
        self.read_owners.segment = Some(segment);
        Ok(())
    }

    /// A page whose tag cannot be read and that is to be moved: the client finds out whose it is and calls
    /// [`Log::name_owner`]. Until then its segment cannot be cleaned.
    pub fn unknown_owner(&self) -> Option<Ppn> {
        self.read_owners.unknown
    }

    /// Says whose page that of [`Log::unknown_owner`] is.
    pub fn name_owner(&mut self, owner: O) {
        if let Some(ppn) = self.read_owners.unknown.take() {
            self.read_owners.named.push((ppn, owner));
        }
    }

    /// The page of [`Log::unknown_owner`] is nobody's: what it held is lost.
    pub fn give_up_unknown(&mut self) {
        if let Some(ppn) = self.read_owners.unknown.take().filter(|ppn| self.valid.is_set(*ppn)) {
            self.invalidate(ppn);
            self.segments.total_valid -= 1;
            self.counters.lost_pages += 1;
        }
    }

    /// Whether a page is valid: the current one of its owner.
    pub fn is_valid(&self, ppn: Ppn) -> bool {
        self.valid.is_set(ppn)
    }

    /// A bit for each page of the device, the lowest of a word first: 1 if it is valid.
    pub fn valid_words(&self) -> Vec<u64> {
        let mut words = self.valid.words().to_vec();
        for head in self.open_heads() {
            // Pages that are yet to be written count as valid.
            (head.next..head.end).for_each(|page| words[page as usize / 64] &= !(1 << (page % 64)));
        }
        words
    }

    /// The stream of a segment if its pages stay in it when they are copied.
    #[inline]
    pub(crate) fn stream_apart(&self, segment: SegmentId) -> Option<u8> {
        let stream = Some(self.segments.stream[segment.index()]);
        let is_apart = stream == self.read_only || D::KEEPS_INFO && stream == self.own_stream;
        if is_apart { stream } else { None }
    }
}
