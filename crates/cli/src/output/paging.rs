//! Tables of `margay vm replay`.

use super::report::{new_table, right};
use comfy_table::Cell;
use margay_lab::{PagingRow, PagingTrace};
use std::fmt::Write;

/// A table with one row for each run; I/O time is also given relative to the first.
pub fn table(trace: &PagingTrace, rows: &[PagingRow]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let references = &trace.references;
    let mib = |pages: u32| f64::from(pages) * f64::from(first.page_bytes) / f64::from(1 << 20);
    let mut text = format!(
        "{}: {} references to {} pages of {} bytes ({:.1} MiB), {}\n",
        trace.name,
        references.len(),
        references.distinct_pages(),
        first.page_bytes,
        mib(references.distinct_pages()),
        if trace.only_written { "those ever written" } else { "all that are accessed" },
    );
    let _ = writeln!(
        text,
        "cache of {:.1} MiB ({} frames), LRU region {}; {} with {} log blocks of {} pages\n",
        mib(first.cache_frames),
        first.cache_frames,
        first.lru_region,
        first.store,
        first.log_blocks,
        first.pages_per_block,
    );
    let mut table = new_table(&[
        "scheme",
        "I/O s",
        "to first",
        "evictions",
        "GCs",
        "seq. GCs",
        "migr./GC",
        "erases/GC",
        "us/GC",
        "dup./GC",
        "switch",
        "partial",
        "full",
        "M ref./s",
    ]);
    for row in rows {
        let per_gc = |count: u64| count as f64 / (row.gcs as f64).max(1.0);
        table.add_row(vec![
            Cell::new(&row.scheme),
            right(format!("{:.2}", row.io_us / 1e6)),
            right(format!("{:.3}", row.io_us / first.io_us)),
            right(row.dirty_evictions),
            right(row.random_gcs),
            right(row.sequential_gcs),
            right(format!("{:.1}", per_gc(row.migrations))),
            right(format!("{:.2}", per_gc(row.erases))),
            right(format!("{:.0}", row.cost_per_gc())),
            right(format!("{:.1}", row.duplicates_per_gc())),
            right(row.merges_switch),
            right(row.merges_partial),
            right(row.merges_full),
            right(format!("{:.1}", row.references as f64 / row.seconds / 1e6)),
        ]);
    }
    text += &table.to_string();
    let _ = writeln!(
        text,
        "\n\n{} misses, {} of them read from flash ({:.2} s, not in the I/O above); {:.0} bytes of memory per cached page",
        first.misses,
        first.swap_ins,
        first.swap_in_us / 1e6,
        first.memory_bytes_per_frame
    );
    text
}
