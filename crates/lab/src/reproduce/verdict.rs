//! Claims of a publication, and what a measurement says about them.

use serde::{Serialize, Serializer};
use std::fmt;

/// How far a measured value may be from the one that it is held to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// It must be equal, up to this rounding of the printed digits.
    Exact(f64),
    /// It may differ by this share of the value that it is held to.
    Relative(f64),
    /// It may differ by this much, in its own unit.
    Absolute(f64),
}

impl Bound {
    fn holds(self, measured: f64, wanted: f64) -> bool {
        let difference = (measured - wanted).abs();
        match self {
            Self::Exact(by) | Self::Absolute(by) => difference <= by,
            Self::Relative(share) => difference <= share * wanted.abs(),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(_) => f.write_str("exact"),
            Self::Relative(share) => write!(f, "{:.1} %", share * 100.0),
            Self::Absolute(by) if *by < 0.1 => write!(f, "{by:.3}"),
            Self::Absolute(by) => write!(f, "{}", (by * 10.0).round() / 10.0),
        }
    }
}

/// Where the value comes from that a measured one is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// It is the published one.
    Published,
    /// It is the specification's, or that of the independent model which was written from the same specification. The
    /// published one is shown beside it.
    Model,
    /// It is the published one, and constants of the reading were fitted to it: agreement confirms nothing.
    Fitted,
}

/// What a claim says beyond a figure: that a value is under or over another one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Direction {
    /// The measured value is under this one.
    Below(f64),
    /// The measured value is over this one.
    Above(f64),
}

impl Direction {
    fn holds(self, measured: f64) -> bool {
        match self {
            Self::Below(limit) => measured < limit,
            Self::Above(limit) => measured > limit,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, limit) = match self {
            Self::Below(limit) => ("below", limit),
            Self::Above(limit) => ("above", limit),
        };
        let digits = if limit.abs() < 100.0 { 1000.0 } else { 1.0 };
        write!(f, "{word} {}", (limit * digits).round() / digits)
    }
}

/// What a measurement says about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The published figure is met within the bound stated beforehand.
    Met,
    /// The figure of the specification or of the independent model is met; the published one is shown.
    Model,
    /// The published figure is met, but constants of the reading were fitted to it.
    Fitted,
    /// The figure is not met or not comparable, but what it says is so: one thing is less than another.
    DirectionOnly,
    /// It is the other way round.
    Reversed,
    /// The workload is another one than the published, or nothing was published.
    NotComparable,
    /// The figure is outside its bound, and there is no direction that could hold.
    Missed,
}

impl Verdict {
    /// All verdicts, in the order of the tables.
    pub const ALL: [Self; 7] =
        [Self::Met, Self::Model, Self::Fitted, Self::DirectionOnly, Self::Reversed, Self::NotComparable, Self::Missed];

    /// Its name in the tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Model => "model",
            Self::Fitted => "fitted",
            Self::DirectionOnly => "direction only",
            Self::Reversed => "reversed",
            Self::NotComparable => "not comparable",
            Self::Missed => "MISSED",
        }
    }

    /// What it means, in a line.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Met => "within a bound, stated beforehand, of the published figure",
            Self::Model => {
                "within a bound of the figure of the specification or of an independent model; the published one is shown"
            }
            Self::Fitted => {
                "within a bound of the published figure, to which constants of the reading were fitted: this confirms nothing"
            }
            Self::DirectionOnly => {
                "the figure is not met or not comparable, but less is less and more is more, as published"
            }
            Self::Reversed => "the other way round than published",
            Self::NotComparable => "another workload than the published one, or nothing was published",
            Self::Missed => "outside its bound",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn text<T: fmt::Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_str(""),
    }
}

fn plain<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// One claim of a publication beside what was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Where it was published.
    pub place: String,
    /// The cell: policy and workload.
    pub cell: String,
    /// What was measured, with its unit.
    pub measure: String,
    /// As printed; several where the documents disagree; empty if nothing was, or for another workload.
    pub published: String,
    /// What the measured value is held to.
    pub wanted: Option<f64>,
    /// How closely.
    #[serde(serialize_with = "text")]
    pub bound: Option<Bound>,
    /// What the claim says beside the figure.
    #[serde(serialize_with = "text")]
    pub direction: Option<Direction>,
    /// Mean over the seeds or traces.
    pub measured: f64,
    /// Standard deviation over them.
    pub deviation: f64,
    /// What the measurement says about the claim.
    #[serde(serialize_with = "plain")]
    pub verdict: Verdict,
    /// Why it is held to what it is held to, or why it differs; may be empty.
    pub note: String,
}

impl Comparison {
    /// Measured / wanted - 1, if it is held to a value.
    pub fn relative(&self) -> Option<f64> {
        self.wanted.filter(|wanted| *wanted != 0.0).map(|wanted| self.measured / wanted - 1.0)
    }
}

/// A claim before it is measured: all that decides about the verdict is stated here.
#[derive(Clone, Debug)]
pub struct Claim {
    place: String,
    cell: String,
    measure: String,
    published: String,
    held: Option<(Basis, f64, Bound)>,
    direction: Option<Direction>,
    note: String,
}

impl Claim {
    /// A claim that says nothing yet: its verdict would be "not comparable".
    pub fn new(place: impl Into<String>, cell: impl Into<String>, measure: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            cell: cell.into(),
            measure: measure.into(),
            published: String::new(),
            held: None,
            direction: None,
            note: String::new(),
        }
    }

    /// The published figure as it is printed.
    #[must_use]
    pub fn published(self, text: impl Into<String>) -> Self {
        Self { published: text.into(), ..self }
    }

    /// What the measured value is held to, how closely, and where that value comes from.
    #[must_use]
    pub fn held(self, basis: Basis, wanted: f64, bound: Bound) -> Self {
        Self { held: Some((basis, wanted, bound)), ..self }
    }

    /// The claim says that the value is less than this.
    #[must_use]
    pub fn below(self, limit: f64) -> Self {
        Self { direction: Some(Direction::Below(limit)), ..self }
    }

    /// The claim says that the value is more than this.
    #[must_use]
    pub fn above(self, limit: f64) -> Self {
        Self { direction: Some(Direction::Above(limit)), ..self }
    }

    /// Why it is held to what it is held to, or why it is known to differ.
    #[must_use]
    pub fn note(self, text: impl Into<String>) -> Self {
        Self { note: text.into(), ..self }
    }

    fn verdict(&self, measured: f64) -> Verdict {
        if let Some((basis, ..)) = self.held.filter(|(_, wanted, bound)| bound.holds(measured, *wanted)) {
            return match basis {
                Basis::Published => Verdict::Met,
                Basis::Model => Verdict::Model,
                Basis::Fitted => Verdict::Fitted,
            };
        }
        match self.direction {
            Some(direction) if direction.holds(measured) => Verdict::DirectionOnly,
            Some(_) => Verdict::Reversed,
            None if self.held.is_some() => Verdict::Missed,
            None => Verdict::NotComparable,
        }
    }

    /// The verdict on it: `measured` is the mean over the seeds or traces and the standard deviation.
    pub fn judge(self, (measured, deviation): (f64, f64)) -> Comparison {
        let verdict = self.verdict(measured);
        Comparison {
            place: self.place,
            cell: self.cell,
            measure: self.measure,
            published: self.published,
            wanted: self.held.map(|(_, wanted, _)| wanted),
            bound: self.held.map(|(_, _, bound)| bound),
            direction: self.direction,
            measured,
            deviation,
            verdict,
            note: self.note,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(claim: Claim, measured: f64) -> Verdict {
        claim.judge((measured, 0.0)).verdict
    }

    fn claim() -> Claim {
        Claim::new("Table 1", "greedy", "erases")
    }

    #[test]
    fn a_figure_within_its_bound_is_met_modelled_or_fitted_by_where_it_comes_from() {
        let held = |basis| claim().held(basis, 100.0, Bound::Relative(0.01));
        for (basis, expected) in
            [(Basis::Published, Verdict::Met), (Basis::Model, Verdict::Model), (Basis::Fitted, Verdict::Fitted)]
        {
            assert_eq!(verdict(held(basis), 101.0), expected);
            assert_eq!(verdict(held(basis), 98.9), Verdict::Missed, "every one can be missed");
            assert_eq!(verdict(held(basis), f64::NAN), Verdict::Missed);
        }
    }

    #[test]
    fn outside_its_bound_a_claim_with_a_direction_keeps_it_or_is_reversed() {
        let held = || claim().held(Basis::Published, 0.55, Bound::Relative(0.05)).below(1.0);
        assert_eq!(verdict(held(), 0.56), Verdict::Met);
        assert_eq!(verdict(held(), 0.902), Verdict::DirectionOnly, "this was an `ok` once");
        assert_eq!(verdict(held(), 1.0), Verdict::Reversed, "no difference is not less");
        assert_eq!(verdict(held(), 1.2), Verdict::Reversed);
        assert_eq!(verdict(claim().above(0.0), -7.52), Verdict::Reversed, "-7.52 % fewer");
        assert_eq!(verdict(claim().above(0.0), f64::NAN), Verdict::Reversed, "nothing measured is no direction");
    }

    #[test]
    fn a_claim_that_is_held_to_nothing_is_not_comparable() {
        assert_eq!(verdict(claim().published("0.63"), 0.63), Verdict::NotComparable);
    }
}
