//! What the paper also measures, or leaves open: Ndup, the window among 128 log blocks, the time of handing pages over, and
//! the page-mapped log with more room.

use super::{Cell, LOG_BLOCKS, Reading, Scheme, Study, scheme};
use crate::PagingRow;
use margay_vm::Window;

/// Log blocks of the larger device that windows are compared on.
pub(super) const WIDE: u32 = 128;
const WINDOWS: [Window; 8] = [
    Window::Static(1),
    Window::Static(4),
    Window::Static(16),
    Window::Static(64),
    Window::All,
    Window::Adaptive { start: 1 },
    Window::Adaptive { start: WIDE / 8 },
    Window::Adaptive { start: WIDE - 1 },
];
/// Log blocks of the page-mapped log: blocks beyond those that the referenced pages fill.
const SPARE: [u32; 4] = [64, 128, 256, 512];

/// The sweeps of this file.
pub(super) fn cells() -> impl Iterator<Item = (Cell, Scheme)> {
    let windows = WINDOWS.map(|window| (Cell::Wide(window), scheme("LDA-GC5")));
    let page_mapped = |blocks| ["DU-GC", "DA-GC"].map(|name| (Cell::PageMapped(blocks), scheme(name)));
    windows.into_iter().chain(SPARE.into_iter().flat_map(page_mapped))
}

impl Study<'_> {
    fn has(&self, cell: Cell) -> bool {
        self.cells.iter().any(|(other, _)| *other == cell)
    }

    fn mean(&self, measure: impl Fn(usize) -> f64) -> f64 {
        (0..self.rows.len()).map(measure).sum::<f64>() / self.rows.len() as f64
    }

    /// Says in sentences what was found, by trace or as means over the traces.
    pub(super) fn more(&self) -> Vec<String> {
        let recommended = Cell::Scheme(Reading::Recommended);
        let mut said: Vec<String> = (0..self.rows.len()).map(|trace| self.duplicates(trace)).collect();
        let with = |row: &PagingRow| row.io_us + if row.counts_handover { 0.0 } else { row.handover_us };
        let without = |row: &PagingRow| with(row) - row.handover_us;
        let relative = |name: &str, measure: &dyn Fn(&PagingRow) -> f64| {
            let of = |trace, name: &str| measure(self.row(trace, recommended, name));
            self.mean(|trace| of(trace, name) / of(trace, "DU-GC"))
        };
        said.push(format!(
            "handing pages over from the cache, 50 us each: I/O time of LDA-GC4 is {:.3} of DU-GC's with it and {:.3} without, of LDA-GC5 {:.3} and {:.3}, of BA-GC {:.3} and {:.3}",
            relative("LDA-GC4", &with),
            relative("LDA-GC4", &without),
            relative("LDA-GC5", &with),
            relative("LDA-GC5", &without),
            relative("BA-GC", &with),
            relative("BA-GC", &without),
        ));
        if self.has(Cell::Wide(WINDOWS[0])) {
            let base = |trace| self.row(trace, Cell::LogBlocks(WIDE), "DU-GC").io_us;
            let of = |window: &Window| {
                let row = |trace| self.row(trace, Cell::Wide(*window), "LDA-GC5").io_us;
                format!("{window} {:.3}", self.mean(|trace| row(trace) / base(trace)))
            };
            let windows: Vec<String> = WINDOWS.iter().map(of).collect();
            said.push(format!(
                "Figs. 13 and 14 with {WIDE} log blocks: I/O time of LDA-GC5 relative to DU-GC with as many, by window: {}",
                windows.join(", ")
            ));
            said.extend((0..self.rows.len()).map(|trace| self.by_room(trace)));
        }
        said
    }

    fn duplicates(&self, trace: usize) -> String {
        let of = |cell, name: &str| {
            let row = self.row(trace, cell, name);
            let random = row.random_duplicates as f64 / (row.random_gcs as f64).max(1.0);
            (row.duplicates_per_gc(), random)
        };
        let (du, da) =
            (of(Cell::Scheme(Reading::Recommended), "DU-GC"), of(Cell::Scheme(Reading::Recommended), "DA-GC"));
        let best = of(Cell::Scheme(Reading::Recommended), "LDA-GC5");
        format!(
            "{}: Ndup, pages of a merge that flash and the cache both hold (of a random log block alone): DU-GC {:.1} ({:.1}), DA-GC {:.1} ({:.1}), LDA-GC5 {:.1} ({:.1}); over the page-mapped log DU-GC {:.1}",
            self.rows[trace][0].trace,
            du.0,
            du.1,
            da.0,
            da.1,
            best.0,
            best.1,
            of(Cell::PageLevel, "DU-GC").0,
        )
    }

    /// DA-GC over the page-mapped log, by the room there is.
    fn by_room(&self, trace: usize) -> String {
        let of = |(blocks, cell)| {
            let (du, da) = (self.row(trace, cell, "DU-GC"), self.row(trace, cell, "DA-GC"));
            let filled = da.referenced_pages.div_ceil(da.pages_per_block);
            let spare = 100.0 * f64::from(blocks + 1) / f64::from(filled);
            format!("{spare:.0} % {:.2}", da.io_us / du.io_us)
        };
        let rooms =
            [(LOG_BLOCKS, Cell::PageLevel)].into_iter().chain(SPARE.map(|blocks| (blocks, Cell::PageMapped(blocks))));
        let row = self.row(trace, Cell::PageLevel, "DA-GC");
        let [spanned, filled] =
            [row.logical_pages, row.referenced_pages].map(|pages| pages.div_ceil(row.pages_per_block));
        format!(
            "{}: I/O time of DA-GC relative to DU-GC over the page-mapped log, by blocks beyond those that the referenced pages fill: {}; the hybrid-mapped store has {:.0} %, because of the pages of its blocks that are never referenced",
            row.trace,
            rooms.map(of).collect::<Vec<_>>().join(", "),
            100.0 * f64::from(spanned + LOG_BLOCKS + 1 - filled) / f64::from(filled),
        )
    }
}
