use crate::{TheoryError, domain};

fn check_alpha(alpha: f64) -> Result<(), TheoryError> {
    domain("alpha", alpha, alpha.is_finite() && alpha > 1.0, "physical / exported pages, over 1")
}

fn check_shares(r: f64, f: f64) -> Result<(), TheoryError> {
    domain("r", r, r > 0.0 && r < 1.0, "a share of the writes, over 0 and under 1")?;
    domain("f", f, f > 0.0 && f < 1.0, "a share of the pages, over 0 and under 1")
}

/// The root, by bisection, of a function that is negative at `low` and positive at `high`.
fn bisect(mut low: f64, mut high: f64, function: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if function(middle) < 0.0 { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

fn fifo(alpha: f64) -> f64 {
    // 1 - x = exp(-alpha x), x the invalid share of the victim, in (0, 1].
    let below = (alpha.ln() / alpha).max(f64::MIN_POSITIVE);
    1.0 / bisect(below, 1.0, |x| x - 1.0 + (-alpha * x).exp())
}

/// Write amplification of FIFO under uniform random writes, many pages per segment: alpha / (alpha + W0(-alpha
/// e^-alpha)) (Desnoyers 2012, sec. 3; Xiang and Kurkoski 2012).
pub fn fifo_uniform_wa(alpha: f64) -> Result<f64, TheoryError> {
    check_alpha(alpha)?;
    Ok(fifo(alpha))
}

/// Write amplification of greedy under uniform random writes with `pages_per_segment` pages: FIFO(k alpha) / k
/// with k = 1 + 1 / 2b (Desnoyers 2012, the correction for finite b).
pub fn greedy_uniform_wa(alpha: f64, pages_per_segment: f64) -> Result<f64, TheoryError> {
    check_alpha(alpha)?;
    domain("b", pages_per_segment, pages_per_segment >= 1.0, "pages per segment, at least 1")?;
    let k = 1.0 + 0.5 / pages_per_segment;
    Ok(fifo(k * alpha) / k)
}

/// Write amplification of greedy under uniform random writes by the cruder formula alpha / 2 (alpha - 1) (Agarwal and
/// Marrow 2010).
pub fn agarwal_marrow_wa(alpha: f64) -> Result<f64, TheoryError> {
    check_alpha(alpha)?;
    Ok(alpha / (2.0 * (alpha - 1.0)))
}

/// Write amplification of random selection, 1 / (1 - rho), any segment being a victim (Van Houdt 2013, d = 1).
pub fn random_wa(rho: f64) -> Result<f64, TheoryError> {
    domain("rho", rho, rho > 0.0 && rho < 1.0, "exported / physical pages, over 0 and under 1")?;
    Ok(1.0 / (1.0 - rho))
}

/// Write amplification of FIFO when a share `r` of the writes goes to a share `f` of the pages, uniform in
/// both groups (Desnoyers 2012, sec. 4): A = 1 + r / (e^(r alpha / f A) - 1) + (1 - r) / (e^((1 - r) alpha /
/// (1 - f) A) - 1).
pub fn fifo_two_class_wa(alpha: f64, r: f64, f: f64) -> Result<f64, TheoryError> {
    check_alpha(alpha)?;
    check_shares(r, f)?;
    let right = |a: f64| {
        1.0 + r / ((r * alpha / (f * a)).exp_m1()) + (1.0 - r) / (((1.0 - r) * alpha / ((1.0 - f) * a)).exp_m1())
    };
    Ok(bisect(1.0, 1.0 / (1.0 - 1.0 / alpha) * 4.0, |a| a - right(a)))
}

/// Write amplification if each of the two classes has a pool of its own, cleaned by FIFO, and the spare space is split
/// in the best way: the minimum of r FIFO(1 + s / f) + (1 - r) FIFO(1 + (alpha - 1 - s) / (1 - f)) over s.
pub fn separated_pools_wa(alpha: f64, r: f64, f: f64) -> Result<f64, TheoryError> {
    check_alpha(alpha)?;
    check_shares(r, f)?;
    let spare = alpha - 1.0;
    let cost = |s: f64| r * fifo(1.0 + s / f) + (1.0 - r) * fifo(1.0 + (spare - s) / (1.0 - f));
    // Convex in s: golden-section search.
    let ratio = 0.5 * (5.0f64.sqrt() - 1.0);
    let (mut low, mut high) = (spare * 1e-9, spare * (1.0 - 1e-9));
    for _ in 0..120 {
        let (a, b) = (high - ratio * (high - low), low + ratio * (high - low));
        if cost(a) < cost(b) { high = b } else { low = a }
    }
    Ok(cost(0.5 * (low + high)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S, alpha, random, Agarwal, FIFO, greedy b=64, greedy b=256, FIFO 80/20, FIFO 90/10, separated 90/10.
    const TABLE: &[[f64; 10]] = &[
        [0.05, 1.0526, 20.000, 10.000, 10.172, 8.821, 9.796, 10.540, 11.250, 4.112],
        [0.07, 1.0753, 14.286, 7.143, 7.318, 6.600, 7.124, 7.682, 8.358, 3.093],
        [0.10, 1.1111, 10.000, 5.000, 5.179, 4.816, 5.083, 5.538, 6.168, 2.336],
        [0.15, 1.1765, 6.667, 3.333, 3.519, 3.353, 3.476, 3.869, 4.430, 1.759],
        [0.20, 1.2500, 5.000, 2.500, 2.693, 2.598, 2.668, 3.034, 3.533, 1.481],
        [0.25, 1.3333, 4.000, 2.000, 2.201, 2.140, 2.185, 2.533, 2.974, 1.322],
        [0.28, 1.3889, 3.571, 1.786, 1.992, 1.943, 1.979, 2.317, 2.727, 1.257],
        [0.30, 1.4286, 3.333, 1.667, 1.876, 1.833, 1.865, 2.197, 2.586, 1.222],
        [0.40, 1.6667, 2.500, 1.250, 1.480, 1.455, 1.474, 1.775, 2.068, 1.110],
        [0.50, 2.0000, 2.000, 1.000, 1.255, 1.239, 1.251, 1.516, 1.729, 1.053],
    ];

    #[test]
    fn the_table_of_closed_forms_is_met_to_its_last_digit() {
        for row in TABLE {
            let alpha = 1.0 / (1.0 - row[0]);
            let values = [
                alpha,
                random_wa(1.0 - row[0]).unwrap(),
                agarwal_marrow_wa(alpha).unwrap(),
                fifo_uniform_wa(alpha).unwrap(),
                greedy_uniform_wa(alpha, 64.0).unwrap(),
                greedy_uniform_wa(alpha, 256.0).unwrap(),
                fifo_two_class_wa(alpha, 0.8, 0.2).unwrap(),
                fifo_two_class_wa(alpha, 0.9, 0.1).unwrap(),
                separated_pools_wa(alpha, 0.9, 0.1).unwrap(),
            ];
            for (column, (value, printed)) in values.iter().zip(&row[1..]).enumerate() {
                assert!((value - printed).abs() <= 0.00051, "S {}, column {column}: {value} for {printed}", row[0]);
            }
        }
        assert!((fifo_uniform_wa(1.3).unwrap() - 2.364).abs() < 0.0005);
    }

    #[test]
    fn values_outside_the_domain_are_errors() {
        assert!(fifo_uniform_wa(1.0).is_err());
        assert!(fifo_uniform_wa(f64::NAN).is_err());
        assert!(greedy_uniform_wa(1.1, 0.0).is_err());
        assert!(fifo_two_class_wa(1.1, 1.0, 0.1).is_err());
        assert_eq!(
            random_wa(1.5).unwrap_err().to_string(),
            "rho = 1.5: expected exported / physical pages, over 0 and under 1"
        );
    }
}
