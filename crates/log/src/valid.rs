use alloc::{vec, vec::Vec};
use core::marker::PhantomData;
use core::ops::DerefMut;
use margay_flash::{Geometry, Ppn, SegmentId};
use margay_format::Store;

/// One bit per physical page, set if the page is valid. A *part* is the bits of one 64-bit word from a given page on.
///
/// Of a device whose pages' owners are on flash only there are the bits of one segment, which is being cleaned: those of other
/// pages are not set, and setting them does nothing.
#[derive(Debug)]
pub(crate) struct ValidBits<D, W = Vec<u64>> {
    words: W,
    /// The page of the lowest bit, a multiple of 64. A device without tags has the bits of all pages.
    first: u32,
    device: PhantomData<D>,
}

impl<D: Store> ValidBits<D> {
    /// The bits of all pages.
    pub fn new(geometry: &Geometry) -> Self {
        Self { words: vec![0; geometry.pages().div_ceil(64) as usize], first: 0, device: PhantomData }
    }

    /// The bits of one segment, of none yet.
    pub fn of_one_segment(geometry: &Geometry) -> Self {
        // It may begin in the middle of a word.
        let words = geometry.pages_per_segment().div_ceil(64) + 1;
        Self { words: Vec::with_capacity(words as usize), first: 0, device: PhantomData }
    }

    /// From now on the bits are those of this segment, and none is set.
    pub fn look_at(&mut self, geometry: &Geometry, segment: SegmentId) {
        self.first = geometry.first_page(segment).0 & !63;
        self.words.clear();
        self.words.resize(self.words.capacity(), 0);
    }

    pub fn words(&self) -> &[u64] {
        &self.words
    }

    pub fn memory_bytes(&self) -> usize {
        self.words.capacity() * 8
    }

    /// The same bits, for a loop that is to find their address once.
    pub fn as_mut(&mut self) -> ValidBits<D, &mut [u64]> {
        ValidBits { words: &mut self.words, first: self.first, device: PhantomData }
    }

    /// The first page of the word after the one that holds `first`.
    #[inline]
    pub const fn next_part(first: u32) -> u32 {
        (first / 64 + 1) * 64
    }
}

impl<D: Store, W: DerefMut<Target = [u64]>> ValidBits<D, W> {
    /// The word of a page; one that does not exist for pages whose bits are not there.
    #[inline(always)]
    fn word(&self, page: u32) -> usize {
        let page = if D::KEEPS_INFO { page.wrapping_sub(self.first) } else { page };
        page as usize / 64
    }

    #[inline]
    pub fn is_set(&self, ppn: Ppn) -> bool {
        self.words.get(self.word(ppn.0)).is_some_and(|word| word >> (ppn.0 % 64) & 1 == 1)
    }

    #[inline(always)]
    pub fn clear(&mut self, ppn: Ppn) {
        let at = self.word(ppn.0);
        if let Some(word) = self.words.get_mut(at) {
            *word &= !(1 << (ppn.0 % 64));
        }
    }

    /// Sets or clears the pages from `first` up to `end`.
    pub fn fill(&mut self, first: u32, end: u32, value: bool) {
        let mut at = first;
        while at < end {
            let count = (64 - at % 64).min(end - at);
            let mask = (u64::MAX >> (64 - count)) << (at % 64);
            let place = self.word(at);
            if let Some(word) = self.words.get_mut(place) {
                *word = if value { *word | mask } else { *word & !mask };
            }
            at += count;
        }
    }

    /// The bits of the pages from `first` to the end of its word or to `end`, whichever comes first. Bit 0 is `first`.
    #[inline]
    pub fn part(&self, first: u32, end: u32) -> u64 {
        let count = (64 - first % 64).min(end - first);
        let word = self.words.get(self.word(first)).copied().unwrap_or(0);
        (word >> (first % 64)) & (u64::MAX >> (64 - count))
    }

    /// Clears the pages that `bits` marks in the part that starts at `first`.
    #[inline]
    pub fn clear_part(&mut self, first: u32, bits: u64) {
        let at = self.word(first);
        if let Some(word) = self.words.get_mut(at) {
            *word &= !(bits << (first % 64));
        }
    }
}
