use serde::{Deserialize, Serialize};

/// Distribution of erase counts over all segments of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wear {
    /// Smallest erase count.
    pub min: u32,
    /// Median (lower).
    pub p50: u32,
    /// 99th percentile (lower).
    pub p99: u32,
    /// Largest erase count.
    pub max: u32,
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation (n - 1): the papers' degree of uneven wearing.
    pub deviation: f64,
}

impl Wear {
    /// The distribution of the given erase counts, reserved segments included.
    pub fn of(erases: &[u32]) -> Self {
        let mut sorted = erases.to_vec();
        sorted.sort_unstable();
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return Self::default() };
        let n = sorted.len() as f64;
        let mean = sorted.iter().map(|e| f64::from(*e)).sum::<f64>() / n;
        let squares: f64 = sorted.iter().map(|e| (f64::from(*e) - mean).powi(2)).sum();
        let deviation = if sorted.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
        let at = |share: f64| sorted[((n - 1.0) * share) as usize];
        Self { min, p50: at(0.5), p99: at(0.99), max, mean, deviation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviation_is_that_of_a_sample() {
        let wear = Wear::of(&[2, 4, 4, 4, 5, 5, 7, 9]);
        assert_eq!((wear.min, wear.p50, wear.max), (2, 4, 9));
        assert!((wear.deviation - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
    }
}
