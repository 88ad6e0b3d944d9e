//! The command line, and experiment files with the same keys.

use crate::failure::Failure;
pub use crate::fs_args::{FsCommand, MountArgs};
pub use crate::vm_args::VmCommand;
pub use crate::volume_args::{FormatArgs, ServeArgs};
use clap::{Args, Parser, Subcommand, ValueEnum};
use margay_lab::{AddressChoice, Capacity, DeviceSpec, Experiment, Limit, Source, TraceSource};
use margay_trace::{BadLines, CsvLayout, Format, OpenOptions};
use margay_workload::WorkloadSpec;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Flash memory management, measured and run by the same code.
///
/// Exit codes: 0 done; 1 the run stopped short or a result could not be written; 2 an unknown name or an
/// impossible value; 3 an input file cannot be read; 130 stopped by the user.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Format a file as a flash device that holds a disk
    Format(FormatArgs),
    /// Serve flash images as disks over NBD, until a signal comes
    Serve(ServeArgs),
    /// Mount a flash image that holds a file system, until it is unmounted or a signal comes
    Mount(MountArgs),
    /// Format, look into and change file systems on flash images without mounting them
    #[command(subcommand)]
    Fs(FsCommand),
    /// Show what a flash image is, its wear, streams and write amplification
    Info {
        /// The flash image
        image: PathBuf,
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Recompute everything from what is on flash and compare; repairs nothing. Exit code 1 if anything is wrong
    Check {
        /// The flash image
        image: PathBuf,
    },
    /// Print what is on flash: a line for each segment, or the pages of one
    Dump {
        /// The flash image
        image: PathBuf,
        /// The pages of this segment
        #[arg(long)]
        segment: Option<u32>,
    },
    /// Replay a workload or trace on a device under one set of policies, and say what it costs
    Replay(ReplayArgs),
    /// Replay a workload or trace under many policies, on all cores, and mark the best
    Compare(CompareArgs),
    /// Write a generated workload as a trace
    Generate(GenerateArgs),
    /// Look into, convert and print traces
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Flash as swap space: replay page references, run programs on it
    #[command(subcommand)]
    Vm(VmCommand),
    /// List policies, workloads, trace formats and devices with their parameters and sources
    Policies {
        /// Only this list
        #[arg(value_enum)]
        what: Option<ListOf>,
        /// Print the Markdown of docs/policies.md
        #[arg(long)]
        markdown: bool,
    },
    /// Reproduce published results
    #[command(subcommand)]
    Reproduce(ReproduceCommand),
    /// Evaluate a closed form: `margay model greedy alpha=1.1 b=64`; without a name, list them
    Model {
        /// The model
        name: Option<String>,
        /// Its parameters as key=value; op=, spare= or rho= may stand for alpha
        values: Vec<String>,
    },
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages into a folder
    Man {
        /// The folder
        folder: PathBuf,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListOf {
    Selection,
    Placement,
    Leveling,
    Allocators,
    Schemes,
    Mappings,
    Replacements,
    Workloads,
    Traces,
    Devices,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputFormat {
    /// For people
    #[default]
    Table,
    /// One object with everything, series included
    Json,
    /// One row per run
    Csv,
    /// One row per run
    Parquet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Addresses {
    /// As they are; past the device is an error
    Direct,
    /// Modulo the exported capacity, as the papers did
    Fold,
    /// Numbered in the order of first write
    Compact,
}

/// The device, the source and how far to run. Every option can stand in a TOML file (--experiment) under the
/// same name; the command line wins.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct SetupArgs {
    /// A trace file, or a workload such as `random` or `hot-cold:90/10,writes=100000` (see `margay policies workloads`), or a workload .toml
    pub source: Option<String>,
    /// TOML file with any of these options
    #[arg(long, short = 'e', value_name = "FILE")]
    #[serde(skip)]
    pub experiment: Option<PathBuf>,
    /// Device preset or .toml file (see `margay policies devices`) [default: ideal-1gb, sized from a trace]
    #[arg(long, short = 'd')]
    pub device: Option<String>,
    /// Size the device by what the trace writes, at the utilization asked for
    #[arg(long)]
    pub size_from_trace: bool,
    /// Capacity of the flash, in bytes or as 24M, 64G
    #[arg(long)]
    pub flash_size: Option<String>,
    /// Pages in a segment, metadata pages included
    #[arg(long)]
    pub pages_per_segment: Option<u32>,
    /// Bytes in a page
    #[arg(long)]
    pub page_bytes: Option<u32>,
    /// Metadata pages at the start of each segment
    #[arg(long)]
    pub header_pages: Option<u32>,
    /// Metadata pages at the end of each segment
    #[arg(long)]
    pub summary_pages: Option<u32>,
    /// Segments that are never used for data
    #[arg(long)]
    pub reserved_segments: Option<u32>,
    /// Exported pages / data pages [default: 0.9]
    #[arg(long, conflicts_with_all = ["over_provisioning", "exported_pages"])]
    pub utilization: Option<f64>,
    /// Data pages / exported pages - 1
    #[arg(long, conflicts_with = "exported_pages")]
    pub over_provisioning: Option<f64>,
    /// Exported pages
    #[arg(long)]
    pub exported_pages: Option<u32>,
    /// Share of the exported pages written before the run [default: 1]
    #[arg(long)]
    pub fill: Option<f64>,
    /// Cleaning starts below so many free segments [default: 3]
    #[arg(long)]
    pub low_water: Option<u32>,
    /// Cleaning stops at so many free segments [default: the low-water mark]
    #[arg(long)]
    pub high_water: Option<u32>,
    /// Most pages programmed for one host write: clean as `margay serve` does, in step with the writes [default: clean when a segment is opened, as the FMS papers]
    #[arg(long)]
    pub most_pages_per_write: Option<u32>,
    /// Give data that the workload never writes segments of its own
    #[arg(long)]
    pub separate_read_only: bool,
    /// Leveling policy [default: none]
    #[arg(long)]
    pub leveling: Option<String>,
    /// Stop after so many host page writes, starting the source over as often as needed
    #[arg(long, conflicts_with_all = ["device_writes", "repeat"])]
    pub writes: Option<u64>,
    /// Stop when the host has written the exported capacity so many times [default for endless workloads: 10]
    #[arg(long, conflicts_with = "repeat")]
    pub device_writes: Option<f64>,
    /// Run the source so many times
    #[arg(long)]
    pub repeat: Option<u32>,
    /// Share of the run that the warm window leaves out at the start [default: 0.5]
    #[arg(long)]
    pub warm_up: Option<f64>,
    /// The share of segments whose wearing out is forecast beside the first [default: 0.1]
    #[arg(long)]
    pub worn_share: Option<f64>,
    /// Seed of workload and policies [default: 1]
    #[arg(long)]
    pub seed: Option<u64>,
    /// How trace addresses become pages [default: fold; compact when sized from the trace]
    #[arg(long, value_enum)]
    pub addresses: Option<Addresses>,
    #[command(flatten)]
    #[serde(flatten)]
    pub reading: ReadingArgs,
}

/// How a trace is read.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct ReadingArgs {
    /// Trace format, if not detected (see `margay policies traces`)
    #[arg(long)]
    pub trace_format: Option<String>,
    /// TOML file that names the columns of a CSV trace
    #[arg(long, value_name = "FILE")]
    pub csv_layout: Option<PathBuf>,
    /// Only these devices of the trace
    #[arg(long, value_delimiter = ',')]
    pub trace_device: Option<Vec<u32>>,
    /// Count bad lines and go on instead of stopping at the first
    #[arg(long)]
    pub skip_bad_lines: bool,
    /// With --skip-bad-lines, the most that are skipped
    #[arg(long, requires = "skip_bad_lines")]
    pub bad_line_limit: Option<u64>,
}

/// Where results go.
#[derive(Clone, Debug, Default, Args)]
pub struct OutputArgs {
    /// Form of the result
    #[arg(long, short = 'f', value_enum, default_value_t)]
    pub format: OutputFormat,
    /// File for the result instead of the terminal
    #[arg(long, short = 'o')]
    pub output: Option<PathBuf>,
    /// Write a plot, .svg or .png
    #[arg(long)]
    pub plot: Option<PathBuf>,
    /// No progress bars
    #[arg(long, short = 'q')]
    pub quiet: bool,
}

#[derive(Debug, Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    pub setup: SetupArgs,
    /// Selection policy
    #[arg(long, short = 's', default_value = "greedy")]
    pub selection: String,
    /// Placement policy
    #[arg(long, short = 'p', default_value = "m1")]
    pub placement: String,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    #[command(flatten)]
    pub setup: SetupArgs,
    /// Selection policies (repeat the option; all of them by default)
    #[arg(long, short = 's')]
    pub selection: Vec<String>,
    /// Placement policies (repeat the option; all of them by default)
    #[arg(long, short = 'p')]
    pub placement: Vec<String>,
    /// Run each pair with so many seeds, from --seed on; the table shows means
    #[arg(long, default_value_t = 1)]
    pub seeds: u32,
    /// Threads [default: all cores]
    #[arg(long, short = 'j')]
    pub jobs: Option<usize>,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// The workload, with writes=N
    pub workload: String,
    /// The trace file to write
    pub to: PathBuf,
    /// Format: mgt, fio, msr or csv
    #[arg(long, default_value = "mgt")]
    pub format: String,
    /// Pages of the address space
    #[arg(long, default_value_t = 65536)]
    pub pages: u32,
    /// Bytes in a page
    #[arg(long, default_value_t = 4096)]
    pub page_bytes: u32,
    /// Seed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Say what traces hold: requests, footprint, rewrites, skew, and what looks wrong
    Info {
        /// The traces
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Page size for footprint and rewrites, in bytes
        #[arg(long, default_value_t = 4096)]
        page_bytes: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        reading: ReadingArgs,
    },
    /// Read a trace and write it in another format
    Convert {
        /// The trace to read
        from: PathBuf,
        /// The trace to write
        to: PathBuf,
        /// Format to write: mgt, fio, msr or csv
        #[arg(long, default_value = "mgt")]
        to_format: String,
        #[command(flatten)]
        reading: ReadingArgs,
    },
    /// Run a program under Valgrind and write the pages it touches as a trace (VMT1) while it runs
    Capture {
        /// The trace to write; compressed if it ends in .zst
        #[arg(long, short = 'o', default_value = "capture.vmt.zst")]
        output: PathBuf,
        /// Bytes in a page: 2048 or 4096
        #[arg(long, default_value_t = 2048)]
        page_bytes: u32,
        /// Leave out instruction fetches
        #[arg(long)]
        no_fetches: bool,
        /// Leave out a touch of a page that is among so many records before it
        #[arg(long, default_value_t = 64)]
        reduce: u16,
        /// End the program after so many records; 0 for never
        #[arg(long, default_value_t = 0)]
        records: u64,
        /// No progress
        #[arg(long, short = 'q')]
        quiet: bool,
        /// The program and its arguments, after --
        #[arg(last = true, required = true)]
        program: Vec<std::ffi::OsString>,
    },
    /// Print the first requests
    Head {
        /// The trace
        file: PathBuf,
        /// How many
        #[arg(long, short = 'n', default_value_t = 10)]
        count: u64,
        #[command(flatten)]
        reading: ReadingArgs,
    },
}

#[derive(Debug, Subcommand)]
pub enum ReproduceCommand {
    /// The Flash Memory Server study (Chiang and Chang 1999): tables 4 and 6, figures 12 to 18
    Fms {
        /// Seeds per cell
        #[arg(long, default_value_t = 8)]
        seeds: u32,
        /// Folder for tables (.csv) and plots (.svg)
        #[arg(long, default_value = "out/fms")]
        folder: PathBuf,
        /// The HP trace for figure 14 to 17 [default: looked for in ../shared/traces]
        #[arg(long)]
        hp_trace: Option<PathBuf>,
        /// Only the tables with published bounds, not the figures
        #[arg(long)]
        tables_only: bool,
        /// No progress bars
        #[arg(long, short = 'q')]
        quiet: bool,
    },
    /// The MODA study of page allocation in file systems (Baek et al. 2007): table 1, figures 3, 4, 9 to 11
    Moda {
        /// Seeds per cell
        #[arg(long, default_value_t = 5)]
        seeds: u32,
        /// Folder for tables (.csv) and plots (.svg)
        #[arg(long, default_value = "out/moda")]
        folder: PathBuf,
        /// Only what has published figures
        #[arg(long)]
        tables_only: bool,
        /// No progress bars
        #[arg(long, short = 'q')]
        quiet: bool,
    },
    /// The LDA-GC study of paging on flash (2010): figures 5 to 14, table IV
    LdaGc {
        /// Traces of page references [default: those in ../shared/traces/vm, else samples/sort.vmt.zst]
        #[arg(long = "trace")]
        traces: Vec<PathBuf>,
        /// The page cache [default: 4M; 1M for samples/sort.vmt.zst]
        #[arg(long)]
        cache: Option<String>,
        /// Folder for tables (.csv) and plots (.svg)
        #[arg(long, default_value = "out/lda-gc")]
        folder: PathBuf,
        /// Only the schemes side by side, not the sweeps
        #[arg(long)]
        tables_only: bool,
        /// No progress bars
        #[arg(long, short = 'q')]
        quiet: bool,
    },
}

impl ReadingArgs {
    pub fn options(&self) -> Result<OpenOptions, Failure> {
        let format = self.trace_format.as_deref().map(str::parse::<Format>).transpose()?;
        let csv = match &self.csv_layout {
            None => None,
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
                let layout = CsvLayout::from_toml(&text);
                Some(layout.map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?)
            }
        };
        let bad_lines =
            if self.skip_bad_lines { BadLines::Skip { limit: self.bad_line_limit } } else { BadLines::Stop };
        Ok(OpenOptions { format, bad_lines, csv, devices: self.trace_device.clone() })
    }
}

/// Bytes of `24M`, `1.5GiB`, `4096`; the letters are binary multiples.
pub fn bytes(text: &str) -> Result<u64, Failure> {
    let wanted = || Failure::Usage(format!("size '{text}': expected bytes, or a number with K, M, G or T"));
    let trimmed = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[trimmed.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wanted()),
    };
    let value: f64 = trimmed.parse().map_err(|_| wanted())?;
    let bytes = value * (1u64 << unit) as f64;
    if bytes.is_finite() && (1.0..1e18).contains(&bytes) { Ok(bytes as u64) } else { Err(wanted()) }
}

impl SetupArgs {
    /// What the file of `--experiment` says where the command line says nothing.
    fn merged(mut self) -> Result<Self, Failure> {
        let Some(path) = self.experiment.clone() else { return Ok(self) };
        let input = |error: String| Failure::Input(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| input(error.to_string()))?;
        let table: toml::Table = toml::from_str(&text).map_err(|error| input(error.to_string()))?;
        let known = Self::keys();
        if let Some(key) = table.keys().find(|key| !known.contains(key)) {
            return Err(input(format!("unknown key '{key}'; the known ones are {}", known.join(", "))));
        }
        let file: Self = toml::from_str(&text).map_err(|error| input(error.to_string()))?;
        let capacity_given =
            [self.utilization.is_some(), self.over_provisioning.is_some(), self.exported_pages.is_some()];
        let limit_given = [self.writes.is_some(), self.device_writes.is_some(), self.repeat.is_some()];
        if !capacity_given.contains(&true) {
            self.utilization = file.utilization;
            self.over_provisioning = file.over_provisioning;
            self.exported_pages = file.exported_pages;
        }
        if !limit_given.contains(&true) {
            self.writes = file.writes;
            self.device_writes = file.device_writes;
            self.repeat = file.repeat;
        }
        Ok(Self {
            source: self.source.or(file.source),
            experiment: None,
            device: self.device.or(file.device),
            size_from_trace: self.size_from_trace || file.size_from_trace,
            flash_size: self.flash_size.or(file.flash_size),
            pages_per_segment: self.pages_per_segment.or(file.pages_per_segment),
            page_bytes: self.page_bytes.or(file.page_bytes),
            header_pages: self.header_pages.or(file.header_pages),
            summary_pages: self.summary_pages.or(file.summary_pages),
            reserved_segments: self.reserved_segments.or(file.reserved_segments),
            fill: self.fill.or(file.fill),
            low_water: self.low_water.or(file.low_water),
            high_water: self.high_water.or(file.high_water),
            most_pages_per_write: self.most_pages_per_write.or(file.most_pages_per_write),
            separate_read_only: self.separate_read_only || file.separate_read_only,
            leveling: self.leveling.or(file.leveling),
            warm_up: self.warm_up.or(file.warm_up),
            worn_share: self.worn_share.or(file.worn_share),
            seed: self.seed.or(file.seed),
            addresses: self.addresses.or(file.addresses),
            reading: ReadingArgs {
                trace_format: self.reading.trace_format.or(file.reading.trace_format),
                csv_layout: self.reading.csv_layout.or(file.reading.csv_layout),
                trace_device: self.reading.trace_device.or(file.reading.trace_device),
                skip_bad_lines: self.reading.skip_bad_lines || file.reading.skip_bad_lines,
                bad_line_limit: self.reading.bad_line_limit.or(file.reading.bad_line_limit),
            },
            ..self
        })
    }

    /// The names of all options, which are the keys of an experiment file.
    fn keys() -> Vec<String> {
        let command = Self::augment_args(clap::Command::new("setup"));
        let long = command.get_arguments().filter_map(|argument| argument.get_long().map(String::from));
        std::iter::once("source".to_string()).chain(long.filter(|name| name != "experiment")).collect()
    }

    fn device(&self) -> Result<DeviceSpec, Failure> {
        let mut device = DeviceSpec::load(self.device.as_deref().unwrap_or("ideal-1gb"))?;
        let bytes_before = device.geometry()?.bytes();
        device.page_bytes = self.page_bytes.unwrap_or(device.page_bytes);
        device.pages_per_segment = self.pages_per_segment.unwrap_or(device.pages_per_segment);
        device.header_pages = self.header_pages.unwrap_or(device.header_pages);
        device.summary_pages = self.summary_pages.unwrap_or(device.summary_pages);
        let size = self.flash_size.as_deref().map(bytes).transpose()?;
        Ok(device.with_bytes(size.unwrap_or(bytes_before))?)
    }

    /// The experiment, with greedy and m1 in place.
    pub fn experiment(self) -> Result<Experiment, Failure> {
        let setup = self.merged()?;
        let Some(text) = setup.source.clone() else {
            let message = "no source: name a trace file or a workload (see `margay policies workloads`)";
            return Err(Failure::Usage(message.into()));
        };
        let is_file = Path::new(&text).is_file() && !text.ends_with(".toml");
        let mut from_trace = setup.size_from_trace;
        let source = if is_file {
            from_trace |= setup.device.is_none() && setup.flash_size.is_none();
            let addresses = match setup.addresses {
                Some(Addresses::Direct) => AddressChoice::Direct,
                Some(Addresses::Compact) => AddressChoice::Compact,
                Some(Addresses::Fold) | None => AddressChoice::Fold,
            };
            Source::Trace(TraceSource { path: text.into(), options: setup.reading.options()?, addresses })
        } else {
            if text.contains('/') && !text.contains(':') && !text.ends_with(".toml") || text.ends_with(".zst") {
                return Err(Failure::Input(format!("{text}: no such file")));
            }
            Source::Workload(WorkloadSpec::load(&text)?)
        };
        let mut experiment = Experiment::new(setup.device()?, source);
        experiment.capacity = match (setup.utilization, setup.over_provisioning, setup.exported_pages) {
            (Some(u), _, _) => Capacity::Utilization(u),
            (_, Some(op), _) => Capacity::OverProvisioning(op),
            (_, _, Some(pages)) => Capacity::Pages(pages),
            _ => Capacity::Utilization(0.9),
        };
        experiment.limit = match (setup.writes, setup.device_writes, setup.repeat) {
            (Some(writes), _, _) => Limit::Writes(writes),
            (_, Some(times), _) if times.is_finite() && times > 0.0 => Limit::DeviceWrites(times),
            (_, Some(times), _) => {
                return Err(Failure::Usage(format!("--device-writes {times}: expected a positive number")));
            }
            (_, _, Some(0)) => return Err(Failure::Usage("--repeat 0: expected at least 1".into())),
            (_, _, Some(times)) => Limit::Times(times),
            _ => match &experiment.source {
                Source::Workload(spec) if spec.expected_writes().is_none() => Limit::DeviceWrites(10.0),
                _ => Limit::Once,
            },
        };
        experiment.fill = setup.fill.unwrap_or(1.0);
        experiment.reserved_segments = setup.reserved_segments.unwrap_or(0);
        experiment.low_water = setup.low_water.unwrap_or(3);
        experiment.high_water = setup.high_water.unwrap_or(experiment.low_water);
        experiment.most_pages_per_write = setup.most_pages_per_write.unwrap_or(0);
        experiment.separate_read_only = setup.separate_read_only;
        experiment.leveling = setup.leveling.as_deref().unwrap_or("none").parse()?;
        experiment.warm_up = setup.warm_up.unwrap_or(0.5);
        experiment.worn_share = setup.worn_share.unwrap_or(0.1);
        experiment.seed = setup.seed.unwrap_or(1);
        if from_trace {
            if setup.pages_per_segment.is_none() && setup.device.is_none() {
                experiment.device.pages_per_segment = 64;
            }
            margay_lab::size_from_trace(&mut experiment)?;
            experiment.device.name = format!("{}, sized from the trace", experiment.device.name);
        }
        Ok(experiment)
    }
}
