//! The answer in plain words.

use super::{Advice, Candidate, Life, Rival, Search, Verdict};
use crate::result::ResultRow;
use crate::statistics::Interval;
use crate::summary::policies_of;
use std::fmt::Write;

/// Bytes with a unit of 1,000s, with four digits.
pub(super) fn bytes(count: f64) -> String {
    let units = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    let Some((unit, size)) = units.iter().find(|(_, size)| count >= *size) else { return format!("{count:.0} bytes") };
    match count / size {
        huge if huge >= 1e6 => format!("{huge:.3e} {unit}"),
        number if number >= 1000.0 => format!("{number:.0} {unit}"),
        number if number >= 100.0 => format!("{number:.1} {unit}"),
        number if number >= 10.0 => format!("{number:.2} {unit}"),
        number => format!("{number:.3} {unit}"),
    }
}

/// A number of years: `1 year`, `2.5 years`.
pub(super) fn years_text(years: f64) -> String {
    if years == 1.0 { "1 year".into() } else { format!("{years} years") }
}

pub(super) fn percent(share: f64) -> String {
    let text = format!("{:.1}", 100.0 * share);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// The policies, without parameters that are the usual ones.
fn name(policies: &Candidate, row: &ResultRow) -> String {
    let row = ResultRow {
        selection: policies.selection.clone(),
        placement: policies.placement.clone(),
        leveling: policies.leveling.clone(),
        ..row.clone()
    };
    let (selection, placement) = policies_of(&row);
    format!("{selection} + {placement}")
}

fn wa(mean: f64, half95: Option<f64>) -> String {
    Interval { mean, half95, count: 1 }.show(3)
}

fn life(life: Option<Life>) -> String {
    life.map_or_else(|| "not known".into(), Life::show)
}

/// Columns beside each other, those after the first on the right.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let count = |text: &str| text.chars().count();
    let width = |at: usize| rows.iter().map(|row| count(&row[at])).chain([count(head[at])]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    let heads: Vec<String> = head.iter().map(ToString::to_string).collect();
    for row in std::iter::once(&heads).chain(rows) {
        let mut line = String::from(" ");
        for (at, cell) in row.iter().enumerate() {
            let room = " ".repeat(widths[at] - count(cell));
            let _ = if at == 0 { write!(line, " {cell}{room}") } else { write!(line, "   {room}{cell}") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// The names of policies that cannot be told apart from the advised ones.
fn as_good(rivals: &[Rival], row: &ResultRow) -> Option<String> {
    let names: Vec<String> =
        rivals.iter().skip(1).filter(|rival| !rival.is_apart).map(|rival| name(&rival.policies, row)).collect();
    let (shown, more) = (names.iter().take(3).cloned().collect::<Vec<_>>().join(", "), names.len().saturating_sub(3));
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!names.is_empty()).then(|| format!("{shown}{more}"))
}

/// What would make a lifetime that is not reached possible.
fn way_out(advice: &Advice, reached: f64) -> String {
    let times = advice.years / reached;
    format!(
        "Flash that endures {times:.1} times as many erases, {times:.1} times as much flash for the same data, or {} a day instead of {} would do.",
        bytes(advice.bytes_per_day / times),
        bytes(advice.bytes_per_day)
    )
}

pub(super) fn text(advice: &Advice, row: &ResultRow) -> String {
    let (years, chosen) = (years_text(advice.years), name(&advice.policies, row));
    let step = advice.steps.iter().find(|step| step.over_provisioning == advice.over_provisioning);
    let Some(step) = step else { return String::new() };
    let (exported, flash) = (bytes(step.exported_bytes), bytes(step.flash_bytes));
    let room = format!("{} over-provisioning, {exported} of {flash} of flash", percent(step.over_provisioning));
    let measured = format!("WA {}, {}", wa(step.wa, step.wa_half95), life(step.life));
    let mut text = format!(
        "{} on {}, which endures {} erases a segment: {} written a day, {years} wanted.\n\n",
        row.source,
        row.device,
        row.forecast.endurance_erases,
        bytes(advice.bytes_per_day)
    );
    text += &match &advice.verdict {
        Verdict::Yes => format!("Yes: choose {chosen} with {room}. {measured}.\n"),
        Verdict::No => {
            let reached = step.life.map_or(f64::NAN, |life| life.high);
            let most = life(step.life);
            format!(
                "No: {years} cannot be reached with this device. The most that was found is {most}, by {chosen} with {room} (WA {}). {}\n",
                wa(step.wa, step.wa_half95),
                way_out(advice, reached)
            )
        }
        Verdict::Uncertain(why) => {
            format!("Not certain: {why}. What comes nearest is {chosen} with {room}. {measured}.\n")
        }
    };
    let sure = match step.seeds {
        1 => "one run, in which nothing is left to chance, and the interval is from parts of its warm window".into(),
        seeds => format!("{seeds} runs with different seeds"),
    };
    let _ = writeln!(
        text,
        "The figures are means with 95 % intervals, from {sure}. The years are from the first worn segment (if each goes on as in the run) to even wear of all."
    );
    if let Some(names) = as_good(&advice.rivals, row) {
        let _ = writeln!(
            text,
            "Not to be told apart from it, in WA and in years: {names}. Of policies that cannot be told apart from the best the simplest are advised: without leveling, then with the fewest streams, then with usual parameters."
        );
    }
    let plain = Candidate::plain();
    if let Some(rival) = advice.rivals.iter().find(|rival| rival.policies == plain && advice.policies != plain) {
        let _ = writeln!(
            text,
            "Greedy with one stream (greedy + m1) there: WA {}, {}.",
            wa(rival.wa, rival.wa_half95),
            life(rival.life)
        );
    }
    if advice.policies.is_leveled() {
        text += "Leveling is part of the advice; its spread is that of short runs, and a wider one copies less.\n";
    }
    let _ = write!(text, "\nWhat each step of over-provisioning costs and gains, with {chosen}:\n{}", steps(advice));
    let rows: Vec<Vec<String>> = advice
        .rivals
        .iter()
        .map(|rival| {
            let apart = if rival.policies == advice.policies {
                "advised"
            } else if rival.is_apart {
                ""
            } else {
                "cannot be told apart"
            };
            vec![name(&rival.policies, row), wa(rival.wa, rival.wa_half95), life(rival.life), apart.into()]
        })
        .collect();
    let _ = write!(
        text,
        "\nPolicies at {}:\n{}",
        percent(advice.over_provisioning),
        table(&["policies", "WA", "life", ""], &rows)
    );
    text += "\nNot looked at:\n";
    for line in &advice.not_looked_at {
        let _ = writeln!(text, "- {line}");
    }
    text
}

fn steps(advice: &Advice) -> String {
    let mut rows = Vec::new();
    let mut before: Option<&super::Step> = None;
    for step in &advice.steps {
        let change = |now: f64, before: f64| format!("{:+.1} %", 100.0 * (now / before - 1.0));
        let room = |step: &super::Step| step.exported_bytes / step.flash_bytes;
        let middle = |step: &super::Step| step.life.map_or(f64::NAN, |life| f64::midpoint(life.low, life.high));
        let against = |of: &dyn Fn(&super::Step) -> f64| {
            before.map(|before| change(of(step), of(before))).filter(|text| !text.contains("NaN")).unwrap_or_default()
        };
        rows.push(vec![
            percent(step.over_provisioning),
            bytes(step.exported_bytes),
            bytes(step.flash_bytes),
            against(&room),
            wa(step.wa, step.wa_half95),
            against(&|step| step.wa),
            life(step.life),
            against(&middle),
            step.verdict.word().into(),
        ]);
        before = Some(step);
    }
    let wanted = years_text(advice.years) + "?";
    let head = ["spare", "capacity", "flash", "per flash", "WA", "change", "life", "change", wanted.as_str()];
    table(&head, &rows)
}

/// What the answer says nothing of.
pub(super) fn not_looked_at(search: &Search<'_, '_>, pairs: &[Candidate]) -> Vec<String> {
    let mut lines = Vec::new();
    let left = pairs.iter().filter(|pair| !search.known.iter().any(|one| one.candidate == **pair)).count();
    if left > 0 {
        lines.push(format!(
            "{left} of {} pairs of policies beyond short runs at two over-provisionings, in which others did better",
            pairs.len()
        ));
    }
    if search.question.selections.is_empty() || search.question.placements.is_empty() {
        lines.push("policies that are not usual (`margay policies`); name them to have them tried".into());
    }
    lines.push("parameters of policies other than the best, and several parameters changed together".into());
    lines.push("over-provisioning between and outside the steps, other segment sizes and other marks".into());
    for (at, greatest) in &search.same {
        let Some(one) = search.known.iter().find(|one| one.at == *at) else { continue };
        lines.push(format!(
            "over-provisioning from {} to {} apart: each gives the same device, with {}, which was run once",
            percent(search.steps[*at]),
            percent(*greatest),
            percent(one.rows[0].over_provisioning)
        ));
    }
    let mut refused: Vec<String> = Vec::new();
    for (candidate, step, why) in &search.refused {
        if !search.known.iter().any(|one| one.candidate == *candidate && search.steps[one.at] == *step) {
            refused.push(format!("{} + {} at {}: {why}", candidate.selection, candidate.placement, percent(*step)));
        }
    }
    if let [first, others @ ..] = refused.as_slice() {
        let more = if others.is_empty() { String::new() } else { format!(" (and {} more of the kind)", others.len()) };
        lines.push(format!("what cannot be run: {first}{more}"));
    }
    lines.push(
        "a disk that is not full, a workload that changes, heat, retention and read errors: only wear by erases".into(),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_four_digits_that_are_rounded_and_not_cut() {
        let texts = [999.0, 1234.0, 16_777_216.0, 1_073_741_824.0, 999.96e9, 123_456e12, 1e300].map(bytes);
        let expected = ["999 bytes", "1.234 kB", "16.78 MB", "1.074 GB", "1000.0 GB", "123456 TB", "1.000e288 TB"];
        assert_eq!(texts, expected);
    }
}
