use margay_format::Superblock;
use margay_policy::{Segments, State};

/// How much of its life a device has behind it, and how much is left, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Health {
    /// Erases that a segment endures, as it was said when the device was formatted.
    pub endurance_erases: Option<u32>,
    /// Smallest, mean and greatest number of erases of a segment that is in use.
    pub erases: (u32, f64, u32),
    /// Of all erases that the segments in use endure, the share that was made: 1 and more at the end.
    pub used_ratio: Option<f64>,
    /// The same of the segment that was erased most.
    pub max_used_ratio: Option<f64>,
    /// Bytes that hosts can still write, if write amplification stays what it was so far and erases are spread evenly from now on.
    pub bytes_left: Option<u64>,
    /// Seconds that it lasts at the rate of writing since it was formatted.
    pub seconds_left: Option<f64>,
    /// Segments that were retired.
    pub retired_segments: u32,
}

impl Health {
    /// Of a device with these segments, to which hosts have written `host_pages` pages for which it programmed `programs`. `now_s`
    /// is the time in seconds since 1970.
    pub fn new(superblock: &Superblock, segments: &Segments, host_pages: u64, programs: u64, now_s: u64) -> Self {
        let is_used = |state: State| !matches!(state, State::Reserved | State::Bad);
        let used = segments.erases.iter().zip(&segments.state).filter(|(_, state)| is_used(**state));
        let erases = || used.clone().map(|(erases, _)| *erases);
        let (count, sum) = (erases().count() as u64, erases().map(u64::from).sum::<u64>());
        let mean = if count > 0 { sum as f64 / count as f64 } else { 0.0 };
        let max = erases().max().unwrap_or(0);
        let endurance_erases = Some(superblock.endurance_erases).filter(|erases| *erases > 0);
        let of_endurance = |erases: f64| endurance_erases.map(|endurance| erases / f64::from(endurance));
        let bytes_left = endurance_erases.filter(|_| host_pages > 0 && programs > 0).map(|endurance| {
            let erases_left: u64 = erases().map(|erases| u64::from(endurance.saturating_sub(erases))).sum();
            let pages = erases_left as f64 * f64::from(segments.data_pages);
            (pages * host_pages as f64 / programs as f64 * f64::from(superblock.geometry.page_bytes())) as u64
        });
        let age_s = now_s.saturating_sub(superblock.created_s);
        let written = host_pages as f64 * f64::from(superblock.geometry.page_bytes());
        let seconds_left = bytes_left
            .filter(|_| superblock.created_s > 0 && age_s > 0)
            .map(|left| left as f64 / written * age_s as f64);
        Self {
            endurance_erases,
            erases: (erases().min().unwrap_or(0), mean, max),
            used_ratio: of_endurance(mean),
            max_used_ratio: of_endurance(f64::from(max)),
            bytes_left,
            seconds_left,
            retired_segments: segments.state.iter().filter(|state| **state == State::Bad).count() as u32,
        }
    }
}
