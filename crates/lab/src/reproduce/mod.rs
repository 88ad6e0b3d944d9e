//! Reproductions of published results: what was printed beside what the engine does.

mod figure;
pub mod fms;
pub mod lda_gc;
pub mod league;
pub mod moda;
mod verdict;

pub use figure::{Axis, Curve, Figure, Point};
pub use verdict::{Basis, Bound, Claim, Comparison, Direction, Verdict};

use crate::LabError;
use serde::Serialize;
use std::ops::Range;

/// A part of a publication, for the page that tells about its reproduction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Section {
    /// Its heading.
    pub title: &'static str,
    /// What the publication asked and found.
    pub asked: &'static str,
    /// The places of the comparisons that belong to it.
    pub places: &'static [&'static str],
    /// The beginnings of the names of the figures that belong to it.
    pub figures: &'static [&'static str],
    /// How what was measured differs, and why.
    pub difference: &'static str,
}

/// What a publication is about, for a reader who does not have it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Paper {
    /// Name of the command's study.
    pub name: &'static str,
    /// The study in words.
    pub title: &'static str,
    /// Authors, title, year.
    pub source: &'static str,
    /// What it is about: a paragraph or several.
    pub about: &'static [&'static str],
    /// Words that the tables and figures use, with their meaning.
    pub words: &'static [(&'static str, &'static str)],
    /// Its parts.
    pub sections: &'static [Section],
}

/// The result of a reproduction.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Reproduction {
    /// Claims against what was measured.
    pub comparisons: Vec<Comparison>,
    /// Figures, with the published points where a text or table gives them.
    pub figures: Vec<Figure>,
    /// What was found, in words, with figures.
    pub findings: Vec<String>,
    /// The results behind it all.
    pub rows: Vec<crate::ResultRow>,
    /// The same of file benchmarks.
    pub files: Vec<crate::FileRow>,
    /// The same of page references.
    pub paging: Vec<crate::PagingRow>,
}

impl Reproduction {
    /// How many comparisons have each verdict, in the order of [`Verdict::ALL`].
    pub fn counts(&self) -> [(Verdict, usize); 7] {
        Verdict::ALL.map(|kind| (kind, self.comparisons.iter().filter(|one| one.verdict == kind).count()))
    }

    /// Whether no figure is outside its bound.
    pub fn is_nothing_missed(&self) -> bool {
        self.comparisons.iter().all(|one| one.verdict != Verdict::Missed)
    }
}

/// Mean and sample standard deviation.
pub(crate) fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, if values.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 })
}

/// Observes a reproduction while it runs.
pub trait Watcher: Sync {
    /// `runs` of `of` runs are done. Returning false stops the reproduction.
    fn done(&self, runs: usize, of: usize) -> bool;
}

/// Runs cells in parallel, each with several seeds; a vector of outcomes per cell.
pub(crate) fn run_cells(
    cells: &[crate::Experiment],
    seeds: Range<u64>,
    watcher: &dyn Watcher,
) -> Result<Vec<Vec<crate::Outcome>>, LabError> {
    use rayon::prelude::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let done = AtomicUsize::new(0);
    let of_each = (seeds.end - seeds.start) as usize;
    let total = cells.len() * of_each;
    let prepared: Vec<_> = cells.par_iter().map(crate::prepare).collect::<Result<_, _>>()?;
    let outcomes: Vec<crate::Outcome> = (0..total)
        .into_par_iter()
        .with_max_len(1)
        .map(|index| {
            let (cell, seed) = (index / of_each, seeds.start + (index % of_each) as u64);
            let experiment = crate::Experiment { seed, ..cells[cell].clone() };
            let keep_on = |_| watcher.done(done.load(Ordering::Relaxed), total);
            let outcome = crate::run_prepared(&experiment, &prepared[cell], &mut |step| keep_on(step));
            done.fetch_add(1, Ordering::Relaxed);
            outcome
        })
        .collect::<Result<_, _>>()?;
    Ok(outcomes.chunks(of_each).map(<[_]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_missed_row_is_enough_to_fail_and_a_reversed_one_is_a_finding() {
        let mut result = Reproduction::default();
        let held =
            |wanted| Claim::new("Table 1", "greedy", "erases").held(Basis::Published, wanted, Bound::Relative(0.1));
        result.comparisons.push(held(100.0).judge((105.0, 0.0)));
        result.comparisons.push(held(50.0).below(100.0).judge((105.0, 0.0)));
        assert!(result.is_nothing_missed());
        result.comparisons.push(held(50.0).judge((105.0, 0.0)));
        assert!(!result.is_nothing_missed());
        let counts = result.counts().map(|(_, count)| count);
        assert_eq!(counts, [1, 0, 0, 0, 1, 0, 1], "met, reversed, missed: {:?}", result.comparisons);
    }
}
