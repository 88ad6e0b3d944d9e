//! Spans of time as text.

const YEAR_S: f64 = 31_557_600.0;
const UNITS: [(&str, f64); 4] = [("years", YEAR_S), ("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)];

/// The largest unit of which there is one at least, with its seconds.
fn unit_of(seconds: f64) -> (&'static str, f64) {
    UNITS.into_iter().find(|(_, length)| seconds >= *length).unwrap_or(("seconds", 1.0))
}

/// About three digits.
fn number(count: f64) -> String {
    let digits = if count < 10.0 { 2 } else { usize::from(count < 100.0) };
    format!("{count:.digits$}")
}

/// A span of time, in seconds, as text in the unit that suits: `11.6 days`.
pub fn span(seconds: f64) -> String {
    let (unit, length) = unit_of(seconds);
    format!("{} {unit}", number(seconds / length))
}

/// Two spans of time, in seconds, as text in one unit: `4.10 to 5.30 years`.
pub(crate) fn span_between(low: f64, high: f64) -> String {
    let (unit, length) = unit_of(high);
    format!("{} to {} {unit}", number(low / length), number(high / length))
}

/// Seconds of so many years.
pub(crate) fn seconds_of_years(years: f64) -> f64 {
    years * YEAR_S
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_the_unit_that_suits() {
        let texts = [0.5, 30.0, 600.0, 86_400.0, 1_000_000.0, 1e9, 1e10].map(span);
        let expected =
            ["0.50 seconds", "30.0 seconds", "10.0 minutes", "1.00 days", "11.6 days", "31.7 years", "317 years"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn two_spans_share_a_unit_in_which_the_longer_one_can_be_told_from_nothing() {
        assert_eq!(span_between(40.0, 80.0), "0.67 to 1.33 minutes");
        assert_eq!(span_between(0.5 * YEAR_S, 2.0 * YEAR_S), "0.50 to 2.00 years");
    }
}
