//! `margay replay`, `compare`, `sweep` and `generate`.

use super::grid::GridArgs;
use super::{FileArgs, ForceArg, OutputArgs};
use clap::{Args, ValueEnum};
use margay_lab::Settings;
use margay_trace::Format;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A recorded day of a served disk.
#[derive(Clone, Debug, Default, Args)]
pub struct ServedArgs {
    /// The source is a recording of `margay serve --record`: do again what was done with the disk, on the same code and with all that it did in idle time, at its starts and stops; device and policies are those of the disk, and other options have no effect
    #[arg(long)]
    pub as_served: bool,
    /// With --as-served: a copy of the flash image as it was when the recording began [default: as `margay format` made it]
    #[arg(long, value_name = "IMAGE", requires = "as_served")]
    pub from: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct ReplayArgs {
    #[command(flatten)]
    #[serde(skip)]
    pub served: ServedArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub settings: Settings,
    /// Run with this many seeds, from --seed on; the report has means and 95 % intervals [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: Option<u32>,
    /// Number of threads, for several seeds [default: one for each core]
    #[arg(long, short = 'j', value_name = "THREADS")]
    pub jobs: Option<usize>,
    #[command(flatten)]
    #[serde(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    #[serde(skip)]
    pub file: FileArgs,
}

/// How many runs there are, and how many of them are shown.
#[derive(Clone, Debug, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct ManyArgs {
    /// Run everything with this many seeds, from --seed on [default: 5 where workload or policy is random]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: Option<u32>,
    /// Number of threads [default: one for each core]
    #[arg(long, short = 'j', value_name = "THREADS")]
    pub jobs: Option<usize>,
    /// Show all rows of the table, not only the ten best or the first ones; a comparison then also runs the policies that it
    /// leaves out otherwise, and oracles
    #[arg(long)]
    pub all: bool,
}

#[derive(Clone, Debug, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct CompareArgs {
    // All selections and placements are compared if none is named; either may be repeated, or be a list with commas.
    #[command(flatten)]
    #[serde(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    #[serde(flatten)]
    pub many: ManyArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    #[serde(skip)]
    pub file: FileArgs,
}

/// What runs the points of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// The cores of this machine
    #[default]
    Local,
    /// A cluster of Dask, by the Python package margay
    Dask,
}

#[derive(Clone, Debug, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct SweepArgs {
    #[command(flatten)]
    #[serde(skip)]
    pub grid: GridArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub many: ManyArgs,
    /// Run all points anew, those that are finished as well
    #[arg(long)]
    #[serde(skip)]
    pub restart: bool,
    /// What runs the points [default: local]
    #[arg(long, value_enum)]
    pub engine: Option<Engine>,
    /// The scheduler of a cluster of Dask, such as tcp://10.0.0.1:8786, or its file [default: a cluster of this machine]
    #[arg(long, value_name = "ADDRESS")]
    pub scheduler: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    #[serde(skip)]
    pub file: FileArgs,
}

#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// The workload, with writes=N: for instance zipf:0.99,writes=100000 (see `margay policies workloads`)
    pub workload: String,
    /// The trace file to write
    pub to: PathBuf,
    #[command(flatten)]
    pub force: ForceArg,
    #[arg(long, default_value = "mgt", help = format!("Format of the trace: one of {}", Format::writable_names()))]
    pub format: String,
    /// Number of pages in the address space
    #[arg(long, default_value_t = 65536)]
    pub pages: u32,
    /// Size of a page in bytes
    #[arg(long, default_value_t = 4096, value_name = "BYTES")]
    pub page_bytes: u32,
    /// Seed of the workload
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}
