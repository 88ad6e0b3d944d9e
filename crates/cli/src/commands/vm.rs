use super::progress::interrupt_flag;
use crate::args::OutputFormat;
use crate::args::{VmCommand, VmReplayArgs};
use crate::failure::Failure;
use crate::output::{self, paging, records};
use indicatif::{ProgressBar, ProgressStyle};
use margay_lab::PagingRow;
use std::sync::atomic::Ordering;

pub fn run(command: VmCommand) -> Result<(), Failure> {
    match command {
        VmCommand::Replay(args) => replay(&args),
        VmCommand::Run(args) => super::vm_run::run(&args),
    }
}

fn replay(args: &VmReplayArgs) -> Result<(), Failure> {
    let paging = &args.paging;
    let setups: Vec<_> = paging.schemes().into_iter().map(|scheme| paging.setup(scheme)).collect::<Result<_, _>>()?;
    output::check_format(args.format, args.output.as_deref())?;
    output::check_new(args.output.as_deref(), args.force.existing())?;
    let trace = paging.load()?;
    let stop = interrupt_flag();
    let bar = if args.quiet { ProgressBar::hidden() } else { ProgressBar::new(0) };
    let style = ProgressStyle::with_template("{wide_bar} {human_pos} / {human_len} references, {eta}");
    bar.set_style(style.expect("a correct template"));
    let each = trace.references.len() as u64 * u64::from(paging.passes.max(1));
    bar.set_length(each * setups.len() as u64);
    let mut rows: Vec<PagingRow> = Vec::new();
    for setup in &setups {
        let before = each * rows.len() as u64;
        let mut keep_on = |done| {
            bar.set_position(before + done);
            !stop.load(Ordering::Relaxed)
        };
        rows.push(trace.run(setup, &mut keep_on)?);
    }
    bar.finish_and_clear();
    let bytes = match args.format {
        OutputFormat::Table => paging::table(&trace, &rows).into_bytes(),
        OutputFormat::Json => records::json(&rows)?,
        OutputFormat::Csv => records::table(&rows)?,
        OutputFormat::Parquet => records::parquet_table(&rows)?,
    };
    output::write(args.output.as_deref(), &bytes, args.force.existing())
}
