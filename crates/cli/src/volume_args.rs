//! The command lines of the flash memory server.

use crate::args::bytes;
use crate::failure::Failure;
use clap::Args;
use margay_policy::{LevelingSpec, PlacementSpec, SelectionSpec};
use std::path::PathBuf;

/// Policies, by the names of `margay policies`.
#[derive(Clone, Debug, Default, Args)]
pub struct PolicyArgs {
    /// Selection policy: which segment is cleaned [default: cat, or as formatted]
    #[arg(long, short = 's')]
    pub selection: Option<SelectionSpec>,
    /// Placement policy: which stream a page goes to [default: m6, or as formatted]
    #[arg(long, short = 'p')]
    pub placement: Option<PlacementSpec>,
    /// Leveling policy [default: threshold, or as formatted]
    #[arg(long)]
    pub leveling: Option<LevelingSpec>,
    /// Most pages programmed for one host write [default: 16, or as formatted]
    #[arg(long, value_name = "PAGES", value_parser = clap::value_parser!(u32).range(2..=65536))]
    pub most_pages_per_write: Option<u32>,
    /// Bytes of the disk that hold read-only data, as START+LENGTH (0+16M); may be given several times
    #[arg(long, value_name = "RANGE", value_parser = range)]
    pub read_only_range: Vec<(u64, u64)>,
}

impl PolicyArgs {
    /// Read-only ranges in whole pages.
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
    let number = |text: &str| if text == "0" { Ok(0) } else { bytes(text).map_err(|error| error.to_string()) };
    let (start, len) = (number(parts.0)?, number(parts.1)?);
    start.checked_add(len).map(|_| (start, len)).ok_or_else(|| "past the end of any disk".into())
}

/// A file and the shape of the flash device in it.
#[derive(Clone, Debug, Args)]
pub struct GeometryArgs {
    /// Device preset or .toml file (see `margay policies devices`), instead of the options below
    #[arg(long, short = 'd')]
    pub device: Option<String>,
    /// Bytes of flash, as 64M or 1G [default: 64M, or the device's]
    #[arg(long)]
    pub size: Option<String>,
    /// Pages in a segment [default: 64]
    #[arg(long, conflicts_with = "device")]
    pub pages_per_segment: Option<u32>,
    /// Bytes in a page [default: 4096]
    #[arg(long, conflicts_with = "device")]
    pub page_bytes: Option<u32>,
    /// Usable bytes of the spare area of a page (NAND) [default: 256]; under 64, pages are used in pairs
    #[arg(long, conflicts_with_all = ["device", "nor"])]
    pub spare_bytes: Option<u32>,
    /// The device is programmed byte by byte (NOR): it has no spare area
    #[arg(long, conflicts_with = "device")]
    pub nor: bool,
    /// Format a file that is a flash image already; all that is on it is lost
    #[arg(long)]
    pub force: bool,
}

/// Format a file as a flash device that holds a disk.
#[derive(Clone, Debug, Args)]
pub struct FormatArgs {
    /// The file; it is created
    pub image: PathBuf,
    #[command(flatten)]
    pub flash: GeometryArgs,
    /// Capacity of the disk, in bytes (48M) or as a share of the flash (75%) [default: 90%]
    #[arg(long)]
    pub export: Option<String>,
    /// Cleaning starts when fewer segments are free
    #[arg(long, default_value_t = 2)]
    pub low_water: u32,
    /// Cleaning stops when so many segments are free [default: the low-water mark]
    #[arg(long)]
    pub high_water: Option<u32>,
    #[command(flatten)]
    pub policies: PolicyArgs,
}

/// Serve flash images as disks over NBD.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// The flash image of the default export
    #[arg(required_unless_present = "export")]
    pub image: Option<PathBuf>,
    /// Another export, as NAME=FILE; may be given several times
    #[arg(long, short = 'e', value_name = "NAME=FILE", value_parser = named)]
    pub export: Vec<(String, PathBuf)>,
    /// TCP address [default: 127.0.0.1:10809]
    #[arg(long, short = 'l', value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Unix socket
    #[arg(long, short = 'U', value_name = "PATH", conflicts_with = "listen")]
    pub unix: Option<PathBuf>,
    /// Take the socket that systemd passes (socket activation)
    #[arg(long, conflicts_with_all = ["listen", "unix"])]
    pub systemd: bool,
    /// Run a shell command with the export's URI in $uri, on a socket of its own, and end with it
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["listen", "systemd"])]
    pub run: Option<String>,
    /// Nothing is written
    #[arg(long, short = 'r')]
    pub read_only: bool,
    /// Record the requests to the default export as a trace that `margay replay` reads (.mgt)
    #[arg(long, value_name = "TRACE")]
    pub record: Option<PathBuf>,
    /// Folder with server-cert.pem and server-key.pem: offer TLS
    #[arg(long, value_name = "FOLDER")]
    pub tls: Option<PathBuf>,
    /// Refuse clients without TLS
    #[arg(long, requires = "tls")]
    pub tls_required: bool,
    /// Ask clients for a certificate signed by ca-cert.pem of that folder
    #[arg(long, requires = "tls")]
    pub tls_verify_clients: bool,
    /// Most connections at once
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub max_connections: u32,
    /// Most requests of a connection that wait for an answer
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub max_requests: u32,
    /// Do not wait for the disk below on a flush: what was acknowledged may be lost when this machine, not the
    /// server, loses its power
    #[arg(long)]
    pub no_sync: bool,
    /// Log connections too
    #[arg(long, short = 'v')]
    pub verbose: bool,
    #[command(flatten)]
    pub policies: PolicyArgs,
}

fn named(text: &str) -> Result<(String, PathBuf), String> {
    let (name, file) = text.split_once('=').ok_or("expected NAME=FILE")?;
    Ok((name.into(), file.into()))
}

/// Pages of a capacity given in bytes or as a share.
pub fn exported_pages(text: &str, flash_bytes: u64, page_bytes: u32) -> Result<u32, Failure> {
    let wanted = match text.strip_suffix('%') {
        None => bytes(text)?,
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
