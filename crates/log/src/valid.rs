use alloc::{vec, vec::Vec};
use core::ops::DerefMut;
use margay_flash::Ppn;

/// One bit per physical page, set if the page is valid. A *part* is the bits of one 64-bit word from a given page on.
#[derive(Debug)]
pub(crate) struct ValidBits<W = Vec<u64>>(W);

impl ValidBits {
    pub fn new(pages: u32) -> Self {
        Self(vec![0; pages.div_ceil(64) as usize])
    }

    pub fn words(&self) -> &[u64] {
        &self.0
    }

    pub fn memory_bytes(&self) -> usize {
        self.0.capacity() * 8
    }

    /// The same bits, for a loop that is to find their address once.
    pub fn as_mut(&mut self) -> ValidBits<&mut [u64]> {
        ValidBits(&mut self.0)
    }

    /// The first page of the word after the one that holds `first`.
    #[inline]
    pub const fn next_part(first: u32) -> u32 {
        (first / 64 + 1) * 64
    }
}

impl<W: DerefMut<Target = [u64]>> ValidBits<W> {
    #[inline]
    pub fn is_set(&self, ppn: Ppn) -> bool {
        self.0[ppn.index() / 64] >> (ppn.0 % 64) & 1 == 1
    }

    #[inline(always)]
    pub fn clear(&mut self, ppn: Ppn) {
        self.0[ppn.index() / 64] &= !(1 << (ppn.0 % 64));
    }

    /// Sets or clears the pages from `first` up to `end`.
    pub fn fill(&mut self, first: u32, end: u32, value: bool) {
        let mut at = first;
        while at < end {
            let count = (64 - at % 64).min(end - at);
            let mask = (u64::MAX >> (64 - count)) << (at % 64);
            let word = &mut self.0[at as usize / 64];
            *word = if value { *word | mask } else { *word & !mask };
            at += count;
        }
    }

    /// The bits of the pages from `first` to the end of its word or to `end`, whichever comes first. Bit 0 is `first`.
    #[inline]
    pub fn part(&self, first: u32, end: u32) -> u64 {
        let count = (64 - first % 64).min(end - first);
        (self.0[first as usize / 64] >> (first % 64)) & (u64::MAX >> (64 - count))
    }

    /// Clears the pages that `bits` marks in the part that starts at `first`.
    #[inline]
    pub fn clear_part(&mut self, first: u32, bits: u64) {
        self.0[first as usize / 64] &= !(bits << (first % 64));
    }
}

/// The pages that bits mark: a word is for 64 pages, and its lowest bit for the first of them.
pub fn marked_pages(words: &[u64]) -> impl Iterator<Item = Ppn> + '_ {
    (0..).zip(words).flat_map(|(word, bits)| ones(*bits).map(move |bit| Ppn(word * 64 + bit)))
}

/// The numbers of the bits that are 1.
fn ones(bits: u64) -> impl Iterator<Item = u32> {
    let next = |bits: &u64| Some(*bits & (*bits).wrapping_sub(1));
    core::iter::successors(Some(bits), next).take_while(|bits| *bits != 0).map(u64::trailing_zeros)
}
