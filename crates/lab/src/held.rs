//! What a program holds, and settings name: traces in memory, beside those of files, and policies, beside those of the tables.

use crate::own::OwnPolicies;
use margay_trace::{ReadOptions, TraceReader};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A trace that a program holds in memory. What `Debug` prints has to name its content: finished points of sweeps go by it.
pub trait HeldTrace: fmt::Debug + Send + Sync {
    /// Its name in results.
    fn name(&self) -> &str;

    /// xxh3 of its requests, 16 hexadecimal digits.
    fn xxh3(&self) -> &str;

    /// Reads it from its first request on.
    fn open(&self, options: &ReadOptions) -> TraceReader;
}

/// Traces in memory, by the texts that name them as a source, and policies of the program's own.
#[derive(Clone, Debug, Default)]
pub struct HeldTraces {
    traces: Arc<BTreeMap<String, Arc<dyn HeldTrace>>>,
    /// The policies.
    pub policies: OwnPolicies,
}

impl HeldTraces {
    /// These traces.
    pub fn new(traces: BTreeMap<String, Arc<dyn HeldTrace>>) -> Self {
        Self { traces: Arc::new(traces), policies: OwnPolicies::default() }
    }

    /// The same, and these policies.
    pub fn with_policies(self, policies: OwnPolicies) -> Self {
        Self { policies, ..self }
    }

    /// The trace that is named so.
    pub fn get(&self, source: &str) -> Option<Arc<dyn HeldTrace>> {
        self.traces.get(source).cloned()
    }
}

impl PartialEq for HeldTraces {
    /// Whether they are of the same names.
    fn eq(&self, other: &Self) -> bool {
        self.traces.keys().eq(other.traces.keys()) && self.policies == other.policies
    }
}
