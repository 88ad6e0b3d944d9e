//! What an experiment is, by options or by a TOML file with the same keys.

use super::trace::ReadingArgs;
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Addresses {
    /// Use them as they are; one past the end of the device is an error
    Direct,
    /// Take them modulo the exported capacity, as the papers did
    Fold,
    /// Number the pages in the order of their first write
    Compact,
}

/// The device, the source and how far to run. Every option can stand in a TOML file (--experiment) under the
/// same name; the command line takes precedence.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct SetupArgs {
    /// A trace file, or a workload such as `random` or `hot-cold:90/10,writes=100000` (see `margay policies workloads`), or a .toml file that describes a workload
    pub source: Option<String>,
    /// TOML file with any of these options; options on the command line take precedence
    #[arg(long, short = 'e', value_name = "FILE")]
    #[serde(skip)]
    pub experiment: Option<PathBuf>,
    /// Device: a preset or a .toml file (see `margay policies devices`) [default: ideal-1gb, sized from a trace]
    #[arg(long, short = 'd')]
    pub device: Option<String>,
    /// Size the device by the pages that the trace writes, at the utilization that is asked for
    #[arg(long)]
    pub size_from_trace: bool,
    /// Capacity of the flash, in bytes or as 24M, 64G
    #[arg(long, value_name = "SIZE")]
    pub flash_size: Option<String>,
    /// Number of pages in a segment, metadata pages included
    #[arg(long, value_name = "PAGES")]
    pub pages_per_segment: Option<u32>,
    /// Size of a page in bytes
    #[arg(long, value_name = "BYTES")]
    pub page_bytes: Option<u32>,
    /// Number of metadata pages at the start of each segment
    #[arg(long, value_name = "PAGES")]
    pub header_pages: Option<u32>,
    /// Number of metadata pages at the end of each segment
    #[arg(long, value_name = "PAGES")]
    pub summary_pages: Option<u32>,
    /// Number of segments that are never used for data
    #[arg(long, value_name = "SEGMENTS")]
    pub reserved_segments: Option<u32>,
    /// Utilization: exported pages / data pages [default: 0.9]
    #[arg(long, conflicts_with_all = ["over_provisioning", "exported_pages"], value_name = "RATIO")]
    pub utilization: Option<f64>,
    /// Over-provisioning: data pages / exported pages - 1
    #[arg(long, conflicts_with = "exported_pages", value_name = "RATIO")]
    pub over_provisioning: Option<f64>,
    /// Number of exported pages
    #[arg(long, value_name = "PAGES")]
    pub exported_pages: Option<u32>,
    /// Share of the exported pages that is written before the run [default: 1]
    #[arg(long, value_name = "RATIO")]
    pub fill: Option<f64>,
    /// Cleaning starts when fewer segments than this are free [default: 3]
    #[arg(long, value_name = "SEGMENTS")]
    pub low_water: Option<u32>,
    /// Cleaning stops when this many segments are free [default: the low-water mark]
    #[arg(long, value_name = "SEGMENTS")]
    pub high_water: Option<u32>,
    /// Maximum number of pages programmed for one host write: cleaning then keeps pace with the writes, as in `margay serve` [default: all cleaning is done when a segment is opened, as in the FMS papers]
    #[arg(long, alias = "most-pages-per-write", value_name = "PAGES")]
    #[serde(alias = "most-pages-per-write")]
    pub max_pages_per_write: Option<u32>,
    /// Keep data that the workload never writes in segments of its own
    #[arg(long)]
    pub separate_read_only: bool,
    /// Leveling policy [default: none]
    #[arg(long, value_name = "POLICY")]
    pub leveling: Option<String>,
    /// Stop after this many host page writes; the source starts over as often as needed
    #[arg(long, conflicts_with_all = ["device_writes", "repeat"])]
    pub writes: Option<u64>,
    /// Stop when the host has written this many times the exported capacity [default: 10 for workloads without an end]
    #[arg(long, conflicts_with = "repeat", value_name = "TIMES")]
    pub device_writes: Option<f64>,
    /// Run the source this many times
    #[arg(long, value_name = "TIMES")]
    pub repeat: Option<u32>,
    /// Share of the run, from its start, that the warm window leaves out [default: 0.5]
    #[arg(long, value_name = "RATIO")]
    pub warm_up: Option<f64>,
    /// Also forecast when this share of the segments will be worn out, beside the first one [default: 0.1]
    #[arg(long, value_name = "RATIO")]
    pub worn_share: Option<f64>,
    /// Seed of the workload and of the policies [default: 1]
    #[arg(long)]
    pub seed: Option<u64>,
    /// How addresses of a trace become pages [default: fold, or compact if the device is sized from the trace]
    #[arg(long, value_enum)]
    pub addresses: Option<Addresses>,
    #[command(flatten)]
    #[serde(flatten)]
    pub reading: ReadingArgs,
}

impl SetupArgs {
    /// These options, completed by the file of `--experiment` where the command line does not set them.
    pub fn merged(mut self) -> Result<Self, Failure> {
        let Some(path) = self.experiment.clone() else { return Ok(self) };
        let input = |error: String| Failure::Input(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| input(error.to_string()))?;
        let table: toml::Table = toml::from_str(&text).map_err(|error| input(error.to_string()))?;
        let (known, older) = Self::keys();
        if let Some(key) = table.keys().find(|key| !known.contains(key) && !older.contains(key)) {
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
            max_pages_per_write: self.max_pages_per_write.or(file.max_pages_per_write),
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

    /// The names of all options, which are the keys of an experiment file, and the names that some had in earlier
    /// versions.
    fn keys() -> (Vec<String>, Vec<String>) {
        let command = Self::augment_args(clap::Command::new("setup"));
        let options = || command.get_arguments().filter(|argument| argument.get_id() != "experiment");
        let long = options().filter_map(|argument| argument.get_long().map(String::from));
        let older = options().filter_map(clap::Arg::get_all_aliases).flatten().map(String::from);
        (std::iter::once("source".to_string()).chain(long).collect(), older.collect())
    }
}
