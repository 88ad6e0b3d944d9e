//! `margay reproduce`.

use super::ForceArg;
use clap::Subcommand;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum ReproduceCommand {
    /// The Flash Memory Server study (Chiang and Chang 1999): tables 4 and 6, figures 12 to 18
    Fms {
        /// Number of seeds for each cell
        #[arg(long, default_value_t = 8)]
        seeds: u32,
        /// Folder for the tables (.csv) and plots (.svg)
        #[arg(long, default_value = "out/fms")]
        folder: PathBuf,
        /// The HP trace for figures 14 to 17 [default: hplajw-1week.srt.zst in $MARGAY_TRACES or ../shared/traces]
        #[arg(long, value_name = "FILE")]
        hp_trace: Option<PathBuf>,
        /// Run only the tables with published bounds, not the figures
        #[arg(long)]
        tables_only: bool,
        #[command(flatten)]
        force: ForceArg,
        /// Show no progress bars
        #[arg(long, short = 'q')]
        quiet: bool,
    },
    /// The MODA study of page allocation in file systems (Baek et al. 2007): table 1, figures 3, 4, 9 to 11
    Moda {
        /// Number of seeds for each cell
        #[arg(long, default_value_t = 5)]
        seeds: u32,
        /// Folder for the tables (.csv) and plots (.svg)
        #[arg(long, default_value = "out/moda")]
        folder: PathBuf,
        /// Run only what has published numbers
        #[arg(long)]
        tables_only: bool,
        #[command(flatten)]
        force: ForceArg,
        /// Show no progress bars
        #[arg(long, short = 'q')]
        quiet: bool,
    },
    /// The LDA-GC study of paging on flash (2010): figures 5 to 14, table IV
    LdaGc {
        /// A trace of page references; may be repeated [default: those in $MARGAY_TRACES/vm or ../shared/traces/vm, else samples/sort.vmt.zst]
        #[arg(long = "trace", value_name = "FILE")]
        traces: Vec<PathBuf>,
        /// Size of the page cache [default: 4M, or 1M for samples/sort.vmt.zst]
        #[arg(long, value_name = "SIZE")]
        cache: Option<String>,
        /// Count the handing over of pages from the cache to flash in merges, 50 us for each, as I/O time
        #[arg(long)]
        count_handover: bool,
        /// Folder for the tables (.csv) and plots (.svg)
        #[arg(long, default_value = "out/lda-gc")]
        folder: PathBuf,
        /// Run only the comparison of the schemes, not the sweeps of parameters
        #[arg(long)]
        tables_only: bool,
        #[command(flatten)]
        force: ForceArg,
        /// Show no progress bars
        #[arg(long, short = 'q')]
        quiet: bool,
    },
}
