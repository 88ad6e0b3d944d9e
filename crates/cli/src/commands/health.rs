//! What `margay info` and `margay fs stat` say of the life of a device.

use super::device::size;
use margay_lab::span;
use margay_media::ChipStats;
use margay_volume::Health;
use serde_json::{Value, json};

/// Lines for people: what each is of, and what is said. `age_s` is the time since formatting in seconds, if that is known, and
/// `reserve` how many segments may still fail.
pub fn lines(
    health: &Health,
    reserve: Option<u32>,
    age_s: Option<u64>,
    stats: Option<&ChipStats>,
) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let life = match (health.endurance_erases, health.used_ratio, health.max_used_ratio) {
        (Some(endurance), Some(used), Some(max)) => format!(
            "{:.2} % used, {:.2} % of the segment erased most (of {endurance} erases each)",
            100.0 * used,
            100.0 * max
        ),
        _ => "not known: it was formatted without --endurance".into(),
    };
    lines.push(("life", life));
    if health.endurance_erases.is_some() {
        let left = match (health.bytes_left, health.seconds_left, age_s) {
            (Some(bytes), Some(seconds), Some(age)) => format!(
                "{} can still be written; {} at the rate of the {} since it was formatted",
                size(bytes),
                span(seconds),
                span(age as f64)
            ),
            (Some(bytes), ..) => format!("{} can still be written; the time is not known", size(bytes)),
            (None, ..) => "nothing was written yet from which it would follow".into(),
        };
        lines.push(("life left", left));
    }
    let (min, mean, max) = health.erases;
    lines.push(("erases of a segment", format!("{min} to {max}, mean {mean:.1}")));
    let retired = health.retired_segments;
    let reserve = reserve.map_or_else(String::new, |reserve| {
        format!("; {reserve} more may fail before it can only be read, with everything on it")
    });
    lines.push(("retired segments", format!("{retired}{reserve}")));
    if let Some(stats) = stats {
        let ChipStats { corrected_bits, uncorrectable, bad, .. } = stats;
        let text = format!(
            "{corrected_bits} bits corrected, {uncorrectable} reads with too many wrong, since its driver was loaded; {bad} segments marked bad"
        );
        lines.push(("chip", text));
    }
    lines
}

/// The same for programs.
pub fn json(health: &Health, reserve: Option<u32>, stats: Option<&ChipStats>) -> Value {
    let (min, mean, max) = health.erases;
    json!({
        "endurance_erases": health.endurance_erases, "used_ratio": health.used_ratio,
        "max_used_ratio": health.max_used_ratio, "bytes_left": health.bytes_left, "seconds_left": health.seconds_left,
        "min_erases": min, "mean_erases": mean, "max_erases": max, "reserve_segments": reserve,
        "chip": stats.map(|stats| json!({
            "corrected_bits": stats.corrected_bits, "uncorrectable_reads": stats.uncorrectable,
            "bad_segments": stats.bad,
        })),
    })
}
