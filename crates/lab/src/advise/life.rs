//! How long the flash lasts, with what is not known of it.

use super::text::years_text;
use crate::span::{seconds_of_years, span_between};
use crate::statistics::Interval;
use crate::summary::Group;
use serde::Serialize;

const DAYS_PER_YEAR: f64 = 365.25;
const SECONDS_PER_DAY: f64 = 86_400.0;

/// Years between which the flash wears out. The lower ones are those until the first segment is worn out, if each goes on
/// wearing as in the run; the upper ones those that all segments would reach together, worn evenly. Both are wider by the 95 %
/// interval of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Life {
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

/// Whether a wanted lifetime is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict", content = "why")]
pub enum Verdict {
    /// Even the lower bound is as long.
    Yes,
    /// It is not certain; this is why.
    Uncertain(String),
    /// Even the upper bound is shorter.
    No,
}

impl Verdict {
    /// The verdict in a word or two.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Uncertain(_) => "not certain",
            Self::No => "no",
        }
    }
}

/// Bytes that the host writes in a day; none if the source has no times.
pub(super) fn bytes_per_day(group: &Group<'_>) -> Option<f64> {
    let row = group.rows.first()?;
    let bytes = row.host_writes as f64 * f64::from(row.page_bytes);
    (row.duration_s > 0.0).then(|| bytes / row.duration_s * SECONDS_PER_DAY)
}

impl Life {
    /// The life at so many bytes a day; none of runs that erased nothing.
    pub(super) fn of(group: &Group<'_>, bytes_per_day: f64) -> Option<Self> {
        if group.rows.iter().any(|row| row.forecast.tbw_first.is_none()) {
            return None;
        }
        let nan = f64::NAN;
        let first = group.interval(|row| row.forecast.tbw_first.unwrap_or(nan));
        let mean = group.interval(|row| row.forecast.tbw_mean.unwrap_or(nan));
        // Of one run the parts of its warm window say how well its wear is known.
        let wa = group.wa();
        let of_wa = wa.half95.unwrap_or(0.0) / wa.mean;
        let half = |interval: Interval| interval.half95.unwrap_or(0.0).max(of_wa * interval.mean);
        let years = |terabytes: f64| terabytes * 1e12 / (bytes_per_day * DAYS_PER_YEAR);
        Some(Self { low: years((first.mean - half(first)).max(0.0)), high: years(mean.mean + half(mean)) })
    }

    /// Whether it is certain that two lives differ.
    pub(super) fn is_apart(self, other: Self) -> bool {
        self.low > other.high || other.low > self.high
    }

    /// The bounds in words: `4.10 to 5.30 years`, or in days, hours, minutes or seconds.
    pub fn show(self) -> String {
        span_between(seconds_of_years(self.low), seconds_of_years(self.high))
    }
}

/// Whether runs last for the wanted years.
pub(super) fn verdict(group: &Group<'_>, life: Option<Life>, wanted: f64) -> Verdict {
    let Some(life) = life else {
        return Verdict::Uncertain("nothing was erased in the runs, which are too short to tell".into());
    };
    // However they go on, they do not last twice as long: write amplification rises before it settles, as a rule.
    if 2.0 * life.high < wanted {
        return Verdict::No;
    }
    if let Some(why) = group.unsettled() {
        return Verdict::Uncertain(format!("the runs had not settled: {why}"));
    }
    if life.low >= wanted {
        Verdict::Yes
    } else if life.high < wanted {
        Verdict::No
    } else {
        Verdict::Uncertain(format!(
            "{} lie between the first worn segment and even wear, {}",
            years_text(wanted),
            life.show()
        ))
    }
}
