//! `margay trace`, and how commands read traces.

use super::ForceArg;
use clap::Subcommand;
use margay_lab::Reading;
use margay_trace::Format;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Describe traces: requests, footprint, rewrites, skew, and anything that looks wrong
    Info {
        /// The traces; - is the standard input
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Page size in which footprint and rewrites are counted, in bytes
        #[arg(long, default_value_t = 4096, value_name = "BYTES")]
        page_bytes: u32,
        /// Print one JSON object for each trace
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        reading: Reading,
    },
    /// Convert a trace to another format
    Convert {
        /// The trace to read; - is the standard input
        from: PathBuf,
        /// The trace to write; it is compressed if its name ends in .zst or .gz
        to: PathBuf,
        #[arg(
            long,
            default_value = "mgt",
            value_name = "FORMAT",
            help = format!("Format to write: one of {}", Format::writable_names())
        )]
        to_format: String,
        #[command(flatten)]
        force: ForceArg,
        #[command(flatten)]
        reading: Reading,
    },
    /// Write the requests to each device of a trace to a trace of its own, so that each volume can be run by itself
    ///
    /// The files are NAME.FORMAT in the folder, where what is no letter or digit in a device's name is an underscore. Times of a
    /// file count from its own first request when it is read.
    Split {
        /// The trace to read; - is the standard input, for up to 64 devices
        from: PathBuf,
        /// The folder for the traces; it is created if need be
        folder: PathBuf,
        #[arg(
            long,
            default_value = "mgt",
            value_name = "FORMAT",
            help = format!("Format to write: one of {}", Format::writable_names())
        )]
        to_format: String,
        #[command(flatten)]
        force: ForceArg,
        #[command(flatten)]
        reading: Reading,
    },
    /// Run a program under Valgrind and record the pages that it touches, as a trace (VMT1) for `margay vm replay`
    ///
    /// The trace gets its name when the program has ended by itself, or when there are enough records. If the program is
    /// stopped before, by ctrl-C or any other signal, what was recorded until then is in a file whose name ends in
    /// .partial, and the exit code is not 0.
    Capture {
        /// The trace to write; it is compressed if its name ends in .zst
        #[arg(long, short = 'o', default_value = "capture.vmt.zst", value_name = "FILE")]
        output: PathBuf,
        #[command(flatten)]
        force: ForceArg,
        /// Page size in bytes: 2048 or 4096
        #[arg(long, default_value_t = 2048, value_name = "BYTES")]
        page_bytes: u32,
        /// Record data accesses only, not instruction fetches
        #[arg(long)]
        no_fetches: bool,
        /// Record an access only if its page is not among this many records before it
        #[arg(long, default_value_t = 64, value_name = "RECORDS")]
        reduce: u16,
        /// Stop the program after this many records; 0 sets no limit
        #[arg(long, default_value_t = 0, value_name = "RECORDS")]
        records: u64,
        /// Show no progress
        #[arg(long, short = 'q')]
        quiet: bool,
        /// The program and its arguments, after --
        #[arg(last = true, required = true)]
        program: Vec<std::ffi::OsString>,
    },
    /// Print the first requests of a trace
    Head {
        /// The trace; - is the standard input
        file: PathBuf,
        /// How many requests to print
        #[arg(long, short = 'n', default_value_t = 10)]
        count: u64,
        #[command(flatten)]
        reading: Reading,
    },
}
