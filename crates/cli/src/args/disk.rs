//! `margay format` and `margay serve`.

use super::{ForceArg, bytes};
use crate::failure::Failure;
use clap::Args;
use margay_policy::{LevelingSpec, PlacementSpec, SelectionSpec};
use std::path::PathBuf;

/// Policies, by the names of `margay policies`.
#[derive(Clone, Debug, Default, Args)]
pub struct PolicyArgs {
    /// Selection policy: which segment is cleaned next [default: lifetime; cost-benefit with the map on flash; or as formatted]
    #[arg(long, short = 's', value_name = "POLICY")]
    pub selection: Option<SelectionSpec>,
    /// Placement policy: which stream a page goes to [default: lifetime; sepgc with the map on flash; or as formatted]
    #[arg(long, short = 'p', value_name = "POLICY")]
    pub placement: Option<PlacementSpec>,
    /// Leveling policy: how erase counts are kept close [default: threshold, or as formatted]
    #[arg(long, value_name = "POLICY")]
    pub leveling: Option<LevelingSpec>,
    /// Maximum number of pages programmed for one host write [default: 16, or as formatted]
    #[arg(long, alias = "most-pages-per-write", value_name = "PAGES", value_parser = clap::value_parser!(u32).range(2..=65536))]
    pub max_pages_per_write: Option<u32>,
    /// Range of the disk, in bytes, that holds data that is hardly ever written, as START+LENGTH (0+16M); may be repeated
    #[arg(long, value_name = "RANGE", value_parser = range)]
    pub read_only_range: Vec<(u64, u64)>,
}

/// When a segment that is read very often is rewritten.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct ReadLimitArg {
    /// Rewrite a segment in idle time after so many reads of its pages since it was erased, because reading wears on what is beside (read disturb); 0 for never. Counted from each start [default: 100000 on a NAND chip; 0 on NOR, on an image, and while --record is on]
    #[arg(long, value_name = "READS")]
    pub max_segment_reads: Option<u32>,
}

impl PolicyArgs {
    /// The read-only ranges as first page and number of pages; a page that is only partly in a range counts.
    pub fn page_ranges(&self, page_bytes: u32) -> Vec<(u32, u32)> {
        let page = u64::from(page_bytes);
        let pages = |(start, len): &(u64, u64)| {
            let (first, end) = (start / page, (start + len).div_ceil(page));
            (first.min(u64::from(u32::MAX)) as u32, (end - first).min(u64::from(u32::MAX)) as u32)
        };
        self.read_only_range.iter().map(pages).collect()
    }
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let parts = text.split_once('+').ok_or("expected START+LENGTH, for instance 0+16M")?;
    let number = |text: &str| if text == "0" { Ok(0) } else { bytes("size", text).map_err(|error| error.to_string()) };
    let (start, len) = (number(parts.0)?, number(parts.1)?);
    start.checked_add(len).map(|_| (start, len)).ok_or_else(|| "past the end of any disk".into())
}

/// A file, and the geometry of the flash device that it becomes.
#[derive(Clone, Debug, Args)]
pub struct GeometryArgs {
    /// Device preset or .toml file (see `margay policies devices`), instead of the options below
    #[arg(long, short = 'd')]
    pub device: Option<String>,
    /// Size of the flash, as 64M or 1G [default: 64M, or that of the device]
    #[arg(long)]
    pub size: Option<String>,
    /// Number of pages in a segment [default: 64]
    #[arg(long, conflicts_with = "device", value_name = "PAGES")]
    pub pages_per_segment: Option<u32>,
    /// Size of a page in bytes [default: 4096]
    #[arg(long, conflicts_with = "device", value_name = "BYTES")]
    pub page_bytes: Option<u32>,
    /// Usable bytes in the spare area of each page (NAND); with fewer than 64 the policies know less after a power cut, with fewer than 32 see --pair-pages [default: 256]
    #[arg(long, conflicts_with_all = ["device", "nor"], value_name = "BYTES")]
    pub spare_bytes: Option<u32>,
    /// Make a device that is programmed byte by byte and has no spare area (NOR)
    #[arg(long, conflicts_with = "device")]
    pub nor: bool,
    /// Accept half the capacity on a device with neither 32 usable spare bytes a page nor byte-by-byte programming: every second page holds the information on the page before it
    #[arg(long)]
    pub pair_pages: bool,
    /// Number of erases that a segment endures, as its maker says, for what `margay info` says of the life that is left [default: that of the device preset]
    #[arg(long, value_name = "ERASES", value_parser = clap::value_parser!(u32).range(1..))]
    pub endurance: Option<u32>,
    /// Format a file that is a flash image already, as it is or with the options above, or a chip that is not erased; all data on it is lost
    #[arg(long)]
    pub force: bool,
    /// Make the image even if the host's disk has less room than the whole of it: it takes room as it is written, and writes fail once the disk is full
    #[arg(long)]
    pub sparse: bool,
}

impl GeometryArgs {
    /// Whether anything is said of the geometry.
    pub fn is_given(&self) -> bool {
        let numbers = [self.pages_per_segment, self.page_bytes, self.spare_bytes];
        self.device.is_some() || self.size.is_some() || self.nor || numbers.iter().any(Option::is_some)
    }
}

/// Format a file, or a chip of raw flash, as a device that holds a disk.
#[derive(Clone, Debug, Args)]
pub struct FormatArgs {
    /// The flash image, which is created and has its name when it is complete; or a chip of raw flash (/dev/mtd0)
    pub image: PathBuf,
    #[command(flatten)]
    pub flash: GeometryArgs,
    /// Capacity of the disk, in bytes (48M) or as a share of the flash (75%) [default: 90%]
    #[arg(long)]
    pub export: Option<String>,
    /// Cleaning starts when fewer segments than this are free, 2 at least. With fewer than the default more pages can be programmed for a write than --max-pages-per-write says [default: one more than the placement fills at a time, at most 8]
    #[arg(long, value_name = "SEGMENTS", value_parser = clap::value_parser!(u32).range(2..))]
    pub low_water: Option<u32>,
    /// Cleaning stops when this many segments are free [default: the low-water mark]
    #[arg(long, value_name = "SEGMENTS")]
    pub high_water: Option<u32>,
    /// Keep the map on flash and only so many bytes of it in memory (4M), for a disk whose map would take too much: it is 8 bytes for each page of the flash. Costs reads and writes; versions that cannot read such a disk say so [default: all of it in memory]
    #[arg(long, value_name = "BYTES")]
    pub map_memory: Option<String>,
    #[command(flatten)]
    pub policies: PolicyArgs,
}

/// Serve the disks on flash images over NBD.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// The flash image or chip (/dev/mtd0) of the default export, formatted by `margay format`
    #[arg(required_unless_present = "export")]
    pub image: Option<PathBuf>,
    /// Another export, as NAME=FILE; may be repeated
    #[arg(long, short = 'e', value_name = "NAME=FILE", value_parser = named)]
    pub export: Vec<(String, PathBuf)>,
    /// TCP address to listen on [default: 127.0.0.1:10809]
    #[arg(long, short = 'l', value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Unix socket to listen on
    #[arg(long, short = 'U', value_name = "PATH", conflicts_with = "listen")]
    pub unix: Option<PathBuf>,
    /// Listen on the socket that systemd passes (socket activation)
    #[arg(long, conflicts_with_all = ["listen", "unix"])]
    pub systemd: bool,
    /// Run a shell command with the URI of the export in $uri, and stop serving when it ends
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["listen", "systemd"])]
    pub run: Option<String>,
    /// Serve read-only: nothing is written to the images
    #[arg(long, short = 'r')]
    pub read_only: bool,
    #[command(flatten)]
    pub read_limit: ReadLimitArg,
    /// Record the requests to the default export, and all else that is done with it, as a trace that `margay replay` reads (.mgt); `margay replay --as-served` does the day again
    #[arg(long, value_name = "TRACE")]
    pub record: Option<PathBuf>,
    /// Go on with the recording of an earlier start, which is replaced when the server stops
    #[arg(long, requires = "record", conflicts_with = "force")]
    pub append: bool,
    /// Do not clean in advance while no client wants anything
    #[arg(long)]
    pub no_idle_cleaning: bool,
    #[command(flatten)]
    pub force: ForceArg,
    /// Offer TLS, with server-cert.pem and server-key.pem from this folder
    #[arg(long, value_name = "FOLDER")]
    pub tls: Option<PathBuf>,
    /// Refuse clients that do not use TLS
    #[arg(long, requires = "tls")]
    pub tls_required: bool,
    /// Refuse clients without a certificate signed by ca-cert.pem of that folder, and so all that do not use TLS
    #[arg(long, requires = "tls")]
    pub tls_verify_clients: bool,
    /// Maximum number of connections at one time; further clients wait, and a connection that has made no progress for a
    /// second in its handshake, in sending a request or in taking replies makes room for them
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub max_connections: u32,
    /// Maximum number of unanswered requests of a connection
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub max_requests: u32,
    /// Maximum of memory for data that clients have sent or have not yet taken, all connections together, as bytes or with
    /// K, M, G; three quarters of it are shared out in advance, so that each connection is sure of its part
    #[arg(long, default_value = "256M", value_name = "SIZE", value_parser = size)]
    pub max_memory: u64,
    /// The same for one connection; nothing is read from a connection that has no more
    #[arg(long, default_value = "16M", value_name = "SIZE", value_parser = size)]
    pub max_connection_memory: u64,
    /// Disconnect a client that has not completed its handshake after this time
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub handshake_timeout: u64,
    /// Disconnect a client that has begun a request and does not go on with it, or takes none of its replies, for this time
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub client_timeout: u64,
    /// On a flush, do not wait until the image is on disk: flushed data may be lost when this machine loses power, though
    /// not when the server alone is killed
    #[arg(long)]
    pub no_sync: bool,
    /// Log connections too
    #[arg(long, short = 'v')]
    pub verbose: bool,
    #[command(flatten)]
    pub policies: PolicyArgs,
}

fn size(text: &str) -> Result<u64, String> {
    bytes("size", text).map_err(|failure| failure.to_string())
}

fn named(text: &str) -> Result<(String, PathBuf), String> {
    let (name, file) = text.split_once('=').ok_or("expected NAME=FILE")?;
    Ok((name.into(), file.into()))
}

/// The number of pages in a capacity that is given in bytes (`48M`) or as a share of the flash (`75%`).
pub fn exported_pages(text: &str, flash_bytes: u64, page_bytes: u32) -> Result<u32, Failure> {
    let wanted = match text.strip_suffix('%') {
        None => bytes("--export", text)?,
        Some(percent) => {
            let share = percent.trim().parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 100.0);
            let problem = || Failure::Usage(format!("export '{text}': a share is over 0 and at most 100 %"));
            (share.ok_or_else(problem)? / 100.0 * flash_bytes as f64) as u64
        }
    };
    let pages = wanted / u64::from(page_bytes);
    u32::try_from(pages)
        .ok()
        .filter(|pages| *pages > 0)
        .ok_or_else(|| Failure::Usage(format!("export '{text}': from one page of {page_bytes} bytes to 2^32 pages")))
}
