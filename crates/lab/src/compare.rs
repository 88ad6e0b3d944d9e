//! Many runs of one source on all cores.

use crate::LabError;
use crate::experiment::Experiment;
use crate::result::Outcome;
use crate::run::{Prepared, Step, prepare, run_prepared};
use rayon::prelude::*;

/// Observes a comparison while it runs. Called from many threads.
pub trait Observer: Sync {
    /// A run has reached this point. Returning false stops it.
    fn step(&self, run: usize, step: Step) -> bool;
    /// A run has ended.
    fn ended(&self, run: usize, result: &Result<Outcome, LabError>);
}

/// Runs experiments that share device, capacity and source, and differ in policies, marks and seed. The
/// source is read once. Results come in the order of the experiments.
pub fn compare(
    experiments: &[Experiment],
    observer: &dyn Observer,
) -> Result<Vec<Result<Outcome, LabError>>, LabError> {
    let Some(first) = experiments.first() else { return Ok(Vec::new()) };
    Ok(run_all(experiments, &prepare(first)?, observer))
}

/// Runs experiments whose source was prepared, as [`compare`] does.
pub fn run_all(
    experiments: &[Experiment],
    prepared: &Prepared,
    observer: &dyn Observer,
) -> Vec<Result<Outcome, LabError>> {
    experiments
        .par_iter()
        .enumerate()
        .with_max_len(1)
        .map(|(index, experiment)| {
            let result = run_prepared(experiment, prepared, &mut |step| observer.step(index, step));
            observer.ended(index, &result);
            result
        })
        .collect()
}
