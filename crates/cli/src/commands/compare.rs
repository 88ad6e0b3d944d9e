use super::progress::Bars;
use crate::args::{CompareArgs, Given};
use crate::failure::Failure;
use crate::output::{self, run_plots, runs};
use margay_lab::sweep::{USUAL_SEEDS, split_list};
use margay_lab::{Experiment, Outcome, Prepared, Settings, Sources};
use margay_policy::spec::PolicyKind;
use margay_policy::{PlacementSpec, SelectionSpec, Spec};

/// The policies asked for; without any the usual ones, or all of the table, and those variants that are worth trying.
fn specs<K: PolicyKind>(asked: &Option<Vec<String>>, all: bool) -> Result<Vec<Spec<K>>, Failure> {
    let Some(asked) = asked else {
        return Ok(if all { Spec::all().chain(Spec::variants()).collect() } else { Spec::usual().collect() });
    };
    Ok(asked.iter().flat_map(|text| split_list(text)).map(|text| text.parse()).collect::<Result<_, _>>()?)
}

/// The experiment with so many seeds; if that is not said, with several where they make a difference.
pub fn with_seeds(experiment: &Experiment, seeds: Option<u32>) -> Vec<Experiment> {
    let usual = if experiment.is_random() { USUAL_SEEDS } else { 1 };
    let more = 0..u64::from(seeds.unwrap_or(usual).max(1));
    more.map(|more| Experiment { seed: experiment.seed.wrapping_add(more), ..experiment.clone() }).collect()
}

/// Uses so many threads from now on.
pub fn set_threads(jobs: Option<usize>) -> Result<(), Failure> {
    let Some(jobs) = jobs else { return Ok(()) };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build_global();
    pool.map_err(|error| Failure::Usage(format!("--jobs {jobs}: {error}")))
}

/// Runs experiments on so many threads.
pub fn run_all(
    experiments: &[Experiment],
    prepared: &Prepared,
    jobs: Option<usize>,
    quiet: bool,
) -> Result<Vec<Outcome>, Failure> {
    set_threads(jobs)?;
    let names: Vec<_> = experiments.iter().map(|e| format!("{} + {} ({})", e.selection, e.placement, e.seed)).collect();
    let bars = Bars::new(&names, quiet);
    let results = margay_lab::compare::run_all(experiments, prepared, &bars);
    bars.finish();
    Ok(results.into_iter().collect::<Result<_, _>>()?)
}

/// Takes out placements with more streams than the device has room for, and returns their names.
fn leave_out_unfit(placements: &mut Vec<PlacementSpec>, base: &Experiment) -> Result<Vec<String>, Failure> {
    let (config, geometry) = (base.config(), base.device.geometry().map_err(margay_lab::LabError::from)?);
    let pages = base.exported_pages()?;
    let fits = |placement: &PlacementSpec| {
        let streams = u32::from(placement.streams()) + u32::from(base.separate_read_only);
        config.limit_pages(&geometry, streams).is_ok_and(|limit| pages <= limit)
    };
    if !placements.iter().any(fits) {
        // The error of the first run says what is wrong.
        return Ok(Vec::new());
    }
    let unfit = placements.iter().filter(|placement| !fits(placement)).map(ToString::to_string).collect();
    placements.retain(fits);
    Ok(unfit)
}

pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    let (args, given) = Given::complete(args, &args.file)?;
    output::check(&args.output)?;
    let selections: Vec<SelectionSpec> = specs(&args.settings.selection, args.many.all)?;
    let mut placements: Vec<PlacementSpec> = specs(&args.settings.placement, args.many.all)?;
    if args.settings.placement.is_none() {
        // Who has no streams gains nothing by a placement that goes by them, and who has them names it.
        placements.retain(|placement| !placement.sees_streams() && (args.many.all || !placement.is_oracle()));
    }
    let settings = Settings { selection: None, placement: None, ..args.settings };
    let (base, prepared) = settings.prepare(&Sources::default())?;
    given.save("compare")?;
    if args.settings.placement.is_none() {
        let unfit = leave_out_unfit(&mut placements, &base)?;
        if !unfit.is_empty() {
            eprintln!("left out, because the device has too little spare room for their streams: {}", unfit.join(", "));
        }
    }
    let mut experiments: Vec<Experiment> = Vec::new();
    for selection in &selections {
        for placement in &placements {
            let pair = Experiment { selection: *selection, placement: *placement, ..base.clone() };
            experiments.append(&mut with_seeds(&pair, args.many.seeds));
        }
    }
    let outcomes = run_all(&experiments, &prepared, args.many.jobs, args.output.quiet)?;
    output::write_outcomes(&args.output, &outcomes, |outcomes| runs::comparison(outcomes, args.many.all))?;
    if let Some(path) = &args.output.plot {
        run_plots::comparison(path, args.output.force.existing(), &outcomes)?;
    }
    Ok(())
}
