//! Locality- and duplication-aware garbage collection (IEEE Trans. CE 56(4), 2010), by the reading of
//! shared/specs/lda-gc.md, on traces of other programs than the paper's (docs/reproduction.md explains it).

mod claims;
mod example;
mod figures;
mod more;
mod text;

use super::{Reproduction, Watcher};
use crate::{LabError, PagingRow, PagingSetup, PagingStore, PagingTrace};
use margay_trace::vm::{LoadOptions, PageMap, References};
use margay_vm::{CacheConfig, LruRegion, Scheme, Window, schemes};
use rayon::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use text::PAPER;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Traces of page references.
    pub traces: Vec<PathBuf>,
    /// Only the schemes side by side, not the sweeps.
    pub tables_only: bool,
    /// Pages of 2 KiB that the cache holds; the paper's has 2048.
    pub frames: u32,
    /// Whether handing pages over from the cache in merges counts as I/O time.
    pub counts_handover: bool,
}

const MIB: u32 = 1 << 20;
const LOG_BLOCKS: u32 = 32;
/// Table II's schemes, with their published I/O time relative to DU-GC, mean of five traces.
const PUBLISHED: [(&str, f64); 6] =
    [("DA-GC", 1.0), ("LDA-GC1", 0.90), ("LDA-GC2", 0.94), ("LDA-GC3", 0.76), ("LDA-GC4", 0.72), ("LDA-GC5", 0.63)];
const SWEPT: [&str; 4] = ["DU-GC", "DA-GC", "LDA-GC4", "LDA-GC5"];

/// A reading of what the paper leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reading {
    /// The recommended one.
    Recommended,
    /// Only pages that are ever written; an LRU region of nine tenths; a quarter of the log blocks looked at.
    Generous,
    /// No sequential log block.
    NoSequential,
}

const READINGS: [(Reading, &str); 3] = [
    (Reading::Recommended, "recommended"),
    (Reading::Generous, "written pages only, LRU region 90 %, window 8"),
    (Reading::NoSequential, "no sequential log block"),
];

/// What a cell varies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cell {
    Scheme(Reading),
    PageLevel,
    Cache(u32),
    LogBlocks(u32),
    Window(u32),
    Adaptive(u32),
    Wide(Window),
    PageMapped(u32),
}

fn scheme(name: &str) -> Scheme {
    name.parse().expect("a scheme of the paper")
}

fn setup(cell: Cell, scheme: Scheme, frames: u32) -> PagingSetup {
    let mut setup = PagingSetup::new(LOG_BLOCKS, CacheConfig::new(frames, scheme));
    match cell {
        Cell::Scheme(Reading::Recommended) => {}
        Cell::Scheme(Reading::Generous) => {
            setup.cache.lru_region = LruRegion::Fixed { percent: 90.0 };
            setup.cache.window = Window::Static(LOG_BLOCKS / 4);
        }
        Cell::Scheme(Reading::NoSequential) => {
            setup.store = PagingStore::Hybrid(margay_hybrid::Mapping::Fast { sequential: false, leave_open: false });
        }
        Cell::PageLevel => setup.store = PagingStore::PageLevel,
        Cell::Cache(frames) => setup.cache.frames = frames,
        Cell::LogBlocks(blocks) => setup.log_blocks = blocks,
        Cell::Window(size) => setup.cache.window = Window::Static(size),
        Cell::Adaptive(start) => setup.cache.window = Window::Adaptive { start },
        Cell::Wide(window) => (setup.log_blocks, setup.cache.window) = (more::WIDE, window),
        Cell::PageMapped(blocks) => (setup.store, setup.log_blocks) = (PagingStore::PageLevel, blocks),
    }
    setup
}

/// The cache of the sweep is a quarter to four times the one asked for.
fn cells(tables_only: bool, frames: u32) -> Vec<(Cell, Scheme)> {
    let mut cells = Vec::new();
    for (reading, _) in READINGS {
        cells.extend(schemes().map(|scheme| (Cell::Scheme(reading), scheme)));
    }
    cells.extend(["DU-GC", "DA-GC"].map(|name| (Cell::PageLevel, scheme(name))));
    if tables_only {
        return cells;
    }
    for name in SWEPT {
        cells.extend([1, 2, 4, 6, 8, 12, 16].map(|quarters| (Cell::Cache(frames / 4 * quarters), scheme(name))));
        cells.extend([8, 16, 32, 64, 128, 256].map(|blocks| (Cell::LogBlocks(blocks), scheme(name))));
    }
    cells.extend([1, 2, 4, 8, 16, 31].map(|size| (Cell::Window(size), scheme("LDA-GC5"))));
    cells.extend([1, 8, 31].map(|start| (Cell::Adaptive(start), scheme("LDA-GC5"))));
    cells.extend(more::cells());
    cells
}

fn load(path: &std::path::Path, only_written: bool) -> Result<PagingTrace, LabError> {
    let options = LoadOptions { page_shift: 11, chunk_pages: 64, map: PageMap::Chunks, only_written };
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let references = References::load(path, &options)?;
    Ok(PagingTrace {
        name: name.trim_end_matches(".zst").trim_end_matches(".vmt").into(),
        xxh3: format!("{:016x}", references.file_hash()),
        only_written,
        page_map: "chunks".into(),
        references,
    })
}

type Result1<T> = Result<T, LabError>;

/// Rows of one trace in the order of the cells.
fn run_trace(
    path: &std::path::Path,
    (cells, options): (&[(Cell, Scheme)], &Options),
    done: &AtomicUsize,
    total: usize,
    watcher: &dyn Watcher,
) -> Result1<Vec<PagingRow>> {
    let is_written = |cell: &Cell| *cell == Cell::Scheme(Reading::Generous);
    let mut rows: Vec<Option<PagingRow>> = vec![None; cells.len()];
    for only_written in [false, true] {
        let trace = load(path, only_written)?;
        let of_this: Vec<usize> = (0..cells.len()).filter(|at| is_written(&cells[*at].0) == only_written).collect();
        let results: Vec<Result1<PagingRow>> = of_this
            .par_iter()
            .with_max_len(1)
            .map(|at| {
                let (cell, scheme) = cells[*at];
                let setup =
                    PagingSetup { counts_handover: options.counts_handover, ..setup(cell, scheme, options.frames) };
                let row = trace.run(&setup, &mut |_| watcher.done(done.load(Ordering::Relaxed), total));
                done.fetch_add(1, Ordering::Relaxed);
                row
            })
            .collect();
        for (at, row) in of_this.into_iter().zip(results) {
            rows[at] = Some(row?);
        }
    }
    Ok(rows.into_iter().flatten().collect())
}

/// Runs the study.
pub fn run(options: &Options, watcher: &dyn Watcher) -> Result1<Reproduction> {
    let cells = cells(options.tables_only, options.frames);
    let done = AtomicUsize::new(0);
    let total = cells.len() * options.traces.len();
    let mut rows = Vec::new();
    for path in &options.traces {
        rows.push(run_trace(path, (&cells, options), &done, total, watcher)?);
    }
    let study = Study { cells: &cells, rows: &rows };
    let mut out = Reproduction::default();
    example::compare(&mut out)?;
    study.compare(&mut out);
    study.by_scheme(&mut out);
    if !options.tables_only {
        study.sweeps(&mut out);
    }
    study.find(&mut out);
    out.findings.extend(study.more());
    out.paging = rows.into_iter().flatten().collect();
    Ok(out)
}

struct Study<'a> {
    cells: &'a [(Cell, Scheme)],
    /// By trace.
    rows: &'a [Vec<PagingRow>],
}

impl Study<'_> {
    fn row(&self, trace: usize, cell: Cell, name: &str) -> &PagingRow {
        let at = self.cells.iter().position(|(other, scheme)| *other == cell && scheme.name == name);
        &self.rows[trace][at.expect("the cell was run")]
    }

    /// A measure relative to DU-GC in the same cell, by trace.
    fn relative(&self, cell: Cell, name: &str, measure: impl Fn(&PagingRow) -> f64) -> Vec<f64> {
        (0..self.rows.len())
            .map(|trace| measure(self.row(trace, cell, name)) / measure(self.row(trace, cell, "DU-GC")))
            .collect()
    }

    fn find(&self, out: &mut Reproduction) {
        let cell = Cell::Scheme(Reading::Recommended);
        for trace in 0..self.rows.len() {
            let io = |name: &str| self.row(trace, cell, name).io_us;
            let du = self.row(trace, cell, "DU-GC");
            let best = schemes().map(|scheme| scheme.name).min_by(|a, b| io(a).total_cmp(&io(b)));
            let merges = du.merges_switch + du.merges_partial + du.merges_full + du.merges_empty;
            let share = |count: u64| 100.0 * count as f64 / (merges as f64).max(1.0);
            out.findings.push(format!(
                "{} ({} references, {} pages): Table IV, DU-GC: {:.0} % switch, {:.0} % partial, {:.0} % full, {:.0} % empty of {merges} merges; {} takes least, {:.3} of DU-GC",
                du.trace,
                du.references,
                du.logical_pages,
                share(du.merges_switch),
                share(du.merges_partial),
                share(du.merges_full),
                share(du.merges_empty),
                best.unwrap_or("none"),
                best.map_or(1.0, io) / io("DU-GC"),
            ));
        }
    }
}
