//! Fault campaigns on small devices: power cuts at every program and erase, with every way an operation may be
//! torn, and again at every operation of the recovery; segments that go bad at every operation; bit errors.

mod enumerate;
mod faults;
mod file_script;
mod files;
mod hybrid;
mod hybrid_faults;
mod oracle;
mod power;
mod setup;

pub use faults::{bad_segments, bit_errors, metadata_flips, wear_out};
pub use files::{file_bad_segments, file_bit_errors, file_power_cuts};
pub use hybrid::hybrid_power_cuts;
pub use hybrid_faults::{hybrid_bad_segments, hybrid_bit_errors, hybrid_metadata_flips, hybrid_unreadable_pages};
pub use oracle::{Oracle, content};
pub use power::power_cuts;
pub use setup::{Chip, DiskStep, Setup, script};

/// What a campaign found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Trials that were run.
    pub trials: u64,
    /// Failures: which trial, and what was wrong.
    pub failures: Vec<String>,
}

impl Tally {
    pub(crate) fn count(&mut self, result: Result<(), String>, which: impl Fn() -> String) {
        self.trials += 1;
        if let Err(error) = result {
            self.failures.push(format!("{}: {error}", which()));
        }
    }

    /// Both together.
    pub fn merge(&mut self, other: Self) {
        self.trials += other.trials;
        self.failures.extend(other.failures);
    }
}
