//! Tables of `margay vm replay`.

use super::tables::{Column, fitted, wrapped};
use margay_lab::{PagingRow, PagingTrace};

/// A table with one row for each run; I/O time is also given relative to the first.
pub fn table(trace: &PagingTrace, rows: &[PagingRow]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let references = &trace.references;
    let mib = |pages: u32| f64::from(pages) * f64::from(first.page_bytes) / f64::from(1 << 20);
    let of_trace = format!(
        "{}: {} references to {} pages of {} bytes ({:.1} MiB), {}",
        trace.name,
        references.len(),
        references.distinct_pages(),
        first.page_bytes,
        mib(references.distinct_pages()),
        if trace.only_written { "those ever written" } else { "all that are accessed" },
    );
    let of_cache = format!(
        "cache of {:.1} MiB ({} frames), LRU region {}; {} with {} log blocks of {} pages",
        mib(first.cache_frames),
        first.cache_frames,
        first.lru_region,
        first.store,
        first.log_blocks,
        first.pages_per_block,
    );
    let per_gc = |row: &PagingRow, count: u64| count as f64 / (row.gcs as f64).max(1.0);
    let number = |name: &str, unit: &'static str, cell: &dyn Fn(&PagingRow) -> String| {
        Column::number(name, unit, rows.iter().map(cell).collect())
    };
    // By importance: those for which there is no room are named below the table.
    let columns = vec![
        Column::text("scheme", rows.iter().map(|row| row.scheme.clone()).collect()),
        number("I/O", "s", &|row| format!("{:.2}", row.io_us / 1e6)),
        number("I/O", "to first", &|row| format!("{:.3}", row.io_us / first.io_us)),
        number("erases", "per GC", &|row| format!("{:.2}", per_gc(row, row.erases))),
        number("migrations", "per GC", &|row| format!("{:.1}", per_gc(row, row.migrations))),
        number("GCs", "random", &|row| row.random_gcs.to_string()),
        number("GCs", "sequential", &|row| row.sequential_gcs.to_string()),
        number("evictions", "dirty", &|row| row.dirty_evictions.to_string()),
        number("GC", "us each", &|row| format!("{:.0}", row.cost_per_gc())),
        number("duplicates", "per GC", &|row| format!("{:.1}", row.duplicates_per_gc())),
        number("switch", "merges", &|row| row.merges_switch.to_string()),
        number("partial", "merges", &|row| row.merges_partial.to_string()),
        number("full", "merges", &|row| row.merges_full.to_string()),
        number("speed", "M ref./s", &|row| format!("{:.1}", row.references as f64 / row.seconds / 1e6)),
    ];
    let (table, left_out) = fitted(columns);
    let mut text = wrapped(&of_trace, 2) + &wrapped(&of_cache, 2) + &table;
    if !left_out.is_empty() {
        let note = format!("no room for {} (a wider terminal, or -f csv, has them)", left_out.join(", "));
        text += &wrapped(&note, 2);
    }
    let of_reads = format!(
        "{} misses, {} of them read from flash ({:.2} s, not in the I/O above); {:.0} bytes of memory per cached page",
        first.misses,
        first.swap_ins,
        first.swap_in_us / 1e6,
        first.memory_bytes_per_frame
    );
    text + &wrapped(&of_reads, 2)
}
