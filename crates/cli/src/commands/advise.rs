use super::progress::SweepBar;
use crate::args::{AdviseArgs, OutputFormat, bytes};
use crate::failure::Failure;
use crate::output::{self, records};
use margay_lab::advise::{Question, advise};
use margay_lab::sweep::Journal;
use std::path::Path;

pub fn run(args: &AdviseArgs) -> Result<(), Failure> {
    let existing = args.force.existing();
    let format = args.format.unwrap_or_default();
    if !matches!(format, OutputFormat::Table | OutputFormat::Json) {
        return Err(Failure::Usage("--format: the answer is plain words (table) or json".into()));
    }
    output::check_new(args.output.as_deref(), existing)?;
    let mut question = Question::new(args.grid.table.clone(), args.years)?;
    let per_day = args.per_day.as_deref().map(|size| bytes("--per-day", size)).transpose()?;
    question.bytes_per_day = per_day.map(|bytes| bytes as f64);
    question.seeds = args.seeds;
    // Runs that nobody wants to keep are kept until the answer is there: a stage takes those of the stage before.
    let mut journal = match &args.points {
        Some(path) => Journal::open(path, false)?,
        None => Journal::without_name()?,
    };
    let threads = args.jobs.unwrap_or_else(rayon::current_num_threads);
    let answer = advise(&question, &mut |points| {
        let bar = SweepBar::new(points, args.quiet);
        let swept = margay_lab::sweep::run(points, &mut journal, threads, &bar);
        bar.finish();
        swept
    });
    let answer = answer.map_err(|error| kept(error.into(), args.points.as_deref()))?;
    let text = match format {
        OutputFormat::Json => records::json(std::slice::from_ref(&answer))?,
        _ => answer.text.into_bytes(),
    };
    output::write(args.output.as_deref(), &text, existing)
}

/// Says of an interruption where to go on.
fn kept(failure: Failure, points: Option<&Path>) -> Failure {
    match (failure, points) {
        (Failure::Interrupted(text), Some(path)) => {
            let path = path.display();
            Failure::Interrupted(format!("{text}; finished runs are kept in {path}: the same command goes on"))
        }
        (Failure::Interrupted(text), None) => {
            Failure::Interrupted(format!("{text}; with --points FILE finished runs are kept for the next time"))
        }
        (failure, _) => failure,
    }
}
