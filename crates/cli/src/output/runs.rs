//! Reports on runs of the laboratory: of one, of a comparison, of a sweep.

use super::report::{bytes, maybe, time_us};
use super::tables::{Column, fitted, wrapped};
use margay_lab::summary::{Group, advice};
use margay_lab::sweep::{Point, plain};
use margay_lab::{Outcome, ResultRow, span};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The device, the source and the parameters of a run, in some lines.
fn heading(row: &ResultRow) -> String {
    let page = f64::from(row.page_bytes);
    let raw = f64::from(row.segments) * f64::from(row.pages_per_segment) * page;
    let on = format!(
        "{} on {}: {} in {} segments of {} data pages of {} bytes",
        row.source,
        row.device,
        bytes(raw),
        row.segments,
        row.data_pages_per_segment,
        row.page_bytes
    );
    let exported = format!(
        "exported {} ({} pages), over-provisioning {:.4} (data pages / exported pages - 1), filled {} pages, {} read-only",
        bytes(f64::from(row.exported_pages) * page),
        row.exported_pages,
        row.over_provisioning,
        row.filled_pages,
        row.read_only_pages
    );
    let mut text = wrapped(&on, 2) + &wrapped(&exported, 2);
    if !row.trace_xxh3.is_empty() {
        let trace = format!("trace {} xxh3 {}, {} bad lines skipped", row.trace_format, row.trace_xxh3, row.bad_lines);
        text += &wrapped(&trace, 2);
    }
    text
}

fn idle_note(row: &ResultRow) -> String {
    if row.erases > 0 {
        return String::new();
    }
    wrapped(
        "note: nothing was cleaned; to see what cleaning costs, run longer (--device-writes, --repeat) or on a smaller device",
        2,
    )
}

/// What the warm window is, and whether the run had settled in it.
fn window_note(row: &ResultRow) -> String {
    let rule = match row.warm_rule.as_str() {
        "fixed" => "its start fixed by --warm-up",
        "mser-5" => "its start found by MSER-5",
        _ => "its start found by MSER over passes of the trace",
    };
    let settled = if row.settled { "the run had settled".into() } else { format!("NOT SETTLED: {}", row.unsettled) };
    format!("host writes {} to {}, {rule}: {settled}", row.warm_from, row.warm_to)
}

/// The report on runs of one experiment, which differ in their seed.
pub fn replay(outcomes: &[Outcome]) -> String {
    let Some(first) = outcomes.first() else { return "there were no runs\n".into() };
    let row = &first.row;
    let group = Group { rows: outcomes.iter().map(|outcome| &outcome.row).collect() };
    let mut text = heading(row);
    let seeds = if outcomes.len() == 1 {
        format!("seed {}", row.seed)
    } else {
        format!("means of {} seeds from {} on, +- half their 95 % intervals", outcomes.len(), row.seed)
    };
    text += &wrapped(&format!("{} + {}, leveling {}; {seeds}", row.selection, row.placement, row.leveling), 2);
    let mut lines: Vec<(String, String, String)> = Vec::new();
    let mut line = |name: &str, value: String, what: &str| lines.push((name.into(), value, what.into()));
    let mean = |measure: fn(&ResultRow) -> f64, digits: usize| group.interval(measure).show(digits);
    line(
        "write amplification",
        mean(|row| row.wa, 4),
        "(host writes + copies + metadata pages) / host writes, whole run",
    );
    let interval = match (outcomes.len(), row.wa_warm_half95) {
        (1, Some(_)) => "; +- half the 95 % interval, from parts of the window",
        _ => "",
    };
    line("  warm window", group.wa().show(4), &format!("{}{interval}", window_note(row)));
    let effective = mean(|row| row.effective_over_provisioning, 4);
    line(
        "  effective OP",
        effective,
        "over-provisioning without the open segments and those kept free, as theory means it",
    );
    if let Some(theory) = row.theory_wa {
        let model = format!(
            "what theory expects there: margay model {} alpha={:.5} b={}",
            row.selection.split(':').next().unwrap_or_default(),
            1.0 + row.effective_over_provisioning,
            row.data_pages_per_segment
        );
        line("  theory", format!("{theory:.4}"), &model);
    }
    line("host writes", mean(|row| row.host_writes as f64, 0), "pages");
    let (reads, trims) = (mean(|row| row.host_reads as f64, 0), mean(|row| row.trims as f64, 0));
    line("host reads, trims", format!("{reads}, {trims}"), "pages");
    let leveling = format!("pages; {:.0} of them by leveling", group.mean(|row| row.leveling_copies as f64));
    line("copies", mean(|row| row.copies as f64, 0), &leveling);
    line("metadata pages", mean(|row| row.metadata_pages as f64, 0), "segment headers and summaries");
    line("erases", mean(|row| row.erases as f64, 0), "segments");
    let spread = format!(
        "{:.0} / {:.1} / {:.0} / {:.0}",
        group.mean(|row| row.erases_min.into()),
        group.mean(|row| row.erases_mean),
        group.mean(|row| row.erases_p99.into()),
        group.mean(|row| row.erases_max.into())
    );
    line("erase counts", spread, "minimum / mean / 99th percentile / maximum over the segments");
    line("uneven wearing", mean(|row| row.erases_deviation, 3), "standard deviation of erase counts (n - 1)");
    line("victim utilization", mean(|row| row.victim_utilization, 4), "mean share of valid pages in victims");
    let state = format!(
        "{:.4} / {:.4} / {:.4}",
        group.mean(|row| row.utilization),
        group.mean(|row| row.invalidity),
        group.mean(|row| row.uniformity)
    );
    line("state at the end", state, "utilization / invalidity / uniformity");
    line("flash time", span(group.mean(|row| row.flash_s)), "modelled: programs, copies, erases");
    let throughput = format!("{}/s", bytes(group.mean(|row| row.throughput_bytes_per_s)));
    line("throughput", throughput, "modelled: host bytes / flash time");
    if row.energy_j.is_some() {
        line("energy", format!("{:.2} J", group.mean(|row| row.energy_j.unwrap_or(f64::NAN))), "modelled");
    }
    let write =
        format!("{} / {}", time_us(group.mean(|row| row.p99_write_us)), time_us(group.mean(|row| row.worst_write_us)));
    let worst = group.rows.iter().map(|row| row.worst_write_pages).max().unwrap_or(0);
    line("a host write", write, &format!("modelled, 99th percentile / worst ({worst} pages programmed)"));
    let some = |measure: fn(&ResultRow) -> Option<f64>, digits| {
        let mean = group.mean(|row| measure(row).unwrap_or(f64::NAN));
        maybe(Some(mean).filter(|mean| mean.is_finite()), digits)
    };
    let years = format!(
        "{} / {} / {}",
        some(|row| row.forecast.years_first, 1),
        some(|row| row.forecast.years_share, 1),
        some(|row| row.forecast.years_mean, 1)
    );
    let what = format!(
        "first segment / {:.0} % of segments / mean segment at {} erases, at this rate",
        row.forecast.worn_share * 100.0,
        row.forecast.endurance_erases
    );
    line("lifetime, years", years, &what);
    let tbw = format!(
        "{} / {} / {}",
        some(|row| row.forecast.tbw_first, 3),
        some(|row| row.forecast.tbw_share, 3),
        some(|row| row.forecast.tbw_mean, 3)
    );
    line("lifetime, TB written", tbw, "the same three points in time");
    line("workload spans", span(group.mean(|row| row.duration_s)), "in its own time");
    let speed = format!("{:.2} million host writes/s", group.mean(|row| row.writes_per_s) / 1e6);
    line("replayed in", format!("{:.2} s", group.mean(|row| row.wall_s)), &speed);
    let mut columns: [Vec<String>; 3] = Default::default();
    for (name, value, what) in lines {
        columns[0].push(name);
        columns[1].push(value);
        columns[2].push(what);
    }
    let [names, values, what] = columns;
    let what = Column::text("what it is", what);
    text += &wide(Column::text("measure", names), Column::number("value", "", values), what);
    text += &victims(outcomes);
    if let Some(why) = group.unsettled().filter(|_| row.erases > 0) {
        let what = "the write amplification of the warm window is not to be cited";
        text +=
            &wrapped(&format!("note: not settled ({why}), so {what}; --until-steady goes on until it has settled"), 2);
    }
    text + &idle_note(row)
}

/// A table whose last column is wrapped into the room that is left.
fn wide(name: Column, value: Column, mut what: Column) -> String {
    let longest = |column: &Column| column.cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
    let room = super::tables::width().saturating_sub(longest(&name) + longest(&value) + 10).max(20);
    for cell in &mut what.cells {
        let mut lines = vec![String::new()];
        for word in cell.split_whitespace() {
            let last = lines.len() - 1;
            if !lines[last].is_empty() && lines[last].chars().count() + 1 + word.chars().count() > room {
                lines.push(word.into());
            } else {
                if !lines[last].is_empty() {
                    lines[last].push(' ');
                }
                lines[last].push_str(word);
            }
        }
        *cell = lines.join("\n");
    }
    fitted(vec![name, value, what]).0
}

/// A histogram of the utilization of victims, in ten bars.
fn victims(outcomes: &[Outcome]) -> String {
    let total: u64 = outcomes.iter().flat_map(|outcome| &outcome.victims).sum();
    if total == 0 {
        return String::new();
    }
    let mut text = "victims by utilization\n".to_string();
    let pages = outcomes[0].victims.len() - 1;
    for tenth in 0..10 {
        let inside = |valid: usize| (valid * 10 / pages.max(1)).min(9) == tenth;
        let all = outcomes.iter().flat_map(|outcome| outcome.victims.iter().enumerate());
        let count: u64 = all.filter(|(valid, _)| inside(*valid)).map(|(_, count)| count).sum();
        let share = count as f64 / total as f64;
        let bar = "#".repeat((share * 50.0).round() as usize);
        let (from, to) = (tenth as f64 / 10.0, (tenth + 1) as f64 / 10.0);
        let _ = writeln!(text, "  {from:.1}-{to:.1} {:>6.2} % {bar}", share * 100.0);
    }
    text
}

/// A measure of a table: name, unit, value, digits, and whether less is better.
type Measure = (&'static str, &'static str, fn(&ResultRow) -> f64, usize, bool);

/// What is compared beside write amplification, by importance. Counts are by host write, because runs until steady differ in
/// their length.
const MEASURES: [Measure; 8] = [
    ("erases", "/1k writes", |row| 1e3 * row.erases as f64 / row.host_writes as f64, 2, true),
    ("wear sd", "% of mean", |row| 100.0 * row.erases_deviation / row.erases_mean, 1, true),
    ("TBW first", "TB", |row| row.forecast.tbw_first.unwrap_or(f64::NAN), 3, false),
    ("p99", "ms/write", |row| row.p99_write_us / 1e3, 2, true),
    ("speed", "MiB/s", |row| row.throughput_bytes_per_s / 1_048_576.0, 2, false),
    ("copies", "/write", |row| row.copies as f64 / row.host_writes as f64, 3, true),
    ("WA all", "whole run", |row| row.wa, 3, true),
    ("worst", "pages/write", |row| row.worst_write_pages as f64, 0, true),
];

/// Whether two groups are the same to the last digit.
fn is_same(a: &Group<'_>, b: &Group<'_>) -> bool {
    let all = |row: &ResultRow| MEASURES.map(|(_, _, measure, ..)| measure(row).to_bits());
    let same = |(a, b): (&&ResultRow, &&ResultRow)| a.wa_warm.to_bits() == b.wa_warm.to_bits() && all(a) == all(b);
    a.rows.len() == b.rows.len() && a.rows.iter().zip(&b.rows).all(same)
}

/// Groups that are the same, as one: `greedy + m1 = m2 = m3`.
pub struct Folded<'a> {
    pub name: String,
    pub group: Group<'a>,
}

/// The pairs of policies of these runs, best first, those that are the same as one.
pub fn folded<'a>(rows: impl IntoIterator<Item = &'a ResultRow>) -> Vec<Folded<'a>> {
    let mut all: Vec<(Folded<'a>, String)> = Vec::new();
    for group in Group::by_policies(rows) {
        let name = group.name();
        let selection = name.split(" + ").next().unwrap_or_default().to_string();
        match all.iter_mut().find(|(other, _)| is_same(&other.group, &group)) {
            Some((other, of)) if *of == selection => {
                let _ = write!(other.name, " = {}", &name[selection.len() + 3..]);
            }
            Some((other, of)) => {
                let _ = write!(other.name, " = {name}");
                *of = selection;
            }
            None => all.push((Folded { name, group }, selection)),
        }
    }
    let mut all: Vec<Folded<'a>> = all.into_iter().map(|(folded, _)| folded).collect();
    all.sort_by(|a, b| a.group.wa().mean.total_cmp(&b.group.wa().mean));
    all
}

/// How many pairs a table shows.
const BEST: usize = 10;

/// Columns of write amplification and the other measures; `*` marks the best of each.
fn measure_columns(groups: &[&Group<'_>], marks: bool) -> Vec<Column> {
    let wa: Vec<f64> = groups.iter().map(|group| group.wa().mean).collect();
    let lowest = wa.iter().copied().fold(f64::INFINITY, f64::min);
    let cells = groups.iter().map(|group| {
        let best = if marks && group.wa().mean == lowest { "*" } else { "" };
        let doubt = if group.unsettled().is_some() { "?" } else { "" };
        format!("{}{doubt}{best}", group.wa().show(3))
    });
    let mut columns = vec![Column::number("WA warm", "+-95 %", cells.collect())];
    for (name, unit, measure, digits, low) in MEASURES {
        let values: Vec<f64> = groups.iter().map(|group| group.mean(measure)).collect();
        let best = if low {
            values.iter().copied().fold(f64::INFINITY, f64::min)
        } else {
            values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
        };
        let show = |value: &f64| match (value.is_nan(), marks && *value == best) {
            (true, _) => "-".into(),
            (_, true) => format!("{value:.digits$}*"),
            _ => format!("{value:.digits$}"),
        };
        columns.push(Column::number(name, unit, values.iter().map(show).collect()));
    }
    columns
}

/// What the marks of a table mean, and what it leaves out.
fn legend(groups: &[&Group<'_>], marks: bool, left_out: &[String]) -> String {
    let first = groups[0].rows[0];
    let seeds = groups.iter().map(|group| group.rows.len()).max().unwrap_or(1);
    let mut notes: Vec<String> = Vec::new();
    if marks {
        notes.push("* best of its column".into());
    }
    if groups.iter().any(|group| group.unsettled().is_some()) {
        notes.push("? had not settled".into());
    }
    let rule = match first.warm_rule.as_str() {
        "fixed" => format!("from host write {} on", first.warm_from),
        "mser-5" => "the run without its transient (MSER-5)".into(),
        _ => "the passes of the trace without the transient (MSER)".into(),
    };
    notes.push(format!("WA warm: {rule}"));
    notes.push(if seeds > 1 {
        format!("means over up to {seeds} seeds; +- half the 95 % interval, of one run from parts of its warm window")
    } else {
        "+- half the 95 % interval, from parts of the warm window".into()
    });
    if !left_out.is_empty() {
        notes.push(format!("no room for {} (a wider terminal, or -f csv, has them)", left_out.join(", ")));
    }
    wrapped(&notes.join("; "), 2)
}

/// A table of the best pairs of policies, or of all, and advice which to choose.
pub fn comparison(outcomes: &[Outcome], all: bool) -> String {
    let Some(first) = outcomes.first() else { return "there were no runs\n".into() };
    let rows = || outcomes.iter().map(|outcome| &outcome.row);
    let groups = Group::by_policies(rows());
    let (oracles, pairs): (Vec<_>, Vec<_>) = folded(rows()).into_iter().partition(|folded| folded.group.is_oracle());
    let is_plain = |folded: &Folded<'_>| folded.group.name() == "greedy + m1";
    let shown: Vec<&Folded<'_>> = match pairs.len() {
        count if all || count <= BEST + 1 => pairs.iter().collect(),
        _ => pairs[..BEST].iter().chain(pairs[BEST..].iter().filter(|folded| is_plain(folded))).collect(),
    };
    let mut text = heading(&first.row) + &pairs_table(&shown);
    if shown.len() < pairs.len() {
        let better = if shown.iter().any(|folded| is_plain(folded)) { " and greedy + m1" } else { "" };
        text += &wrapped(&format!("the {BEST} best{better} of {} rows: --all shows all", pairs.len()), 2);
    }
    if !oracles.is_empty() {
        let what = "Oracles, which know from a pass over the workload when each page will be written again: bounds, that no disk can be run with.";
        text += &(wrapped(what, 0) + &pairs_table(&oracles.iter().collect::<Vec<_>>()));
    }
    text + &wrapped_if_any(&advice(&groups)) + &idle_note(&first.row)
}

/// A table of pairs of policies with its legend; empty if there are none.
fn pairs_table(pairs: &[&Folded<'_>]) -> String {
    if pairs.is_empty() {
        return String::new();
    }
    let mut columns = vec![Column::text("policies", pairs.iter().map(|folded| folded.name.clone()).collect())];
    let groups: Vec<&Group<'_>> = pairs.iter().map(|folded| &folded.group).collect();
    columns.extend(measure_columns(&groups, true));
    let (table, left_out) = fitted(columns);
    table + &legend(&groups, true, &left_out)
}

fn wrapped_if_any(text: &str) -> String {
    if text.is_empty() { String::new() } else { wrapped(text, 0) }
}

/// Rows of a sweep's table that are shown without being asked for all.
const FIRST_ROWS: usize = 40;

/// The finished points of a sweep that share all but their seed, with the values that set them apart.
pub fn swept<'a>(points: &'a [Point], rows: &'a [Option<ResultRow>]) -> Vec<(BTreeMap<&'a str, String>, Group<'a>)> {
    let varied = |point: &'a Point| -> BTreeMap<&'a str, String> {
        point.varied.iter().map(|(key, value)| (key.as_str(), plain(value))).collect()
    };
    let done = points.iter().zip(rows).filter_map(|(point, row)| Some((varied(point), row.as_ref()?)));
    let keys: Vec<(BTreeMap<&str, String>, &ResultRow)> = done.collect();
    let groups = Group::by(keys.iter().map(|(key, row)| (key, *row)));
    let mut values: Vec<BTreeMap<&str, String>> = Vec::new();
    for (key, _) in &keys {
        if !values.contains(key) {
            values.push(key.clone());
        }
    }
    values.into_iter().zip(groups).collect()
}

/// A table of a sweep: a row for each point, its seeds taken together.
pub fn sweep(points: &[Point], rows: &[Option<ResultRow>], all: bool) -> String {
    let groups = swept(points, rows);
    if groups.is_empty() {
        return String::new();
    }
    let shown = if all { groups.len() } else { groups.len().min(FIRST_ROWS) };
    let keys: Vec<&str> = groups[0].0.keys().copied().collect();
    let of_shown: Vec<&Group<'_>> = groups[..shown].iter().map(|(_, group)| group).collect();
    let joined = |values: &BTreeMap<&str, String>| values.values().cloned().collect::<Vec<_>>().join(", ");
    let names = groups[..shown].iter().map(|(values, _)| joined(values)).collect();
    let mut columns = vec![Column::text(&keys.join(", "), names)];
    columns.extend(measure_columns(&of_shown, false));
    let (table, left_out) = fitted(columns);
    let mut text = table + &legend(&of_shown, false, &left_out);
    if shown < groups.len() {
        text += &wrapped(&format!("the first {shown} of {} rows: --all shows all", groups.len()), 2);
    }
    text
}
