use super::progress;
use crate::args::{OutputFormat, ReplayArgs};
use crate::failure::Failure;
use crate::output::{self, plot, report};
use std::sync::atomic::Ordering;

pub fn run(args: ReplayArgs) -> Result<(), Failure> {
    output::check_plot(args.output.plot.as_deref())?;
    let mut experiment = args.setup.experiment()?;
    experiment.selection = args.selection.parse()?;
    experiment.placement = args.placement.parse()?;
    let bar = progress::bar(args.output.quiet);
    let interrupted = progress::interrupt_flag();
    let outcome = margay_lab::run(&experiment, &mut |step| {
        progress::show(&bar, step);
        !interrupted.load(Ordering::Relaxed)
    });
    bar.finish_and_clear();
    let outcome = outcome?;
    match args.output.format {
        OutputFormat::Table => output::write_text(args.output.output.as_deref(), &report::outcome(&outcome))?,
        format => output::write_outcomes(args.output.output.as_deref(), format, std::slice::from_ref(&outcome))?,
    }
    if let Some(path) = &args.output.plot {
        plot::replay(path, &outcome)?;
    }
    Ok(())
}
