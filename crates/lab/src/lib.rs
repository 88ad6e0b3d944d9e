//! The laboratory: measures what a workload costs on a device under given policies, with the same engine that stores
//! data.
//!
//! [`Experiment`] says what to run, [`run`] runs it, [`ResultRow`] is the result. [`compare`] runs many experiments on all
//! cores.

pub mod compare;
mod disk;
mod experiment;
mod files;
mod forecast;
mod ops;
mod packed;
mod page_level;
mod paging;
pub mod reproduce;
mod result;
mod run;
mod tenants;
mod wear;
mod work;

pub use disk::{MeasuredDisk, build_disk};
pub use experiment::{AddressChoice, Capacity, Experiment, Limit, Source, TraceSource};
pub use files::{FileDevice, FileRow, FileRun};
pub use forecast::Forecast;
pub use page_level::PageLevel;
pub use paging::{PagingRow, PagingSetup, PagingStore, PagingTrace};
pub use result::{Outcome, ResultRow, SCHEMA_VERSION, Sample};
pub use run::{Prepared, Step, prepare, run, run_prepared, size_from_trace};
pub use tenants::TenantRow;
pub use wear::Wear;
pub use work::WorkMeter;

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
    /// The device is not known, or cannot be built.
    #[error(transparent)]
    Device(#[from] margay_media::DeviceError),
    /// The log cannot work on the device.
    #[error(transparent)]
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
    /// A file cannot be read or parsed.
    #[error("{path}: {error}")]
    File {
        /// Its path.
        path: String,
        /// What went wrong.
        error: String,
    },
}
