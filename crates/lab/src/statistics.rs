//! Means with their 95 % intervals.

use serde::{Deserialize, Serialize};

/// Quantiles 0.975 of Student's t distribution for 1 to 30 degrees of freedom.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The quantile 0.975 of Student's t distribution: half the width of a 95 % interval in standard errors.
pub fn t95(degrees_of_freedom: usize) -> f64 {
    match degrees_of_freedom {
        0 => f64::NAN,
        df @ 1..=30 => T_975[df - 1],
        // The expansion of the quantile in 1 / df around the normal one; good to 0.001 from 30 on.
        df => 1.959_964 + 2.372_3 / df as f64 + 2.822_5 / (df as f64).powi(2),
    }
}

/// A mean, and how well it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half the width of the 95 % interval by Student's t; none of fewer than two values.
    pub half95: Option<f64>,
    /// How many values there are.
    pub count: usize,
}

impl Interval {
    /// The mean of values that do not depend on each other, with its interval.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let half95 = (count > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            t95(count - 1) * (squares / (count - 1) as f64 / count as f64).sqrt()
        });
        Self { mean, half95, count }
    }

    /// One value, of which no more is known.
    pub fn exact(mean: f64) -> Self {
        Self { mean, half95: None, count: 1 }
    }

    /// The mean with its interval, as `5.083 +-0.012`; without it, if there is none or all values are the same.
    pub fn show(&self, digits: usize) -> String {
        match self.half95 {
            _ if self.mean.is_nan() => "-".into(),
            Some(half) if half > 0.0 => format!("{:.digits$} +-{half:.digits$}", self.mean),
            _ => format!("{:.digits$}", self.mean),
        }
    }
}

/// The slope of a least-squares line through values at 0, 1, 2 and so on, as the rise over all of them, and that rise in
/// standard errors. None of fewer than four values.
pub(crate) fn rise(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    if values.len() < 4 {
        return None;
    }
    let (mean, middle) = (values.iter().sum::<f64>() / n, (n - 1.0) / 2.0);
    let at = || values.iter().enumerate().map(|(at, value)| (at as f64 - middle, value - mean));
    let spread: f64 = at().map(|(x, _)| x * x).sum();
    let slope = at().map(|(x, y)| x * y).sum::<f64>() / spread;
    let left: f64 = at().map(|(x, y)| (y - slope * x).powi(2)).sum();
    let error = (left / (n - 2.0) / spread).sqrt();
    let errors = if error > 0.0 { slope / error } else { f64::INFINITY * slope.signum() * f64::from(slope != 0.0) };
    Some((slope * (n - 1.0), if errors.is_nan() { 0.0 } else { errors }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_student() {
        // Mean 5, standard deviation 2.138, standard error 0.756, t(7) = 2.365.
        let interval = Interval::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!((interval.mean, interval.count), (5.0, 8));
        assert!((interval.half95.unwrap() - 1.7876).abs() < 1e-3, "{interval:?}");
        assert_eq!(Interval::of(&[3.0]).half95, None);
        assert_eq!(Interval::of(&[3.0, 3.0]).half95, Some(0.0));
        assert_eq!(interval.show(2), "5.00 +-1.79");
    }

    #[test]
    fn quantiles_go_on_where_the_table_ends() {
        for (df, published) in [(31, 2.0395), (40, 2.0211), (60, 2.0003), (120, 1.9799), (100_000, 1.9600)] {
            assert!((t95(df) - published).abs() < 5e-4, "{df}: {}", t95(df));
        }
        assert!((1..200).all(|df| t95(df) > t95(df + 1)));
    }

    #[test]
    fn a_line_rises_as_much_as_it_does() {
        let (rise, errors) = super::rise(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((rise - 4.0).abs() < 1e-12 && errors > 1e6);
        assert_eq!(super::rise(&[2.0; 6]), Some((0.0, 0.0)));
        assert_eq!(super::rise(&[1.0, 2.0, 3.0]), None);
        let (rise, errors) = super::rise(&[1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0]).unwrap();
        assert!(rise.abs() < 1.0 && errors.abs() < 2.0, "{rise} {errors}");
    }
}
