//! What theory expects of a run, where it has a formula.

use crate::experiment::{Experiment, Source};
use margay_theory::{FullVictims, d_choices_wa, fifo_uniform_wa, greedy_uniform_wa, random_wa};
use margay_workload::Pattern;

/// The write amplification that theory gives for uniform random writes to all pages without leveling, at this ratio of the
/// pages from which victims are drawn to exported pages; none where no formula applies.
pub(crate) fn theory_wa(experiment: &Experiment, data_pages: u32, alpha: f64) -> Option<f64> {
    let Source::Workload(spec) = &experiment.source else { return None };
    let is_uniform = spec.pattern == Pattern::Random && spec.trims == 0.0 && spec.read_only == 0.0;
    let is_plain = experiment.own.is_none()
        && experiment.fill == 1.0
        && experiment.leveling.name() == "none"
        && !experiment.separate_read_only;
    let all_cleaning_at_once = experiment.max_pages_per_write == 0;
    // With more streams copies are apart from host writes, for which there is no closed form.
    if !(is_uniform && is_plain && all_cleaning_at_once && experiment.placement.name() == "m1" && alpha > 1.0) {
        return None;
    }
    match experiment.selection.name() {
        "greedy" => greedy_uniform_wa(alpha, data_pages.into()).ok(),
        "fifo" => fifo_uniform_wa(alpha).ok(),
        "random" => random_wa(1.0 / alpha).ok(),
        "d-choices" => {
            let d = experiment.selection.args().number("d");
            d_choices_wa(1.0 / alpha, data_pages, d.into(), FullVictims::Redrawn).ok()
        }
        _ => None,
    }
}
