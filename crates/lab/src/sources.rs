//! Traces that were read, for several runs.

use crate::LabError;
use crate::experiment::TraceSource;
use crate::ops::{TraceFacts, read_trace};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

type Slot = Arc<Mutex<Option<TraceFacts>>>;

/// Keeps the last traces that were read, so that runs that share one do not read its file again. Who wants a trace that
/// another thread reads waits for it.
#[derive(Debug)]
pub struct Sources {
    keep: usize,
    slots: Mutex<VecDeque<(String, Slot)>>,
}

impl Sources {
    /// Keeps up to this many traces in memory, those of running experiments apart.
    pub fn new(keep: usize) -> Self {
        Self { keep: keep.max(1), slots: Mutex::default() }
    }

    fn slot(&self, key: String) -> Slot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, slot)) = slots.iter().find(|(other, _)| *other == key) {
            return Arc::clone(slot);
        }
        while slots.len() >= self.keep {
            slots.pop_front();
        }
        let slot = Slot::default();
        slots.push_back((key, Arc::clone(&slot)));
        slot
    }

    /// The trace, read now or before.
    pub(crate) fn read(
        &self,
        source: &TraceSource,
        page_bytes: u32,
        exported_pages: Option<u32>,
    ) -> Result<TraceFacts, LabError> {
        let slot = self.slot(format!("{source:?}, {page_bytes}, {exported_pages:?}"));
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(facts) = &*slot {
            return Ok(facts.clone());
        }
        let facts = read_trace(source, page_bytes, exported_pages)?;
        *slot = Some(facts.clone());
        Ok(facts)
    }
}

impl Default for Sources {
    fn default() -> Self {
        Self::new(1)
    }
}
