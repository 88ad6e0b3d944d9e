//! The cost equations of the paper, in microseconds. Its equations (1) to (7) are these seven functions, in the
//! form of the specification, which keeps the terms and not the numbers: per-page cost of a later write, the two
//! update probabilities, the expected later writes, and the total of a merge for each family of schemes.

/// Costs of operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Reading a page, Cr.
    pub read_us: f64,
    /// Programming a page, Cw.
    pub write_us: f64,
    /// Erasing a block, Ce.
    pub erase_us: f64,
    /// Handing a page of the cache to flash, Cb.
    pub cache_us: f64,
    /// Pages in a block, Npage.
    pub pages_per_block: f64,
}

impl Costs {
    /// Large-block SLC NAND as in the paper: 25, 200, 2000 and 50 us, 64 pages.
    pub const PAPER: Self =
        Self { read_us: 25.0, write_us: 200.0, erase_us: 2000.0, cache_us: 50.0, pages_per_block: 64.0 };
}

/// Counts of the blocks and pages that a merge would touch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MergePages {
    /// Blocks with a valid page in the log block, A.
    pub blocks: u32,
    /// Pages on flash that are not in the cache, delta.
    pub uncached: u32,
    /// Clean duplicates in the LRU region, pi.
    pub clean_lru: u32,
    /// Clean duplicates in the MRU region.
    pub clean_mru: u32,
    /// Dirty duplicates in the LRU region, theta.
    pub dirty_lru: u32,
}

/// alpha = Cr + Cw + Ce / Npage: what a page written later costs its own merge.
pub fn alpha(costs: &Costs) -> f64 {
    costs.read_us + costs.write_us + costs.erase_us / costs.pages_per_block
}

/// P_MRU = (w + l w') / (1 - l m'): the probability that a page of the MRU region is written before it is evicted.
/// `w` is the share of its visits with a write, `l` of those that end in the LRU region without one; `w_lru` and
/// `m_lru` are the shares of visits to the LRU region that end by a write or by a read.
pub fn p_mru(w: f64, l: f64, w_lru: f64, m_lru: f64) -> f64 {
    (w + l * w_lru) / (1.0 - l * m_lru)
}

/// P_LRU = w' + m' P_MRU: the same for a page of the LRU region.
pub fn p_lru(p_mru: f64, w_lru: f64, m_lru: f64) -> f64 {
    w_lru + m_lru * p_mru
}

/// gamma = the sum over duplicates of (1 - P of their region): how many of them are expected not to be written
/// again, so that dropping their copy, or not writing them along, costs a write of its own.
pub fn gamma(duplicates: u32, p: f64) -> f64 {
    f64::from(duplicates) * (1.0 - p)
}

/// Duplication-aware: (A + 1) Ce + delta (Cr + Cw) + gamma (Cw + alpha), with gamma over all clean duplicates.
pub fn duplication(costs: &Costs, pages: &MergePages, p_mru: f64, p_lru: f64) -> f64 {
    let later = gamma(pages.clean_mru, p_mru) + gamma(pages.clean_lru, p_lru);
    base(costs, pages, pages.uncached) + later * (costs.write_us + alpha(costs))
}

/// Locality- and duplication-aware: (A + 1) Ce + (delta + pi) (Cr + Cw) + gamma_MRU (Cw + alpha).
pub fn locality(costs: &Costs, pages: &MergePages, p_mru: f64) -> f64 {
    base(costs, pages, pages.uncached + pages.clean_lru)
        + gamma(pages.clean_mru, p_mru) * (costs.write_us + alpha(costs))
}

/// With LRU dirty page eviction: the same + theta (Cb + Cw) - gamma_LRU (Cw + alpha), with gamma_LRU over the dirty
/// duplicates of the LRU region.
pub fn eviction(costs: &Costs, pages: &MergePages, p_mru: f64, p_lru: f64) -> f64 {
    locality(costs, pages, p_mru) + f64::from(pages.dirty_lru) * (costs.cache_us + costs.write_us)
        - gamma(pages.dirty_lru, p_lru) * (costs.write_us + alpha(costs))
}

fn base(costs: &Costs, pages: &MergePages, copies: u32) -> f64 {
    f64::from(pages.blocks + 1) * costs.erase_us + f64::from(copies) * (costs.read_us + costs.write_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alpha_of_the_paper_is_256_and_a_quarter() {
        assert_eq!(alpha(&Costs::PAPER), 256.25);
    }

    #[test]
    fn the_probabilities_solve_their_chain() {
        // A page of the MRU region is written with w, else falls; there it is written, read or evicted.
        let (w, l, w_lru, m_lru) = (0.3, 0.7, 0.1, 0.4);
        let mru = p_mru(w, l, w_lru, m_lru);
        let lru = p_lru(mru, w_lru, m_lru);
        assert!((mru - (w + l * lru)).abs() < 1e-12, "{mru}");
    }

    #[test]
    fn each_term_adds_what_its_equation_says() {
        let costs = Costs::PAPER;
        let pages = MergePages { blocks: 2, uncached: 10, clean_lru: 3, clean_mru: 4, dirty_lru: 5 };
        let later = 200.0 + 256.25;
        assert_eq!(duplication(&costs, &pages, 0.5, 0.25), 6000.0 + 2250.0 + (2.0 + 2.25) * later);
        assert_eq!(locality(&costs, &pages, 0.5), 6000.0 + 13.0 * 225.0 + 2.0 * later);
        let with = locality(&costs, &pages, 0.5) + 5.0 * 250.0 - 3.75 * later;
        assert_eq!(eviction(&costs, &pages, 0.5, 0.25), with);
    }
}
