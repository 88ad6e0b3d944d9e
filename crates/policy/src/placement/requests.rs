use crate::age::Now;
use core::ops::Range;

/// Joins the pages that the host writes into requests again: a page continues the request of the page before it if it
/// is the next owner and has the same time of the workload. Placements see pages, while some papers count requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    /// Owners of the request so far.
    owners: Range<u64>,
    us: u64,
}

impl Requests {
    /// Whether a page comes right after the page before it, at any time.
    pub fn follows(&self, owner: u64) -> bool {
        !self.owners.is_empty() && self.owners.end == owner
    }

    /// The host writes a page. If it begins another request: the owners of the request that has ended, none before the
    /// first.
    pub fn write(&mut self, now: Now, owner: u64) -> Option<Range<u64>> {
        if self.follows(owner) && self.us == now.us {
            self.owners.end = owner.saturating_add(1);
            return None;
        }
        self.us = now.us;
        Some(core::mem::replace(&mut self.owners, owner..owner.saturating_add(1)))
    }
}

/// Numbers the chunks of neighbouring owners, for a table with an entry for each. The owners of a disk are its pages,
/// and no two of its chunks share an entry; other owners may.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunks {
    pages: u64,
    slots: u64,
}

impl Chunks {
    /// A table has this many entries at least, so that the owners of a small file system have some of their own.
    const MIN_SLOTS: u32 = 256;

    /// Chunks of `pages` pages on a device that exports `exported_pages`.
    pub fn new(pages: u32, exported_pages: u32) -> Self {
        let slots = exported_pages.div_ceil(pages).max(Self::MIN_SLOTS);
        Self { pages: pages.into(), slots: slots.into() }
    }

    /// The number of entries of a table.
    pub fn slots(self) -> usize {
        self.slots as usize
    }

    /// The entry of the chunk of an owner.
    pub fn slot(self, owner: u64) -> usize {
        let chunk = owner / self.pages;
        (if chunk < self.slots { chunk } else { mix(chunk) % self.slots }) as usize
    }
}

/// Tells when another request, or the next chunk of one, begins.
#[derive(Clone, Debug)]
pub(super) struct ChunkRequests {
    chunks: Chunks,
    requests: Requests,
    /// The entry of the page before.
    slot: usize,
}

impl ChunkRequests {
    /// Before the first page.
    pub fn new(chunks: Chunks) -> Self {
        Self { chunks, requests: Requests::default(), slot: usize::MAX }
    }

    /// See [`Requests::follows`].
    pub fn follows(&self, owner: u64) -> bool {
        self.requests.follows(owner)
    }

    /// The host writes a page: the entry of its chunk, and whether the page begins a request to it.
    pub fn write(&mut self, now: Now, owner: u64) -> (usize, bool) {
        let slot = self.chunks.slot(owner);
        let begins = self.requests.write(now, owner).is_some();
        (slot, core::mem::replace(&mut self.slot, slot) != slot || begins)
    }
}

/// A number of 64 bits that looks random for every other `number` (the last step of SplitMix64, Steele et al. 2014).
pub(super) fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_in_a_row_at_one_time_are_one_request() {
        let mut requests = Requests::default();
        let at = |us| Now { us, writes: 0 };
        assert!(!requests.follows(0));
        assert_eq!(requests.write(at(5), 0), Some(0..0), "nothing has ended before the first");
        assert_eq!(requests.write(at(5), 1), None);
        assert!(requests.follows(2));
        assert_eq!(requests.write(at(6), 2), Some(0..2), "another time is another request");
        assert_eq!(requests.write(at(6), 2), Some(2..3), "so is the same page again");
        assert_eq!(requests.write(at(6), u64::MAX), Some(2..3));
    }

    #[test]
    fn chunks_of_a_disk_have_entries_of_their_own_and_no_owner_is_past_the_table() {
        let chunks = Chunks::new(4, 4000);
        assert_eq!(chunks.slots(), 1000);
        assert_eq!([0, 3, 4, 3999].map(|owner| chunks.slot(owner)), [0, 0, 1, 999]);
        assert!((0..64).all(|bit| chunks.slot(1 << bit) < 1000 && chunks.slot(u64::MAX << bit) < 1000));
        assert_eq!(Chunks::new(512, 10).slots(), 256);
    }
}
