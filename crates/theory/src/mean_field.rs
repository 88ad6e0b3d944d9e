use crate::{TheoryError, domain};

/// What happens if every segment that is drawn is fully valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullVictims {
    /// One of them is cleaned, which frees nothing: the paper's model.
    Allowed,
    /// Segments are drawn again: margay's policy.
    Redrawn,
}

/// Write amplification of d-choices under uniform random writes (Van Houdt 2013): the fixed point of
/// df_i/dt = -(b - m) i f_i / rho b + (b - m)(i + 1) f_(i+1) / rho b - p_i + [i = b], with f_i the share of
/// segments with i valid pages, p_i = S_i^d - S_(i+1)^d the victim's distribution, S_i the sum of f_l over
/// l >= i, m its mean; WA = b / (b - m).
///
/// The victim is the emptiest of `d` segments drawn at random; for large `d` the result tends to that of greedy.
pub fn d_choices_wa(rho: f64, pages_per_segment: u32, d: f64, full: FullVictims) -> Result<f64, TheoryError> {
    domain("rho", rho, rho > 0.0 && rho < 1.0, "exported / physical pages, over 0 and under 1")?;
    domain("d", d, d.is_finite() && d >= 1.0, "segments drawn, at least 1")?;
    let b = pages_per_segment as usize;
    domain("b", b as f64, (2..=65_536).contains(&b), "pages per segment, from 2 to 65536")?;
    // Summed over l >= i the fixed point reads g i f_i = 1 - P_i, with g = (b - m) / rho b and P_i the
    // probability that the victim has i or more valid pages: one equation in f_i once S_(i+1) is known. The
    // right g is the one at which the valid pages, which fall with g, add up to rho b.
    let wanted = rho * f64::from(pages_per_segment);
    let (mut low, mut high) = (1e-9f64, 1e9f64);
    for _ in 0..100 {
        let middle = (low * high).sqrt();
        if valid_pages(middle, b, d, full) > wanted { low = middle } else { high = middle }
    }
    // b - m = g rho b, so b / (b - m) = 1 / (g rho).
    Ok(1.0 / ((low * high).sqrt() * rho))
}

/// The sum of i f_i for a given g.
fn valid_pages(g: f64, b: usize, d: f64, full: FullVictims) -> f64 {
    let redrawn = full == FullVictims::Redrawn;
    let (mut at_least, mut all_full, mut valid) = (0.0f64, 0.0, 0.0);
    for i in (1..=b).rev() {
        let excess = |share: f64| {
            let drawn = (at_least + share).powf(d);
            let victim = match (redrawn, i == b) {
                (false, _) => drawn,
                (true, true) => 0.0,
                (true, false) => (drawn - all_full) / (1.0 - all_full),
            };
            g * i as f64 * share - (1.0 - victim)
        };
        let share = root(1.0 - at_least, excess);
        at_least += share;
        valid += i as f64 * share;
        if redrawn && i == b {
            all_full = at_least.powf(d);
            if all_full >= 1.0 {
                return b as f64;
            }
        }
    }
    valid
}

/// The root in `0..=high` of an increasing function.
fn root(high: f64, function: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, high);
    for _ in 0..52 {
        let middle = 0.5 * (low + high);
        if function(middle) < 0.0 { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_mean_field_is_met() {
        let cases = [
            (64, 0.90, 2.0, 6.852),
            (64, 0.90, 10.0, 5.000),
            (64, 0.90, 100.0, 4.828),
            (256, 0.95, 10.0, 10.114),
            (256, 0.90, 10.0, 5.226),
            (256, 0.85, 10.0, 3.567),
            (256, 0.80, 10.0, 2.734),
            (256, 0.95, 100.0, 9.809),
            (256, 0.90, 100.0, 5.086),
            (256, 0.85, 100.0, 3.478),
            (256, 0.80, 100.0, 2.670),
        ];
        for (b, rho, d, printed) in cases {
            let value = d_choices_wa(rho, b, d, FullVictims::Allowed).unwrap();
            assert!((value - printed).abs() < 0.0011, "b {b}, rho {rho}, d {d}: {value} for {printed}");
        }
        let greedy = d_choices_wa(0.9, 32, 100.0, FullVictims::Allowed).unwrap();
        assert!((greedy - 4.525).abs() < 0.001, "{greedy}");
    }

    #[test]
    fn one_choice_is_random_selection() {
        let value = d_choices_wa(0.9, 64, 1.0, FullVictims::Allowed).unwrap();
        assert!((value - 10.0).abs() < 1e-6, "{value}");
        let redrawn = d_choices_wa(0.9, 64, 1.0, FullVictims::Redrawn).unwrap();
        assert!(redrawn < value, "a full victim gains nothing: {redrawn}");
    }

    #[test]
    fn redrawing_full_victims_matters_only_for_few_choices() {
        let d = |full| d_choices_wa(0.9, 64, 10.0, full).unwrap();
        assert!((d(FullVictims::Allowed) - d(FullVictims::Redrawn)).abs() < 1e-6);
    }
}
