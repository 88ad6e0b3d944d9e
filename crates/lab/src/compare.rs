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
///
/// ```
/// use margay_lab::compare::{Observer, compare};
/// use margay_lab::{Experiment, LabError, Limit, Outcome, Source, Step};
/// use margay_media::DeviceSpec;
///
/// /// Says nothing, stops nothing.
/// struct Silent;
/// impl Observer for Silent {
///     fn step(&self, _: usize, _: Step) -> bool {
///         true
///     }
///     fn ended(&self, _: usize, _: &Result<Outcome, LabError>) {}
/// }
///
/// let device = DeviceSpec::load("spi-nor-16mb")?;
/// let mut experiments = vec![Experiment::new(device, Source::Workload("hot-cold:90/10".parse()?)); 2];
/// for (experiment, selection) in experiments.iter_mut().zip(["greedy", "fifo"]) {
///     experiment.selection = selection.parse()?;
///     experiment.limit = Limit::DeviceWrites(2.0);
/// }
/// let outcomes = compare(&experiments, &Silent)?.into_iter().collect::<Result<Vec<_>, _>>()?;
/// assert!(outcomes[0].row.copies < outcomes[1].row.copies);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
