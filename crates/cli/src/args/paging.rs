//! `margay vm`.

use super::{ForceArg, OutputFormat};
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use margay_lab::PagingArgs;
use margay_lab::paging_args::values;
use margay_vm::{Scheme, scheme_rows, schemes};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum VmCommand {
    /// Replay page references through a page cache over flash, under one or more cleaning schemes
    Replay(VmReplayArgs),
    /// Run a program with its heap on flash: part of it is cached in RAM, the rest is paged to a flash image
    Run(VmRunArgs),
}

#[derive(Debug, Args)]
pub struct VmRunArgs {
    /// How much of the heap is kept in RAM, of every process by itself
    #[arg(long, default_value = "16M", value_name = "SIZE")]
    pub ram: String,
    /// Maximum size of the heap; a file on disk grows to at most that much and a little more while the program runs
    #[arg(long, default_value = "1G")]
    pub memory: String,
    /// The file for the heap, which only its owner can read; it is removed, unless --keep is given [default: a file without a
    /// name in $TMPDIR or /var/tmp]
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
    /// Keep the file for the heap: a flash image with what the program had in memory
    #[arg(long, requires = "store")]
    pub keep: bool,
    #[command(flatten)]
    pub force: ForceArg,
    /// Number of log blocks
    #[arg(long, default_value_t = 32)]
    pub log_blocks: u32,
    /// Run the programs that the program starts in ordinary memory. Without this each of them has a heap on flash of its own,
    /// with as much RAM
    #[arg(long)]
    pub no_children: bool,
    /// How the store is cleaned
    #[arg(long, short = 's', default_value = "lda-gc5", ignore_case = true, value_parser = running_schemes())]
    pub scheme: Scheme,
    /// Write what it took as JSON to this file
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Print nothing but what the program prints
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// The program and its arguments, after --
    #[arg(last = true, required = true)]
    pub program: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub struct VmReplayArgs {
    #[command(flatten)]
    pub paging: PagingArgs,
    /// Format of the result
    #[arg(long, short = 'f', value_enum, default_value_t)]
    pub format: OutputFormat,
    /// Write the result to this file instead of standard output
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub force: ForceArg,
    /// Show no progress bar
    #[arg(long, short = 'q')]
    pub quiet: bool,
}

/// The schemes, of which the help shows those that the memory of a running program can be paged by. The pager refuses
/// the others with the reason.
fn running_schemes() -> impl TypedValueParser<Value = Scheme> {
    values(scheme_rows().zip(schemes()).map(|(row, scheme)| (row, !scheme.writes_pages_in_use())))
}
