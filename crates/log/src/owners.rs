//! Whose pages are and which of them are valid, where neither is kept in memory: the owners are in the tags on flash, and are
//! read when a segment is cleaned; the client says which of them map those pages. Of each segment it is known how many there are.

use crate::log::{Head, Log};
use crate::read_counts::ReadCounts;
use crate::{Client, LogError, Owner};
use alloc::vec::Vec;
use margay_flash::{FlashError, Geometry, Ppn, ReadStatus, SegmentId};
use margay_format::Store;
use margay_policy::State;

/// Reads pages of a client's own while its log asks it something.
pub trait OwnReader<O> {
    /// Reads the page of an owner.
    ///
    /// # Errors
    /// Those of the device.
    fn read(&mut self, ppn: Ppn, owner: O) -> Result<&[u8], FlashError>;
}

struct Reading<'a, D> {
    device: &'a mut D,
    geometry: Geometry,
    reads: &'a mut ReadCounts,
    page: &'a mut Vec<u8>,
    /// The last page that the ECC had to correct.
    corrected: Option<Ppn>,
}

impl<D: Store, O: Owner> OwnReader<O> for Reading<'_, D> {
    fn read(&mut self, ppn: Ppn, owner: O) -> Result<&[u8], FlashError> {
        self.reads.note(self.geometry.segment_of(ppn), 1);
        self.page.resize(self.geometry.page_bytes() as usize, 0);
        if self.device.read(ppn, owner.to_u64(), self.page)? == ReadStatus::Corrected {
            self.corrected = Some(ppn);
        }
        Ok(self.page)
    }
}

/// The owners of the pages of one segment, as their tags say.
#[derive(Debug)]
pub(crate) struct ReadOwners<O> {
    segment: Option<SegmentId>,
    /// By page of the segment.
    owners: Vec<O>,
    /// Pages of the segment that may be valid, with the owners in their tags.
    found: Vec<(O, Ppn)>,
    /// Owners of pages whose tags cannot be read; `None` for a page that is nobody's.
    named: Vec<(Ppn, Option<O>)>,
    /// A page whose tag cannot be read and that has no name yet.
    unknown: Option<Ppn>,
    /// A page of the client's own.
    page: Vec<u8>,
}

impl<O> Default for ReadOwners<O> {
    fn default() -> Self {
        let (owners, found, named, page) = Default::default();
        Self { segment: None, owners, found, named, unknown: None, page }
    }
}

impl<O: Owner> ReadOwners<O> {
    /// What was read holds no more.
    pub fn forget(&mut self) {
        self.segment = None;
    }

    pub fn memory_bytes(&self) -> usize {
        let pages = self.owners.capacity() * size_of::<O>() + self.found.capacity() * size_of::<(O, Ppn)>();
        pages + self.page.capacity()
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
    ///
    /// # Errors
    /// Those of the device, and of [`Client::keep_current`].
    pub(crate) fn live_owner<C: Client<O>>(&mut self, client: &mut C, ppn: Ppn) -> Result<Option<O>, LogError> {
        if !self.config.owners_on_flash {
            return Ok(self.owner(ppn).filter(|owner| client.locate(*owner) == Some(ppn)));
        }
        let Some(owner) = self.device.owner_of(ppn)?.and_then(O::from_u64) else { return Ok(None) };
        let mut found = Vec::from([(owner, ppn)]);
        self.keep_current(client, &mut found)?;
        Ok(found.first().map(|(owner, _)| *owner))
    }

    /// Keeps those of the pages that their owners are mapped to.
    fn keep_current<C: Client<O>>(&mut self, client: &mut C, found: &mut Vec<(O, Ppn)>) -> Result<(), LogError> {
        let (device, reads, page) = (&mut self.device, &mut self.reads, &mut self.read_owners.page);
        let mut reading = Reading { device, geometry: self.geometry, reads, page, corrected: None };
        let kept = client.keep_current(found, &mut reading);
        if let Some(ppn) = reading.corrected {
            self.note_corrected(ppn);
        }
        kept
    }

    /// Finds out which pages of a segment are valid, and whose.
    ///
    /// # Errors
    /// [`LogError::OwnerUnknown`] if one is whose tag cannot be read, which [`Log::name_owner`] helps; those of the device and of
    /// [`Client::keep_current`].
    pub(crate) fn know_pages_of<C: Client<O>>(&mut self, client: &mut C, segment: SegmentId) -> Result<(), LogError> {
        if self.read_owners.segment == Some(segment) {
            return Ok(());
        }
        self.read_owners.segment = None;
        self.valid.look_at(&self.geometry, segment);
        let mut found = core::mem::take(&mut self.read_owners.found);
        found.clear();
        let result = self.find_pages_of(client, segment, &mut found);
        self.read_owners.found = found;
        result
    }

    fn find_pages_of<C: Client<O>>(
        &mut self,
        client: &mut C,
        segment: SegmentId,
        found: &mut Vec<(O, Ppn)>,
    ) -> Result<(), LogError> {
        let first = self.geometry.first_page(segment).0;
        let valid = self.segments.valid[segment.index()];
        let data = first + self.config.header_pages..first + self.config.header_pages + self.segments.data_pages;
        let mut unknown = None;
        // Of one that is known to hold nothing there is nothing to read.
        for ppn in data.map(Ppn).filter(|_| valid > 0) {
            let named = self.read_owners.named.iter().find(|(at, _)| *at == ppn).map(|(_, owner)| *owner);
            let owner = match named {
                Some(owner) => owner,
                None => {
                    self.counters.tag_reads += 1;
                    let owner = self.device.owner_of(ppn)?.and_then(O::from_u64);
                    unknown = unknown.or(owner.is_none().then_some(ppn));
                    owner
                }
            };
            found.extend(owner.map(|owner| (owner, ppn)));
        }
        self.keep_current(client, found)?;
        if let Some(ppn) = unknown.filter(|_| (found.len() as u32) < valid) {
            self.read_owners.unknown = Some(ppn);
            return Err(LogError::OwnerUnknown { ppn });
        }
        if found.len() as u32 != valid {
            self.device.stop_writing();
            return Err(LogError::MapDamaged { segment, named: valid, found: found.len() as u32 });
        }
        self.read_owners.owners.clear();
        self.read_owners.owners.resize(self.geometry.pages_per_segment() as usize, O::default());
        for (owner, ppn) in &*found {
            self.read_owners.owners[(ppn.0 - first) as usize] = *owner;
            self.valid.fill(ppn.0, ppn.0 + 1, true);
        }
        let of_segment = |(ppn, _): &(Ppn, Option<O>)| self.geometry.segment_of(*ppn) == segment;
        self.read_owners.named.retain(|named| !of_segment(named));
        self.read_owners.segment = Some(segment);
        Ok(())
    }

    /// A page whose tag cannot be read and that is to be moved: the client finds out whose it is and calls
    /// [`Log::name_owner`]. Until then its segment cannot be cleaned.
    pub fn unknown_owner(&self) -> Option<Ppn> {
        self.read_owners.unknown
    }

    /// Says whose page that of [`Log::unknown_owner`] is; `None` if it is nobody's.
    pub fn name_owner(&mut self, owner: Option<O>) {
        if let Some(ppn) = self.read_owners.unknown.take() {
            self.read_owners.named.push((ppn, owner));
        }
    }

    /// How many pages of a segment are valid, those apart that are yet to be written.
    pub fn valid_pages_of(&self, segment: SegmentId) -> u32 {
        let unwritten = self.open_heads().find(|head| head.segment == segment).map_or(0, Head::room);
        self.segments.valid[segment.index()].saturating_sub(unwritten)
    }

    /// How many pages of each segment were counted anew, by the client.
    ///
    /// # Panics
    /// If there are not as many counts as segments.
    pub fn recount(&mut self, counts: &[u32]) {
        assert_eq!(counts.len(), self.segments.len() as usize, "a count for each segment");
        self.read_owners.forget();
        for (segment, count) in (0..).map(SegmentId).zip(counts) {
            let kept = self.valid_pages_of(segment);
            if kept == *count {
                continue;
            }
            let valid = self.segments.valid[segment.index()] - kept + count;
            let total = self.segments.total_valid + u64::from(*count);
            let is_sealed = self.segments.state[segment.index()] == State::Sealed;
            if is_sealed {
                self.take(segment);
            }
            self.segments.valid[segment.index()] = valid;
            self.segments.total_valid = total.saturating_sub(kept.into());
            if is_sealed {
                self.give_back(segment);
            }
        }
    }

    /// The stream of a segment if its pages stay in it when they are copied.
    #[inline]
    pub(crate) fn stream_apart(&self, segment: SegmentId) -> Option<u8> {
        let stream = Some(self.segments.stream[segment.index()]);
        let is_apart = stream == self.read_only || D::KEEPS_INFO && stream == self.own_stream;
        if is_apart { stream } else { None }
    }
}
