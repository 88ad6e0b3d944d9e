//! The command line: what each command takes, and what `--help` and the manual pages say of it.

mod advise;
mod disk;
mod experiment;
mod files;
mod grid;
mod paging;
mod repair;
mod reproduce;
mod run;
mod trace;

pub use advise::AdviseArgs;
pub use disk::{FormatArgs, GeometryArgs, ReadLimitArg, ServeArgs, exported_pages};

pub use experiment::{FileArgs, Given};
pub use files::{FsCommand, FsPolicyArgs, MountArgs};
pub use paging::{VmCommand, VmReplayArgs, VmRunArgs};
pub use repair::RepairArgs;
pub use reproduce::ReproduceCommand;
pub use run::{CompareArgs, Engine, GenerateArgs, ReplayArgs, SweepArgs};
pub use trace::TraceCommand;

use crate::failure::Failure;
use clap::{Args, Parser, Subcommand, ValueEnum};
use margay_host::Existing;
use margay_lab::lists::ListOf;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Run raw flash memory as a disk, a file system or swap space, and measure what its cleaning policies cost.
///
/// A disk: `margay format flash.img`, then `margay serve flash.img` (NBD).
///
/// A file system: `margay fs format files.img`, then `margay mount files.img /mnt` (FUSE).
///
/// Memory: `margay vm run --ram 16M -- PROGRAM` runs a program with most of its heap on flash.
///
/// Measurement: `margay compare TRACE` replays a trace under every pair of policies and says which one to choose;
/// `margay sweep` crosses any options.
///
/// Exit codes: 0 success; 1 the run failed or a result could not be written; 2 an unknown name or an impossible
/// value; 3 an input file cannot be read or is damaged; 130 interrupted by the user.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Format a file as a flash device that holds a disk; `margay serve` is the next step
    Format(FormatArgs),
    /// Serve the disks on flash images over NBD, until a signal arrives
    Serve(ServeArgs),
    /// Mount the file system on a flash image, until it is unmounted or a signal arrives
    Mount(MountArgs),
    /// Work with file systems on flash images: format, inspect and change them without mounting
    #[command(subcommand)]
    Fs(FsCommand),
    /// Show the geometry, policies, wear, streams and write amplification of a disk's image
    Info {
        /// The flash image, made by `margay format`
        image: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Recompute the state of a disk from every segment, compare it with the checkpoint, and read every page. The exit
    /// code is 1 if anything is wrong; nothing is changed, unless a repair is asked for
    Check {
        /// The flash image, made by `margay format`
        image: PathBuf,
        #[command(flatten)]
        repair: RepairArgs,
    },
    /// Print what is on flash: one line for each segment, or one for each page of a segment
    Dump {
        /// The flash image, made by `margay format`
        image: PathBuf,
        /// Print the pages of this segment; segments are numbered from 0
        #[arg(long)]
        segment: Option<u32>,
    },
    /// Replay a trace or workload on a device under one set of policies, and report what it costs
    Replay(ReplayArgs),
    /// Replay a trace or workload under many policies, on all cores, and mark the best
    Compare(CompareArgs),
    /// Replay with every value of every option crossed with every value of the others, on all cores
    ///
    /// Every option of `margay replay` takes several values here: a list with commas, a range FROM..TO:STEP with both ends (or
    /// FROM..TO:*FACTOR), or the option repeated.
    ///
    /// `margay sweep random --over-provisioning 0.07..0.28:0.03 -s greedy,cat --seeds 5 -o op.csv`
    ///
    /// Finished points are kept in a file beside the output (its name with .points) and never run again: started anew after
    /// ctrl-C, a crash or a full disk, the sweep goes on, and with more values it runs those that are new. The output has its
    /// name only when all points are finished.
    ///
    /// With `--engine dask` the points are run on a cluster of Dask, by the Python package margay (docs/python-cluster.md). Files
    /// and rows are the same.
    Sweep(SweepArgs),
    /// Say which policies and how much over-provisioning make the flash last, what each step costs, and how certain that is
    ///
    /// `margay advise trace.csv --device nand-mlc --years 5`
    ///
    /// `margay advise hot-cold:90/10 --device spi-nor-16mb --per-day 2G --years 10 --over-provisioning 0.07..0.28:0.07`
    ///
    /// The usual policies are tried in short runs at two over-provisionings, the best of them at all, with other parameters
    /// and with leveling; what is then the best is run until it has settled, with several seeds where chance is at work.
    /// The answer can be no, or that it is not certain. Options are those of `margay replay`; --selection, --placement
    /// and --over-provisioning narrow the search and take lists and ranges.
    Advise(AdviseArgs),
    /// Write a generated workload as a trace file
    Generate(GenerateArgs),
    /// Inspect, convert, print and capture traces
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Use flash as swap space: replay page references, or run a program with its heap on flash
    #[command(subcommand)]
    Vm(VmCommand),
    /// List the policies, workloads, trace formats and devices, with their parameters and sources
    Policies {
        /// Print only this list
        #[arg(value_enum)]
        what: Option<ListOf>,
        /// Print the lists as Markdown: docs/policies.md
        #[arg(long)]
        markdown: bool,
    },
    /// Reproduce published results, and compare them with the measured ones
    #[command(subcommand)]
    Reproduce(ReproduceCommand),
    /// Evaluate a closed formula of cleaning cost: `margay model greedy alpha=1.1 b=64`
    Model {
        /// The name of the model; without it, all models are listed
        name: Option<String>,
        /// The parameters of the model as key=value; op=, spare= or rho= can stand in for alpha=, and idle=3/1024 takes segments off that are open or kept free
        values: Vec<String>,
    },
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    Man {
        /// The folder for the pages; it is created
        folder: PathBuf,
        #[command(flatten)]
        force: ForceArg,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputFormat {
    /// A table for people
    #[default]
    Table,
    /// One object for each run, with its time series
    Json,
    /// One row for each run
    Csv,
    /// One row for each run, as a binary file: use --output
    Parquet,
}

/// Whether files that exist are replaced.
#[derive(Clone, Copy, Debug, Default, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct ForceArg {
    /// Replace a file that exists already; without this, nothing is overwritten
    #[arg(long)]
    force: bool,
}

impl ForceArg {
    /// What is done with a file that exists.
    pub fn existing(self) -> Existing {
        if self.force { Existing::Replace } else { Existing::Refuse }
    }
}

/// Where results go.
#[derive(Clone, Debug, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct OutputArgs {
    /// Format of the result [default: table]
    #[arg(long, short = 'f', value_enum)]
    pub format: Option<OutputFormat>,
    /// Write the result to this file instead of standard output
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Also draw a plot, to a file that ends in .svg or .png
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    #[command(flatten)]
    #[serde(flatten)]
    pub force: ForceArg,
    /// Show no progress bars
    #[arg(long, short = 'q')]
    pub quiet: bool,
}

/// The number of bytes that a size such as `24M`, `1.5GiB` or `4096` stands for; its letters are binary multiples. `option` names it
/// in an error.
///
/// # Errors
///
/// The text is no number with K, M, G or T behind it, or less than a byte, or 10^18 bytes or more.
pub fn bytes(option: &'static str, text: &str) -> Result<u64, Failure> {
    Ok(margay_lab::settings::size_bytes(option, text)?)
}
