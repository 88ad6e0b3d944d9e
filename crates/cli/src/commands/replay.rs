use super::compare::run_all;
use super::progress;
use crate::args::{Given, OutputFormat, ReplayArgs};
use crate::failure::Failure;
use crate::output::{self, records, run_plots, runs, tenants};
use margay_lab::{Served, Sources, replay_served};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::Ordering;

pub fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let of_served = &args.served;
    let (args, given) = Given::complete(args, &args.file)?;
    output::check(&args.output)?;
    if of_served.as_served {
        return served(&args, of_served.from.as_deref());
    }
    let (experiment, prepared) = args.settings.prepare(&Sources::default())?;
    given.save("replay")?;
    let seeds = args.seeds.unwrap_or(1);
    let outcomes = if seeds > 1 {
        run_all(&experiment.with_seeds(Some(seeds)), &prepared, args.jobs, args.output.quiet)?
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
    output::write_outcomes(&args.output, &outcomes, |outcomes| {
        let of_devices = outcomes.first().map_or_else(String::new, |outcome| tenants::table(&outcome.tenants));
        runs::replay(outcomes) + &of_devices
    })?;
    if let (Some(path), Some(first)) = (&args.output.plot, outcomes.first()) {
        run_plots::replay(path, args.output.force.existing(), first)?;
    }
    Ok(())
}

/// Does a recorded day of a served disk again.
fn served(args: &ReplayArgs, from: Option<&Path>) -> Result<(), Failure> {
    let Some(recording) = args.settings.source.as_deref().map(Path::new) else {
        return Err(Failure::Usage("--as-served: name a recording, which `margay serve --record FILE` makes".into()));
    };
    let interrupted = progress::interrupt_flag();
    let mut go_on = |_| !interrupted.load(Ordering::Relaxed);
    let served = replay_served(recording, from, &mut go_on)?;
    let bytes = match args.output.format.unwrap_or_default() {
        OutputFormat::Table => table(&served).into_bytes(),
        OutputFormat::Json => records::json(&served.rows)?,
        OutputFormat::Csv => records::table(&served.rows)?,
        OutputFormat::Parquet => {
            return Err(Failure::Usage("--as-served has no result in Parquet; choose csv or json".into()));
        }
    };
    output::write(args.output.output.as_deref(), &bytes, args.output.force.existing())?;
    match served.rows.iter().find(|row| row.is_as_recorded == Some(false)) {
        Some(row) => Err(Failure::Run(format!(
            "{}: start {} did not do what was recorded; an error of the image's disk or file, which a recording does not have, explains that",
            recording.display(),
            row.start
        ))),
        None => Ok(()),
    }
}

fn table(served: &Served) -> String {
    let mut text = String::new();
    for row in &served.rows {
        let recorded = match row.is_as_recorded {
            Some(true) => "as recorded",
            Some(false) => "NOT as recorded",
            None => "without a stop in the recording",
        };
        let _ = writeln!(
            text,
            "start {}: {} + {}, leveling {}; {recorded}\n  pages written         {}\n  pages copied          {} ({} of them while idle, {} by leveling)\n  metadata pages        {}\n  segments erased       {} ({} of them while idle)",
            row.start,
            row.selection,
            row.placement,
            row.leveling,
            row.host_writes,
            row.copies,
            row.idle_copies,
            row.leveling_copies,
            row.metadata_pages,
            row.erases,
            row.idle_erases,
        );
    }
    if let Some(last) = served.rows.last() {
        let wa = last.wa_since_format.map_or_else(String::new, |wa| format!(", write amplification {wa:.3}"));
        let total = last.since_format;
        let _ = writeln!(
            text,
            "since it was formatted: {} pages written, {} programmed, {} segments erased{wa}",
            total.host_writes, total.programs, total.erases
        );
    }
    text
}
