use super::progress::Bars;
use crate::args::{CompareArgs, Given};
use crate::failure::Failure;
use crate::output::{self, run_plots, runs};
use margay_lab::compare::Comparison;
use margay_lab::{Experiment, Outcome, Prepared, Sources};

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
    // A thread without a run would cost its memory all the same.
    set_threads(jobs.map(|jobs| jobs.min(experiments.len().max(1))))?;
    let names: Vec<_> = experiments.iter().map(|e| format!("{} + {} ({})", e.selection, e.placement, e.seed)).collect();
    let bars = Bars::new(&names, quiet);
    let results = margay_lab::compare::run_all(experiments, prepared, &bars);
    bars.finish();
    Ok(results.into_iter().collect::<Result<_, _>>()?)
}

pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    let (args, given) = Given::complete(args, &args.file)?;
    output::check(&args.output)?;
    let Comparison { experiments, prepared, left_out } =
        Comparison::new(&args.settings, args.many.seeds, args.many.all, &Sources::default())?;
    given.save("compare")?;
    if !left_out.is_empty() {
        eprintln!("left out, because the device has too little spare room for their streams: {}", left_out.join(", "));
    }
    let outcomes = run_all(&experiments, &prepared, args.many.jobs, args.output.quiet)?;
    output::write_outcomes(&args.output, &outcomes, |outcomes| runs::comparison(outcomes, args.many.all))?;
    if let Some(path) = &args.output.plot {
        run_plots::comparison(path, args.output.force.existing(), &outcomes)?;
    }
    Ok(())
}
