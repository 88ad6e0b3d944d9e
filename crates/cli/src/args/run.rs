//! `margay replay`, `compare` and `generate`, and the experiment that their options describe.

use super::experiment::{Addresses, SetupArgs};
use super::{ForceArg, OutputArgs, bytes};
use crate::failure::Failure;
use clap::Args;
use margay_lab::{AddressChoice, Capacity, Experiment, Limit, Prepared, Source, TraceSource};
use margay_media::DeviceSpec;
use margay_trace::Format;
use margay_workload::WorkloadSpec;
use std::path::{Path, PathBuf};

/// A recorded day of a served disk.
#[derive(Clone, Debug, Default, Args)]
pub struct ServedArgs {
    /// The source is a recording of `margay serve --record`: do again what was done with the disk, on the same code and with all that it did in idle time, at its starts and stops; device and policies are those of the disk, and other options have no effect
    #[arg(long)]
    pub as_served: bool,
    /// With --as-served: a copy of the flash image as it was when the recording began [default: as `margay format` made it]
    #[arg(long, value_name = "IMAGE", requires = "as_served")]
    pub from: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    pub served: ServedArgs,
    #[command(flatten)]
    pub setup: SetupArgs,
    /// Selection policy: which segment is cleaned next (see `margay policies selection`)
    #[arg(long, short = 's', default_value = "greedy", value_name = "POLICY")]
    pub selection: String,
    /// Placement policy: which stream a page goes to (see `margay policies placement`)
    #[arg(long, short = 'p', default_value = "m1", value_name = "POLICY")]
    pub placement: String,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    #[command(flatten)]
    pub setup: SetupArgs,
    /// A selection policy; may be repeated [default: all of them]
    #[arg(long, short = 's', value_name = "POLICY")]
    pub selection: Vec<String>,
    /// A placement policy; may be repeated [default: all of them]
    #[arg(long, short = 'p', value_name = "POLICY")]
    pub placement: Vec<String>,
    /// Run each pair of policies with this many seeds, from --seed on; the table shows their means
    #[arg(long, default_value_t = 1)]
    pub seeds: u32,
    /// Number of threads [default: one for each core]
    #[arg(long, short = 'j', value_name = "THREADS")]
    pub jobs: Option<usize>,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// The workload, with writes=N: for instance zipf:0.99,writes=100000 (see `margay policies workloads`)
    pub workload: String,
    /// The trace file to write
    pub to: PathBuf,
    #[command(flatten)]
    pub force: ForceArg,
    #[arg(long, default_value = "mgt", help = format!("Format of the trace: one of {}", Format::writable_names()))]
    pub format: String,
    /// Number of pages in the address space
    #[arg(long, default_value_t = 65536)]
    pub pages: u32,
    /// Size of a page in bytes
    #[arg(long, default_value_t = 4096, value_name = "BYTES")]
    pub page_bytes: u32,
    /// Seed of the workload
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl SetupArgs {
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

    /// The experiment, with greedy and m1 in place, and its source, read.
    pub fn experiment(self) -> Result<(Experiment, Prepared), Failure> {
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
        experiment.max_pages_per_write = setup.max_pages_per_write.unwrap_or(0);
        experiment.separate_read_only = setup.separate_read_only;
        experiment.leveling = setup.leveling.as_deref().unwrap_or("none").parse()?;
        experiment.warm_up = setup.warm_up.unwrap_or(0.5);
        experiment.worn_share = setup.worn_share.unwrap_or(0.1);
        experiment.seed = setup.seed.unwrap_or(1);
        if from_trace {
            if setup.pages_per_segment.is_none() && setup.device.is_none() {
                experiment.device.pages_per_segment = 64;
            }
            let prepared = margay_lab::size_from_trace(&mut experiment)?;
            experiment.device.name = format!("{}, sized from the trace", experiment.device.name);
            return Ok((experiment, prepared));
        }
        let prepared = margay_lab::prepare(&experiment)?;
        Ok((experiment, prepared))
    }
}
