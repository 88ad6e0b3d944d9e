use crate::age::{Clock, Now};
use crate::bounds::Bounds;
use alloc::{vec, vec::Vec};
use margay_flash::SegmentId;

/// The state of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Erased, or never used.
    Free,
    /// Being filled.
    Open,
    /// Full, and not chosen as victim yet.
    Sealed,
    /// Being cleaned.
    Victim,
    /// Never used for data (the paper's index segment).
    Reserved,
    /// Retired: a program or an erase failed.
    Bad,
}

/// The size of the device that a policy is built for, and its seed.
#[derive(Clone, Copy, Debug)]
pub struct Sizing {
    /// Segments of the device, reserved ones included.
    pub segments: u32,
    /// Data pages in a segment.
    pub data_pages: u32,
    /// Pages that the device exports.
    pub exported_pages: u32,
    /// Seed of the policy's own random choices.
    pub seed: u64,
}

/// What a placement knows of pages, added up over the valid pages of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageSums {
    /// The pages of which something is known.
    pub pages: u64,
    /// How often the host has written each.
    pub writes: u64,
    /// Host page writes when the host last wrote each.
    pub written: u64,
}

impl PageSums {
    /// Adds what is known of other pages.
    pub fn add(&mut self, other: Self) {
        self.pages += other.pages;
        self.writes += other.writes;
        self.written += other.written;
    }

    /// Takes away what was added of other pages. A write that had to be repeated may take a page away twice: sums stop
    /// at 0.
    pub fn remove(&mut self, other: Self) {
        self.pages = self.pages.saturating_sub(other.pages);
        self.writes = self.writes.saturating_sub(other.writes);
        self.written = self.written.saturating_sub(other.written);
    }
}

/// The engine's account of every segment: one array per quantity, indexed by segment number.
///
/// The engine writes it; policies read it.
#[derive(Clone, Debug)]
pub struct Segments {
    /// Data pages in a segment.
    pub data_pages: u32,
    /// Number of valid pages. In an open segment, pages not yet written count as valid.
    pub valid: Vec<u32>,
    /// Erases so far.
    pub erases: Vec<u32>,
    /// What the segment is doing.
    pub state: Vec<State>,
    /// The stream that it was last opened for.
    pub stream: Vec<u8>,
    /// Time of the workload when it was opened, in microseconds.
    pub opened_us: Vec<u64>,
    /// Host page writes when it was opened.
    pub opened_writes: Vec<u64>,
    /// Number of its opening, ascending over all openings.
    pub opened_sequence: Vec<u64>,
    /// Host page writes when it was sealed; when it was opened, if it was sealed before the device was mounted.
    pub sealed_writes: Vec<u64>,
    /// Time of the workload when a page of it was last invalidated, in microseconds; kept only for policies that ask
    /// for it.
    pub invalidated_us: Vec<u64>,
    /// Host page writes when a page of it was last invalidated; kept only for policies that ask for it.
    pub invalidated_writes: Vec<u64>,
    /// Number of that invalidation, ascending; kept only for policies that ask for it.
    pub invalidated_sequence: Vec<u64>,
    /// What the placement knows of the pages of each segment, as of the last selection; empty if it keeps no sums.
    pub sums: Vec<PageSums>,
    /// Number of valid pages of the device.
    pub total_valid: u64,
    /// Segments that are neither free nor reserved.
    pub in_use: u32,
    /// The largest erase count of the device.
    pub max_erases: u32,
    /// Number of erases of all segments together.
    pub total_erases: u64,
    /// What the placement says of the segments of its streams, as of the last cleaning.
    pub bounds: Bounds,
}

impl Segments {
    /// An account in which all segments are free. With `invalidations` it has room for the time of the last
    /// invalidation.
    pub fn new(segments: u32, data_pages: u32, invalidations: bool) -> Self {
        let n = segments as usize;
        let m = if invalidations { n } else { 0 };
        Self {
            data_pages,
            valid: vec![0; n],
            erases: vec![0; n],
            state: vec![State::Free; n],
            stream: vec![0; n],
            opened_us: vec![0; n],
            opened_writes: vec![0; n],
            opened_sequence: vec![0; n],
            sealed_writes: vec![0; n],
            invalidated_us: vec![0; m],
            invalidated_writes: vec![0; m],
            invalidated_sequence: vec![0; m],
            sums: Vec::new(),
            total_valid: 0,
            in_use: 0,
            max_erases: 0,
            total_erases: 0,
            bounds: Bounds::default(),
        }
    }

    /// Number of segments.
    pub fn len(&self) -> u32 {
        self.valid.len() as u32
    }

    /// Whether the device has no segments.
    pub fn is_empty(&self) -> bool {
        self.valid.is_empty()
    }

    /// Whether cleaning the segment would gain anything: it is sealed and has an invalid page.
    pub fn is_candidate(&self, segment: SegmentId) -> bool {
        self.state[segment.index()] == State::Sealed && self.valid[segment.index()] < self.data_pages
    }

    /// When the segment was opened, on the given clock.
    #[inline]
    pub fn opened(&self, segment: SegmentId, clock: Clock) -> u64 {
        match clock {
            Clock::Time => self.opened_us[segment.index()],
            Clock::Writes => self.opened_writes[segment.index()],
        }
    }

    /// When a page of the segment was last invalidated, on the given clock.
    pub fn invalidated(&self, segment: SegmentId, clock: Clock) -> u64 {
        match clock {
            Clock::Time => self.invalidated_us[segment.index()],
            Clock::Writes => self.invalidated_writes[segment.index()],
        }
    }

    /// How long ago the segment was opened.
    pub fn age(&self, segment: SegmentId, clock: Clock, now: Now) -> u64 {
        now.on(clock).saturating_sub(self.opened(segment, clock))
    }

    /// Hotness of a segment: host writes of its valid pages over the sum of their ages in host page writes, infinite at
    /// age 0. If nothing is known of its pages, each counts as written once, when the segment was opened.
    pub fn hotness(&self, segment: SegmentId, now: Now) -> f64 {
        match self.sums.get(segment.index()) {
            Some(sums) if sums.pages > 0 => {
                let ages = (u128::from(sums.pages) * u128::from(now.writes)).saturating_sub(sums.written.into());
                sums.writes as f64 / ages as f64
            }
            _ => 1.0 / self.age(segment, Clock::Writes, now) as f64,
        }
    }

    /// All segment numbers.
    pub fn ids(&self) -> impl Iterator<Item = SegmentId> + use<> {
        (0..self.len()).map(SegmentId)
    }
}
