//! Fault campaigns on small devices: power cuts at every program and erase, with every way an operation may be
//! torn, and again at every operation of the recovery; the same on files of a host, which keeps any part of what was
//! not synced; calls that fail for a moment, syncs that fail; segments that go bad at every operation; bit errors.

mod device;
mod enumerate;
mod faults;
mod files;
mod hybrid;
mod hybrid_faults;
mod oracle;
mod pages;
mod power;
mod setup;
mod trouble;
mod unordered;

pub use faults::{bad_segments, bit_errors, kills, metadata_flips, wear_out};
pub use files::{
    FilePolicies, file_bad_segments, file_bit_errors, file_host_power_cuts, file_power_cuts, file_troubles,
    file_wear_out,
};
pub use hybrid::{hybrid_host_power_cuts, hybrid_power_cuts, hybrid_troubles};
pub use hybrid_faults::{
    hybrid_bad_segments, hybrid_bit_errors, hybrid_metadata_flips, hybrid_unreadable_pages, hybrid_wear_out,
};
pub use oracle::{Oracle, content};
pub use power::{disk_troubles, host_power_cuts, power_cuts};
pub use setup::{Chip, Setup, Step, script};

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

/// What a campaign found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Trials that were run.
    pub trials: u64,
    /// Failures: which trial, and what was wrong.
    pub failures: Vec<String>,
    /// What happened in the trials, by kind.
    pub counts: BTreeMap<&'static str, u64>,
    /// Failures by what was wrong, numbers apart.
    pub kinds: BTreeMap<String, u64>,
}

impl Tally {
    pub(crate) fn count(&mut self, result: Result<(), String>, which: impl Fn() -> String) {
        self.trials += 1;
        if let Err(error) = result {
            *self.kinds.entry(without_numbers(&error)).or_default() += 1;
            self.failures.push(format!("{}: {error}", which()));
        }
    }

    pub(crate) fn add(&mut self, kind: &'static str, count: u64) {
        *self.counts.entry(kind).or_default() += count;
    }

    /// Both together.
    pub fn merge(&mut self, other: Self) {
        self.trials += other.trials;
        other.counts.into_iter().for_each(|(kind, count)| self.add(kind, count));
        self.failures.extend(other.failures);
        other.kinds.into_iter().for_each(|(kind, count)| *self.kinds.entry(kind).or_default() += count);
    }
}

/// The same, with a panic for a failure.
pub(crate) fn without_panic(trial: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let result = catch_unwind(AssertUnwindSafe(trial));
    set_hook(hook);
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!("it panics: {}", text.unwrap_or("no message")))
    })
}

/// A text with `#` for each number, up to what is different each time.
fn without_numbers(text: &str) -> String {
    let mut kind = String::new();
    for c in text.split([';', '[']).next().unwrap_or_default().chars().take(160) {
        match c {
            '0'..='9' if kind.ends_with('#') => {}
            '0'..='9' => kind.push('#'),
            c => kind.push(c),
        }
    }
    kind
}
