//! Results for people and machines. A file comes into being whole or not at all ([`NewFile`]).

pub mod figure;
mod names;
pub mod page;
pub mod paging;
pub mod parquet;
pub mod plot;
pub mod records;
pub mod report;
pub mod run_plots;
pub mod runs;
pub mod study;
mod tables;
pub mod tenants;

pub use names::shown;
pub use tables::wrapped_at;

use crate::args::{OutputArgs, OutputFormat};
use crate::failure::Failure;
use margay_host::{Existing, NewFile};
use margay_lab::Outcome;
use std::io::Write;
use std::path::Path;

/// Writes to standard output.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Writes a line to standard output.
pub fn print_line(line: &str) -> Result<(), Failure> {
    print_bytes(format!("{line}\n").as_bytes())
}

/// Writes a file completely or not at all, in a folder that is created if need be; a pipe or device is written to
/// directly.
pub fn write_file(path: &Path, bytes: &[u8], existing: Existing) -> Result<(), Failure> {
    let write = || -> std::io::Result<()> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)?;
        }
        let mut file = NewFile::create(path, existing)?;
        file.write_all(bytes)?;
        file.commit()
    };
    write().map_err(|error| Failure::new_file(path, &error))
}

/// Refuses a file that could not be written later, before anything is run.
pub fn check_new(path: Option<&Path>, existing: Existing) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    NewFile::check(path, existing).map_err(|error| Failure::new_file(path, &error))
}

/// Writes a result to a file, or to standard output.
pub fn write(path: Option<&Path>, bytes: &[u8], existing: Existing) -> Result<(), Failure> {
    match path {
        Some(path) => write_file(path, bytes, existing),
        None => print_bytes(bytes),
    }
}

/// Writes the outcomes of runs as the options ask for; `table` makes the text for people.
pub fn write_outcomes(
    args: &OutputArgs,
    outcomes: &[Outcome],
    table: impl FnOnce(&[Outcome]) -> String,
) -> Result<(), Failure> {
    let bytes = match args.format.unwrap_or_default() {
        OutputFormat::Table => table(outcomes).into_bytes(),
        OutputFormat::Json => margay_lab::rows::runs_as_json(outcomes)?.into_bytes(),
        OutputFormat::Csv => records::csv(outcomes)?,
        OutputFormat::Parquet => records::parquet(outcomes)?,
    };
    write(args.output.as_deref(), &bytes, args.force.existing())
}

/// Refuses to print what is no text, before anything is run.
pub fn check_format(format: OutputFormat, path: Option<&Path>) -> Result<(), Failure> {
    if format == OutputFormat::Parquet && path.is_none() {
        return Err(Failure::Usage("--format parquet needs --output FILE, because it is no text".into()));
    }
    Ok(())
}

/// Checks where results are to go, so that a wrong name is refused before anything is run.
pub fn check(args: &OutputArgs) -> Result<(), Failure> {
    let existing = args.force.existing();
    check_format(args.format.unwrap_or_default(), args.output.as_deref())?;
    check_new(args.output.as_deref(), existing)?;
    check_new(args.plot.as_deref(), existing)?;
    check_plot(args.plot.as_deref())
}

/// Checks the file name of a plot, so that a wrong one is refused before anything is run.
pub fn check_plot(path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg" | "png") => Ok(()),
        _ => Err(Failure::Usage(format!("--plot {}: expected a file name that ends in .svg or .png", path.display()))),
    }
}
