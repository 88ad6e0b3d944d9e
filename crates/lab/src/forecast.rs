use serde::{Deserialize, Serialize};

/// A forecast of how long the flash lasts if the workload continues as measured.
///
/// Every segment is assumed to wear at the rate it showed in the run, so a segment with e erases in the run reaches its
/// endurance E after E / e runs. With fewer than some ten erases per segment this is pessimistic, because chance has
/// not evened out: `runs_mean` (all segments at the mean rate) is the other bound, and what perfect leveling would
/// reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Erases a segment is rated for.
    pub endurance_erases: u32,
    /// The share of segments in `years_share` and `tbw_share`.
    pub worn_share: f64,
    /// Years until the first segment is worn out; none if the workload has no times or erased nothing.
    pub years_first: Option<f64>,
    /// Years until `worn_share` of the segments are.
    pub years_share: Option<f64>,
    /// Years at the mean rate of all segments.
    pub years_mean: Option<f64>,
    /// Terabytes (10^12 bytes) written by the host until the first segment is worn out.
    pub tbw_first: Option<f64>,
    /// Terabytes until `worn_share` of the segments are.
    pub tbw_share: Option<f64>,
    /// Terabytes at the mean rate of all segments.
    pub tbw_mean: Option<f64>,
}

const SECONDS_PER_YEAR: f64 = 365.25 * 86_400.0;

impl Forecast {
    /// The forecast from the erase counts of a run in which the host wrote `host_bytes` in `duration_s` seconds.
    pub fn new(erases: &[u32], endurance_erases: u32, worn_share: f64, host_bytes: f64, duration_s: f64) -> Self {
        let mut sorted = erases.to_vec();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let rank = ((worn_share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
        let total: f64 = sorted.iter().map(|e| f64::from(*e)).sum();
        let runs = |erases: f64| (erases > 0.0).then(|| f64::from(endurance_erases) / erases);
        let first = runs(sorted.first().copied().map_or(0.0, f64::from));
        let share = runs(sorted.get(rank).copied().map_or(0.0, f64::from));
        let mean = runs(total / sorted.len().max(1) as f64);
        let years = |runs: Option<f64>| runs.filter(|_| duration_s > 0.0).map(|r| r * duration_s / SECONDS_PER_YEAR);
        let tbw = |runs: Option<f64>| runs.map(|r| r * host_bytes / 1e12);
        Self {
            endurance_erases,
            worn_share,
            years_first: years(first),
            years_share: years(share),
            years_mean: years(mean),
            tbw_first: tbw(first),
            tbw_share: tbw(share),
            tbw_mean: tbw(mean),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_worn_segment_sets_the_first_failure_and_the_mean_the_other_bound() {
        let forecast = Forecast::new(&[10, 5, 5, 0], 1000, 0.5, 1e12, SECONDS_PER_YEAR);
        assert_eq!(forecast.years_first, Some(100.0));
        assert_eq!(forecast.years_share, Some(200.0));
        assert_eq!(forecast.years_mean, Some(200.0));
        assert_eq!(forecast.tbw_first, Some(100.0));
    }

    #[test]
    fn without_erases_or_times_nothing_is_promised() {
        let idle = Forecast::new(&[0, 0], 1000, 0.1, 1e9, 60.0);
        assert_eq!((idle.years_first, idle.tbw_first), (None, None));
        let untimed = Forecast::new(&[3, 3], 1000, 0.1, 1e9, 0.0);
        assert_eq!(untimed.years_mean, None);
        assert!(untimed.tbw_mean.is_some());
    }
}
