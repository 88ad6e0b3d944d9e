//! Reproductions of published results: what was printed beside what the engine does.

pub mod fms;
pub mod lda_gc;
pub mod moda;

use crate::LabError;
use serde::{Serialize, Serializer};
use std::fmt;

/// How far a measured value may be from the wanted one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// It must be equal, to the digits given.
    Exact(f64),
    /// It may differ by this share of the wanted value.
    Relative(f64),
    /// It may differ by this much, in its own unit.
    Absolute(f64),
    /// It must be at least the wanted value.
    AtLeast,
    /// It must be at most the wanted value.
    AtMost,
    /// It is only reported.
    None,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(_) => f.write_str("exact"),
            Self::Relative(share) => write!(f, "{:.1} %", share * 100.0),
            Self::Absolute(by) => write!(f, "{}", (by * 10.0).round() / 10.0),
            Self::AtLeast => f.write_str("at least"),
            Self::AtMost => f.write_str("at most"),
            Self::None => f.write_str("-"),
        }
    }
}

impl Serialize for Bound {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One figure of a publication beside the measured one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Where it was published.
    pub place: String,
    /// The cell: policy and workload.
    pub cell: String,
    /// What was measured, with its unit.
    pub measure: String,
    /// As printed; several where the documents disagree.
    pub published: String,
    /// The value to be met: the independent model's mean where the specification states one.
    pub wanted: f64,
    /// How closely.
    pub bound: Bound,
    /// Mean over the seeds.
    pub measured: f64,
    /// Standard deviation over the seeds.
    pub deviation: f64,
}

impl Comparison {
    /// Measured / wanted - 1.
    pub fn relative(&self) -> f64 {
        self.measured / self.wanted - 1.0
    }

    /// Whether the bound is kept; `None` if there is no bound.
    pub fn holds(&self) -> Option<bool> {
        let difference = (self.measured - self.wanted).abs();
        match self.bound {
            Bound::Exact(digits) | Bound::Absolute(digits) => Some(difference <= digits),
            Bound::Relative(share) => Some(difference <= share * self.wanted.abs()),
            Bound::AtLeast => Some(self.measured >= self.wanted),
            Bound::AtMost => Some(self.measured <= self.wanted),
            Bound::None => None,
        }
    }
}

/// A figure of several curves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Short name, also of its files.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Meaning and unit of x.
    pub x: String,
    /// Meaning and unit of y.
    pub y: String,
    /// Names and points.
    pub curves: Vec<(String, Vec<(f64, f64)>)>,
}

/// The result of a reproduction.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Reproduction {
    /// Published against measured.
    pub comparisons: Vec<Comparison>,
    /// Figures whose published form is an image.
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
    seeds: u32,
    watcher: &dyn Watcher,
) -> Result<Vec<Vec<crate::Outcome>>, LabError> {
    use rayon::prelude::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let done = AtomicUsize::new(0);
    let total = cells.len() * seeds as usize;
    let prepared: Vec<_> = cells.par_iter().map(crate::prepare).collect::<Result<_, _>>()?;
    let outcomes: Vec<crate::Outcome> = (0..total)
        .into_par_iter()
        .with_max_len(1)
        .map(|index| {
            let (cell, seed) = (index / seeds as usize, index % seeds as usize);
            let experiment = crate::Experiment { seed: seed as u64 + 1, ..cells[cell].clone() };
            let keep_on = |_| watcher.done(done.load(Ordering::Relaxed), total);
            let outcome = crate::run_prepared(&experiment, &prepared[cell], &mut |step| keep_on(step));
            done.fetch_add(1, Ordering::Relaxed);
            outcome
        })
        .collect::<Result<_, _>>()?;
    Ok(outcomes.chunks(seeds as usize).map(<[_]>::to_vec).collect())
}
