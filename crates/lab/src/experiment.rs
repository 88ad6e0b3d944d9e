use crate::LabError;
use crate::held::HeldTrace;
use crate::own::OwnPair;
use crate::sweep::USUAL_SEEDS;
use margay_log::Config;
use margay_media::DeviceSpec;
use margay_policy::{LevelingSpec, PlacementSpec, SelectionSpec};
use margay_trace::ReadOptions;
use margay_workload::{Arrival, Pattern, WorkloadSpec};
use std::path::PathBuf;
use std::sync::Arc;

/// How much of the device is exported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Capacity {
    /// This number of pages.
    Pages(u32),
    /// This share of the data pages of all segments that are not reserved.
    Utilization(f64),
    /// Over-provisioning: data pages / exported pages - 1.
    OverProvisioning(f64),
    /// This share of the largest number of pages with which cleaning is still possible (see [`Config::limit_pages`]).
    Largest(f64),
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// The source once.
    Once,
    /// The source this many times.
    Times(u32),
    /// This many host page writes; the source starts over as often as needed.
    Writes(u64),
    /// Until the host has written the exported capacity this many times.
    DeviceWrites(f64),
    /// Until write amplification has settled and is known to 1 %, or the host has written the exported capacity this many
    /// times.
    Steady {
        /// The limit; without it 100 times, or 30 passes of a trace, whichever is more.
        max_device_writes: Option<f64>,
    },
}

/// How a trace's addresses become logical pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressChoice {
    /// Unchanged; an address past the end of the device is an error.
    Direct,
    /// Modulo the exported capacity, as the papers folded their traces.
    Fold,
    /// Numbered in the order of first touch.
    Compact,
}

/// A trace to replay.
#[derive(Clone, Debug)]
pub struct TraceSource {
    /// The file, or the name of a trace in memory.
    pub path: PathBuf,
    /// The trace, if it is in memory.
    pub held: Option<Arc<dyn HeldTrace>>,
    /// Format and treatment of bad lines.
    pub options: ReadOptions,
    /// How addresses become pages.
    pub addresses: AddressChoice,
}

/// A source of operations.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // An experiment has one.
pub enum Source {
    /// A generator.
    Workload(WorkloadSpec),
    /// A trace file.
    Trace(TraceSource),
}

impl Source {
    /// The name of the source in tables.
    pub fn name(&self) -> String {
        match self {
            Self::Workload(spec) => spec.to_string(),
            Self::Trace(TraceSource { held: Some(held), .. }) => held.name().into(),
            Self::Trace(trace) => trace.path.file_name().unwrap_or(trace.path.as_os_str()).to_string_lossy().into(),
        }
    }
}

/// One run: a device, policies, a source of operations.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The flash part.
    pub device: DeviceSpec,
    /// Pages exported.
    pub capacity: Capacity,
    /// Share of the exported pages that is written before the run starts.
    pub fill: f64,
    /// Segments never used for data.
    pub reserved_segments: u32,
    /// Cleaning starts when fewer segments than this are free.
    pub low_water: u32,
    /// Cleaning stops when this many segments are free.
    pub high_water: u32,
    /// The greatest number of pages programmed for one host write, as on a disk that margay serves. With 0, all
    /// cleaning is done when a segment is opened, as in the FMS papers.
    pub max_pages_per_write: u32,
    /// Whether read-only data has segments of its own.
    pub separate_read_only: bool,
    /// The selection policy.
    pub selection: SelectionSpec,
    /// The placement policy.
    pub placement: PlacementSpec,
    /// Policies of the program's own, in place of these.
    pub own: OwnPair,
    /// The leveling policy.
    pub leveling: LevelingSpec,
    /// The source of operations.
    pub source: Source,
    /// When the run ends.
    pub limit: Limit,
    /// Share of the run, at its start, that the warm window leaves out. Without it the start of the window is found by
    /// the test MSER-5.
    pub warm_up: Option<f64>,
    /// The forecast says when this share of segments is worn out, besides the first segment.
    pub worn_share: f64,
    /// Seed of workload and policies.
    pub seed: u64,
}

impl Experiment {
    /// A run with the usual choices: 90 % utilization filled once, marks at 3 segments, greedy + m1.
    pub fn new(device: DeviceSpec, source: Source) -> Self {
        Self {
            device,
            capacity: Capacity::Utilization(0.9),
            fill: 1.0,
            reserved_segments: 0,
            low_water: 3,
            high_water: 3,
            max_pages_per_write: 0,
            separate_read_only: false,
            selection: SelectionSpec::default(),
            placement: PlacementSpec::default(),
            own: OwnPair::default(),
            leveling: LevelingSpec::default(),
            source,
            limit: Limit::Once,
            warm_up: None,
            worn_share: 0.1,
            seed: 1,
        }
    }

    /// The configuration of the log.
    pub fn config(&self) -> Config {
        Config {
            reserved_segments: self.reserved_segments,
            lent_segments: 0,
            low_water: self.low_water,
            high_water: self.high_water.max(self.low_water),
            max_pages_per_write: self.max_pages_per_write,
            read_only_stream: self.separate_read_only,
            own_stream: false,
            owners_on_flash: false,
            leveling: self.leveling,
            header_pages: self.device.header_pages,
            summary_pages: self.device.summary_pages,
        }
    }

    /// Data pages of the segments that are not reserved.
    pub fn data_pages(&self) -> Result<u32, LabError> {
        let geometry = self.device.geometry()?;
        let segments = geometry.segments().saturating_sub(self.reserved_segments);
        Ok(segments * self.config().data_pages(&geometry))
    }

    /// Pages exported.
    pub fn exported_pages(&self) -> Result<u32, LabError> {
        // An impossible layout is reported as one, and not as a capacity of 0 pages.
        self.config().limit_pages(&self.device.geometry()?, 1)?;
        let data_pages = f64::from(self.data_pages()?);
        let (what, value, pages) = match self.capacity {
            Capacity::Pages(pages) => ("exported pages", f64::from(pages), f64::from(pages)),
            Capacity::Utilization(u) => ("utilization", u, (u * data_pages).floor()),
            Capacity::OverProvisioning(op) => ("over-provisioning", op, (data_pages / (1.0 + op)).floor()),
            Capacity::Largest(share) => {
                let limit = self.config().limit_pages(&self.device.geometry()?, 8)?;
                ("share of the largest capacity", share, (share * f64::from(limit)).floor())
            }
        };
        if !(pages >= 1.0 && pages <= data_pages) {
            let problem = format!("gives {pages} exported pages; the device has {data_pages} data pages");
            return Err(LabError::Value { what, value: value.to_string(), problem });
        }
        Ok(pages as u32)
    }

    /// The selection as results name it.
    pub fn selection_name(&self) -> String {
        self.own.selection.as_ref().map_or_else(|| self.selection.to_string(), |own| own.name().into())
    }

    /// The placement as results name it.
    pub fn placement_name(&self) -> String {
        self.own.placement.as_ref().map_or_else(|| self.placement.to_string(), |own| own.name().into())
    }

    /// Whether another seed gives another result: the workload is drawn at random, or the selection draws.
    pub fn is_random(&self) -> bool {
        let draws = matches!(self.selection.name(), "random" | "d-choices") || self.placement.name() == "dogi";
        // Nobody knows what a policy of the program's own does with its seed.
        let draws = draws || !self.own.is_none();
        let workload = match &self.source {
            Source::Workload(spec) => spec.pattern != Pattern::Sequential || spec.arrival != Arrival::Asap,
            Source::Trace(_) => false,
        };
        draws || workload
    }

    /// The experiment with so many seeds, from its own on; if that is not said, with several where they make a difference.
    pub fn with_seeds(&self, seeds: Option<u32>) -> Vec<Self> {
        let usual = if self.is_random() { USUAL_SEEDS } else { 1 };
        let more = 0..u64::from(seeds.unwrap_or(usual).max(1));
        more.map(|more| Self { seed: self.seed.wrapping_add(more), ..self.clone() }).collect()
    }

    /// Checks the shares.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        let warm_up = self.warm_up.unwrap_or(0.0);
        for (what, value, below_one) in
            [("fill", self.fill, false), ("worn share", self.worn_share, false), ("warm-up", warm_up, true)]
        {
            if !(0.0..=1.0).contains(&value) || (below_one && value == 1.0) {
                let problem = format!("expected a share from 0 {} 1", if below_one { "up to under" } else { "to" });
                return Err(LabError::Value { what, value: value.to_string(), problem });
            }
        }
        Ok(())
    }
}
