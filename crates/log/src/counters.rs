use alloc::{vec, vec::Vec};

/// What a log has done. Counts are in pages unless they say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pages written by the host.
    pub host_writes: u64,
    /// Pages read by the host.
    pub host_reads: u64,
    /// Pages trimmed by the host.
    pub trims: u64,
    /// Pages copied, by cleaning and by leveling.
    pub copies: u64,
    /// Header and summary pages programmed.
    pub metadata_pages: u64,
    /// Segments erased, by cleaning and by leveling.
    pub erases: u64,
    /// Victims cleaned.
    pub cleanings: u64,
    /// Copies made by leveling; part of `copies`.
    pub leveling_copies: u64,
    /// Erases made by leveling; part of `erases`.
    pub leveling_erases: u64,
    /// Copies made in idle time; part of `copies`.
    pub idle_copies: u64,
    /// Erases made in idle time; part of `erases`.
    pub idle_erases: u64,
    /// Copies that went to another stream than the placement chose, because no segment was free.
    pub misplaced_copies: u64,
    /// Host writes that went to another stream than the placement chose, because no segment was free.
    pub misplaced_writes: u64,
    /// Copied pages whose data could not be read and is lost.
    pub lost_pages: u64,
    /// Segments retired because a program or an erase failed.
    pub retired_segments: u64,
    /// Victims that were cleaned completely because a segment was needed at once, beyond the bound on a write's work.
    pub forced_cleanings: u64,
    /// The greatest number of pages programmed for one host write, if cleaning is spread over the writes.
    pub max_pages_of_a_write: u64,
    /// Tags read to know whose the pages of victims are, where that is not kept in memory.
    pub tag_reads: u64,
    /// Victims by number of valid pages, from 0 to the data pages of a segment.
    pub victims: Vec<u64>,
}

impl Counters {
    pub(crate) fn new(data_pages: u32) -> Self {
        Self { victims: vec![0; data_pages as usize + 1], ..Self::default() }
    }

    /// Pages programmed: host writes, copies and metadata.
    pub fn programs(&self) -> u64 {
        self.host_writes + self.copies + self.metadata_pages
    }

    /// Write amplification: pages programmed per page written by the host. None before the first write.
    pub fn write_amplification(&self) -> Option<f64> {
        (self.host_writes > 0).then(|| self.programs() as f64 / self.host_writes as f64)
    }

    /// What was done since `earlier`, a state of the same log. The maximum of pages for one write is that of the whole
    /// time.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            host_writes: self.host_writes - earlier.host_writes,
            host_reads: self.host_reads - earlier.host_reads,
            trims: self.trims - earlier.trims,
            copies: self.copies - earlier.copies,
            metadata_pages: self.metadata_pages - earlier.metadata_pages,
            erases: self.erases - earlier.erases,
            cleanings: self.cleanings - earlier.cleanings,
            leveling_copies: self.leveling_copies - earlier.leveling_copies,
            leveling_erases: self.leveling_erases - earlier.leveling_erases,
            idle_copies: self.idle_copies - earlier.idle_copies,
            idle_erases: self.idle_erases - earlier.idle_erases,
            misplaced_copies: self.misplaced_copies - earlier.misplaced_copies,
            misplaced_writes: self.misplaced_writes - earlier.misplaced_writes,
            lost_pages: self.lost_pages - earlier.lost_pages,
            retired_segments: self.retired_segments - earlier.retired_segments,
            forced_cleanings: self.forced_cleanings - earlier.forced_cleanings,
            max_pages_of_a_write: self.max_pages_of_a_write,
            tag_reads: self.tag_reads - earlier.tag_reads,
            victims: self.victims.iter().zip(&earlier.victims).map(|(a, b)| a - b).collect(),
        }
    }
}

/// The state that the cleaning-cost model of the MODA paper rests on (sec. 3).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Uniformity {
    /// Valid pages / data pages of the device.
    pub utilization: f64,
    /// Invalid pages / data pages of the device.
    pub invalidity: f64,
    /// Share of segments that do not hold both valid and invalid pages.
    pub uniformity: f64,
}
