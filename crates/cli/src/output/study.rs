//! Reproductions as text: verdicts counted, claims beside what was measured, figures as tables.

use super::report::{new_table, right};
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{Cell, Table};
use margay_lab::reproduce::{Axis, Bound, Comparison, Curve, Figure, Point, Reproduction, Verdict};
use std::fmt::Write;

/// A number with as many digits as its size needs.
pub fn number(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "-".into(),
        size if size == 0.0 || (size >= 100.0 && size.fract() < 0.05) => format!("{value:.0}"),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

/// How far the measured value is from what it is held to: in percent, or in its own unit if the bound is in it.
pub fn off_by(one: &Comparison) -> String {
    match (one.bound, one.relative(), one.wanted) {
        (_, _, None) => String::new(),
        (Some(Bound::Relative(_)), Some(relative), _) => format!("{:+.2} %", relative * 100.0),
        (_, _, Some(wanted)) => {
            let text = number(one.measured - wanted);
            if text.starts_with('-') { text } else { format!("+{text}") }
        }
    }
}

/// What a claim is held to: a value and its bound, or a direction, or both.
pub fn held_to(one: &Comparison) -> String {
    let value = one.wanted.map(|wanted| match one.bound {
        Some(bound) => format!("{} ({bound})", number(wanted)),
        None => number(wanted),
    });
    let direction = one.direction.map(|direction| direction.to_string());
    match (value, direction) {
        (Some(value), Some(direction)) => format!("{value}, {direction}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => "-".into(),
    }
}

/// Measured, with the deviation if there is one.
pub fn measured(one: &Comparison) -> String {
    if one.deviation == 0.0 {
        number(one.measured)
    } else {
        format!("{} +- {}", number(one.measured), number(one.deviation))
    }
}

/// The places of the comparisons in the order of their first mention, each with its comparisons.
pub fn by_place(result: &Reproduction) -> Vec<(&str, Vec<&Comparison>)> {
    let mut places: Vec<(&str, Vec<&Comparison>)> = Vec::new();
    for one in &result.comparisons {
        match places.iter_mut().find(|(place, _)| *place == one.place) {
            Some((_, all)) => all.push(one),
            None => places.push((&one.place, vec![one])),
        }
    }
    places
}

/// The notes of comparisons, each once, in the order of their first mention.
pub fn notes<'a>(comparisons: &[&'a Comparison]) -> Vec<&'a str> {
    let mut notes: Vec<&str> = Vec::new();
    for one in comparisons {
        if !one.note.is_empty() && !notes.contains(&one.note.as_str()) {
            notes.push(&one.note);
        }
    }
    notes
}

/// The verdicts counted.
fn counts(result: &Reproduction) -> String {
    let mut table = new_table(&["verdict", "rows", "meaning"]);
    for (verdict, count) in result.counts() {
        table.add_row(vec![Cell::new(verdict), right(count), Cell::new(verdict.meaning())]);
    }
    table.to_string()
}

/// A figure as a table: a line for each x, a column for each curve.
fn figure(figure: &Figure) -> String {
    let mut header = vec![figure.x.clone()];
    header.extend(figure.curves.iter().map(|curve| curve.name.clone()));
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(header);
    let points = || figure.curves.iter().flat_map(|curve| &curve.points);
    let mut xs: Vec<f64> = points().map(|point| point.x).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let digits = if points().all(|point| point.y.abs() < 10.0) { 3 } else { 1 };
    for x in xs {
        let value = |curve: &Curve| {
            let found = curve.points.iter().find(|point| point.x == x);
            found.map_or(String::new(), |Point { y, .. }| format!("{y:.digits$}"))
        };
        let name = match &figure.axis {
            Axis::Named(names) => Cell::new(names.get(x as usize).map_or("", String::as_str)),
            _ => right((x * 1000.0).round() / 1000.0),
        };
        table.add_row(std::iter::once(name).chain(figure.curves.iter().map(|curve| right(value(curve)))));
    }
    format!("{} ({})\n{table}\n", figure.title, figure.y)
}

/// The whole result: the verdicts counted, every claim, the figures, what was found.
pub fn report(title: &str, result: &Reproduction, over: &str) -> String {
    let mut text = format!("{title}, means over {over}\n{}\n", counts(result));
    for (place, comparisons) in by_place(result) {
        let notes = notes(&comparisons);
        let header = ["cell", "measure", "published", "held to", "measured", "off by", "verdict", "note"];
        let mut table = new_table(&header);
        for one in comparisons {
            let note = notes.iter().position(|note| *note == one.note).map(|at| (at + 1).to_string());
            table.add_row(vec![
                Cell::new(&one.cell),
                Cell::new(&one.measure),
                right(&one.published),
                right(held_to(one)),
                right(measured(one)),
                right(off_by(one)),
                Cell::new(one.verdict),
                right(note.unwrap_or_default()),
            ]);
        }
        let _ = writeln!(text, "\n{place}\n{table}");
        for (at, note) in notes.iter().enumerate() {
            let _ = writeln!(text, "{}: {note}", at + 1);
        }
    }
    text.push('\n');
    result.figures.iter().for_each(|one| text += &figure(one));
    result.findings.iter().for_each(|finding| {
        let _ = writeln!(text, "{finding}");
    });
    text
}

/// The rows that are outside their bounds, in a sentence.
pub fn missed(result: &Reproduction) -> String {
    let missed = result.comparisons.iter().filter(|one| one.verdict == Verdict::Missed);
    missed.map(|one| format!("{}, {}", one.cell, one.measure)).collect::<Vec<_>>().join("; ")
}
