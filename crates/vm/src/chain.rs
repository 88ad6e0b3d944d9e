use crate::cost;

/// Counts how the visits of pages to the regions of the cache end. The probability that a page is written again
/// follows from the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Visits to the MRU region with a write, and without.
    mru: [u64; 2],
    /// Visits to the LRU region that ended by a write, by a read, by eviction.
    lru: [u64; 3],
    max: u64,
}

/// How a visit to the LRU region ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LruEnd {
    Written = 0,
    Read = 1,
    Evicted = 2,
}

impl Chain {
    /// Begins with every count at one. Counts are halved when they exceed four times the frames of the cache.
    pub const fn new(frames: u32) -> Self {
        Self { mru: [1; 2], lru: [1; 3], max: 4 * frames as u64 }
    }

    pub(crate) fn left_mru(&mut self, written: bool) {
        self.mru[usize::from(!written)] += 1;
        if self.mru.iter().sum::<u64>() > self.max {
            self.mru = self.mru.map(|count| count.div_ceil(2));
        }
    }

    pub(crate) fn left_lru(&mut self, end: LruEnd) {
        self.lru[end as usize] += 1;
        if self.lru.iter().sum::<u64>() > self.max {
            self.lru = self.lru.map(|count| count.div_ceil(2));
        }
    }

    /// P_MRU and P_LRU.
    pub fn probabilities(&self) -> (f64, f64) {
        let share = |count: u64, all: &[u64]| count as f64 / all.iter().sum::<u64>() as f64;
        let (w, l) = (share(self.mru[0], &self.mru), share(self.mru[1], &self.mru));
        let (w_lru, m_lru) = (share(self.lru[0], &self.lru), share(self.lru[1], &self.lru));
        let p_mru = cost::p_mru(w, l, w_lru, m_lru);
        (p_mru, cost::p_lru(p_mru, w_lru, m_lru))
    }
}
