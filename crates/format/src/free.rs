//! Free segments: in which order they are used, which of them have to be erased first, when that is allowed, and what
//! follows when it fails.

use crate::store::Store;
use crate::tag::SegmentInfo;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use margay_flash::{FlashError, SegmentId};

/// A segment is retired when so many erases of it have failed, each while others succeeded.
const MAX_FAILED_ERASES: u8 = 3;

/// The free segments of a device in the order of their use, and those that are retired.
#[derive(Clone, Debug, Default)]
pub struct FreeList {
    queue: VecDeque<FreeSegment>,
    /// Segments with erases that failed and may succeed another time, and how many.
    failed_erases: Vec<(SegmentId, u8)>,
    /// The last erase has failed, so that the next failure tells nothing of its segment.
    has_erase_failed: bool,
    retired: Vec<SegmentId>,
}

/// A segment that is not in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSegment {
    /// Which one.
    pub segment: SegmentId,
    /// It may hold anything, so that it has to be erased before use.
    pub needs_erase: bool,
    /// The sequence number of the last program before it was given free: up to there everything has to be durable when it
    /// is erased. 0 if that is known.
    pub freed_seq: u64,
}

/// Free segments being tried one after the other until one can be opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// How many are left to be tried.
    tries: usize,
    /// Why the first could not be opened.
    first_error: Option<FlashError>,
}

/// What became of a segment that was given free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// It was erased.
    Erased,
    /// It is erased before it is used again.
    Waits,
    /// It cannot be erased, and is retired.
    Retired,
}

impl FreeSegment {
    /// A segment that is erased.
    pub const fn erased(segment: SegmentId) -> Self {
        Self { segment, needs_erase: false, freed_seq: 0 }
    }

    /// A segment that may hold anything, all of which is known to be superseded.
    pub const fn unknown(segment: SegmentId) -> Self {
        Self { segment, needs_erase: true, freed_seq: 0 }
    }
}

impl FreeList {
    /// Number of free segments.
    #[inline]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no segment is free.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The free segments, the one that is used next first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &FreeSegment> {
        self.queue.iter()
    }

    /// Begins to look for a segment that can be opened.
    pub fn opening(&self) -> Opening {
        Opening { tries: self.len(), first_error: None }
    }

    /// Takes the segment that is used next out of the list.
    #[inline]
    pub fn pop(&mut self) -> Option<FreeSegment> {
        self.queue.pop_front()
    }

    /// Makes room for all of so many segments, so that nothing is allocated later, whatever fails.
    pub fn reserve(&mut self, segments: usize) {
        self.queue.reserve_exact(segments.saturating_sub(self.queue.len()));
        self.failed_erases.reserve_exact(segments.saturating_sub(self.failed_erases.len()));
        self.retired.reserve_exact(segments.saturating_sub(self.retired.len()));
    }

    /// Adds a segment, which is used after the others.
    pub fn push(&mut self, free: FreeSegment) {
        self.queue.push_back(free);
    }

    /// Brings the segments into the order of a key, the lowest first.
    pub fn sort_by_key<K: Ord>(&mut self, key: impl FnMut(&FreeSegment) -> K) {
        self.queue.make_contiguous().sort_by_key(key);
    }

    /// Takes a segment out of the list, if it is in it.
    pub fn remove(&mut self, segment: SegmentId) -> Option<FreeSegment> {
        let at = self.queue.iter().position(|free| free.segment == segment)?;
        self.queue.remove(at)
    }

    /// Segments that are not used any more because programs or erases of them have failed.
    pub fn retired(&self) -> &[SegmentId] {
        &self.retired
    }

    /// A segment that is not in the list is not used any more.
    pub fn retire(&mut self, segment: SegmentId) {
        if !self.retired.contains(&segment) {
            self.retired.push(segment);
        }
    }

    /// Gives a segment free, which nothing is worth keeping of. It is erased at once, or before it is used again: if
    /// erases are to wait (`freed_seq` says until when), or if this one fails for the moment. `info` is what holds after
    /// the erase. In every case, errors included, the segment is in the list or retired.
    ///
    /// # Errors
    ///
    /// Those of the device that nothing follows from, such as [`FlashError::PowerLost`].
    pub fn give<D: Store>(
        &mut self,
        store: &mut D,
        segment: SegmentId,
        info: SegmentInfo,
        freed_seq: Option<u64>,
    ) -> Result<Freed, FlashError> {
        let erased = if freed_seq.is_some() { Ok(false) } else { store.erase(segment, info).map(|()| true) };
        let needs_erase = erased != Ok(true);
        match erased {
            Err(FlashError::EraseFailed { .. } | FlashError::ProgramFailed { .. }) => {
                self.retire(segment);
                return Ok(Freed::Retired);
            }
            _ => self.push(FreeSegment { segment, needs_erase, freed_seq: freed_seq.unwrap_or(0) }),
        }
        if freed_seq.is_some() {
            self.sync_ahead(store)?;
        }
        match erased {
            Ok(true) => Ok(Freed::Erased),
            // It is tried again when the segment is used.
            Ok(false) | Err(FlashError::Io { .. }) => Ok(Freed::Waits),
            Err(error) => Err(error),
        }
    }

    /// Begins a sync when a quarter of the free segments is left, or one, that need not wait for one, so that no segment has
    /// to wait when it is used.
    fn sync_ahead<D: Store>(&self, store: &mut D) -> Result<(), FlashError> {
        let is_ready = |free: &&FreeSegment| !free.needs_erase || store.is_recorded(free.freed_seq);
        let ready = self.queue.iter().filter(is_ready).count();
        if ready <= (self.len() / 4).max(1) { store.begin_sync() } else { Ok(()) }
    }

    /// Erases a segment that was taken out of the list, if it has to be erased before use; whether it had to. Waits first
    /// until all that supersedes what it holds is known to be durable. `info` is what holds after the erase.
    ///
    /// # Errors
    ///
    /// Those of the device. [`FlashError::EraseFailed`] also after erases of this segment failed for a moment again and
    /// again while those of others succeeded.
    pub fn make_erased<D: Store>(
        &mut self,
        store: &mut D,
        free: &mut FreeSegment,
        info: SegmentInfo,
    ) -> Result<bool, FlashError> {
        if !free.needs_erase {
            return Ok(false);
        }
        store.record(free.freed_seq)?;
        match store.erase(free.segment, info) {
            Ok(()) => {
                free.needs_erase = false;
                self.has_erase_failed = false;
                self.failed_erases.retain(|(id, _)| *id != free.segment);
                Ok(true)
            }
            Err(error @ FlashError::Io { .. }) => Err(self.after_failed_erase(free.segment, error)),
            Err(error) => Err(error),
        }
    }

    #[cold]
    fn after_failed_erase(&mut self, segment: SegmentId, error: FlashError) -> FlashError {
        if core::mem::replace(&mut self.has_erase_failed, true) {
            return error;
        }
        let at = self.failed_erases.iter().position(|(id, _)| *id == segment).unwrap_or_else(|| {
            self.failed_erases.push((segment, 0));
            self.failed_erases.len() - 1
        });
        self.failed_erases[at].1 += 1;
        if self.failed_erases[at].1 < MAX_FAILED_ERASES {
            return error;
        }
        self.failed_erases.swap_remove(at);
        FlashError::EraseFailed { segment }
    }

    /// What follows when a segment that was taken out of the list could not be erased or begun: one that failed for good
    /// is retired, another waits behind the others. Returns whether it was retired.
    ///
    /// # Errors
    ///
    /// The first error of those that were tried, when none is left to be tried, or when nothing can be done any more.
    #[cold]
    pub fn put_back(
        &mut self,
        free: FreeSegment,
        error: FlashError,
        opening: &mut Opening,
    ) -> Result<bool, FlashError> {
        if matches!(error, FlashError::EraseFailed { .. } | FlashError::ProgramFailed { .. }) {
            self.retire(free.segment);
            return Ok(true);
        }
        self.push(free);
        opening.tries = opening.tries.saturating_sub(1);
        let first = *opening.first_error.get_or_insert(error);
        let may_try = opening.tries > 0 && matches!(error, FlashError::Io { .. });
        if may_try { Ok(false) } else { Err(first) }
    }

    /// Erases a segment ahead of its use, if one waits that was given free since the list was made. Returns it as it was, and
    /// whether it is still free; if not, it is retired. `info` is what holds after the erase of a segment.
    pub fn erase_ahead<D: Store>(
        &mut self,
        store: &mut D,
        info: impl Fn(SegmentId) -> SegmentInfo,
    ) -> Result<Option<(FreeSegment, bool)>, FlashError> {
        let is_due = |free: &FreeSegment| free.needs_erase && free.freed_seq > 0;
        let Some(at) = self.queue.iter().position(is_due) else { return Ok(None) };
        self.erase_at(store, at, info)
    }

    /// Erases the segment at this place of the list, if it has to be erased before use. Returns it as it was, and whether it
    /// is still free; if not, it is retired. `None` if the list ends before. `info` is what holds after the erase.
    pub fn erase_at<D: Store>(
        &mut self,
        store: &mut D,
        at: usize,
        info: impl Fn(SegmentId) -> SegmentInfo,
    ) -> Result<Option<(FreeSegment, bool)>, FlashError> {
        let Some(free) = self.queue.get(at).copied() else { return Ok(None) };
        let mut erased = free;
        match self.make_erased(store, &mut erased, info(free.segment)) {
            Ok(_) => {
                self.queue[at] = erased;
                Ok(Some((free, true)))
            }
            Err(FlashError::EraseFailed { .. } | FlashError::ProgramFailed { .. }) => {
                self.queue.remove(at);
                self.retire(free.segment);
                Ok(Some((free, false)))
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Copied;
    use crate::tag::PageInfo;
    use margay_flash::{Geometry, Ppn, ReadStatus};

    const IO: FlashError = FlashError::Io { code: 5 };

    /// A store of which erases of these segments fail, each with its error.
    struct Failing(Geometry, Vec<(SegmentId, FlashError)>);

    impl Store for Failing {
        const KEEPS_INFO: bool = false;

        fn geometry(&self) -> &Geometry {
            &self.0
        }
        fn begin(&mut self, _: SegmentId, _: SegmentInfo) -> Result<(), FlashError> {
            Ok(())
        }
        fn program(&mut self, _: Ppn, _: &[u8], _: PageInfo) -> Result<(), FlashError> {
            Ok(())
        }
        fn copy(&mut self, _: Ppn, _: Ppn, _: u64, _: u64) -> Result<Copied, FlashError> {
            Ok(Copied::Whole)
        }
        fn finish(&mut self, _: SegmentId, _: Ppn) -> Result<(), FlashError> {
            Ok(())
        }
        fn read(&mut self, _: Ppn, _: u64, _: &mut [u8]) -> Result<ReadStatus, FlashError> {
            Ok(ReadStatus::Clean)
        }
        fn erase(&mut self, segment: SegmentId, _: SegmentInfo) -> Result<(), FlashError> {
            self.1.iter().find(|(id, _)| *id == segment).map_or(Ok(()), |(_, error)| Err(*error))
        }
        fn sync(&mut self) -> Result<(), FlashError> {
            Ok(())
        }
    }

    fn store(failing: &[(u32, FlashError)]) -> Failing {
        let failing = failing.iter().map(|(id, error)| (SegmentId(*id), *error)).collect();
        Failing(Geometry::new(8, 4, 512).unwrap(), failing)
    }

    /// Opens the next segment as a client does.
    fn open(list: &mut FreeList, store: &mut Failing) -> Result<Option<SegmentId>, FlashError> {
        let mut opening = list.opening();
        while let Some(mut free) = list.pop() {
            match list.make_erased(store, &mut free, SegmentInfo::default()) {
                Ok(_) => return Ok(Some(free.segment)),
                Err(error) => drop(list.put_back(free, error, &mut opening)?),
            }
        }
        Ok(None)
    }

    fn give(list: &mut FreeList, store: &mut Failing, segment: u32, seq: Option<u64>) -> Result<Freed, FlashError> {
        list.give(store, SegmentId(segment), SegmentInfo::default(), seq)
    }

    #[test]
    fn a_segment_that_cannot_be_erased_now_waits_behind_the_others_and_none_is_lost() {
        let (mut list, mut bad) = (FreeList::default(), store(&[(0, IO), (1, IO), (2, IO)]));
        for segment in 0..3 {
            assert_eq!(give(&mut list, &mut bad, segment, None), Ok(Freed::Waits));
        }
        assert_eq!(open(&mut list, &mut bad), Err(IO));
        assert_eq!(list.len(), 3);
        let mut better = store(&[(0, IO)]);
        assert_eq!(open(&mut list, &mut better), Ok(Some(SegmentId(1))));
        assert!(list.iter().map(|free| free.segment).eq([SegmentId(2), SegmentId(0)]));
        assert!(list.retired().is_empty());
    }

    #[test]
    fn erases_that_fail_while_others_succeed_retire_a_segment_the_third_time() {
        let (mut list, mut store) = (FreeList::default(), store(&[(0, IO)]));
        give(&mut list, &mut store, 0, Some(1)).unwrap();
        for round in 1..=3 {
            give(&mut list, &mut store, 1, Some(1)).unwrap();
            assert_eq!(list.retired().len(), 0, "round {round}");
            assert_eq!(open(&mut list, &mut store), Ok(Some(SegmentId(1))));
        }
        assert_eq!((list.retired(), list.len()), (&[SegmentId(0)][..], 0));
    }

    #[test]
    fn a_segment_that_failed_for_good_is_retired_and_one_without_power_is_kept() {
        let failed = FlashError::EraseFailed { segment: SegmentId(0) };
        let (mut list, mut store) = (FreeList::default(), store(&[(0, failed), (1, FlashError::PowerLost)]));
        assert_eq!(give(&mut list, &mut store, 0, None), Ok(Freed::Retired));
        assert_eq!(give(&mut list, &mut store, 1, None), Err(FlashError::PowerLost));
        assert_eq!(give(&mut list, &mut store, 2, None), Ok(Freed::Erased));
        assert_eq!(open(&mut list, &mut store), Err(FlashError::PowerLost));
        assert_eq!((list.len(), list.retired()), (2, &[SegmentId(0)][..]));
    }
}
