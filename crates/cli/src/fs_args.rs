//! The command lines of the file system.

use crate::volume_args::GeometryArgs;
use clap::{Args, Subcommand};
use margay_fs::AllocatorSpec;
use margay_policy::{LevelingSpec, SelectionSpec};
use std::path::PathBuf;

/// Policies, by the names of `margay policies`.
#[derive(Clone, Debug, Default, Args)]
pub struct FsPolicyArgs {
    /// Allocator: which stream a page goes to [default: predictive, or as formatted]
    #[arg(long, short = 'a')]
    pub allocator: Option<AllocatorSpec>,
    /// Selection policy: which segment is cleaned [default: cost-benefit, or as formatted]
    #[arg(long, short = 's')]
    pub selection: Option<SelectionSpec>,
    /// Leveling policy [default: threshold, or as formatted]
    #[arg(long)]
    pub leveling: Option<LevelingSpec>,
    /// Most pages programmed for one page that is written [default: 16, or as formatted]
    #[arg(long, value_name = "PAGES", value_parser = clap::value_parser!(u32).range(2..=65536))]
    pub most_pages_per_write: Option<u32>,
}

/// Mount a flash image that holds a file system.
#[derive(Clone, Debug, Args)]
pub struct MountArgs {
    /// The flash image
    pub image: PathBuf,
    /// The directory to mount it on
    pub folder: PathBuf,
    /// Nothing is written
    #[arg(long, short = 'r')]
    pub read_only: bool,
    /// Other users may use it too (needs root, or user_allow_other in /etc/fuse.conf)
    #[arg(long)]
    pub allow_other: bool,
    /// Seconds after which new names, sizes and times are on flash without a sync
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub commit: u64,
    /// A file that is written anew at every commit with metrics, in Prometheus' text format
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Do not wait for the disk below on a sync: what was synced may be lost when this machine loses its power
    #[arg(long)]
    pub no_sync: bool,
    /// Write although headers of objects cannot be read: what they stood for is given up
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
    /// Format a file as a flash device that holds a file system
    Format {
        /// The file; it is created
        image: PathBuf,
        #[command(flatten)]
        flash: Box<GeometryArgs>,
        /// Cleaning starts when fewer segments are free
        #[arg(long, default_value_t = 2)]
        low_water: u32,
        /// Cleaning stops when so many segments are free [default: the low-water mark]
        #[arg(long)]
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
        /// Everything below it too
        #[arg(long, short = 'R')]
        recursive: bool,
    },
    /// Copy a file out of an image, to a file or to standard output
    Get {
        /// The flash image
        image: PathBuf,
        /// The file in it
        path: String,
        /// The file to write [default: standard output]
        to: Option<PathBuf>,
    },
    /// Copy a file, or a directory with all in it, into an image
    Put {
        /// The flash image
        image: PathBuf,
        /// The file or directory
        from: PathBuf,
        /// Its path in the image [default: its name in the root directory]
        path: Option<String>,
    },
    /// Make a directory
    Mkdir {
        /// The flash image
        image: PathBuf,
        /// The directory
        path: String,
    },
    /// Remove a file, or a directory
    Rm {
        /// The flash image
        image: PathBuf,
        /// The file or directory in it
        path: String,
        /// Everything in a directory too
        #[arg(long, short = 'r')]
        recursive: bool,
    },
    /// Show what is known of a file, or of the file system
    Stat {
        /// The flash image
        image: PathBuf,
        /// The file; without it, the file system, its state and the cost of cleaning it
        path: Option<String>,
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Read everything in use and compare; repairs nothing. Exit code 1 if anything is wrong
    Check {
        /// The flash image
        image: PathBuf,
    },
    /// Clean every segment with an invalid page, and compare the cost with the model's
    Clean {
        /// The flash image
        image: PathBuf,
    },
    /// The cleaning-cost model: erases, copies, time and energy of cleaning a device (MODA paper, eq. 2 and 3)
    Model {
        /// Utilization: valid pages / pages
        #[arg(short)]
        u: f64,
        /// Invalidity: invalid pages / pages
        #[arg(short)]
        i: f64,
        /// Uniformity: share of segments without valid and invalid pages together
        #[arg(short)]
        p: f64,
        /// The part: its segments, pages and times
        #[arg(long, short = 'd', default_value = "nand-small-block-64mb")]
        device: String,
        /// Segments [default: the device's]
        #[arg(long)]
        segments: Option<u32>,
    },
    /// Run one of the MODA paper's benchmarks, or several (camera+phone), in a directory of any file system
    Bench {
        /// camera, movie, phone, recorder, fax, postmark, andrew, postmark-stock
        benchmark: String,
        /// The directory, perhaps on a mounted image; a new one is made in it
        folder: PathBuf,
        /// Seed
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Leave the files
        #[arg(long)]
        keep: bool,
    },
}
