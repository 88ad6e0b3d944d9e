//! The paper's own example (figures 1 to 3): one merge of two data blocks, by each way of merging.

use super::claims::of_the_example;
use crate::LabError;
use crate::reproduce::Reproduction;
use margay_flash::{Geometry, Lpn};
use margay_format::Plain;
use margay_hybrid::{HybridConfig, Mapping};
use margay_media::NullFlash;
use margay_vm::{CacheConfig, GcTotals, LruRegion, Paging, Scheme};

/// Schemes with the migrations and erases of the figures.
const PUBLISHED: [(&str, u64, u64); 4] = [("DU-GC", 8, 3), ("DA-GC", 4, 3), ("LDA-GC2", 5, 3), ("LDA-GC4", 6, 3)];

/// What the merge costs. Data blocks have four pages, all on flash; the log block holds two pages of the first and two of
/// the second. Of these the cache holds page 0 clean and page 4 dirty in its LRU region, page 1 clean and page 5 dirty
/// outside it.
fn merge(scheme: Scheme) -> Result<GcTotals, LabError> {
    const READ: bool = false;
    const WRITE: bool = true;
    let mapping = Mapping::Fast { sequential: false, leave_open: false };
    let store = HybridConfig { mapping, ..HybridConfig::swap(32, 1) };
    let geometry = Geometry::new(10, 4, 2048).expect("a small device");
    let cache = CacheConfig { lru_region: LruRegion::Fixed { percent: 50.0 }, ..CacheConfig::new(8, scheme) };
    let mut paging = Paging::new(Plain::new(NullFlash::new(geometry)), store, cache, |_| true)?;
    let visits: [(bool, &[u32]); 9] = [
        (WRITE, &[1, 2, 5, 6]),
        (READ, &[8, 9, 10, 11, 12, 13, 14, 15]),
        (WRITE, &[16]),
        (READ, &[0]),
        (WRITE, &[4]),
        (READ, &[20, 1]),
        (WRITE, &[5]),
        (READ, &[21, 22]),
        // A dirty page of another data block leaves the cache, for which the log block has to be merged.
        (READ, &[23]),
    ];
    for (write, pages) in visits {
        pages.iter().try_for_each(|page| paging.reference(Lpn(*page), write).map(drop))?;
    }
    Ok(paging.cache().stats().random)
}

/// Compares the counts of the example, which are exact.
pub(super) fn compare(out: &mut Reproduction) -> Result<(), LabError> {
    for (name, migrations, erases) in PUBLISHED {
        let totals = merge(super::scheme(name))?;
        let rows = [("migrations", migrations, totals.migrations()), ("erases", erases, totals.erases)];
        for (measure, published, measured) in rows {
            out.comparisons.push(of_the_example(name, measure, published).judge((measured as f64, 0.0)));
        }
    }
    Ok(())
}
