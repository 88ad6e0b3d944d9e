//! Policies that a program brings, beside those of the tables of `margay-policy`.

use crate::LabError;
use margay_policy::{Now, Selection, Sizing};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// What selections and placements of a program have in common. What `Debug` prints has to tell policies with different
/// answers apart: finished points of sweeps go by it.
pub trait OwnPolicy: fmt::Debug + Send + Sync {
    /// Its name in results, by which settings ask for it.
    fn name(&self) -> &str;

    /// Why it failed in any of its runs; none while it works. A run with a policy that failed ends with an error.
    fn failure(&self) -> Option<Box<dyn Error + Send + Sync>>;
}

/// A selection of a program's own.
pub trait OwnSelection: OwnPolicy {
    /// Builds it for a run on a device of the given size. One that failed answers no victim.
    fn build(&self, sizing: Sizing) -> Box<dyn Selection>;
}

/// A placement of a program's own, which is asked for many pages at a time.
pub trait OwnPlacement: OwnPolicy {
    /// Number of streams, at least 1.
    fn streams(&self) -> u8;

    /// The number of streams, counted from the first, that have an open segment from the start. The others get one on first
    /// use.
    fn opened_at_start(&self) -> u8 {
        0
    }

    /// Host writes of a batch, at least 1.
    fn batch_pages(&self) -> usize;

    /// Builds it for a run on a device of the given size.
    fn build(&self, sizing: Sizing) -> Box<dyn BatchPlacement>;
}

/// Why a page is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// The host writes a page that holds nothing.
    New,
    /// The host writes a page that was written before.
    Update,
    /// Cleaning copies the page.
    Copy,
}

/// Pages that a placement decides on together, an element of each array for a page.
#[derive(Clone, Debug, Default)]
pub struct PageBatch {
    /// Logical page numbers.
    pub lba: Vec<u32>,
    /// A [`PageKind`] each.
    pub kind: Vec<u8>,
    /// Host page writes since the host wrote the page last, the one it is placed for included; [`PageBatch::NEVER`] if it
    /// holds nothing.
    pub age: Vec<u64>,
    /// The stream of the segment that the page lies in; [`PageBatch::NOWHERE`] if it holds nothing.
    pub stream: Vec<u8>,
    /// Host page writes since that segment was opened; [`PageBatch::NEVER`] if the page holds nothing.
    pub segment_age: Vec<u64>,
    /// Time of the workload, in microseconds.
    pub time_us: Vec<u64>,
}

impl PageBatch {
    /// The age of a page that holds nothing.
    pub const NEVER: u64 = u64::MAX;
    /// The stream of a page that holds nothing.
    pub const NOWHERE: u8 = u8::MAX;

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.lba.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lba.is_empty()
    }

    /// Adds a page that holds nothing.
    pub(crate) fn push_new(&mut self, lba: u32, time_us: u64) {
        self.push(lba, PageKind::New, Self::NEVER, (Self::NOWHERE, Self::NEVER), time_us);
    }

    /// Adds a page; `segment` is the stream and the age of its segment.
    pub(crate) fn push(&mut self, lba: u32, kind: PageKind, age: u64, segment: (u8, u64), time_us: u64) {
        self.lba.push(lba);
        self.kind.push(kind as u8);
        self.age.push(age);
        self.stream.push(segment.0);
        self.segment_age.push(segment.1);
        self.time_us.push(time_us);
    }
}

/// An [`OwnPlacement`] of one run.
pub trait BatchPlacement: fmt::Debug + Send {
    /// The stream of each page of the batch, below the number of streams. One that failed may answer fewer; the others go
    /// to stream 0.
    fn place(&mut self, batch: PageBatch, now: Now) -> Vec<u8>;
}

/// Policies of a program's own, by their names.
#[derive(Clone, Debug, Default)]
pub struct OwnPolicies {
    /// Selections.
    pub selections: BTreeMap<String, Arc<dyn OwnSelection>>,
    /// Placements.
    pub placements: BTreeMap<String, Arc<dyn OwnPlacement>>,
}

impl PartialEq for OwnPolicies {
    /// Whether they have the same names.
    fn eq(&self, other: &Self) -> bool {
        self.selections.keys().eq(other.selections.keys()) && self.placements.keys().eq(other.placements.keys())
    }
}

/// The policies of an experiment that are the program's own: each stands in place of one of a table.
#[derive(Clone, Debug, Default)]
pub struct OwnPair {
    /// The selection.
    pub selection: Option<Arc<dyn OwnSelection>>,
    /// The placement.
    pub placement: Option<Arc<dyn OwnPlacement>>,
}

impl OwnPair {
    /// Whether both policies are of the tables.
    pub fn is_none(&self) -> bool {
        self.selection.is_none() && self.placement.is_none()
    }

    /// An error if one of them has failed.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        let selection = self.selection.as_deref().map(|own| own as &dyn OwnPolicy);
        let placement = self.placement.as_deref().map(|own| own as &dyn OwnPolicy);
        let failure =
            |own: &dyn OwnPolicy| Some(LabError::OwnPolicy { name: own.name().into(), error: own.failure()? });
        selection.into_iter().chain(placement).find_map(failure).map_or(Ok(()), Err)
    }
}
