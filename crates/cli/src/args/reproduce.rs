//! `margay reproduce`.

use super::ForceArg;
use clap::Subcommand;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum ReproduceCommand {
    /// The studies of three papers: one HTML page for each, which can be read without it
    All {
        /// Folder for the pages; tables (.csv) and plots (.svg) go to a folder in it for each study
        #[arg(long, short = 'o', value_name = "FOLDER", default_value = "report")]
        output: PathBuf,
        /// Number of seeds for each cell [default: 8 for fms, 5 for moda]
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        seeds: Option<u32>,
        /// The HP trace of fms [default: hplajw-1week.srt.zst in $MARGAY_TRACES or ../shared/traces]
        #[arg(long, value_name = "FILE")]
        hp_trace: Option<PathBuf>,
        /// Number of times that the HP trace is replayed: weeks like it, one after the other
        #[arg(long, default_value_t = 1, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..=1000))]
        hp_passes: u32,
        /// A trace of page references for lda-gc; may be repeated [default: as for lda-gc]
        #[arg(long = "trace", value_name = "FILE")]
        traces: Vec<PathBuf>,
        /// Size of the page cache of lda-gc [default: 4M, or 1M for the trace that travels with the program]
        #[arg(long, value_name = "SIZE")]
        cache: Option<String>,
        /// Count the handing over of pages from the cache to flash in merges, 50 us for each, as I/O time in lda-gc
        #[arg(long)]
        count_handover: bool,
        /// Run only what has published figures
        #[arg(long)]
        tables_only: bool,
        #[command(flatten)]
        force: ForceArg,
        /// Show no progress bars
        #[arg(long, short = 'q')]
        quiet: bool,
    },
    /// The Flash Memory Server study (Chiang and Chang 1999): tables 4 and 6, figures 12 to 18
    Fms {
        /// Number of seeds for each cell
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
        seeds: u32,
        /// Folder for the page (.html), tables (.csv) and plots (.svg)
        #[arg(long, default_value = "out/fms")]
        folder: PathBuf,
        /// The HP trace for figures 14 to 17 [default: hplajw-1week.srt.zst in $MARGAY_TRACES or ../shared/traces]
        #[arg(long, value_name = "FILE")]
        hp_trace: Option<PathBuf>,
        /// Number of times that the HP trace is replayed: weeks like it, one after the other
        #[arg(long, default_value_t = 1, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..=1000))]
        hp_passes: u32,
        /// Run only the tables with published bounds, not the figures
        #[arg(long)]
        tables_only: bool,
        #[command(flatten)]
        force: ForceArg,
        /// Show no progress bars
        #[arg(long, short = 'q')]
        quiet: bool,
    },
    /// The MODA study of page allocation in file systems (Baek et al. 2007): equations 2 and 3, table 1, figures 3, 4, 9 to 11
    Moda {
        /// Number of seeds for each cell
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
        seeds: u32,
        /// Folder for the page (.html), tables (.csv) and plots (.svg)
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
    /// The LDA-GC study of paging on flash (2010): figures 1 to 3 and 5 to 14, table IV
    LdaGc {
        /// A trace of page references; may be repeated [default: those in $MARGAY_TRACES/vm or ../shared/traces/vm, else a small one that travels with the program]
        #[arg(long = "trace", value_name = "FILE")]
        traces: Vec<PathBuf>,
        /// Size of the page cache [default: 4M, or 1M for the trace that travels with the program]
        #[arg(long, value_name = "SIZE")]
        cache: Option<String>,
        /// Count the handing over of pages from the cache to flash in merges, 50 us for each, as I/O time
        #[arg(long)]
        count_handover: bool,
        /// Folder for the page (.html), tables (.csv) and plots (.svg)
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
    /// The league of placements and selections: FEMU's tutorials, SepBIT's synthetic workloads scaled down
    League {
        /// Number of seeds for each cell
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
        seeds: u32,
        /// Folder for the page (.html), tables (.csv) and plots (.svg)
        #[arg(long, default_value = "out/league")]
        folder: PathBuf,
        /// Run only the tables and the skew, not the sweeps of garbage share and segment size
        #[arg(long)]
        tables_only: bool,
        #[command(flatten)]
        force: ForceArg,
        /// Show no progress bars
        #[arg(long, short = 'q')]
        quiet: bool,
    },
}
