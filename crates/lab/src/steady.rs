//! Steady state: where the warm window of a run starts, and whether the run had settled in it.
//!
//! The start is found by MSER-5 (White, Cobb and Spratt, "A comparison of five steady-state truncation heuristics for
//! simulation", WSC 2000): of the means of five observations each, as many are left out at the start as make the standard
//! error of the mean of the others smallest. A run in which that are more than half has not settled. Neither has one in
//! whose window write amplification still rises or falls, or one that is too short to tell.

use crate::statistics::{Interval, rise};

/// What was counted up to a moment of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Host page writes.
    pub writes: u64,
    /// Pages programmed: host writes, copies and metadata pages.
    pub programs: u64,
    /// Segments erased.
    pub erases: u64,
}

impl Mark {
    /// Write amplification from `earlier` to this moment.
    fn wa_since(self, earlier: Self) -> f64 {
        (self.programs - earlier.programs) as f64 / (self.writes - earlier.writes) as f64
    }
}

/// The part of a run after its transient.
#[derive(Clone, Debug, PartialEq)]
pub struct WarmWindow {
    /// How its start was found: `mser-5`, `mser over passes`, `fixed`.
    pub rule: &'static str,
    /// Host writes before it.
    pub from: u64,
    /// Host writes up to its end.
    pub to: u64,
    /// Write amplification in it; its interval comes from parts of the window.
    pub wa: Interval,
    /// Why the run had not settled, if it had not.
    pub unsettled: Option<String>,
}

impl WarmWindow {
    /// Whether the run had settled, and its write amplification is known to 1 %.
    pub(crate) fn is_known(&self) -> bool {
        self.unsettled.is_none() && self.wa.half95.is_some_and(|half| half <= 0.01 * self.wa.mean)
    }
}

/// How the start of the window is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// MSER-5 over evenly spaced marks.
    Mser5,
    /// MSER over marks at the ends of passes of a trace: what a pass repeats is no fluctuation.
    Passes,
    /// At the first mark.
    Fixed,
}

/// Pages of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// For data, on flash.
    pub data_pages: u64,
    /// Exported.
    pub exported_pages: u64,
}

/// Parts of the window from which its interval is found.
const PARTS: usize = 20;
/// How often the flash has to be programmed in the window, and the exported pages to be written.
const TURNS: f64 = 2.0;
const DEVICE_WRITES: f64 = 1.0;
/// A change in the window that is left unsaid.
const SMALL_CHANGE: f64 = 0.01;
/// Standard errors from which on a change is no chance.
const SURE: f64 = 3.0;

/// How many observations MSER leaves out: the index where the standard error of the rest is smallest, `keep` of them kept
/// in any case.
fn mser(values: &[f64], keep: usize) -> usize {
    let (mut sum, mut squares, mut best) = (0.0, 0.0, (f64::INFINITY, 0));
    // From the end on, so that each step adds one value; the shift keeps the sums small.
    let shift = values.last().copied().unwrap_or(0.0);
    for (from, value) in values.iter().enumerate().rev() {
        let (value, n) = (value - shift, (values.len() - from) as f64);
        sum += value;
        squares += value * value;
        let error = (squares - sum * sum / n).max(0.0) / (n * n);
        // Of equal ones the longest window.
        if values.len() - from >= keep && error <= best.0 * (1.0 + 1e-12) + 1e-18 {
            best = (error.min(best.0), from);
        }
    }
    best.1
}

/// The warm window of a run that was marked at these moments, the first of which is its start (with [`Rule::Fixed`] that of
/// the window), on a device of this size.
pub(crate) fn window(rule: Rule, marks: &[Mark], device: Size) -> WarmWindow {
    let start = marks.first().copied().unwrap_or_default();
    let mut marks: Vec<Mark> = marks.to_vec();
    marks.dedup_by(|later, earlier| later.writes == earlier.writes);
    let end = *marks.last().unwrap_or(&start);
    let (name, size, fewest, keep) = match rule {
        Rule::Mser5 => ("mser-5", 5, 10, 5),
        Rule::Passes => ("mser over passes", 1, 4, 3),
        Rule::Fixed => ("fixed", 5, 5, 5),
    };
    // Observations end with the run: those that are left over are at its start.
    let steps = marks.len().saturating_sub(1);
    let over = if steps >= size { steps % size } else { 0 };
    let ends: Vec<Mark> = marks.iter().copied().skip(over).step_by(size).collect();
    let values: Vec<f64> = ends.windows(2).map(|pair| pair[1].wa_since(pair[0])).collect();
    let half = values.len() / 2;
    let (left_out, mut why) = match rule {
        Rule::Fixed => (0, None),
        _ if values.len() < fewest => (half, None),
        // A few equal values at the end by chance are no steady state.
        _ => match mser(&values, keep.max(values.len() / 10)) {
            left_out if left_out > half => {
                let wa = |from: usize| end.wa_since(ends[from]);
                let change = wa(left_out) / wa(half) - 1.0;
                let why = format!(
                    "write amplification still changes in the second half of the run, by {:.1} %",
                    100.0 * change.abs()
                );
                // Chance alone can ask for a short window, which is then no other than the long one.
                (half, Some(why).filter(|_| change.abs() > SMALL_CHANGE))
            }
            left_out => (left_out, None),
        },
    };
    let from = if left_out == 0 { start } else { ends[left_out] };
    if end.writes == from.writes {
        let unsettled = Some("nothing was written in the warm window".into());
        return WarmWindow { rule: name, from: from.writes, to: end.writes, wa: Interval::exact(f64::NAN), unsettled };
    }
    let kept = &values[left_out..];
    let size = (kept.len() / PARTS).max(1);
    let parts: Vec<f64> =
        kept.rchunks_exact(size).map(|part| part.iter().sum::<f64>() / part.len() as f64).rev().collect();
    let mean = end.wa_since(from);
    let wa = match Interval::of(&parts) {
        spread if parts.len() >= keep => Interval { mean, ..spread },
        _ => Interval::exact(mean),
    };
    let turns = (end.programs - from.programs) as f64 / device.data_pages.max(1) as f64;
    let device_writes = (end.writes - from.writes) as f64 / device.exported_pages.max(1) as f64;
    if end.erases == start.erases && rule != Rule::Fixed || end.erases == from.erases {
        why = Some("nothing was cleaned in the warm window".into());
    } else if turns < TURNS {
        why = Some(format!("the flash was programmed {turns:.1} times in the warm window, which is too short to tell"));
    } else if device_writes < DEVICE_WRITES {
        let wrote = "the host wrote the exported capacity";
        why = Some(format!("{wrote} {device_writes:.1} times in the warm window, which is too short to tell"));
    } else if values.len() < fewest {
        let what = if rule == Rule::Passes { "passes of the trace" } else { "observations" };
        why = Some(format!("{} {what} are too few to tell", values.len()));
    } else if let Some((change, errors)) = rise(&parts).filter(|_| why.is_none()) {
        let change = change / mean;
        if change.abs() > SMALL_CHANGE && errors.abs() > SURE {
            let way = if change > 0.0 { "rises" } else { "falls" };
            why = Some(format!("write amplification still {way}, by {:.1} % in the warm window", 100.0 * change.abs()));
        }
    }
    WarmWindow { rule: name, from: from.writes, to: end.writes, wa, unsettled: why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(rule: Rule, marks: &[Mark], data_pages: u64) -> WarmWindow {
        super::window(rule, marks, Size { data_pages, exported_pages: data_pages / 2 })
    }

    /// Marks every 100 writes with these values of write amplification between them.
    fn marks(values: impl IntoIterator<Item = f64>) -> Vec<Mark> {
        let mut all = vec![Mark::default()];
        for wa in values {
            let last = all[all.len() - 1];
            all.push(Mark {
                writes: last.writes + 1000,
                programs: last.programs + (1000.0 * wa).round() as u64,
                erases: last.erases + 1,
            });
        }
        all
    }

    /// A fluctuation of mean 0.
    fn noise(at: usize) -> f64 {
        [0.02, -0.03, 0.01, 0.05, -0.04, -0.02, 0.01][at % 7] + [0.01, -0.01, 0.0][at % 3]
    }

    #[test]
    fn the_transient_is_left_out_and_no_more() {
        let transient = |at: usize| 4.0 - 3.0 * (-(at as f64) / 20.0).exp() + noise(at);
        let found = window(Rule::Mser5, &marks((0..1000).map(transient)), 10_000);
        assert_eq!((found.unsettled.clone(), found.rule, found.to), (None, "mser-5", 1_000_000));
        assert!((60_000..200_000).contains(&found.from), "{found:?}");
        assert!((found.wa.mean - 4.0).abs() < 0.01 && found.wa.half95.unwrap() < 0.02, "{found:?}");
        assert!(found.is_known());
        // Without a transient the window is the run.
        let found = window(Rule::Mser5, &marks((0..1000).map(|at| 2.0 + noise(at))), 10_000);
        assert!(found.from < 100_000 && found.unsettled.is_none(), "{found:?}");
        let constant = window(Rule::Mser5, &marks(std::iter::repeat_n(1.0, 100)), 10_000);
        assert_eq!((constant.from, constant.wa.half95, constant.unsettled), (0, Some(0.0), None));
    }

    #[test]
    fn a_run_that_still_changes_has_not_settled_and_says_how() {
        let why = |values: &dyn Fn(usize) -> f64, count: usize, data_pages: u64| {
            window(Rule::Mser5, &marks((0..count).map(values)), data_pages).unsettled.unwrap_or_default()
        };
        let rising = why(&|at| 2.0 + at as f64 / 1000.0, 1000, 10_000);
        assert!(rising.contains("still"), "{rising}");
        let slowly = why(&|at| 2.0 + at as f64 / 20_000.0 + noise(at), 1000, 10_000);
        assert!(slowly.contains("still"), "{slowly}");
        let late = why(&|at| if at < 700 { 1.0 } else { 3.0 + noise(at) }, 1000, 10_000);
        assert!(late.contains("second half"), "{late}");
        let short = why(&|at| 2.0 + noise(at), 100, 1_000_000);
        assert!(short.contains("programmed 0.2 times"), "{short}");
        let few = why(&|at| 2.0 + noise(at), 20, 100);
        assert!(few.contains("4 observations are too few"), "{few}");
    }

    #[test]
    fn passes_of_a_trace_are_compared_with_each_other() {
        let passes = |values: &[f64]| window(Rule::Passes, &marks(values.iter().copied()), 100);
        let settled = passes(&[1.4, 1.9, 2.05, 2.0, 2.01, 2.0, 1.99, 2.0, 2.01]);
        assert_eq!((settled.from, settled.unsettled.clone()), (3000, None), "{settled:?}");
        assert!((settled.wa.mean - 2.0).abs() < 0.02, "{settled:?}");
        let rising = passes(&[1.4, 1.9, 2.05, 2.10, 2.15, 2.20, 2.25, 2.3]);
        assert!(rising.unsettled.is_some(), "{rising:?}");
        assert!(passes(&[2.0, 2.0, 2.0]).unsettled.unwrap().contains("3 passes"));
    }

    #[test]
    fn a_run_without_marks_or_erases_is_nothing_to_measure() {
        assert!(window(Rule::Mser5, &[], 10).unsettled.is_some());
        assert!(window(Rule::Fixed, &[Mark::default()], 10).wa.mean.is_nan());
        let idle: Vec<Mark> = (0..100).map(|at| Mark { writes: at * 100, programs: at * 100, erases: 0 }).collect();
        assert!(window(Rule::Mser5, &idle, 10).unsettled.unwrap().contains("nothing was cleaned"));
    }
}
