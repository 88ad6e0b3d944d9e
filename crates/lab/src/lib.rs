//! The laboratory: measures what a workload costs on a device under given policies, with the same engine that stores
//! data.
//!
//! [`Experiment`] says what to run, [`run`] runs it, [`ResultRow`] is the result. [`compare`] runs many experiments on all
//! cores.

pub mod advise;
pub mod compare;
mod disk;
mod error_kind;
mod expected;
mod experiment;
mod files;
mod forecast;
mod future;
mod held;
pub mod lists;
mod model;
mod ops;
mod own;
mod packed;
mod page_level;
mod paging;
#[cfg(feature = "clap")]
pub mod paging_args;
mod placed;
mod reading;
mod recorder;
pub mod reproduce;
mod result;
pub mod rows;
mod run;
mod segment_map;
mod served;
pub mod settings;
mod sources;
mod span;
pub mod statistics;
mod steady;
pub mod summary;
pub mod sweep;
mod tenants;
mod wear;
mod work;

pub use disk::{MeasuredDisk, build_disk};
pub use error_kind::ErrorKind;
pub use experiment::{AddressChoice, Capacity, Experiment, Limit, Source, TraceSource};
pub use files::{FileDevice, FileRow, FileRun, run_benchmark, run_benchmark_while};
pub use forecast::Forecast;
pub use held::{HeldTrace, HeldTraces};
pub use margay_policy::SpecError as PolicyError;
pub use model::{CleaningEstimate, ModelResult, cleaning_estimate, model};
pub use own::{BatchPlacement, OwnPair, OwnPlacement, OwnPolicies, OwnPolicy, OwnSelection, PageBatch, PageKind};
pub use page_level::PageLevel;
pub use paging::{PagingRow, PagingSetup, PagingStore, PagingTrace};
#[cfg(feature = "clap")]
pub use paging_args::PagingArgs;
pub use reading::Reading;
pub use result::{Outcome, ResultRow, SCHEMA_VERSION, Sample};
pub use run::{Prepared, Step, prepare, run, run_prepared, size_from_trace};
pub use segment_map::SegmentMap;
pub use served::{Served, ServedRow, replay_served};
pub use settings::Settings;
pub use sources::Sources;
pub use span::span;
pub use steady::{Mark, WarmWindow};
pub use tenants::TenantRow;
pub use wear::Wear;
pub use work::WorkMeter;

/// Which settings help where the log cannot work on a device.
fn way_out(error: &margay_log::ConfigError) -> &'static str {
    match error {
        margay_log::ConfigError::TooFull { .. } => {
            "; export fewer (utilization, over-provisioning, exported-pages), or take smaller segments (pages-per-segment)"
        }
        margay_log::ConfigError::TooFewSegments { .. } => {
            "; take more flash (flash-size) or smaller segments (pages-per-segment)"
        }
        _ => "",
    }
}

/// Why an experiment could not be run, or could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A value of the experiment is wrong.
    #[error("{what} = {value}: {problem}")]
    Value {
        /// The value's name.
        what: &'static str,
        /// What it is.
        value: String,
        /// What is wrong with the value, and what would be right.
        problem: String,
    },
    /// A setting is not of the kind that its key wants.
    #[error("{key} = {value}: {problem}")]
    Setting {
        /// The key.
        key: String,
        /// What it is.
        value: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A point of a sweep is impossible.
    #[error("the point {point}: {error}")]
    Point {
        /// What sets it apart.
        point: String,
        /// What is wrong.
        error: Box<LabError>,
    },
    /// A point of a sweep failed on another machine.
    #[error("{text}")]
    Elsewhere {
        /// What kind of fault it is.
        kind: ErrorKind,
        /// What went wrong, and what to do.
        text: String,
    },
    /// Nothing says what to run.
    #[error("no source: name a trace file or a workload (see `margay policies workloads`)")]
    NoSource,
    /// The device is not known, or cannot be built.
    #[error(transparent)]
    Device(#[from] margay_media::DeviceError),
    /// The log cannot work on the device.
    #[error("{error}{way_out}", error = .0, way_out = way_out(.0))]
    Config(#[from] margay_log::ConfigError),
    /// A policy's text cannot be parsed.
    #[error(transparent)]
    Policy(#[from] margay_policy::SpecError),
    /// The workload is wrong.
    #[error(transparent)]
    Workload(#[from] margay_workload::WorkloadError),
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] margay_trace::TraceError),
    /// A recording of a served disk cannot be done again.
    #[error("{path}: {problem}")]
    Recording {
        /// The file.
        path: String,
        /// Why, and what to do.
        problem: String,
    },
    /// The engine stopped with an error.
    #[error("stopped after {writes} host writes: {error}")]
    Stopped {
        /// Host page writes done.
        writes: u64,
        /// The error.
        error: margay_ftl::FtlError,
    },
    /// The file system stopped with an error.
    #[error("the file system stopped: {0}")]
    Files(#[from] margay_fs::FsError),
    /// The hybrid-mapped store stopped with an error.
    #[error(transparent)]
    Hybrid(#[from] margay_hybrid::HybridError),
    /// The log stopped with an error.
    #[error(transparent)]
    Log(#[from] margay_log::LogError),
    /// A closed form of the theory has no value for the arguments.
    #[error(transparent)]
    Theory(#[from] margay_theory::TheoryError),
    /// A policy of the program's own failed.
    #[error("{name}: {error}")]
    OwnPolicy {
        /// The policy.
        name: String,
        /// Why.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The source ended before the requested number of writes.
    #[error("the {what} ended after {done} host page writes of {asked} asked; {advice}")]
    Short {
        /// Workload or trace.
        what: &'static str,
        /// Done.
        done: u64,
        /// Asked.
        asked: u64,
        /// What to do.
        advice: &'static str,
    },
    /// The run was stopped by its observer.
    #[error("stopped by request after {writes} host writes")]
    Interrupted {
        /// Host page writes done.
        writes: u64,
    },
    /// A result cannot be written.
    #[error("{path}: {error}")]
    Write {
        /// Its path.
        path: String,
        /// What went wrong, and what to do.
        error: String,
    },
    /// A file cannot be read or parsed.
    #[error("{path}: {error}")]
    File {
        /// Its path.
        path: String,
        /// What went wrong.
        error: String,
    },
}
