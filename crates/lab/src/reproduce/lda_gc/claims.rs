//! What the paper says of its schemes. Its traces are not at hand, so that none of its figures is a bound here; that one
//! thing is less than another should hold on other programs too.

use super::{Cell, PUBLISHED, READINGS, Reading, Study};
use crate::PagingRow;
use crate::reproduce::{Basis, Bound, Claim, Reproduction, mean_and_deviation};

/// What a claim about a scheme says beside its figure.
enum Says {
    Less,
    NotLess,
    More,
    Nothing,
}

impl Study<'_> {
    pub(super) fn compare(&self, out: &mut Reproduction) {
        for (reading, _) in READINGS {
            self.compare_reading(reading, out);
        }
        let values = self.relative(Cell::PageLevel, "DA-GC", |row| row.io_us);
        Self::add(out, Cell::PageLevel, "sec. I", "DA-GC", "I/O time / DU-GC", "below 1", Says::Less, &values);
        // Whatever is held back by a merge of dirty pages: the claim that pays.
        let recommended = Cell::Scheme(Reading::Recommended);
        let with = self.relative(recommended, "LDA-GC5", |row| row.io_us);
        let without = self.relative(recommended, "LDA-GC3", |row| row.io_us);
        let gains: Vec<f64> = with.iter().zip(&without).map(|(with, without)| with / without).collect();
        Self::add(out, recommended, "Fig. 5", "LDA-GC5", "I/O time / LDA-GC3", "0.83", Says::Less, &gains);
        type Count = fn(&PagingRow) -> u64;
        let kinds: [(&str, Count); 4] = [
            ("switch", |row| row.merges_switch),
            ("partial", |row| row.merges_partial),
            ("full", |row| row.merges_full),
            ("without a valid page", |row| row.merges_empty),
        ];
        for (kind, count) in kinds {
            let share = |trace| {
                let row = self.row(trace, recommended, "DU-GC");
                let all: u64 = kinds.iter().map(|(_, count)| count(row)).sum();
                100.0 * count(row) as f64 / all as f64
            };
            let shares: Vec<f64> = (0..self.rows.len()).map(share).collect();
            Self::add(
                out,
                recommended,
                "Table IV",
                "DU-GC",
                &format!("% of merges, {kind}"),
                "",
                Says::Nothing,
                &shares,
            );
        }
    }

    fn compare_reading(&self, reading: Reading, out: &mut Reproduction) {
        let cell = Cell::Scheme(reading);
        let evictions = |row: &PagingRow| row.dirty_evictions as f64;
        for (name, published) in PUBLISHED {
            let values = self.relative(cell, name, |row| row.io_us);
            let (text, says) = if name == "DA-GC" {
                ("1 or worse".to_string(), Says::NotLess)
            } else {
                (format!("{published:.2}"), Says::Less)
            };
            Self::add(out, cell, "Fig. 5", name, "I/O time / DU-GC", &text, says, &values);
        }
        let values = self.relative(cell, "BA-GC", |row| row.io_us);
        Self::add(out, cell, "Fig. 5", "BA-GC (ours)", "I/O time / DU-GC", "", Says::Nothing, &values);
        let values = self.relative(cell, "DA-GC", evictions);
        Self::add(out, cell, "Fig. 6", "DA-GC", "evictions / DU-GC", "1.27", Says::More, &values);
        for name in ["LDA-GC4", "LDA-GC5"] {
            let values = self.relative(cell, name, evictions);
            Self::add(out, cell, "Fig. 6", name, "evictions / DU-GC", "0.82 to 0.86", Says::Less, &values);
            let values = self.relative(cell, name, |row| row.gcs as f64);
            Self::add(out, cell, "Fig. 7", name, "GCs / DU-GC", "0.55", Says::Less, &values);
            let values = self.relative(cell, name, |row| row.random_gcs as f64);
            Self::add(out, cell, "Fig. 7", name, "GCs of random log blocks / DU-GC", "0.55", Says::Less, &values);
        }
        for (name, _) in PUBLISHED {
            let values = self.relative(cell, name, PagingRow::cost_per_gc);
            Self::add(out, cell, "Fig. 10", name, "cost of a GC / DU-GC", "below 1", Says::Less, &values);
        }
        let random_per_gc = |row: &PagingRow| row.random_gc_cost_us / (row.random_gcs as f64).max(1.0);
        let values = self.relative(cell, "LDA-GC5", random_per_gc);
        Self::add(out, cell, "Fig. 10", "LDA-GC5", "cost of a random GC / DU-GC", "below 1", Says::Less, &values);
    }

    #[allow(clippy::too_many_arguments, reason = "a row of a table")]
    fn add(
        out: &mut Reproduction,
        cell: Cell,
        place: &str,
        name: &str,
        measure: &str,
        published: &str,
        says: Says,
        values: &[f64],
    ) {
        // Half of the last digit that "1 or worse" has.
        const AS_GOOD_AS: f64 = 0.995;
        let reading = match cell {
            Cell::Scheme(reading) => READINGS.iter().find(|(other, _)| *other == reading).expect("listed").1,
            _ => "page-level map",
        };
        // A trace without such merges says nothing.
        let values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        if values.is_empty() {
            return;
        }
        let claim = Claim::new(place, format!("{name}, {reading}"), measure);
        let is_so = |value: &&f64| match says {
            Says::Less => **value < 1.0,
            Says::NotLess => **value > AS_GOOD_AS,
            Says::More => **value > 1.0,
            Says::Nothing => false,
        };
        let (so, all) = (values.iter().filter(is_so).count(), values.len());
        let claim = match says {
            Says::Less => claim.published(published).below(1.0),
            Says::NotLess => claim.published(published).above(AS_GOOD_AS),
            Says::More => claim.published(published).above(1.0),
            Says::Nothing => claim,
        };
        let claim = match says {
            Says::Nothing => claim.note("other programs' traces; nothing is published of it"),
            _ => claim.note(format!("other programs' traces; so on {so} of {all}")),
        };
        out.comparisons.push(claim.judge(mean_and_deviation(&values)));
    }
}

/// The claim about the paper's own example: counts of one merge, exactly.
pub(super) fn of_the_example(scheme: &str, measure: &str, published: u64) -> Claim {
    Claim::new("Figs. 1 to 3", format!("{scheme}, two data blocks of 4 pages"), measure)
        .published(published.to_string())
        .held(Basis::Published, published as f64, Bound::Exact(0.0))
        .note("the paper's example needs no trace")
}
