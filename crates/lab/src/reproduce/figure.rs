//! Figures: what was measured, and the published points where a text or table gives them.

use serde::Serialize;

/// A point of a curve, or a bar.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Where it is: a value, or the number of a named category from 0.
    pub x: f64,
    /// Its value: the mean of several runs.
    pub y: f64,
    /// The lower end of its error bar; y if there is none.
    pub low: f64,
    /// The upper end of its error bar; y if there is none.
    pub high: f64,
}

impl Point {
    /// A point without an error bar.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, low: y, high: y }
    }

    /// The mean of several runs, with the 95 % confidence interval of that mean.
    pub fn mean(x: f64, values: &[f64]) -> Self {
        let (mean, deviation) = super::mean_and_deviation(values);
        let half = student_95(values.len()) * deviation / (values.len() as f64).sqrt();
        Self { x, y: mean, low: mean - half, high: mean + half }
    }

    /// The mean of several traces, with the lowest and the highest of them.
    pub fn range(x: f64, values: &[f64]) -> Self {
        let (mean, _) = super::mean_and_deviation(values);
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { x, y: mean, low, high }
    }
}

/// The two-sided 95 % quantile of Student's distribution for the mean of `values` values; 0 for fewer than two.
fn student_95(values: usize) -> f64 {
    const QUANTILES: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    match values {
        0 | 1 => 0.0,
        _ => QUANTILES.get(values - 2).copied().unwrap_or(1.96),
    }
}

/// Points of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// The points are the publication's and not measured.
    pub is_published: bool,
    /// The points, in the order in which a line joins them.
    pub points: Vec<Point>,
}

impl Curve {
    /// A measured curve.
    pub fn new(name: impl Into<String>, points: Vec<Point>) -> Self {
        Self { name: name.into(), is_published: false, points }
    }

    /// Points of the publication.
    pub fn published(name: impl Into<String>, points: Vec<Point>) -> Self {
        Self { name: name.into(), is_published: true, points }
    }
}

impl From<(String, Vec<(f64, f64)>)> for Curve {
    fn from((name, points): (String, Vec<(f64, f64)>)) -> Self {
        Self::new(name, points.into_iter().map(|(x, y)| Point::new(x, y)).collect())
    }
}

/// What the horizontal axis is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub enum Axis {
    /// Numbers at even distances.
    #[default]
    Linear,
    /// Numbers, each twice the one before at even distances.
    Log2,
    /// Names: the figure is one of bars. A point's x is the number of a name from 0.
    Named(Vec<String>),
}

/// A figure of several curves, or of bars side by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// Short name, also of its files.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Meaning and unit of x.
    pub x: String,
    /// Meaning and unit of y.
    pub y: String,
    /// What x is.
    pub axis: Axis,
    /// What was measured, then what was published.
    pub curves: Vec<Curve>,
    /// Values of x to which the publication points, with their names.
    pub marks: Vec<(f64, String)>,
}

impl Figure {
    /// A figure without curves.
    pub fn new(
        name: impl Into<String>,
        title: impl Into<String>,
        x: impl Into<String>,
        y: impl Into<String>,
        axis: Axis,
    ) -> Self {
        let (name, title, x, y) = (name.into(), title.into(), x.into(), y.into());
        Self { name, title, x, y, axis, curves: Vec::new(), marks: Vec::new() }
    }

    /// The curve of this name.
    pub fn curve(&self, name: &str) -> Option<&Curve> {
        self.curves.iter().find(|curve| curve.name == name)
    }

    /// Adds a point to the curve of this name, which is begun if there is none.
    pub fn add(&mut self, curve: &str, point: Point) {
        match self.curves.iter_mut().find(|other| other.name == curve) {
            Some(found) => found.points.push(point),
            None => self.curves.push(Curve::new(curve, vec![point])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_bar_of_a_mean_is_its_95_percent_interval() {
        let point = Point::mean(3.0, &[1.0, 2.0, 3.0, 4.0, 5.0]);
        // 2.776 x sqrt(2.5) / sqrt(5).
        assert!((point.high - 3.0 - 1.963).abs() < 0.001, "{point:?}");
        assert!((3.0 - point.low - 1.963).abs() < 0.001, "{point:?}");
        assert_eq!(Point::mean(3.0, &[7.0]), Point::new(3.0, 7.0));
    }

    #[test]
    fn the_error_bar_of_traces_goes_from_the_lowest_to_the_highest() {
        assert_eq!(Point::range(0.0, &[0.5, 1.5, 1.0]), Point { x: 0.0, y: 1.0, low: 0.5, high: 1.5 });
    }
}
