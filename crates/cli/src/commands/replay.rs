use super::compare::{run_all, with_seeds};
use super::progress;
use crate::args::{Given, ReplayArgs};
use crate::failure::Failure;
use crate::output::{self, run_plots, runs};
use margay_lab::Sources;
use std::sync::atomic::Ordering;

pub fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let (args, given) = Given::complete(args, &args.file)?;
    output::check(&args.output)?;
    let (experiment, prepared) = args.settings.prepare(&Sources::default())?;
    given.save("replay")?;
    let seeds = args.seeds.unwrap_or(1);
    let outcomes = if seeds > 1 {
        run_all(&with_seeds(&experiment, Some(seeds)), &prepared, args.jobs, args.output.quiet)?
    } else {
        let bar = progress::bar(args.output.quiet);
        let interrupted = progress::interrupt_flag();
        let outcome = margay_lab::run_prepared(&experiment, &prepared, &mut |step| {
            progress::show(&bar, step);
            !interrupted.load(Ordering::Relaxed)
        });
        bar.finish_and_clear();
        vec![outcome?]
    };
    output::write_outcomes(&args.output, &outcomes, runs::replay)?;
    if let (Some(path), Some(first)) = (&args.output.plot, outcomes.first()) {
        run_plots::replay(path, args.output.force.existing(), first)?;
    }
    Ok(())
}
