//! A reproduction as one HTML page that needs nothing else: figures, tables and text are in it.

use super::figure::{escape, svg};
use super::study::{by_place, held_to, measured, notes, off_by};
use margay_lab::reproduce::{Comparison, Figure, Paper, Reproduction, Verdict};
use std::fmt::Write;

const STYLE: &str = "
body { font: 16px/1.5 'DejaVu Sans', Helvetica, Arial, sans-serif; color: #1a1a1a; background: white; max-width: 1180px; margin: 2em auto; padding: 0 1em; }
h1, h2, h3 { line-height: 1.25; } h2 { margin-top: 2.2em; border-bottom: 1px solid #ccc; }
p, dl, li { max-width: 48em; }
table { border-collapse: collapse; font-size: 13.5px; margin: 1em 0; }
th, td { padding: 3px 9px; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
td.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
figure { margin: 1.2em 0; overflow-x: auto; } svg { max-width: 100%; height: auto; }
dt { font-weight: bold; } dd { margin: 0 0 .4em 1.5em; }
.verdict { white-space: nowrap; font-weight: bold; padding: 1px 7px; border-radius: 3px; }
.met { background: #cdebd5; } .model { background: #d7e8f7; } .fitted { background: #e9e9e9; }
.direction { background: #fdf0c8; } .reversed { background: #f9d3c5; } .other { background: #f4f4f4; } .missed { background: #e0312d; color: white; }
.notes { font-size: 13.5px; } .asked { border-left: 4px solid #0072b2; padding-left: 1em; }
details { margin: 1em 0; } summary { cursor: pointer; }
";

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met",
        Verdict::Model => "model",
        Verdict::Fitted => "fitted",
        Verdict::DirectionOnly => "direction",
        Verdict::Reversed => "reversed",
        Verdict::NotComparable => "other",
        Verdict::Missed => "missed",
    }
}

fn mark(verdict: Verdict) -> String {
    format!("<span class=\"verdict {}\">{verdict}</span>", class(verdict))
}

fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escape(text))
}

/// The verdicts counted, with their meanings.
fn counts(result: &Reproduction) -> String {
    let mut text = String::from("<table><tr><th>verdict</th><th>rows</th><th>meaning</th></tr>\n");
    for (verdict, count) in result.counts() {
        let meaning = escape(verdict.meaning());
        let _ = writeln!(text, "<tr><td>{}</td><td class=\"n\">{count}</td><td>{meaning}</td></tr>", mark(verdict));
    }
    text + "</table>\n"
}

/// How many of the comparisons have which verdict, in a line.
fn in_a_line(comparisons: &[&Comparison]) -> String {
    let count = |kind: Verdict| comparisons.iter().filter(|one| one.verdict == kind).count();
    let counted = Verdict::ALL.into_iter().map(|kind| (kind, count(kind))).filter(|(_, count)| *count > 0);
    counted.map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
}

fn table(place: &str, comparisons: &[&Comparison]) -> String {
    const LONG: usize = 16;
    let notes = notes(comparisons);
    let mut text = format!("<h3>{}</h3>\n", escape(place));
    if comparisons.len() > LONG {
        let _ =
            writeln!(text, "<details open><summary>{} rows: {}</summary>", comparisons.len(), in_a_line(comparisons));
    }
    text += "<table><tr><th>cell</th><th>measure</th><th>published</th><th>held to</th><th>measured</th><th>off by</th><th>verdict</th></tr>\n";
    for one in comparisons {
        let note = notes.iter().position(|note| *note == one.note);
        let note = note.map_or(String::new(), |at| format!("<sup>{}</sup>", at + 1));
        let cells = [&one.cell, &one.measure].map(|cell| format!("<td>{}</td>", escape(cell))).concat();
        let numbers = [one.published.clone(), held_to(one), measured(one).replace("+-", "\u{b1}"), off_by(one)];
        let numbers = numbers.map(|number| format!("<td class=\"n\">{}</td>", escape(&number))).concat();
        let _ = writeln!(text, "<tr>{cells}{numbers}<td>{}{note}</td></tr>", mark(one.verdict));
    }
    text += "</table>\n";
    if !notes.is_empty() {
        let items: String = notes.iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
        let _ = writeln!(text, "<ol class=\"notes\">{items}</ol>");
    }
    if comparisons.len() > LONG {
        text += "</details>\n";
    }
    text
}

fn drawn(figure: &Figure) -> String {
    format!("<figure>{}</figure>\n", svg(figure))
}

fn document(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n{body}</body></html>\n"
    )
}

/// The page of one paper. `made` says how it was made, a line each; `is_default` that nothing was changed from what the
/// paragraphs on differences tell about.
pub fn page(paper: &Paper, result: &Reproduction, made: &[String], is_default: bool) -> String {
    let mut body = format!("<p><i>{}</i></p>\n", escape(paper.source));
    paper.about.iter().for_each(|text| body += &paragraph(text));
    body += "<h2>What came out</h2>\n";
    body += &counts(result);
    body += &paragraph(
        "Each row of the tables below holds one published figure or claim to what was measured. Bounds were stated before the run. Diamonds in the figures are published points; bars and lines are measured, error bars are 95 % intervals over the seeds unless the title says otherwise.",
    );
    if !is_default {
        body += &paragraph(
            "This run differs from the one that the paragraphs \"How it differs\" tell about: other seeds, other traces or another size. The last section says which. Figures and tables are of this run.",
        );
    }
    body += "<h2>Words</h2>\n<dl>\n";
    for (word, meaning) in paper.words {
        let _ = writeln!(body, "<dt>{}</dt><dd>{}</dd>", escape(word), escape(meaning));
    }
    body += "</dl>\n";
    let places = by_place(result);
    for section in paper.sections {
        let of_it: Vec<_> = places.iter().filter(|(place, _)| section.places.contains(place)).collect();
        let begins = |figure: &&Figure| section.figures.iter().any(|begin| is_of(&figure.name, begin));
        let figures: Vec<_> = result.figures.iter().filter(begins).collect();
        let _ = writeln!(body, "<h2>{}</h2>", escape(section.title));
        let _ = writeln!(body, "<p class=\"asked\"><b>What the paper asked.</b> {}</p>", escape(section.asked));
        if of_it.is_empty() && figures.is_empty() {
            body += &paragraph("This part was not run; see the last section.");
            continue;
        }
        figures.iter().for_each(|figure| body += &drawn(figure));
        of_it.iter().for_each(|(place, comparisons)| body += &table(place, comparisons));
        let _ = writeln!(body, "<p><b>How it differs.</b> {}</p>", escape(section.difference));
    }
    let known = |place: &str| paper.sections.iter().any(|section| section.places.contains(&place));
    let has_section = |figure: &Figure| {
        paper.sections.iter().any(|section| section.figures.iter().any(|begin| is_of(&figure.name, begin)))
    };
    let more: Vec<_> = places.iter().filter(|(place, _)| !known(place)).collect();
    let figures: Vec<_> = result.figures.iter().filter(|figure| !has_section(figure)).collect();
    if !more.is_empty() || !figures.is_empty() {
        body += "<h2>More that was measured</h2>\n";
        figures.iter().for_each(|figure| body += &drawn(figure));
        more.iter().for_each(|(place, comparisons)| body += &table(place, comparisons));
    }
    let list = |items: &[String]| items.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect::<String>();
    if !result.findings.is_empty() {
        let _ = writeln!(body, "<h2>Also found</h2>\n<ul>{}</ul>", list(&result.findings));
    }
    let _ = writeln!(body, "<h2>How this page was made</h2>\n<ul>{}</ul>", list(made));
    document(paper.title, &body)
}

/// Whether a figure's name begins with this word: "fig1" is not the beginning of "fig12".
fn is_of(name: &str, begin: &str) -> bool {
    name.strip_prefix(begin).is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

/// The page that leads to those of the papers.
pub fn index(studies: &[(&Paper, &Reproduction)]) -> String {
    let mut body = paragraph(
        "Each page says what a paper asked, shows what it published beside what margay measures with the same engine that stores data, and says where the two differ. They can be read without the papers.",
    );
    for (paper, result) in studies {
        let all: Vec<_> = result.comparisons.iter().collect();
        let _ = writeln!(
            body,
            "<h2><a href=\"{}.html\">{}</a></h2>\n<p><i>{}</i></p>\n<p>{} rows: {}.</p>",
            paper.name,
            escape(paper.title),
            escape(paper.source),
            all.len(),
            in_a_line(&all)
        );
    }
    document("Published results, reproduced", &body)
}
