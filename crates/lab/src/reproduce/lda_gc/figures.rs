//! Figs. 5 to 14: the schemes side by side, and the sweeps of cache, log buffer and window.

use super::{Cell, MIB, PUBLISHED, Reading, SWEPT, Study};
use crate::PagingRow;
use crate::reproduce::{Axis, Curve, Figure, Point, Reproduction};
use margay_vm::schemes;

/// A point where a publication gives one value.
fn at(name: &str, value: f64) -> Option<Point> {
    let x = schemes().position(|scheme| scheme.name == name)?;
    Some(Point::new(x as f64, value))
}

impl Study<'_> {
    /// Figs. 5 to 10: bars by scheme, one for each trace and one for their mean.
    pub(super) fn by_scheme(&self, out: &mut Reproduction) {
        type Measure = fn(&PagingRow) -> f64;
        fn per_gc(row: &PagingRow, count: u64) -> f64 {
            count as f64 / (row.gcs as f64).max(1.0)
        }
        let io = PUBLISHED.iter().filter_map(|(name, value)| at(name, *value)).collect();
        let middle = |name| at(name, 0.84).map(|point| Point { low: 0.82, high: 0.86, ..point });
        let evictions = [at("DA-GC", 1.27), middle("LDA-GC4"), middle("LDA-GC5")].into_iter().flatten().collect();
        let gcs = ["LDA-GC4", "LDA-GC5"].iter().filter_map(|name| at(name, 0.55)).collect();
        let figures: [(&str, &str, Measure, Vec<Point>); 6] = [
            ("fig5", "Fig. 5: total I/O time", |row| row.io_us, io),
            ("fig6", "Fig. 6: page evictions", |row| row.dirty_evictions as f64, evictions),
            ("fig7", "Fig. 7: GC invocations", |row| row.gcs as f64, gcs),
            ("fig8", "Fig. 8: migrations per GC", |row| per_gc(row, row.migrations), Vec::new()),
            ("fig9", "Fig. 9: erases per GC", |row| per_gc(row, row.erases), Vec::new()),
            ("fig10", "Fig. 10: cost of a GC", PagingRow::cost_per_gc, Vec::new()),
        ];
        let cell = Cell::Scheme(Reading::Recommended);
        let relative = |trace: usize, scheme: &str, measure: Measure| {
            measure(self.row(trace, cell, scheme)) / measure(self.row(trace, cell, "DU-GC"))
        };
        let traces = 0..self.rows.len();
        for (name, title, measure, published) in figures {
            let names = schemes().map(|scheme| scheme.name.to_string()).collect();
            let mut figure = Figure::new(name, title, "", "relative to DU-GC", Axis::Named(names));
            for trace in traces.clone() {
                let points = (0u32..)
                    .zip(schemes())
                    .map(|(x, scheme)| Point::new(x.into(), relative(trace, scheme.name, measure)));
                figure.curves.push(Curve::new(self.rows[trace][0].trace.clone(), points.collect()));
            }
            if traces.len() > 1 {
                let points = (0u32..).zip(schemes()).map(|(x, scheme)| {
                    let values: Vec<_> = traces.clone().map(|trace| relative(trace, scheme.name, measure)).collect();
                    Point::range(x.into(), &values)
                });
                figure.curves.push(Curve::new("mean, lowest to highest", points.collect()));
            }
            if !published.is_empty() {
                figure.curves.push(Curve::published("published, mean of its five traces", published));
            }
            out.figures.push(figure);
        }
    }

    /// Figs. 11 to 14.
    pub(super) fn sweeps(&self, out: &mut Reproduction) {
        let sweep = |curve: &str, of: &dyn Fn(Cell) -> Option<f64>, scheme: &str| {
            let cells = self.cells.iter().filter(|(_, other)| other.name == scheme);
            let points = cells.filter_map(|(cell, _)| {
                let relative = |trace| {
                    let base = self.row(trace, Cell::Scheme(Reading::Recommended), "DU-GC").io_us;
                    self.row(trace, *cell, scheme).io_us / base
                };
                of(*cell).map(|x| Point::range(x, &(0..self.rows.len()).map(relative).collect::<Vec<_>>()))
            });
            Curve::new(curve, points.collect())
        };
        let y = "I/O time of DU-GC in the paper's setting = 1";
        let mib = |cell| match cell {
            Cell::Cache(frames) => Some(f64::from(frames) * 2048.0 / f64::from(MIB)),
            _ => None,
        };
        let blocks = |cell| match cell {
            Cell::LogBlocks(blocks) => Some(f64::from(blocks)),
            _ => None,
        };
        let fixed = |cell| match cell {
            Cell::Window(size) => Some(f64::from(size)),
            _ => None,
        };
        let started = |cell| match cell {
            Cell::Adaptive(start) => Some(f64::from(start)),
            _ => None,
        };
        let title = "Fig. 11: size of the page cache (mean, lowest and highest trace)";
        let mut cache = Figure::new("fig11", title, "MiB", y, Axis::Log2);
        cache.curves.extend(SWEPT.map(|name| sweep(name, &mib, name)));
        let title = "Fig. 12: size of the log buffer (mean, lowest and highest trace)";
        let mut log = Figure::new("fig12", title, "log blocks", y, Axis::Log2);
        log.curves.extend(SWEPT.map(|name| sweep(name, &blocks, name)));
        let title = "Figs. 13 and 14: victim window of LDA-GC5 (mean, lowest and highest trace)";
        let mut windows =
            Figure::new("fig13", title, "log blocks (an adaptive window: those it starts with)", y, Axis::Log2);
        windows.curves.push(sweep("static", &fixed, "LDA-GC5"));
        windows.curves.push(sweep("adaptive", &started, "LDA-GC5"));
        out.figures.extend([cache, log, windows]);
    }
}
