//! Results for people and machines. A file is written under a temporary name and renamed when it is complete.

pub mod paging;
pub mod parquet;
pub mod plot;
pub mod records;
pub mod report;

use crate::args::OutputFormat;
use crate::failure::Failure;
use margay_lab::Outcome;
use std::io::Write;
use std::path::Path;

/// Writes to standard output.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Writes a file completely or not at all; a pipe or device is written to directly.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let write = || -> std::io::Result<()> {
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            let mut special = std::fs::OpenOptions::new().write(true).open(path)?;
            special.write_all(bytes)?;
            return special.flush();
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".margay-");
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = builder.tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    write().map_err(|error| Failure::write(&path.display().to_string(), error))
}

fn write(path: Option<&Path>, bytes: &[u8]) -> Result<(), Failure> {
    match path {
        Some(path) => write_file(path, bytes),
        None => print_bytes(bytes),
    }
}

/// Writes a text to a file, or to standard output.
pub fn write_text(path: Option<&Path>, text: &str) -> Result<(), Failure> {
    write(path, text.as_bytes())
}

/// Writes results in a machine-readable format to a file, or to standard output.
pub fn write_outcomes(path: Option<&Path>, format: OutputFormat, outcomes: &[Outcome]) -> Result<(), Failure> {
    let bytes = match format {
        OutputFormat::Json | OutputFormat::Table => records::json(outcomes)?,
        OutputFormat::Csv => records::csv(outcomes)?,
        OutputFormat::Parquet => {
            if path.is_none() {
                return Err(Failure::Usage("--format parquet needs --output FILE, because it is no text".into()));
            }
            records::parquet(outcomes)?
        }
    };
    write(path, &bytes)
}

/// Checks the file name of a plot, so that a wrong one is refused before anything is run.
pub fn check_plot(path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg" | "png") => Ok(()),
        _ => Err(Failure::Usage(format!("--plot {}: expected a file name that ends in .svg or .png", path.display()))),
    }
}
