//! `margay fs` and `margay mount`.

use super::{ForceArg, GeometryArgs, ReadLimitArg, RepairArgs};
use clap::{Args, Subcommand};
use margay_fs::AllocatorSpec;
use margay_policy::{LevelingSpec, SelectionSpec};
use std::path::PathBuf;

/// Policies, by the names of `margay policies`.
#[derive(Clone, Debug, Default, Args)]
pub struct FsPolicyArgs {
    /// Allocator: which stream a page goes to [default: lifetime, or as formatted]
    #[arg(long, short = 'a', value_name = "POLICY")]
    pub allocator: Option<AllocatorSpec>,
    /// Selection policy: which segment is cleaned next [default: lifetime, or as formatted]
    #[arg(long, short = 's', value_name = "POLICY")]
    pub selection: Option<SelectionSpec>,
    /// Leveling policy: how erase counts are kept close [default: threshold, or as formatted]
    #[arg(long, value_name = "POLICY")]
    pub leveling: Option<LevelingSpec>,
    /// Maximum number of pages programmed for one page that is written [default: 16, or as formatted]
    #[arg(long, alias = "most-pages-per-write", value_name = "PAGES", value_parser = clap::value_parser!(u32).range(2..=65536))]
    pub max_pages_per_write: Option<u32>,
}

/// Mount the file system on a flash image.
#[derive(Clone, Debug, Args)]
pub struct MountArgs {
    /// The flash image, made by `margay fs format`
    pub image: PathBuf,
    /// The directory to mount it on
    pub folder: PathBuf,
    /// Mount it read-only: nothing is written to the image
    #[arg(long, short = 'r')]
    pub read_only: bool,
    #[command(flatten)]
    pub read_limit: ReadLimitArg,
    /// Let other users access the mount (needs root, or user_allow_other in /etc/fuse.conf)
    #[arg(long)]
    pub allow_other: bool,
    /// Seconds after which new names, sizes and times are written to flash even without a sync
    #[arg(long, default_value_t = 5, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub commit: u64,
    /// Answer operations on names (create, link, rename, remove) only once they survive a power cut: for programs that
    /// do not sync the directory, such as SQLite with journal mode DELETE
    #[arg(long)]
    pub sync_names: bool,
    /// Write metrics to this file at every commit, in the text format of Prometheus
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// On a sync, do not wait until the image is on disk: synced data may be lost when this machine loses power
    #[arg(long)]
    pub no_sync: bool,
    /// Let the kernel keep what a program writes until it closes or syncs the file, or for half a minute: faster, but if margay
    /// is killed that is lost, and a full device is reported by close or fsync instead of write
    #[arg(long)]
    pub write_back: bool,
    /// Mount for writing even if headers of objects cannot be read; those objects are lost for good
    #[arg(long)]
    pub accept_losses: bool,
    /// Log more
    #[arg(long, short = 'v')]
    pub verbose: bool,
    #[command(flatten)]
    pub policies: FsPolicyArgs,
}

#[derive(Debug, Subcommand)]
pub enum FsCommand {
    /// Format a file as a flash device that holds a file system; `margay mount` is the next step
    Format {
        /// The flash image; it is created, and has its name when it is complete
        image: PathBuf,
        #[command(flatten)]
        flash: Box<GeometryArgs>,
        /// Cleaning starts when fewer segments than this are free
        #[arg(long, default_value_t = 2, value_name = "SEGMENTS")]
        low_water: u32,
        /// Cleaning stops when this many segments are free [default: the low-water mark]
        #[arg(long, value_name = "SEGMENTS")]
        high_water: Option<u32>,
        #[command(flatten)]
        policies: Box<FsPolicyArgs>,
    },
    /// List a directory
    Ls {
        /// The flash image
        image: PathBuf,
        /// The directory, or a file
        #[arg(default_value = "/")]
        path: String,
        /// List everything below it too
        #[arg(long, short = 'R')]
        recursive: bool,
        /// Print names byte by byte as they are; without this, control characters, invisible characters, bytes that are no
        /// UTF-8 and backslashes are escaped (\x1b, \u{202e}, \n, \\)
        #[arg(long)]
        raw: bool,
    },
    /// Copy a file out of the image, to a file or to standard output. If a part of it cannot be read, the target stays as it
    /// was, and the message says which bytes
    Get {
        /// The flash image
        image: PathBuf,
        /// The path of the file in the image
        path: String,
        /// The file to write [default: standard output]
        to: Option<PathBuf>,
        #[command(flatten)]
        force: ForceArg,
    },
    /// Copy a file, or a directory with everything in it, into the image. A file that has the name already is replaced when
    /// all of its successor is on flash, so there has to be room for both
    Put {
        /// The flash image
        image: PathBuf,
        /// The file or directory to copy
        from: PathBuf,
        /// Its path in the image [default: its name, in the root directory]
        path: Option<String>,
    },
    /// Create a directory
    Mkdir {
        /// The flash image
        image: PathBuf,
        /// The path of the directory
        path: String,
    },
    /// Remove a file or a directory
    Rm {
        /// The flash image
        image: PathBuf,
        /// The path of the file or directory
        path: String,
        /// Remove the contents of a directory too
        #[arg(long, short = 'r')]
        recursive: bool,
    },
    /// Show the attributes of a file, or the state of the file system
    Stat {
        /// The flash image
        image: PathBuf,
        /// The path of the file; without it: free space, memory, state, and the cost of cleaning all of it
        path: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Read everything that is in use and check it. The exit code is 1 if anything is wrong; nothing is changed, unless a
    /// repair is asked for
    Check {
        /// The flash image
        image: PathBuf,
        #[command(flatten)]
        repair: RepairArgs,
    },
    /// Clean every segment that has an invalid page, and compare the cost with the estimate of the model
    Clean {
        /// The flash image
        image: PathBuf,
    },
    /// Estimate erases, copies, time and energy of cleaning a device (MODA paper, eq. 2 and 3)
    Model {
        /// Utilization: valid pages / pages
        #[arg(short, value_name = "RATIO")]
        u: f64,
        /// Invalidity: invalid pages / pages
        #[arg(short, value_name = "RATIO")]
        i: f64,
        /// Uniformity: share of the segments that do not hold valid and invalid pages together
        #[arg(short, value_name = "RATIO")]
        p: f64,
        /// Device preset or .toml file, for its geometry and timing (see `margay policies devices`)
        #[arg(long, short = 'd', default_value = "nand-small-block-64mb")]
        device: String,
        /// Number of segments [default: that of the device]
        #[arg(long)]
        segments: Option<u32>,
    },
    /// Run a benchmark of the MODA paper, or several (camera+phone), in a directory of any file system
    Bench {
        /// camera, movie, phone, recorder, fax, postmark, andrew or postmark-stock
        benchmark: String,
        /// The directory, for instance on a mounted image; a new directory is created in it
        folder: PathBuf,
        /// Seed of the benchmark
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Do not delete the files afterwards
        #[arg(long)]
        keep: bool,
    },
}
