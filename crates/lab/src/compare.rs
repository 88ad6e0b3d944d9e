//! Many runs of one source on all cores.

use crate::LabError;
use crate::experiment::Experiment;
use crate::own::{OwnPair, OwnPlacement};
use crate::result::Outcome;
use crate::run::{Prepared, Step, prepare, run_prepared};
use crate::settings::Settings;
use crate::sources::Sources;
use crate::sweep::split_list;
use margay_policy::Spec;
use margay_policy::placement::PlacementKind;
use margay_policy::selection::SelectionKind;
use margay_policy::spec::PolicyKind;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

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

/// The runs of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Every pair of policies with every seed.
    pub experiments: Vec<Experiment>,
    /// Their source.
    pub prepared: Prepared,
    /// Placements that were left out, because the device has too little spare room for their streams.
    pub left_out: Vec<String>,
}

/// A policy of a table, or of the program's own.
type Choice<K, T> = (Spec<K>, Option<Arc<T>>);

/// The policies asked for; without any the usual ones, or all of the table, and those variants that are worth trying.
fn choices<K: PolicyKind, T: ?Sized>(
    asked: &Option<Vec<String>>,
    all: bool,
    own: &BTreeMap<String, Arc<T>>,
) -> Result<Vec<Choice<K, T>>, LabError> {
    let Some(asked) = asked else {
        let of_table: Vec<Spec<K>> =
            if all { Spec::all().chain(Spec::variants()).collect() } else { Spec::usual().collect() };
        return Ok(of_table.into_iter().map(|spec| (spec, None)).collect());
    };
    if asked.is_empty() {
        let problem = "expected a policy or several; without the setting the usual ones are compared".into();
        return Err(LabError::Value { what: K::WHAT, value: "[]".into(), problem });
    }
    let choice = |text: String| match own.get(&text) {
        Some(own) => Ok((Spec::default(), Some(Arc::clone(own)))),
        None => Ok((text.parse()?, None)),
    };
    asked.iter().flat_map(|text| split_list(text)).map(choice).collect()
}

/// Takes out placements with more streams than the device has room for, and returns their names.
fn leave_out_unfit(
    placements: &mut Vec<Choice<PlacementKind, dyn OwnPlacement>>,
    base: &Experiment,
) -> Result<Vec<String>, LabError> {
    let (config, geometry) = (base.config(), base.device.geometry()?);
    let pages = base.exported_pages()?;
    let fits = |(placement, _): &Choice<PlacementKind, dyn OwnPlacement>| {
        let streams = u32::from(placement.streams()) + u32::from(base.separate_read_only);
        config.limit_pages(&geometry, streams).is_ok_and(|limit| pages <= limit)
    };
    if !placements.iter().any(fits) {
        // The error of the first run says what is wrong.
        return Ok(Vec::new());
    }
    let unfit = placements.iter().filter(|choice| !fits(choice)).map(|(placement, _)| placement.to_string()).collect();
    placements.retain(fits);
    Ok(unfit)
}

impl Comparison {
    /// The runs that the settings ask for: every selection with every placement, each with so many seeds
    /// ([`Experiment::with_seeds`]). Without a selection or placement the usual ones are compared; `all` takes all of the
    /// tables, and oracles.
    ///
    /// # Errors
    /// Those of [`Settings::prepare`], and policies that are not known.
    pub fn new(settings: &Settings, seeds: Option<u32>, all: bool, sources: &Sources) -> Result<Self, LabError> {
        let own = &settings.held.policies;
        let selections: Vec<Choice<SelectionKind, _>> = choices(&settings.selection, all, &own.selections)?;
        let mut placements: Vec<Choice<PlacementKind, _>> = choices(&settings.placement, all, &own.placements)?;
        let is_open = settings.placement.is_none();
        if is_open {
            // Who has no streams gains nothing by a placement that goes by them, and who has them names it.
            placements.retain(|(placement, _)| !placement.sees_streams() && (all || !placement.is_oracle()));
        }
        let of_all = Settings { selection: None, placement: None, ..settings.clone() };
        let (base, prepared) = of_all.prepare(sources)?;
        let left_out = if is_open { leave_out_unfit(&mut placements, &base)? } else { Vec::new() };
        let pairs =
            selections.iter().flat_map(|selection| placements.iter().map(move |placement| (selection, placement)));
        let experiments = pairs.flat_map(|((selection, own_selection), (placement, own_placement))| {
            let own = OwnPair { selection: own_selection.clone(), placement: own_placement.clone() };
            Experiment { selection: *selection, placement: *placement, own, ..base.clone() }.with_seeds(seeds)
        });
        Ok(Self { experiments: experiments.collect(), prepared, left_out })
    }
}
