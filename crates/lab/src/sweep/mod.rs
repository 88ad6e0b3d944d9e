//! Sweeps: every value of every setting with every value of the others, on all cores, and never a finished point twice.

mod grid;
mod journal;

pub(crate) use grid::expanded;
pub use grid::{Point, USUAL_SEEDS, plain, points, points_with, split_list, typed};
pub use journal::Journal;

use crate::LabError;
use crate::result::ResultRow;
use crate::run::{Step, run_prepared};
use crate::sources::Sources;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Observes a sweep while it runs. Called from many threads.
pub trait Watcher: Sync {
    /// A point is done to this share. Returning false stops the sweep.
    fn step(&self, point: usize, share: f64) -> bool;
    /// A point has ended.
    fn ended(&self, point: usize);
}

/// What a sweep has come to.
#[derive(Debug, Default)]
pub struct Swept {
    /// The result of each point, of those that are finished. Times of the wall clock are 0: they say nothing of the point,
    /// and without them a sweep is the same to the last byte whenever and wherever it is run.
    pub rows: Vec<Option<ResultRow>>,
    /// Points that cannot be run, and why.
    pub failures: Vec<(usize, LabError)>,
    /// Whether it was stopped before its end.
    pub is_stopped: bool,
}

impl Swept {
    /// Whether every point is finished.
    pub fn is_whole(&self) -> bool {
        self.rows.iter().all(Option::is_some)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the traces of a sweep hold now. Each is read once.
#[derive(Debug, Default)]
struct Traces {
    hashes: HashMap<PathBuf, Option<String>>,
}

impl Traces {
    /// Whether the row of a point is of the trace as it is now.
    fn are_those_of(&mut self, point: &Point, row: &ResultRow) -> bool {
        let Some(source) = point.settings.source.as_ref().filter(|_| !row.trace_xxh3.is_empty()) else { return true };
        if point.settings.held.get(source).is_some() {
            // Its name has its hash.
            return true;
        }
        let path = PathBuf::from(source);
        let hash = self.hashes.entry(path.clone()).or_insert_with(|| {
            let hash = margay_trace::hash_file(&path).ok();
            hash.map(|hash| format!("{hash:016x}"))
        });
        hash.as_ref() == Some(&row.trace_xxh3)
    }

    /// Forgets finished points of traces that have changed since.
    fn forget_changed(&mut self, points: &[Point], journal: &mut Journal) {
        for point in points {
            if journal.rows.get(&point.key).is_some_and(|row| !self.are_those_of(point, row)) {
                journal.rows.remove(&point.key);
            }
        }
    }
}

/// Adds finished points that other files hold, which may be being written. Those of traces that have changed since are passed
/// over, and forgotten.
///
/// # Errors
/// A file is not one of finished points, or of another version, or cannot be read; or the journal cannot be written.
pub fn gather(points: &[Point], journal: &mut Journal, files: &[PathBuf]) -> Result<(), LabError> {
    let mut traces = Traces::default();
    traces.forget_changed(points, journal);
    for file in files {
        let rows = Journal::read(file)?;
        for point in points.iter().filter(|point| rows.contains_key(&point.key)) {
            if !journal.rows.contains_key(&point.key) && traces.are_those_of(point, &rows[&point.key]) {
                journal.add(&point.key, &rows[&point.key])?;
            }
        }
    }
    Ok(())
}

/// Runs one point, with traces that were read before. The times of the wall clock in its row are 0.
///
/// # Errors
/// The point cannot be run, or its observer stopped it.
pub fn run_point(point: &Point, sources: &Sources, step: &mut dyn FnMut(Step) -> bool) -> Result<ResultRow, LabError> {
    let (experiment, prepared) = point.settings.prepare(sources)?;
    let mut row = run_prepared(&experiment, &prepared, step)?.row;
    (row.wall_s, row.writes_per_s) = (0.0, 0.0);
    Ok(row)
}

/// The numbers of the points that the journal does not hold, equal ones once. Finished points of traces that have changed
/// since are forgotten first.
pub fn left(points: &[Point], journal: &mut Journal) -> Vec<usize> {
    Traces::default().forget_changed(points, journal);
    let mut seen: HashSet<&str> = HashSet::new();
    let is_left = |at: &usize| !journal.rows.contains_key(&points[*at].key) && seen.insert(&points[*at].key);
    (0..points.len()).filter(is_left).collect()
}

/// What a sweep has come to whose points were run elsewhere and added to the journal.
///
/// # Errors
/// The disk refuses.
pub fn gathered(
    points: &[Point],
    journal: &mut Journal,
    mut failures: Vec<(usize, LabError)>,
    is_stopped: bool,
) -> Result<Swept, LabError> {
    journal.sync()?;
    failures.sort_by_key(|(at, _)| *at);
    let rows = points.iter().map(|point| journal.rows.get(&point.key).cloned()).collect();
    Ok(Swept { rows, failures, is_stopped })
}

/// Runs the points that the journal does not hold, on so many threads, and adds each to it when it is finished.
///
/// # Errors
/// The journal cannot be written. What was finished before is in it.
pub fn run(points: &[Point], journal: &mut Journal, threads: usize, watcher: &dyn Watcher) -> Result<Swept, LabError> {
    let left = left(points, journal);
    let mut runs = vec![false; points.len()];
    left.iter().for_each(|at| runs[*at] = true);
    (0..points.len()).filter(|at| !runs[*at]).for_each(|at| watcher.ended(at));
    let threads = threads.clamp(1, left.len().max(1));
    // Points that share a trace follow each other, and no more of them than threads run at a time.
    let sources = Sources::new(threads + 1);
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (shared, failures) = (Mutex::new((journal, None)), Mutex::new(Vec::new()));
    let work = || {
        while let Some(&at) = left.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = run_point(&points[at], &sources, &mut |step| {
                let share = step.expected.map_or(0.0, |of| step.writes as f64 / of.max(1) as f64);
                if !watcher.step(at, share) {
                    stop.store(true, Ordering::Relaxed);
                }
                !stop.load(Ordering::Relaxed)
            });
            match result {
                Ok(row) => {
                    let mut shared = lock(&shared);
                    if let Err(error) = shared.0.add(&points[at].key, &row) {
                        stop.store(true, Ordering::Relaxed);
                        shared.1.get_or_insert(error);
                    } else {
                        watcher.ended(at);
                    }
                }
                Err(LabError::Interrupted { .. }) => stop.store(true, Ordering::Relaxed),
                Err(error) => {
                    lock(&failures).push((at, error));
                    watcher.ended(at);
                }
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        let spawn = |_: &usize| std::thread::Builder::new().spawn_scoped(scope, work).is_ok();
        // Where there is no room for more threads, those that there are do it all, and this one if there are none.
        if (0..threads).take_while(spawn).count() == 0 {
            work();
        }
    });
    let (journal, error) = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = error {
        return Err(error);
    }
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    gathered(points, journal, failures, stop.into_inner())
}
