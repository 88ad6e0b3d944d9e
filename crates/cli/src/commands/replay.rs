use super::progress;
use crate::args::ReplayArgs;
use crate::failure::Failure;
use crate::output::{self, plot, report, tenants};
use margay_lab::Experiment;
use std::sync::atomic::Ordering;

pub fn run(args: ReplayArgs) -> Result<(), Failure> {
    output::check(&args.output)?;
    let (selection, placement) = (args.selection.parse()?, args.placement.parse()?);
    let (experiment, prepared) = args.setup.experiment()?;
    let experiment = Experiment { selection, placement, ..experiment };
    let bar = progress::bar(args.output.quiet);
    let interrupted = progress::interrupt_flag();
    let outcome = margay_lab::run_prepared(&experiment, &prepared, &mut |step| {
        progress::show(&bar, step);
        !interrupted.load(Ordering::Relaxed)
    });
    bar.finish_and_clear();
    let outcome = outcome?;
    let outcomes = std::slice::from_ref(&outcome);
    output::write_outcomes(&args.output, outcomes, |outcomes| {
        outcomes.iter().map(|outcome| report::outcome(outcome) + &tenants::table(&outcome.tenants)).collect()
    })?;
    if let Some(path) = &args.output.plot {
        plot::replay(path, args.output.force.existing(), &outcome)?;
    }
    Ok(())
}
