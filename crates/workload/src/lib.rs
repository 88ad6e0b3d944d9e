//! Seeded workload generators: page operations on an exported space.
//!
//! A workload is the same for the same seed on every machine: integers come from Xoshiro256++, and every
//! transcendental function from `libm`.
//!
//! ```
//! use margay_workload::{OpKind, Workload, WorkloadSpec};
//!
//! let spec: WorkloadSpec = "hot-cold:90/10,writes=1000,reads=0.3".parse()?;
//! let mut workload = Workload::new(&spec, 500, 7)?;
//! let mut ops = Vec::new();
//! while workload.next_batch(&mut ops, 64) > 0 {}
//! assert_eq!(ops.iter().filter(|op| op.kind == OpKind::Write).count(), 1000);
//! assert!(ops.iter().all(|op| op.lpn < 500));
//! # Ok::<(), margay_workload::WorkloadError>(())
//! ```

mod error;
mod files;
mod pattern;
mod permutation;
mod registry;
mod running;
mod spec;
mod zipf;

pub use error::WorkloadError;
pub use files::{FileBenchmark, FileMix, FileOp};
pub use permutation::Permutation;
pub use registry::{Info, parameters, patterns};
pub use running::Workload;
pub use spec::{Arrival, HotLayout, Mix, Pattern, SizeClass, WorkloadSpec, Zone};
pub use zipf::Zipf;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// The page is written.
    Write,
    /// The content of the page is no longer needed.
    Trim,
    /// The page is read.
    Read,
}

/// An operation on one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageOp {
    /// Time since the start of the workload, in microseconds; always 0 if the workload has no times.
    pub time_us: u64,
    /// Logical page number.
    pub lpn: u32,
    /// Its kind.
    pub kind: OpKind,
    /// The stream of the host that it belongs to, if that is known: of a trace from its column, of a workload the group of
    /// pages that are accessed alike.
    pub stream: Option<u8>,
}
