//! The options of `margay advise`.

use super::grid::GridArgs;
use super::{ForceArg, OutputFormat};
use clap::Args;
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
pub struct AdviseArgs {
    #[command(flatten)]
    pub grid: GridArgs,
    /// How many years the flash is to last
    #[arg(long, value_name = "YEARS")]
    pub years: f64,
    /// How much the host writes in a day, in bytes or as 500M, 20G [default: what the times of the source say]
    #[arg(long, value_name = "SIZE")]
    pub per_day: Option<String>,
    /// Number of seeds of the last runs, where chance is at work [default: 5]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: Option<u32>,
    /// Keep finished runs in this file, and take those that it holds
    #[arg(long, value_name = "FILE")]
    pub points: Option<PathBuf>,
    /// Number of threads [default: all cores]
    #[arg(long, short = 'j')]
    pub jobs: Option<usize>,
    /// Format of the answer: table is plain words, json has every figure [default: table]
    #[arg(long, short = 'f', value_enum)]
    pub format: Option<OutputFormat>,
    /// Write the answer to this file instead of standard output
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub force: ForceArg,
    /// Show no progress bars
    #[arg(long, short = 'q')]
    pub quiet: bool,
}
