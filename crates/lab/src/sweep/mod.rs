//! Sweeps: every value of every setting with every value of the others, on all cores, and never a finished point twice.

mod grid;
mod journal;

pub use grid::{Point, USUAL_SEEDS, plain, points, split_list, typed};
pub use journal::Journal;

use crate::LabError;
use crate::result::ResultRow;
use crate::run::{Step, run_prepared};
use crate::sources::Sources;
use std::collections::HashMap;
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

/// Forgets finished points of traces that have changed since.
fn forget_changed(points: &[Point], journal: &mut Journal) {
    let mut hashes: HashMap<PathBuf, Option<String>> = HashMap::new();
    for point in points {
        let Some(row) = journal.rows.get(&point.key) else { continue };
        let Some(source) = point.settings.source.as_ref().filter(|_| !row.trace_xxh3.is_empty()) else { continue };
        let path = PathBuf::from(source);
        let hash = hashes.entry(path.clone()).or_insert_with(|| {
            let hash = margay_trace::hash_file(&path).ok();
            hash.map(|hash| format!("{hash:016x}"))
        });
        if hash.as_ref() != Some(&row.trace_xxh3) {
            journal.rows.remove(&point.key);
        }
    }
}

fn run_point(point: &Point, sources: &Sources, step: &mut dyn FnMut(Step) -> bool) -> Result<ResultRow, LabError> {
    let (experiment, prepared) = point.settings.prepare(sources)?;
    let mut row = run_prepared(&experiment, &prepared, step)?.row;
    (row.wall_s, row.writes_per_s) = (0.0, 0.0);
    Ok(row)
}

/// Runs the points that the journal does not hold, on so many threads, and adds each to it when it is finished.
///
/// # Errors
/// The journal cannot be written. What was finished before is in it.
pub fn run(points: &[Point], journal: &mut Journal, threads: usize, watcher: &dyn Watcher) -> Result<Swept, LabError> {
    forget_changed(points, journal);
    let mut first: HashMap<&str, usize> = HashMap::new();
    let mut left: Vec<usize> = Vec::new();
    for (at, point) in points.iter().enumerate() {
        if journal.rows.contains_key(&point.key) || first.contains_key(point.key.as_str()) {
            watcher.ended(at);
        } else {
            first.insert(&point.key, at);
            left.push(at);
        }
    }
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
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let (journal, error) = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = error {
        return Err(error);
    }
    journal.sync()?;
    let mut failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    failures.sort_by_key(|(at, _)| *at);
    let rows = points.iter().map(|point| journal.rows.get(&point.key).cloned()).collect();
    Ok(Swept { rows, failures, is_stopped: stop.into_inner() })
}
